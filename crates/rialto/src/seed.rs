//! Random numbers that are unknown outside the process: seeds of hashes and of the ranks of a tree. A client that
//! chooses its keys must not be able to choose their hashes. Otherwise it could make all of them collide, and work that
//! takes a few steps would take one step for each key.
//!
//! Nothing that depends on a seed is written to a disk, or decides what a replay computes.

use std::hash::{BuildHasher, RandomState};

/// A seed that is unknown outside the process; another one at each call.
pub(crate) fn draw() -> u64 {
    RandomState::new().hash_one(())
}

/// An identifier of a database or of a backup that no other one has.
pub(crate) fn identifier() -> u128 {
    let half = || u128::from(RandomState::new().hash_one(std::process::id()));
    half() << 64 | half()
}

/// `count` keys that fall into the same one of some 2^16 slots, as `slot_of` maps keys to slots.
#[cfg(test)]
pub(crate) fn keys_of_one_slot(count: usize, slot_of: impl Fn(&[u8]) -> u64) -> Vec<[u8; 8]> {
    (0_u64..).map(u64::to_be_bytes).filter(|key| slot_of(key) == 0).take(count).collect()
}

/// The bits of a hash that a hash table of some hundred entries uses.
#[cfg(test)]
pub(crate) const LOOKED_AT: u64 = 0x7f << 57 | 0x1ff;
