//! Segments and the sweeps over them: what makes a segment white, how a change sets its marks, and how a sweep copies
//! it (System M, sections 3.1 to 3.3).

use super::super::snapshots::{CutStage, Snapshot};
use super::{ALL_COPIES, Copy, IMAGE_HEADER_BYTES, Latched, PAINT, SegmentId, Segments, WHITE};
use crate::fault_injection;
use crate::ids::HeapId;
use hashbrown::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A segment that a sweep has copied.
pub struct Swept<'a> {
    /// The heap that it belongs to, none if it is free.
    pub heap: Option<HeapId>,
    /// Bytes in use, the image header's room included.
    pub used: usize,
    /// Its latch, if it is still held.
    pub latched: Option<Latched<'a>>,
}

/// The result of a sweep's visit to a segment.
pub enum SegmentVisit<'a> {
    /// It is copied.
    Copied(Swept<'a>),
    /// The copy has already what it should have.
    Needless,
    /// A commit that holds the segment white is in progress: visit it later.
    Held,
}

impl<'a> SegmentVisit<'a> {
    /// The copy, if there is one.
    pub fn copied(self) -> Option<Swept<'a>> {
        match self {
            SegmentVisit::Copied(swept) => Some(swept),
            SegmentVisit::Needless | SegmentVisit::Held => None,
        }
    }
}

impl Segments {
    /// Leaves a white segment free for the sweep whatever becomes of it, because the cut has no table's row in it. If
    /// it is white for another sweep, which has begun since the caller looked and has no cut yet, it stays white: that
    /// cut finds it free.
    pub(super) fn leave_free(&self, latched: &Latched<'_>, id: SegmentId) {
        let marks = latched.marks();
        if marks & WHITE != 0 && self.snapshots.stage() == CutStage::Cut {
            if marks & self.snapshots.copy().bit() != 0 {
                self.snapshots.keep_free(id);
            }
            latched.set_marks(marks & !WHITE);
        }
    }

    /// Whether a sweep that made segments white has not met this one yet.
    pub fn is_white(&self, id: SegmentId) -> bool {
        self.meta(id).marks.load(Ordering::Relaxed) & WHITE != 0
    }

    /// Makes all segments white, for a sweep to this copy; until [`Segments::cut`] that has no effect. From the cut on,
    /// snapshots may take `bytes_max` bytes.
    pub fn whiten(&self, copy: Copy, bytes_max: u64) {
        // Done before the first segment is white: a segment that is taken into use from now on is made white as it is
        // taken.
        self.snapshots.begin(copy, bytes_max);
        for number in 0..self.high_water() {
            let latched = self.latch(SegmentId(number));
            latched.set_marks(latched.marks() | WHITE);
        }
    }

    /// Makes the cut, at which the tables have this storage: from now on a white segment is kept before it changes.
    /// Returns the end of the segments in the cut.
    ///
    /// No commit may take its place meanwhile. A commit that has its place and is not wholly applied is in the cut in
    /// part, row by row.
    pub fn cut(&self, heaps: Arc<HashSet<HeapId>>) -> u32 {
        let free = self.free.lock();
        self.snapshots.cut(heaps);
        free.fresh
    }

    /// Begins a black/white sweep: from now on it alone paints white segments, as it copies them. Returns the end of
    /// the segments that the sweep covers.
    pub fn paint(&self) -> u32 {
        let free = self.free.lock();
        self.snapshots.paint();
        free.fresh
    }

    /// Ends the sweep that made segments white, successful or not: no segment is white any more, and no snapshot is
    /// left.
    pub fn forget_cut(&self) {
        self.painting.end();
        let freed = self.snapshots.end();
        for number in 0..self.high_water() {
            let latched = self.latch(SegmentId(number));
            latched.set_marks(latched.marks() & !PAINT);
        }
        freed.into_iter().for_each(|id| self.free_now(id));
    }

    /// Called before a committed row of the segment changes or goes: all copies lack the segment from now on, and the
    /// sweep at a cut gets it as it was at the cut.
    #[inline]
    pub(super) fn begin_change(&self, latched: &Latched<'_>, id: SegmentId) {
        let marks = latched.marks();
        if marks != ALL_COPIES && !fault_injection::is_on("change-leaves-segment-clean") {
            self.begin_change_slowly(latched, id, marks);
        }
    }

