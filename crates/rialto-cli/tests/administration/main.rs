//! The directories of a database as an administrator has them: served, checked, backed up, restored, interrupted.

mod backup;
#[path = "../common/mod.rs"]
mod common;
mod interrupts;
mod offline;
mod online_backup;
mod pages;
mod serve;
mod words;
