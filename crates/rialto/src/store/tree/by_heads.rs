//! The usual look-up of a key, by heads alone.
//!
//! The head of a number, and of most keys behind their node's prefix, is the whole suffix, and nearly always decides.
//! In an inner node the entry mostly lies at the position that the key's share of the node's interval gives. In a leaf
//! the key is in the entry that the heads give, or absent. [`Tree::get_any`] begins the look-up anew, and compares
//! whole keys, if the heads do not decide, if a latch is held, if a node has changed, or if it is not at hand.

use std::sync::atomic::Ordering;

use super::key::{HEAD_BYTES, SearchKey};
use super::node::{Control, Node};
use super::nodes::Nodes;
use super::search::Fraction;
use super::{Found, Leaf, Tree};
use crate::ids::Lsn;
use crate::unlikely::unlikely;

impl<const W: usize> Node<W> {
    /// The entry of an inner node whose child covers a key with this head, and the key's share of the child's interval;
    /// for the first and the last entry the share is a guess of one half. `None`: a head is equal, and the tails have
    /// to decide.
    #[inline(always)]
    pub(super) fn slot_of_head(&self, control: Control<W>, head: u64) -> Option<(usize, Fraction)> {
        let count = control.count();
        // Entry 0 stands for everything below entry 1.
        if !unlikely(count < 3) {
            let (low, high) = (self.head(1), self.head(count - 1));
            if low < head && head < high {
                let slot = 1 + Fraction::between(head, low, high).down(count - 2).min(count - 3);
                let (low, high) = (self.head(slot), self.head(slot + 1));
                if low < head && head < high {
                    return Some((slot, Fraction::between(head, low, high)));
                }
            }
        }
        self.slot_by_halving(count, head)
    }

    #[inline(never)]
    fn slot_by_halving(&self, count: usize, head: u64) -> Option<(usize, Fraction)> {
        let up_to = self.heads_up_to(count, head);
        if up_to <= 1 {
            return Some((0, Fraction::HALF));
        }
        let (slot, low) = (up_to - 1, self.head(up_to - 1));
        if low == head {
            return None;
        }
        let high = if up_to < count { self.head(up_to) } else { 0 };
        // The heads of a node that is changing may have any value.
        let share =
            if low < head && head < high { Fraction::between(head, low, high) } else { Fraction::HALF };
        Some((slot, share))
    }
}

impl<N: Nodes<W>, const W: usize> Tree<N, W> {
    /// As [`Tree::try_get`]. `None`: take the long way.
    #[inline(always)]
    pub(super) fn get_by_heads(&self, probe: &SearchKey<'_>) -> Option<Found> {
        // The usual key is a number, whose head is read by a shorter way.
        match probe.is_short() {
            true => self.get_by_these(probe.key.len(), |prefix| probe.head_of_short(prefix)),
            false => self.get_by_these(probe.key.len(), |prefix| probe.head(prefix)),
        }
    }

    /// The same for a key of so many bytes, whose head behind a prefix `head_behind` gives.
    #[inline(always)]
    fn get_by_these(&self, bytes: usize, head_behind: impl Fn(usize) -> u64) -> Option<Found> {
        self.begin_descent();
        let (mut number, mut node) = self.nodes.at_hand(self.root)?;
        let mut version = node.latch.try_read()?;
        if !self.nodes.is(node, self.root) {
            return None;
        }
        let mut control = node.control();
        let mut share = Fraction::HALF;
        while control.level() != 0 {
            let slot;
            (slot, share) = node.slot_of_head(control, head_behind(control.prefix_bytes()))?;
            let id = node.child(slot);
            let (child_number, child) = self.nodes.at_hand(id)?;
            let child_version = child.latch.try_read()?;
            if !node.latch.validate(version) || !self.nodes.is(child, id) {
                return None;
            }
            (number, node, version) = (child_number, child, child_version);
            control = node.control();
        }
        let (count, prefix) = (control.count(), control.prefix_bytes());
        let head = head_behind(prefix);
        let (at, value) = node.find_by_head(count, head, bytes.wrapping_sub(prefix), share.of(count))?;
        let removal = Lsn(node.removal.load(Ordering::Relaxed));
        let leaf = Leaf { node: number, version };
        node.latch.validate(version).then_some(Found { value, leaf, at: at as u32, removal })
    }
}

impl<const W: usize> Node<W> {
    /// Where in a leaf a key with this head and a suffix of so many bytes lies, or would lie, and its value if it is
    /// present. The search begins at `guess`. `None`: the head does not decide.
    #[inline(always)]
    pub(super) fn find_by_head(
        &self,
        count: usize,
        head: u64,
        suffix_bytes: usize,
        guess: usize,
    ) -> Option<(usize, Option<u64>)> {
        // A key lies only once in a leaf, so its entry decides without a look at the neighbours.
        if guess < count && self.is_entry_of(guess, head, suffix_bytes) {
            return Some((guess, Some(self.value(guess))));
        }
        let at = self.heads_below_near(count, head, guess);
        let there = at < count && self.head(at) == head;
        // The head of another key may be equal: a key with zeros at its end, or a longer one.
        if there && !self.is_entry_of(at, head, suffix_bytes) {
            return None;
        }
        Some((at, there.then(|| self.value(at))))
    }

    /// Whether entry `at` belongs to a suffix of so many bytes with this head and no tail.
    #[inline(always)]
    fn is_entry_of(&self, at: usize, head: u64, suffix_bytes: usize) -> bool {
        // The tag of a suffix without a tail is its length; the tag of a longer suffix is never that small.
        self.head(at) == head && self.tag(at) == suffix_bytes as u64 && suffix_bytes <= HEAD_BYTES
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::io::Random;
    use crate::store::Budget;
    use crate::store::tree::{Admit, Index, Insert, NodePool};

    /// Dense numbers, numbers in heaps, and byte strings of all lengths up to twice a head, many of which are prefixes
    /// of others or end in zeros.
    #[test]
    fn keys_are_found_by_heads_as_by_the_long_way() {
        let mut random = Random::new(Random::seed_from_environment());
        let budget = Arc::new(Budget::new(256 << 20));
        let pool = NodePool::new(256 << 20, budget).unwrap();
        for shape in 0..4 {
            let index = Index::new(pool.clone()).unwrap();
            let mut draw = || -> Vec<u8> {
                let number = random.below(30_000) as u32;
                match shape {
                    0 => number.to_be_bytes().to_vec(),
                    1 => (u64::from(number % 7) << 40 | u64::from(number)).to_be_bytes().to_vec(),
                    2 => (0..random.below(9)).map(|_| random.below(3) as u8).collect(),
                    _ => (0..random.below(17)).map(|_| random.below(256) as u8 & 0x81).collect(),
                }
            };
            for value in 0..20_000 {
                let key = draw();
                let Ok(Found { value: there, .. }) = index.get_any(&key);
                let expected = there.map_or(Insert::Done, Insert::Exists);
                assert_eq!(index.insert(&key, value, || Admit::Go), Ok(expected));
            }
            let mut decided = 0;
            for _ in 0..20_000 {
                let key = draw();
                let Ok(found) = index.get_any(&key);
                assert_eq!(index.get(&key), found, "{key:02x?}");
                let by_heads = index.get_by_heads(&SearchKey::new(&key));
                assert!(by_heads.is_none_or(|by_heads| by_heads == found), "{key:02x?}");
                decided += u32::from(by_heads.is_some());
            }
            // Numbers are nearly all decided by their heads.
            assert!(shape > 1 || decided > 19_000, "{decided} of 20000");
        }
    }
}
