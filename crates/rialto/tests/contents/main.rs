//! The whole contents of a database against a model, or against what its clients were told, after each of its ends.

mod by_seed;
mod by_turns;
#[path = "../common/mod.rs"]
mod common;
mod failing_disks;
mod ledger;
mod model;
mod restores;
mod states;
mod tables;
