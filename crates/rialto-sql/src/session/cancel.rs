//! [`Cancel`]: how another thread ends what a session runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rialto::Canceller;

/// Reaches the statement that a session runs.
#[derive(Default)]
pub struct Cancel {
    /// Whether a statement runs.
    running: AtomicBool,
    /// Of the open transaction.
    canceller: Mutex<Option<Canceller>>,
}

impl Cancel {
    /// Ends the running statement with SQLSTATE 57014; does nothing if none runs. One that comes just as a statement
    /// ends may reach the next one of the same transaction: a request names a session, not a statement.
    pub fn request(&self) {
        let canceller = self.canceller.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(canceller) = &*canceller
            && self.running.load(Ordering::SeqCst)
        {
            canceller.cancel();
        }
    }

    /// A statement begins to run, or has ended.
    pub(super) fn set_running(&self, running: bool) {
        self.running.store(running, Ordering::Release);
    }

    /// A transaction has begun; `None`: it has ended, and nobody may hold its canceller any more.
    pub(super) fn set(&self, canceller: Option<Canceller>) {
        *self.canceller.lock().unwrap_or_else(PoisonError::into_inner) = canceller;
    }
}
