//! What a thread has waited for in places that know no transaction: latches, room in the log.
//!
//! The sums only grow; whoever accounts for a stretch of work on one thread takes the difference of two looks.

use std::cell::Cell;
use std::time::Instant;

use crate::account::blocked::Blocked;

/// Sums of waits, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    /// For latches of segments and index nodes, and at gates.
    pub latch_ns: u64,
    /// For packet slots and room in the log.
    pub log_ns: u64,
}

impl Waits {
    /// What was waited since an earlier look on the same thread.
    #[inline]
    pub fn since(self, earlier: Waits) -> Waits {
        Waits { latch_ns: self.latch_ns - earlier.latch_ns, log_ns: self.log_ns - earlier.log_ns }
    }
}

thread_local! {
    static LATCH_NS: Cell<u64> = const { Cell::new(0) };
    static LOG_NS: Cell<u64> = const { Cell::new(0) };
}

/// What this thread has waited for so far.
#[inline]
pub(crate) fn now() -> Waits {
    Waits { latch_ns: LATCH_NS.get(), log_ns: LOG_NS.get() }
}

/// A wait that ends when this is dropped. One that may last says that its thread is [`Blocked`]: an executor's other work needs
/// nothing of what it waits for.
pub(crate) struct Waiting {
    since: Instant,
    sum: &'static std::thread::LocalKey<Cell<u64>>,
    blocked: Option<Blocked>,
}

impl Waiting {
    /// For a latch, which others have for a moment. The thread may hold others.
    pub fn for_latch() -> Waiting {
        Waiting { since: Instant::now(), sum: &LATCH_NS, blocked: None }
    }

    /// For a checkpoint, at a gate that commits pass. The thread holds no latch.
    pub fn at_gate() -> Waiting {
        Waiting { since: Instant::now(), sum: &LATCH_NS, blocked: Some(Blocked::enter()) }
    }

    /// For a packet slot, or room in the log. The thread holds no latch.
    pub fn for_log() -> Waiting {
        Waiting { since: Instant::now(), sum: &LOG_NS, blocked: Some(Blocked::enter()) }
    }

    /// For the turn of an executor that was blocked.
    pub fn for_turn(blocked: Blocked) -> Waiting {
        Waiting { since: Instant::now(), sum: &LATCH_NS, blocked: Some(blocked) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // An executor waits for its turn.
        self.blocked = None;
        self.sum.set(self.sum.get() + self.since.elapsed().as_nanos() as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn waits_are_kept_by_thread_and_kind() {
        let before = now();
        let latch = Waiting::for_latch();
        std::thread::spawn(|| drop(Waiting::for_log())).join().unwrap();
        std::thread::sleep(Duration::from_millis(2));
        drop(latch);
        let waited = now().since(before);
        assert!(waited.latch_ns >= 2_000_000, "{waited:?}");
        assert_eq!(waited.log_ns, 0);
    }
}
