//! Searches in a node: by the heads of its entries, and by their tails where heads are equal.

#![allow(unsafe_code)]

use super::key::{HEAD_BYTES, SearchKey, tail_word, tail_words};
use super::node::{Control, ENTRIES_MAX, LONG, Node, entries_max};
use std::cmp::Ordering as Order;
use std::hint::select_unpredictable;
use std::sync::atomic::Ordering;

/// How far into a node's interval a key lies, from 0 to below 1: about that share of its entries lies before it.
#[derive(Clone, Copy)]
pub(super) struct Fraction(f64);

impl Fraction {
    /// The middle.
    pub(super) const HALF: Fraction = Fraction(0.5);

    /// Where `head` lies between two others: `low <= head <= high`, and `low < high`.
    #[inline(always)]
    pub(super) fn between(head: u64, low: u64, high: u64) -> Fraction {
        debug_assert!(low <= head && head <= high && low < high);
        // Halved to numbers of 63 bits, which one instruction converts.
        let half = |difference: u64| (difference >> 1) as i64 as f64;
        Fraction(half(head - low) / half((high - low) | 2))
    }

    /// About this share of `count` entries, which are at most those of a node.
    #[inline(always)]
    pub(super) fn of(self, count: usize) -> usize {
        // Rounded, so that it is exact in a node of consecutive numbers.
        Fraction::whole(self.0 * count as i64 as f64 + 0.5)
    }

    /// The same, rounded down.
    #[inline(always)]
    pub(super) fn down(self, count: usize) -> usize {
        Fraction::whole(self.0 * count as i64 as f64)
    }

    #[inline(always)]
    fn whole(entries: f64) -> usize {
        debug_assert!((0.0..=ENTRIES_MAX as f64 + 0.5).contains(&entries));
        // SAFETY: the share is a quotient of two numbers, both not negative, of which the second is at least 1 and not
        // below the first. So it is from 0 to 1; times at most ENTRIES_MAX it fits any integer.
        unsafe { entries.to_int_unchecked::<i64>() as usize }
    }
}

/// Whether [`Node::rank`] counts an entry that equals the key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Equal {
    Counted,
    NotCounted,
}

impl<const W: usize> Node<W> {
    /// How many of the first `count` entries (at most half the words of the body) have heads that are `below` something; heads
    /// ascend, so these come first.
    ///
    /// It is branch-free, because heads are unpredictable, in steps of halving powers of two. After the first step the
    /// answer lies either below `step`, or among the last `step` entries, which may overlap the first ones; so no later
    /// step can lead past the end. Positions count words, two for an entry, to save a multiplication.
    #[inline(always)]
    fn partition_heads(&self, count: usize, below: impl Fn(u64) -> bool) -> usize {
        if count == 0 {
            return 0;
        }
        debug_assert!(count <= entries_max(W));
        let head_before = |words: usize| {
            // SAFETY: 2 <= words <= 2 * count <= W by the argument above.
            unsafe { self.body.get_unchecked(words - 2) }.load(Ordering::Relaxed)
        };
        let first = 2usize << count.ilog2();
        let mut at = select_unpredictable(below(head_before(first)), 2 * count + 2 - first, 0);
        let mut go = |step: usize| at = select_unpredictable(below(head_before(at + step)), at + step, at);
        // Written out, so that each step is three instructions with a constant distance.
        if first >= 32 {
            // Only large nodes have so many entries.
            if entries_max(W) >= 256 {
                let mut step = first;
                while step > 256 {
                    step >>= 1;
                    go(step);
                }
            }
            if first >= 256 {
                go(128);
            }
            if first >= 128 {
                go(64);
            }
            if first >= 64 {
                go(32);
            }
            go(16);
            go(8);
            go(4);
            go(2);
        } else {
            let mut step = first;
            while step > 2 {
                step >>= 1;
                go(step);
            }
        }
        at / 2
    }

    #[inline(always)]
    fn heads_below(&self, count: usize, head: u64) -> usize {
        self.partition_heads(count, |this| this < head)
    }

    /// The same, beginning at a guess. Halving touches a line of the node at each step, and in a big table's leaf each
    /// line comes from memory; a good guess touches one.
    #[inline(always)]
    pub(super) fn heads_below_near(&self, count: usize, head: u64, guess: usize) -> usize {
        let guess = guess.min(count.saturating_sub(1));
        let (mut low, mut high) = (0, count);
        let mut step = 1;
        if count > 0 && self.head(guess) < head {
            low = guess + 1;
            while low + step <= high {
                if self.head(low + step - 1) >= head {
                    high = low + step - 1;
                    break;
                }
                low += step;
                step *= 2;
            }
        } else {
            high = guess;
            while low + step <= high {
                if self.head(high - step) < head {
                    low = high - step + 1;
                    break;
                }
                high -= step;
                step *= 2;
            }
        }
        while low < high {
            let mid = low.midpoint(high);
            if self.head(mid) < head {
                low = mid + 1;
            } else {
                high = mid;
            }
        }
        low
    }

