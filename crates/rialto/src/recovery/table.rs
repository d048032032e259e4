//! [`RedoTable`]: a table during redo: its rows, and the one index by which redo records name them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::catalog::senseless;
use super::indexes::{self, SegmentVisitor, memory_limit};
use super::pages::RedoPages;
use super::progress::RecoveryProgress;
use crate::catalog::{Description, Residence, RowNumbers};
use crate::checkpoint::home::HOME_FILE;
use crate::commit::redo::{Change, RedoRecord};
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::ids::{IndexId, Lsn};
use crate::row::{self, Key, Nulls, RowView, Schema, WhichIndex};
use crate::store::memory::image::backup_name;
use crate::store::memory::segments::{Copy, UNIT_BYTES, UNITS_PER_SEGMENT};
use crate::store::memory::{Heap, MemoryTable, RecordRef, SEGMENT_BYTES, SegmentId, Segments, Unclaimed};
use crate::store::paged::{DiskTables, PageAccess, PagedTable};
use crate::store::tree::{
    Admit, Batch, Direction, Guard, Index, Insert, MAX_KEY_BYTES, More, NodePool, ScanRange, SortRun,
};
use crate::store::{TableParts, TableStore, TableVersion};

/// A table during redo.
pub(super) struct RedoTable {
    pub description: Description,
    pub schema: Schema,
    pub heap: Arc<Heap>,
    /// By the identity that the redo records of the next packets use.
    pub primary: Arc<Index>,
    /// Where its rows are if it is disk-resident. Then it has none in memory.
    pub pages: Option<Arc<RedoPages>>,
    /// Whether its rows are left out: a disk-resident table that the checkpoint does not have, in a database that is only looked at.
    pub is_left_out: bool,
}

/// What tables are built with.
#[derive(Clone, Copy)]
pub(super) struct Builder<'a> {
    pub segments: &'a Arc<Segments>,
    pub nodes: &'a Arc<NodePool>,
    pub disk_tables: &'a Arc<DiskTables>,
    /// The pages have everything up to this place.
    pub page_place: Lsn,
    pub threads: usize,
    /// The backup copy that was loaded.
    pub copy: Option<Copy>,
    pub progress: &'a RecoveryProgress<'a>,
}

/// A memory-resident table: calls of procedures are replayed on such tables alone.
pub(super) fn resident(version: &TableVersion) -> &MemoryTable {
    version.store.memory().expect("transaction logging is refused with disk-resident tables")
}

/// Buffers of one redoing thread, and how it reaches pages.
pub(super) struct Scratch {
    /// The thread's number.
    pub thread: usize,
    pub(super) by: PageAccess,
    pub(super) body: Vec<u8>,
    pub(super) old: Vec<u8>,
    pub(super) key: Key,
}

impl Scratch {
    pub fn new(thread: usize) -> Scratch {
        let by = PageAccess::with_fingers();
        Scratch { thread, by, body: Vec::new(), old: Vec::new(), key: Key::new() }
    }
}

/// The packet of a record that is being redone.
#[derive(Debug, Clone, Copy)]
pub(super) struct At {
    /// Its place.
    pub lsn: Lsn,
    /// Whether the rows that it changes exist, because the tables are as they were at its place.
    pub finds_rows: bool,
}

