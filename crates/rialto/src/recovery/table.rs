//! [`RedoTable`]: a table while the log is redone: its rows, and the one index by which redo records name them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::catalog::{Described, senseless};
use super::indexes::{self, memory_limit};
use crate::catalog::{Description, RowNumbers, TableParts, TableVersion};
use crate::error::{Error, Result};
use crate::ids::{IndexId, Lsn};
use crate::row::{Key, ROW_BYTES_MAX, RowView, Schema, WhichIndex};
use crate::store::memory::index::{Admit, Index, Insert, MAX_KEY_BYTES, NodePool};
use crate::store::memory::{Heap, RecordRef, SegmentId, Segments, Unclaimed};
use crate::txn::redo::{Change, RedoRecord};

/// A table during redo.
pub(super) struct RedoTable {
    pub description: Description,
    pub schema: Schema,
    pub heap: Arc<Heap>,
    /// By the identity that the next packets' redo records use.
    pub primary: Arc<Index>,
    /// See [`Described::since`].
    pub since: Lsn,
}

/// What tables are built with.
#[derive(Clone, Copy)]
pub(super) struct Builder<'a> {
    pub segments: &'a Arc<Segments>,
    pub nodes: &'a Arc<NodePool>,
    pub threads: usize,
}

/// Buffers of one thread that redoes.
#[derive(Default)]
pub(super) struct Scratch {
    /// The thread's number.
    pub thread: usize,
    body: Vec<u8>,
}

impl Scratch {
    pub fn new(thread: usize) -> Scratch {
        Scratch { thread, body: Vec::new() }
    }
}

/// Whether a heap knows its free slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FreeSlots {
    /// Its segments were just loaded: it knows none.
    New,
    /// All are on its list.
    Listed,
}

const ROW_NUMBER_BYTES: usize = 8;

fn row_at(numbered: bool) -> usize {
    if numbered { ROW_NUMBER_BYTES } else { 0 }
}

fn row_number(numbered: bool, body: &[u8]) -> u64 {
    if numbered { u64::from_le_bytes(body[..ROW_NUMBER_BYTES].try_into().expect("eight bytes")) } else { 0 }
}

