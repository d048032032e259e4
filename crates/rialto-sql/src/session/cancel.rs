//! [`Cancel`]: how another thread ends what a session is waiting for.

use std::sync::{Mutex, PoisonError};

use rialto::Canceller;

/// Reaches the statement that a session runs, if it may run long. Short statements are over before a request arrives.
#[derive(Default)]
pub struct Cancel(Mutex<Option<Canceller>>);

impl Cancel {
    /// Ends the running statement with SQLSTATE 57014; does nothing if none runs.
    pub fn request(&self) {
        if let Some(canceller) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            canceller.cancel();
        }
    }

    pub(super) fn arm(&self, canceller: Canceller) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(canceller);
    }

    pub(super) fn disarm(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
