//! The kernel's checker of strictly serializable histories.

#![allow(dead_code, reason = "the kernel's tests use the rest")]

#[path = "../../../rialto/tests/isolation/strict/chain.rs"]
mod chain;
#[path = "../../../rialto/tests/isolation/strict/checker.rs"]
pub mod checker;
#[path = "../../../rialto/tests/isolation/strict/counting.rs"]
mod counting;
#[path = "../../../rialto/tests/isolation/strict/keys.rs"]
mod keys;
#[path = "../../../rialto/tests/isolation/strict/observed.rs"]
pub mod observed;
#[path = "../../../rialto/tests/isolation/strict/scans.rs"]
mod scans;
#[path = "../../../rialto/tests/isolation/strict/space.rs"]
mod space;
#[path = "../../../rialto/tests/isolation/strict/walk.rs"]
mod walk;
