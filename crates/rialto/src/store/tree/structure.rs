//! Splits, merges and compactions: everything that moves entries between nodes.
//!
//! Each works on the children of one parent. It finds the parent by a descent, latches it, and searches it again, so it
//! trusts nothing that was read before. Latches are taken downward: parent, left child, right child. What a step needs
//! of the levels above (room for a separator, a sibling for the parent) is done first, as a step of its own, and then
//! the step begins again. So each step leaves a whole tree behind.

use super::descent::{Fences, Seek};
use super::image::NodeImage;
use super::key::{KeyBuf, SearchKey, common_prefix, separator, tail_words};
use super::node::{Control, LatchedNode};
use super::nodes::{Nodes, Stopped, StoppedIn};
use super::search::Equal;
use super::{Index, Tree};
use std::sync::atomic::Ordering;

/// A node with a body of `body_words` that uses fewer words than this looks for a sibling to join.
const fn underfull_words(body_words: usize) -> usize {
    body_words / 4
}

/// Two nodes join if they use at most this many words together, so that the next insert does not split them again.
const fn merged_words(body_words: usize) -> usize {
    body_words * 3 / 4
}

/// A node is compacted, rather than split, only if that frees at least this many words: otherwise it would soon be full
/// again.
const fn compact_words(body_words: usize) -> usize {
    body_words / 8
}

/// This many consecutive keys, and the next one, show that keys arrive in order there.
const RUN: usize = 4;
/// How far around the wanted position a split looks for a shorter separator.
const SPLIT_WINDOW: usize = 4;

/// Where a node is divided.
struct Division {
    /// The first entry of the right part.
    at: usize,
    /// The lowest key that the right part can hold.
    separator: KeyBuf,
}

impl<N: Nodes<W>, const W: usize> Tree<N, W> {
    /// Frees the dead tails and rows of a node, if that makes room for so many words and frees enough. False, and no
    /// change, if not.
    pub(super) fn compact(&self, node: &mut LatchedNode<'_, W>, words: usize) -> bool {
        let control = node.control();
        // Rows give up the room that they do not need.
        let kept: usize = match control.has_rows() {
            true => (0..control.count()).map(|at| node.heap_words(at) - (node.entry_words(at) - 2)).sum(),
            false => 0,
        };
        let garbage = control.garbage() + kept;
        let worth_it = garbage >= compact_words(W) || control.count() < 3;
        if control.room() + garbage < words || !worth_it {
            return false;
        }
        let mut prefix = KeyBuf::new();
        node.read_prefix(control, &mut prefix);
        let mut image = NodeImage::new(
            control.level(),
            control.guarded(),
            node.removal.load(Ordering::Relaxed),
            prefix.as_slice(),
        );
        image.has_rows(control.has_rows());
        let fits = image.push_entries(node, 0..control.count());
        debug_assert!(fits && image.control().garbage() == 0, "a node fits into a node");
        node.become_image(&image);
        true
    }

    /// Splits the node of `level` that covers `key`, unless it has fewer than three entries. Its caller then tries
    /// again.
    pub(super) fn split(&self, level: u8, key: &[u8]) -> Result<(), StoppedIn<N, W>> {
        loop {
            let mut fences = Fences::new();
            let probe = SearchKey::new(key);
            let parent = self.reach(Seek::At(probe), level + 1, &mut fences).map_err(Stopped::Missing)?;
            let Some(parent) = parent else {
                if self.grow(level, key)? {
                    return Ok(());
                }
                continue;
            };
            let restructuring = self.nodes.begin_restructuring();
            let Some(mut parent) = self.latch_to_change(parent.node, parent.version)? else { continue };
            if self.split_child(&mut parent, fences, &probe)? {
                return Ok(());
            }
            drop(parent);
            drop(restructuring);
            self.split(level + 1, key)?;
        }
    }

