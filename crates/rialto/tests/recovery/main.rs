//! How a database opens again after its end, what that costs, and its errors about damaged files.

#[path = "../common/mod.rs"]
mod common;
mod damage;
mod recovery;
mod recovery_check;
mod recovery_time;
mod redo_again;
mod same_memory;
