//! [`ReadOnlyPlacement`]: which indexes are only read. A policy: it gets samples and returns changes, and does
//! nothing itself.

use hashbrown::{HashMap, HashSet};

use crate::ids::IndexId;
use crate::isolate::{RecordMode, Sample};

/// After so many samples the counts are forgotten.
const SAMPLES_MAX: u32 = 20;
/// The fewest known requests for an index, none of them exclusive, for it to count as only read.
const KNOWN_MIN: u64 = 256;
/// An index at the read-only executor counts as written if at least so many of the known requests for it were
/// exclusive, and these are at least one in so many of all requests.
const WRITES_MIN: u64 = 8;
const READS_PER_WRITE: u64 = 1_000;

/// A change for one index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
    /// Its keys go to the read-only executor.
    ToReadOnly(IndexId),
    /// Its keys go back to datasets.
    Back(IndexId),
}

/// Finds the indexes that are only read. At the read-only executor calls that read them do not conflict with each
/// other, and each call needs one executor for all of them. An index that is written after all goes back to datasets,
/// and stays there.
#[derive(Debug, Default)]
pub(super) struct ReadOnlyPlacement {
    samples: u32,
    /// For each index, the known requests at other executors, and the exclusive ones among them.
    asked: HashMap<IndexId, (u64, u64)>,
    /// For each index, the known exclusive requests at the read-only executor; and the number of all requests there.
    written: HashMap<IndexId, u64>,
    read: u64,
    /// The indexes that went back.
    back: HashSet<IndexId>,
}

impl ReadOnlyPlacement {
    /// Gets the requests at all executors since the last sample, and those at the read-only one. Now and then it
    /// returns changes.
    pub fn decide(&mut self, samples: &[Sample], at_read_only: &Sample) -> Vec<Move> {
        for (index, _, mode) in samples.iter().flat_map(|sample| &sample.keys) {
            let (asked, to_write) = self.asked.entry(*index).or_default();
            *asked += 1;
            *to_write += u64::from(*mode == RecordMode::Exclusive);
        }
        for (index, _, mode) in &at_read_only.keys {
            *self.written.entry(*index).or_default() += u64::from(*mode == RecordMode::Exclusive);
        }
        self.read += at_read_only.requests;
        self.samples += 1;
        if self.samples < SAMPLES_MAX {
            return Vec::new();
        }
        let is_read = |index: &IndexId, (asked, to_write): (u64, u64)| {
            asked >= KNOWN_MIN && to_write == 0 && !self.back.contains(index)
        };
        let read = self.asked.iter().filter(|(index, asked)| is_read(index, **asked));
        let mut moves: Vec<Move> = read.map(|(index, _)| Move::ToReadOnly(*index)).collect();
        for (&index, &writes) in &self.written {
            if writes >= WRITES_MIN && writes * READS_PER_WRITE >= self.read {
                self.back.insert(index);
                moves.push(Move::Back(index));
            }
        }
        self.asked.clear();
        self.written.clear();
        (self.samples, self.read) = (0, 0);
        moves
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Key;

    const READ: IndexId = IndexId(3);
    const WRITTEN: IndexId = IndexId(4);

    fn sample(asked: &[(IndexId, RecordMode, usize)]) -> Sample {
        let keys = asked
            .iter()
            .flat_map(|&(index, mode, times)| std::iter::repeat_n((index, Key::new(), mode), times));
        let keys: Vec<_> = keys.collect();
        Sample { requests: keys.len() as u64 * 16, keys }
    }

    #[test]
    fn what_is_only_read_goes_to_the_readers_and_once_it_is_written_comes_back_for_good() {
        use RecordMode::{Exclusive, Shared};
        let mut read_only = ReadOnlyPlacement::default();
        let reads =
            [sample(&[(READ, Shared, 40), (WRITTEN, Shared, 40)]), sample(&[(WRITTEN, Exclusive, 1)])];
        let none = sample(&[]);
        let mut after = |samples: &[Sample], at_read_only: &Sample| -> Vec<Move> {
            (0..SAMPLES_MAX).flat_map(|_| read_only.decide(samples, at_read_only)).collect()
        };
        let few = sample(&[(READ, Shared, 1)]);
        assert_eq!(after(&[few], &none), [], "too little is known");
        assert_eq!(after(&reads, &none), [Move::ToReadOnly(READ)]);
        let many = Sample { requests: 100_000, keys: vec![(READ, Key::new(), Exclusive)] };
        assert_eq!(after(std::slice::from_ref(&none), &many), [], "one in a hundred thousand");
        let busy = sample(&[(READ, Shared, 1_000), (READ, Exclusive, 40)]);
        assert_eq!(after(std::slice::from_ref(&none), &busy), [Move::Back(READ)]);
        assert_eq!(after(&reads, &none), []);
    }
}
