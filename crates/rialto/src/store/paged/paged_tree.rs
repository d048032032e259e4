//! [`PagedTree`]: a tree of pages; [`RowTree`]: the same, whatever the size of the pages.

use std::sync::Arc;

use super::fingers::Fingers;
use super::page_access::PageAccess;
use super::pool::{FRAMES_AT_ONCE, MissingPage, NoFrame, PagePool, Pages};
use crate::error::Result;
use crate::ids::Lsn;
use crate::store::tree::{
    Admit, Batch, Direction, EntryMarks, Finger, FoundRow, Guard, InsertRow, LatchedNode, Leaf, More, NewRow,
    RowAt, ScanRange, Stopped, Tree, row_words_max,
};

/// A tree of pages of any size, with a row for each key. An operation reads the pages that are missing, so each can fail
/// with the disk's errors, and with [`Error::CacheFull`](crate::Error::CacheFull) if all pages in memory are in use.
pub(crate) trait RowTree: Send + Sync {
    /// Looks a key up, without its row.
    fn find(&self, by: &PageAccess, key: &[u8]) -> Result<FoundRow>;

    /// Looks a key up, and puts its row into `row`, if it is there.
    fn get(&self, by: &PageAccess, key: &[u8], row: &mut Vec<u8>) -> Result<FoundRow>;

    /// What is missing on the way to a key; `None`: nothing. Then its leaf is kept in memory, if the access keeps what it reads.
    fn missing(&self, by: &PageAccess, key: &[u8]) -> Result<Option<MissingPage>>;

    /// Reads missing pages side by side, at least one, of this and of other trees of the database. How many: some may still be missing.
    fn fetch_each(&self, by: &PageAccess, missing: &[MissingPage]) -> Result<usize>;

    /// Returns when there are places for the pages that a next insertion may make.
    fn get_room(&self, by: &PageAccess) -> Result<()>;

    /// Whether no entry of a leaf has changed since the leaf was read.
    fn unchanged(&self, leaf: &Leaf) -> bool;

    /// Reads the next leaf of a range.
    fn read_leaf(
        &self,
        by: &PageAccess,
        range: &ScanRange<'_>,
        direction: Direction,
        guard: Guard,
        batch: &mut Batch,
    ) -> Result<More>;

    /// Inserts a row if its key is absent.
    fn insert(
        &self,
        by: &PageAccess,
        key: &[u8],
        row: &NewRow<'_>,
        admit: &mut dyn FnMut() -> Admit,
    ) -> Result<InsertRow>;

    /// Changes the entry of a key. False: it is absent.
    fn change(
        &self,
        by: &PageAccess,
        key: &[u8],
        work: &mut dyn FnMut(&mut dyn LatchedEntry),
    ) -> Result<bool>;

    /// The same if the entry's page is in memory. `None`: it is not.
    fn change_in_memory(
        &self,
        fingers: &Fingers,
        key: &[u8],
        work: &mut dyn FnMut(&mut dyn LatchedEntry),
    ) -> Option<bool>;

    /// Gives the row of a key room for so many bytes. False: the key is absent.
    fn enlarge(&self, by: &PageAccess, key: &[u8], room: usize) -> Result<bool>;

    /// Removes a key, at this place, or without a place by an abort. False: it is absent.
    fn remove(&self, by: &PageAccess, key: &[u8], lsn: Option<Lsn>) -> Result<bool>;

    /// The longest row of a key of so many bytes, in bytes.
    fn row_bytes_max(&self, key_bytes: usize) -> usize;

    /// Frees all of its pages. It is not used any more. Gives the roots of what is to be freed later, since these could not
    /// be read.
    #[must_use = "what could not be read is to be freed later"]
    fn discard(&self) -> Vec<u32>;
}

/// An entry whose leaf is latched.
pub(crate) trait LatchedEntry {
    /// Where its row lies.
    fn at(&self) -> RowAt;

    /// Appends its row to `out`.
    fn read(&self, out: &mut Vec<u8>);

    /// Writes its row anew. It has room for it.
    fn set(&mut self, row: &[u8], marks: EntryMarks);

