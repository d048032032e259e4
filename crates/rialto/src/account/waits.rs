//! What a thread has waited for in places where the transaction is not known: latches, room in the log, pages.
//!
//! The sums only grow; code that accounts for a stretch of work on one thread takes the difference of two samples.

use std::cell::Cell;

/// Sums of waits, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WaitSums {
    /// For latches of segments and index nodes, and at barriers.
    pub latch_ns: u64,
    /// For packet slots and room in the log.
    pub log_ns: u64,
    /// For pages of disk-resident tables.
    pub page_ns: u64,
}

impl WaitSums {
    /// What was waited since an earlier sample on the same thread.
    #[inline]
    pub fn since(self, earlier: WaitSums) -> WaitSums {
        WaitSums {
            latch_ns: self.latch_ns - earlier.latch_ns,
            log_ns: self.log_ns - earlier.log_ns,
            page_ns: self.page_ns - earlier.page_ns,
        }
    }
}

thread_local! {
    pub(super) static LATCH_NS: Cell<u64> = const { Cell::new(0) };
    pub(super) static LOG_NS: Cell<u64> = const { Cell::new(0) };
    pub(super) static PAGE_NS: Cell<u64> = const { Cell::new(0) };
}

/// This thread's sums so far.
#[inline]
pub(crate) fn now() -> WaitSums {
    WaitSums { latch_ns: LATCH_NS.get(), log_ns: LOG_NS.get(), page_ns: PAGE_NS.get() }
}
