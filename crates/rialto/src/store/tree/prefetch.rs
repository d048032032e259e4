//! [`LeafAhead`]: the lookup of a key in steps, so that several lookups wait for memory together.
//!
//! A lookup is a chain of loads, each of which needs the one before it: the leaf's header, the entry, the record that
//! the entry leads to. In a large table each of these loads comes from memory. The chains of several keys are
//! independent of each other. If all of them take one step before any takes the next, the processor has their loads
//! under way at the same time.
//!
//! What the last step gives is what [`Index::get`] would give. The inner nodes are coupled as there. Only the step from
//! a leaf's parent to the leaf is divided: the first step does not load the leaf, and the last one reads the leaf's
//! version and then validates the parent once more. So the leaf covers the key as of that version (invariant 1). The
//! index may be discarded before the first step or between two steps. Therefore the result counts only if the index
//! still exists after the last step. Steps that meet a writer give nothing.

use std::sync::atomic::Ordering;

use super::key::SearchKey;
use super::node::Node;
use super::search::Fraction;
use super::{Found, Index, Leaf, MEMORY_WORDS};
use crate::ids::Lsn;
use crate::probes::count_descent;
use crate::store::memory::prefetch::prefetch;

/// A tree with fewer levels above its leaves has at most 252 leaves (1 MB), which stay in the cache.
const LEVELS_MIN: u8 = 2;

/// In tests, whose tables are small, every tree counts as large.
const ALL_ARE_FAR: bool = cfg!(any(test, feature = "fault-injection"));

/// The leaf that covers a key as long as its parent is unchanged.
pub struct LeafAhead<'k> {
    /// Of the index.
    root: u32,
    probe: SearchKey<'k>,
    /// The leaf itself, if it is the root.
    parent: &'k Node<MEMORY_WORDS>,
    parent_version: u64,
    id: u32,
    leaf: &'k Node<MEMORY_WORDS>,
    /// How far into the leaf's interval the key lies.
    share: Fraction,
}

impl Index {
    /// Whether the index is so large that lookups wait for memory.
    #[inline]
    pub fn is_far(&self) -> bool {
        ALL_ARE_FAR || self.nodes.get(self.root).is_some_and(|root| root.control().level() >= LEVELS_MIN)
    }

    /// First step: descends the inner nodes, which are mostly in the cache, and prefetches the leaf's header. None if
    /// the keys' heads do not decide the child, or if a writer is met.
    #[inline]
    pub fn prefetch_leaf<'k>(&'k self, key: &'k [u8]) -> Option<LeafAhead<'k>> {
        count_descent();
        let (root, probe) = (self.root, SearchKey::new(key));
        let mut node = self.nodes.get(root)?;
        let mut version = node.latch.try_read()?;
        let mut control = node.control();
        if control.level() == 0 {
            let (parent, parent_version, share) = (node, version, Fraction::HALF);
            return Some(LeafAhead { root, probe, parent, parent_version, id: root, leaf: node, share });
        }
        loop {
            let (slot, share) = node.slot_of_head(control, probe.head(control.prefix_bytes()))?;
            let id = node.child(slot);
            let child = self.nodes.get(id)?;
            if control.level() == 1 {
                prefetch(child);
                let (parent, parent_version) = (node, version);
                return Some(LeafAhead { root, probe, parent, parent_version, id, leaf: child, share });
            }
            let child_version = child.latch.try_read()?;
            if !node.latch.validate(version) {
                return None;
            }
            (node, version) = (child, child_version);
            control = node.control();
            // A node that is none of the index's any more.
            if control.level() == 0 {
                return None;
            }
        }
    }
}

impl<'k> LeafAhead<'k> {
    /// The root of the index.
    #[inline]
    pub fn root(&self) -> u32 {
        self.root
    }

    /// The key that is looked up.
    #[inline]
    pub fn key(&self) -> &'k [u8] {
        self.probe.key
    }

    /// Second step: prefetches where the entry probably lies. The leaf may be another node by now.
    #[inline]
    pub fn prefetch_entry(&self) {
        let guess = self.share.of(self.leaf.control().count());
        if let Some(head) = self.leaf.body.get(2 * guess) {
            prefetch(head);
        }
    }

    /// Third step: what [`Index::get`] would give.
    #[inline]
    pub fn found(&self) -> Option<Found> {
        let LeafAhead { probe, leaf, share, .. } = self;
        let version = leaf.latch.try_read()?;
        if !self.parent.latch.validate(self.parent_version) {
            return None;
        }
        let control = leaf.control();
        let (count, prefix) = (control.count(), control.prefix_bytes());
        let suffix_bytes = probe.key.len().wrapping_sub(prefix);
        let by_head = leaf.find_by_head(count, probe.head(prefix), suffix_bytes, share.of(count));
        let (at, value) = by_head.unwrap_or_else(|| {
            let (at, found) = leaf.find(control, probe, Some(*share));
            (at, found.then(|| leaf.value(at)))
        });
        let removal = Lsn(leaf.removal.load(Ordering::Relaxed));
        let found = Found { value, leaf: Leaf { node: self.id, version }, at: at as u32, removal };
        leaf.latch.validate(version).then_some(found)
    }
}
