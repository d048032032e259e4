//! The scenarios, with central locks.

use rialto::LockForm;

const LOCKS: LockForm = LockForm::Central;

#[path = "scenarios/mod.rs"]
mod scenarios;
