//! [`PagedTable`]: the rows and the index entries of a table, in trees of pages.
//!
//! | tree | key | row |
//! |---|---|---|
//! | primary | a primary key | the row's body; or where a long body is ([`LongBody`]) |
//! | one for each secondary index | a key of the index | the primary key of the row that has it |
//! | long bodies | a number of a body, a number of a part | the part |
//!
//! # Claims
//!
//! What a transaction will change at its commit it *claims* before: a claimed entry, and with it the way to it, stays in
//! memory. So a commit and an abort read nothing (I10). The entries that a commit will add are there as *placeholders*,
//! with all the room that they will need.
//!
//! A transaction claims a row only while it holds the row's exclusive lock, and an entry only while it holds that of the
//! entry's row. So there is one claim at a time, and a bit for it suffices. A page that is read again by another opening
//! loses its claims and placeholders (`LatchedNode::end_claims`).
//!
//! # Locations
//!
//! A row's location says where its *body* is: in the primary tree, or in the long body of a number. The primary key says where
//! in the primary tree. A long body never changes; a changed row has another one. So a reader without a lock never sees parts
//! of two.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::fingers::Fingers;
use super::key_ahead::KeyAhead;
use super::long_body::{LongBody, PART_KEY_BYTES, part_key};
use super::page_access::PageAccess;
use super::page_store::PageStore;
use super::paged_index::{GoneTrees, IndexTree, PagedIndex, TableTrees};
use super::paged_tree::{LatchedEntry, RowTree};
use super::published::PublishedTable;
use crate::error::{Error, Result};
use crate::ids::{HeapId, IndexId, Lsn};
use crate::row::{Key, WhichIndex};
use crate::store::tree::{
    Admit, Batch, Direction, EntryMarks, Guard, InsertRow, Leaf, More, NewRow, ScanRange, parts_of_taken_over,
};
use crate::store::{Followed, RowLocation};

/// The trees of a version of a table.
#[derive(Clone)]
pub(crate) struct PagedTable {
    rows: Arc<AtomicU64>,
    primary: Arc<dyn RowTree>,
    long_bodies: Arc<dyn RowTree>,
    /// The highest number of a long body.
    last_long: Arc<AtomicU64>,
    /// The indexes of the version: as in [`Schema::indexes`](crate::row::Schema::indexes).
    secondaries: Vec<PagedIndex>,
    trees: Arc<TableTrees>,
}

/// What was found of a primary key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FoundInPages {
    /// The location of its row, or of the placeholder of the row.
    pub location: Option<RowLocation>,
    /// Whether the row has not come yet.
    pub is_absent: bool,
    pub leaf: Leaf,
    /// What a reader depends on, whether there is a row or not (I3).
    pub lsn: Lsn,
}

/// A row that is claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClaimedRow {
    /// Whether it was not claimed before.
    pub is_new: bool,
    /// The bytes that its entry in the primary tree has room for, as long as it is claimed.
    room: usize,
}

/// The result of putting an entry into a secondary index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EnteredInPages {
    Done,
    /// The key leads to this row already; nothing changed.
    Own,
    /// The key leads to another row; nothing changed.
    Other,
    /// A lock on an interval forbids the entry; nothing changed.
    Refused,
}

/// The result of a step that changes claimed entries only: it reads no page, and needs no frame.
fn in_memory<T>(done: Result<T>) -> T {
    done.unwrap_or_else(|error| unreachable!("a claimed entry is in memory: {error}"))
}

/// Changes an entry that is claimed, so that its page is in memory. False: it is not there.
fn change_claimed(
    tree: &dyn RowTree,
    fingers: &Fingers,
    key: &[u8],
    work: &mut dyn FnMut(&mut dyn LatchedEntry),
) -> bool {
    tree.change_in_memory(fingers, key, work).unwrap_or_else(|| unreachable!("a claimed entry is in memory"))
}

