//! A cluster of real processes on machines of their own: network namespaces on one bridge, three nodes whose links are
//! TLS, and an etcd of three members. Processes are killed or stand still, links are cut (one way, too) or slow, disks
//! fill up, and etcd is away or slow, while `rialto bench cluster` transfers money and other clients append to lists.
//!
//! [`network`] makes the machines, [`cluster`] what runs on them, [`tunnel`] leads clients to nodes. [`bank`] and
//! [`lists`] are the clients, and judge at the end; [`history`] is the kernel's checker, which judges the lists.
//!
//! These tests need the right to make network namespaces (root has it), `ip` and `tc` (Debian: iproute2), `nft` (nftables)
//! and `etcd` (etcd-server). Where something is missing they say so and are skipped; with `CI=true` that is a failure.

mod bank;
#[allow(dead_code, reason = "the program uses the rest")]
#[path = "../../src/client.rs"]
mod client;
mod cluster;
#[path = "../common/mod.rs"]
mod common;
mod disks;
mod failovers;
mod faults;
mod history;
mod lists;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../mounted/loop_mount.rs"]
mod loop_mount;
mod network;
mod tunnel;
