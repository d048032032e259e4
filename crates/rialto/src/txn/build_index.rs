//! Building an index over the rows that a table has, for CREATE INDEX and ADD PRIMARY KEY. The entries are collected and sorted run by
//! run, then merged into the index. The runs lie in memory of the bound ([`Options::memory_bytes`](crate::Options::memory_bytes)),
//! and between any two short steps the statement hears cancel and time-out.

use std::sync::Arc;

use super::context::Context;
use crate::error::{Error, Result};
use crate::row::Key;
use crate::store::Budget;
use crate::store::memory::index::{
    Batch, Direction, Full, Guard, Index, Merge, More, ScanRange, SortRun, Take, order,
};

/// Makes an index key of a row and its primary key.
pub(super) type KeyOf<'a> = dyn Fn(&[u8], &[u8], &mut Key) + 'a;

/// A run of so many bytes is sorted at once, in a few milliseconds.
const RUN_BYTES: usize = 1 << 20;

/// So many bytes are drawn from the memory bound at a time.
const DRAWN_BYTES: u64 = 64 << 10;

/// So many entries are put into the index before the next look whether the transaction may go on.
const PUT_AT_ONCE: usize = 1 << 12;

/// The entries of an index to be.
struct Entries {
    /// Each is sorted.
    runs: Vec<SortRun>,
    /// What they take, those of the run that is collected included.
    bytes: u64,
    /// What was drawn for them from the bound.
    drawn: u64,
    budget: Arc<Budget>,
}

impl Drop for Entries {
    fn drop(&mut self) {
        self.runs.clear();
        self.budget.give(self.drawn);
    }
}

/// Why an index was not built.
enum Stop {
    /// No more nodes.
    Full,
    /// A key that two rows have.
    Twice(Key),
    Failed(Error),
}

impl From<Full> for Stop {
    fn from(_: Full) -> Stop {
        Stop::Full
    }
}

impl Entries {
    /// Adds a run that is complete.
    fn add(&mut self, mut run: SortRun) {
        run.sort();
        run.shrink();
        self.runs.push(run);
    }

    /// Puts them into an index, in the order of their keys.
    fn put(&self, context: &Context, take: &mut Take<'_>) -> Result<(), Stop> {
        let (mut before, mut bytes) = (None, Vec::new());
        let merged = Merge::of(self.runs.iter().map(|run| (run, 0..run.entries.len())));
        for (nth, (run, entry)) in merged.enumerate() {
            if nth % PUT_AT_ONCE == 0 {
                context.check().map_err(Stop::Failed)?;
            }
            let key = run.key(entry, &mut bytes);
            if before.is_some_and(|before| order(before, (run, entry)).is_eq()) {
                return Err(Stop::Twice(Key::from(key)));
            }
            take(key, entry.value())?;
            before = Some((run, entry));
        }
        Ok(())
    }
}

impl Context {
    /// Builds an index over all rows of a table that this transaction has to itself, as it sees them, after a check of
    /// each. The inner error is a key that two rows have.
    pub(super) fn build_index(
        &mut self,
        slot: u32,
        check: &dyn Fn(&[u8]) -> Result<()>,
        key_of: &KeyOf<'_>,
    ) -> Result<std::result::Result<Index, Key>> {
        let entries = self.collect_entries(slot, check, key_of)?;
        let build = |context: &mut Context| {
            let built = Index::build(context.core.storage.nodes.clone(), |take| entries.put(context, take));
            if matches!(built, Err(Stop::Full)) { None } else { Some(built) }
        };
        let built = match build(self) {
            Some(built) => built,
            None => self.at_bound(Some(slot), build)?,
        };
        match built {
            Ok(index) => Ok(Ok(index)),
            Err(Stop::Twice(key)) => Ok(Err(key)),
            Err(Stop::Failed(error)) => Err(error),
            Err(Stop::Full) => Err(self.memory_limit()),
        }
    }