impl PagedTable {
    /// The table that a checkpoint has published.
    pub fn of_published(
        store: &dyn PageStore,
        published: &PublishedTable,
        gone: Weak<Mutex<Vec<GoneTrees>>>,
    ) -> PagedTable {
        let index = |&(id, root): &(IndexId, u32)| IndexTree { id, root, tree: store.tree(root) };
        let indexes: Vec<IndexTree> = published.secondaries.iter().map(index).collect();
        let trees = Arc::new(TableTrees {
            heap: published.heap,
            primary: published.primary,
            long_bodies: published.long_bodies,
            secondaries: Mutex::new(indexes.clone()),
            gone,
        });
        PagedTable {
            rows: Arc::new(AtomicU64::new(published.rows)),
            primary: store.tree(published.primary),
            long_bodies: store.tree(published.long_bodies),
            last_long: Arc::new(AtomicU64::new(published.last_long)),
            secondaries: indexes.into_iter().map(|index| PagedIndex::of(&trees, index)).collect(),
            trees,
        }
    }

    /// An empty table with these indexes.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn make(
        store: &dyn PageStore,
        heap: HeapId,
        indexes: &[IndexId],
        gone: Weak<Mutex<Vec<GoneTrees>>>,
    ) -> Result<PagedTable> {
        let mut trees = Vec::new();
        for _ in 0..2 + indexes.len() {
            match store.make_tree() {
                Ok(tree) => trees.push(tree),
                Err(error) => {
                    trees.iter().for_each(|(root, _)| store.take_back_tree(*root));
                    return Err(error);
                }
            }
        }
        let published = PublishedTable {
            heap,
            rows: 0,
            last_long: 0,
            primary: trees[0].0,
            long_bodies: trees[1].0,
            secondaries: indexes.iter().copied().zip(trees[2..].iter().map(|(root, _)| *root)).collect(),
        };
        Ok(PagedTable::of_published(store, &published, gone))
    }

    /// What a checkpoint says of the table: all of its indexes, also those that no version in force has.
    pub fn published(&self) -> PublishedTable {
        PublishedTable {
            heap: self.heap(),
            rows: self.rows(),
            last_long: self.last_long.load(Ordering::Relaxed),
            primary: self.trees.primary,
            long_bodies: self.trees.long_bodies,
            secondaries: self.trees.secondaries.lock().iter().map(|index| (index.id, index.root)).collect(),
        }
    }

    /// The identifier of the rows' storage.
    pub fn heap(&self) -> HeapId {
        self.trees.heap
    }

    /// The number of rows, exact while nothing changes the table.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Counts rows that came or went.
    pub fn count_rows(&self, change: i64) {
        self.rows.fetch_add(change as u64, Ordering::Relaxed);
    }

    /// The secondary indexes of this version.
    pub fn secondaries(&self) -> &[PagedIndex] {
        &self.secondaries
    }

    /// The version with these secondary indexes.
    pub fn with_secondaries(&self, secondaries: Vec<PagedIndex>) -> PagedTable {
        PagedTable { secondaries, ..self.clone() }
    }

    /// Lets go of the indexes that this version does not have; no other version is in use.
    pub fn discard_other_indexes(&self) {
        let all = self.trees.secondaries.lock();
        let is_other = |index: &&IndexTree| self.secondaries.iter().all(|own| own.root() != index.root);
        for index in all.iter().filter(is_other) {
            PagedIndex::of(&self.trees, index.clone()).discard();
        }
    }

    /// Adds an index behind the others.
    pub fn add_index(&mut self, index: PagedIndex) {
        self.secondaries.push(index);
    }

    /// Takes a secondary index out.
    pub fn remove_index(&mut self, position: usize) -> PagedIndex {
        self.secondaries.remove(position)
    }

    /// Makes an empty index of this identifier. No version has it yet.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn make_index(&self, store: &dyn PageStore, id: IndexId) -> Result<PagedIndex> {
        let (root, tree) = store.make_tree()?;
        let index = IndexTree { id, root, tree };
        self.trees.secondaries.lock().push(index.clone());
        Ok(PagedIndex::of(&self.trees, index))
    }

    /// Frees the trees of these roots, which nothing uses, with the table's own at the latest.
    pub(super) fn free_later(&self, store: &dyn PageStore, roots: &[u32]) {
        self.trees.free_later(store, roots);
    }

    fn tree(&self, which: WhichIndex) -> &dyn RowTree {
        match which {
            WhichIndex::Primary => &*self.primary,
            WhichIndex::Secondary(position) => self.secondary(position),
        }
    }

    fn secondary(&self, position: usize) -> &dyn RowTree {
        self.secondaries[position].tree()
    }

    /// The table is not used any more. Its pages are freed later.
    pub fn discard(&self) {
        self.trees.let_go(GoneTrees::Table(self.clone()));
    }

    /// Frees all of its pages, which reads them. No index of it is left. Gives the roots of what could not be read, and so is not free
    /// yet.
    #[must_use = "what could not be read is to be freed later"]
    pub(super) fn free(&self) -> Vec<u32> {
        let secondaries = std::mem::take(&mut *self.trees.secondaries.lock());
        let secondaries = secondaries.iter().map(|index| &index.tree);
        let trees = [&self.primary, &self.long_bodies].into_iter().chain(secondaries);
        trees.flat_map(|tree| tree.discard()).collect()
    }
}

