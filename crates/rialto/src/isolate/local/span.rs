//! [`Span`]: the keys that a local lock covers.

use std::cmp::Ordering;
use std::ops::Bound;

use crate::row::Key;
use crate::unlikely::unlikely;

/// A longer key takes memory apart from its lock's.
const SHORT_KEY_BYTES: usize = 44;

/// A long key counts as one more lock for each so many bytes.
const KEY_BYTES_PER_LOCK: usize = 256;

/// Adjacent keys of one index: one key, all keys with a prefix, or those between two bounds. It contains at least one
/// key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The first key.
    lower: Key,
    end: End<Key>,
}

/// Where a span ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End<K> {
    /// At its first key.
    Point,
    /// Behind all keys that begin with the first one.
    Prefix,
    Before(K),
    Never,
}

/// A [`Span`], borrowed. Spans are ordered by their first keys; the order of spans with the same first key has no
/// meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpanRef<'a> {
    lower: &'a [u8],
    end: End<&'a [u8]>,
}

/// A [`Span`] whose bytes lie in a buffer with those of others.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpanAt {
    at: u32,
    lower: u32,
    end: End<u32>,
}

impl SpanAt {
    /// The span; `bytes` is the buffer that it was put into.
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
    /// All keys that begin with `prefix`; with an empty one, all keys.
    pub fn prefix(prefix: &[u8]) -> Span {
        SpanRef::prefix(prefix).to_owned()
    }

    /// The keys between two bounds; `None`: there can be none.
    pub fn between(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Option<Span> {
        // The least key above another one is that key with a zero appended.
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

    /// Whether it has a key that is so long that it is allocated separately.
    #[inline]
    pub(super) fn is_allocated(&self) -> bool {
        let takes = |key: &Key| key.allocated_bytes() > 0;
        takes(&self.lower) || matches!(&self.end, End::Before(end) if takes(end))
    }

    /// Borrows it.
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

    /// Whether it is of one key only.
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

    /// Whether a key is in the span.
    #[inline]
    pub fn contains(self, key: &[u8]) -> bool {
        self.lower <= key && self.ends_behind(key)
    }

    /// Whether there can be a key that is in both.
    #[inline]
    pub fn overlaps(self, other: SpanRef<'_>) -> bool {
        self.ends_behind(other.lower) && other.ends_behind(self.lower)
    }

    /// Whether all keys of `other` are in it.
    pub fn covers(self, other: SpanRef<'_>) -> bool {
        self.lower <= other.lower && !self.ends_before(other)
    }

    /// Whether a key can lie behind the end of this span and not behind that of the other.
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
                    // Unless they are all 0xff, there is a key behind those that begin with these.
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

    /// How many additional locks it counts as. The number of locks is bounded because of their memory, so a span with
    /// long keys counts as several.
    #[inline]
    pub(super) fn counts_more(self) -> usize {
        let end = if let End::Before(end) = self.end { end.len() } else { 0 };
        match unlikely(self.lower.len().max(end) > SHORT_KEY_BYTES) {
            true => (self.lower.len() + end).div_ceil(KEY_BYTES_PER_LOCK),
            false => 0,
        }
    }

    /// Whether the two spans are equal.
    #[inline]
    pub fn is(self, other: SpanRef<'_>) -> bool {
        self.lower == other.lower && self.end == other.end
    }

    /// Appends a copy to a buffer.
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
