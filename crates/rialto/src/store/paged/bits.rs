//! [`Bits`]: a set of small numbers, as a bitmap that grows.

/// A set of numbers. The lowest number that is absent is found quickly.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bits {
    words: Vec<u64>,
    len: usize,
}

impl Bits {
    /// How many numbers are in it.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn contains(&self, number: u32) -> bool {
        self.words.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 != 0)
    }

    /// Puts a number in. False: it was there.
    pub fn insert(&mut self, number: u32) -> bool {
        let at = number as usize / 64;
        if at >= self.words.len() {
            self.words.resize(at + 1, 0);
        }
        let bit = 1 << (number % 64);
        let is_new = self.words[at] & bit == 0;
        self.words[at] |= bit;
        self.len += usize::from(is_new);
        is_new
    }

    /// Takes a number out. False: it was not there.
    pub fn remove(&mut self, number: u32) -> bool {
        if !self.contains(number) {
            return false;
        }
        self.words[number as usize / 64] &= !(1 << (number % 64));
        self.len -= 1;
        true
    }

    /// Puts all numbers of another set in.
    pub fn insert_all(&mut self, other: &Bits) {
        self.words.resize(self.words.len().max(other.words.len()), 0);
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word |= other);
        self.len = self.words.iter().map(|word| word.count_ones() as usize).sum();
    }

    /// The numbers, from the lowest on.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.words).filter(|(_, word)| **word != 0).flat_map(|(at, &word)| {
            (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| 64 * at + bit)
        })
    }

    pub fn clear(&mut self) {
        self.words.clear();
        self.len = 0;
    }

    /// The 64 numbers from `64 * at` on, as bits.
    pub fn word(&self, at: usize) -> u64 {
        self.words.get(at).copied().unwrap_or(0)
    }

    /// One more than the highest number; 0 if there is none.
    pub fn end(&self) -> u32 {
        let last = self.words.iter().rposition(|&word| word != 0);
        last.map_or(0, |at| at as u32 * 64 + 64 - self.words[at].leading_zeros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use crate::io::Random;

    #[test]
    fn it_is_a_set() {
        let mut random = Random::new(7);
        let (mut bits, mut model) = (Bits::default(), BTreeSet::new());
        for _ in 0..10_000 {
            let number = random.below(300) as u32;
            match random.below(2) {
                0 => assert_eq!(bits.insert(number), model.insert(number)),
                _ => assert_eq!(bits.remove(number), model.remove(&number)),
            }
            assert_eq!(bits.len(), model.len());
            assert!(random.below(50) > 0 || bits.numbers().eq(model.iter().copied()));
            assert_eq!(bits.end(), model.last().map_or(0, |last| last + 1));
            let probe = random.below(400) as u32;
            assert_eq!(bits.contains(probe), model.contains(&probe));
            if random.below(1_000) == 0 {
                let mut more = Bits::default();
                for number in [random.below(400) as u32, random.below(400) as u32] {
                    more.insert(number);
                    model.insert(number);
                }
                bits.insert_all(&more);
            }
        }
    }
}
