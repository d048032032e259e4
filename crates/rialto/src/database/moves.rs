//! Moving a table to memory or to the disk while it is used ([`txn/moving.rs`](crate::txn::moving)): the loop over its rows.

use std::sync::atomic::{AtomicBool, Ordering};

use super::Database;
use crate::catalog::Residence;
use crate::error::{Error, Result};
use crate::inside::InBody;
use crate::log::Durability;
use crate::row::Key;
use crate::store::{ChangedRows, Table};
use crate::txn::Transaction;
use crate::txn::long_work::LongWork;
use crate::txn::moving::{Finished, ROWS_AT_A_TIME, ReadRow, TableMove};
use crate::txn::options::TxOptions;

/// How often a move begins that other definitions on the table, or a deadlock, end.
const ATTEMPTS_MAX: u32 = 3;
/// While the table is copied, rows that are behind are copied again once there are so many.
const BEHIND_MAX: usize = 16_384;
/// With fewer rows behind, the table may be locked.
const BEHIND_AT_LOCK: usize = 1_024;
/// How often all that is behind is copied in the hope that less comes meanwhile.
const ROUNDS_MAX: u32 = 16;

/// How a table is moved.
#[derive(Debug, Clone, Default)]
pub struct MoveOptions<'a> {
    /// Of the move's transaction, and of those that read the rows for it.
    pub transaction: TxOptions,
    /// Cancels the move once it is set. It is read before each 256 rows, and before the table is locked.
    pub cancelled: Option<&'a AtomicBool>,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    Moved,
    /// Another definition has changed the table, or a deadlock has ended the attempt.
    InTheWay,
    /// The table is to be moved under its lock: it is small, or changes faster than it is copied.
    UnderItsLock,
}

impl Database {
    /// Moves a table, with its indexes, to memory or to the disk, while other transactions read and change it. They wait only at the
    /// end, for as long as it takes to copy the rows that were changed last. The table is locked all the time if it has fewer than
    /// 1,024 rows, or if its rows change faster than they are copied. A table that has the residence stays as it is.
    ///
    /// There has to be room for both copies: in memory until the commit, on the disk until a later checkpoint. The copy is
    /// written to a load file, which stays until the checkpoints no longer need it. Inside a transaction
    /// [`Transaction::set_residence`] does the same, and holds the table's lock from its beginning to the transaction's end.
    ///
    /// # Blocking
    /// The call waits until the move is durable: the time to copy the rows.
    ///
    /// # Errors
    /// Those of [`Transaction::set_residence`]; [`Error::Nested`] inside a body on this thread. Nothing has changed then, unless it is
    /// [`Error::OutcomeUnknown`].
    pub fn set_residence(&self, table: &str, residence: Residence) -> Result<()> {
        self.set_residence_with(table, residence, &MoveOptions::default())
    }

    /// As [`Database::set_residence`], with options.
    ///
    /// # Errors
    /// Those of [`Database::set_residence`]; [`Error::Cancelled`] if [`MoveOptions::cancelled`] is set.
    pub fn set_residence_with(
        &self,
        table: &str,
        residence: Residence,
        options: &MoveOptions<'_>,
    ) -> Result<()> {
        if InBody::is_inside(self.core().storage.catalog.opening()) {
            return Err(Error::Nested);
        }
        for _ in 0..ATTEMPTS_MAX {
            match self.try_move(table, residence, options)? {
                Attempt::Moved => return Ok(()),
                Attempt::InTheWay => {}
                Attempt::UnderItsLock => break,
            }
        }
        self.transact_with(&options.transaction, |tx| tx.set_residence(table, residence))
    }

    fn try_move(&self, name: &str, residence: Residence, options: &MoveOptions<'_>) -> Result<Attempt> {
        let mut tx = self.begin_with(&options.transaction)?;
        let begun = tx.table(name).and_then(|table| {
            let begun = TableMove::begin(&mut tx, &table, residence)?;
            Ok(begun.map(|copy| (table, copy)))
        });
        let (table, copy) = match begun {
            Ok(Some(begun)) => begun,
            Ok(None) => return tx.abort().map(|()| Attempt::UnderItsLock),
            Err(error) => return tx.fail(error),
        };
        let mut moving = Moving { database: self, options, table, tx, copy };
        let attempt = moving.run();
        let Moving { mut tx, copy, .. } = moving;
        let error = match attempt {
            Ok(Attempt::Moved) => match tx.commit() {
                Err(Error::Deadlock { .. }) => return Ok(Attempt::InTheWay),
                committed => return committed.map(|()| Attempt::Moved),
            },
            Ok(attempt) => Ok(attempt),
            Err(Error::Deadlock { .. }) => Ok(Attempt::InTheWay),
            Err(error) => Err(error),
        };
        copy.discard(&mut tx);
        match error {
            Ok(attempt) => tx.abort().map(|()| attempt),
            Err(error) => tx.fail(error),
        }
    }
}

