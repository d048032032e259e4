//! Copy-on-update checkpoints (System M, section 3.3): every dirty segment as it was at the cut, in order.
//!
//! A transaction-consistent copy is the state that the packets before the cut make, and redo begins there. An
//! action-consistent one has each row as one packet or another left it; redo begins at the oldest packet that was in flight
//! at the cut, and what the copy has of it already is skipped by the rows' `Lsn`s. No transaction waits for the sweep, unless
//! the snapshots come to their bound or the sweep is not spooled.

use super::fuzzy::Fuzzy;
use super::sweep::{SweepPolicy, SweepView};
use crate::store::memory::SegmentId;

/// Visits the dirty segments in order; those with a snapshot first while transactions wait for room.
#[derive(Debug, Default)]
pub(crate) struct CopyOnUpdate {
    in_order: Fuzzy,
}

impl SweepPolicy for CopyOnUpdate {
    fn next(&mut self, view: &SweepView<'_>) -> Option<SegmentId> {
        view.snapshot_in_the_way().or_else(|| self.in_order.next(view))
    }
}
