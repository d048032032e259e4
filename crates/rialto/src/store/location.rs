//! [`RowLocation`]: where a row lies, for everything above the store.

use std::sync::atomic::AtomicU64;

use super::memory::{RecordRef, SegmentId};

/// Where a row lies, in 8 bytes. Only the store looks inside: to others it is a name of the row's slot, which is the row's for as long
/// as an index entry leads to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowLocation(u64);

impl RowLocation {
    /// The location of this number.
    #[inline]
    pub fn from_number(number: u64) -> RowLocation {
        RowLocation(number)
    }

    /// The number that index entries lead to, and that lists of locks have. It is below 2^48.
    #[inline]
    pub fn number(self) -> u64 {
        self.0
    }

    /// The segment that it lies in: what a sweep copies at one time, and what is on one side of a sweep as a whole.
    pub fn segment(self) -> SegmentId {
        RecordRef::from(self).segment()
    }
}

impl From<RecordRef> for RowLocation {
    #[inline]
    fn from(record: RecordRef) -> RowLocation {
        RowLocation(record.0)
    }
}

impl From<RowLocation> for RecordRef {
    #[inline]
    fn from(location: RowLocation) -> RecordRef {
        RecordRef(location.0)
    }
}

/// What the locks say of slots whose locations name them (`isolate/thin/mod.rs`, L8).
pub trait Claims {
    /// Takes a slot that is about to be used, before it can be found; `word` is its lock word. False: others still lock it, or seek it,
    /// as the row that it was; the slot stays free.
    fn claim(&mut self, location: RowLocation, word: &AtomicU64) -> bool;

    /// What a slot holds until its row comes.
    fn placeholder(&self) -> &[u8] {
        &[]
    }
}
