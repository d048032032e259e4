//! Moving a table to memory or to the disk while it is used ([`txn/moving.rs`](crate::txn::moving)): the loop over its rows.

use super::Database;
use crate::catalog::Residence;
use crate::engine::run::run;
use crate::error::{Error, Result};
use crate::inside::InBody;
use crate::log::Durability;
use crate::row::Key;
use crate::store::{ChangedRows, Table};
use crate::txn::long_work::LongWork;
use crate::txn::moving::{Finished, ROWS_AT_A_TIME, ReadRow, TableMove};
use crate::txn::options::TxOptions;
use crate::txn::runs::Runs;
use crate::txn::{Canceller, Transaction};

/// Attempts before the move takes the table's lock. Another definition or a deadlock ends an attempt.
const ATTEMPTS_MAX: u32 = 3;
/// During the copy, changed rows are copied again once this many are noted. With more than this after the last round, the move
/// takes the table's lock.
const BEHIND_MAX: usize = if cfg!(test) { 64 } else { 16_384 };
/// With no more rows behind, the table is locked.
const BEHIND_AT_LOCK: usize = if cfg!(test) { 16 } else { 1_024 };
/// Rounds of copying changed rows again before the lock.
const ROUNDS_MAX: u32 = 16;
/// The move takes the table's lock once it has copied this many times the table's rows again.
const AGAIN_MAX: u64 = 4;

/// How a table is moved.
#[derive(Debug, Clone, Default)]
pub struct MoveOptions {
    /// Of the move's transaction, and of those that read the rows for it; these commit at level 1, and have no
    /// [`TxOptions::timeout`].
    pub transaction: TxOptions,
    /// Cancels the move from another thread ([`Database::canceller`]).
    pub canceller: Option<Canceller>,
}

/// Outcome of an attempt without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    Moved,
    /// Another definition has changed the table, or a deadlock has ended the attempt.
    InTheWay,
    /// The table is to be moved under its lock: it is small, or changes faster than it is copied.
    UnderItsLock,
}

impl Database {
    /// Moves a table, with its indexes, to memory or to the disk, while other transactions read and change it. The rows are read
    /// under shared locks, up to 256 of them at a time; those that are changed meanwhile are read again. At the end the table is locked, for
    /// as long as it takes to copy what was changed last. It is locked all the time if it has fewer than
    /// 1,024 rows, if its rows change faster than they are copied or more than the packet has room for, if three attempts were
    /// ended by other definitions or deadlocks, and if no transaction is left for the reads. A table that has the residence stays as it is.
    ///
    /// There has to be room for both copies: in memory until the commit, on the disk until a later checkpoint. The copy is
    /// written to a load file, which stays until the checkpoints no longer need it. Inside a transaction
    /// [`Transaction::set_residence`] does the same, and holds the table's lock from its beginning to the transaction's end.
    ///
    /// # Blocking
    /// The call waits until the move is durable at the transaction's level: the time to copy the rows.
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
    /// Those of [`Database::set_residence`]; [`Error::Cancelled`] after [`MoveOptions::canceller`] was used.
    pub fn set_residence_with(&self, table: &str, residence: Residence, options: &MoveOptions) -> Result<()> {
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
        let runs = Runs::cancelled_by(options.canceller.as_ref());
        let body = |tx: &mut Transaction| tx.set_residence(table, residence);
        let ((), done) = run(self.core(), &options.transaction, runs, body)?;
        if done.has_ended() { Ok(()) } else { done.reply(self.core()) }
    }

    /// A canceller for work that is made of several transactions ([`MoveOptions::canceller`]).
    pub fn canceller(&self) -> Canceller {
        Canceller::new(self.core())
    }

    fn try_move(&self, name: &str, residence: Residence, options: &MoveOptions) -> Result<Attempt> {
        let mut tx = self.begin_with(&options.transaction)?;
        if let Some(canceller) = &options.canceller {
            tx.follow(canceller);
        }
        let begun = tx.table(name).and_then(|table| {
            let begun = TableMove::begin(&mut tx, &table, residence)?;
            Ok(begun.map(|copy| (table, copy)))
        });
        let (table, copy) = match begun {
            Ok(Some(begun)) => begun,
            Ok(None) => return tx.abort().map(|()| Attempt::UnderItsLock),
            Err(error) => return tx.fail(error),
        };
        let mut moving = Moving { database: self, options, table, copy, tx, copied_again: 0 };
        let attempt = moving.run();
        let Moving { tx, copy, .. } = moving;
        drop(copy);
        let attempt = match attempt {
            Ok(Attempt::Moved) => tx.commit().map(|()| Attempt::Moved),
            attempt => tx.abort().and(attempt),
        };
        match attempt {
            Err(Error::Deadlock { .. }) => Ok(Attempt::InTheWay),
            // What has changed since the load file was written is more than a packet holds; or no transaction is left for the reads.
            Err(Error::WriteSetTooLarge { .. } | Error::TooManyTransactions { .. }) => {
                Ok(Attempt::UnderItsLock)
            }
            Err(error) => {
                // I3: the error may depend on rows of level 1 commits. It is returned once these are durable.
                self.core().settle_all(&options.transaction).wait()?;
                Err(error)
            }
            Ok(attempt) => Ok(attempt),
        }
    }
}

