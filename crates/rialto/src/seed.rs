//! Numbers that nobody outside of the process can tell. Seeds of hashes, and of the ranks of a tree, so that a client that chooses its keys cannot choose what they come to: else it
//! could have all of them fall together, and work that takes a few steps would take one for each of them.
//!
//! Nothing that depends on a seed is written to a disk, or decides what a replay computes.

use std::hash::{BuildHasher, RandomState};

/// A seed that nobody outside of the process knows; another one each time.
pub(crate) fn draw() -> u64 {
    RandomState::new().hash_one(())
}

/// An identifier of a database, or of a backup, that no other one has.
pub(crate) fn identifier() -> u128 {
    let half = || u128::from(RandomState::new().hash_one(std::process::id()));
    half() << 64 | half()
}

/// Keys whose places are the same, as far as `place` tells, where each of `count` keys has one of some 2^16 places.
#[cfg(test)]
pub(crate) fn keys_of_one_place(count: usize, place: impl Fn(&[u8]) -> u64) -> Vec<[u8; 8]> {
    (0_u64..).map(u64::to_be_bytes).filter(|key| place(key) == 0).take(count).collect()
}

/// What a hash table of some hundred entries looks at of a hash.
#[cfg(test)]
pub(crate) const LOOKED_AT: u64 = 0x7f << 57 | 0x1ff;