impl Builder<'_> {
    /// The table over these segments of its heap, without the rows of places up to `forget`.
    pub fn build(
        &self,
        described: Described,
        segments: &[SegmentId],
        forget: Option<Lsn>,
    ) -> Result<RedoTable> {
        let Described { description, since } = described;
        let schema = description.schema()?;
        let heap = Arc::new(Heap::new(self.segments.clone(), description.heap, description.fill_percent));
        for &id in segments {
            heap.adopt_segment(id);
        }
        let primary = self.index_rows(&description, &schema, &heap, forget, FreeSlots::New)?;
        Ok(RedoTable { description, schema, heap, primary: Arc::new(primary), since })
    }

    /// The same table with its rows by the identity of another description, or without its rows up to a place.
    pub fn rebuild(&self, old: &RedoTable, described: Described, forget: Option<Lsn>) -> Result<RedoTable> {
        let Described { description, since } = described;
        let schema = description.schema()?;
        let rows = old.heap.rows() as i64;
        old.heap.count_rows(0, -rows);
        let primary = self.index_rows(&description, &schema, &old.heap, forget, FreeSlots::Listed)?;
        Ok(RedoTable { description, schema, heap: old.heap.clone(), primary: Arc::new(primary), since })
    }

    /// Indexes and counts the rows in a heap's segments, and frees the slots without one.
    fn index_rows(
        &self,
        description: &Description,
        schema: &Schema,
        heap: &Heap,
        forget: Option<Lsn>,
        free: FreeSlots,
    ) -> Result<Index> {
        let segments = self.segments;
        let numbered = description.numbered;
        let runs = indexes::collect(self.threads, &heap.owned(), &|thread, id, run| {
            let (mut body, mut key) = (Vec::new(), Key::new());
            for slot in segments.slots(id) {
                let slot = slot.map_err(|what| damaged(schema, what))?;
                if !segments.settle_after_load(slot) {
                    if free == FreeSlots::New {
                        heap.adopt_free(thread, slot);
                    }
                    continue;
                }
                if forget.is_some_and(|forget| segments.lsn(slot) <= forget) {
                    heap.release(thread, slot);
                    continue;
                }
                segments.read(slot, &mut body);
                if body.len() < row_at(numbered) + schema.row_bytes_min() {
                    return Err(damaged(schema, format!("a row of {} bytes is too short", body.len())));
                }
                key.clear();
                schema.primary_key_of_row(&body[row_at(numbered)..], row_number(numbered, &body), &mut key);
                run.push(&key, slot);
            }
            Ok(())
        })?;
        let keep_newer = |thread: usize, _: &[u8], first: RecordRef, second: RecordRef| {
            let keep_first = segments.lsn(first) > segments.lsn(second);
            heap.release(thread, if keep_first { second } else { first });
            Ok(keep_first)
        };
        let (index, rows) = indexes::build(self.nodes, segments.budget(), self.threads, &runs, &keep_newer)?;
        heap.count_rows(0, rows as i64);
        Ok(index)
    }

    /// The table as transactions see it, with all of its indexes.
    pub fn finish(&self, table: &RedoTable, first_row_number: u64) -> Result<TableVersion> {
        let RedoTable { description, schema, heap, primary, .. } = table;
        let numbered = description.numbered;
        let highest = AtomicU64::new(0);
        let owned = heap.owned();
        let mut secondaries = Vec::new();
        for position in 0..schema.indexes().len() {
            let runs = indexes::collect(self.threads, &owned, &|_, id, run| {
                let (mut primary, mut key) = (Key::new(), Key::new());
                self.each_row(schema, id, |record, body| {
                    let row = &body[row_at(numbered)..];
                    primary.clear();
                    key.clear();
                    schema.primary_key_of_row(row, row_number(numbered, body), &mut primary);
                    schema.index_key_of_row(position, row, &primary, &mut key);
                    run.push(&key, record);
                })
            })?;
            let refuse = |_: usize, key: &[u8], _, _| Err(twice(schema, position, key));
            let (index, _) =
                indexes::build(self.nodes, self.segments.budget(), self.threads, &runs, &refuse)?;
            secondaries.push(Arc::new(index));
        }
        if numbered {
            indexes::collect(self.threads, &owned, &|_, id, _| {
                self.each_row(schema, id, |_, body| {
                    highest.fetch_max(row_number(numbered, body), Ordering::Relaxed);
                })
            })?;
        }
        Ok(TableVersion::new(TableParts {
            id: description.id,
            schema: Arc::new(schema.clone()),
            primary_id: description.primary_id,
            numbered,
            fill_percent: description.fill_percent,
            heap: heap.clone(),
            primary: primary.clone(),
            secondaries,
            numbers: Arc::new(RowNumbers::new(first_row_number.max(highest.into_inner() + 1))),
            floor: Arc::new(AtomicU64::new(0)),
        }))
    }

    fn each_row(&self, schema: &Schema, id: SegmentId, mut take: impl FnMut(RecordRef, &[u8])) -> Result<()> {
        let mut body = Vec::new();
        for slot in self.segments.slots(id) {
            let slot = slot.map_err(|what| damaged(schema, what))?;
            if !self.segments.is_absent(slot) {
                self.segments.read(slot, &mut body);
                take(slot, &body);
            }
        }
        Ok(())
    }
}

fn damaged(schema: &Schema, what: String) -> Error {
    Error::Corrupt { file: format!("the rows of table \"{}\"", schema.table()), offset: 0, what }
}

fn twice(schema: &Schema, position: usize, key: &[u8]) -> Error {
    let index = &schema.indexes()[position];
    let key = schema.print_key(WhichIndex::Secondary(position), key);
    damaged(schema, format!("two rows have the key {key} of the unique index \"{}\"", index.name))
}

