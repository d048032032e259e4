//! The commit queue: a lock-free stack of packet slots whose head is one word, so that to link a packet and to number
//! it is one atomic step (I2).

use super::sync::{AtomicU32, AtomicU64, Ordering};
use crate::ids::Lsn;

/// "No slot" in a link.
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// Slot numbers stay below this, so that slot + 1 fits in the head word's low 16 bits.
pub(crate) const SLOTS_MAX: usize = 0xfffe;

/// Where the queue finds the two words that it keeps in each slot.
pub(crate) trait Links {
    /// The slot that was pushed before this one, or [`NO_SLOT`].
    fn next(&self, slot: u32) -> &AtomicU32;
    /// The slot's place.
    fn lsn(&self, slot: u32) -> &AtomicU64;
}

/// The head word: the last place taken (48 bits) over the newest queued slot plus one (16 bits; 0 is "none").
///
/// Who may touch what: a slot's links belong to its owner until the compare-and-swap that publishes it, and from then
/// on are only read, by whoever drained it. The head never returns to an old value, because its `Lsn` only grows: a
/// compare-and-swap that succeeds saw the true head.
/// Who may gather, and has gathered all up to the head's place, can number a packet of his own without linking it, as long as no
/// slot is queued ([`CommitQueue::place_alone`]): nobody else would ever drain it.
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

    /// Takes the place behind `last` for a packet that its owner gathers himself, if that is free and nothing is queued: a push
    /// and a drain in one step. For whoever may gather, all up to `last` being gathered.
    #[inline(always)]
    pub(crate) fn place_alone(&self, last: Lsn) -> Option<Lsn> {
        let lsn = last.next();
        assert!(lsn <= Lsn::MAX, "the log format holds no place past {}", Lsn::MAX);
        let placed =
            self.head.compare_exchange(last.0 << 16, lsn.0 << 16, Ordering::SeqCst, Ordering::Relaxed);
        placed.is_ok().then_some(lsn)
    }

    /// Takes all that is queued: the newest slot, whose links lead to the oldest; `None` if nothing is.
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
