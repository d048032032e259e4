//! [`PagedIndex`]: a secondary index of a disk-resident table.

use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::page_access::PageAccess;
use super::page_store::PageStore;
use super::paged_table::PagedTable;
use super::paged_tree::RowTree;
use crate::error::Result;
use crate::ids::{HeapId, IndexId};
use crate::store::tree::{Admit, EntryMarks, InsertRow, NewRow};

/// The trees of a table, including those of indexes that are being built, and of dropped indexes that are not freed yet. All versions
/// of the table share this.
pub(super) struct TableTrees {
    pub heap: HeapId,
    pub primary: u32,
    pub long_bodies: u32,
    pub secondaries: Mutex<Vec<IndexTree>>,
    /// The queue of dropped trees that are to be freed.
    pub gone: Weak<Mutex<Vec<GoneTrees>>>,
}

/// The tree of a secondary index.
#[derive(Clone)]
pub(super) struct IndexTree {
    pub id: IndexId,
    pub root: u32,
    pub tree: Arc<dyn RowTree>,
}

/// Trees that nothing uses any more.
pub(crate) enum GoneTrees {
    /// All of a table.
    Table(PagedTable),
    Index(PagedIndex),
}

impl TableTrees {
    pub fn let_go(&self, gone: GoneTrees) {
        if let Some(all) = self.gone.upgrade() {
            all.lock().push(gone);
        }
    }

    /// Queues the subtrees under these roots, which could not be read, to be freed later.
    pub fn free_later(self: &Arc<TableTrees>, store: &dyn PageStore, roots: &[u32]) {
        for &root in roots {
            let index = IndexTree { id: NO_INDEX, root, tree: store.tree(root) };
            self.secondaries.lock().push(index.clone());
            self.let_go(GoneTrees::Index(PagedIndex::of(self, index)));
        }
    }
}

/// The identifier that such subtrees get; no index has it.
const NO_INDEX: IndexId = IndexId(0);

/// See the [module's documentation](self). A copy refers to the same index.
#[derive(Clone)]
pub(crate) struct PagedIndex {
    index: IndexTree,
    trees: Arc<TableTrees>,
}

impl PagedIndex {
    /// An index of these trees.
    pub(super) fn of(trees: &Arc<TableTrees>, index: IndexTree) -> PagedIndex {
        PagedIndex { index, trees: trees.clone() }
    }

    pub fn id(&self) -> IndexId {
        self.index.id
    }

    pub(super) fn root(&self) -> u32 {
        self.index.root
    }

    pub(super) fn tree(&self) -> &dyn RowTree {
        &*self.index.tree
    }

    /// Puts an entry of a row into an index that no other transaction sees. False: another row has the key.
    ///
    /// # Errors
    /// Those of the disk; [`Error::Unsupported`](crate::Error::Unsupported) if the entry has no room in a page;
    /// [`Error::CacheFull`](crate::Error::CacheFull).
    pub fn place(&self, by: &PageAccess, entry: &[u8], primary: &[u8]) -> Result<bool> {
        super::paged_table::check_room(&*self.index.tree, entry, primary.len())?;
        let row = NewRow { bytes: primary, room: primary.len(), marks: EntryMarks::default() };
        match self.index.tree.insert(by, entry, &row, &mut || Admit::GoAndUnguard)? {
            InsertRow::Done => Ok(true),
            InsertRow::Exists(_) => Ok(false),
            InsertRow::Refused => unreachable!("no other transaction sees the index"),
        }
    }

    /// Drops the index, which nothing uses any more. Its pages are freed later.
    pub fn discard(&self) {
        self.trees.let_go(GoneTrees::Index(self.clone()));
    }

    /// Frees the index's pages, which reads them, unless they are free already. What cannot be read is freed later.
    pub(super) fn free(&self, store: &dyn PageStore) {
        let is_there = {
            let mut secondaries = self.trees.secondaries.lock();
            let position = secondaries.iter().position(|index| index.root == self.index.root);
            position.map(|position| secondaries.swap_remove(position)).is_some()
        };
        if is_there {
            self.trees.free_later(store, &self.index.tree.discard());
        }
    }
}

impl fmt::Debug for PagedIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PagedIndex({}, root {})", self.index.id.0, self.index.root)
    }
}
