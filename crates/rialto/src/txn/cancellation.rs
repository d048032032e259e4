//! [`Cancellation`]: the flag by which a [`Canceller`](super::Canceller) ends a transaction.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::sync::{AtomicBool, AtomicU16, fence};

/// Whether a transaction is to end. All its runs share one, and all its parts.
#[derive(Debug)]
pub(crate) struct Cancellation {
    is_asked: AtomicBool,
    /// The lock owner of the present run.
    owner: AtomicU16,
}

impl Cancellation {
    pub fn new() -> Arc<Cancellation> {
        Arc::new(Cancellation { is_asked: AtomicBool::new(false), owner: AtomicU16::new(0) })
    }

    /// Whether a cancel was requested.
    #[inline]
    pub fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
    }

    /// Requests a cancel. Returns the lock owner whose wait has to end.
    pub fn ask(&self) -> u16 {
        self.is_asked.store(true, Ordering::SeqCst);
        self.owner.load(Ordering::SeqCst)
    }

    /// Takes the request back: the transaction goes on.
    pub fn clear(&self) {
        self.is_asked.store(false, Ordering::SeqCst);
    }

    /// The flag that a wait checks.
    pub fn flag(&self) -> &AtomicBool {
        &self.is_asked
    }

    /// Notes the lock owner of the present run. The run checks the flag after this, before it waits for anything.
    pub fn follow(&self, owner: u16) {
        self.owner.store(owner, Ordering::SeqCst);
    }

    /// Whether there is a canceller, or was one that requested a cancel. The count of handles is read first: a
    /// canceller sets the flag before it drops its handle, so once the handle is gone the request is seen.
    #[inline]
    pub fn is_used(self: &Arc<Cancellation>) -> bool {
        let is_shared = Arc::strong_count(self) > 1;
        fence(Ordering::Acquire);
        is_shared || self.is_asked()
    }
}
