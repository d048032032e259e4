//! A cluster of real processes on machines of their own: network namespaces on one bridge, three nodes whose links are
//! TLS, and an etcd of three members. Processes are killed or stand still, links are cut (one way, too) or slow, disks
//! fill up, and etcd is away or slow, while `rialto bench cluster` transfers money and other clients append to lists.
//!
//! [`network`] makes the machines, [`cluster`] what runs on them, [`tunnel`] leads clients to nodes. [`bank`] and
//! [`lists`] are the clients, and judge at the end; [`history`] is the kernel's checker, which judges the lists.
//!
//! Bad days, and the tests that have them (*simulation*: `rialto-cluster`, tests `replication` and the library's
//! `protocol::transactions::tests`):
//!
//! | bad day | tests |
//! |---|---|
//! | etcd is away, or slow | [`faults`] (`StoreAway`, `StoreAwayAndNodeKilled`, `StoreSlowAndNodeKilled`); `cluster` `failures`; simulation `store_away` |
//! | etcd was restored from a backup | [`restored`]; `node` `members`; simulation |
//! | a node is gone for ever | `cluster` `members`; `node` `members` |
//! | two nodes at once | [`faults`] (`TwoKilled`) |
//! | all power is lost | [`power`]; simulation |
//! | a disk is full on a standby | [`disks`]; simulation `disks` |
//! | a primary stands still for longer than a promise | [`faults`] (`StandsStill`); simulation |
//! | the network is cut, or one way | [`faults`] (`Cut`, `Deaf`, `Mute`, `Slow`); simulation |
//! | clocks that run at other speeds, suspension | simulation |
//! | a wrong cluster file, two nodes of one name | [`bad_days`]; `claim` of the node |
//! | a node of an older build | [`upgrade`]; `net` `refusals` |
//! | a client that retries | `node` `calls`; simulation of transactions |
//! | a coordinator that dies at each step of a commit | simulation of transactions |
//! | a prepared branch that is not decided | [`decided`]; `node` `undecided` |
//!
//! These tests need the right to make network namespaces (root has it), `ip` and `tc` (Debian: iproute2), `nft` (nftables)
//! and `etcd` (etcd-server). Where something is missing they say so and are skipped; with `CI=true` that is a failure.

mod bad_days;
mod bank;
#[allow(dead_code, reason = "the program uses the rest")]
#[path = "../../src/client.rs"]
mod client;
mod cluster;
#[path = "../common/mod.rs"]
mod common;
mod decided;
mod disks;
mod failovers;
mod faults;
mod history;
mod lists;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../mounted/loop_mount.rs"]
mod loop_mount;
mod network;
mod power;
mod restored;
mod tunnel;
mod upgrade;
