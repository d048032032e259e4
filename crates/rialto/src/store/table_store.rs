//! [`TableStore`]: the storage of one table, as transactions and commits use it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::memory::load_file::RowsToLoadFile;
use super::memory::{BodyWords, LoadedRows, MemoryTable, SegmentId, StoredRow, load_file, same_version};
use super::paged::{KeyAhead, PageAccess, PagedIndex, PagedTable};
use super::tree::{Admit, Batch, Direction, Found, Guard, Index, Insert, Leaf, More, ScanRange, Vacancy};
use super::{Claims, Followed, RowLocation, TableVersion};
use crate::error::Result;
use crate::ids::{HeapId, IndexId, Lsn};
use crate::io::Disk;
use crate::row::{FieldChange, WhichIndex};
use crate::unlikely::unlikely;

/// The storage of one table: its rows, and the entries of its indexes. A copy refers to the same storage.
#[derive(Clone)]
pub(crate) enum TableStore {
    /// Memory-resident.
    Memory(MemoryTable),
    /// Disk-resident.
    Pages(Box<PagedTable>),
}

/// The result of putting an entry into an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entered {
    Done,
    /// The key leads to this row already; nothing changed.
    Exists(RowLocation),
    /// A lock on an interval forbids the entry; nothing changed.
    Refused,
}

#[cold]
fn not_resident() -> ! {
    unreachable!("a row of a disk-resident table was taken for one in memory: a bug, please report it")
}

impl From<Insert> for Entered {
    #[inline]
    fn from(inserted: Insert) -> Entered {
        match inserted {
            Insert::Done => Entered::Done,
            Insert::Exists(number) => Entered::Exists(RowLocation::from_number(number)),
            Insert::Refused => Entered::Refused,
        }
    }
}

/// A row that was read without a lock, with what tells later whether it has changed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeenRow {
    pub(super) location: RowLocation,
    pub(super) word: u64,
}

/// The result of reading a row without a lock.
pub(crate) enum Unlocked {
    /// The row was read; this is the place of its last writer.
    Read(SeenRow, Lsn),
    /// The row is changing, or its entry leads elsewhere by now.
    Changing,
    /// Another transaction holds the row's lock exclusively.
    Locked,
}

/// An index as a part of storage: one that is built and that no table has in place yet, or one that was taken out.
#[derive(Clone)]
pub(crate) enum IndexStorage {
    Memory(Arc<Index>),
    Pages(PagedIndex),
}

impl IndexStorage {
    /// Gives its memory or its pages back. It is used no more.
    pub fn discard(&self) {
        match self {
            IndexStorage::Memory(index) => index.discard(),
            IndexStorage::Pages(index) => index.discard(),
        }
    }

    fn of_memory(self) -> Arc<Index> {
        match self {
            IndexStorage::Memory(index) => index,
            IndexStorage::Pages(_) => not_resident(),
        }
    }
}

/// A part of a table's storage, which a definition makes or replaces.
pub(crate) enum StoragePart {
    /// The rows.
    Rows(TableStore),
    Index(IndexId, IndexStorage),
    /// The primary index of a disk-resident table, whose storage is that of the rows.
    WithRows(IndexId),
}

/// Keys.
impl TableStore {
    /// Looks a key up in an index.
    #[inline]
    pub fn find(&self, which: WhichIndex, key: &[u8]) -> Found {
        self.resident().index(which).get(key)
    }

    /// The same in the primary index, inlined into the caller.
    #[inline(always)]
    pub fn find_in_line(&self, key: &[u8]) -> Found {
        self.resident().primary.get_in_line(key)
    }

    /// Whether no entry has come into the leaf of an index, or gone from it, since the leaf was read.
    #[inline(always)]
    pub fn unchanged(&self, which: WhichIndex, leaf: &Leaf) -> bool {
        match self {
            TableStore::Memory(memory) => memory.index(which).unchanged(leaf),
            TableStore::Pages(pages) => pages.unchanged(which, leaf),
        }
    }