#[cfg(test)]
thread_local! {
    /// How many secondary indexes this thread has built.
    pub(super) static INDEXES_BUILT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Whether a heap knows its free slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KnownFreeSlots {
    /// No: its segments were just loaded.
    New,
    /// Yes: all are on its list.
    Listed,
}

/// Where memory is short, a primary index whose leaves are less full than this is built anew: a bulk load fills nine
/// tenths.
const REPACKED_BELOW_PERCENT: u64 = 85;

const ROW_NUMBER_BYTES: usize = 8;

pub(super) fn row_at(numbered: bool) -> usize {
    if numbered { ROW_NUMBER_BYTES } else { 0 }
}

fn row_number(numbered: bool, body: &[u8]) -> u64 {
    if numbered { u64::from_le_bytes(body[..ROW_NUMBER_BYTES].try_into().expect("eight bytes")) } else { 0 }
}

impl Builder<'_> {
    /// The table over these segments of its heap.
    pub fn build(&self, description: Description, segments: &[SegmentId]) -> Result<RedoTable> {
        let pages = match description.residence {
            Residence::Disk if !self.disk_tables.is_read_only() => {
                // Its indexes are built when the log is redone.
                Some(self.disk_tables.make(description.heap, &[])?)
            }
            _ => None,
        };
        let is_left_out = description.residence == Residence::Disk && pages.is_none();
        Ok(RedoTable { is_left_out, ..self.build_with(description, segments, pages)? })
    }

    /// The same for a table that a backup copy describes.
    pub fn build_of_copy(&self, description: Description, segments: &[SegmentId]) -> Result<RedoTable> {
        let pages = match description.residence {
            Residence::Memory => None,
            Residence::Disk => {
                let found = self.disk_tables.find(description.heap);
                let missing = || Error::Corrupt {
                    file: HOME_FILE.to_owned(),
                    offset: 0,
                    what: format!("the pages that it names have no table \"{}\"", description.name),
                };
                let found = found.ok_or_else(missing)?;
                let is_there = |id| found.secondaries().iter().any(|index| index.id() == id);
                if let Some(index) = description.indexes.iter().find(|index| !is_there(index.id)) {
                    return Err(Error::Corrupt {
                        file: HOME_FILE.to_owned(),
                        offset: 0,
                        what: format!(
                            "the pages that it names have no index \"{}\" of table \"{}\"",
                            index.name, description.name
                        ),
                    });
                }
                Some(found)
            }
        };
        self.build_with(description, segments, pages)
    }

    fn build_with(
        &self,
        description: Description,
        segments: &[SegmentId],
        pages: Option<PagedTable>,
    ) -> Result<RedoTable> {
        let schema = description.schema()?;
        let heap = Arc::new(Heap::new(self.segments.clone(), description.heap, description.fill_percent));
        for &id in segments {
            heap.adopt_segment(id);
        }
        let primary = self.index_rows(&description, &schema, &heap, KnownFreeSlots::New)?;
        // What is only looked at stays as it is.
        let place = if self.disk_tables.is_read_only() { Lsn(u64::MAX) } else { self.page_place };
        let pages = pages.map(|table| Arc::new(RedoPages::new(&table, &description, place)));
        Ok(RedoTable { description, schema, heap, primary: Arc::new(primary), pages, is_left_out: false })
    }

    /// The same table with its rows by the identity of another description.
    pub fn rebuild(&self, old: &RedoTable, description: Description) -> Result<RedoTable> {
        let schema = description.schema()?;
        let rows = old.heap.rows() as i64;
        old.heap.count_rows(0, -rows);
        let primary = self.index_rows(&description, &schema, &old.heap, KnownFreeSlots::Listed)?;
        let (heap, pages) = (old.heap.clone(), old.pages_as(&description));
        Ok(RedoTable {
            description,
            schema,
            heap,
            primary: Arc::new(primary),
            pages,
            is_left_out: old.is_left_out,
        })
    }

    /// As [`indexes::collect`], with its progress told.
    fn collect(&self, segments: &[SegmentId], visit: &SegmentVisitor<'_>) -> Result<Vec<SortRun>> {
        let runs = indexes::collect(self.threads, segments, &|begun| self.progress.indexed(begun), visit);
        self.progress.indexed_all(segments.len());
        runs
    }

    /// Indexes and counts the rows in a heap's segments, and frees the slots without a row.
    fn index_rows(
        &self,
        description: &Description,
        schema: &Schema,
        heap: &Heap,
        free: KnownFreeSlots,
    ) -> Result<Index> {
        let segments = self.segments;
        let numbered = description.numbered;
        let runs = self.collect(&heap.owned(), &|thread, id, run| {
            let (mut body, mut key) = (Vec::new(), Key::new());
            for slot in segments.slots(id) {
                let slot = slot.map_err(|what| damaged(schema, what))?;
                if !segments.settle_after_load(slot) {
                    if free == KnownFreeSlots::New {
                        heap.adopt_free(thread, slot);
                    }
                    continue;
                }
                segments.read(slot, &mut body);
                let row = body.get(row_at(numbered)..).unwrap_or_default();
                // The rows of a transaction of which a part is redone again are checked as they were put.
                let nulls = if free == KnownFreeSlots::New { Nulls::OverZeros } else { Nulls::OverAnything };
                if let Some((at, what)) = row::damage(schema, row, nulls) {
                    let what = format!("the row of {} bytes, at its byte {at}: {what}", row.len());
                    return Err(self.damaged_row(schema, slot, free, what));
                }
                schema.primary_key_of_row(row, row_number(numbered, &body), &mut key);
                if key.len() > MAX_KEY_BYTES {
                    let what = format!("a primary key of {} bytes", key.len());
                    return Err(self.damaged_row(schema, slot, free, what));
                }
                run.push(&key, slot.0);
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

    /// The error for a row that does not fit its table, under a right checksum.
    fn damaged_row(&self, schema: &Schema, slot: RecordRef, free: KnownFreeSlots, what: String) -> Error {
        let unit = slot.0 % UNITS_PER_SEGMENT;
        match self.copy.filter(|_| free == KnownFreeSlots::New) {
            Some(copy) => Error::Corrupt {
                file: backup_name(copy),
                offset: u64::from(slot.segment().0) * SEGMENT_BYTES as u64 + unit * UNIT_BYTES as u64,
                what: format!("table \"{}\": {what}", schema.table()),
            },
            None => damaged(schema, format!("at unit {unit} of segment {}: {what}", slot.segment().0)),
        }
    }

    /// The table as transactions see it, with all of its indexes.
    pub fn finish(&self, table: &RedoTable, first_row_number: u64) -> Result<TableVersion> {
        let RedoTable { description, schema, heap, primary, .. } = table;
        let numbered = description.numbered;
        if let Some(pages) = &table.pages {
            return self.finish_in_pages(table, pages, first_row_number);
        }
        let highest = AtomicU64::new(0);
        let owned = heap.owned();
        let mut secondaries = Vec::new();
        for position in 0..schema.indexes().len() {
            let runs = self.collect(&owned, &|_, id, run| {
                let (mut primary, mut key) = (Key::new(), Key::new());
                self.each_row(schema, id, |record, body| {
                    let row = &body[row_at(numbered)..];
                    primary.clear();
                    key.clear();
                    schema.primary_key_of_row(row, row_number(numbered, body), &mut primary);
                    schema.index_key_of_row(position, row, &primary, &mut key);
                    if key.len() > MAX_KEY_BYTES {
                        let name = &schema.indexes()[position].name;
                        let what = format!("a key of {} bytes of index \"{name}\"", key.len());
                        return Err(self.damaged_row(schema, record, KnownFreeSlots::Listed, what));
                    }
                    run.push(&key, record.0);
                    Ok(())
                })
            })?;
            #[cfg(test)]
            INDEXES_BUILT.set(INDEXES_BUILT.get() + 1);
            let refuse = |_: usize, key: &[u8], _, _| Err(twice(schema, position, key));
            let (index, _) =
                indexes::build(self.nodes, self.segments.budget(), self.threads, &runs, &refuse)?;
            secondaries.push(Arc::new(index));
        }
        if numbered && schema.primary_key().is_none() {
            // The row number is the key.
            highest.store(last_row_number(primary), Ordering::Relaxed);
        } else if numbered {
            self.collect(&owned, &|_, id, _| {
                self.each_row(schema, id, |_, body| {
                    highest.fetch_max(row_number(numbered, body), Ordering::Relaxed);
                    Ok(())
                })
            })?;
        }
        Ok(TableVersion::new(TableParts {
            id: description.id,
            schema: Arc::new(schema.clone()),
            primary_id: description.primary_id,
            numbered,
            fill_percent: description.fill_percent,
            store: TableStore::in_memory(MemoryTable::new(heap.clone(), primary.clone(), secondaries)),
            numbers: Arc::new(RowNumbers::new(first_row_number.max(highest.into_inner() + 1))),
            floor: Arc::new(AtomicU64::new(0)),
            lineage: Arc::default(),
        }))
    }

    /// Returns the table with its primary index built anew, if that makes the index much smaller: the order of redo and
    /// deletes have left its leaves less full. No transaction uses the table yet.
    pub fn repack(&self, version: TableVersion) -> Result<TableVersion> {
        let Some(memory) = version.store.memory() else { return Ok(version) };
        let MemoryTable { heap, primary: old, secondaries, .. } = memory;
        if old.fill_percent() >= REPACKED_BELOW_PERCENT {
            return Ok(version);
        }
        let (mut run, mut batch) = (SortRun::default(), Batch::new());
        loop {
            let more = old.read_leaf(&ScanRange::ALL, Direction::Forward, Guard::Leave, &mut batch);
            batch.iter().for_each(|(key, record)| run.push(key, record));
            if more == More::No {
                break;
            }
        }
        // Its nodes become the new one's.
        old.discard();
        let never = |_: usize, _: &[u8], _, _| unreachable!("a key is in an index once");
        let (primary, _) = indexes::build(self.nodes, self.segments.budget(), self.threads, &[run], &never)?;
        let memory = MemoryTable::new(heap.clone(), Arc::new(primary), secondaries.clone());
        let store = TableStore::in_memory(memory);
        Ok(TableVersion::new(TableParts { store, ..version.parts() }))
    }

    fn each_row(
        &self,
        schema: &Schema,
        id: SegmentId,
        mut take: impl FnMut(RecordRef, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut body = Vec::new();
        for slot in self.segments.slots(id) {
            let slot = slot.map_err(|what| damaged(schema, what))?;
            if !self.segments.is_absent(slot) {
                self.segments.read(slot, &mut body);
                take(slot, &body)?;
            }
        }
        Ok(())
    }
}

/// The highest key of an index of row numbers; 0 if it is empty.
fn last_row_number(primary: &Index) -> u64 {
    let mut batch = Batch::new();
    loop {
        let more = primary.read_leaf(&ScanRange::ALL, Direction::Backward, Guard::Leave, &mut batch);
        match (batch.iter().map(|(key, _)| key.try_into().map_or(0, u64::from_be_bytes)).max(), more) {
            (Some(highest), _) => return highest,
            (None, More::No) => return 0,
            (None, More::Yes) => {}
        }
    }
}

pub(super) fn damaged(schema: &Schema, what: String) -> Error {
    Error::Corrupt { file: format!("the rows of table \"{}\"", schema.table()), offset: 0, what }
}

fn twice(schema: &Schema, position: usize, key: &[u8]) -> Error {
    let index = &schema.indexes()[position];
    let key = schema.print_key(WhichIndex::Secondary(position), key);
    damaged(schema, format!("two rows have the key {key} of the unique index \"{}\"", index.name))
}

impl RedoTable {
    /// How often [`Builder::finish`] visits the table's rows.
    pub fn visits(&self) -> usize {
        let numbers = self.description.numbered && self.schema.primary_key().is_some();
        self.schema.indexes().len() + usize::from(numbers)
    }

    /// The pages of the table in another description.
    pub fn pages_as(&self, description: &Description) -> Option<Arc<RedoPages>> {
        let pages = self.pages.as_ref()?;
        Some(Arc::new(RedoPages::new(&pages.table, description, pages.place)))
    }

    /// Whether redo records name the rows by another key in this description.
    pub fn identifies_otherwise(&self, description: &Description) -> bool {
        let identity = |description: &Description| -> (IndexId, Option<Vec<usize>>) {
            (description.primary_id, description.primary_key.clone())
        };
        identity(&self.description).1 != identity(description).1
    }

    /// The key by which redo records name the row of this body.
    pub fn key_of(&self, body: &[u8], key: &mut Key) {
        let numbered = self.description.numbered;
        self.schema.primary_key_of_row(&body[row_at(numbered)..], row_number(numbered, body), key);
    }

    /// The row of this key: its location, and its keys in the secondary indexes.
    pub fn secondary_keys(&self, key: &[u8]) -> Option<(RecordRef, Vec<Key>)> {
        let record = RecordRef(self.primary.get(key).value?);
        let mut body = Vec::new();
        self.heap.segments().read(record, &mut body);
        let numbered = self.description.numbered;
        let keys = (0..self.schema.indexes().len()).map(|position| {
            let mut secondary = Key::new();
            self.schema.index_key_of_row(position, &body[row_at(numbered)..], key, &mut secondary);
            secondary
        });
        Some((record, keys.collect()))
    }

    /// Redoes one record of a packet, which is for this table. False if the row already has a later place, or has gone
    /// at one.
    pub fn redo(&self, at: At, record: &RedoRecord<'_>, scratch: &mut Scratch) -> Result<bool> {
        if let Some(pages) = &self.pages {
            return self.redo_in_pages(pages, at, record, scratch);
        }
        if self.is_left_out {
            return Ok(true);
        }
        let lsn = at.lsn;
        let segments = self.heap.segments();
        let key = record.key;
        if key.len() > MAX_KEY_BYTES {
            return Err(senseless(self, lsn, "its key is too long"));
        }
        let found = self.primary.get(key).value.map(RecordRef);
        // Values are put again where the row has this place already; an operation is not done twice.
        let newest_to_change = match record.change {
            Change::Operate(_) => Lsn(lsn.0.saturating_sub(1)),
            _ => lsn,
        };
        let is_later =
            |found| segments.lsn(found) > newest_to_change && !fault_injection::is_on("redo-over-later-rows");
        if found.is_some_and(is_later) {
            return Ok(false);
        }
        let numbered = self.description.numbered;
        match (&record.change, found) {
            (Change::Put { row_number, row }, found) => {
                if let Some(what) = row::damage(&self.schema, row, Nulls::OverZeros) {
                    return Err(self.no_row(lsn, key, what));
                }
                self.schema.primary_key_of_row(row, *row_number, &mut scratch.key);
                if scratch.key[..] != *key {
                    return Err(self.no_row(lsn, key, (0, "another key than the record's".to_owned())));
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
                self.patch_body(lsn, record, scratch)?;
                let row_at = row_at(numbered);
                segments.patch(found, patches.ranges().map(|(offset, bytes)| (row_at + offset, bytes)), lsn);
            }
            (Change::Delete, Some(found)) => {
                self.primary.remove(key, None);
                self.heap.release(scratch.thread, found);
                self.heap.count_rows(scratch.thread, -1);
            }
            (Change::Operate(operations), Some(found)) => {
                segments.read(found, &mut scratch.body);
                self.patch_body(lsn, record, scratch)?;
                let row_at = row_at(numbered);
                segments.operate(
                    found,
                    operations.changes().map(|(offset, change)| (row_at + offset, change)),
                    lsn,
                );
            }
            (Change::Patch(_) | Change::Operate(_) | Change::Delete, None) if at.finds_rows => {
                let key = self.schema.print_key(WhichIndex::Primary, key);
                let what = format!(
                    "the row of the key {key}, which it changes, is not there: neither the backup copy nor the log has it"
                );
                return Err(senseless(self, lsn, &what));
            }
            (Change::Patch(_) | Change::Operate(_) | Change::Delete, None) => return Ok(false),
            (Change::Load { .. }, _) => unreachable!("a load is redone as puts"),
        }
        Ok(true)
    }

    /// Changes fields of the body in `scratch` as a record of patches or operations says, and checks that it is still a row
    /// with the record's key.
    pub(super) fn patch_body(&self, lsn: Lsn, record: &RedoRecord<'_>, scratch: &mut Scratch) -> Result<()> {
        let row_at = row_at(self.description.numbered);
        self.check_changed(lsn, record.key, row_at, scratch, |schema, row| match &record.change {
            Change::Patch(patches) => patches.ranges().try_for_each(|(offset, bytes)| {
                schema.apply_patch(row, offset as u16, bytes).map_err(|error| (offset, error.to_string()))
            }),
            Change::Operate(operations) => operations.changes().try_for_each(|(offset, change)| {
                let mut field = [0; 128];
                let field = &mut field[..change.len()];
                if let Some(old) = row.get(offset..offset + change.len()) {
                    field.copy_from_slice(old);
                }
                change.apply(field);
                schema.apply_patch(row, offset as u16, field).map_err(|error| (offset, error.to_string()))
            }),
            _ => unreachable!("a change of fields"),
        })
    }

    /// Checks that the body in `scratch` is still a row with this key after `change`.
    fn check_changed(
        &self,
        lsn: Lsn,
        key: &[u8],
        row_at: usize,
        scratch: &mut Scratch,
        change: impl FnOnce(&Schema, &mut [u8]) -> Result<(), (usize, String)>,
    ) -> Result<()> {
        let Scratch { body, old, .. } = scratch;
        let row = &mut body[row_at..];
        old.clear();
        old.extend_from_slice(&row[..self.schema.row_bytes_min()]);
        change(&self.schema, row).map_err(|what| self.no_row(lsn, key, what))?;
        if let Some(what) = row::damage(&self.schema, row, Nulls::OverAnything) {
            return Err(self.no_row(lsn, key, what));
        }
        if !self.schema.same_key_fields(old, row) {
            return Err(self.no_row(lsn, key, (0, "a change of the primary key".to_owned())));
        }
        Ok(())
    }

    /// The error for a record that leaves bytes which are no row, at this byte of them.
    #[cold]
    pub(super) fn no_row(&self, lsn: Lsn, key: &[u8], (at, what): (usize, String)) -> Error {
        let key = self.schema.print_key(WhichIndex::Primary, key);
        senseless(self, lsn, &format!("the row of the key {key}, at its byte {at}: {what}"))
    }

    /// Puts the body in `scratch` at `key`, whose present slot is `found`.
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
        // As with transactions, a row that grows stays in its segment if it can, in the share that inserts leave free.
        let record = match found {
            Some(found) => self.heap.allocate_near(scratch.thread, body.len(), found, &mut Unclaimed),
            None => self.heap.allocate(scratch.thread, body.len(), &mut Unclaimed),
        };
        let record = record.ok_or_else(full)?;
        segments.write(record, body, lsn);
        match found {
            Some(found) => {
                let replaced = self.primary.replace(key, found.0, record.0);
                debug_assert!(replaced, "one thread redoes all records of a key");
                self.heap.release(scratch.thread, found);
            }
            None => {
                let inserted = self.primary.insert(key, record.0, || Admit::Go).map_err(|_| {
                    self.heap.release(scratch.thread, record);
                    full()
                })?;
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
