//! [`IndexEntries`]: the entries of a new index over existing rows. They are collected and sorted run by run, and then
//! merged into the index. The runs take their memory from the bound
//! ([`Options::memory_bytes`](crate::Options::memory_bytes)).

use std::sync::Arc;

use super::table_store::IndexStorage;
use super::tree::{Full, Index, Merge, SortRun, order};
use super::{Budget, RowLocation, Storage};
use crate::error::{Error, Result};
use crate::row::Key;

/// A run of this many bytes is sorted at once, in a few milliseconds.
const RUN_BYTES: usize = 1 << 20;

/// The bytes that are drawn from the memory bound at a time.
const DRAWN_BYTES: u64 = 64 << 10;

/// The entries that are put into the index between two checks whether the caller may go on.
pub(crate) const PUT_AT_ONCE: usize = 1 << 12;

/// The entries of an index that is being made.
pub(crate) struct IndexEntries {
    /// The sorted runs.
    runs: Vec<SortRun>,
    /// The run that is being collected.
    run: SortRun,
    /// The bytes that the entries of all runs take.
    bytes: u64,
    /// The bytes that were drawn from the bound.
    drawn: u64,
    budget: Arc<Budget>,
}

impl Drop for IndexEntries {
    fn drop(&mut self) {
        // The memory of the runs goes before its bytes are given back.
        self.runs = Vec::new();
        self.run = SortRun::default();
        self.budget.give(self.drawn);
    }
}

/// Why an index was not built.
pub(crate) enum NotBuilt {
    /// The memory bound is reached.
    Full,
    /// Two rows have this key.
    Twice(Key),
    /// The caller may not go on.
    Stopped(Error),
}

impl From<Full> for NotBuilt {
    fn from(_: Full) -> NotBuilt {
        NotBuilt::Full
    }
}

impl IndexEntries {
    /// None yet; their memory comes from this bound.
    pub fn new(budget: &Arc<Budget>) -> IndexEntries {
        let budget = budget.clone();
        IndexEntries { runs: Vec::new(), run: SortRun::default(), bytes: 0, drawn: 0, budget }
    }

    /// Whether the run has to be [ended](IndexEntries::end_run) before an entry with a key of so many bytes.
    pub fn is_run_full(&self, key_bytes: usize) -> bool {
        self.run.bytes() + SortRun::bytes_of_entry(key_bytes) > RUN_BYTES
    }

    /// Ends the run and sorts it, which takes milliseconds.
    pub fn end_run(&mut self) {
        let mut run = std::mem::take(&mut self.run);
        run.sort();
        run.shrink();
        self.runs.push(run);
    }

    /// Whether memory has to be [drawn](IndexEntries::draw) for one more entry.
    pub fn needs_memory(&self, key_bytes: usize) -> bool {
        self.bytes + SortRun::bytes_of_entry(key_bytes) as u64 > self.drawn
    }

    /// Draws memory for more entries. False at the memory bound.
    pub fn draw(&mut self) -> bool {
        let has_drawn = self.budget.take(DRAWN_BYTES);
        self.drawn += if has_drawn { DRAWN_BYTES } else { 0 };
        has_drawn
    }

    /// The same, up to so many bytes in sum. False there, too.
    pub fn draw_up_to(&mut self, bytes: u64) -> bool {
        self.drawn < bytes && self.draw()
    }

    /// Adds an entry, for which memory was drawn.
    pub fn push(&mut self, key: &[u8], location: RowLocation) {
        self.push_number(key, location.number());
    }

    /// The same for an entry that leads to a number.
    pub fn push_number(&mut self, key: &[u8], number: u64) {
        self.bytes += SortRun::bytes_of_entry(key.len()) as u64;
        self.run.push(key, number);
    }

    /// Builds the index of all entries; the last run is ended. `go_on` is asked from time to time.
    pub fn build(
        &self,
        storage: &Storage,
        go_on: impl Fn() -> Result<()>,
    ) -> std::result::Result<IndexStorage, NotBuilt> {
        let built = Index::build(storage.memory.nodes.clone(), |take| {
            self.put(go_on, |key, number| Ok(take(key, number)?))
        })?;
        Ok(IndexStorage::Memory(Arc::new(built)))
    }

    /// Gives the entries to `take`, in the order of their keys.
    pub fn put(
        &self,
        go_on: impl Fn() -> Result<()>,
        mut take: impl FnMut(&[u8], u64) -> std::result::Result<(), NotBuilt>,
    ) -> std::result::Result<(), NotBuilt> {
        let (mut before, mut bytes) = (None, Vec::new());
        let merged = Merge::of(self.runs.iter().map(|run| (run, 0..run.entries.len())));
        for (nth, (run, entry)) in merged.enumerate() {
            if nth % PUT_AT_ONCE == 0 {
                go_on().map_err(NotBuilt::Stopped)?;
            }
            let key = run.key(entry, &mut bytes);
            if before.is_some_and(|before| order(before, (run, entry)).is_eq()) {
                return Err(NotBuilt::Twice(Key::from(key)));
            }
            take(key, entry.value())?;
            before = Some((run, entry));
        }
        Ok(())
    }

    /// The number of runs, and the bytes that their entries take.
    #[cfg(test)]
    pub fn size(&self) -> (usize, u64) {
        (self.runs.len(), self.runs.iter().map(|run| run.bytes() as u64).sum())
    }
}
