//! [`LoadedRows`]: the rows of bulk loads, which a rollback to a savepoint takes back one by one.
//!
//! A load fills the segments of its table one slot behind the other, so its rows are kept as *runs*: slots of one table
//! without a gap between them. A segment that a load alone fills is one run. There are more runs where a load finds its
//! slots elsewhere: on the free lists, which are in the order in which slots were freed, or beside other slots, such as
//! those of rows that an update has moved. Then a run may be a single row. The memory of the runs is counted by
//! [`LoadedRows::bytes`], and bounded.

use super::{RecordRef, Segments};

/// How many of the newest runs a row is compared with: loads into several tables in turn have their runs side by side.
const RUNS_LOOKED_AT: usize = 16;

/// Loaded rows of one table, whose slots are adjacent in one segment.
#[derive(Debug, Clone, Copy)]
struct RowRun {
    first: RecordRef,
    units: u32,
    /// The table's position in the transaction's list of tables.
    table: u32,
}

impl RowRun {
    /// Where a slot that continues the run begins.
    fn end(&self) -> RecordRef {
        RecordRef(self.first.0 + u64::from(self.units))
    }

    /// Keeps its first units, and returns the run of the others.
    fn cut(&mut self, kept: u32) -> RowRun {
        let first = RecordRef(self.first.0 + u64::from(kept));
        let tail = RowRun { first, units: self.units - kept, ..*self };
        self.units = kept;
        tail
    }

    /// Its slots, in order.
    fn slots(&self, segments: &Segments) -> Vec<RecordRef> {
        let in_it = |slot: RecordRef| (slot < self.end()).then_some(slot);
        // There may be no memory behind the last slot.
        let next = |slot: &RecordRef| in_it(RecordRef(slot.0 + segments.units(*slot) as u64));
        std::iter::successors(in_it(self.first), next).collect()
    }
}

/// Rows loaded since the first open savepoint; empty where no savepoint is open.
#[derive(Default)]
pub(crate) struct LoadedRows {
    runs: Vec<RowRun>,
    /// The last run at the newest mark. The runs before it do not grow, since the mark has only the last one's length.
    closed: usize,
}

/// A point in the order in which rows were loaded.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LoadMark {
    runs: usize,
    /// The length of the last run.
    units: u32,
}

impl LoadMark {
    fn closed(&self) -> usize {
        self.runs.saturating_sub(1)
    }
}

impl LoadedRows {
    /// The memory of the runs, in bytes.
    pub fn bytes(&self) -> usize {
        self.runs.len() * size_of::<RowRun>()
    }

    /// Notes a row in a slot of so many units.
    pub(in crate::store) fn push(&mut self, table: u32, slot: RecordRef, units: usize) {
        let open = &mut self.runs[self.closed..];
        let continued = open
            .iter_mut()
            .rev()
            .take(RUNS_LOOKED_AT)
            .find(|run| run.table == table && run.end() == slot && run.first.segment() == slot.segment());
        match continued {
            Some(run) => run.units += units as u32,
            None => self.runs.push(RowRun { first: slot, units: units as u32, table }),
        }
    }

    /// The rows that were loaded up to now.
    pub fn mark(&mut self) -> LoadMark {
        let mark = LoadMark { runs: self.runs.len(), units: self.runs.last().map_or(0, |run| run.units) };
        self.closed = mark.closed();
        mark
    }

    /// Forgets the rows behind the mark, the newest run first, and gives them to `take_back`, each with the place of
    /// its table.
    ///
    /// The last slot of a run is freed first. A stripe hands out what was freed last; so another load finds the slots
    /// in the order of their addresses again, and its rows are runs as well.
    pub(in crate::store) fn take_back_to(
        &mut self,
        mark: &LoadMark,
        segments: &Segments,
        mut take_back: impl FnMut(u32, RecordRef),
    ) {
        let mut free =
            |run: RowRun| run.slots(segments).into_iter().rev().for_each(|slot| take_back(run.table, slot));
        self.runs.drain(mark.runs..).rev().for_each(&mut free);
        if let Some(last) = self.runs.last_mut() {
            free(last.cut(mark.units));
        }
        self.closed = mark.closed();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ids::HeapId;
    use crate::store::Budget;
    use crate::store::memory::{Heap, SEGMENT_BYTES, Unclaimed};

    /// Behind the last row the memory of rows ends.
    #[test]
    fn runs_may_end_where_there_is_no_memory() {
        let budget = Arc::new(Budget::new(2 * SEGMENT_BYTES as u64));
        let heap = Heap::new(Arc::new(Segments::reserve(budget).unwrap()), HeapId(73), 100);
        let (mut rows, mut loaded) = (LoadedRows::default(), Vec::new());
        let mark = rows.mark();
        // A row takes two units, and a segment has an even number of them: the rows fill it.
        while let Some(slot) = heap.allocate(0, 20, &mut Unclaimed) {
            rows.push(3, slot, heap.segments().units(slot));
            loaded.push(slot);
        }
        let last = loaded.last().unwrap();
        let end = last.0 + heap.segments().units(*last) as u64;
        assert_eq!(end as usize * 16, 2 * SEGMENT_BYTES, "the last row ends with the memory");
        let mut taken = Vec::new();
        rows.take_back_to(&mark, heap.segments(), |table, slot| taken.push((table, slot)));
        assert!(taken.iter().rev().copied().eq(loaded.iter().map(|&slot| (3, slot))));
        assert_eq!(rows.bytes(), 0);
    }
}