    /// Writes these bytes over those from `offset` on in its row.
    fn patch(&mut self, offset: usize, bytes: &[u8]);

    /// Gives it other marks.
    fn set_marks(&mut self, marks: EntryMarks);

    /// Notes a writer at this place: all readers of the leaf depend on it from now on (I3).
    fn note_writer(&mut self, lsn: Lsn);
}

/// The entry at a position of a leaf.
struct EntryOfLeaf<'a, 'n, const W: usize> {
    leaf: &'a mut LatchedNode<'n, W>,
    position: usize,
}

impl<const W: usize> LatchedEntry for EntryOfLeaf<'_, '_, W> {
    fn at(&self) -> RowAt {
        self.leaf.row_at(self.position)
    }

    fn read(&self, out: &mut Vec<u8>) {
        self.leaf.read_row(self.at(), out);
    }

    fn set(&mut self, row: &[u8], marks: EntryMarks) {
        self.leaf.set_row(self.position, row, marks);
    }

    fn patch(&mut self, offset: usize, bytes: &[u8]) {
        self.leaf.patch_row(self.position, offset, bytes);
    }

    fn set_marks(&mut self, marks: EntryMarks) {
        self.leaf.set_marks(self.position, marks);
    }

    fn note_writer(&mut self, lsn: Lsn) {
        self.leaf.raise_removal(lsn.0);
    }
}

/// A tree of pages with bodies of `W` words, whose leaves have rows. Its operations fetch the pages that are missing, on
/// the thread that calls, and hold no latch meanwhile.
pub(crate) struct PagedTree<const W: usize> {
    tree: Tree<Pages<W>, W>,
    pool: Arc<PagePool<W>>,
}

impl<const W: usize> PagedTree<W> {
    /// The tree of this root.
    pub fn of_root(root: u32, pool: Arc<PagePool<W>>) -> PagedTree<W> {
        PagedTree { tree: Tree::of_root(root, Pages(pool.clone())), pool }
    }

    /// An empty tree.
    #[cfg(test)]
    pub fn new(pool: Arc<PagePool<W>>) -> Result<PagedTree<W>> {
        Ok(PagedTree::of_root(pool.make_root(true)?, pool))
    }

    /// Keeps the page of a leaf in memory, if the access keeps what it reads.
    #[inline]
    fn keep(&self, by: &PageAccess, leaf: &Leaf) -> Result<()> {
        if by.keeps() { by.keep(&self.pool, leaf) } else { Ok(()) }
    }

    #[inline]
    fn finger(&self, by: &PageAccess, key: &[u8]) -> Option<Finger> {
        by.fingers().find(self.tree.root(), key)
    }

    #[inline]
    fn put_finger(&self, by: &PageAccess, key: &[u8], finger: Finger) {
        by.fingers().put(self.tree.root(), key, finger);
    }

    /// Repeats an operation until no page is missing, and there are frames.
    fn run<T>(
        &self,
        by: &PageAccess,
        mut work: impl FnMut(&Tree<Pages<W>, W>) -> std::result::Result<T, Stopped<MissingPage, NoFrame>>,
    ) -> Result<T> {
        by.count();
        let mut has_missed = false;
        loop {
            match work(&self.tree) {
                Ok(done) => return Ok(done),
                Err(Stopped::Missing(missing)) => {
                    by.miss(has_missed)?;
                    has_missed = true;
                    by.wait(|| self.pool.fetch(&missing))?;
                }
                Err(Stopped::Full(NoFrame::NoneFree)) => {
                    by.get_room(by.wait(|| self.pool.get_room(FRAMES_AT_ONCE))?);
                }
                Err(Stopped::Full(full)) => return Err(self.pool.error_of(&full)),
            }
        }
    }
}

impl<const W: usize> RowTree for PagedTree<W> {
    fn get_room(&self, by: &PageAccess) -> Result<()> {
        by.get_room(by.wait(|| self.pool.get_room(self.pool.frames_ahead()))?);
        Ok(())
    }

    fn missing(&self, by: &PageAccess, key: &[u8]) -> Result<Option<MissingPage>> {
        match self.tree.try_find_row(key, None) {
            Ok(found) => self.keep(by, &found.leaf).map(|()| None),
            Err(missing) => Ok(Some(missing)),
        }
    }