/// An attempt on its way. What it has made goes before its transaction ends.
struct Moving<'a> {
    database: &'a Database,
    options: &'a MoveOptions,
    table: Table,
    copy: TableMove,
    tx: Transaction<'static>,
    /// How many rows were copied that had been copied before.
    copied_again: u64,
}

impl Moving<'_> {
    fn run(&mut self) -> Result<Attempt> {
        let core = self.database.core();
        let behind = core.storage.watched.watch(self.copy.old.store.heap());
        let mut work = LongWork::begin(core, self.what(), self.copy.old.store.rows());
        let mut last = None;
        loop {
            let Some(rows) = self.rows_behind(last.as_ref())? else { return Ok(Attempt::InTheWay) };
            self.copy.copy(&mut self.tx, &rows, &behind)?;
            work.step(rows.len() as u64);
            let is_end = rows.len() < ROWS_AT_A_TIME;
            last = rows.into_iter().next_back().map(|(key, _)| key).or(last);
            if is_end {
                break;
            }
            if behind.len() >= BEHIND_MAX
                && let Some(over) = self.catch_up(&behind, last.as_ref())?
            {
                return Ok(over);
            }
        }
        if let Some(over) = self.catch_up_until_few(&behind)? {
            return Ok(over);
        }
        work.end();
        self.copy.write_file(&mut self.tx)?;
        if let Some(over) = self.catch_up_until_few(&behind)? {
            return Ok(over);
        }
        if let Some(canceller) = &self.options.canceller {
            self.tx.follow(canceller);
        }
        Ok(match self.copy.finish(&mut self.tx, &behind)? {
            Finished::Moved => Attempt::Moved,
            Finished::Redefined => Attempt::InTheWay,
            Finished::TooFarBehind => Attempt::UnderItsLock,
        })
    }

    fn what(&self) -> String {
        format!("moving table \"{}\" to {}", self.copy.old.name(), self.copy.residence)
    }

    /// Copies the rows that are behind until there are few, for some rounds. Returns the outcome if the attempt ends here.
    fn catch_up_until_few(&mut self, behind: &ChangedRows) -> Result<Option<Attempt>> {
        for _ in 0..ROUNDS_MAX {
            if behind.len() <= BEHIND_AT_LOCK {
                return Ok(None);
            }
            if let Some(over) = self.catch_up(behind, None)? {
                return Ok(Some(over));
            }
        }
        Ok((behind.len() > BEHIND_MAX).then_some(Attempt::UnderItsLock))
    }

    /// Copies the rows that are behind, up to this key if there is one: those after it are still to come. Returns the
    /// outcome if the attempt ends here.
    fn catch_up(&mut self, behind: &ChangedRows, last: Option<&Key>) -> Result<Option<Attempt>> {
        let Some(mut keys) = behind.take() else { return Ok(Some(Attempt::UnderItsLock)) };
        keys.retain(|key| last.is_none_or(|last| key <= last));
        for keys in keys.chunks(ROWS_AT_A_TIME) {
            let (version, table) = (self.copy.old.clone(), self.table.clone());
            let Some(rows) = self.read(|tx| tx.read_rows_of(&table, &version, keys))? else {
                return Ok(Some(Attempt::InTheWay));
            };
            self.copy.copy_again(&mut self.tx, &rows, behind)?;
        }
        self.copied_again += keys.len() as u64;
        let most = AGAIN_MAX * self.copy.old.store.rows() + BEHIND_MAX as u64;
        Ok((self.copied_again > most).then_some(Attempt::UnderItsLock))
    }

    /// The next rows behind this key.
    fn rows_behind(&self, key: Option<&Key>) -> Result<Option<Vec<ReadRow>>> {
        let (version, table) = (&self.copy.old, &self.table);
        self.read(|tx| tx.read_rows_behind(table, version, key))
    }

    /// Runs a short transaction that reads rows of the table.
    fn read<T>(&self, body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        let canceller = self.options.canceller.as_ref();
        canceller.map_or(Ok(()), Canceller::check)?;
        // The move's own commit waits for all that was read, and so does its error.
        let options =
            TxOptions { durability: Some(Durability::Memory), timeout: None, ..self.options.transaction };
        let (rows, done) = run(self.database.core(), &options, Runs::cancelled_by(canceller), body)?;
        if !done.has_ended() {
            done.reply(self.database.core())?;
        }
        Ok(rows)
    }
}

