//! [`IndexBuild`]: fills a new index of a disk-resident table.
//!
//! Entries in the order of the rows would go to leaves all over the index, and each might read a page and write another. So they are
//! collected and sorted, as many as an eighth of the memory bound has room for, and put into the index in their order: each leaf
//! comes into memory once for each such batch.

use std::sync::Arc;

use super::page_access::PageAccess;
use super::paged_index::PagedIndex;
use crate::error::Result;
use crate::row::Key;
use crate::store::{Budget, IndexEntries, NotBuilt};

/// The entries of a batch take at most this part of the memory bound.
const BATCH_PART: u64 = 8;

/// See the [module's documentation](self). If this is dropped before it is finished, it discards the index.
pub(crate) struct IndexBuild {
    index: PagedIndex,
    is_finished: bool,
    /// Of each entry its key, followed by the primary key.
    batch: IndexEntries,
    batch_bytes_max: u64,
    budget: Arc<Budget>,
    joined: Vec<u8>,
}

/// `Err`: a key of the index that two rows have.
type Unique<T> = std::result::Result<T, Key>;

impl IndexBuild {
    /// Of an empty index, which no other thread uses.
    pub fn new(index: PagedIndex, budget: Arc<Budget>) -> IndexBuild {
        let (batch, batch_bytes_max) = (IndexEntries::new(&budget), budget.limit() / BATCH_PART);
        IndexBuild { index, is_finished: false, batch, batch_bytes_max, budget, joined: Vec::new() }
    }

    /// Adds the entry of a row. `go_on` is called from time to time. The inner error is a key that two rows have.
    ///
    /// # Errors
    /// Those of the disk, of [`PagedIndex::place`], and of `go_on`.
    pub fn push(
        &mut self,
        entry: &[u8],
        primary: &[u8],
        go_on: &dyn Fn() -> Result<()>,
    ) -> Result<Unique<()>> {
        self.joined.clear();
        self.joined.extend_from_slice(entry);
        self.joined.extend_from_slice(primary);
        let bytes = self.joined.len();
        if self.batch.is_run_full(bytes) {
            go_on()?;
            self.batch.end_run();
            // If the memory bound leaves no room for another run, the batch is put into the index now.
            let has_memory = !self.batch.needs_memory(bytes) || self.batch.draw_up_to(self.batch_bytes_max);
            if !has_memory && let Err(twice) = self.put_batch(go_on)? {
                return Ok(Err(twice));
            }
        } else if self.batch.needs_memory(bytes) {
            self.batch.draw_up_to(self.batch_bytes_max);
        }
        self.batch.push_number(&self.joined, entry.len() as u64);
        Ok(Ok(()))
    }

    /// Puts the entries of the batch into the index.
    fn put_batch(&mut self, go_on: &dyn Fn() -> Result<()>) -> Result<Unique<()>> {
        let by = PageAccess::plain();
        let put = self.batch.put(go_on, |joined, entry_bytes| {
            let (entry, primary) = joined.split_at(entry_bytes as usize);
            match self.index.place(&by, entry, primary) {
                Ok(true) => Ok(()),
                Ok(false) => Err(NotBuilt::Twice(Key::from(entry))),
                Err(error) => Err(NotBuilt::Stopped(error)),
            }
        });
        self.batch = IndexEntries::new(&self.budget);
        match put {
            Ok(()) => Ok(Ok(())),
            Err(NotBuilt::Twice(key)) => Ok(Err(key)),
            Err(NotBuilt::Stopped(error)) => Err(error),
            Err(NotBuilt::Full) => unreachable!("pages take no index nodes"),
        }
    }

    /// Gives the index with all entries.
    ///
    /// # Errors
    /// As [`IndexBuild::push`].
    pub fn finish(mut self, go_on: &dyn Fn() -> Result<()>) -> Result<Unique<PagedIndex>> {
        self.batch.end_run();
        let put = self.put_batch(go_on)?;
        self.is_finished = put.is_ok();
        Ok(put.map(|()| self.index.clone()))
    }
}

impl Drop for IndexBuild {
    fn drop(&mut self) {
        if !self.is_finished {
            self.index.discard();
        }
    }
}
