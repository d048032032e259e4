//! [`TimeHistogram`]: the distribution of times, in buckets that grow with them.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Each doubling is split in four, so that a bucket's ends are at most a quarter apart.
const SPLIT_BITS: u32 = 2;
/// Times from 2^40 ns (18 minutes) on share the last bucket.
const BITS_MAX: u32 = 40;
/// How many buckets there are.
const BUCKETS: usize = ((BITS_MAX - SPLIT_BITS + 1) << SPLIT_BITS) as usize;

#[inline]
fn bucket(ns: u64) -> usize {
    let ns = ns.min((1 << BITS_MAX) - 1);
    // The position of the highest bit above those that split.
    let doublings = (ns >> SPLIT_BITS).checked_ilog2().map_or(0, |bits| bits + 1);
    if doublings == 0 {
        return ns as usize;
    }
    let within = (ns >> (doublings - 1)) & ((1 << SPLIT_BITS) - 1);
    ((doublings as usize) << SPLIT_BITS) + within as usize
}

/// The least time of a bucket, in nanoseconds.
fn least(bucket: usize) -> u64 {
    let (doublings, within) = (bucket >> SPLIT_BITS, bucket as u64 & ((1 << SPLIT_BITS) - 1));
    match doublings {
        0 => within,
        _ => ((1 << SPLIT_BITS) + within) << (doublings - 1),
    }
}

/// Times in buckets whose ends are at most a quarter apart.
#[derive(Clone, PartialEq, Eq)]
pub struct TimeHistogram {
    counts: Box<[u64; BUCKETS]>,
}

impl Default for TimeHistogram {
    fn default() -> TimeHistogram {
        TimeHistogram { counts: Box::new([0; BUCKETS]) }
    }
}

impl TimeHistogram {
    /// How many times there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How many times are in buckets that begin at this time or later.
    pub fn count_from(&self, time: Duration) -> u64 {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let counts = self.counts.iter().enumerate();
        counts.filter(|(nth, _)| least(*nth) >= ns).map(|(_, count)| count).sum()
    }

    /// The time that a share (0 to 1) of all times is at or below: the middle of its bucket. `None` if there are no
    /// times.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let count = self.count();
        let wanted = ((count as f64 * share).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        let (from, to) = (least(found), least(found + 1));
        Some(Duration::from_nanos(from + (to - from) / 2))
    }

    /// The times that were added since an earlier copy.
    #[must_use]
    pub fn since(&self, earlier: &TimeHistogram) -> TimeHistogram {
        let mut since = self.clone();
        for (count, earlier) in since.counts.iter_mut().zip(earlier.counts.iter()) {
            *count = count.saturating_sub(*earlier);
        }
        since
    }
}

impl fmt::Debug for TimeHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |share| self.quantile(share);
        write!(f, "TimeHistogram({} times, p50 {:?}, p99 {:?})", self.count(), at(0.5), at(0.99))
    }
}

/// The buckets while they are counted.
pub(super) struct HistogramCells([AtomicU64; BUCKETS]);

impl Default for HistogramCells {
    fn default() -> HistogramCells {
        HistogramCells([const { AtomicU64::new(0) }; BUCKETS])
    }
}

impl HistogramCells {
    /// The cell that counts times like this one.
    #[inline]
    pub fn cell(&self, ns: u64) -> &AtomicU64 {
        &self.0[bucket(ns)]
    }

    pub fn add_to(&self, total: &mut TimeHistogram) {
        for (total, cell) in total.counts.iter_mut().zip(&self.0) {
            *total += cell.load(Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lies_in_its_bucket_and_buckets_are_narrow() {
        let times =
            (0..4_096).chain((12..45).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits, (1 << bits) + 1]));
        for ns in times {
            let found = bucket(ns);
            let capped = ns.min((1 << BITS_MAX) - 1);
            assert!(found < BUCKETS, "{ns}");
            assert!(least(found) <= capped && capped < least(found + 1), "{ns} in {found}");
            let width = least(found + 1) - least(found);
            assert!(width <= (least(found) / 4).max(1), "{ns}: {width}");
        }
        assert_eq!(least(BUCKETS), 1 << BITS_MAX);
    }

    #[test]
    fn quantiles_and_differences() {
        let cells = HistogramCells::default();
        let add = |ns: u64, by: u64| cells.cell(ns).fetch_add(by, Ordering::Relaxed);
        let snapshot = || {
            let mut total = TimeHistogram::default();
            cells.add_to(&mut total);
            total
        };
        assert_eq!(snapshot().quantile(0.5), None);
        add(1_000, 90);
        let before = snapshot();
        add(100_000, 10);
        let all = snapshot();
        let near = |found: Option<Duration>, expected: u64| {
            let found = found.unwrap().as_nanos() as u64;
            found.abs_diff(expected) * 4 <= expected
        };
        assert!(near(all.quantile(0.9), 1_000) && near(all.quantile(0.91), 100_000), "{all:?}");
        let later = all.since(&before);
        assert_eq!(later.count(), 10);
        let over = |us| all.count_from(Duration::from_micros(us));
        assert_eq!([0, 50, 1_000].map(over), [100, 10, 0]);
        assert!(near(later.quantile(0.0), 100_000), "{later:?}");
    }
}