    /// Whether a key still leads to this row, as it did when the leaf was read.
    #[inline]
    pub fn leads_still(&self, which: WhichIndex, key: &[u8], location: RowLocation, leaf: &Leaf) -> bool {
        self.unchanged(which, leaf) || self.find(which, key).location() == Some(location)
    }

    /// Reads the next leaf of a range ([`Index::read_leaf`]).
    #[inline]
    pub fn read_leaf(
        &self,
        by: &PageAccess,
        which: WhichIndex,
        range: &ScanRange<'_>,
        direction: Direction,
        guard: Guard,
        batch: &mut Batch,
    ) -> Result<More> {
        match self {
            TableStore::Memory(memory) => Ok(memory.index(which).read_leaf(range, direction, guard, batch)),
            TableStore::Pages(pages) => pages.read_leaf(by, which, range, direction, guard, batch),
        }
    }

    /// About how many entries an index has.
    pub fn entries_estimate(&self, which: WhichIndex) -> u64 {
        self.memory().map_or_else(|| self.rows(), |memory| memory.index(which).len_estimate())
    }

    /// Keys that lie about evenly in an index ([`Index::marks`]); none of a disk-resident table.
    pub fn marks(&self, which: WhichIndex, at_least: usize) -> Vec<Vec<u8>> {
        self.memory().map_or_else(Vec::new, |memory| memory.index(which).marks(at_least))
    }

    /// Reads the body that an index entry leads to, of a row that is not locked.
    pub fn follow(
        &self,
        by: &PageAccess,
        which: WhichIndex,
        entry: &[u8],
        body: &mut Vec<u8>,
    ) -> Result<Followed> {
        match self {
            TableStore::Memory(memory) => Ok(memory.follow(which, entry, body)),
            TableStore::Pages(pages) => pages.follow(by, which, entry, body),
        }
    }
}

/// Rows. The `inline(always)` here and above belong to a read without a lock, which takes 5% more instructions without
/// them.
impl TableStore {
    /// The row where it lies.
    #[inline(always)]
    pub fn row(&self, location: RowLocation) -> StoredRow<'_> {
        self.resident().segments().record(location.into())
    }

    /// The words of the row's body, where it lies. A row in a page has none, and one that was
    /// copied in a fetch stage: its body is at hand.
    #[inline(always)]
    pub fn words(&self, location: RowLocation) -> BodyWords<'_> {
        match self {
            TableStore::Memory(memory) if !unlikely(location.is_in_pages()) => {
                memory.segments().record(location.into()).body()
            }
            _ => BodyWords::NONE,
        }
    }

    /// The word that holds the row's lock. `None`: the row is locked by its name.
    #[inline(always)]
    pub fn lock_word(&self, location: RowLocation) -> Option<&AtomicU64> {
        self.memory().map(|memory| memory.segments().lock_word(location.into()))
    }

    /// Copies the body of a row that is locked.
    #[inline]
    pub fn read(&self, location: RowLocation, body: &mut Vec<u8>) {
        self.resident().segments().read(location.into(), body);
    }

    /// Copies the body of a row that an index has led to when its leaf was read, and that other transactions may have
    /// locked; `is_exclusive` reads its lock word.
    #[inline(always)]
    pub fn read_unlocked(
        &self,
        (which, leaf): (WhichIndex, &Leaf),
        location: RowLocation,
        is_exclusive: impl Fn(u64) -> bool,
        body: &mut Vec<u8>,
    ) -> Unlocked {
        let row = self.row(location);
        let word = row.word_before();
        if unlikely(is_exclusive(word)) {
            return Unlocked::Locked;
        }
        // The word was this row's if the index still led here after the word was loaded. It still is this row's if it
        // is unchanged.
        if unlikely(!self.unchanged(which, leaf) || row.is_absent()) {
            return Unlocked::Changing;
        }
        let lsn = row.lsn();
        row.read_unlocked(body);
        let now = row.word_after();
        if unlikely(!same_version(word, now) || is_exclusive(now)) {
            return Unlocked::Changing;
        }
        Unlocked::Read(SeenRow { location, word }, lsn)
    }

    /// Prefetches the first line of a row. The location may be wrong: it may come from an index without validation.
    #[inline]
    pub fn prefetch(&self, location: RowLocation) {
        if let TableStore::Memory(memory) = self {
            memory.segments().prefetch_head(location.into());
        }
    }

    /// A key whose pages may be missing, for [`fetch_together`](super::paged::fetch_together).
    pub fn key_ahead<'a>(&'a self, which: WhichIndex, key: &'a [u8]) -> Option<KeyAhead<'a>> {
        match self {
            TableStore::Memory(_) => None,
            TableStore::Pages(pages) => Some(pages.key_ahead(which, key)),
        }
    }

    /// Whether look-ups in the index wait for memory, so that prefetching what they lead to pays.
    #[inline]
    pub fn is_far(&self, which: WhichIndex) -> bool {
        self.memory().is_some_and(|memory| memory.index(which).is_far())
    }
}

