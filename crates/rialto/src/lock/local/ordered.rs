//! [`OrderedLocks`]: locks of a table in the order of their spans.
//!
//! They are a treap. Each node knows of its subtree which span ends last, whether all of it is one transaction's, and whether any
//! of it is exclusive. So a request finds what is in its way without a look at each of the others, of which one transaction may
//! have very many.
//!
//! Ranks are drawn by a seed that no client knows. So whatever spans clients choose, in whatever order, the tree is as high as
//! one whose locks came in a random order: some 2.5 times the binary logarithm of their number, and with 2^22 of them next to
//! never twice that. That bounds the recursion here.

use std::cmp::Ordering;

use smallvec::SmallVec;

use super::super::mode::RecordMode;
use super::locks::Lock;
use super::span::SpanRef;
use crate::ids::IndexId;
use crate::io::Random;
use crate::looks::count_look;
use crate::seed;

/// No node.
const NONE: u32 = u32::MAX;

/// What is known of the locks of a subtree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Summary {
    /// The lock that ends last; of several indexes, in the last one.
    pub last: u32,
    /// The transaction that holds all of them; none, if there are several.
    pub only_of: Option<u16>,
    /// At least one of them is exclusive.
    pub is_exclusive: bool,
}

impl Summary {
    fn of(at: u32, lock: &Lock) -> Summary {
        let first = lock.holders.first().map(|holder| holder.transaction);
        Summary {
            last: at,
            only_of: first.filter(|first| lock.holders.iter().all(|holder| holder.transaction == *first)),
            is_exclusive: lock.holders.iter().any(|holder| holder.mode == RecordMode::Exclusive),
        }
    }

    fn and(self, other: Summary, locks: &[Lock]) -> Summary {
        let (one, next) = (&locks[self.last as usize], &locks[other.last as usize]);
        let ends_before = match one.index.cmp(&next.index) {
            Ordering::Less => true,
            Ordering::Equal => one.span.borrow().ends_before(next.span.borrow()),
            Ordering::Greater => false,
        };
        Summary {
            last: if ends_before { other.last } else { self.last },
            only_of: self.only_of.filter(|_| self.only_of == other.only_of),
            is_exclusive: self.is_exclusive || other.is_exclusive,
        }
    }
}

#[derive(Debug)]
struct Node {
    /// `NONE`: the node is free.
    lock: u32,
    left: u32,
    right: u32,
    /// None below it has a higher one.
    rank: u32,
    /// Of the subtree of which it is the root.
    summary: Summary,
}

/// See the [module](self). The locks themselves are the table's; no two are on the same span.
#[derive(Debug)]
pub(super) struct OrderedLocks {
    nodes: Vec<Node>,
    free: Vec<u32>,
    root: u32,
    ranks: Random,
}

impl Default for OrderedLocks {
    fn default() -> OrderedLocks {
        OrderedLocks { nodes: Vec::new(), free: Vec::new(), root: NONE, ranks: Random::new(seed::draw()) }
    }
}

impl OrderedLocks {
    /// These, which are on different spans.
    pub fn of(locks: &[Lock], some: impl Iterator<Item = u32>) -> OrderedLocks {
        let mut ordered = OrderedLocks::default();
        some.for_each(|lock| ordered.insert(locks, lock));
        ordered
    }