/// Reads. Each may read the disk.
impl PagedTable {
    /// A key of an index, for [`fetch_together`](super::key_ahead::fetch_together).
    pub fn key_ahead<'a>(&'a self, which: WhichIndex, key: &'a [u8]) -> KeyAhead<'a> {
        KeyAhead::of(self.tree(which), key)
    }

    /// Looks a primary key up.
    pub fn find(&self, by: &PageAccess, key: &[u8]) -> Result<FoundInPages> {
        let mut row = Vec::new();
        loop {
            let found = self.primary.find(by, key)?;
            let location = match found.marks {
                Some(marks) if marks.overflow => {
                    let again = self.primary.get(by, key, &mut row)?;
                    if again.marks != found.marks || again.leaf != found.leaf {
                        continue;
                    }
                    self.location_of(LongBody::of_row(&row))
                }
                _ => RowLocation::IN_LINE,
            };
            return Ok(FoundInPages {
                location: found.marks.map(|_| location),
                is_absent: found.marks.is_some_and(|marks| marks.absent),
                leaf: found.leaf,
                lsn: found.lsn,
            });
        }
    }

    /// Reads the body of a row. False: there is none.
    pub fn read(&self, by: &PageAccess, key: &[u8], body: &mut Vec<u8>) -> Result<bool> {
        self.read_noted(by, key, body).map(|lsn| lsn.is_some())
    }

    /// Reads the body of a row that is claimed.
    pub fn read_claimed(&self, key: &[u8], body: &mut Vec<u8>) {
        let is_there = in_memory(self.read(&PageAccess::plain(), key, body));
        assert!(is_there, "a row that a transaction has claimed is there");
    }

    /// The same; gives what a reader of the row depends on.
    fn read_noted(&self, by: &PageAccess, key: &[u8], body: &mut Vec<u8>) -> Result<Option<Lsn>> {
        loop {
            let found = self.primary.get(by, key, body)?;
            let Some(marks) = found.marks.filter(|marks| !marks.absent) else { return Ok(None) };
            if !marks.overflow || self.read_long(by, LongBody::of_row(body), body)? {
                return Ok(Some(found.lsn));
            }
            // The row is not locked, and has another body by now.
        }
    }

    /// Reads a long body. False: it is gone.
    fn read_long(&self, by: &PageAccess, long: LongBody, body: &mut Vec<u8>) -> Result<bool> {
        let mut part = Vec::new();
        body.clear();
        for number in 0.. {
            if body.len() >= long.bytes as usize {
                break;
            }
            let found = self.long_bodies.get(by, &part_key(long.number, number), &mut part)?;
            if found.marks.is_none() || part.is_empty() {
                return Ok(false);
            }
            body.extend_from_slice(&part);
        }
        Ok(body.len() == long.bytes as usize)
    }

    /// Reads the primary key that an entry of a secondary index leads to. Gives what a reader depends on, and whether there
    /// is such an entry.
    pub fn follow_to_key(
        &self,
        by: &PageAccess,
        position: usize,
        entry: &[u8],
        primary: &mut Vec<u8>,
    ) -> Result<(Lsn, bool)> {
        let found = self.secondary(position).get(by, entry, primary)?;
        if found.marks.is_some_and(|marks| marks.taken_over) {
            let earlier = parts_of_taken_over(primary).0.len();
            primary.drain(..2 + earlier);
        }
        Ok((found.lsn, found.marks.is_some()))
    }

