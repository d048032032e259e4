//! [`Canceller`]: ends a transaction from another thread.

use std::sync::Arc;

use super::cancellation::Cancellation;
use crate::error::{Error, Result};
use crate::txn::core::Core;

/// Cancels a transaction from another thread. All its later operations fail, however often it runs again after a
/// deadlock, unless the transaction itself goes on
/// ([`Transaction::clear_cancellation`](crate::Transaction::clear_cancellation)).
#[derive(Clone)]
pub struct Canceller {
    pub(super) cancellation: Arc<Cancellation>,
    pub(super) core: Arc<Core>,
}

impl Canceller {
    /// A canceller of transactions to come, one after the other.
    pub(crate) fn new(core: &Arc<Core>) -> Canceller {
        Canceller { cancellation: Cancellation::new(), core: core.clone() }
    }

    /// # Errors
    /// [`Error::Cancelled`](crate::Error::Cancelled) once a cancel was requested.
    pub(crate) fn check(&self) -> Result<()> {
        if self.cancellation.is_asked() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Takes the request back, for transactions to come.
    pub(crate) fn clear(&self) {
        self.cancellation.clear();
    }

    /// Makes the transaction's running or next operation fail with [`Error::Cancelled`](crate::Error::Cancelled).
    pub fn cancel(&self) {
        self.core.locks.interrupt(self.cancellation.ask());
    }
}

impl std::fmt::Debug for Canceller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Canceller").field("is_asked", &self.cancellation.is_asked()).finish_non_exhaustive()
    }
}
