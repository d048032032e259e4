//! The counts of the lock manager. Each owner counts for itself; the counts are summed when they are read.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the manager was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LockCounters {
    /// Record locks acquired, upgrades included.
    pub row: u64,
    /// Locks acquired in the lock tables of executors, upgrades included.
    pub local: u64,
    /// Table and interval locks acquired, upgrades included.
    pub higher: u64,
    /// Requests that had to wait.
    pub waits: u64,
    /// Time spent in those waits, in nanoseconds.
    pub wait_ns: u64,
    /// Of that, the time in which the transaction that held the lock waited for a page of a disk-resident table, or for a lock of
    /// one that did (Charm's Table 1). Counted for locks in the hash table of the lock manager.
    pub wait_for_disk_ns: u64,
    /// Waits that ended as a deadlock's victim.
    pub deadlocks: u64,
    /// Waits that ended by time-out or deadline.
    pub timeouts: u64,
    /// Requests that were answered "would wait".
    pub refused: u64,
}

/// One slot's counts. Only the slot's owner writes them, so an increment is a plain load and store.
#[derive(Debug, Default)]
pub(super) struct CounterCells {
    pub(super) row: Counter,
    pub(super) local: Counter,
    pub(super) higher: Counter,
    pub(super) waits: Counter,
    pub(super) wait_ns: Counter,
    pub(super) wait_for_disk_ns: Counter,
    pub(super) deadlocks: Counter,
    pub(super) timeouts: Counter,
    pub(super) refused: Counter,
}

/// A counter with one writer at a time.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(super) fn add(&self, amount: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl CounterCells {
    /// Adds this slot's counts to `total`.
    pub(super) fn sum_into(&self, total: &mut LockCounters) {
        total.row += self.row.get();
        total.local += self.local.get();
        total.higher += self.higher.get();
        total.waits += self.waits.get();
        total.wait_ns += self.wait_ns.get();
        total.wait_for_disk_ns += self.wait_for_disk_ns.get();
        total.deadlocks += self.deadlocks.get();
        total.timeouts += self.timeouts.get();
        total.refused += self.refused.get();
    }
}
