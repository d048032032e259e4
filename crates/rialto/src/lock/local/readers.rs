//! [`Readers`]: who reads at the readers' executor, each counted in a cache line of his own.

use std::sync::atomic::Ordering;

use crossbeam_utils::CachePadded;

use super::super::sync::{AtomicU32, AtomicU64, STRIPES};

/// Readers are counted by the numbers of their owners: two at a time are in different lines but by chance.
#[derive(Debug, Default)]
struct Stripe {
    readers: AtomicU32,
    /// How many requests these have had.
    requests: AtomicU64,
}

/// Counts readers. Whoever comes or goes touches one line, and whoever needs to know whether there are any looks at all of them.
/// None can be at one that is made by `default`.
#[derive(Debug, Default)]
pub(super) struct Readers(Box<[CachePadded<Stripe>]>);

impl Readers {
    pub fn new() -> Readers {
        Readers((0..STRIPES).map(|_| CachePadded::default()).collect())
    }

    /// Whether there can be any.
    pub fn can_be(&self) -> bool {
        !self.0.is_empty()
    }

    #[inline]
    fn stripe(&self, reader: u16) -> &Stripe {
        &self.0[usize::from(reader) % STRIPES]
    }

    /// One more. He looks at the executor's state only after this.
    #[inline]
    pub fn come(&self, reader: u16) {
        self.stripe(reader).readers.fetch_add(1, Ordering::SeqCst);
    }

    #[inline]
    pub fn go(&self, reader: u16) {
        self.stripe(reader).readers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Counts a request of a reader's.
    #[inline]
    pub fn count(&self, reader: u16) {
        self.stripe(reader).requests.fetch_add(1, Ordering::Relaxed);
    }

    /// How many there are; one who has just come is counted, though he may be about to go.
    pub fn number(&self) -> u32 {
        self.0.iter().map(|stripe| stripe.readers.load(Ordering::SeqCst)).sum()
    }

    pub fn are_there(&self) -> bool {
        self.0.iter().any(|stripe| stripe.readers.load(Ordering::SeqCst) > 0)
    }

    pub fn requests(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.requests.load(Ordering::Relaxed)).sum()
    }
}
