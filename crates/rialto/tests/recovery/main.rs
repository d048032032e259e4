//! How a database opens again after its end, what that costs, and what is said of files that are damaged.

#[path = "../common/mod.rs"]
mod common;
mod damage;
mod recovery;
mod recovery_check;
mod recovery_time;
mod redo_again;
mod same_memory;
