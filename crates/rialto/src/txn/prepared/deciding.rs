//! The branch whose own commit is the decision of a transaction over several databases.

use super::decision_rows::ROWS_BYTES;
use crate::error::{Error, Result};
use crate::txn::context::Context;
use crate::txn::transaction::Transaction;

impl Transaction<'static> {
    /// Reserves what the commit of this transaction will need, so that [`Transaction::submit`] does not fail for want of
    /// room: for a branch whose own commit is the decision for others, which vote after this call. Operations have
    /// reserved all else as they ran.
    ///
    /// Then it commits, or aborts; it may write some more rows before, of 4,000 bytes in all. Such a write may find no memory
    /// ([`Error::MemoryLimit`]), and the commit of more bytes no room in the log.
    ///
    /// The time-out of the transaction, a cancel and the end of the database still end it.
    ///
    /// # Blocking
    /// The call may wait for room in the log, for at most [`Options::log_wait_max`](crate::Options::log_wait_max).
    ///
    /// # Errors
    /// [`Error::LogFull`]; [`Error::Unsupported`] for a transaction that has changed definitions, whose commit may write
    /// files; [`Error::ReadOnly`]; those of [`Transaction::check`]. The transaction goes on.
    pub fn reserve(&mut self) -> Result<()> {
        self.operate(Context::reserve_for_own_decision)
    }
}

impl Context {
    fn reserve_for_own_decision(&mut self) -> Result<()> {
        self.check_write()?;
        if self.ddl.is_some() {
            let what = "reserving room for a transaction that has changed definitions".to_owned();
            return Err(Error::Unsupported { what });
        }
        self.reserve_for_decision(ROWS_BYTES)
    }
}