    fn collect_entries(
        &mut self,
        slot: u32,
        check: &dyn Fn(&[u8]) -> Result<()>,
        key_of: &KeyOf<'_>,
    ) -> Result<Entries> {
        let budget = self.core.storage.segments.budget().clone();
        let mut entries = Entries { runs: Vec::new(), bytes: 0, drawn: 0, budget };
        let table = self.tables.shared(slot).clone();
        let (mut run, mut body, mut key) = (SortRun::default(), Vec::new(), Key::new());
        let mut batch = Batch::new();
        loop {
            let more = table.primary.read_leaf(&ScanRange::ALL, Direction::Forward, Guard::Leave, &mut batch);
            for (entry, _) in batch.iter() {
                self.key.clear();
                self.key.extend_from_slice(entry);
                let place = self.locate(slot);
                if !self.read_place_into(slot, place, &mut body) {
                    continue;
                }
                let row = &body[table.row_at()..];
                check(row)?;
                key_of(row, entry, &mut key);
                let bytes = SortRun::bytes_of_entry(key.len());
                if run.bytes() + bytes > RUN_BYTES {
                    self.check()?;
                    entries.add(std::mem::take(&mut run));
                }
                entries.bytes += bytes as u64;
                if entries.bytes > entries.drawn {
                    self.draw(slot, &mut entries)?;
                }
                run.push(&key, self.record_of(place).0);
            }
            self.check()?;
            if more == More::No {
                break;
            }
        }
        entries.add(run);
        Ok(entries)
    }

    /// Draws memory for more entries.
    #[cold]
    fn draw(&mut self, slot: u32, entries: &mut Entries) -> Result<()> {
        let budget = entries.budget.clone();
        let draw = |_: &mut Context| budget.take(DRAWN_BYTES).then_some(());
        draw(self).map_or_else(|| self.at_bound(Some(slot), draw), Ok)?;
        entries.drawn += DRAWN_BYTES;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::IndexId;
    use crate::io::MemoryDisk;
    use crate::row::{Column, ColumnType, IndexDef, Value};
    use crate::store::memory::SEGMENT_BYTES;
    use crate::{Checkpointing, Database, Logging, Options, Table, TableDef, Transaction};

    /// More than two runs have room for.
    const ROWS: i32 = 120_000;

    /// A database with a table of rows whose column n is in no order; each value of n is there once.
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
    fn collect(tx: &mut Transaction, table: &Table) -> Result<Entries> {
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
        context.collect_entries(slot, &|_| Ok(()), &|row, primary, key| {
            schema.index_key_of_row(0, row, primary, key);
        })
    }

    #[test]
    fn an_index_of_several_runs_has_all_rows_in_order() {
        let (db, table) = open(64 << 20);
        db.transact(|tx| tx.create_index("t", "by_n", &["n"], true)).unwrap();
        let by_n = table.version().secondaries[0].clone();
        assert_eq!(by_n.check(), Ok(ROWS as u64));
        db.transact(|tx| tx.update(&table, 7, &[(1, Value::Int4(ROWS))])).unwrap();
        db.transact(|tx| tx.create_index("t", "again", &["n"], true)).unwrap();
        // Two rows with one key, which are in different runs.
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

    /// The entries of an index to be take their memory from the bound, and give it back.
    #[test]
    fn an_index_is_built_within_the_memory_bound() {
        let (db, table) = open(32 << 20);
        let budget = db.core().storage.segments.budget();
        let before = budget.used();
        let mut tx = db.begin().unwrap();
        let entries = collect(&mut tx, &table).unwrap();
        assert!(entries.runs.len() > 2, "{} runs", entries.runs.len());
        let taken = entries.runs.iter().map(|run| run.bytes() as u64).sum();
        assert!(
            (taken..taken + (1 << 20)).contains(&(budget.used() - before)),
            "{} for {taken}",
            budget.used() - before
        );
        drop(entries);
        assert_eq!(budget.used(), before);
        tx.abort().unwrap();
        // Less is left than the entries take.
        let kept =
            (0..).take_while(|_| budget.free() > taken / 2 && budget.take(SEGMENT_BYTES as u64)).count();
        let used = budget.used();
        let refused = db.transact(|tx| tx.create_index("t", "by_n", &["n"], true));
        assert!(matches!(refused, Err(Error::MemoryLimit { .. })), "{refused:?}");
        assert!(budget.used() <= used);
        (0..kept).for_each(|_| budget.give(SEGMENT_BYTES as u64));
        db.transact(|tx| tx.create_index("t", "by_n", &["n"], true)).unwrap();
        assert!(budget.used() - before < taken, "the entries are given back when the index is there");
    }

    #[test]
    fn an_index_that_is_being_put_together_hears_cancel() {
        let (db, table) = open(64 << 20);
        let mut tx = db.begin().unwrap();
        let entries = collect(&mut tx, &table).unwrap();
        let (canceller, mut taken) = (tx.canceller(), 0);
        let stopped = entries.put(tx.context(), &mut |_, _| {
            taken += 1;
            if taken == 2 * PUT_AT_ONCE {
                canceller.cancel();
            }
            Ok(())
        });
        assert!(matches!(stopped, Err(Stop::Failed(Error::Cancelled))));
        assert!(taken <= 3 * PUT_AT_ONCE, "{taken} entries");
    }
}
