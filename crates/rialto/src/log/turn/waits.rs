//! What sleeping and waking cost, counted.

use super::AtomicU64;

/// What the waiting has cost.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) wakes: AtomicU64,
    pub(super) self_wakes: AtomicU64,
    pub(super) stalls: AtomicU64,
    pub(super) stalled_ns: AtomicU64,
    pub(super) by_committers: AtomicU64,
    pub(super) by_server: AtomicU64,
}

/// What the waiting has cost since the log was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits {
    /// Wake calls made for waiters and for the log server.
    pub wakes: u64,
    /// Sleeps that ended by themselves.
    pub self_wakes: u64,
    /// Stalls begun.
    pub stalls: u64,
    /// Time actually spent in them, in nanoseconds, of all committers together.
    pub stalled_ns: u64,
    /// Groups that one of the committers has written.
    pub groups_by_committers: u64,
    /// Groups that the log server has written.
    pub groups_by_server: u64,
}

impl Waits {
    /// What came since an earlier look.
    #[must_use]
    pub fn since(self, earlier: Waits) -> Waits {
        Waits {
            wakes: self.wakes - earlier.wakes,
            self_wakes: self.self_wakes - earlier.self_wakes,
            stalls: self.stalls - earlier.stalls,
            stalled_ns: self.stalled_ns - earlier.stalled_ns,
            groups_by_committers: self.groups_by_committers - earlier.groups_by_committers,
            groups_by_server: self.groups_by_server - earlier.groups_by_server,
        }
    }
}
