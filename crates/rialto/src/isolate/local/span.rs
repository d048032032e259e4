//! [`Span`]: the keys that a local lock is on.

use std::cmp::Ordering;
use std::ops::Bound;

use crate::row::Key;
use crate::unlikely::unlikely;

/// A longer key takes memory beside the lock's.
const SHORT_KEY_BYTES: usize = 44;

/// Long keys of so many bytes count as one lock.
const KEY_BYTES_PER_LOCK: usize = 256;

/// Keys of one index that lie side by side: one of them, those that begin alike, or those between two bounds. It has at
/// least one key in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The first one.
    lower: Key,
    end: End<Key>,
}

/// Where a span ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End<K> {
    /// With its first key.
    Point,
    /// Behind all keys that begin with the first one.
    Prefix,
    Before(K),
    Never,
}

/// A [`Span`], borrowed. The order of spans is that of their first keys, and among those that begin alike any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpanRef<'a> {
    lower: &'a [u8],
    end: End<&'a [u8]>,
}

/// A [`Span`] whose bytes lie in a buffer among others'.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpanAt {
    at: u32,
    lower: u32,
    end: End<u32>,
}

impl SpanAt {
    /// The span; `bytes` are those that it was put into.
    #[inline]
    pub fn of(self, bytes: &[u8]) -> SpanRef<'_> {
        let (at, lower) = (self.at as usize, self.lower as usize);
        let end = match self.end {
            End::Point => End::Point,
            End::Prefix => End::Prefix,
            End::Before(end) => End::Before(&bytes[at + lower..at + lower + end as usize]),
            End::Never => End::Never,
        };
        SpanRef { lower: &bytes[at..at + lower], end }
    }
}

impl Span {
    /// All keys that begin with this one; with an empty one, all keys.
    pub fn prefix(prefix: &[u8]) -> Span {
        SpanRef::prefix(prefix).to_owned()
    }

    /// The keys between two bounds; `None`: there can be none.
    pub fn between(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Option<Span> {
        // The least key above another one is that with a zero behind it.
        let above = |key: &[u8]| {
            let mut above = Key::from(key);
            above.extend_from_slice(&[0]);
            above
        };
        let lower = match lower {
            Bound::Unbounded => Key::new(),
            Bound::Included(key) => Key::from(key),
            Bound::Excluded(key) => above(key),
        };
        let end = match upper {
            Bound::Unbounded => End::Never,
            Bound::Included(key) if *key == *lower => End::Point,
            Bound::Included(key) => End::Before(above(key)),
            Bound::Excluded(key) => End::Before(Key::from(key)),
        };
        match &end {
            End::Before(end) if *end <= lower => None,
            _ => Some(Span { lower, end }),
        }
    }

    /// Whether it has a key so long that it takes memory beside its own place.
    #[inline]
    pub(super) fn is_allocated(&self) -> bool {
        let takes = |key: &Key| key.allocated_bytes() > 0;
        takes(&self.lower) || matches!(&self.end, End::Before(end) if takes(end))
    }

    /// The same, borrowed.
    #[inline]
    pub fn borrow(&self) -> SpanRef<'_> {
        let end = match &self.end {
            End::Point => End::Point,
            End::Prefix => End::Prefix,
            End::Before(end) => End::Before(&**end),
            End::Never => End::Never,
        };
        SpanRef { lower: &self.lower, end }
    }
}

impl<'a> SpanRef<'a> {
    /// One key.
    #[inline]
    pub fn point(key: &'a [u8]) -> SpanRef<'a> {
        SpanRef { lower: key, end: End::Point }
    }

    /// All keys that begin with this one.
    #[inline]
    pub fn prefix(prefix: &'a [u8]) -> SpanRef<'a> {
        SpanRef { lower: prefix, end: End::Prefix }
    }

    /// All keys.
    pub fn all() -> SpanRef<'static> {
        SpanRef { lower: &[], end: End::Never }
    }

    /// The first key.
    #[inline]
    pub fn lower(self) -> &'a [u8] {
        self.lower
    }

