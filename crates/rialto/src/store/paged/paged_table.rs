//! [`PagedTable`]: the rows and the index entries of a table, in trees of pages.
//!
//! | tree | key | row |
//! |---|---|---|
//! | primary | a primary key | the row's body; or where a long body is ([`LongBody`]) |
//! | one for each secondary index | a key of the index | the primary key of the row that has it |
//! | long bodies | a number of a body, a number of a part | the part |
//!
//! [`claims`] is what operations do before the commit, [`ending`] what an abort and a commit do, [`load`] what a bulk load does.
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

mod claims;
mod ending;
mod load;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

pub(super) use self::claims::check_room;
pub(crate) use self::claims::{ClaimedRow, EnteredInPages};
use super::key_ahead::KeyAhead;
use super::long_body::{LongBody, PART_KEY_BYTES, part_key};
use super::page_access::PageAccess;
use super::page_store::PageStore;
use super::paged_index::{GoneTrees, IndexTree, PagedIndex, TableTrees};
use super::paged_tree::RowTree;
use super::published::PublishedTable;
use crate::error::Result;
use crate::ids::{HeapId, IndexId, Lsn};
use crate::row::WhichIndex;
use crate::store::tree::{Batch, Direction, Guard, Leaf, More, ScanRange, parts_of_taken_over};
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

    /// Whether both have the same trees.
    pub(super) fn is_same(&self, other: &PagedTable) -> bool {
        Arc::ptr_eq(&self.trees, &other.trees)
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

    /// As [`PagedTable::read`]; gives what a reader of the row depends on.
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
                    if (crate::store::tree::EntryMarks { overflow: false, ..marks }) != Default::default() {
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
