//! Bodies with error types of their own.

use super::Database;
use crate::engine::run::run_own;
use crate::error::Error;
use crate::reply::Ticket;
use crate::txn::Transaction;
use crate::txn::options::TxOptions;
use crate::txn::runs::Runs;

impl Database {
    /// As [`Database::transact`], of a body with an error type of its own.
    ///
    /// ```
    /// # use rialto::{Database, Table};
    /// enum Refusal {
    ///     Overdrawn(i64),
    ///     Database(rialto::Error),
    /// }
    ///
    /// impl From<rialto::Error> for Refusal {
    ///     fn from(error: rialto::Error) -> Refusal {
    ///         Refusal::Database(error)
    ///     }
    /// }
    ///
    /// fn withdraw(db: &Database, account: &Table, id: i32, sum: i64) -> Result<(), Refusal> {
    ///     db.try_transact(|tx| {
    ///         let mut left = 0;
    ///         tx.modify(account, id, |row| row.add_i64(1, -sum).map(|balance| left = balance))?;
    ///         if left < 0 { Err(Refusal::Overdrawn(left)) } else { Ok(()) }
    ///     })
    /// }
    /// ```
    ///
    /// Whether the body runs again depends on the transaction, not on the error that it gives: a deadlock's victim
    /// does, even if the body has made an error of its own of that.
    ///
    /// # Blocking
    /// As [`Database::transact`].
    ///
    /// # Errors
    /// What the body gives in its last run; all other errors of [`Database::transact`] by `From`.
    pub fn try_transact<T, E: From<Error>>(
        &self,
        body: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        self.try_transact_with(&TxOptions::default(), body)
    }

    /// As [`Database::try_transact`], with options.
    ///
    /// # Errors
    /// As [`Database::try_transact`].
    pub fn try_transact_with<T, E: From<Error>>(
        &self,
        options: &TxOptions,
        body: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        let (value, done) = run_own(self.core(), options, Runs::to_reply(), body)?;
        if !done.has_ended() {
            done.reply(self.core())?;
        }
        Ok(value)
    }

    /// As [`Database::submit`], of a body with an error type of its own: see [`Database::try_transact`].
    ///
    /// # Blocking
    /// As [`Database::submit`].
    ///
    /// # Errors
    /// As [`Database::try_transact`].
    pub fn try_submit<T, E: From<Error>>(
        &self,
        body: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<(T, Ticket), E> {
        self.try_submit_with(&TxOptions::default(), body)
    }

    /// As [`Database::try_submit`], with options.
    ///
    /// # Errors
    /// As [`Database::try_transact`].
    pub fn try_submit_with<T, E: From<Error>>(
        &self,
        options: &TxOptions,
        body: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<(T, Ticket), E> {
        let (value, done) = run_own(self.core(), options, Runs::new(), body)?;
        Ok((value, self.ticket_of(done)))
    }

    /// As [`Database::read`], of a body with an error type of its own: see [`Database::try_transact`].
    ///
    /// # Blocking
    /// As [`Database::read`].
    ///
    /// # Errors
    /// As [`Database::try_transact`]; [`Error::ReadOnly`] for a write.
    pub fn try_read<T, E: From<Error>>(
        &self,
        body: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        self.try_transact_with(&TxOptions { read_only: true, ..TxOptions::default() }, body)
    }
}