/// What operations do before the commit: placeholders (I1).
impl TableStore {
    /// A slot for a body of `length` bytes, which holds no row yet. `None` at the memory bound. `hint` tells threads
    /// apart.
    #[inline]
    pub fn reserve(&self, hint: usize, length: usize, claims: &mut impl Claims) -> Option<RowLocation> {
        self.resident().heap.allocate(hint, length, claims).map(RowLocation::from)
    }

    /// The same for a row that has outgrown its slot: as near to the slot as there is room.
    pub fn reserve_near(
        &self,
        hint: usize,
        length: usize,
        home: RowLocation,
        claims: &mut impl Claims,
    ) -> Option<RowLocation> {
        self.resident().heap.allocate_near(hint, length, home.into(), claims).map(RowLocation::from)
    }

    /// Frees a slot that no entry leads to.
    #[inline]
    pub fn release(&self, hint: usize, location: RowLocation) {
        match self {
            TableStore::Memory(memory) => memory.heap.release(hint, location.into()),
            TableStore::Pages(pages) => pages.release(location),
        }
    }

    /// Puts an entry into an index if the key is absent. If the leaf is guarded, `admit` decides under the leaf's
    /// latch. `None` at the memory bound.
    #[inline]
    pub fn enter(
        &self,
        which: WhichIndex,
        key: &[u8],
        location: RowLocation,
        admit: impl FnMut() -> Admit,
    ) -> Option<Entered> {
        self.resident().index(which).insert(key, location.number(), admit).ok().map(Entered::from)
    }

    /// The same for a key that a look-up in the primary index has not found.
    #[inline]
    pub fn enter_at(
        &self,
        vacancy: &Vacancy,
        key: &[u8],
        location: RowLocation,
        admit: impl FnMut() -> Admit,
    ) -> Option<Entered> {
        self.resident().primary.insert_at(vacancy, key, location.number(), admit).ok().map(Entered::from)
    }

    /// Points an entry from one slot to another. False, and no change, if it does not lead to the first slot.
    pub fn repoint(&self, which: WhichIndex, key: &[u8], from: RowLocation, to: RowLocation) -> bool {
        self.resident().index(which).replace(key, from.number(), to.number())
    }

    /// Removes an entry that was put in for a row that does not come.
    pub fn take_back(&self, which: WhichIndex, key: &[u8]) {
        match self {
            TableStore::Memory(memory) => _ = memory.index(which).remove(key, None),
            TableStore::Pages(pages) => pages.take_back(which, key),
        }
    }
}

/// What a commit does once it has its place. None of it can fail (I10).
impl TableStore {
    /// Puts a whole body into a slot that has room for it.
    #[inline]
    pub fn put(&self, location: RowLocation, body: &[u8], lsn: Lsn) {
        self.resident().segments().write(location.into(), body, lsn);
    }