    /// Reads the body that an index entry leads to, of a row that is not locked.
    pub fn follow(
        &self,
        by: &PageAccess,
        which: WhichIndex,
        entry: &[u8],
        body: &mut Vec<u8>,
    ) -> Result<Followed> {
        let mut primary = Vec::new();
        let removal = match which {
            WhichIndex::Primary => {
                primary.extend_from_slice(entry);
                let found = self.find(by, entry)?;
                if found.location.is_none() {
                    return Ok(Followed { record: None, lsn: Lsn::ZERO, removal: found.lsn, there: false });
                }
                found.lsn
            }
            WhichIndex::Secondary(position) => {
                let (removal, is_there) = self.follow_to_key(by, position, entry, &mut primary)?;
                if !is_there {
                    return Ok(Followed { record: None, lsn: Lsn::ZERO, removal, there: false });
                }
                removal
            }
        };
        let read = self.read_noted(by, &primary, body)?;
        if read.is_none() {
            body.clear();
            body.extend_from_slice(&primary);
        }
        let (lsn, there) = (read.unwrap_or(Lsn::ZERO), read.is_some());
        Ok(Followed { record: Some(RowLocation::IN_LINE), lsn, removal, there })
    }

    /// Whether no entry of a leaf has changed since the leaf was read.
    pub fn unchanged(&self, which: WhichIndex, leaf: &Leaf) -> bool {
        self.tree(which).unchanged(leaf)
    }

    /// Reads the next leaf of a range.
    pub fn read_leaf(
        &self,
        by: &PageAccess,
        which: WhichIndex,
        range: &ScanRange<'_>,
        direction: Direction,
        guard: Guard,
        batch: &mut Batch,
    ) -> Result<More> {
        self.tree(which).read_leaf(by, range, direction, guard, batch)
    }
}

/// What operations do before the commit: claims and placeholders. Each may read the disk.
impl PagedTable {
    /// Whether a body of so many bytes is in the primary tree, with this key.
    fn is_in_line(&self, key: &[u8], length: usize) -> bool {
        length <= self.primary.row_bytes_max(key.len())
    }

    /// The bytes of each part of a long body but the last.
    fn part_bytes(&self) -> usize {
        self.long_bodies.row_bytes_max(PART_KEY_BYTES)
    }

    fn location_of(&self, long: LongBody) -> RowLocation {
        RowLocation::long_body(long.number, self.parts_of(long))
    }

    fn parts_of(&self, long: LongBody) -> usize {
        (long.bytes as usize).div_ceil(self.part_bytes())
    }

    /// Reserves a body of so many bytes for a row of this key: where it will be.
    pub fn reserve(&self, by: &PageAccess, key: &[u8], length: usize) -> Result<RowLocation> {
        if self.is_in_line(key, length) {
            return Ok(RowLocation::IN_LINE);
        }
        let number = self.last_long.fetch_add(1, Ordering::Relaxed) + 1;
        for (part, from) in (0..length).step_by(self.part_bytes()).enumerate() {
            let room = (length - from).min(self.part_bytes());
            let row = NewRow { bytes: &[], room, marks: EntryMarks::PLACEHOLDER };
            if let Err(error) =
                self.long_bodies.insert(by, &part_key(number, part), &row, &mut || Admit::GoAndUnguard)
            {
                self.release(RowLocation::long_body(number, part));
                return Err(error);
            }
        }
        Ok(RowLocation::long_body(number, length.div_ceil(self.part_bytes())))
    }

    /// Makes places for pages that a row with such a body may make, and brings the page to memory into which
    /// [`PagedTable::reserve`] will put the body, if that is not in the row.
    pub fn fetch_room(&self, by: &PageAccess, key: &[u8], length: usize) -> Result<()> {
        self.primary.get_room(by)?;
        if self.is_in_line(key, length) {
            return Ok(());
        }
        let next = self.last_long.load(Ordering::Relaxed) + 1;
        self.long_bodies.find(by, &part_key(next, 0)).map(drop)
    }

    /// Puts a placeholder for a row with a reserved body of so many bytes into the primary tree, if its key is absent.
    pub fn enter_row(
        &self,
        by: &PageAccess,
        key: &[u8],
        (location, length): (RowLocation, usize),
        mut admit: impl FnMut() -> Admit,
    ) -> Result<InsertRow> {
        let room = if location == RowLocation::IN_LINE { length } else { LongBody::BYTES };
        let row = NewRow { bytes: &[], room, marks: EntryMarks::PLACEHOLDER };
        self.primary.insert(by, key, &row, &mut admit)
    }

