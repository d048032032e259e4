//! The two sides of segments (System M, section 3.2): how a commit holds a segment white, and how the sweep waits for
//! the end of such holds before it paints the segment.

use std::sync::atomic::Ordering;

use crossbeam_utils::Backoff;

use super::super::snapshots::CutStage;
use super::{AWAITED, Copy, Latched, PAINT, SegmentId, Segments, WHITE};
use crate::store::Paint;

impl Segments {
    /// The segment's side; a white segment is held from then on.
    pub fn hold_white(&self, id: SegmentId) -> Paint {
        let side = |marks: u8| match marks & PAINT {
            WHITE => Paint::White,
            0 => Paint::Black,
            _ => Paint::Awaited,
        };
        // A black segment stays black until the next sweep, which waits for this commit before it copies anything.
        let seen = side(self.meta(id).marks.load(Ordering::Acquire));
        if seen != Paint::White {
            return seen;
        }
        let latched = self.latch(id);
        let seen = side(latched.marks());
        if seen == Paint::White {
            self.meta(id).holders.fetch_add(1, Ordering::Relaxed);
        }
        seen
    }

    /// Ends a hold.
    pub fn let_go(&self, id: SegmentId) {
        let before = self.meta(id).holders.fetch_sub(1, Ordering::Release);
        debug_assert!(before > 0, "held white before");
    }

    /// Whether a commit holds the segment white.
    pub(super) fn is_held(&self, id: SegmentId) -> bool {
        self.meta(id).holders.load(Ordering::Acquire) > 0
    }

    /// Whether the sweep waits for the segment.
    pub fn is_awaited(&self, id: SegmentId) -> bool {
        self.meta(id).marks.load(Ordering::Relaxed) & AWAITED != 0
    }

    /// Latches the segment when no commit holds it white, and lets no other commit hold it meanwhile.
    pub fn await_holders(&self, id: SegmentId) -> Latched<'_> {
        loop {
            let latched = self.latch(id);
            let marks = latched.marks();
            if marks & WHITE == 0 || !self.is_held(id) {
                return latched;
            }
            latched.set_marks(marks | AWAITED);
            drop(latched);
            // These commits have settled their side, and wait for nothing but latches.
            let backoff = Backoff::new();
            while self.is_held(id) {
                backoff.snooze();
            }
        }
    }

    /// The segment that a black/white sweep was asked for first, if it is still white. It is marked as awaited.
    pub fn next_asked(&self) -> Option<SegmentId> {
        while let Some(id) = self.painting.next_asked() {
            let latched = self.latch(id);
            let marks = latched.marks();
            if marks & WHITE != 0 {
                latched.set_marks(marks | AWAITED);
                return Some(id);
            }
        }
        None
    }

    /// Wakes the commits that wait for a segment to be painted; its latch is released.
    pub fn note_painted(&self) {
        self.painting.painted();
    }

    /// Makes the segment black, whatever it holds: a black/white sweep that begins does not cover it.
    pub fn paint_black(&self, id: SegmentId) {
        let latched = self.latch(id);
        latched.set_marks(latched.marks() & !PAINT);
    }

    /// Whether a black/white sweep is in progress.
    pub fn is_painted(&self) -> bool {
        self.snapshots.stage() == CutStage::Painting
    }

    /// Paints the segments below `end` that this copy already has as they are, except those that a latch or a hold
    /// protects. Returns how many this copy has already, painted or not.
    pub fn paint_clean(&self, copy: Copy, end: u32) -> u64 {
        let mut asked = 0;
        for id in (0..end).map(SegmentId).filter(|&id| !self.is_dirty(id, copy)) {
            asked += 1;
            if let Some(latched) = self.try_latch(id) {
                let marks = latched.marks();
                if marks & copy.bit() == 0 && !self.is_held(id) {
                    latched.set_marks(marks & !PAINT);
                }
            }
        }
        asked
    }
}
