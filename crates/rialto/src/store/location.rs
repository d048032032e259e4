//! [`RowLocation`]: where a row lies, for everything above the store.

use std::sync::atomic::AtomicU64;

use super::memory::{RecordRef, SegmentId};

/// Where a row lies, in 8 bytes. Only the store interprets it. To all others it is the name of the row's slot, and the
/// slot is the row's for as long as an index entry leads to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowLocation(u64);

/// The bit of the numbers of rows in pages.
const IN_PAGES: u64 = 1 << 47;

/// In such a number the number of a long body is above so many bits, which say how many parts the body has.
const PARTS_BITS: u32 = 8;

/// Rows in pages (`paged/paged_table.rs`).
impl RowLocation {
    /// The body is in the primary tree.
    pub(crate) const IN_LINE: RowLocation = RowLocation(IN_PAGES);

    /// The body is the long one of this number, with so many parts.
    pub(super) fn long_body(number: u64, parts: usize) -> RowLocation {
        debug_assert!(number < IN_PAGES >> PARTS_BITS && parts < 1 << PARTS_BITS);
        RowLocation(IN_PAGES | number << PARTS_BITS | parts as u64)
    }

    /// The number of its long body, and how many parts that has.
    pub(super) fn of_long_body(self) -> Option<(u64, usize)> {
        let (number, parts) = ((self.0 & (IN_PAGES - 1)) >> PARTS_BITS, self.0 & ((1 << PARTS_BITS) - 1));
        (number != 0).then_some((number, parts as usize))
    }

    /// Whether the row is in a page of the primary tree, and has all of its body there.
    pub(crate) fn is_in_line(self) -> bool {
        self == RowLocation::IN_LINE
    }

    /// Whether the row is in a page.
    #[inline]
    pub(crate) fn is_in_pages(self) -> bool {
        self.0 & IN_PAGES != 0
    }
}

impl RowLocation {
    /// The location of this number.
    #[inline]
    pub fn from_number(number: u64) -> RowLocation {
        RowLocation(number)
    }

    /// The number that index entries and lists of locks hold. It is below 2^48.
    #[inline]
    pub fn number(self) -> u64 {
        self.0
    }

    /// The segment that the row lies in. A sweep copies a segment at one time, and it is on one side of a sweep as a
    /// whole.
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

/// What the locks say about slots whose locations name them (`isolate/thin/mod.rs`, L8).
pub trait Claims {
    /// Takes a slot that is about to be used, before it can be found; `word` is its lock word. False: another
    /// transaction still locks or seeks the slot as its earlier row; the slot stays free.
    fn claim(&mut self, location: RowLocation, word: &AtomicU64) -> bool;

    /// What a slot holds until its row comes.
    fn placeholder(&self) -> &[u8] {
        &[]
    }
}