    /// Reserves another body of so many bytes for a claimed row, whose body is at `record`. `None`: it stays there.
    pub fn reserve_again(
        &self,
        by: &PageAccess,
        key: &[u8],
        (record, claimed): (RowLocation, ClaimedRow),
        length: usize,
    ) -> Result<Option<RowLocation>> {
        let location = self.reserve(by, key, length)?;
        let is_in_line = location == RowLocation::IN_LINE;
        let room = if is_in_line { length } else { LongBody::BYTES };
        if room > claimed.room
            && let Err(error) = self.primary.enlarge(by, key, room)
        {
            self.release(location);
            return Err(error);
        }
        Ok(Some(location).filter(|_| !is_in_line || record != location))
    }

    /// Claims the row of a locked key, if there is one.
    pub fn claim_row(&self, by: &PageAccess, key: &[u8]) -> Result<ClaimedRow> {
        let (mut row, mut is_new, mut is_long, mut room) = (Vec::new(), false, false, 0);
        self.primary.change(by, key, &mut |entry| {
            let marks = entry.at().marks;
            (is_new, is_long) = (!marks.claimed, marks.overflow);
            room = entry.at().room_bytes();
            if is_new {
                entry.set_marks(EntryMarks { claimed: true, ..marks });
            }
            row.clear();
            if is_long {
                entry.read(&mut row);
            }
        })?;
        if is_new
            && is_long
            && let Err(error) = self.claim_parts(by, LongBody::of_row(&row))
        {
            self.unclaim_in_line(key);
            return Err(error);
        }
        Ok(ClaimedRow { is_new, room })
    }

    fn claim_parts(&self, by: &PageAccess, long: LongBody) -> Result<()> {
        for part in 0..self.parts_of(long) {
            if let Err(error) = self.mark_part(by, long, part, true) {
                self.unclaim_parts(long, part);
                return Err(error);
            }
        }
        Ok(())
    }

    fn mark_part(&self, by: &PageAccess, long: LongBody, part: usize, claimed: bool) -> Result<()> {
        let mark = &mut |entry: &mut dyn LatchedEntry| {
            let marks = entry.at().marks;
            entry.set_marks(EntryMarks { claimed, ..marks });
        };
        self.long_bodies.change(by, &part_key(long.number, part), mark).map(drop)
    }

    /// Claims the entry of a locked row in a secondary index. False: it was claimed already, or leads elsewhere.
    pub fn claim_entry(
        &self,
        by: &PageAccess,
        position: usize,
        entry: &[u8],
        primary: &[u8],
    ) -> Result<bool> {
        let mut is_new = false;
        self.change_own(by, position, entry, primary, &mut |entry| {
            let marks = entry.at().marks;
            is_new = !marks.claimed;
            if is_new {
                entry.set_marks(EntryMarks { claimed: true, ..marks });
            }
        })?;
        Ok(is_new)
    }

    /// Changes an entry if it leads to this row.
    fn change_own(
        &self,
        by: &PageAccess,
        position: usize,
        entry: &[u8],
        primary: &[u8],
        work: &mut dyn FnMut(&mut dyn LatchedEntry),
    ) -> Result<bool> {
        let mut is_own = false;
        let mut row = Vec::new();
        self.secondary(position).change(by, entry, &mut |entry| {
            is_own = present_key(&*entry, &mut row) == primary;
            if is_own {
                work(entry);
            }
        })?;
        Ok(is_own)
    }

    /// Puts a placeholder for an entry of a locked row into a secondary index, if the key is absent.
    pub fn enter(
        &self,
        by: &PageAccess,
        position: usize,
        entry: &[u8],
        primary: &[u8],
        mut admit: impl FnMut() -> Admit,
    ) -> Result<EnteredInPages> {
        let row = NewRow { bytes: primary, room: primary.len(), marks: EntryMarks::PLACEHOLDER };
        check_room(self.secondary(position), entry, primary.len())?;
        loop {
            match self.secondary(position).insert(by, entry, &row, &mut admit)? {
                InsertRow::Done => return Ok(EnteredInPages::Done),
                InsertRow::Refused => return Ok(EnteredInPages::Refused),
                InsertRow::Exists(_) => {}
            }
            let mut there = Vec::new();
            let (_, is_there) = self.follow_to_key(by, position, entry, &mut there)?;
            match is_there {
                true if there == primary => return Ok(EnteredInPages::Own),
                true => return Ok(EnteredInPages::Other),
                // It has gone meanwhile.
                false => {}
            }
        }
    }

