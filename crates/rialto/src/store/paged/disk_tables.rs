//! [`DiskTables`]: the disk-resident tables of a database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};

use super::page_backup::{PageBackup, PagesHeld};
use super::page_file::PAGE_FILE;
use super::page_store::{self, PageRoom, PageStats, PageStore, PagesInForce};
use super::paged_index::{GoneTrees, PagedIndex};
use super::paged_table::PagedTable;
use super::published::{PublishedAt, PublishedTable};
use crate::error::{Error, Result};
use crate::ids::{HeapId, IndexId};
use crate::io::{Clock, Disk};

/// How the pages of a database are kept.
#[derive(Debug, Clone)]
pub(crate) struct PageOptions {
    /// The bytes of a page, where there is none yet.
    pub page_bytes: usize,
    /// The bytes that pages in memory take.
    pub cache_bytes: u64,
    /// Whether nothing is written: no table is made, and none is changed.
    pub is_read_only: bool,
    /// The clock by which threads wait for pages.
    pub clock: Clock,
    /// Whether a thread writes pages before their frames are needed.
    pub writes_behind: bool,
}

impl Default for PageOptions {
    fn default() -> PageOptions {
        PageOptions {
            page_bytes: PAGE_BYTES_BY_DEFAULT,
            cache_bytes: CACHE_BYTES_BY_DEFAULT,
            is_read_only: false,
            clock: Clock::System,
            writes_behind: false,
        }
    }
}

/// The bytes of a page, where nothing else is chosen.
pub(crate) const PAGE_BYTES_BY_DEFAULT: usize = 4 << 10;

/// The bytes that pages in memory take, where nothing else is chosen.
pub(crate) const CACHE_BYTES_BY_DEFAULT: u64 = 256 << 20;

/// What a home block says of the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PagesAt {
    pub page_bytes: u32,
    pub at: PublishedAt,
}

/// The disk-resident tables of a database, and their pages. There is no page file before there is such a table.
///
/// Invariant: each page belongs to a table in `tables`, in memory and as a checkpoint publishes it. A table that is gone is there
/// until its pages are free. If some of them cannot be read, the *rest* of the table takes its place: a table whose trees have these
/// pages as their roots. The next checkpoint tries again, also after another opening, which finds that nothing uses the rest
/// ([`DiskTables::keep_only`]).
pub(crate) struct DiskTables {
    disk: Arc<dyn Disk>,
    /// Of the checksums of images.
    seed: u64,
    options: PageOptions,
    state: Mutex<DiskTablesState>,
    /// Whether there are any, or were since the database was opened.
    are_there: AtomicBool,
    /// Tables and indexes that nothing uses any more. Their pages are freed between commits, since that reads them.
    gone: Arc<Mutex<Vec<GoneTrees>>>,
}

#[derive(Default)]
struct DiskTablesState {
    store: Option<Arc<dyn PageStore>>,
    /// Ends with it.
    writer: Option<PageWriter>,
    /// All that have pages: also those of transactions in progress, and those that are gone and not freed yet.
    tables: HashMap<HeapId, PagedTable>,
    /// Whether the page file was made while its name is not known to be durable.
    is_unnamed: bool,
    /// Whether the database is closed: no table is made any more.
    is_closed: bool,
}

impl DiskTables {
    /// Of a database without pages.
    pub fn new(disk: Arc<dyn Disk>, seed: u64, options: PageOptions) -> DiskTables {
        DiskTables {
            disk,
            seed,
            options,
            state: Mutex::default(),
            are_there: AtomicBool::new(false),
            gone: Arc::default(),
        }
    }

    /// Of a database whose pages are as a checkpoint has left them, if that was when there were pages. What another checkpoint
    /// has written stays as it is, while its home block is in force too.
    ///
    /// # Errors
    /// Those of the disk; [`Error::Corrupt`].
    pub fn open(
        disk: Arc<dyn Disk>,
        seed: u64,
        options: PageOptions,
        (current, other): (Option<PagesAt>, Option<PagesAt>),
    ) -> Result<DiskTables> {
        let tables = DiskTables::new(disk, seed, options);
        let Some(PagesAt { page_bytes, .. }) = current.or(other) else { return Ok(tables) };
        let in_force = PagesInForce { current: current.map(|at| at.at), other: other.map(|at| at.at) };
        let (store, published) = page_store::open(tables.room(page_bytes as usize), in_force)?;
        let mut state = tables.state();
        for table in &published {
            state
                .tables
                .insert(table.heap, PagedTable::of_published(&*store, table, Arc::downgrade(&tables.gone)));
        }
        state.writer = tables.start_writer(&store);
        state.store = Some(store);
        drop(state);
        tables.are_there.store(true, Ordering::Relaxed);
        Ok(tables)
    }

