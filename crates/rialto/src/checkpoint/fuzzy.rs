//! Fuzzy checkpoints (System M, section 3.1): every dirty segment as it is, in order, transactions ignored.
//!
//! The copy is not a state that ever existed. Redo makes it one: a change that the sweep missed, because its segment
//! was copied before, belongs to a packet that was in progress when the sweep began, or to a later one; so redo from
//! the oldest of those packets does it again. A change that the copy already has is redone to the same row, or skipped
//! because the row's `Lsn` is higher. A record that moved between segments is in the copy twice (the loader keeps the
//! one with the higher `Lsn`) or not at all (a move logs the whole row).

use super::sweep::{SweepPolicy, SweepView};
use crate::store::memory::SegmentId;

/// Visits the dirty segments in order.
#[derive(Debug, Default)]
pub(crate) struct Fuzzy {
    at: u32,
}

impl SweepPolicy for Fuzzy {
    fn next(&mut self, view: &SweepView<'_>) -> Option<SegmentId> {
        while self.at < view.end {
            let segment = self.at;
            self.at += 1;
            if view.is_dirty(segment) {
                return Some(SegmentId(segment));
            }
        }
        None
    }
}