    /// Points a claimed entry from another row of the same transaction, which gives its key up, to this row. Gives the
    /// primary key of the other row, and whether that had taken the entry over, too.
    pub fn take_over(
        &self,
        by: &PageAccess,
        position: usize,
        entry: &[u8],
        primary: &[u8],
    ) -> Result<(Vec<u8>, bool)> {
        let (mut before, tree) = (Vec::new(), self.secondary(position));
        self.follow_to_key(by, position, entry, &mut before)?;
        let mut earlier = Vec::new();
        let found = tree.get(by, entry, &mut earlier)?;
        let is_again = found.marks.is_some_and(|marks| marks.taken_over);
        if is_again {
            earlier = parts_of_taken_over(&earlier).0.to_vec();
        }
        let room = 2 + earlier.len() + primary.len();
        check_room(tree, entry, room)?;
        tree.enlarge(by, entry, room)?;
        tree.change(by, entry, &mut |entry| {
            let marks = entry.at().marks;
            let mut row = Vec::new();
            entry.read(&mut row);
            let earlier = if marks.taken_over { parts_of_taken_over(&row).0 } else { &row[..] };
            entry.set(&both(earlier, primary), EntryMarks { taken_over: true, claimed: true, ..marks });
        })?;
        Ok((before, is_again))
    }
}

/// An error if an entry of a secondary index cannot have a row of so many bytes.
pub(super) fn check_room(tree: &dyn RowTree, entry: &[u8], bytes: usize) -> Result<()> {
    if bytes <= tree.row_bytes_max(entry.len()) {
        return Ok(());
    }
    let what = format!(
        "an index entry with a key of {} bytes and primary keys of {bytes} bytes in pages of this size",
        entry.len()
    );
    Err(Error::Unsupported { what })
}

/// The row of an entry that is taken over.
fn both(earlier: &[u8], now: &[u8]) -> Vec<u8> {
    let length = (earlier.len() as u16).to_le_bytes();
    [&length, earlier, now].concat()
}

/// The primary key that an entry leads to.
fn present_key<'r>(entry: &dyn LatchedEntry, row: &'r mut Vec<u8>) -> &'r [u8] {
    row.clear();
    entry.read(row);
    let row: &'r [u8] = row;
    if entry.at().marks.taken_over { parts_of_taken_over(row).1 } else { row }
}

/// What an abort does. It reads nothing.
impl PagedTable {
    /// Ends the claim of a row.
    pub fn unclaim_row(&self, key: &[u8]) {
        if let Some(long) = self.unclaim_in_line(key) {
            self.unclaim_parts(long, self.parts_of(long));
        }
    }

    fn unclaim_in_line(&self, key: &[u8]) -> Option<LongBody> {
        let (mut row, mut is_long) = (Vec::new(), false);
        change_claimed(&*self.primary, &Fingers::none(), key, &mut |entry| {
            let marks = entry.at().marks;
            entry.set_marks(EntryMarks { claimed: false, ..marks });
            is_long = marks.overflow;
            row.clear();
            entry.read(&mut row);
        });
        is_long.then(|| LongBody::of_row(&row))
    }

    fn unclaim_parts(&self, long: LongBody, parts: usize) {
        (0..parts).for_each(|part| in_memory(self.mark_part(&PageAccess::plain(), long, part, false)));
    }

    /// Ends the claim of an entry.
    pub fn unclaim_entry(&self, position: usize, entry: &[u8]) {
        change_claimed(self.secondary(position), &Fingers::none(), entry, &mut |entry| {
            let marks = entry.at().marks;
            entry.set_marks(EntryMarks { claimed: false, ..marks });
        });
    }

    /// Removes a placeholder.
    pub fn take_back(&self, which: WhichIndex, key: &[u8]) {
        in_memory(self.tree(which).remove(&PageAccess::plain(), key, None));
    }

    /// Points an entry that was taken over back to the row of this key, which had taken it over itself, or not.
    pub fn give_back(&self, position: usize, entry: &[u8], (primary, had_taken): (&[u8], bool)) {
        change_claimed(self.secondary(position), &Fingers::none(), entry, &mut |entry| {
            let marks = entry.at().marks;
            let mut row = Vec::new();
            entry.read(&mut row);
            let earlier = parts_of_taken_over(&row).0;
            match had_taken {
                true => entry.set(&both(earlier, primary), marks),
                false => entry.set(primary, EntryMarks { taken_over: false, ..marks }),
            }
        });
    }