    /// For how many there is room.
    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.nodes.capacity().max(self.free.capacity())
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.nodes.iter().map(|node| node.lock).filter(|&lock| lock != NONE)
    }

    /// The lock on just this span.
    pub fn find(&self, locks: &[Lock], index: IndexId, span: SpanRef<'_>) -> Option<u32> {
        let mut at = self.root;
        while at != NONE {
            count_look();
            let node = self.node(at);
            at = match (index, span).cmp(&locks[node.lock as usize].place()) {
                Ordering::Less => node.left,
                Ordering::Equal => return Some(node.lock),
                Ordering::Greater => node.right,
            };
        }
        None
    }

    /// The locks on keys of this span; not those of subtrees of which `may` says, by what is known of them, that none counts.
    pub fn overlapping<'a>(
        &'a self,
        locks: &'a [Lock],
        index: IndexId,
        span: SpanRef<'a>,
        may: impl Fn(&Summary) -> bool + 'a,
    ) -> impl Iterator<Item = &'a Lock> {
        let mut subtrees: SmallVec<[u32; 16]> = SmallVec::new();
        subtrees.extend((self.root != NONE).then_some(self.root));
        std::iter::from_fn(move || {
            while let Some(at) = subtrees.pop() {
                count_look();
                let Node { lock, left, right, summary, .. } = self.node(at);
                let (last, here) = (&locks[summary.last as usize], &locks[*lock as usize]);
                let all_end_before = last.index < index
                    || last.index == index && !last.span.borrow().ends_behind(span.lower());
                if all_end_before || !may(summary) {
                    continue;
                }
                let begins_behind = here.index > index
                    || here.index == index && !span.ends_behind(here.span.borrow().lower());
                // All to the right begin no earlier than this one.
                let next = [*left, if begins_behind { NONE } else { *right }];
                subtrees.extend(next.into_iter().filter(|&next| next != NONE));
                if here.index == index && here.span.borrow().overlaps(span) {
                    return Some(here);
                }
            }
            None
        })
    }

    /// Adds a lock on a span that has none.
    pub fn insert(&mut self, locks: &[Lock], lock: u32) {
        let summary = Summary::of(lock, &locks[lock as usize]);
        let rank = (self.ranks.next() >> 32) as u32;
        let node = Node { lock, left: NONE, right: NONE, rank, summary };
        let at = match self.free.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        self.root = self.put(locks, self.root, at);
    }

    /// Takes out a lock that is there.
    pub fn remove(&mut self, locks: &[Lock], lock: u32) {
        self.root = self.take_out(locks, self.root, lock);
    }

    /// A lock that is there has other holders, or in other modes.
    pub fn update(&mut self, locks: &[Lock], lock: u32) {
        let place = locks[lock as usize].place();
        let (mut path, mut at): (SmallVec<[u32; 32]>, _) = (SmallVec::new(), self.root);
        loop {
            count_look();
            path.push(at);
            let node = self.node(at);
            at = match place.cmp(&locks[node.lock as usize].place()) {
                Ordering::Less => node.left,
                Ordering::Equal => break,
                Ordering::Greater => node.right,
            };
        }
        for at in path.into_iter().rev() {
            let before = self.node(at).summary;
            self.sum_up(locks, at);
            if self.node(at).summary == before {
                break;
            }
        }
    }

    fn node(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }

    fn node_mut(&mut self, at: u32) -> &mut Node {
        &mut self.nodes[at as usize]
    }

    fn sum_up(&mut self, locks: &[Lock], at: u32) {
        let node = self.node(at);
        let below = [node.left, node.right].into_iter().filter(|&below| below != NONE);
        let own = Summary::of(node.lock, &locks[node.lock as usize]);
        let summary = below.fold(own, |summary, below| summary.and(self.node(below).summary, locks));
        self.node_mut(at).summary = summary;
    }

    /// How a node's span stands to the one of a lock.
    fn order(&self, locks: &[Lock], lock: u32, at: u32) -> Ordering {
        count_look();
        locks[lock as usize].place().cmp(&locks[self.node(at).lock as usize].place())
    }

    /// Puts a new node into a subtree: its root then.
    fn put(&mut self, locks: &[Lock], root: u32, new: u32) -> u32 {
        if root == NONE {
            return new;
        }
        let lock = self.node(new).lock;
        let top = if self.node(new).rank > self.node(root).rank {
            let (left, right) = self.split(locks, root, lock);
            (self.node_mut(new).left, self.node_mut(new).right) = (left, right);
            new
        } else if self.order(locks, lock, root).is_lt() {
            self.node_mut(root).left = self.put(locks, self.node(root).left, new);
            root
        } else {
            self.node_mut(root).right = self.put(locks, self.node(root).right, new);
            root
        };
        self.sum_up(locks, top);
        top
    }

    /// Divides a subtree into what stands before a lock that is not in it, and what stands behind.
    fn split(&mut self, locks: &[Lock], root: u32, by: u32) -> (u32, u32) {
        if root == NONE {
            return (NONE, NONE);
        }
        let divided = if self.order(locks, by, root).is_lt() {
            let (left, right) = self.split(locks, self.node(root).left, by);
            self.node_mut(root).left = right;
            (left, root)
        } else {
            let (left, right) = self.split(locks, self.node(root).right, by);
            self.node_mut(root).right = left;
            (root, right)
        };
        self.sum_up(locks, root);
        divided
    }

    /// Makes one of two subtrees, all of the one before all of the other.
    fn join(&mut self, locks: &[Lock], left: u32, right: u32) -> u32 {
        if left == NONE || right == NONE {
            return left.min(right);
        }
        let top = if self.node(left).rank > self.node(right).rank {
            self.node_mut(left).right = self.join(locks, self.node(left).right, right);
            left
        } else {
            self.node_mut(right).left = self.join(locks, left, self.node(right).left);
            right
        };
        self.sum_up(locks, top);
        top
    }

    /// Takes a lock out of its subtree: the root then.
    fn take_out(&mut self, locks: &[Lock], root: u32, lock: u32) -> u32 {
        let Node { left, right, .. } = *self.node(root);
        match self.order(locks, lock, root) {
            Ordering::Less => self.node_mut(root).left = self.take_out(locks, left, lock),
            Ordering::Greater => self.node_mut(root).right = self.take_out(locks, right, lock),
            Ordering::Equal => {
                self.node_mut(root).lock = NONE;
                self.free.push(root);
                return self.join(locks, left, right);
            }
        }
        self.sum_up(locks, root);
        root
    }
}