    /// Changes byte ranges of a body.
    #[inline]
    pub fn patch<'p>(
        &self,
        location: RowLocation,
        patches: impl IntoIterator<Item = (usize, &'p [u8])>,
        lsn: Lsn,
    ) {
        self.resident().segments().patch(location.into(), patches, lsn);
    }

    /// Does operations on fields of a body.
    pub fn operate<'p>(
        &self,
        location: RowLocation,
        changes: impl IntoIterator<Item = (usize, FieldChange<'p>)>,
        lsn: Lsn,
    ) {
        self.resident().segments().operate(location.into(), changes, lsn);
    }

    /// Points the entry of the row that has had these slots to `to`. An entry that another row has taken over stays.
    pub fn repoint_own(&self, which: WhichIndex, key: &[u8], slots: &[RowLocation], to: RowLocation) {
        if let Some(now) = self.find(which, key).location()
            && now != to
            && slots.contains(&now)
        {
            self.repoint(which, key, now, to);
        }
    }

    /// Removes the entry of the row that has had these slots, at this place, or without a place by an abort. An entry
    /// that another row has taken over stays.
    pub fn remove_own(&self, which: WhichIndex, key: &[u8], slots: &[RowLocation], lsn: Option<Lsn>) {
        if self.find(which, key).location().is_some_and(|now| slots.contains(&now)) {
            self.resident().index(which).remove(key, lsn);
        }
    }

    /// Counts rows that came or went.
    #[inline]
    pub fn count_rows(&self, hint: usize, change: i64) {
        match self {
            TableStore::Memory(memory) => memory.heap.count_rows(hint, change),
            TableStore::Pages(pages) => pages.count_rows(change),
        }
    }
}

/// The storage as a whole.
impl TableStore {
    pub fn in_memory(memory: MemoryTable) -> TableStore {
        TableStore::Memory(memory)
    }

    pub fn in_pages(pages: PagedTable) -> TableStore {
        TableStore::Pages(Box::new(pages))
    }

    /// The memory-resident table, for sweeps and recoveries, which work on its segments.
    pub fn memory(&self) -> Option<&MemoryTable> {
        match self {
            TableStore::Memory(memory) => Some(memory),
            TableStore::Pages(_) => None,
        }
    }

    /// The disk-resident table.
    #[inline(always)]
    pub fn pages(&self) -> Option<&PagedTable> {
        match self {
            TableStore::Memory(_) => None,
            TableStore::Pages(pages) => Some(pages),
        }
    }

    /// The memory-resident table, where it can be no other one: its rows are locked where they lie.
    #[inline(always)]
    fn resident(&self) -> &MemoryTable {
        match self {
            TableStore::Memory(memory) => memory,
            TableStore::Pages(_) => not_resident(),
        }
    }

    fn resident_mut(&mut self) -> &mut MemoryTable {
        match self {
            TableStore::Memory(memory) => memory,
            TableStore::Pages(_) => not_resident(),
        }
    }

    /// The identifier of the rows' storage.
    #[inline]
    pub fn heap(&self) -> HeapId {
        match self {
            TableStore::Memory(memory) => memory.heap.id(),
            TableStore::Pages(pages) => pages.heap(),
        }
    }

    /// The number of rows, exact while nothing changes the table.
    pub fn rows(&self) -> u64 {
        match self {
            TableStore::Memory(memory) => memory.heap.rows(),
            TableStore::Pages(pages) => pages.rows(),
        }
    }

    /// How many secondary indexes it has.
    pub fn secondaries(&self) -> usize {
        match self {
            TableStore::Memory(memory) => memory.secondaries.len(),
            TableStore::Pages(pages) => pages.secondaries().len(),
        }
    }

    /// The segments in use, in no order.
    pub fn owned(&self) -> Vec<SegmentId> {
        self.memory().map_or_else(Vec::new, |memory| memory.heap.owned())
    }

    /// Adds an index behind the others.
    pub fn add_index(&mut self, built: IndexStorage) {
        match (self, built) {
            (TableStore::Pages(pages), IndexStorage::Pages(index)) => pages.add_index(index),
            (store, built) => store.resident_mut().secondaries.push(built.of_memory()),
        }
    }

