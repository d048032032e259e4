//! Descents that know the fences of the node they reach: for scans, splits and merges.

use super::Index;
use super::key::{KeyBuf, SearchKey};
use super::node::{Control, Node};
use super::search::Equal;

/// Where a descent leads.
#[derive(Clone, Copy)]
pub(super) enum Seek<'k> {
    /// To the first node of the level.
    First,
    /// To the node that covers the key.
    At(SearchKey<'k>),
    /// To the node that covers the position right before the key.
    Before(SearchKey<'k>),
    /// To the last node of the level.
    Last,
}

impl Seek<'_> {
    fn slot(&self, node: &Node, control: Control) -> usize {
        match self {
            Seek::First => 0,
            Seek::At(probe) => node.slot(control, probe),
            Seek::Before(probe) => node.rank(control, probe, Equal::NotCounted).saturating_sub(1),
            Seek::Last => control.count().saturating_sub(1),
        }
    }
}

/// A node's key interval: from `low`, which is the empty key for the first node, up to but without `high`.
pub(super) struct Fences {
    pub(super) low: KeyBuf,
    /// Whether the node is not the first of its level.
    pub(super) bounded_below: bool,
    pub(super) high: KeyBuf,
    /// Whether the node is not the last of its level.
    pub(super) bounded_above: bool,
}

impl Fences {
    pub(super) fn new() -> Fences {
        Fences { low: KeyBuf::new(), bounded_below: false, high: KeyBuf::new(), bounded_above: false }
    }

    pub(super) fn low(&self) -> &[u8] {
        if self.bounded_below { self.low.as_slice() } else { &[] }
    }

    pub(super) fn high(&self) -> Option<&[u8]> {
        self.bounded_above.then(|| self.high.as_slice())
    }

    /// Narrows the fences of `node` to those of its children from `first` to `last`.
    pub(super) fn narrow(&mut self, node: &Node, control: Control, first: usize, last: usize) {
        if first > 0 {
            node.read_key(control, first, &mut self.low);
            self.bounded_below = true;
        }
        if last + 1 < control.count() {
            node.read_key(control, last + 1, &mut self.high);
            self.bounded_above = true;
        }
    }
}

/// A node as a descent reached it; not yet validated.
pub(super) struct Reached<'i> {
    pub(super) id: u32,
    pub(super) node: &'i Node,
    pub(super) version: u64,
}

impl Index {
    /// Descends to a node of `level` and puts its fences, as of `version`, into `fences`. `None`: the tree is not that
    /// high.
    pub(super) fn reach(&self, seek: Seek<'_>, level: u8, fences: &mut Fences) -> Option<Reached<'_>> {
        loop {
            if let Some(reached) = self.try_reach(seek, level, fences) {
                return reached;
            }
        }
    }

    /// As `reach`; the outer `None`: begin again.
    fn try_reach(&self, seek: Seek<'_>, level: u8, fences: &mut Fences) -> Option<Option<Reached<'_>>> {
        // The deepest nodes with a separator to the left and to the right of the path: only their separators are read.
        let (mut low, mut high) = (None, None);
        self.begin_descent();
        let mut id = self.root;
        let mut node = self.region.node(id);
        let mut version = node.latch.read()?;
        let there = loop {
            let control = node.control();
            if control.level() <= level {
                break control.level() == level;
            }
            let slot = seek.slot(node, control);
            if slot > 0 {
                low = Some((node, version, control, slot));
            }
            if slot + 1 < control.count() {
                high = Some((node, version, control, slot + 1));
            }
            id = node.child(slot);
            let child = self.region.get(id)?;
            let child_version = child.latch.read()?;
            if !node.latch.validate(version) {
                return None;
            }
            (node, version) = (child, child_version);
        };
        // An ancestor that is still unchanged was so when the node's version was read.
        let read = |fence, key: &mut KeyBuf| {
            let Some((node, version, control, slot)): Option<(&Node, u64, Control, usize)> = fence else {
                return Some(false);
            };
            node.read_key(control, slot, key);
            node.latch.validate(version).then_some(true)
        };
        fences.bounded_below = read(low, &mut fences.low)?;
        fences.bounded_above = read(high, &mut fences.high)?;
        // The level of a node other than the root follows from its parent's, which was validated.
        node.latch.validate(version).then(|| there.then_some(Reached { id, node, version }))
    }
}