    /// Frees a body that no row has: a reserved one, or, at a commit, one that its row has left. (A body in the primary
    /// tree goes with its entry.)
    pub fn release(&self, location: RowLocation) {
        let Some((number, parts)) = location.of_long_body() else { return };
        for part in 0..parts {
            in_memory(self.long_bodies.remove(&PageAccess::plain(), &part_key(number, part), None));
        }
    }
}

/// What a commit does once it has its place. It changes what was claimed only, and reads nothing (I10).
impl PagedTable {
    /// Puts a body to its location, which has room for it, and ends the claim of its row.
    pub fn put(&self, fingers: &Fingers, key: &[u8], location: RowLocation, body: &[u8], lsn: Lsn) {
        let long;
        let (row, marks) = match location.of_long_body() {
            None => (body, EntryMarks::default()),
            Some((number, _)) => {
                for (part, bytes) in body.chunks(self.part_bytes()).enumerate() {
                    let key = part_key(number, part);
                    let is_there = change_claimed(&*self.long_bodies, fingers, &key, &mut |entry| {
                        entry.set(bytes, EntryMarks::default());
                    });
                    assert!(is_there, "part {part} of a long body is reserved");
                }
                long = LongBody { number, bytes: body.len() as u32 }.row();
                (&long[..], EntryMarks { overflow: true, ..EntryMarks::default() })
            }
        };
        let is_there = change_claimed(&*self.primary, fingers, key, &mut |entry| {
            entry.set(row, marks);
            entry.note_writer(lsn);
        });
        assert!(is_there, "the row of a write is claimed");
    }

    /// Changes byte ranges of a body in the primary tree, and ends the claim of its row.
    pub fn patch<'p>(
        &self,
        fingers: &Fingers,
        key: &[u8],
        mut patches: impl Iterator<Item = (usize, &'p [u8])>,
        lsn: Lsn,
    ) {
        let is_there = change_claimed(&*self.primary, fingers, key, &mut |entry| {
            patches.by_ref().for_each(|(offset, bytes)| entry.patch(offset, bytes));
            entry.set_marks(EntryMarks::default());
            entry.note_writer(lsn);
        });
        assert!(is_there, "the row of a write is claimed");
    }

    /// Removes a row. Its body, if it is a long one, is [released](PagedTable::release) by itself.
    pub fn remove_row(&self, key: &[u8], lsn: Lsn) {
        in_memory(self.primary.remove(&PageAccess::plain(), key, Some(lsn)));
    }

    /// Ends the claim of an entry that leads to this row: from now on it is the row's. An entry that another row has taken
    /// over stays as it is, and so does one that is settled already.
    pub fn settle(&self, position: usize, entry: &[u8], primary: &[u8], lsn: Lsn) {
        self.change_claimed(position, entry, primary, &mut |entry| {
            entry.set(primary, EntryMarks::default());
            entry.note_writer(lsn);
        });
    }

    /// Removes an entry that leads to this row. An entry that another row has taken over, or that is settled, stays.
    pub fn remove_entry(&self, position: usize, entry: &[u8], primary: &[u8], lsn: Lsn) {
        if self.change_claimed(position, entry, primary, &mut |_| {}) {
            in_memory(self.secondary(position).remove(&PageAccess::plain(), entry, Some(lsn)));
        }
    }

    /// Changes an entry if it leads to this row and is claimed. One that is not in memory is not claimed.
    fn change_claimed(
        &self,
        position: usize,
        entry: &[u8],
        primary: &[u8],
        work: &mut dyn FnMut(&mut dyn LatchedEntry),
    ) -> bool {
        let (mut is_own, mut row) = (false, Vec::new());
        self.secondary(position).change_in_memory(&Fingers::none(), entry, &mut |entry| {
            is_own = entry.at().marks.claimed && present_key(&*entry, &mut row) == primary;
            if is_own {
                work(entry);
            }
        });
        is_own
    }
}

