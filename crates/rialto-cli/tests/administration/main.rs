//! An administrator's work with the directories of a database: serving, checking, backup, restore, interrupts.

mod backup;
#[path = "../common/mod.rs"]
mod common;
mod copy_progress;
mod events;
mod in_use;
mod interrupts;
mod offline;
mod online_backup;
mod pages;
mod serve;
mod serve_options;
mod words;