    /// Called before the segment changes, but no committed row of it: all copies lack it from now on, and what the
    /// sweep at a cut takes of it stays the same.
    #[inline]
    pub(super) fn mark_dirty(&self, latched: &Latched<'_>) {
        let marks = latched.marks();
        if marks & ALL_COPIES != ALL_COPIES {
            // A copy that has what the cut had needs no more of the segment.
            let is_in_copy =
                self.snapshots.stage() == CutStage::Cut && marks & self.snapshots.copy().bit() == 0;
            latched.set_marks(ALL_COPIES | if is_in_copy { 0 } else { marks & PAINT });
        }
    }

    #[cold]
    fn begin_change_slowly(&self, latched: &Latched<'_>, id: SegmentId, marks: u8) {
        let mut paint = marks & PAINT;
        if paint != 0 && !matches!(self.snapshots.stage(), CutStage::Whitening | CutStage::Painting) {
            let is_lacked = marks & self.snapshots.copy().bit() != 0;
            if self.snapshots.stage() == CutStage::Cut
                && is_lacked
                && !fault_injection::is_on("cut-keeps-nothing")
            {
                match self.is_in_cut(id) {
                    true => self.snapshots.keep(id, |buffer| self.copy_latched(id, buffer)),
                    false => self.snapshots.keep_free(id),
                }
            }
            paint = 0;
        }
        latched.set_marks(ALL_COPIES | paint);
    }

    /// Copies what was kept of the segment for the sweep at a cut, if anything was. That needs no latch.
    pub fn sweep_snapshot(&self, id: SegmentId, buffer: &mut [u8]) -> Option<Swept<'static>> {
        if self.snapshots.stage() != CutStage::Cut {
            return None;
        }
        match self.snapshots.take(id)? {
            Snapshot::Free => Some(Swept { heap: None, used: 0, latched: None }),
            Snapshot::Bytes(kept) => {
                let used = kept.used.max(IMAGE_HEADER_BYTES);
                buffer[IMAGE_HEADER_BYTES..used].copy_from_slice(&kept.bytes[IMAGE_HEADER_BYTES..used]);
                let swept = Swept { heap: kept.heap, used: kept.used, latched: None };
                self.snapshots.give_back(kept);
                Some(swept)
            }
        }
    }

    /// Whether a white segment belongs to a table of the cut.
    ///
    /// Invariant: **a white segment has belonged to one heap since the cut.** A segment with rows of the cut is kept
    /// when it is given back, or it stays until the sweep is over. A segment that is given back, or taken into use, is
    /// no longer white.
    pub fn is_in_cut(&self, id: SegmentId) -> bool {
        self.heap(id).is_some_and(|heap| self.snapshots.has(heap))
    }

    /// Whether a commit that changes the segment now has to keep it first, if it [is in the cut](Segments::is_in_cut).
    pub fn is_to_be_kept(&self, id: SegmentId) -> bool {
        let marks = self.meta(id).marks.load(Ordering::Relaxed);
        marks & WHITE != 0 && marks & self.snapshots.copy().bit() != 0
    }

    /// Copies the segment, which the caller has latched, for `copy`. A fuzzy sweep copies it as it is and clears its
    /// dirty bit under the same hold of the latch; therefore it misses nothing (a change is either in the copy or marks
    /// the segment again). A sweep at a cut copies it as it was at the cut. A black/white sweep paints it under the
    /// same hold. `buffer` is one segment long, and its first [`IMAGE_HEADER_BYTES`] are left alone.
    pub fn sweep<'a>(
        &'a self,
        latched: Latched<'a>,
        id: SegmentId,
        copy: Copy,
        buffer: &mut [u8],
    ) -> SegmentVisit<'a> {
        let marks = latched.marks();
        match self.snapshots.stage() {
            CutStage::Cut if marks & WHITE == 0 => {
                drop(latched);
                return self.sweep_snapshot(id, buffer).map_or(SegmentVisit::Needless, SegmentVisit::Copied);
            }
            CutStage::Painting if marks & WHITE == 0 => return SegmentVisit::Needless,
            CutStage::Painting if self.is_held(id) => return SegmentVisit::Held,
            CutStage::Painting if marks & copy.bit() == 0 => {
                latched.set_marks(marks & !PAINT);
                drop(latched);
                self.painting.painted();
                return SegmentVisit::Needless;
            }
            _ => {}
        }
        latched.set_marks(marks & !(copy.bit() | PAINT));
        let (heap, used) = self.copy_latched(id, buffer);
        SegmentVisit::Copied(Swept { heap, used, latched: Some(latched) })
    }
}
