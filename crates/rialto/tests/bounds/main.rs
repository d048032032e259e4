//! The bounds of a database: memory, log, disk, sizes and times, each with what happens there.

#[path = "../common/mod.rs"]
mod common;
mod full_disk;
mod full_log;
mod limits;
mod log_bound;
mod long_times;
mod memory_bound;
