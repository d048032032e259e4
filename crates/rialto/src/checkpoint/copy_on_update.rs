//! Copy-on-update checkpoints (System M, section 3.3): every dirty segment as it was at the cut, in order.
//!
//! A transaction-consistent copy is the state that the packets before the cut make, and redo begins there. An
//! action-consistent one has each row as one packet or another left it; redo begins at the oldest packet that was in
//! progress at the cut, and skips what the copy already has of it by the rows' `Lsn`s. No transaction waits for the
//! sweep, unless the snapshots reach their bound, or the sweep is not spooled (it then holds a segment's latch through
//! the write).

use super::fuzzy::Fuzzy;
use super::sweep::{SweepPolicy, SweepView};
use crate::store::memory::SegmentId;

/// Visits the dirty segments in order; while transactions wait for room, those with a snapshot first.
#[derive(Debug, Default)]
pub(crate) struct CopyOnUpdate {
    in_order: Fuzzy,
}

impl SweepPolicy for CopyOnUpdate {
    fn next(&mut self, view: &SweepView<'_>) -> Option<SegmentId> {
        view.snapshot_in_the_way().or_else(|| self.in_order.next(view))
    }
}
