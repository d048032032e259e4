//! Transaction blocks: the kernel's transaction, its begin and its ends, and savepoints.

use std::time::{SystemTime, UNIX_EPOCH};

use rialto::{Savepoint, Transaction, TxOptions};

use super::{Session, Tag};
use crate::error::{Result, SqlError, SqlState};
use crate::parse::{Access, Name};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Block {
    None,
    Implicit,
    Explicit,
}

/// A savepoint; without a mark if the kernel's transaction had not begun.
pub(super) struct NamedSavepoint {
    pub(super) name: String,
    pub(super) mark: Option<Savepoint>,
}

impl Session {
    /// The end of an implicit block: commits it, and waits until that is as durable as it asked.
    #[inline]
    pub fn finish(&mut self) -> Result<()> {
        if self.block == Block::Implicit { self.commit() } else { Ok(()) }
    }

    /// After an error: an implicit block is rolled back, an explicit one fails. Waits until what led to the error is
    /// durable; where it never will be, this error is the one to tell.
    pub fn fail(&mut self, error: &SqlError) -> Result<()> {
        match self.block {
            Block::None => Ok(()),
            Block::Implicit => self.roll_back(),
            Block::Explicit => {
                self.failed = true;
                // With savepoints the client may go back to one, unless the transaction is dead.
                if self.savepoints.is_empty() || error.ends_transaction() {
                    self.end_transaction()
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Ends whatever is open, as when the client goes away.
    pub fn abandon(&mut self) {
        drop(self.take_transaction());
        self.close_block();
    }

    pub(super) fn open_block(&mut self) {
        if self.block == Block::None {
            self.block = Block::Implicit;
            self.access = if self.settings.read_only { Access::ReadOnly } else { self.default_access };
            self.statements = 0;
            self.now = clock();
        }
    }

    /// Begins the kernel's transaction if it has not.
    #[inline]
    pub(super) fn begin(&mut self) -> Result<()> {
        if self.tx.is_some() { Ok(()) } else { self.begin_transaction() }
    }

    fn begin_transaction(&mut self) -> Result<()> {
        if self.block == Block::Explicit && self.savepoints.iter().any(|savepoint| savepoint.mark.is_some()) {
            // Its transaction died under it; only ROLLBACK is left, and `failed` says so.
            return Err(in_failed_block());
        }
        let options = TxOptions {
            durability: self.settings.durability,
            commit_stall: self.settings.commit_stall,
            willing_to_wait: self.settings.willing_to_wait,
            lock_timeout: Some(self.settings.lock_timeout),
            read_only: self.access == Access::ReadOnly,
            ..TxOptions::default()
        };
        let mut tx = self.database.begin_with(&options)?;
        for savepoint in &mut self.savepoints {
            savepoint.mark = Some(tx.savepoint());
        }
        self.cancel.set(Some(tx.canceller()));
        self.tx = Some(tx);
        Ok(())
    }

    pub(super) fn commit(&mut self) -> Result<()> {
        let tx = self.take_transaction();
        self.close_block();
        self.settings_before = None;
        match tx {
            Some(tx) => Ok(tx.commit()?),
            None => Ok(()),
        }
    }

    pub(super) fn roll_back(&mut self) -> Result<()> {
        let ended = self.end_transaction();
        self.close_block();
        if let Some(before) = self.settings_before.take() {
            if before.application_name != self.settings.application_name {
                self.status_changes.push(("application_name", before.application_name.clone()));
            }
            if before.client_encoding != self.settings.client_encoding {
                self.status_changes.push(("client_encoding", before.client_encoding.to_string()));
            }
            self.settings = before;
        }
        ended
    }

    /// Aborts the transaction and waits until what it has read is durable.
    pub(super) fn end_transaction(&mut self) -> Result<()> {
        match self.take_transaction() {
            Some(tx) => Ok(tx.abort()?),
            None => Ok(()),
        }
    }

    /// The open transaction, which cannot be cancelled from now on.
    pub(super) fn take_transaction(&mut self) -> Option<Transaction> {
        let tx = self.tx.take()?;
        self.cancel.set(None);
        Some(tx)
    }

    /// After the transaction was taken.
    pub(super) fn close_block(&mut self) {
        debug_assert!(self.tx.is_none());
        self.block = Block::None;
        self.failed = false;
        self.defined = false;
        self.savepoints.clear();
        self.access = self.default_access;
    }

    pub(super) fn savepoint(&mut self, name: &Name) -> Result<Tag> {
        if self.block != Block::Explicit {
            return Err(only_in_block("SAVEPOINT"));
        }
        let mark = self.tx.as_mut().map(Transaction::savepoint);
        self.savepoints.push(NamedSavepoint { name: name.text.clone(), mark });
        Ok(Tag::Word("SAVEPOINT"))
    }

    pub(super) fn find_savepoint(&self, name: &Name, command: &str) -> Result<usize> {
        if self.block != Block::Explicit {
            return Err(only_in_block(command));
        }
        self.savepoints.iter().rposition(|savepoint| savepoint.name == name.text).ok_or_else(|| {
            let message = format!("savepoint \"{}\" does not exist", name.text);
            SqlError::new(SqlState::NoSuchSavepoint, message)
        })
    }

    pub(super) fn rollback_to(&mut self, name: &Name) -> Result<Tag> {
        let at = self.find_savepoint(name, "ROLLBACK TO SAVEPOINT")?;
        match (&mut self.tx, self.savepoints[at].mark) {
            (Some(tx), Some(mark)) => tx.rollback_to(&mark)?,
            (Some(_), None) => return Err(SqlError::new(SqlState::Internal, "a savepoint lost its mark")),
            (None, Some(_)) => {
                let message = "the transaction was ended by the error: it can only be rolled back as a whole";
                return Err(SqlError::new(SqlState::InFailedTransaction, message));
            }
            (None, None) => {}
        }
        self.savepoints.truncate(at + 1);
        self.failed = false;
        Ok(Tag::Word("ROLLBACK"))
    }
}

pub(super) fn in_failed_block() -> SqlError {
    let message = "current transaction is aborted, commands ignored until end of transaction block";
    SqlError::new(SqlState::InFailedTransaction, message)
}

fn only_in_block(command: &str) -> SqlError {
    let message = format!("{command} can only be used in transaction blocks");
    SqlError::new(SqlState::NoActiveTransaction, message)
}

/// Microseconds since 1970, UTC.
fn clock() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
