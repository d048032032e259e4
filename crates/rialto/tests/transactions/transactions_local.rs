//! The scenarios, with the lock tables of executors.

use rialto::LockForm;

const LOCKS: LockForm = LockForm::Local;

#[path = "scenarios/mod.rs"]
mod scenarios;