    /// Held while a store or a table is made, which waits for the disk by the clock.
    fn state(&self) -> MutexGuard<'_, DiskTablesState> {
        self.options.clock.lock(&self.state)
    }

    fn room(&self, page_bytes: usize) -> PageRoom<'_> {
        let PageOptions { cache_bytes, is_read_only, clock, .. } = &self.options;
        let (cache_bytes, is_read_only) = (*cache_bytes, *is_read_only);
        PageRoom { disk: &*self.disk, page_bytes, seed: self.seed, cache_bytes, is_read_only, clock }
    }

    /// The thread that writes behind. Without it, where none can be started, operations make room themselves.
    fn start_writer(&self, store: &Arc<dyn PageStore>) -> Option<PageWriter> {
        if !self.options.writes_behind {
            return None;
        }
        let runs = store.clone();
        let thread =
            thread::Builder::new().name("rialto-pages".to_owned()).spawn(move || runs.write_behind());
        thread.ok().map(|thread| PageWriter { store: store.clone(), thread: Some(thread) })
    }

    /// Does once what the thread that writes behind does, in a database without threads of its own.
    pub fn write_behind_once(&self) {
        if self.options.writes_behind || !self.are_there() {
            return;
        }
        let store = self.state().store.clone();
        if let Some(store) = store {
            store.write_behind_once();
        }
    }

    /// Ends the thread that writes behind. From now on no page is read or written.
    pub fn close(&self) {
        let (writer, store) = {
            let mut state = self.state();
            state.is_closed = true;
            (state.writer.take(), state.store.clone())
        };
        drop(writer);
        if let Some(store) = store {
            store.close();
        }
    }

    /// The table with this storage.
    pub fn find(&self, heap: HeapId) -> Option<PagedTable> {
        self.state().tables.get(&heap).cloned()
    }

    /// Whether there are any, or were since the database was opened.
    #[inline(always)]
    pub fn are_there(&self) -> bool {
        self.are_there.load(Ordering::Relaxed)
    }

    /// A test has made some in a pool of its own.
    #[cfg(test)]
    pub fn note_there(&self) {
        self.are_there.store(true, Ordering::Relaxed);
    }

    /// Whether nothing is written.
    pub fn is_read_only(&self) -> bool {
        self.options.is_read_only
    }

    /// Makes an empty table with this storage, and these indexes. (What is there of a table with this storage belonged to
    /// a transaction that had not committed at a checkpoint's cut, or that was aborted; redo repeats it.)
    ///
    /// # Errors
    /// Those of the disk; [`Error::Closed`] if the database is closed.
    pub fn make(&self, heap: HeapId, indexes: &[IndexId]) -> Result<PagedTable> {
        let mut state = self.state();
        if state.is_closed {
            return Err(Error::Closed);
        }
        self.gone.lock().retain(|gone| !matches!(gone, GoneTrees::Table(table) if table.heap() == heap));
        let unread = state.tables.remove(&heap).map_or_else(Vec::new, |before| before.free());
        let store = match &state.store {
            Some(store) => store.clone(),
            None => {
                if state.is_unnamed {
                    // A sync of the directory has failed, and no later one makes up for it.
                    self.disk.remove(PAGE_FILE)?;
                }
                state.is_unnamed = true;
                let store = page_store::create(self.room(self.options.page_bytes))?;
                self.disk.sync_directory()?;
                state.is_unnamed = false;
                state.writer = self.start_writer(&store);
                state.store.insert(store).clone()
            }
        };
        let table = PagedTable::make(&*store, heap, indexes, Arc::downgrade(&self.gone))?;
        table.free_later(&*store, &unread);
        state.tables.insert(heap, table.clone());
        self.are_there.store(true, Ordering::Relaxed);
        Ok(table)
    }

    /// Makes an empty index of this identifier over the rows of a table.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn make_index(&self, table: &PagedTable, id: IndexId) -> Result<PagedIndex> {
        // No checkpoint is cut meanwhile.
        let state = self.state();
        let store = state.store.as_ref().expect("there is a table");
        table.make_index(&**store, id)
    }

    /// Lets go of all tables but those with this storage: an opening has found that no table has theirs.
    pub fn keep_only(&self, is_kept: impl Fn(HeapId) -> bool) {
        let state = self.state();
        state.tables.values().filter(|table| !is_kept(table.heap())).for_each(PagedTable::discard);
    }

    /// Whether there are any.
    pub fn has_tables(&self) -> bool {
        let heap = |gone: &GoneTrees| match gone {
            GoneTrees::Table(table) => Some(table.heap()),
            GoneTrees::Index(_) => None,
        };
        let gone: Vec<HeapId> = self.gone.lock().iter().filter_map(heap).collect();
        self.state().tables.keys().any(|heap| !gone.contains(heap))
    }

    /// Frees the pages of tables and indexes that are gone. What cannot be read is tried again by the next call. No cut is made
    /// meanwhile.
    pub fn free_gone(&self) {
        let gone = std::mem::take(&mut *self.gone.lock());
        let Some(store) = self.state().store.clone() else { return };
        for gone in gone {
            match gone {
                GoneTrees::Index(index) => index.free(&*store),
                GoneTrees::Table(table) => {
                    let known = {
                        let mut state = self.state();
                        // Another table may have been made with its storage meanwhile.
                        let is_known =
                            state.tables.get(&table.heap()).is_some_and(|known| known.is_same(&table));
                        is_known.then(|| state.tables.remove(&table.heap())).flatten()
                    };
                    let unread = known.map_or_else(Vec::new, |table| table.free());
                    if !unread.is_empty() {
                        let rest = PublishedTable::of_rest(table.heap(), &unread);
                        let rest = PagedTable::of_published(&*store, &rest, Arc::downgrade(&self.gone));
                        rest.discard();
                        self.state().tables.insert(rest.heap(), rest);
                    }
                }
            }
        }
    }

    /// What has happened to the pages; `None` if there are none.
    pub fn stats(&self) -> Option<PageStats> {
        self.state().store.as_ref().map(|store| store.stats())
    }

    /// Whether a checkpoint should begin, to free places of the page file.
    pub fn wants_checkpoint(&self) -> bool {
        self.state().store.as_ref().is_some_and(|store| store.wants_checkpoint())
    }

    /// Begins the checkpoint of the pages, if there are any. The home block that named what the checkpoint before the last
    /// has written is retired, or `older_is_kept`.
    pub fn begin_checkpoint(&self, older_is_kept: bool) -> Option<PageCheckpoint<'_>> {
        let store = self.state().store.clone()?;
        if !older_is_kept {
            store.begin_checkpoint();
        }
        Some(PageCheckpoint { tables: self, store, cut: None, end: CheckpointEnd::GivenUp })
    }
}

