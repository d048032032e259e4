//! The scenarios, with thin locks.

use rialto::LockForm;

const LOCKS: LockForm = LockForm::Thin;

#[path = "scenarios/mod.rs"]
mod scenarios;
