//! Transaction blocks: the kernel's transaction, its begin and its ends, and savepoints.

use std::time::{SystemTime, UNIX_EPOCH};

use rialto::{Savepoint, Transaction, TxOptions, fault_injection};

use super::setting_store::{SettingMark, SettingStore};
use super::settings::Settings;
use super::{Session, Tag};
use crate::error::{Result, SqlError, SqlState};
use crate::parse::{Access, Name};
use crate::partitions::Level;

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
    settings: SettingMark,
    /// Its number among the session's savepoints.
    pub(super) number: u64,
}

/// The most savepoints that a transaction has at a time.
const SAVEPOINTS_MAX: usize = 100_000;
/// The significant bytes of a client's name where a session keeps names: as many as in PostgreSQL.
const NAME_BYTES: usize = 63;

/// The significant part of a name.
pub(super) fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(NAME_BYTES)]
}

impl Session {
    /// The end of an implicit block: commits it, and waits until that is as durable as it asked. After an error call
    /// [`Session::fail`].
    #[inline]
    pub fn finish(&mut self) -> Result<()> {
        self.stop_time();
        self.forget_announced_end();
        if self.block != Block::Implicit {
            return Ok(());
        }
        if !self.over.as_mut().is_some_and(|over| over.take_committed()) {
            self.cancel.check()?;
        }
        self.commit()
    }