/// Their bounds are small, so that a table of few rows passes them.
#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::ControlFlow;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use crate::io::MemoryDisk;
    use crate::row::{Column, ColumnType, Value, WhichIndex};
    use crate::{Checkpointing, Database, Options, Residence, Scan, Table, TableDef};

    const ROWS: i32 = 3_000;

    /// A table of numbers with a unique column.
    fn numbers(residence: Residence) -> (Database, Table) {
        let options =
            Options { checkpoint: Checkpointing::None, memory_bytes: 64 << 20, ..Options::default() };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int4)];
        let definition = TableDef::new("t", columns)
            .with_primary_key(&["id"])
            .with_index("by_n", &["n"], true)
            .with_residence(residence);
        let table = db.transact(|tx| {
            let table = tx.create_table(&definition)?;
            (0..ROWS).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int4(id)]))?;
            Ok(table)
        });
        (db, table.unwrap())
    }

    /// The rows by one of the two indexes.
    fn rows_by(db: &Database, table: &Table, index: WhichIndex) -> BTreeMap<i32, i32> {
        let mut rows = BTreeMap::new();
        db.transact(|tx| {
            rows.clear();
            tx.scan(table, &Scan { index, ..Scan::all() }, |_, row| {
                rows.insert(row.get_i32(0)?, row.get_i32(1)?);
                Ok(ControlFlow::Continue(()))
            })
        })
        .unwrap();
        rows
    }

    fn other(residence: Residence) -> Residence {
        if residence == Residence::Memory { Residence::Disk } else { Residence::Memory }
    }

    /// While the move waits in the middle of the table, most rows that it has copied change, and some that it has not: those before it are
    /// copied again before it goes on.
    #[test]
    fn rows_behind_are_copied_again_amid_the_copy() {
        for from in [Residence::Memory, Residence::Disk] {
            let (db, table) = numbers(from);
            let mut expected: BTreeMap<i32, i32> = (0..ROWS).map(|id| (id, id)).collect();
            let mut holder = db.begin().unwrap();
            assert!(holder.update(&table, 1_500, &[(1, Value::Int4(-1))]).unwrap());
            expected.insert(1_500, -1);
            std::thread::scope(|scope| {
                let moving = scope.spawn(|| db.set_residence("t", other(from)));
                while db.lock_waits().is_empty() {
                    assert!(!moving.is_finished());
                    std::thread::yield_now();
                }
                // Numbers go round among three rows each; every third row of some goes, and comes with another number.
                for id in (0..ROWS - 2).step_by(3).filter(|id| !(1_024..1_800).contains(id)) {
                    let numbers = [expected[&id], expected[&(id + 1)], expected[&(id + 2)]];
                    db.transact(|tx| {
                        tx.delete(&table, id)?;
                        tx.update(&table, id + 1, &[(1, Value::Int4(numbers[0]))])?;
                        tx.update(&table, id + 2, &[(1, Value::Int4(numbers[1]))])?;
                        if id % 2 == 0 {
                            tx.insert(&table, &[Value::Int4(id), Value::Int4(numbers[2])])?;
                        }
                        Ok(())
                    })
                    .unwrap();
                    expected.remove(&id);
                    expected.extend([(id + 1, numbers[0]), (id + 2, numbers[1])]);
                    if id % 2 == 0 {
                        expected.insert(id, numbers[2]);
                    }
                }
                holder.commit().unwrap();
                moving.join().unwrap().unwrap();
            });
            assert_eq!(db.table("t").unwrap().residence(), other(from));
            for index in [WhichIndex::Primary, WhichIndex::Secondary(0)] {
                assert!(rows_by(&db, &table, index) == expected, "moved from {from}, by {index:?}");
            }
        }
    }

    /// A move of a table whose rows change faster than it copies them comes to its end, and loses nothing.
    #[test]
    fn a_table_that_changes_faster_than_it_is_copied_moves_under_its_lock() {
        let (db, table) = numbers(Residence::Memory);
        let (is_over, added) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for first in 0..3 {
                let (db, table, is_over, added) = (&db, &table, &is_over, &added);
                scope.spawn(move || {
                    // Each has rows of its own, and keeps their sum in the number of what it has added.
                    for id in (first..ROWS).step_by(3).cycle() {
                        if is_over.load(Ordering::Relaxed) {
                            return;
                        }
                        let done = db
                            .transact(|tx| tx.modify(table, id, |row| row.add(1, i64::from(ROWS)).map(drop)));
                        assert_eq!(done, Ok(true));
                        added.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for to in [Residence::Disk, Residence::Memory, Residence::Disk] {
                db.set_residence("t", to).unwrap();
                assert_eq!(db.table("t").unwrap().residence(), to);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let rows = rows_by(&db, &table, WhichIndex::Primary);
        assert!(rows_by(&db, &table, WhichIndex::Secondary(0)) == rows);
        let rounds: i64 = rows.iter().map(|(id, n)| i64::from(n - id) / i64::from(ROWS)).sum();
        assert_eq!(rounds as u64, added.load(Ordering::Relaxed));
    }
}