    /// Whether it is of one key.
    #[inline]
    pub fn is_point(self) -> bool {
        self.end == End::Point
    }

    /// Whether `key` comes before the end.
    #[inline]
    pub fn ends_behind(self, key: &[u8]) -> bool {
        match self.end {
            End::Point => key <= self.lower,
            End::Prefix => key[..key.len().min(self.lower.len())] <= *self.lower,
            End::Before(end) => key < end,
            End::Never => true,
        }
    }

    /// Whether a key is in it.
    #[inline]
    pub fn contains(self, key: &[u8]) -> bool {
        self.lower <= key && self.ends_behind(key)
    }

    /// Whether a key can be in both.
    #[inline]
    pub fn overlaps(self, other: SpanRef<'_>) -> bool {
        self.ends_behind(other.lower) && other.ends_behind(self.lower)
    }

    /// Whether all keys of `other` are in it.
    pub fn covers(self, other: SpanRef<'_>) -> bool {
        self.lower <= other.lower && !self.ends_before(other)
    }

    /// Whether there can be a key behind its end that is not behind the other one's.
    pub(super) fn ends_before(self, other: SpanRef<'_>) -> bool {
        match (self.end, other.end) {
            (End::Never, _) => false,
            (_, End::Point) => !self.ends_behind(other.lower),
            (End::Before(end), End::Before(others)) => end < others,
            (End::Before(end), End::Prefix) => other.ends_behind(end),
            (End::Prefix, End::Prefix) => {
                let alike = self.lower.len().min(other.lower.len());
                let (own, rest) = self.lower.split_at(alike);
                match own.cmp(&other.lower[..alike]) {
                    Ordering::Less => true,
                    // Nothing comes behind keys that begin with these.
                    Ordering::Equal => rest.iter().any(|byte| *byte != u8::MAX),
                    Ordering::Greater => false,
                }
            }
            (End::Prefix, End::Before(others)) => {
                let mut end = Key::from(self.lower);
                end.turn_into_prefix_end() && *end < *others
            }
            (End::Prefix, End::Never) => self.lower.iter().any(|byte| *byte != u8::MAX),
            (End::Point, _) => other.ends_behind(self.lower),
            (End::Before(_), End::Never) => true,
        }
    }

    /// How many locks more than one it counts as: one that takes memory for long keys counts as several, since the number of locks
    /// is bounded for their memory.
    #[inline]
    pub(super) fn counts_more(self) -> usize {
        let end = if let End::Before(end) = self.end { end.len() } else { 0 };
        match unlikely(self.lower.len().max(end) > SHORT_KEY_BYTES) {
            true => (self.lower.len() + end).div_ceil(KEY_BYTES_PER_LOCK),
            false => 0,
        }
    }

    /// Whether they are the same.
    #[inline]
    pub fn is(self, other: SpanRef<'_>) -> bool {
        self.lower == other.lower && self.end == other.end
    }

    /// A copy at the end of a buffer.
    #[inline]
    pub(super) fn put(self, bytes: &mut Vec<u8>) -> SpanAt {
        let at = bytes.len() as u32;
        bytes.extend_from_slice(self.lower);
        let end = match self.end {
            End::Point => End::Point,
            End::Prefix => End::Prefix,
            End::Before(end) => {
                bytes.extend_from_slice(end);
                End::Before(end.len() as u32)
            }
            End::Never => End::Never,
        };
        SpanAt { at, lower: self.lower.len() as u32, end }
    }

    /// A copy.
    pub fn to_owned(self) -> Span {
        let end = match self.end {
            End::Point => End::Point,
            End::Prefix => End::Prefix,
            End::Before(end) => End::Before(Key::from(end)),
            End::Never => End::Never,
        };
        Span { lower: Key::from(self.lower), end }
    }
}