impl RedoTable {
    /// Whether redo records name the rows by another key in this description.
    pub fn identifies_otherwise(&self, description: &Description) -> bool {
        let identity = |description: &Description| -> (IndexId, Option<Vec<usize>>) {
            (description.primary_id, description.primary_key.clone())
        };
        identity(&self.description).1 != identity(description).1
    }

    /// Redoes one record of the packet at `lsn`, whose table this is. False if the row is of a later place already.
    pub fn redo(&self, lsn: Lsn, record: &RedoRecord<'_>, scratch: &mut Scratch) -> Result<bool> {
        if lsn < self.since {
            return Ok(false);
        }
        let segments = self.heap.segments();
        let key = record.key;
        if key.len() > MAX_KEY_BYTES {
            return Err(senseless(self, lsn, "its key is too long"));
        }
        let found = self.primary.get(key).value.map(RecordRef);
        if found.is_some_and(|found| segments.lsn(found) > lsn) {
            return Ok(false);
        }
        let numbered = self.description.numbered;
        match (&record.change, found) {
            (Change::Put { row_number, row }, found) => {
                if row.len() > ROW_BYTES_MAX || row.len() < self.schema.row_bytes_min() {
                    return Err(senseless(self, lsn, "its row has an impossible length"));
                }
                scratch.body.clear();
                if numbered {
                    scratch.body.extend_from_slice(&row_number.to_le_bytes());
                }
                scratch.body.extend_from_slice(row);
                self.put(lsn, key, found, scratch)?;
            }
            (Change::Patch(patches), Some(found)) => {
                segments.read(found, &mut scratch.body);
                let (row_at, length) = (row_at(numbered), scratch.body.len());
                if patches.ranges().any(|(offset, bytes)| row_at + offset + bytes.len() > length) {
                    return Err(senseless(self, lsn, "a patch passes the end of its row"));
                }
                segments.patch(found, patches.ranges().map(|(offset, bytes)| (row_at + offset, bytes)), lsn);
            }
            (Change::Delete, Some(found)) => {
                self.primary.remove(key, None);
                self.heap.release(scratch.thread, found);
                self.heap.count_rows(scratch.thread, -1);
            }
            (Change::Patch(_) | Change::Delete, None) => return Ok(false),
            (Change::Load { .. }, _) => unreachable!("a load is redone as puts"),
        }
        Ok(true)
    }

    /// Puts the body in `scratch` at `key`, where `found` is now.
    fn put(&self, lsn: Lsn, key: &[u8], found: Option<RecordRef>, scratch: &Scratch) -> Result<()> {
        let segments = self.heap.segments();
        let body = &scratch.body;
        if let Some(found) = found
            && segments.room(found) >= body.len()
        {
            segments.write(found, body, lsn);
            return Ok(());
        }
        let full = || memory_limit(segments.budget());
        let record = self.heap.allocate(scratch.thread, body.len(), &mut Unclaimed).ok_or_else(full)?;
        segments.write(record, body, lsn);
        match found {
            Some(found) => {
                let replaced = self.primary.replace(key, found.0, record.0);
                debug_assert!(replaced, "one thread redoes all records of a key");
                self.heap.release(scratch.thread, found);
            }
            None => {
                let inserted = self.primary.insert(key, record.0, || Admit::Go).map_err(|_| full())?;
                debug_assert_eq!(inserted, Insert::Done, "one thread redoes all records of a key");
                self.heap.count_rows(scratch.thread, 1);
            }
        }
        Ok(())
    }

    /// A row of a system table in a put.
    pub fn view<'r>(&'r self, lsn: Lsn, row: &'r [u8]) -> Result<RowView<'r>> {
        RowView::validate(&self.schema, row).map_err(|error| senseless(self, lsn, &error.to_string()))
    }
}
