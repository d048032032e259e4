//! Black/white checkpoints (System M, section 3.2): every segment is white when the sweep begins and is painted black
//! when it is copied, and nothing that has to be whole touches both sides. The engine runs a transaction that does so
//! again, or the transaction waits at its commit (`txn::sweep_side`). The sweep is told which segments were in its way,
//! and takes those next.
//!
//! Transaction-consistent, the copy is the state that the white transactions make. Their packets may have places after
//! the redo start, and black ones lie among them. Redo by rows tells them apart by the places in the rows. Where calls
//! are logged, which are replayed whole, every white packet of any kind names its sweep
//! ([`Packet::held_by`](crate::log::Packet)), and recovery does only the black ones.

use super::sweep::{SweepPolicy, SweepView};
use crate::store::memory::SegmentId;

/// Visits the segments that it is asked for, and otherwise the white ones in order.
#[derive(Debug, Default)]
pub(crate) struct BlackWhite {
    at: u32,
}

impl SweepPolicy for BlackWhite {
    fn next(&mut self, view: &SweepView<'_>) -> Option<SegmentId> {
        if let Some(asked) = view.asked_for() {
            return Some(asked);
        }
        while self.at < view.end {
            let segment = self.at;
            self.at += 1;
            if view.is_white(segment) {
                return Some(SegmentId(segment));
            }
        }
        None
    }
}
