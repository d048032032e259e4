//! Descents that know the fences of the node they reach: for scans, splits and merges.

use super::key::{KeyBuf, SearchKey};
use super::node::{Control, Node};
use super::nodes::{Nodes, Numbered};
use super::search::Equal;
use super::{Leaf, Tree};

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
    fn slot<const W: usize>(&self, node: &Node<W>, control: Control<W>) -> usize {
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
    pub(super) fn narrow<const W: usize>(
        &mut self,
        node: &Node<W>,
        control: Control<W>,
        first: usize,
        last: usize,
    ) {
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
pub(super) struct Reached<'i, const W: usize> {
    pub(super) number: u32,
    pub(super) id: u32,
    pub(super) node: &'i Node<W>,
    pub(super) version: u64,
}

impl<N: Nodes<W>, const W: usize> Tree<N, W> {
    /// Descends to a node of `level` and puts its fences, as of `version`, into `fences`. `None`: the tree is not that
    /// high.
    pub(super) fn reach(
        &self,
        seek: Seek<'_>,
        level: u8,
        fences: &mut Fences,
    ) -> Result<Option<Reached<'_, W>>, N::Missing> {
        loop {
            let mut missing = None;
            if let Some(reached) = self.reach_once(seek, level, fences, &mut missing) {
                return Ok(reached);
            }
            if let Some(missing) = missing {
                return Err(missing);
            }
        }
    }

    /// As `reach`; the outer `None`: begin again, unless a node is missing.
    fn reach_once(
        &self,
        seek: Seek<'_>,
        level: u8,
        fences: &mut Fences,
        missing: &mut Option<N::Missing>,
    ) -> Option<Option<Reached<'_, W>>> {
        // The deepest nodes with a separator to the left and to the right of the path: only their separators are read.
        let (mut low, mut high) = (None, None);
        self.begin_descent();
        let mut id = self.root;
        let (mut number, mut node) = self.step_to(id, missing)?;
        let mut version = node.latch.read()?;
        if !self.nodes.is(node, id) {
            return None;
        }
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
            let Some((child_number, child)) = self.step_to(id, missing) else {
                // An entry that is out of date names any node.
                let cause = missing.take().filter(|_| node.latch.validate(version));
                *missing = cause.map(|cause| N::missing_under(cause, Leaf { node: number, version }));
                return None;
            };
            let child_version = child.latch.read()?;
            if !node.latch.validate(version) || !self.nodes.is(child, id) {
                return None;
            }
            (number, node, version) = (child_number, child, child_version);
        };
        // An ancestor that is still unchanged was so when the node's version was read.
        let read = |fence, key: &mut KeyBuf| {
            let Some((node, version, control, slot)): Option<(&Node<W>, u64, Control<W>, usize)> = fence
            else {
                return Some(false);
            };
            node.read_key(control, slot, key);
            node.latch.validate(version).then_some(true)
        };
        fences.bounded_below = read(low, &mut fences.low)?;
        fences.bounded_above = read(high, &mut fences.high)?;
        // The level of a node other than the root follows from its parent's, which was validated.
        node.latch.validate(version).then(|| there.then_some(Reached { number, id, node, version }))
    }
    /// The node that an entry, or the root's name, leads to. `None`: it is missing, or the entry is out of date.
    fn step_to(&self, id: u32, missing: &mut Option<N::Missing>) -> Option<Numbered<'_, W>> {
        match self.nodes.reach(id) {
            Ok(reached) => reached,
            Err(cause) => {
                *missing = Some(cause);
                None
            }
        }
    }
}