    /// After an error: an implicit block is rolled back, an explicit one fails. Waits until everything that led to the
    /// error is durable. If it never will be, gives an error that the client has to be told instead.
    pub fn fail(&mut self, error: &SqlError) -> Result<()> {
        self.cancel.end_running();
        self.stop_time();
        self.forget_announced_end();
        match self.block {
            Block::None => Ok(()),
            Block::Implicit => self.roll_back(),
            Block::Explicit => {
                self.failed = !fault_injection::is_on("failed-block-forgotten");
                // With savepoints the client may go back to one, unless the transaction is dead.
                if self.savepoints.is_empty() || error.ends_transaction() {
                    self.end_transaction()
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Ends everything that is open, as when the client disconnects.
    pub fn abandon(&mut self) {
        drop(self.take_transaction());
        if let Some(over) = &mut self.over {
            over.abandon();
        }
        self.close_block();
        self.settings.close_block(false);
    }

    pub(super) fn open_block(&mut self) {
        if self.block == Block::None {
            self.block = Block::Implicit;
            self.cancel.set_in_block(true);
            self.settings.open_block();
            self.statements = 0;
            self.now = clock();
        }
    }

    /// Whether the running statement is alone in its transaction, as far as is known: another statement may follow it
    /// in a pipeline.
    pub(super) fn is_alone(&self) -> bool {
        self.block != Block::Explicit && self.statements == 0 && !self.cancel.is_in_string()
    }

    /// Begins the kernel's transaction if it has not.
    #[inline]
    pub(super) fn begin(&mut self) -> Result<()> {
        if self.tx.is_some() { Ok(()) } else { self.begin_transaction() }
    }

    fn begin_transaction(&mut self) -> Result<()> {
        if self.block == Block::Explicit && self.savepoints.iter().any(|savepoint| savepoint.mark.is_some()) {
            // Its transaction ended under it. Only ROLLBACK is left, and `failed` says so.
            return Err(in_failed_block());
        }
        let tx = self.database.begin_with(&self.choices())?;
        self.opened(tx)
    }

    /// The kernel's transaction has begun.
    pub(super) fn opened(&mut self, mut tx: Transaction<'static>) -> Result<()> {
        for savepoint in &mut self.savepoints {
            savepoint.mark = Some(tx.savepoint());
        }
        self.cancel.set(Some(tx.canceller()));
        self.accounted = 0;
        self.tx = Some(tx);
        // A request that came before the canceller existed has set the flag.
        self.cancel.check()
    }

    /// The transaction options that the settings ask for.
    pub(super) fn choices(&self) -> TxOptions {
        let settings = self.settings.current();
        TxOptions {
            durability: settings.durability.map(Level::of_database),
            commit_stall: settings.commit_stall,
            willing_to_wait: settings.willing_to_wait,
            lock_timeout: Some(settings.lock_timeout),
            read_only: self.settings.access() == Access::ReadOnly,
            ..TxOptions::default()
        }
    }

    /// Changes settings. Every change goes through here, so that the open transaction always has the values that SHOW
    /// tells.
    pub(super) fn change_settings(
        &mut self,
        change: impl FnOnce(&mut SettingStore) -> Result<()>,
    ) -> Result<()> {
        let before = self.settings.current().clone();
        change(&mut self.settings)?;
        self.report_settings(&before);
        let mut choices = self.choices();
        if fault_injection::is_on("lock-timeout-of-the-begin") {
            choices.lock_timeout = Some(before.lock_timeout);
        }
        if fault_injection::is_on("reset-keeps-the-level") {
            choices.durability = choices.durability.or(before.durability.map(Level::of_database));
        }
        if let Some(tx) = &mut self.tx {
            tx.choose(&choices)?;
        }
        Ok(())
    }

    /// Notes the changed settings that clients are told of.
    fn report_settings(&mut self, before: &Settings) {
        let now = self.settings.current();
        if **now == *before {
            return;
        }
        let changed = now.reported().into_iter().zip(before.reported()).filter(|(now, before)| now != before);
        self.status_changes.extend(changed.map(|(now, _)| now));
    }

    pub(super) fn commit(&mut self) -> Result<()> {
        if self.over.is_some() {
            return self.commit_over();
        }
        let tx = self.take_transaction();
        self.close_block();
        let committed = match tx {
            Some(tx) => tx.commit().map_err(SqlError::from),
            None => Ok(()),
        };
        self.end_settings(committed.is_ok());
        committed
    }

    /// The settings after the end of a block: a commit that fails undoes them as a rollback does.
    #[inline]
    pub(super) fn end_settings(&mut self, committed: bool) {
        if self.settings.is_changed() {
            let before = self.settings.current().clone();
            self.settings.close_block(committed);
            self.report_settings(&before);
        }
    }

    pub(super) fn roll_back(&mut self) -> Result<()> {
        let ended = self.end_transaction();
        self.close_block();
        self.end_settings(false);
        ended
    }

    /// Aborts the transaction and waits until what it has read is durable.
    pub(super) fn end_transaction(&mut self) -> Result<()> {
        if self.over.is_some() {
            return self.abort_over();
        }
        match self.take_transaction() {
            Some(tx) => Ok(tx.abort()?),
            None => Ok(()),
        }
    }

    /// The open transaction, which cannot be cancelled from now on.
    pub(crate) fn take_transaction(&mut self) -> Option<Transaction<'static>> {
        let tx = self.tx.take()?;
        self.cancel.set(None);
        Some(tx)
    }

    /// Closes the block, after the transaction was taken.
    pub(super) fn close_block(&mut self) {
        debug_assert!(self.tx.is_none());
        self.block = Block::None;
        self.cancel.set_in_block(false);
        self.failed = false;
        self.defined = false;
        self.savepoints.clear();
        if let Some(over) = &mut self.over {
            over.has_lost_branches = false;
        }
    }

    pub(super) fn savepoint(&mut self, name: &Name) -> Result<Tag> {
        if self.block != Block::Explicit {
            return Err(only_in_block("SAVEPOINT"));
        }
        if self.savepoints.len() == SAVEPOINTS_MAX {
            let message = format!("a transaction has at most {SAVEPOINTS_MAX} savepoints");
            return Err(
                SqlError::new(SqlState::LimitExceeded, message).hint("RELEASE those that are not needed.")
            );
        }
        let mark = self.tx.as_mut().map(Transaction::savepoint);
        self.savepoints_made += 1;
        self.savepoints.push(NamedSavepoint {
            name: cut(&name.text).to_owned(),
            mark,
            settings: self.settings.mark(),
            number: self.savepoints_made,
        });
        Ok(Tag::Word("SAVEPOINT"))
    }

    pub(super) fn find_savepoint(&self, name: &Name, command: &str) -> Result<usize> {
        if self.block != Block::Explicit {
            return Err(only_in_block(command));
        }
        self.savepoints.iter().rposition(|savepoint| savepoint.name == cut(&name.text)).ok_or_else(|| {
            let message = format!("savepoint \"{}\" does not exist", name.text);
            SqlError::new(SqlState::NoSuchSavepoint, message)
        })
    }

    pub(super) fn rollback_to(&mut self, name: &Name) -> Result<Tag> {
        let at = self.find_savepoint(name, "ROLLBACK TO SAVEPOINT")?;
        if self.over.is_some() {
            self.roll_back_over(self.savepoints[at].number)?;
        }
        match (&mut self.tx, self.savepoints[at].mark) {
            (Some(tx), Some(mark)) => {
                tx.rollback_to(&mark)?;
                tx.clear_cancellation();
            }
            (Some(_), None) => return Err(SqlError::new(SqlState::Internal, "a savepoint lost its mark")),
            (None, Some(_)) => {
                let message = "the transaction was ended by the error: it can only be rolled back as a whole";
                return Err(SqlError::new(SqlState::InFailedTransaction, message));
            }
            (None, None) => {}
        }
        self.savepoints.truncate(at + 1);
        self.failed = false;
        let (settings, number) = (self.savepoints[at].settings.clone(), self.savepoints[at].number);
        self.portals_closed = Some(self.portals_closed.map_or(number, |closed| closed.min(number)));
        if fault_injection::is_on("savepoint-keeps-settings") {
            return Ok(Tag::Word("ROLLBACK"));
        }
        self.change_settings(|store| {
            store.go_back_to(&settings);
            Ok(())
        })?;
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
