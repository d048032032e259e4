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
        // An earlier sample less what was waited elsewhere may be below 0.
        WaitSums {
            latch_ns: self.latch_ns.wrapping_sub(earlier.latch_ns),
            log_ns: self.log_ns.wrapping_sub(earlier.log_ns),
            page_ns: self.page_ns.wrapping_sub(earlier.page_ns),
        }
    }

    /// Both together.
    fn and(self, other: WaitSums) -> WaitSums {
        WaitSums {
            latch_ns: self.latch_ns + other.latch_ns,
            log_ns: self.log_ns + other.log_ns,
            page_ns: self.page_ns + other.page_ns,
        }
    }
}

/// The waits of work that may go from one thread to another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TravellingWaits {
    /// On earlier threads.
    earlier: WaitSums,
    /// The sums of the present thread when the work came to it.
    since: WaitSums,
}

impl TravellingWaits {
    /// Of work that begins on this thread.
    #[inline]
    pub fn begin() -> TravellingWaits {
        TravellingWaits { earlier: WaitSums::default(), since: now() }
    }

    /// What it has waited for so far.
    pub fn so_far(&self) -> WaitSums {
        self.earlier.and(now().since(self.since))
    }

    /// It leaves this thread.
    pub fn leave(&mut self) {
        *self = TravellingWaits { earlier: self.so_far(), since: now() };
    }

    /// It comes to this thread, after it has left another one.
    pub fn come(&mut self) {
        self.since = now();
    }

    /// A sample of this thread since which the sums have grown by what the work has waited for.
    #[inline]
    pub fn sample(&self) -> WaitSums {
        self.since.since(self.earlier)
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
