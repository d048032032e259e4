//! Hidden row numbers: how they are handed out, and which of them a transaction slot has at hand.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ids::Lsn;

/// A transaction slot takes this many row numbers at a time. So slots insert into different index leaves, and a slot
/// that takes numbers of several executors in turn inserts into a different leaf for each of them.
const ROW_NUMBER_BLOCK: u64 = 1024;

/// The share of an executor in the row numbers of a table: one block in `among`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NumberShare {
    /// The executor that has the share.
    pub executor: u16,
    /// How many executors have a share.
    pub among: u16,
}

impl NumberShare {
    /// The share that a number belongs to.
    #[inline]
    pub fn of(number: u64, among: u16) -> NumberShare {
        let executor = (number / ROW_NUMBER_BLOCK % u64::from(among)) as u16;
        NumberShare { executor, among }
    }

    /// The first number in it from this one on.
    fn first_from(self, number: u64) -> u64 {
        let (executor, among) = (u64::from(self.executor), u64::from(self.among));
        let there = u64::from(NumberShare::of(number, self.among).executor);
        match (among + executor - there) % among {
            0 => number,
            blocks => (number / ROW_NUMBER_BLOCK + blocks) * ROW_NUMBER_BLOCK,
        }
    }
}

/// A hidden row number above those of most rows that openings before this place in the log have inserted.
pub(crate) fn first_row_number(opened_at: Lsn) -> u64 {
    (opened_at.0 + 1) << 16
}

/// Hands out hidden row numbers, never one twice.
#[derive(Debug)]
pub(crate) struct RowNumbers {
    next: AtomicU64,
}

impl RowNumbers {
    pub fn new(first: u64) -> RowNumbers {
        RowNumbers { next: AtomicU64::new(first) }
    }

    /// The first number that was not handed out; nor was any later one.
    pub fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Notes a number that a row was given elsewhere. It is not handed out from now on, except from a block that was
    /// taken before.
    pub fn note(&self, number: u64) {
        self.next.fetch_max(number.saturating_add(1), Ordering::Relaxed);
    }

    /// A block of numbers of this share, or of any share: what is left of it.
    fn take_block(&self, share: Option<NumberShare>) -> Range<u64> {
        let mut next = self.next();
        loop {
            let first = share.map_or(next, |share| share.first_from(next));
            let end = (first / ROW_NUMBER_BLOCK + 1) * ROW_NUMBER_BLOCK;
            match self.next.compare_exchange_weak(next, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return first..end,
                Err(now) => next = now,
            }
        }
    }
}

/// The numbers of a table that a transaction slot has at hand: the rest of a block, and the rest of one block of each
/// share that it was asked for.
#[derive(Debug, Default)]
pub(crate) struct NumbersAtHand {
    any: Range<u64>,
    /// One range for each executor.
    of_shares: Vec<Range<u64>>,
}

impl NumbersAtHand {
    /// A number of this share, or of any share.
    #[inline]
    pub fn take(&mut self, numbers: &RowNumbers, share: Option<NumberShare>) -> u64 {
        let block = match share {
            None => &mut self.any,
            Some(share) => {
                if self.of_shares.len() != usize::from(share.among) {
                    // The number of shares has changed.
                    self.of_shares = vec![0..0; usize::from(share.among)];
                }
                &mut self.of_shares[usize::from(share.executor)]
            }
        };
        if block.is_empty() {
            *block = numbers.take_block(share);
        }
        let number = block.start;
        block.start += 1;
        number
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_number_is_of_the_share_that_was_asked_for_and_never_given_twice() {
        for first in [1, ROW_NUMBER_BLOCK, 1 << 16] {
            let numbers = RowNumbers::new(first);
            let mut slots = [NumbersAtHand::default(), NumbersAtHand::default()];
            let mut given = HashSet::new();
            for nth in 0..200 * ROW_NUMBER_BLOCK {
                let among = [1, 3, 16][(nth / (5 * ROW_NUMBER_BLOCK) % 3) as usize];
                let share = NumberShare { executor: (nth * 7 % u64::from(among)) as u16, among };
                let asked = (nth % 11 != 0).then_some(share);
                let number = slots[(nth % 2) as usize].take(&numbers, asked);
                assert!(number >= first && number < numbers.next());
                assert!(
                    asked.is_none_or(|share| NumberShare::of(number, among) == share),
                    "{number} of {share:?}"
                );
                assert!(given.insert(number), "{number} is given twice");
            }
        }
    }

    #[test]
    fn a_slot_that_asks_for_no_share_takes_whole_blocks() {
        let first = ROW_NUMBER_BLOCK + 6;
        let numbers = RowNumbers::new(first);
        let mut slot = NumbersAtHand::default();
        let taken: Vec<u64> = (0..ROW_NUMBER_BLOCK).map(|_| slot.take(&numbers, None)).collect();
        assert_eq!(taken, (first..first + ROW_NUMBER_BLOCK).collect::<Vec<u64>>());
        assert_eq!(numbers.next(), 3 * ROW_NUMBER_BLOCK);
    }
}
