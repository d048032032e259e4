//! Copies of a database: sweeps of each kind, backups, the archive, and restores.

mod archive;
mod archive_is_only_read;
mod backup;
mod calls_beside_sweeps;
mod clock_set_back;
#[path = "../common/mod.rs"]
mod common;
mod disk_tables;
mod follower_copies;
mod kept_disks;
mod lives;
mod strategies;
