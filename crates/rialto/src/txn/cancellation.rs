//! [`Cancellation`]: the flag by which a [`Canceller`](super::Canceller) ends a transaction.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::sync::{AtomicBool, AtomicU16, fence};

/// Whether a transaction is to end. All its runs have the same one, and all its parts.
#[derive(Debug)]
pub(crate) struct Cancellation {
    is_asked: AtomicBool,
    /// The lock owner of the run under way.
    owner: AtomicU16,
}

impl Cancellation {
    pub fn new() -> Arc<Cancellation> {
        Arc::new(Cancellation { is_asked: AtomicBool::new(false), owner: AtomicU16::new(0) })
    }

    /// Whether it was asked for.
    #[inline]
    pub fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
    }

    /// Asks for it. Gives the lock owner whose wait is to end.
    pub fn ask(&self) -> u16 {
        self.is_asked.store(true, Ordering::SeqCst);
        self.owner.load(Ordering::SeqCst)
    }

    /// The transaction goes on.
    pub fn clear(&self) {
        self.is_asked.store(false, Ordering::SeqCst);
    }

    /// What a wait looks at.
    pub fn flag(&self) -> &AtomicBool {
        &self.is_asked
    }

    /// The run under way has this lock owner. It looks at the flag after this, before it waits for anything.
    pub fn follow(&self, owner: u16) {
        self.owner.store(owner, Ordering::SeqCst);
    }

    /// Whether there is a canceller, or was one that has asked. The count of handles is read first: a canceller asks before its own
    /// handle goes, so where that has gone, what it asked for is seen.
    #[inline]
    pub fn is_used(self: &Arc<Cancellation>) -> bool {
        let is_shared = Arc::strong_count(self) > 1;
        fence(Ordering::Acquire);
        is_shared || self.is_asked()
    }
}
