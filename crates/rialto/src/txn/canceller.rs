//! [`Canceller`]: ends a transaction from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use crate::core::Core;

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

    /// What a wait looks at.
    pub fn flag(&self) -> &AtomicBool {
        &self.is_asked
    }

    /// The run under way has this lock owner. It looks at the flag after this, before it waits for anything.
    pub fn follow(&self, owner: u16) {
        self.owner.store(owner, Ordering::SeqCst);
    }

    /// Whether there is a canceller of it, or another run of the transaction.
    #[inline]
    pub fn is_shared(self: &Arc<Cancellation>) -> bool {
        Arc::strong_count(self) > 1
    }
}

/// Cancels a transaction from another thread: all that it does from then on, however often it runs again after a deadlock.
#[derive(Clone)]
pub struct Canceller {
    pub(super) cancellation: Arc<Cancellation>,
    pub(super) core: Arc<Core>,
}

impl Canceller {
    /// Makes the transaction's running or next operation fail with [`Error::Cancelled`](crate::Error::Cancelled).
    pub fn cancel(&self) {
        self.cancellation.is_asked.store(true, Ordering::SeqCst);
        self.core.locks.interrupt(self.cancellation.owner.load(Ordering::SeqCst));
    }
}
