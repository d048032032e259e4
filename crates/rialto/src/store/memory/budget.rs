//! The bound on the memory that tables and indexes may use.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that segments and index nodes may use in all, and do use.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    used: AtomicU64,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Budget {
        Budget { limit, used: AtomicU64::new(0) }
    }

    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The bytes in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes `bytes`, unless that would pass the limit.
    #[must_use]
    pub fn take(&self, bytes: u64) -> bool {
        let more = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Gives back `bytes` that were taken.
    pub fn give(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "more given back than taken");
    }
}
