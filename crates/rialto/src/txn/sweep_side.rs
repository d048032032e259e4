//! How a commit settles its side of a black/white sweep over all that its transaction has touched
//! ([`SweepSide`](crate::commit::sweep_side)).

use smallvec::SmallVec;

use super::context::Context;
use crate::commit::sweep_side::{Settled, SweepSide};
use crate::fault_injection;
use crate::row::WhichIndex;
use crate::store::{Consistency, RowLocation, SegmentId};

#[cfg(test)]
thread_local! {
    /// A bug for this thread's commits: what they have read has no side.
    pub(crate) static IGNORES_READS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    /// Called when this thread's next commit has met a black/white sweep at the barrier, before it settles anything.
    pub(crate) static BEFORE_SETTLING: std::cell::Cell<Option<Box<dyn FnOnce()>>> = const { std::cell::Cell::new(None) };
}

fn ignores_reads() -> bool {
    #[cfg(test)]
    return IGNORES_READS.get();
    #[cfg(not(test))]
    false
}

impl Context {
    /// Settles the transaction's side. The commit is in progress and has no place yet. Unless it is on one side it
    /// holds nothing afterwards.
    #[cold]
    pub fn settle_side(&mut self) -> Settled {
        #[cfg(test)]
        BEFORE_SETTLING.take().into_iter().for_each(|happens| happens());
        // Other commits, and the end of the sweep, may come in between.
        fault_injection::pause(4);
        debug_assert!(self.side.held.is_empty() && self.side.held_by.is_none());
        let settled = match self.core.storage.painting().consistency() {
            Consistency::Action => self.settle_actions(),
            Consistency::Transaction => self.settle_transaction(),
        };
        if settled != Settled::OneSide {
            if settled == Settled::Straddling && self.hints_to_sweep() {
                self.core.storage.painting().ask(&self.side.held);
            }
            self.end_side();
        }
        settled
    }

    /// Whether the transaction waits at its commit for the sweep that it straddles, and is not aborted.
    pub fn waits_if_straddling(&self) -> bool {
        self.waits_for_sweep || self.ddl.is_some()
    }

    /// Whether the sweep is told what is in the transaction's way. A commit that waits for the sweep always tells it:
    /// otherwise its locks might be held until the sweep's end.
    fn hints_to_sweep(&self) -> bool {
        self.core.defaults.straddling_hints || self.waits_if_straddling()
    }

    /// Ends all holds: the writes are applied, or will not be.
    pub fn end_side(&mut self) {
        let Context { core, side, .. } = self;
        side.let_go(&core.storage);
    }

    /// The sweep whose copy will have everything that the transaction writes, because its place is after the redo
    /// start of that sweep's checkpoint.
    pub fn held_by(&self) -> Option<u32> {
        self.side.held_by
    }

    fn settle_actions(&mut self) -> Settled {
        let in_memory = self.writes.writes().iter().filter(|write| !write.record.is_in_pages());
        let moves = in_memory.filter_map(|write| Some([write.record, write.moved_to?]));
        let moves: SmallVec<[[SegmentId; 2]; 8]> = moves.map(|both| both.map(RowLocation::segment)).collect();
        for action in moves.iter().filter(|[from, to]| from != to) {
            let settled = self.side.settle(&self.core.storage, action, false);
            if settled != Settled::OneSide {
                return settled;
            }
        }
        Settled::OneSide
    }

    fn settle_transaction(&mut self) -> Settled {
        let painting = self.core.storage.painting();
        // A part that is kept also has locks by name.
        let has_no_names =
            !self.owner.holds_names() && !self.owner.holds_whole() && self.kept_parts.is_empty();
        let knows_all = self.side.noted || has_no_names;
        if !knows_all && !self.core.locks.keeps_locks_in_records() {
            // Not even its records are known: it has to begin anew, or wait for the end of the sweep.
            if self.hints_to_sweep() {
                painting.hurry();
            }
            return Settled::Straddling;
        }
        // What it saw or made may come after what a black transaction did. DDL may come after a read that left no trace
        // at all, such as a look into an empty table.
        let follows = !knows_all
            || self.ddl.is_some()
            || painting.may_be_black(self.side.removal)
            || painting.may_be_black(self.core.storage.catalog.changed_at())
            || self.fills_an_absence();
        let segments = self.segments_touched();
        let settled = self.side.settle(&self.core.storage, &segments, follows);
        if settled == Settled::OneSide {
            let painting = self.core.storage.painting();
            if self.side.held.is_empty() {
                let SweepSide { absent_in, absent_anywhere, .. } = &self.side;
                painting.leave_absences(absent_in, *absent_anywhere || !knows_all);
            } else {
                self.side.held_by = painting.sweep();
            }
        }
        settled
    }

    /// The segments of everything that the transaction has read and written, each once.
    fn segments_touched(&self) -> SmallVec<[SegmentId; 32]> {
        let mut segments: SmallVec<[SegmentId; 32]> = SmallVec::new();
        let writes = self.writes.writes().iter().flat_map(|write| [write.record, write.final_location()]);
        segments.extend(writes.filter(|at| !at.is_in_pages()).map(RowLocation::segment));
        if !ignores_reads() {
            segments.extend(
                self.core
                    .locks
                    .held_records(&self.owner)
                    .map(|record| RowLocation::from_number(record).segment()),
            );
            segments.extend(self.side.touched.iter().copied());
            for table in self.owner.whole_tables() {
                if let Some(slot) = self.tables.find(table) {
                    segments.extend(self.tables.at(slot).store.owned());
                }
            }
        }
        if let Some(ddl) = &self.ddl {
            ddl.stores().for_each(|store| segments.extend(store.owned()));
        }
        segments.sort_unstable();
        segments.dedup();
        segments
    }

    /// Whether an entry comes in where a black transaction has read that there is none.
    fn fills_an_absence(&self) -> bool {
        let painting = self.core.storage.painting();
        let rows = self
            .writes
            .writes()
            .iter()
            .filter(|write| write.fresh)
            .map(|write| (write.slot, WhichIndex::Primary));
        let entries = self.writes.adds().map(|add| (add.slot, add.index));
        rows.chain(entries).any(|(slot, which)| painting.has_absence(self.tables.at(slot).index_id(which)))
    }
}
