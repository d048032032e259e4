//! Builds an index over the existing rows of a table, for CREATE INDEX and ADD PRIMARY KEY, as the transaction sees
//! them. The entries go through [`IndexEntries`], those of a disk-resident table through [`IndexBuild`]. Between short steps the
//! statement checks for a cancel and a time-out.

use super::context::Context;
use super::long_work::LongWork;
use crate::commit::write_set::CurrentLocation;
use crate::error::Result;
use crate::ids::IndexId;
use crate::row::{Key, WhichIndex};
use crate::store::paged::{IndexBuild, PageAccess, PagedIndex};
use crate::store::{Batch, Direction, Guard, IndexEntries, IndexStorage, More, NotBuilt, ScanRange};

/// Makes an index key of a row and its primary key.
pub(super) type KeyOf<'a> = dyn Fn(&[u8], &[u8], &mut Key) + 'a;

impl Context {
    /// Builds an index over all rows of a table that this transaction has locked exclusively, as it sees them, after a
    /// check of each row. `Err` in the result is a key that two rows have. `id` is used for pages only: a checkpoint may name
    /// the index while it is built.
    pub(super) fn build_index(
        &mut self,
        (slot, id, name): (u32, IndexId, &str),
        check: &dyn Fn(&[u8]) -> Result<()>,
        key_of: &KeyOf<'_>,
    ) -> Result<std::result::Result<IndexStorage, Key>> {
        let what = format!("building index \"{name}\" of table \"{}\"", self.tables.at(slot).name());
        if self.pages(slot).is_some() {
            let built = self.build_index_in_pages((slot, id, what), check, key_of)?;
            return Ok(built.map(IndexStorage::Pages));
        }
        let entries = self.collect_entries((slot, what), check, key_of)?;
        let build = |context: &mut Context| {
            let built = entries.build(&context.core.storage, || context.check());
            if matches!(built, Err(NotBuilt::Full)) { None } else { Some(built) }
        };
        let built = match build(self) {
            Some(built) => built,
            None => self.at_bound(Some(slot), build)?,
        };
        match built {
            Ok(index) => Ok(Ok(index)),
            Err(NotBuilt::Twice(key)) => Ok(Err(key)),
            Err(NotBuilt::Stopped(error)) => Err(error),
            Err(NotBuilt::Full) => Err(self.memory_limit()),
        }
    }

    fn build_index_in_pages(
        &mut self,
        (slot, id, what): (u32, IndexId, String),
        check: &dyn Fn(&[u8]) -> Result<()>,
        key_of: &KeyOf<'_>,
    ) -> Result<std::result::Result<PagedIndex, Key>> {
        let pages = self.pages(slot).expect("the caller has looked").clone();
        let storage = &self.core.storage;
        let index = storage.disk_tables.make_index(&pages, id)?;
        let mut build = IndexBuild::new(index, storage.budget().clone());
        let (mut key, mut twice) = (Key::new(), None);
        self.each_row(slot, what, |context, VisibleRow { row, primary, .. }| {
            check(row)?;
            key_of(row, primary, &mut key);
            twice = build.push(&key, primary, &|| context.check())?.err();
            Ok(twice.is_none())
        })?;
        match twice {
            Some(key) => Ok(Err(key)),
            None => build.finish(&|| self.check()),
        }
    }

    fn collect_entries(
        &mut self,
        (slot, what): (u32, String),
        check: &dyn Fn(&[u8]) -> Result<()>,
        key_of: &KeyOf<'_>,
    ) -> Result<IndexEntries> {
        let (mut entries, mut key) = (IndexEntries::new(self.core.storage.budget()), Key::new());
        self.each_row(slot, what, |context, VisibleRow { row, primary, location, .. }| {
            check(row)?;
            key_of(row, primary, &mut key);
            if entries.is_run_full(key.len()) {
                context.check()?;
                entries.end_run();
            }
            if entries.needs_memory(key.len()) && !entries.draw() {
                context.at_bound(Some(slot), |_| entries.draw().then_some(()))?;
            }
            entries.push(&key, context.record_of(location));
            Ok(true)
        })?;
        entries.end_run();
        Ok(entries)
    }

    /// Calls `take` with each row of a table that this transaction has locked exclusively, as it sees the row, in the order of the
    /// keys, until `take` returns false. `what` says what is done with them.
    pub(super) fn each_row(
        &mut self,
        slot: u32,
        what: String,
        mut take: impl FnMut(&mut Context, VisibleRow<'_>) -> Result<bool>,
    ) -> Result<()> {
        let table = self.tables.shared(slot).clone();
        let mut work = LongWork::begin(&self.core, what, table.store.rows());
        let mut body = Vec::new();
        let (which, all, direction, mut batch) =
            (WhichIndex::Primary, ScanRange::ALL, Direction::Forward, Batch::new());
        loop {
            let more = table.store.read_leaf(
                &PageAccess::plain(),
                which,
                &all,
                direction,
                Guard::Leave,
                &mut batch,
            )?;
            for (primary, _) in batch.rows() {
                self.key.clear();
                self.key.extend_from_slice(primary);
                let location = self.locate(slot)?;
                if !self.read_at_into(slot, location, &mut body)? {
                    continue;
                }
                let row = &body[table.row_at()..];
                if !take(self, VisibleRow { body: &body, row, primary, location })? {
                    return Ok(());
                }
            }
            self.check()?;
            work.step(batch.len() as u64);
            if more == More::No {
                work.end();
                return Ok(());
            }
        }
    }
}

/// A row as a transaction sees it.
pub(super) struct VisibleRow<'a> {
    pub body: &'a [u8],
    pub row: &'a [u8],
    pub primary: &'a [u8],
    pub location: CurrentLocation,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::MemoryDisk;
    use crate::row::{Column, ColumnType, IndexDef, Value};
    use crate::store::PUT_AT_ONCE;
    use crate::{Checkpointing, Database, Error, Logging, Options, Table, TableDef, Transaction};

