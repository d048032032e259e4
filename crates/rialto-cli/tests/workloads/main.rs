//! `rialto bench` and `rialto figures`, each workload, run as a user runs them.

mod bench;
mod card;
mod cluster;
mod commit;
#[path = "../common/mod.rs"]
mod common;
mod figures;
mod options;
mod smallbase;
mod tpcc;