    fn fetch_each(&self, by: &PageAccess, missing: &[MissingPage]) -> Result<usize> {
        by.wait(|| match (self.pool.fetch_each(missing)?, missing) {
            // Others read them, or there is no free frame.
            (0, [first, ..]) => self.pool.fetch(first).map(|()| 1),
            (read, _) => Ok(read),
        })
    }

    fn find(&self, by: &PageAccess, key: &[u8]) -> Result<FoundRow> {
        let finger = self.finger(by, key);
        let found = self.run(by, |tree| tree.try_find_row(key, finger).map_err(Stopped::Missing))?;
        self.put_finger(by, key, found.finger());
        self.keep(by, &found.leaf)?;
        Ok(found)
    }

    fn get(&self, by: &PageAccess, key: &[u8], row: &mut Vec<u8>) -> Result<FoundRow> {
        let finger = self.finger(by, key);
        let found = self.run(by, |tree| {
            row.clear();
            tree.try_get_row(key, finger, row).map_err(Stopped::Missing)
        })?;
        self.put_finger(by, key, found.finger());
        self.keep(by, &found.leaf)?;
        Ok(found)
    }

    fn unchanged(&self, leaf: &Leaf) -> bool {
        self.tree.unchanged(leaf)
    }

    fn read_leaf(
        &self,
        by: &PageAccess,
        range: &ScanRange<'_>,
        direction: Direction,
        guard: Guard,
        batch: &mut Batch,
    ) -> Result<More> {
        let more = self
            .run(by, |tree| tree.try_read_leaf(range, direction, guard, batch).map_err(Stopped::Missing))?;
        self.keep(by, &batch.leaf())?;
        Ok(more)
    }

    fn insert(
        &self,
        by: &PageAccess,
        key: &[u8],
        row: &NewRow<'_>,
        admit: &mut dyn FnMut() -> Admit,
    ) -> Result<InsertRow> {
        let (inserted, finger) = self.run(by, |tree| tree.try_insert_row(key, row, &mut *admit))?;
        self.put_finger(by, key, finger);
        Ok(inserted)
    }

    fn change(
        &self,
        by: &PageAccess,
        key: &[u8],
        work: &mut dyn FnMut(&mut dyn LatchedEntry),
    ) -> Result<bool> {
        let finger = self.finger(by, key);
        let changed = self.run(by, |tree| {
            tree.try_change(key, finger, |leaf, position| work(&mut EntryOfLeaf { leaf, position }))
        })?;
        if let Some(((), finger)) = changed {
            self.put_finger(by, key, finger);
        }
        Ok(changed.is_some())
    }

    fn change_in_memory(
        &self,
        fingers: &Fingers,
        key: &[u8],
        work: &mut dyn FnMut(&mut dyn LatchedEntry),
    ) -> Option<bool> {
        let finger = fingers.find(self.tree.root(), key);
        let work = |leaf: &mut LatchedNode<'_, W>, position| work(&mut EntryOfLeaf { leaf, position });
        // A change of an entry takes no frame.
        let changed = self.tree.try_change(key, finger, work).ok()?;
        if let Some(((), finger)) = changed {
            fingers.put(self.tree.root(), key, finger);
        }
        Some(changed.is_some())
    }

    fn enlarge(&self, by: &PageAccess, key: &[u8], room: usize) -> Result<bool> {
        let finger = self.finger(by, key);
        let enlarged = self.run(by, |tree| tree.try_enlarge_row(key, finger, room))?;
        if let Some(finger) = enlarged {
            self.put_finger(by, key, finger);
        }
        Ok(enlarged.is_some())
    }

    fn remove(&self, by: &PageAccess, key: &[u8], lsn: Option<Lsn>) -> Result<bool> {
        Ok(self.run(by, |tree| tree.try_remove(key, lsn))?.is_some())
    }

    fn row_bytes_max(&self, key_bytes: usize) -> usize {
        8 * row_words_max(W, key_bytes)
    }

    fn discard(&self) -> Vec<u32> {
        self.tree.give_back()
    }
}