    /// How far into the interval of the child at `slot` the key lies, if the neighbours' heads tell.
    #[inline(always)]
    pub(super) fn share(&self, control: Control<W>, slot: usize, probe: &SearchKey<'_>) -> Option<Fraction> {
        // Entry 0 has no head of its own.
        if slot == 0 || slot + 1 >= control.count() {
            return None;
        }
        let (low, high) = (self.head(slot), self.head(slot + 1));
        let head = probe.head(control.prefix_bytes());
        (low <= head && head < high).then(|| Fraction::between(head, low, high))
    }

    #[inline(always)]
    pub(super) fn heads_up_to(&self, count: usize, head: u64) -> usize {
        self.partition_heads(count, |this| this <= head)
    }

    /// Where `probe` lies or would lie in a leaf, and whether it is present.
    #[inline(always)]
    pub(super) fn find(
        &self,
        control: Control<W>,
        probe: &SearchKey<'_>,
        share: Option<Fraction>,
    ) -> (usize, bool) {
        let count = control.count();
        let prefix = control.prefix_bytes();
        let head = probe.head(prefix);
        let at = match share {
            Some(share) => self.heads_below_near(count, head, share.of(count)),
            None => self.heads_below(count, head),
        };
        if at >= count || self.head(at) != head {
            return (at, false);
        }
        // The usual case has no tail, so equal heads and equal lengths are equal keys.
        if self.is_whole_key(at, probe.key, prefix) {
            return (at, true);
        }
        self.find_among_equal_heads(at, count, head, probe.suffix(prefix))
    }

    /// Whether `probe` lies at this position of a leaf. False of a key with a tail, too.
    #[inline(always)]
    pub(super) fn is_at(&self, control: Control<W>, at: usize, probe: &SearchKey<'_>) -> bool {
        let prefix = control.prefix_bytes();
        at < control.count()
            && self.head(at) == probe.head(prefix)
            && self.is_whole_key(at, probe.key, prefix)
    }

    /// Whether the entry, whose head is that of the key, has no tail and is the key.
    #[inline(always)]
    fn is_whole_key(&self, at: usize, key: &[u8], prefix: usize) -> bool {
        let tag = self.tag(at);
        tag == key.len().wrapping_sub(prefix) as u64 && tag & LONG == 0
    }

    #[inline(never)]
    fn find_among_equal_heads(&self, from: usize, count: usize, head: u64, suffix: &[u8]) -> (usize, bool) {
        let at = self.rank_among_equal_heads(from, count, head, suffix, Equal::NotCounted);
        (at, at < count && self.head(at) == head && self.compare(at, suffix) == Order::Equal)
    }

    /// The child that covers `probe` in an inner node: the last entry at or below it.
    #[inline(always)]
    pub(super) fn slot(&self, control: Control<W>, probe: &SearchKey<'_>) -> usize {
        self.rank(control, probe, Equal::Counted).saturating_sub(1)
    }

    /// The number of entries below `probe`, or at most equal to it.
    #[inline(always)]
    pub(super) fn rank(&self, control: Control<W>, probe: &SearchKey<'_>, equal: Equal) -> usize {
        let prefix = control.prefix_bytes();
        let head = probe.head(prefix);
        let up_to = self.heads_up_to(control.count(), head);
        if up_to == 0 || self.head(up_to - 1) != head {
            return up_to;
        }
        self.rank_with_equal_heads(up_to, head, probe.suffix(prefix), equal)
    }

    #[inline(never)]
    fn rank_with_equal_heads(&self, up_to: usize, head: u64, suffix: &[u8], equal: Equal) -> usize {
        let from = self.heads_below(up_to, head);
        self.rank_among_equal_heads(from, up_to, head, suffix, equal)
    }

    /// The rank of a suffix among the entries with its head, which begin at `from`.
    fn rank_among_equal_heads(
        &self,
        from: usize,
        count: usize,
        head: u64,
        suffix: &[u8],
        equal: Equal,
    ) -> usize {
        let (mut from, mut to) = (from, count);
        while from < to {
            let mid = from.midpoint(to);
            let below = match self.head(mid).cmp(&head).then_with(|| self.compare(mid, suffix)) {
                Order::Less => true,
                Order::Equal => equal == Equal::Counted,
                Order::Greater => false,
            };
            if below {
                from = mid + 1;
            } else {
                to = mid;
            }
        }
        from
    }

    /// Orders entry `at` against a suffix with the same head.
    fn compare(&self, at: usize, suffix: &[u8]) -> Order {
        let tag = self.tag(at);
        if tag & LONG == 0 || suffix.len() <= HEAD_BYTES {
            return self.suffix_len(at).cmp(&suffix.len());
        }
        let tail = (tag & !LONG) as usize;
        let first = self.body(tail);
        let len = (first & 0xffff) as usize;
        let words = tail_words(len).min(tail_words(suffix.len()));
        let mut order = (first >> 16).cmp(&(tail_word(suffix, 0) >> 16));
        for word in 1..words {
            order = order.then_with(|| self.body(tail + word).cmp(&tail_word(suffix, word)));
            if order.is_ne() {
                break;
            }
        }
        order.then(len.cmp(&suffix.len()))
    }
}
