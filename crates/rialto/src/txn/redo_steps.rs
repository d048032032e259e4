//! [`RedoSteps`]: how far the redo of a log has got, in steps that are smaller than packets.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::ids::Lsn;

/// Counts the steps of the redo: records of packets, rows of load files and of indexes, locks of prepared transactions. What
/// is done again, because a lock was in the way of its packet, is not counted again.
///
/// One thread redoes at a time; others read the count.
#[derive(Default)]
pub(crate) struct RedoSteps {
    count: AtomicU64,
    /// The packet that is being redone.
    packet: AtomicU64,
    /// How many steps of it this attempt has done, and how many any attempt has.
    now: AtomicU64,
    farthest: AtomicU64,
}

impl RedoSteps {
    /// A packet is redone, perhaps again. Records of prepared transactions, which have no place, are packets of their own.
    pub fn begin(&self, place: Lsn) {
        if self.packet.swap(place.0, Ordering::Relaxed) != place.0 || place == Lsn::ZERO {
            self.farthest.store(0, Ordering::Relaxed);
        }
        self.now.store(0, Ordering::Relaxed);
    }

    /// One step is done.
    pub fn step(&self) {
        let now = self.now.load(Ordering::Relaxed) + 1;
        self.now.store(now, Ordering::Relaxed);
        if now > self.farthest.load(Ordering::Relaxed) {
            self.farthest.store(now, Ordering::Relaxed);
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many steps were done.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_again_is_not_counted_again() {
        let steps = RedoSteps::default();
        let attempt = |place, done: u64| {
            steps.begin(Lsn(place));
            (0..done).for_each(|_| steps.step());
            steps.count()
        };
        assert_eq!([attempt(1, 3), attempt(1, 3), attempt(1, 5)], [3, 3, 5]);
        assert_eq!([attempt(2, 2), attempt(0, 2), attempt(0, 2)], [7, 9, 11]);
    }
}