impl DiskTables {
    /// Begins the backup of the pages, if there are any.
    pub fn begin_backup(&self, held: PagesHeld) -> Option<PageBackup<'_>> {
        let store = self.state().store.clone()?;
        Some(PageBackup::new(self, store, held))
    }

    /// Writes all pages that there are, durably, and what a home block needs to name them. Nothing uses the tables any more.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn write_once(&self) -> Result<Option<PagesAt>> {
        self.free_gone();
        let Some(mut pages) = self.begin_checkpoint(false) else { return Ok(None) };
        pages.cut(|cut| cut());
        let written = pages.write()?;
        pages.complete();
        Ok(Some(written))
    }

    /// Runs `with` on all tables while none is made or freed.
    pub(super) fn with_tables<T>(&self, with: impl FnOnce(&HashMap<HeapId, PagedTable>) -> T) -> T {
        with(&self.state().tables)
    }
}

/// The thread that writes pages before their frames are needed, until this is dropped.
struct PageWriter {
    store: Arc<dyn PageStore>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for PageWriter {
    fn drop(&mut self) {
        self.store.end_write_behind();
        if let Some(thread) = self.thread.take() {
            // Its panic has been told.
            _ = thread.join();
        }
    }
}

/// A checkpoint of the pages. If it is dropped before it is complete, it is given up.
pub(crate) struct PageCheckpoint<'a> {
    tables: &'a DiskTables,
    store: Arc<dyn PageStore>,
    /// The tables as of the cut.
    cut: Option<Vec<PublishedTable>>,
    /// How it ends if it is dropped now.
    end: CheckpointEnd,
}

/// How a checkpoint of the pages ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckpointEnd {
    GivenUp,
    /// The write of the home block that names it has begun.
    Unknown,
    Complete,
}

impl PageCheckpoint<'_> {
    /// Makes the cut, in the function that it gives to `hold_commits`: no commit is applied there.
    pub fn cut<T>(&mut self, hold_commits: impl FnOnce(&mut dyn FnMut()) -> T) -> T {
        // No table is made or freed meanwhile. The wait for a thread that makes one is here, and not while commits are held.
        let state = self.tables.state();
        let PageCheckpoint { store, cut, .. } = self;
        hold_commits(&mut || {
            store.make_cut();
            *cut = Some(state.tables.values().map(PagedTable::published).collect());
        })
    }

    /// Writes the pages as of the cut.
    ///
    /// # Errors
    /// Those of the disk. Then the checkpoint has failed.
    pub fn write(&mut self) -> Result<PagesAt> {
        let tables = self.cut.clone().unwrap_or_default();
        let at = self.store.write_cut(tables)?;
        Ok(PagesAt { page_bytes: self.store.stats().page_bytes as u32, at })
    }

    /// A home block that names what was written is about to be written.
    pub fn begin_naming(&mut self) {
        self.end = CheckpointEnd::Unknown;
    }

    /// That home block is written.
    pub fn complete(mut self) {
        self.end = CheckpointEnd::Complete;
    }
}

impl Drop for PageCheckpoint<'_> {
    fn drop(&mut self) {
        match self.end {
            _ if self.cut.is_none() => {}
            CheckpointEnd::GivenUp => self.store.abandon_cut(false),
            CheckpointEnd::Unknown => self.store.abandon_cut(true),
            CheckpointEnd::Complete => self.store.publish_cut(),
        }
    }
}

#[cfg(test)]
mod tests;