/// An attempt on its way.
struct Moving<'a> {
    database: &'a Database,
    options: &'a MoveOptions<'a>,
    table: Table,
    tx: Transaction<'static>,
    copy: TableMove,
}

impl Moving<'_> {
    fn run(&mut self) -> Result<Attempt> {
        let watched = &self.database.core().storage.watched;
        let behind = watched.watch(self.copy.old.store.heap());
        let (mut last, mut work) =
            (None, LongWork::begin(self.database.core(), self.what(), self.copy.old.store.rows()));
        loop {
            let Some(rows) = self.rows_behind(last.as_ref())? else { return Ok(Attempt::InTheWay) };
            self.copy.copy(&mut self.tx, &rows, false, &behind)?;
            work.step(rows.len() as u64);
            let is_end = rows.len() < ROWS_AT_A_TIME;
            last = rows.into_iter().next_back().map(|(key, _)| key).or(last);
            if is_end {
                work.end();
                break;
            }
            if behind.len() >= BEHIND_MAX && !self.catch_up(&behind, last.as_ref())? {
                return Ok(Attempt::InTheWay);
            }
        }
        if !self.catch_up_until_few(&behind)? {
            return Ok(Attempt::InTheWay);
        }
        self.check_cancelled()?;
        self.copy.write_file(&mut self.tx)?;
        if !self.catch_up_until_few(&behind)? {
            return Ok(Attempt::InTheWay);
        }
        self.check_cancelled()?;
        match self.copy.finish(&mut self.tx, &behind) {
            Ok(Finished::Moved) => Ok(Attempt::Moved),
            Ok(Finished::Redefined) => Ok(Attempt::InTheWay),
            // What has changed since the file was written is more than a packet holds.
            Err(Error::WriteSetTooLarge { .. }) => Ok(Attempt::UnderItsLock),
            Err(error) => Err(error),
        }
    }

    fn what(&self) -> String {
        format!("moving table \"{}\" to {}", self.copy.old.name(), self.copy.residence)
    }

    /// Copies the rows that are behind until there are few, or as many as before. False: the table has another version.
    fn catch_up_until_few(&mut self, behind: &ChangedRows) -> Result<bool> {
        for _ in 0..ROUNDS_MAX {
            if behind.len() <= BEHIND_AT_LOCK || self.copy.is_packet_half_full() {
                break;
            }
            if !self.catch_up(behind, None)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Copies the rows that are behind, up to this key if there is one: those after it are still to come. False: the table has
    /// another version.
    fn catch_up(&mut self, behind: &ChangedRows, last: Option<&Key>) -> Result<bool> {
        let mut keys = behind.take()?;
        keys.retain(|key| last.is_none_or(|last| key <= last));
        for keys in keys.chunks(ROWS_AT_A_TIME) {
            let (version, table) = (self.copy.old.clone(), self.table.clone());
            let Some(rows) = self.read(|tx| tx.read_rows_of(&table, &version, keys))? else {
                return Ok(false);
            };
            self.copy.copy(&mut self.tx, &rows, true, behind)?;
        }
        Ok(true)
    }

    /// The next rows behind this key.
    fn rows_behind(&self, key: Option<&Key>) -> Result<Option<Vec<ReadRow>>> {
        let (version, table) = (&self.copy.old, &self.table);
        self.read(|tx| tx.read_rows_behind(table, version, key))
    }

    fn check_cancelled(&self) -> Result<()> {
        match self.options.cancelled.is_some_and(|cancelled| cancelled.load(Ordering::Relaxed)) {
            true => Err(Error::Cancelled),
            false => Ok(()),
        }
    }

    /// Runs a short transaction that reads rows of the table.
    fn read<T>(&self, body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.check_cancelled()?;
        // The move's own commit waits for all that was read.
        let options =
            TxOptions { durability: Some(Durability::Memory), timeout: None, ..self.options.transaction };
        self.database.transact_with(&options, body)
    }
}
