//! [`Readers`]: the number of readers at the read-only executor, spread over cache lines.

use std::sync::atomic::Ordering;

use crossbeam_utils::CachePadded;

use super::super::sync::{AtomicU32, AtomicU64, STRIPES};

/// One of the counters. A reader's is chosen by the number of its lock owner, so concurrent readers seldom share a
/// cache line.
#[derive(Debug, Default)]
struct ReaderStripe {
    readers: AtomicU32,
    /// The number of requests of these readers.
    requests: AtomicU64,
}

/// The number of readers, in several counters. A reader writes to one of them; a request that needs the table without
/// readers reads them all. The default has no counters, and never any reader.
#[derive(Debug, Default)]
pub(super) struct Readers(Box<[CachePadded<ReaderStripe>]>);

impl Readers {
    pub fn new() -> Readers {
        Readers((0..STRIPES).map(|_| CachePadded::default()).collect())
    }

    /// Whether these are the read-only executor's counters.
    pub fn can_be(&self) -> bool {
        !self.0.is_empty()
    }

    #[inline]
    fn stripe(&self, reader: u16) -> &ReaderStripe {
        &self.0[usize::from(reader) % STRIPES]
    }

    /// Counts one more reader, which reads the executor's state only after this.
    #[inline]
    pub fn come(&self, reader: u16) {
        self.stripe(reader).readers.fetch_add(1, Ordering::SeqCst);
    }

    #[inline]
    pub fn go(&self, reader: u16) {
        self.stripe(reader).readers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Counts a request of a reader.
    #[inline]
    pub fn count(&self, reader: u16) {
        self.stripe(reader).requests.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of readers. It includes threads that have counted themselves and will be refused.
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
