//! The shared bound on the memory of the memory-resident store.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::io::MachineMemory;

/// The least memory that a database can work with, in bytes.
pub(crate) const MEMORY_BYTES_MIN: u64 = 4 << 20;
/// The most memory whose segments are numbered at a reasonable cost: 16 bytes for each segment of 64 KiB that there can
/// be.
pub(crate) const MEMORY_BYTES_MAX: u64 = 1 << 44;

/// Three quarters of the memory that the process may have.
pub(crate) fn memory_bytes_by_default() -> u64 {
    (MachineMemory::here().bytes / 4 * 3).clamp(MEMORY_BYTES_MIN, MEMORY_BYTES_MAX)
}

/// A bound on bytes that several parts share. They take from it in chunks large enough that its counter is rarely
/// touched.
///
/// Invariant: no take makes `used` pass `limit` plus the reserve, whatever threads do. Bytes are given back only by the
/// part that took them.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    /// What a recovery may take beyond the limit; 0 otherwise.
    reserve: AtomicU64,
    used: AtomicU64,
}

impl Budget {
    /// A budget of `limit` bytes, all of them free.
    pub const fn new(limit: u64) -> Budget {
        Budget::with_reserve(limit, 0)
    }

    /// A budget of `limit` bytes, and `reserve` more until [`Budget::end_reserve`].
    pub const fn with_reserve(limit: u64, reserve: u64) -> Budget {
        Budget { limit, reserve: AtomicU64::new(reserve), used: AtomicU64::new(0) }
    }

    /// From now on nothing is lent beyond the limit. What is taken already stays.
    pub fn end_reserve(&self) {
        self.reserve.store(0, Ordering::Relaxed);
    }

    /// Allows so many more bytes beyond the limit, until [`Budget::take_off_reserve`].
    pub fn add_reserve(&self, bytes: u64) {
        self.reserve.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes added bytes off the reserve; what is taken of them stays.
    pub fn take_off_reserve(&self, bytes: u64) {
        self.reserve.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The most that can be taken now, in bytes.
    pub fn capacity(&self) -> u64 {
        self.limit.saturating_add(self.reserve.load(Ordering::Relaxed))
    }

    /// A budget that never refuses.
    pub const fn unbounded() -> Budget {
        Budget::new(u64::MAX)
    }

    /// Takes `bytes` if they are still free; takes nothing otherwise.
    #[must_use]
    pub fn take(&self, bytes: u64) -> bool {
        // Relaxed: the counter guards no other memory.
        let capacity = self.capacity();
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|&sum| sum <= capacity)
            })
            .is_ok()
    }

    /// Gives back `bytes` that were taken.
    pub fn give(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "{bytes} bytes given back to a budget that lent only {before}");
    }

    /// The bound, in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// What is left to be taken now, in bytes.
    pub fn free(&self) -> u64 {
        self.capacity().saturating_sub(self.used())
    }

    /// The bytes that are taken now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::Budget;

    #[test]
    fn takes_up_to_the_limit_and_not_beyond() {
        let budget = Budget::new(100);
        assert!(budget.take(60));
        assert!(!budget.take(41));
        assert!(budget.take(40));
        assert!(!budget.take(1));
        assert!(!budget.take(u64::MAX));
        budget.give(60);
        assert_eq!(budget.used(), 40);
        assert!(budget.take(1));
        assert_eq!(budget.limit(), 100);
    }

    #[test]
    fn a_reserve_is_lent_until_it_ends() {
        let budget = Budget::with_reserve(100, 50);
        assert!(budget.take(140) && !budget.take(20));
        budget.end_reserve();
        budget.give(30);
        assert!(!budget.take(1), "110 are taken yet");
        budget.give(11);
        assert!(budget.take(1) && !budget.take(1));
        assert_eq!((budget.limit(), budget.capacity()), (100, 100));
    }

    #[test]
    fn threads_never_pass_the_limit() {
        let budget = Budget::new(1000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        if budget.take(300) {
                            assert!(budget.used() <= 1000);
                            budget.give(300);
                        }
                    }
                });
            }
        });
        assert_eq!(budget.used(), 0);
    }
}