    /// Splits the child of `parent` that covers `probe`. False, and no change: the parent has no room.
    #[inline(never)]
    fn split_child(
        &self,
        parent: &mut LatchedNode<'_, W>,
        mut fences: Fences,
        probe: &SearchKey<'_>,
    ) -> Result<bool, StoppedIn<N, W>> {
        let control = parent.control();
        let slot = parent.slot(control, probe);
        let mut left = self.lock(parent.child(slot))?;
        if left.control().count() < 3 {
            return Ok(true);
        }
        let parent_prefix = control.prefix_bytes();
        let division = divide(&left, probe, parent_prefix);
        let separator = &division.separator.as_slice()[parent_prefix..];
        if 2 + tail_words(separator.len()) > control.room()
            && !self.compact(parent, 2 + tail_words(separator.len()))
        {
            return Ok(false);
        }
        fences.narrow(parent, parent.control(), slot, slot);
        let (right_id, mut right) = self.nodes.allocate().map_err(Stopped::Full)?;
        let (low, high) = part(&left, &division, fences.low(), fences.high());
        right.become_image(&high);
        left.become_image(&low);
        parent.insert(slot + 1, SearchKey::new(separator).head(0), separator, u64::from(right_id));
        Ok(true)
    }

    /// Moves the root's entries, if it is of `level`, into two new children. False, and no change, if it is not.
    #[inline(never)]
    fn grow(&self, level: u8, key: &[u8]) -> Result<bool, StoppedIn<N, W>> {
        let _restructuring = self.nodes.begin_restructuring();
        let mut root = self.lock(self.root)?;
        let control = root.control();
        if control.level() != level {
            return Ok(false);
        }
        if control.count() < 3 {
            return Ok(true);
        }
        let division = divide(&root, &SearchKey::new(key), 0);
        let (left_id, mut left) = self.nodes.allocate().map_err(Stopped::Full)?;
        let (right_id, mut right) = match self.nodes.allocate() {
            Ok(right) => right,
            Err(full) => {
                self.nodes.free(left_id, left);
                return Err(Stopped::Full(full));
            }
        };
        let (low, high) = part(&root, &division, &[], None);
        left.become_image(&low);
        right.become_image(&high);
        let mut image = NodeImage::new(level + 1, false, 0, &[]);
        let fits = image.push(&[], u64::from(left_id))
            && image.push(division.separator.as_slice(), u64::from(right_id));
        debug_assert!(fits, "two entries fit into a node");
        root.become_image(&image);
        Ok(true)
    }

    /// Joins the node of `level` that covers `key` with a sibling, if the two fit into one; then its parents in the
    /// same way, as they become underfull. True if something was joined. Nodes that are missing stay as they are.
    pub(super) fn merge(&self, level: u8, key: &[u8]) -> bool {
        let mut merged = false;
        loop {
            let mut fences = Fences::new();
            let probe = SearchKey::new(key);
            let Ok(Some(parent)) = self.reach(Seek::At(probe), level + 1, &mut fences) else { return merged };
            let parent_id = parent.id;
            let restructuring = self.nodes.begin_restructuring();
            let Ok(latched) = self.latch_to_change(parent.node, parent.version) else { return merged };
            let Some(mut parent) = latched else { continue };
            if parent.control().count() == 1 {
                if parent_id == self.root {
                    self.shrink(parent);
                    return true;
                }
                // The child has no sibling under this parent: the parent has to find a sibling for itself first.
                drop(parent);
                drop(restructuring);
                if !self.merge(level + 1, key) {
                    return merged;
                }
                continue;
            }
            let joined = self.merge_child(&mut parent, fences, &probe);
            let control = parent.control();
            drop(parent);
            drop(restructuring);
            let Some(joined) = joined else { return merged };
            merged = true;
            if wants_merge(control) {
                self.merge(level + 1, key);
            }
            // The joined node may take in the next sibling too, which did not fit when it became underfull itself; and
            // it may be the root's last child.
            if joined.used() >= underfull_words(W) && control.count() > 1 {
                return true;
            }
        }
    }

    /// Joins the child of `parent` that covers `probe` with its right sibling, or else with its left one, and returns
    /// the control word of the joined node; `None` if neither fits. The parent has at least two children.
    #[inline(never)]
    fn merge_child(
        &self,
        parent: &mut LatchedNode<'_, W>,
        fences: Fences,
        probe: &SearchKey<'_>,
    ) -> Option<Control<W>> {
        let control = parent.control();
        let slot = parent.slot(control, probe);
        let mut fences = Some(fences);
        for first in [Some(slot).filter(|slot| slot + 1 < control.count()), slot.checked_sub(1)] {
            let Some(first) = first else { continue };
            let right_id = parent.child(first + 1);
            let Ok(mut left) = self.lock(parent.child(first)) else { continue };
            let Ok(right) = self.lock(right_id) else { continue };
            // An empty leaf always goes, because scans would meet it for ever. A shorter prefix may make tails longer:
            // if the image does not fit, the two stay apart.
            let one_is_empty = left.control().count() == 0 || right.control().count() == 0;
            let most = if one_is_empty { W } else { merged_words(W) };
            if !one_is_empty && left.control().used() + right.control().used() > most {
                continue;
            }
            let Some(mut fences) = fences.take() else { break };
            fences.narrow(parent, control, first, first + 1);
            let Some(image) = join(&left, &right, parent, first + 1, &fences, most) else { break };
            left.become_image(&image);
            parent.remove(first + 1);
            self.nodes.free(right_id, right);
            return Some(image.control());
        }
        None
    }

