//! The version latch of a node: one word that readers check and writers hold.
//!
//! The word is `version * 4 + free * 2 + latched`. A reader notes the word, reads the node by relaxed atomic loads, and
//! believes what it read only if the word is still the same. A writer latches, changes, and moves the version on; the
//! version of a node's memory never goes back, not even when the node is freed and used again, so a word that is the
//! same means a node that is the same.
//!
//! The memory orderings are those of a sequence lock. Writer: latch (acquire), release fence, relaxed stores, unlatch
//! (release). Reader: note (acquire), relaxed loads, acquire fence, load again. A reader that saw any store of a writer
//! sees, behind the two fences, at least that writer's latched word. `tests/latch.rs` explores this with loom.

use crossbeam_utils::Backoff;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::account::latches;
use crate::account::wait_guard::LatchWait;

/// The word of a latch; a trait only so that a model checker can substitute its own.
pub(crate) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn compare_exchange(&self, old: u64, new: u64, success: Ordering, failure: Ordering) -> bool;
    fn fence(order: Ordering);
    fn pause(backoff: &Backoff);
}

impl Word for AtomicU64 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }

    #[inline(always)]
    fn compare_exchange(&self, old: u64, new: u64, success: Ordering, failure: Ordering) -> bool {
        self.compare_exchange(old, new, success, failure).is_ok()
    }

    #[inline(always)]
    fn fence(order: Ordering) {
        std::sync::atomic::fence(order);
    }

    #[inline]
    fn pause(backoff: &Backoff) {
        backoff.snooze();
    }
}

const LATCHED: u64 = 1;
const FREE: u64 = 2;
const STEP: u64 = 4;

/// A version latch. All zeroes is a latch that is open, at version 0.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Latch<W = AtomicU64> {
    word: W,
}

impl<W: Word> Latch<W> {
    /// An open latch over `word`, which is zero.
    #[cfg(test)]
    pub(super) fn over(word: W) -> Latch<W> {
        Latch { word }
    }

    /// Begins an optimistic read: waits until the node is not latched and returns its word. `None`: the node is free.
    #[inline(always)]
    pub(crate) fn read(&self) -> Option<u64> {
        let word = self.word.load(Ordering::Acquire);
        if word & (LATCHED | FREE) == 0 { Some(word) } else { self.read_slow() }
    }

    /// The same without waiting. `None`: the node is latched, or free.
    #[inline(always)]
    pub(crate) fn try_read(&self) -> Option<u64> {
        let word = self.word.load(Ordering::Acquire);
        (word & (LATCHED | FREE) == 0).then_some(word)
    }

    #[cold]
    #[inline(never)]
    fn read_slow(&self) -> Option<u64> {
        let _waiting = LatchWait::begin();
        let backoff = Backoff::new();
        loop {
            let word = self.word.load(Ordering::Acquire);
            if word & LATCHED == 0 {
                return (word & FREE == 0).then_some(word);
            }
            W::pause(&backoff);
        }
    }

    /// Ends an optimistic read that began with `word`: true if everything read in between is of one version.
    #[inline(always)]
    pub(crate) fn validate(&self, word: u64) -> bool {
        W::fence(Ordering::Acquire);
        self.word.load(Ordering::Relaxed) == word
    }

    /// Latches if the word is still `word`, which an optimistic read began with.
    #[inline]
    pub(super) fn upgrade(&self, word: u64) -> bool {
        let latched = self.word.compare_exchange(word, word | LATCHED, Ordering::Acquire, Ordering::Relaxed);
        if latched {
            W::fence(Ordering::Release);
            latches::taken();
        }
        latched
    }

    /// Latches, waiting for it. False: the node is free.
    pub(super) fn lock(&self) -> bool {
        let backoff = Backoff::new();
        while let Some(word) = self.read() {
            if self.upgrade(word) {
                return true;
            }
            W::pause(&backoff);
        }
        false
    }

    /// Unlatches a node that was changed. Gives its word from now on.
    #[inline]
    pub(super) fn unlock_changed(&self) -> u64 {
        let word = self.word.load(Ordering::Relaxed);
        debug_assert!(word & LATCHED != 0);
        let word = (word & !(LATCHED | FREE)) + STEP;
        self.word.store(word, Ordering::Release);
        latches::given_back();
        word
    }

    /// Unlatches a node in which no change was made that an optimistic reader could mistake: what the reader read stays
    /// valid. Gives its word from now on.
    #[inline]
    pub(super) fn unlock_unchanged(&self) -> u64 {
        let word = self.word.load(Ordering::Relaxed);
        debug_assert!(word & LATCHED != 0);
        let word = word & !LATCHED;
        self.word.store(word, Ordering::Release);
        latches::given_back();
        word
    }

    /// Unlatches a node that is freed: readers that still find it begin again at the root.
    pub(super) fn retire(&self) {
        let word = self.word.load(Ordering::Relaxed);
        debug_assert!(word & LATCHED != 0);
        self.word.store(((word & !(LATCHED | FREE)) + STEP) | FREE, Ordering::Release);
        latches::given_back();
    }

    /// Makes the node free whose memory was zeroed, with a word that free nodes had. Only the pool, which owns it,
    /// calls this.
    pub(super) fn take_up(&self, word: u64) {
        debug_assert!(word & LATCHED == 0);
        self.word.store(word | FREE, Ordering::Relaxed);
    }

    /// Latches a free node for its first use or its next one. Only the pool, which owns free nodes, calls this.
    pub(crate) fn claim(&self) {
        let word = self.word.load(Ordering::Relaxed);
        debug_assert!(word & LATCHED == 0);
        self.word.store((word & !FREE) | LATCHED, Ordering::Relaxed);
        latches::taken();
        W::fence(Ordering::Release);
    }

    /// Whether the node is free.
    pub(crate) fn is_free(&self) -> bool {
        self.word.load(Ordering::Acquire) & (FREE | LATCHED) == FREE
    }

    /// The word as it is now.
    pub(super) fn word(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }
}