/// What a bulk load does with a table that no other transaction sees.
impl PagedTable {
    /// Puts a row with these entries into the table, if no other row has one of them: the position of the first that one has.
    ///
    /// # Errors
    /// Those of the disk; [`Error::CacheFull`]; [`Error::Unsupported`] if an entry has no room in a page. Nothing has changed then.
    pub fn load(
        &self,
        by: &PageAccess,
        key: &[u8],
        body: &[u8],
        entries: &[Key],
    ) -> Result<std::result::Result<(), usize>> {
        let admit = || Admit::GoAndUnguard;
        let location = self.reserve(by, key, body.len())?;
        // As a write and its commit: until all has its place nothing has come that is more than a placeholder.
        let mut entered = Vec::new();
        let mut enter = || {
            match self.enter_row(by, key, (location, body.len()), admit)? {
                InsertRow::Done => entered.push((WhichIndex::Primary, key)),
                other => unreachable!("an absent key has {other:?}"),
            }
            for (position, entry) in entries.iter().enumerate() {
                match self.enter(by, position, entry, key, admit)? {
                    EnteredInPages::Done => entered.push((WhichIndex::Secondary(position), entry)),
                    EnteredInPages::Own | EnteredInPages::Other => return Ok(Err(position)),
                    EnteredInPages::Refused => unreachable!("no other transaction sees the table"),
                }
            }
            Ok(Ok(()))
        };
        let done = enter();
        if !matches!(done, Ok(Ok(()))) {
            entered.iter().for_each(|(which, key)| self.take_back(*which, key));
            self.release(location);
            return done;
        }
        self.put(by.fingers(), key, location, body, Lsn::ZERO);
        for (position, entry) in entries.iter().enumerate() {
            self.settle(position, entry, key, Lsn::ZERO);
        }
        self.count_rows(1);
        done
    }

    /// Gives the bodies of all rows, in the order of their keys. No other thread changes the rows.
    pub fn for_each_row(&self, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let (by, mut body) = (PageAccess::plain(), Vec::new());
        let (which, range, mut batch) = (WhichIndex::Primary, ScanRange::ALL, Batch::new());
        loop {
            let more = self.read_leaf(&by, which, &range, Direction::Forward, Guard::Leave, &mut batch)?;
            for (key, _) in batch.iter() {
                if self.read(&by, key, &mut body)? {
                    take(&body)?;
                }
            }
            if more == More::No {
                return Ok(());
            }
        }
    }
}

/// The first and the last key of a leaf.
pub(crate) type LeafEnds = (Vec<u8>, Vec<u8>);

/// How many leaves of an index are looked at, to find out what is locked together.
const LEAVES_SEEN: usize = 64;

impl PagedTable {
    /// The first and the last key of some leaves of an index.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn ends_of_leaves(&self, which: WhichIndex) -> Result<Vec<LeafEnds>> {
        let (access, mut ends) = (PageAccess::plain(), Vec::new());
        let (mut batch, mut more) = (Batch::new(), More::Yes);
        while more == More::Yes && ends.len() < LEAVES_SEEN {
            more = self.read_leaf(
                &access,
                which,
                &ScanRange::ALL,
                Direction::Forward,
                Guard::Leave,
                &mut batch,
            )?;
            if let Some(last) = batch.len().checked_sub(1) {
                ends.push((batch.key(0).to_vec(), batch.key(last).to_vec()));
            }
        }
        Ok(ends)
    }
}

#[cfg(test)]
impl PagedTable {
    /// What is wrong while no transaction is in progress: entries that are claimed or placeholders, and entries of secondary
    /// indexes that no row has.
    pub fn unsettled(&self) -> Vec<String> {
        let (mut wrong, mut counts) = (Vec::new(), Vec::new());
        let secondaries = self.secondaries.iter().map(PagedIndex::tree);
        let trees = [&*self.primary, &*self.long_bodies].into_iter().chain(secondaries);
        for (number, tree) in trees.enumerate() {
            let (mut batch, mut more, mut count) = (Batch::new(), More::Yes, 0);
            while more == More::Yes {
                let (range, direction) = (ScanRange::ALL, Direction::Forward);
                more = tree
                    .read_leaf(&PageAccess::plain(), &range, direction, Guard::Leave, &mut batch)
                    .unwrap();
                for (key, _) in batch.iter() {
                    count += 1;
                    let marks = tree.find(&PageAccess::plain(), key).unwrap().marks.unwrap_or_default();
                    if (EntryMarks { overflow: false, ..marks }) != EntryMarks::default() {
                        wrong.push(format!("tree {number}, key {key:?}: {marks:?}"));
                    }
                }
            }
            counts.push(count);
        }
        if counts[2..].iter().any(|&count| count != counts[0]) || counts[0] != self.rows() {
            wrong.push(format!("{counts:?} entries for {} rows", self.rows()));
        }
        wrong
    }
}