    /// Moves the entries of the root's only child into the root, as long as there is only one.
    fn shrink(&self, mut root: LatchedNode<'_, W>) {
        while root.control().level() > 0 && root.control().count() == 1 {
            let child_id = root.child(0);
            let Ok(child) = self.lock(child_id) else { return };
            let control = child.control();
            debug_assert_eq!(control.prefix_bytes(), 0, "the whole key space has no common prefix");
            let removal = child.removal.load(Ordering::Relaxed);
            let mut image = NodeImage::new(control.level(), control.guarded(), removal, &[]);
            image.has_rows(control.has_rows());
            let fits = image.push_entries(&child, 0..control.count());
            debug_assert!(fits, "a node fits into a node");
            root.become_image(&image);
            self.nodes.free(child_id, child);
        }
    }

    /// Latches a node that cannot be freed, to change it: its parent is latched, or it is the root.
    fn lock(&self, id: u32) -> Result<LatchedNode<'_, W>, StoppedIn<N, W>> {
        loop {
            let reached = self.nodes.reach(id).map_err(Stopped::Missing)?;
            let (_, node) = reached.expect("the child of a latched parent is in use");
            // A node that has left memory meanwhile may be another one by now, or none.
            if let Some(latched) = node.lock()
                && self.nodes.is(&latched, id)
            {
                self.nodes.before_change(&latched).map_err(Stopped::Full)?;
                return Ok(latched);
            }
        }
    }
}

impl Index {
    /// How many leaves there are under a node, itself included, and the words that their entries take. No other thread
    /// uses the index.
    pub(super) fn leaf_words(&self, id: u32) -> (u64, u64) {
        let node = self.nodes.node(id);
        let control = node.control();
        if control.level() == 0 {
            return (1, control.used() as u64);
        }
        let children = (0..control.count()).map(|at| self.leaf_words(node.child(at)));
        children.fold((0, 0), |(leaves, words), (more, of_more)| (leaves + more, words + of_more))
    }
}

/// Whether a node, after a removal, looks for a sibling to join. It does not after each removal, because a node whose
/// siblings are too full would then look for one at each removal.
pub(super) fn wants_merge<const W: usize>(control: Control<W>) -> bool {
    let count = control.count();
    control.used() < underfull_words(W) && (count.is_multiple_of(8) || count.is_power_of_two())
}

/// Chooses where to divide a node of three entries or more, for an insert at `probe`.
fn divide<const W: usize>(
    node: &LatchedNode<'_, W>,
    probe: &SearchKey<'_>,
    parent_prefix: usize,
) -> Division {
    let control = node.control();
    let count = control.count();
    let position = node.rank(control, probe, Equal::Counted);
    // Where keys arrive in order at the node's end (or begin), the node is left full, and the room goes where the next
    // keys go.
    let tenths = match position {
        _ if position == count => 9,
        0 => 1,
        // This is one of several runs of keys that grow side by side: each of its next keys would move the keys behind
        // it.
        _ if ends_a_run(node, probe, position) => {
            return Division { at: position, separator: separator_at(node, position) };
        }
        _ => 5,
    };
    let goal = (control.used() - control.prefix_words()) * tenths / 10;
    let mut wanted = 0;
    let mut words = 0;
    while wanted < count && words < goal {
        words += node.entry_words(wanted);
        wanted += 1;
    }
    let wanted = wanted.clamp(1, count - 1);
    let mut best = Division { at: wanted, separator: separator_at(node, wanted) };
    // A separator whose suffix fits into a head costs nothing: a shorter one saves nothing.
    if tail_words(best.separator.as_slice().len() - parent_prefix) > 0 {
        let window = wanted.saturating_sub(SPLIT_WINDOW).max(1)..(wanted + SPLIT_WINDOW + 1).min(count);
        for at in window.filter(|&at| at != wanted && count > 3 * SPLIT_WINDOW) {
            let separator = separator_at(node, at);
            if separator.as_slice().len() < best.separator.as_slice().len() {
                best = Division { at, separator };
            }
        }
    }
    best
}

