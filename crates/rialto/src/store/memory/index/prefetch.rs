//! [`LeafAhead`]: the lookup of a key in steps, so that several lookups wait for memory together.
//!
//! A lookup is a chain of loads, each of which needs the one before it: the leaf's header, the entry, the record that the entry leads
//! to. In a large table each of these loads comes from memory. The chains of several keys are independent of each other. If all of them
//! take one step before any takes the next, the processor has their loads under way at the same time.
//!
//! Nothing is validated here: a step's reads only choose the next address.

use super::Index;
use super::key::Probe;
use super::node::Node;
use super::search::Share;
use crate::store::memory::prefetch::prefetch;

/// A tree with fewer levels above its leaves has at most 252 leaves (1 MB), which stay in the cache.
const LEVELS_MIN: u8 = 2;

/// More levels than any tree has. It bounds the descent: concurrent changes may form a cycle.
const LEVELS_MAX: usize = 16;

/// The leaf that a key seems to lie in.
pub struct LeafAhead<'k> {
    probe: Probe<'k>,
    leaf: &'k Node,
    /// How far into the leaf's interval the key lies.
    share: Share,
}

impl Index {
    /// Whether the index is so large that lookups wait for memory.
    #[inline]
    pub fn is_far(&self) -> bool {
        self.region.get(self.root).is_some_and(|root| root.control().level() >= LEVELS_MIN)
    }

    /// First step: descends the inner nodes, which are mostly in the cache, and prefetches the leaf's header. None if the keys' heads do not decide the child.
    #[inline]
    pub fn prefetch_leaf<'k>(&'k self, key: &'k [u8]) -> Option<LeafAhead<'k>> {
        let probe = Probe::new(key);
        let mut node = self.region.get(self.root)?;
        for _ in 0..LEVELS_MAX {
            let control = node.control();
            if control.level() == 0 {
                return Some(LeafAhead { probe, leaf: node, share: Share::HALF });
            }
            let (slot, share) = node.slot_of_head(control, probe.head(control.prefix_bytes()))?;
            node = self.region.get(node.child(slot))?;
            if control.level() == 1 {
                prefetch(node);
                return Some(LeafAhead { probe, leaf: node, share });
            }
        }
        None
    }
}

impl LeafAhead<'_> {
    /// Second step: prefetches where the entry probably lies.
    #[inline]
    pub fn prefetch_entry(&self) {
        let guess = self.share.of(self.leaf.control().count());
        if let Some(head) = self.leaf.body.get(2 * guess) {
            prefetch(head);
        }
    }

    /// Third step: the value that the key seems to have.
    #[inline]
    pub fn value(&self) -> Option<u64> {
        let LeafAhead { probe, leaf, share } = self;
        let control = leaf.control();
        let (count, head) = (control.count(), probe.head(control.prefix_bytes()));
        let at = leaf.heads_below_near(count, head, share.of(count));
        (at < count && leaf.head(at) == head).then(|| leaf.value(at))
    }
}
