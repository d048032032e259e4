//! [`Cleared`]: the segments whose dirty bits a copy in the making has cleared.
//!
//! **A dirty bit stays cleared only if the copy has the segment's image.** Therefore the bits are set again when this
//! is dropped, by an error or by a panic, unless the copy was declared complete ([`Cleared::keep`]).

use crate::store::memory::segments::Copy;
use crate::store::memory::{SegmentId, Segments};

/// See the [module](self).
pub(crate) struct Cleared<'a> {
    segments: &'a Segments,
    copy: Copy,
    ids: Vec<SegmentId>,
}

impl<'a> Cleared<'a> {
    /// For a copy that is beginning.
    pub fn new(segments: &'a Segments, copy: Copy) -> Cleared<'a> {
        Cleared { segments, copy, ids: Vec::new() }
    }

    /// Notes that the segment's bit is about to be cleared.
    pub fn note(&mut self, id: SegmentId) {
        self.ids.push(id);
    }

    /// Notes that the bit of the segment that was noted last was not cleared.
    pub fn forget_last(&mut self) {
        self.ids.pop();
    }

    /// Keeps the bits cleared: the copy is complete and on disk.
    pub fn keep(mut self) {
        self.ids.clear();
    }
}

impl Drop for Cleared<'_> {
    fn drop(&mut self) {
        self.ids.iter().for_each(|&id| self.segments.set_dirty(id, self.copy));
    }
}
