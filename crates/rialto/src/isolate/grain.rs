//! How much a lock on a row locks: the row, or the rows of about a page.

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::ids::IndexId;
use crate::store::paged::LeafEnds;

/// How much a lock on a row of a disk-resident table locks ([`Options::lock_grain`](crate::Options::lock_grain)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum LockGrain {
    /// The row.
    #[default]
    Record,
    /// The row and its neighbours, half a page to one page of them, as in Charm's paper: rows whose keys have the same prefix. All
    /// rows of an index of one page are locked together.
    /// The length of the prefix is found for each index when the database is opened, from the pages, and stays. So rows go on to
    /// be locked together when pages are split. In an index that is made later a lock locks a row. It is for comparisons, and
    /// for [`Locks::Central`](crate::Locks::Central) alone.
    Page,
}

/// By index: the length, in bits, of the prefix of a key that is locked. Rows with the same prefix are locked together.
#[derive(Debug, Default)]
pub(crate) struct Grains(HashMap<IndexId, u32>);

impl Grains {
    /// From leaves of each index. The keys of an index of one leaf are locked together.
    pub fn of_leaves(leaves: impl IntoIterator<Item = (IndexId, Vec<LeafEnds>)>) -> Grains {
        let of = |(index, leaves): (IndexId, Vec<LeafEnds>)| {
            if leaves.len() == 1 {
                return Some((index, 0));
            }
            let mut bits: Vec<u32> = leaves.iter().map(|(first, last)| prefix_bits(first, last)).collect();
            bits.sort_unstable();
            Some((index, *bits.get(bits.len() / 2)?))
        };
        Grains(leaves.into_iter().filter_map(of).collect())
    }

    /// The same for one index, of so many bits.
    #[cfg(test)]
    pub fn of_bits(index: IndexId, bits: u32) -> Grains {
        Grains([(index, bits)].into())
    }

    /// What stands for a key: its prefix.
    pub fn of_key(&self, index: IndexId, key: &[u8]) -> SmallVec<[u8; 32]> {
        let Some(&bits) = self.0.get(&index) else { return SmallVec::from_slice(key) };
        let (whole, rest) = (bits as usize / 8, bits % 8);
        let mut granule = SmallVec::from_slice(&key[..whole.min(key.len())]);
        if let Some(byte) = key.get(whole).filter(|_| rest > 0) {
            granule.push(byte & !(0xff >> rest));
        }
        granule
    }
}

/// The length, in bits, of the shortest prefix that at most as many keys share as there may be from `first` to `last`, and more
/// than half as many. It depends on the distance of the two alone: keys on both sides of a round number have a short prefix in
/// common, however near they are.
fn prefix_bits(first: &[u8], last: &[u8]) -> u32 {
    let bytes = first.len().max(last.len());
    let digit = |key: &[u8], at: usize| i32::from(key.get(at).copied().unwrap_or(0));
    // Keys are read as numbers of digits of eight bits. This counts `last - first + 1` keys, beginning with the last digit;
    // the highest bit of that count is the number of bits behind the prefix.
    let (mut bits, mut carry) = (8 * bytes as u32, 1);
    for at in (0..bytes).rev() {
        let sum = digit(last, at) - digit(first, at) + carry;
        carry = sum.div_euclid(256);
        if let Some(highest) = sum.rem_euclid(256).checked_ilog2() {
            bits = 8 * (at as u32 + 1) - highest;
        }
    }
    // A carry out of the first digit: they are all keys of this length.
    if carry > 0 { 0 } else { bits }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(first: u32, last: u32) -> LeafEnds {
        (first.to_be_bytes().into(), last.to_be_bytes().into())
    }

    #[test]
    fn neighbours_are_locked_together_as_many_as_a_page_has() {
        let (index, other) = (IndexId(1), IndexId(2));
        let leaves = (0..9).map(|leaf_number| leaf(16 * leaf_number, 16 * leaf_number + 15)).collect();
        let grains = Grains::of_leaves([(index, leaves), (other, Vec::new())]);
        let of = |index, key: u32| grains.of_key(index, &key.to_be_bytes());
        for key in 0..2_000 {
            assert_eq!(of(index, key), of(index, key / 16 * 16), "{key}");
            assert_ne!(of(index, key), of(index, key + 16), "{key}");
            assert_eq!(of(other, key).as_slice(), key.to_be_bytes());
        }
        assert_eq!(grains.of_key(index, b"ab").as_slice(), b"ab", "shorter than what tells");
    }

    #[test]
    fn the_keys_of_a_single_leaf_are_locked_together() {
        let grains = Grains::of_leaves([(IndexId(1), vec![leaf(1, 5)])]);
        let of = |key: u32| grains.of_key(IndexId(1), &key.to_be_bytes());
        assert!((0..100).all(|key| of(key) == of(1)));
    }

    #[test]
    fn a_granule_is_as_long_as_a_leaf_wherever_the_leaf_begins() {
        for rows in 1..300_u32 {
            for first in (0..1_000).step_by(7) {
                let (one, last) = leaf(first, first + rows - 1);
                let granule = 1 << (32 - prefix_bits(&one, &last));
                assert!(granule <= rows && rows < 2 * granule, "{first} {rows} {granule}");
            }
        }
    }

    #[test]
    fn prefixes_of_keys_of_other_lengths() {
        for (first, last, bits) in [
            (&b""[..], &b""[..], 0),
            (b"ab", b"ab", 16),
            (b"a", b"a\x01", 15),
            (&[7, 255], &[8], 15),
            (&[0], &[255], 0),
            (&[0, 0], &[255, 254], 1),
            (&[1, 9, 9], &[3, 9, 8], 7),
        ] {
            assert_eq!(prefix_bits(first, last), bits, "{first:?} {last:?}");
        }
    }
}
