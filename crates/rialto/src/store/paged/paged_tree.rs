//! [`PagedTree`]: a tree of pages.

use std::sync::Arc;

use super::pool::{MissingPage, NoFrame, PagePool, Pages};
use crate::error::Result;
use crate::ids::Lsn;
use crate::store::tree::{
    Admit, Batch, Direction, FoundRow, Guard, InsertRow, LatchedNode, More, NewRow, ScanRange, Stopped, Tree,
};

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
    pub fn new(pool: Arc<PagePool<W>>) -> Result<PagedTree<W>> {
        Ok(PagedTree::of_root(pool.make_root(true)?, pool))
    }

    /// Frees all of its pages. It is not used any more.
    pub fn discard(&self) {
        self.tree.discard();
    }

    /// Repeats an operation until no page is missing, and there are frames.
    fn run<T>(
        &self,
        mut work: impl FnMut(&Tree<Pages<W>, W>) -> std::result::Result<T, Stopped<MissingPage, NoFrame>>,
    ) -> Result<T> {
        loop {
            match work(&self.tree) {
                Ok(done) => return Ok(done),
                Err(Stopped::Missing(missing)) => self.pool.fetch(&missing)?,
                Err(Stopped::Full(NoFrame::NoneFree)) => self.pool.make_room()?,
                Err(Stopped::Full(full)) => return Err(self.pool.error_of(&full)),
            }
        }
    }

    /// Looks a key up, and reads its row into `row`, if it is there.
    pub fn get(&self, key: &[u8], row: &mut Vec<u8>) -> Result<FoundRow> {
        self.run(|tree| {
            row.clear();
            tree.try_get_row(key, row).map_err(Stopped::Missing)
        })
    }

    /// Inserts a row if its key is absent.
    pub fn insert(
        &self,
        key: &[u8],
        row: &NewRow<'_>,
        mut admit: impl FnMut() -> Admit,
    ) -> Result<InsertRow> {
        self.run(|tree| tree.try_insert_row(key, row, &mut admit))
    }

    /// Changes the entry of a key. `None`: it is absent.
    pub fn change<T>(
        &self,
        key: &[u8],
        mut work: impl FnMut(&mut LatchedNode<'_, W>, usize) -> T,
    ) -> Result<Option<T>> {
        self.run(|tree| tree.try_change(key, &mut work))
    }

    /// Gives the row of a key room for so many bytes. False: the key is absent.
    pub fn enlarge(&self, key: &[u8], room: usize) -> Result<bool> {
        self.run(|tree| tree.try_enlarge_row(key, room))
    }

    /// Removes a key. False: it is absent.
    pub fn remove(&self, key: &[u8], lsn: Option<Lsn>) -> Result<bool> {
        Ok(self.run(|tree| tree.try_remove(key, lsn))?.is_some())
    }

    /// Reads the next leaf of a range.
    pub fn read_leaf(
        &self,
        range: &ScanRange<'_>,
        direction: Direction,
        guard: Guard,
        batch: &mut Batch,
    ) -> Result<More> {
        self.run(|tree| tree.try_read_leaf(range, direction, guard, batch).map_err(Stopped::Missing))
    }
}
