//! Prepared transactions: their decisions.

use super::Database;
use crate::error::Result;
use crate::reply::Ticket;
use crate::txn::PreparedTransaction;

impl Database {
    /// The transactions that are prepared and wait for a decision, by name: those of
    /// [`Transaction::prepare`](crate::Transaction::prepare), in this opening or in an earlier one.
    pub fn prepared(&self) -> Vec<PreparedTransaction> {
        self.core().prepared.all()
    }

    /// Commits the prepared transaction of this name. It has its place in the log, its writes are in the tables, and its
    /// locks are released when this returns. The ticket tells when that is as durable as the transaction asked.
    ///
    /// # Blocking
    /// The call may wait for a checkpoint, or for a definition that is being committed.
    ///
    /// # Errors
    /// [`Error::NoSuchPrepared`](crate::Error::NoSuchPrepared); [`Error::PreparedBusy`](crate::Error::PreparedBusy);
    /// [`Error::Nested`](crate::Error::Nested) in a body; [`Error::Unsupported`](crate::Error::Unsupported) if its abort
    /// has begun; [`Error::LogFull`](crate::Error::LogFull), only of a transaction that an earlier opening has prepared;
    /// [`Error::Stopped`](crate::Error::Stopped); [`Error::Closed`](crate::Error::Closed). After an error it is
    /// undecided still, here or in the next opening.
    pub fn commit_prepared(&self, name: &str) -> Result<Ticket> {
        self.core().prepared.commit(self.core(), name)
    }

    /// Aborts the prepared transaction of this name: nothing of it is kept. The ticket tells when that is as durable as
    /// the transaction asked; before that, the next opening may find it prepared again.
    ///
    /// # Blocking
    /// As [`Database::commit_prepared`].
    ///
    /// # Errors
    /// As [`Database::commit_prepared`]. After an error other than
    /// [`Error::NoSuchPrepared`](crate::Error::NoSuchPrepared) it can be aborted again, and not be committed.
    pub fn abort_prepared(&self, name: &str) -> Result<Ticket> {
        self.core().prepared.abort(self.core(), name)
    }
}
