//! Prepared transactions: their decisions.

use super::Database;
use crate::error::Result;
use crate::reply::Ticket;
use crate::txn::prepared::Decision;
use crate::txn::{PreparedTransaction, Transaction};

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
        self.core().prepared.decide(self.core(), name, Decision::Commit, None)
    }

    /// As [`Database::commit_prepared`], with more rows: what `body` writes is committed in the same packet of the log, so
    /// it is there exactly if the prepared transaction has committed. The body runs in the prepared transaction, which
    /// has its locks already. It may read, and write rows of any tables, and not change definitions.
    ///
    /// If the body fails or panics, nothing of what it has written is kept, and the transaction is undecided still. It keeps
    /// the locks that the body has taken: two bodies that wait for each other's rows would go on to do so, so a body
    /// locks rows that are named after its own transaction.
    ///
    /// # Blocking
    /// As [`Database::commit_prepared`]; the body may wait for locks, for each up to
    /// [`Options::lock_timeout`](crate::Options::lock_timeout). Room in the log is kept for some 4,000 bytes of what it
    /// writes; for more the call may wait for room.
    ///
    /// # Errors
    /// As [`Database::commit_prepared`]; those of the body; [`Error::LogFull`](crate::Error::LogFull) and
    /// [`Error::MemoryLimit`](crate::Error::MemoryLimit) of what it writes.
    pub fn commit_prepared_with<T>(
        &self,
        name: &str,
        body: impl FnOnce(&mut Transaction) -> Result<T>,
    ) -> Result<(T, Ticket)> {
        self.decide_with(name, Decision::Commit, body)
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
        self.core().prepared.decide(self.core(), name, Decision::Abort, None)
    }

    /// As [`Database::abort_prepared`], with rows that `body` writes: they are there exactly if the prepared transaction is
    /// gone. Else as [`Database::commit_prepared_with`].
    ///
    /// # Errors
    /// As [`Database::abort_prepared`] and [`Database::commit_prepared_with`].
    pub fn abort_prepared_with<T>(
        &self,
        name: &str,
        body: impl FnOnce(&mut Transaction) -> Result<T>,
    ) -> Result<(T, Ticket)> {
        self.decide_with(name, Decision::Abort, body)
    }

    fn decide_with<T>(
        &self,
        name: &str,
        decision: Decision,
        body: impl FnOnce(&mut Transaction) -> Result<T>,
    ) -> Result<(T, Ticket)> {
        let (mut body, mut value) = (Some(body), None);
        let mut rows = |transaction: &mut Transaction<'_>| {
            let body = body.take().expect("it runs once");
            value = Some(body(transaction)?);
            Ok(())
        };
        let ticket = self.core().prepared.decide(self.core(), name, decision, Some(&mut rows))?;
        Ok((value.expect("it has run"), ticket))
    }
}
