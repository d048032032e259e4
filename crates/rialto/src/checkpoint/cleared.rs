//! [`Cleared`]: the segments whose dirty bits a copy that is being made has cleared.
//!
//! **A dirty bit stays cleared only if the copy has the segment's image.** So the bits are set again when this is dropped, by an
//! error or by a panic, unless the copy was said to be complete ([`Cleared::keep`]).

use crate::store::memory::segments::Copy;
use crate::store::memory::{SegmentId, Segments};

/// See the [module](self).
pub(crate) struct Cleared<'a> {
    segments: &'a Segments,
    copy: Copy,
    ids: Vec<SegmentId>,
}

impl<'a> Cleared<'a> {
    /// For a copy that begins.
    pub fn new(segments: &'a Segments, copy: Copy) -> Cleared<'a> {
        Cleared { segments, copy, ids: Vec::new() }
    }

    /// The segment's bit is about to be cleared.
    pub fn note(&mut self, id: SegmentId) {
        self.ids.push(id);
    }

    /// The bit of the segment that was noted last was not cleared.
    pub fn forget_last(&mut self) {
        self.ids.pop();
    }

    /// The copy is complete and on disk.
    pub fn keep(mut self) {
        self.ids.clear();
    }
}

impl Drop for Cleared<'_> {
    fn drop(&mut self) {
        self.ids.iter().for_each(|&id| self.segments.set_dirty(id, self.copy));
    }
}
