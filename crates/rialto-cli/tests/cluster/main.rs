//! Clusters of real processes, by the program's own commands, with a real etcd.

mod backups;
#[path = "../common/mod.rs"]
mod common;
mod demo;
mod failures;
mod members;
mod operation;