    /// More rows than two runs have room for.
    const ROWS: i32 = 120_000;

    /// A database with a table of rows whose column n is in no order; each value of n occurs once.
    fn open(memory_bytes: u64) -> (Database, Table) {
        let (checkpoint, logging) = (Checkpointing::None, Logging::None);
        let options = Options { memory_bytes, checkpoint, logging, ..Options::default() };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        let table = db
            .transact(|tx| {
                let columns = ["id", "n"].map(|name| Column::new(name, ColumnType::Int4)).to_vec();
                let table = tx.create_table(&TableDef::new("t", columns).with_primary_key(&["id"]))?;
                (0..ROWS).try_for_each(|id| {
                    let n = i64::from(id) * 48_271 % i64::from(ROWS);
                    tx.insert(&table, &[Value::Int4(id), Value::Int4(n as i32)])
                })?;
                Ok(table)
            })
            .unwrap();
        (db, table)
    }

    /// The entries of an index on n.
    fn collect(tx: &mut Transaction, table: &Table) -> Result<IndexEntries> {
        let context = tx.context();
        let slot = context.find_table(table).unwrap();
        let n = table.schema().position_of("n").unwrap();
        let schema = table.schema().with_indexes(vec![IndexDef {
            id: IndexId(0),
            name: "by_n".to_owned(),
            columns: vec![n],
            unique: true,
        }]);
        let schema = schema.unwrap();
        context.collect_entries((slot, String::new()), &|_| Ok(()), &|row, primary, key| {
            schema.index_key_of_row(0, row, primary, key);
        })
    }

    #[test]
    fn an_index_of_several_runs_has_all_rows_in_order() {
        let (db, table) = open(64 << 20);
        db.transact(|tx| tx.create_index("t", "by_n", &["n"], true)).unwrap();
        let by_n = table.version().store.memory().unwrap().secondaries[0].clone();
        assert_eq!(by_n.check(), Ok(ROWS as u64));
        db.transact(|tx| tx.update(&table, 7, &[(1, Value::Int4(ROWS))])).unwrap();
        db.transact(|tx| tx.create_index("t", "again", &["n"], true)).unwrap();
        // Two rows with one key, in different runs.
        db.transact(|tx| {
            tx.drop_index("by_n")?;
            tx.drop_index("again")?;
            tx.update(&table, ROWS - 1, &[(1, Value::Int4(ROWS))]).map(drop)
        })
        .unwrap();
        let twice = db.transact(|tx| tx.create_index("t", "by_n", &["n"], true));
        let key = format!("{ROWS}");
        assert!(matches!(&twice, Err(Error::DuplicateKey { key: at, .. }) if at.contains(&key)), "{twice:?}");
    }

    /// The entries of an index that is being made take their memory from the bound, and give it back.
    #[test]
    fn an_index_is_built_within_the_memory_bound() {
        let (db, table) = open(32 << 20);
        let budget = db.core().storage.budget();
        let before = budget.used();
        let mut tx = db.begin().unwrap();
        let entries = collect(&mut tx, &table).unwrap();
        let (runs, taken) = entries.size();
        assert!(runs > 2, "{runs} runs");
        assert!(
            (taken..taken + (1 << 20)).contains(&(budget.used() - before)),
            "{} for {taken}",
            budget.used() - before
        );
        drop(entries);
        assert_eq!(budget.used(), before);
        tx.abort().unwrap();
        // Less memory is left than the entries take.
        let kept = (0..).take_while(|_| budget.free() > taken / 2 && budget.take(64 << 10)).count();
        let used = budget.used();
        let refused = db.transact(|tx| tx.create_index("t", "by_n", &["n"], true));
        assert!(matches!(refused, Err(Error::MemoryLimit { .. })), "{refused:?}");
        assert!(budget.used() <= used);
        (0..kept).for_each(|_| budget.give(64 << 10));
        db.transact(|tx| tx.create_index("t", "by_n", &["n"], true)).unwrap();
        assert!(budget.used() - before < taken, "the entries are given back when the index is there");
    }

    #[test]
    fn an_index_that_is_being_put_together_hears_cancel() {
        let (db, table) = open(64 << 20);
        let mut tx = db.begin().unwrap();
        let entries = collect(&mut tx, &table).unwrap();
        let (canceller, mut taken) = (tx.canceller(), 0);
        let context = tx.context();
        let stopped = entries.put(
            || context.check(),
            |_, _| {
                taken += 1;
                if taken == 2 * PUT_AT_ONCE {
                    canceller.cancel();
                }
                Ok(())
            },
        );
        assert!(matches!(stopped, Err(NotBuilt::Stopped(Error::Cancelled))));
        assert!(taken <= 3 * PUT_AT_ONCE, "{taken} entries");
    }
}
