//! The commit queue: a lock-free stack of packet slots. Its head is one word, therefore linking a packet and numbering
//! it are one atomic step (I2).

use super::sync::{AtomicU32, AtomicU64, Ordering};
use crate::ids::Lsn;

/// "No slot" in a link.
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// Slot numbers stay below this, so that slot + 1 fits in the head word's low 16 bits.
pub(crate) const SLOTS_MAX: usize = 0xfffe;

/// Gives the queue the two words that it keeps in each slot.
pub(crate) trait Links {
    /// The slot that was pushed before this one, or [`NO_SLOT`].
    fn next(&self, slot: u32) -> &AtomicU32;
    /// The slot's place.
    fn lsn(&self, slot: u32) -> &AtomicU64;
}

/// The head word: the last place taken (48 bits) over the newest queued slot plus one (16 bits; 0 is "none").
///
/// Which thread may touch what: a slot's links belong to its owner until the compare-and-swap that publishes the slot.
/// From then on they are only read, by the thread that drained it. The head never returns to an old value, because its
/// `Lsn` only grows: a compare-and-swap that succeeds saw the true head.
///
/// The holder of the gatherer, once it has gathered all places up to the head's, can number a packet of its own without
/// linking it, as long as no slot is queued ([`CommitQueue::place_alone`]): no other thread would ever drain that
/// packet.
#[derive(Debug)]
pub(crate) struct CommitQueue {
    head: AtomicU64,
}

impl CommitQueue {
    /// A queue whose last place taken is `last`.
    pub(crate) fn new(last: Lsn) -> CommitQueue {
        CommitQueue { head: AtomicU64::new(last.0 << 16) }
    }

    /// The last place taken.
    pub(crate) fn place(&self) -> Lsn {
        Lsn(self.head.load(Ordering::SeqCst) >> 16)
    }

    /// Links the slot and gives it the next place, in one step.
    pub(crate) fn push(&self, links: &impl Links, slot: u32) -> Lsn {
        debug_assert!((slot as usize) < SLOTS_MAX);
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let lsn = Lsn((head >> 16) + 1);
            assert!(lsn <= Lsn::MAX, "the log format holds no place past {}", Lsn::MAX);
            let previous = match head & 0xffff {
                0 => NO_SLOT,
                newest => newest as u32 - 1,
            };
            links.next(slot).store(previous, Ordering::Relaxed);
            links.lsn(slot).store(lsn.0, Ordering::Relaxed);
            let new = lsn.0 << 16 | u64::from(slot + 1);
            match self.head.compare_exchange_weak(head, new, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return lsn,
                Err(now) => head = now,
            }
        }
    }

    /// Takes the place after `last`, if it is free and nothing is queued, for a packet that its owner gathers itself:
    /// a push and a drain in one step. For the holder of the gatherer, once all places up to `last` are gathered.
    #[inline(always)]
    pub(crate) fn place_alone(&self, last: Lsn) -> Option<Lsn> {
        let lsn = last.next();
        assert!(lsn <= Lsn::MAX, "the log format holds no place past {}", Lsn::MAX);
        let placed =
            self.head.compare_exchange(last.0 << 16, lsn.0 << 16, Ordering::SeqCst, Ordering::Relaxed);
        placed.is_ok().then_some(lsn)
    }

    /// Takes all that is queued. Returns the newest slot, whose links lead to the oldest; `None` if nothing is queued.
    pub(crate) fn drain(&self) -> Option<u32> {
        let mut head = self.head.load(Ordering::SeqCst);
        loop {
            if head & 0xffff == 0 {
                return None;
            }
            match self.head.compare_exchange_weak(head, head & !0xffff, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return Some((head & 0xffff) as u32 - 1),
                Err(now) => head = now,
            }
        }
    }
}