    /// Takes a secondary index out.
    pub fn remove_index(&mut self, position: usize) -> IndexStorage {
        match self {
            TableStore::Pages(pages) => IndexStorage::Pages(pages.remove_index(position)),
            TableStore::Memory(memory) => IndexStorage::Memory(memory.secondaries.remove(position)),
        }
    }

    /// Puts an index in the place of another one, and returns the replaced one. (In a disk-resident table a key leads to no
    /// place that stays: no index takes another's place.)
    pub fn replace_index(&mut self, which: WhichIndex, built: IndexStorage) -> IndexStorage {
        let index = self.resident_mut().index_mut(which);
        IndexStorage::Memory(std::mem::replace(index, built.of_memory()))
    }

    /// Whether both have the same primary index.
    pub fn shares_primary(&self, other: &TableStore) -> bool {
        match (self, other) {
            (TableStore::Memory(this), TableStore::Memory(other)) => {
                Arc::ptr_eq(&this.primary, &other.primary)
            }
            _ => self.heap() == other.heap(),
        }
    }

    /// Gives back the memory of an index that is no longer used, of a memory-resident table.
    pub fn discard_index(&self, which: WhichIndex) {
        self.resident().index(which).discard();
    }

    /// Writes all rows to the load file of this number, durably, and returns its digest. No other thread changes the
    /// rows meanwhile. Ends with the error of `check`, which is asked often.
    pub fn write_load_file(
        &self,
        disk: &dyn Disk,
        (database_id, number): (u128, u64),
        check: &dyn Fn() -> Result<()>,
    ) -> Result<u64> {
        let pages = match self {
            TableStore::Memory(memory) => {
                return load_file::write_load_file(disk, database_id, number, &memory.heap, check);
            }
            TableStore::Pages(pages) => pages,
        };
        let mut rows = RowsToLoadFile::create(disk, database_id, number, pages.heap())?;
        pages.for_each_row(|body| check().and_then(|()| rows.push(body)))?;
        rows.finish(disk)
    }

    /// Notes a row that was loaded into the table at position `table` of a transaction's list.
    pub fn note_loaded(&self, rows: &mut LoadedRows, table: u32, location: RowLocation) {
        rows.push(table, location.into(), self.resident().segments().units(location.into()));
    }
}

impl StoragePart {
    /// All parts of storage of a table's version.
    pub fn all_of(version: &TableVersion) -> Vec<StoragePart> {
        let rows = StoragePart::Rows(version.store.clone());
        let index = |which| {
            let id = version.index_id(which);
            let storage = match (&version.store, which) {
                (TableStore::Memory(memory), _) => IndexStorage::Memory(memory.index(which).clone()),
                (TableStore::Pages(_), WhichIndex::Primary) => return StoragePart::WithRows(id),
                (TableStore::Pages(pages), WhichIndex::Secondary(position)) => {
                    IndexStorage::Pages(pages.secondaries()[position].clone())
                }
            };
            StoragePart::Index(id, storage)
        };
        let secondaries = (0..version.schema.indexes().len()).map(WhichIndex::Secondary);
        std::iter::once(rows)
            .chain(std::iter::once(WhichIndex::Primary).chain(secondaries).map(index))
            .collect()
    }

    /// The index whose storage this is.
    pub fn index(&self) -> Option<IndexId> {
        match self {
            StoragePart::Rows(_) => None,
            StoragePart::Index(id, _) | StoragePart::WithRows(id) => Some(*id),
        }
    }

    /// Gives its memory back. It is used no more.
    pub fn discard(&self) {
        match self {
            StoragePart::Rows(TableStore::Memory(memory)) => memory.heap.clear(),
            StoragePart::Rows(TableStore::Pages(pages)) => pages.discard(),
            StoragePart::Index(_, index) => index.discard(),
            StoragePart::WithRows(_) => {}
        }
    }
}
