//! [`ReadOnlyPlacement`]: which indexes are only read. A policy: it is told what there was, says what to change, and does nothing itself.

use hashbrown::{HashMap, HashSet};

use crate::ids::IndexId;
use crate::isolate::{Look, RecordMode};

/// After so many looks what is known is forgotten.
const LOOKS: u32 = 20;
/// So many requests have to be known of an index, none of them to write.
const KNOWN_MIN: u64 = 256;
/// An index at the read-only executor is written if so many of the requests that are known were to write it, and these are at
/// least one in so many of all.
const WRITES_MIN: u64 = 8;
const READS_PER_WRITE: u64 = 1_000;

/// What is to be done with an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
    /// Its keys go to the read-only executor.
    ToReadOnly(IndexId),
    /// Its keys go back to datasets.
    Back(IndexId),
}

/// Finds those that are only read: at the read-only executor, calls that read them are in nobody's way, and each takes one executor
/// for all of them. One that is written after all goes back, and stays.
#[derive(Debug, Default)]
pub(super) struct ReadOnlyPlacement {
    looks: u32,
    /// How often each index was asked for at executors, of the requests that are known, and how often in exclusive mode.
    asked: HashMap<IndexId, (u64, u64)>,
    /// How often each was asked for at the read-only executor in exclusive mode; and all requests there.
    written: HashMap<IndexId, u64>,
    read: u64,
    /// Those that went back.
    back: HashSet<IndexId>,
}

impl ReadOnlyPlacement {
    /// What all executors, and the read-only one, were asked for since the last look. Gives what to change, now and then.
    pub fn look(&mut self, looks: &[Look], at_read_only: &Look) -> Vec<Move> {
        for (index, _, mode) in looks.iter().flat_map(|look| &look.keys) {
            let (asked, to_write) = self.asked.entry(*index).or_default();
            *asked += 1;
            *to_write += u64::from(*mode == RecordMode::Exclusive);
        }
        for (index, _, mode) in &at_read_only.keys {
            *self.written.entry(*index).or_default() += u64::from(*mode == RecordMode::Exclusive);
        }
        self.read += at_read_only.requests;
        self.looks += 1;
        if self.looks < LOOKS {
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
        (self.looks, self.read) = (0, 0);
        moves
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Key;

    const READ: IndexId = IndexId(3);
    const WRITTEN: IndexId = IndexId(4);

    fn look(asked: &[(IndexId, RecordMode, usize)]) -> Look {
        let keys = asked
            .iter()
            .flat_map(|&(index, mode, times)| std::iter::repeat_n((index, Key::new(), mode), times));
        let keys: Vec<_> = keys.collect();
        Look { requests: keys.len() as u64 * 16, keys }
    }

    #[test]
    fn what_is_only_read_goes_to_the_readers_and_once_it_is_written_comes_back_for_good() {
        use RecordMode::{Exclusive, Shared};
        let mut read_only = ReadOnlyPlacement::default();
        let reads = [look(&[(READ, Shared, 40), (WRITTEN, Shared, 40)]), look(&[(WRITTEN, Exclusive, 1)])];
        let none = look(&[]);
        let mut after = |looks: &[Look], at_read_only: &Look| -> Vec<Move> {
            (0..LOOKS).flat_map(|_| read_only.look(looks, at_read_only)).collect()
        };
        let few = look(&[(READ, Shared, 1)]);
        assert_eq!(after(&[few], &none), [], "too little is known");
        assert_eq!(after(&reads, &none), [Move::ToReadOnly(READ)]);
        let many = Look { requests: 100_000, keys: vec![(READ, Key::new(), Exclusive)] };
        assert_eq!(after(std::slice::from_ref(&none), &many), [], "one in a hundred thousand");
        let busy = look(&[(READ, Shared, 1_000), (READ, Exclusive, 40)]);
        assert_eq!(after(std::slice::from_ref(&none), &busy), [Move::Back(READ)]);
        assert_eq!(after(&reads, &none), []);
    }
}