/// Whether an insert at `position` has the next key behind [`RUN`] consecutive keys.
fn ends_a_run<const W: usize>(node: &LatchedNode<'_, W>, probe: &SearchKey<'_>, position: usize) -> bool {
    let Some(first) = position.checked_sub(RUN) else { return false };
    let mut start = KeyBuf::new();
    node.read_key(node.control(), first, &mut start);
    is_behind_by(RUN as u64, start.as_slice(), probe.key)
}

/// Whether the second key is `keys` behind the first: they are equal but for their last eight bytes, taken as a number.
fn is_behind_by(keys: u64, before: &[u8], key: &[u8]) -> bool {
    let lead = key.len().saturating_sub(8);
    let number = |key: &[u8]| key[lead..].iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
    before.len() == key.len()
        && before[..lead] == key[..lead]
        && number(before).checked_add(keys) == Some(number(key))
}

/// The separator between entries `at - 1` and `at`.
fn separator_at<const W: usize>(node: &LatchedNode<'_, W>, at: usize) -> KeyBuf {
    let control = node.control();
    let mut right = KeyBuf::new();
    node.read_key(control, at, &mut right);
    if control.level() == 0 {
        let mut left = KeyBuf::new();
        node.read_key(control, at - 1, &mut left);
        let len = separator(left.as_slice(), right.as_slice()).len();
        right.set_len(len);
    }
    right
}

/// The two parts of a divided node whose fences are `low` and `high`.
fn part<const W: usize>(
    node: &LatchedNode<'_, W>,
    division: &Division,
    low: &[u8],
    high: Option<&[u8]>,
) -> (NodeImage<W>, NodeImage<W>) {
    let control = node.control();
    let removal = node.removal.load(Ordering::Relaxed);
    let separator = division.separator.as_slice();
    let mut left = NodeImage::new(
        control.level(),
        control.guarded(),
        removal,
        &separator[..common_prefix(low, separator)],
    );
    let prefix = high.map_or(0, |high| common_prefix(separator, high));
    let mut right = NodeImage::new(control.level(), control.guarded(), removal, &separator[..prefix]);
    left.has_rows(control.has_rows());
    right.has_rows(control.has_rows());
    let mut from = division.at;
    let mut fits = left.push_entries(node, 0..from);
    if control.level() > 0 {
        // The separator moves up; the entry that it belonged to becomes "everything below".
        fits &= right.push(&[], u64::from(node.child(from)));
        from += 1;
    }
    fits &= right.push_entries(node, from..control.count());
    debug_assert!(fits, "a part of a node fits into a node");
    (left, right)
}

/// Two siblings as one node with the fences `fences`, if that uses at most `most` words. `slot` is the right sibling's
/// slot in the parent.
fn join<const W: usize>(
    left: &LatchedNode<'_, W>,
    right: &LatchedNode<'_, W>,
    parent: &LatchedNode<'_, W>,
    slot: usize,
    fences: &Fences,
    most: usize,
) -> Option<NodeImage<W>> {
    let (of_left, of_right) = (left.control(), right.control());
    let removal = left.removal.load(Ordering::Relaxed).max(right.removal.load(Ordering::Relaxed));
    let guarded = of_left.guarded() || of_right.guarded();
    let low = fences.low();
    let prefix = fences.high().map_or(0, |high| common_prefix(low, high));
    let mut image = NodeImage::new(of_left.level(), guarded, removal, &low[..prefix]);
    image.has_rows(of_left.has_rows());
    let mut from = 0;
    let mut fits = true;
    if of_left.level() > 0 {
        // Entry 0 has no key in either sibling: the left one's needs none, the right one's key is the parent's
        // separator.
        let mut key = KeyBuf::new();
        parent.read_key(parent.control(), slot, &mut key);
        fits = image.push(&[], u64::from(left.child(0)))
            && image.push_entries(left, 1..of_left.count())
            && image.push(&key.as_slice()[prefix..], u64::from(right.child(0)));
        from = 1;
    } else {
        fits &= image.push_entries(left, 0..of_left.count());
    }
    fits &= image.push_entries(right, from..of_right.count());
    (fits && image.control().used() <= most).then_some(image)
}
