//! [`Canceller`]: ends a transaction from another thread.

use std::sync::Arc;

use super::cancellation::Cancellation;
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
    /// Makes the transaction's running or next operation fail with [`Error::Cancelled`](crate::Error::Cancelled).
    pub fn cancel(&self) {
        self.core.locks.interrupt(self.cancellation.ask());
    }
}
