//! How a store's identity is drawn.

use std::hash::{BuildHasher, RandomState};

use crate::protocol::replication::StoreIdentity;

impl StoreIdentity {
    /// An identity that no store has: a random number.
    pub fn draw() -> StoreIdentity {
        // Each state has keys of its own, from the system's source of random bytes.
        StoreIdentity(RandomState::new().hash_one(std::process::id()))
    }
}
