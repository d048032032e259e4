//! [`OrderedLocks`]: locks of a table in the order of their spans.
//!
//! They are a treap. Each node knows which spans of its subtree end last: among all locks and among the exclusive
//! ones, the last span, and the last one of another transaction. So a request finds the locks that it conflicts with
//! without a comparison with each of the others. One or two transactions may have very many of these, in one mode or
//! in both.
//!
//! Ranks are drawn with a seed that no client knows. So whatever spans clients choose, and in whatever order, the
//! tree is as high as one whose locks came in a random order: some 2.5 times the binary logarithm of their number,
//! and with 2^22 of them almost never twice that. That bounds the recursion here.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use smallvec::SmallVec;

use super::super::mode::RecordMode;
use super::held::Lock;
use super::span::SpanRef;
use crate::ids::IndexId;
use crate::io::Random;
use crate::probes::count_probe;
use crate::seed;

/// No node.
const NONE: u32 = u32::MAX;

/// A set of transactions, as bits. Each of the first [`Transactions::EXACT`] owners has its own bit. The other owners
/// share these bits, and one further bit says that there is such an owner in the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Transactions(u64);

impl Transactions {
    const EXACT: u16 = u64::BITS as u16 - 1;
    const INEXACT: u64 = 1 << Transactions::EXACT;

    fn bits(transaction: u16) -> u64 {
        let inexact = if transaction < Transactions::EXACT { 0 } else { Transactions::INEXACT };
        1 << (transaction % Transactions::EXACT) | inexact
    }

    fn add(&mut self, transaction: u16) {
        self.0 |= Transactions::bits(transaction);
    }

    /// Whether it may be in the set. False is certain.
    fn may_have(self, transaction: u16) -> bool {
        let bits = Transactions::bits(transaction);
        self.0 & bits == bits
    }

    /// Whether there may be others in the set than those found. False is certain.
    fn may_have_others_than(self, found: &FoundTransactions) -> bool {
        self.0 & !found.exact != 0
    }
}

/// Transactions of which a search has found a lock already.
#[derive(Debug, Default)]
pub(super) struct FoundTransactions {
    transactions: BTreeSet<u16>,
    /// The bits of those that have their own.
    exact: u64,
}

impl FoundTransactions {
    pub fn add(&mut self, transaction: u16) {
        if self.transactions.insert(transaction) && transaction < Transactions::EXACT {
            self.exact |= Transactions::bits(transaction);
        }
    }

    pub fn into_transactions(self) -> BTreeSet<u16> {
        self.transactions
    }
}

/// A lock, and a transaction that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Last {
    /// `NONE`: there is none.
    lock: u32,
    transaction: u16,
}

impl Last {
    const NONE: Last = Last { lock: NONE, transaction: 0 };

    fn lock(self) -> Option<u32> {
        (self.lock != NONE).then_some(self.lock)
    }
}

/// The locks of a set that end last. Locks of a higher index count as later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lasts {
    /// The last lock of all, and the last one that another transaction holds.
    last: [Last; 2],
    /// The transactions that hold any, except for those two; either of the two may be included.
    others: Transactions,
}

impl Lasts {
    /// For a set of one lock, with the transactions of its holders.
    fn of(lock: u32, holders: impl Iterator<Item = u16>) -> Lasts {
        let mut lasts = Lasts { last: [Last::NONE; 2], others: Transactions::default() };
        for transaction in holders {
            let [first, second] = &mut lasts.last;
            if first.lock == NONE {
                *first = Last { lock, transaction };
            } else if second.lock == NONE && first.transaction != transaction {
                *second = Last { lock, transaction };
            } else {
                lasts.leave_out(Last { lock, transaction });
            }
        }
        lasts
    }

    fn and(self, other: Lasts, locks: &[Lock]) -> Lasts {
        if self.last[0].lock == NONE {
            return other;
        }
        if other.last[0].lock == NONE {
            return self;
        }
        let is_before = ends_before(locks, self.last[0].lock, other.last[0].lock);
        let (late, early) = if is_before { (other, self) } else { (self, other) };
        let mut both = Lasts { others: Transactions(late.others.0 | early.others.0), ..late };
        for next in early.last.into_iter().filter(|next| next.lock != NONE) {
            let [first, second] = both.last;
            let is_other = next.transaction != first.transaction;
            if is_other && (second.lock == NONE || ends_before(locks, second.lock, next.lock)) {
                both.last[1] = next;
                both.leave_out(second);
            } else {
                both.leave_out(next);
            }
        }
        both
    }

    /// Notes the transaction of a lock that is neither of the two last ones.
    fn leave_out(&mut self, left_out: Last) {
        let is_last = |last: Last| last.lock != NONE && last.transaction == left_out.transaction;
        if left_out.lock != NONE && !self.last.into_iter().any(is_last) {
            self.others.add(left_out.transaction);
        }
    }

    /// The last lock that a transaction other than this one holds.
    pub fn of_others(&self, transaction: u16) -> Option<u32> {
        let [first, second] = self.last;
        if first.transaction == transaction { second.lock() } else { first.lock() }
    }

    /// The last lock of transactions that have not been found, or one that ends no earlier. None: they hold none.
    pub fn of_others_than(&self, found: &FoundTransactions) -> Option<u32> {
        let is_found = |last: Last| found.transactions.contains(&last.transaction);
        let [first, second] = self.last;
        if !is_found(first) {
            return first.lock();
        }
        second.lock().filter(|_| !is_found(second) || self.others.may_have_others_than(found))
    }

    /// The last lock of a transaction, or one that ends no earlier. None: it holds none.
    pub fn of_one(&self, transaction: u16) -> Option<u32> {
        let [first, second] = self.last;
        if first.transaction == transaction {
            return first.lock();
        }
        second.lock().filter(|_| second.transaction == transaction || self.others.may_have(transaction))
    }
}

/// Whether one lock ends before another. Locks of a lower index end before those of a higher one.
fn ends_before(locks: &[Lock], one: u32, other: u32) -> bool {
    let (one, other) = (&locks[one as usize], &locks[other as usize]);
    match one.index.cmp(&other.index) {
        Ordering::Less => true,
        Ordering::Equal => one.span.borrow().ends_before(other.span.borrow()),
        Ordering::Greater => false,
    }
}

/// What is known of the locks of a subtree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Summary {
    all: Lasts,
    exclusive: Lasts,
}

impl Summary {
    fn of(at: u32, lock: &Lock) -> Summary {
        let exclusive = lock.holders.iter().filter(|holder| holder.mode == RecordMode::Exclusive);
        Summary {
            all: Lasts::of(at, lock.holders.iter().map(|holder| holder.transaction)),
            exclusive: Lasts::of(at, exclusive.map(|holder| holder.transaction)),
        }
    }

    fn and(self, other: Summary, locks: &[Lock]) -> Summary {
        let all = self.all.and(other.all, locks);
        let are_exclusive = self.all == self.exclusive && other.all == other.exclusive;
        let exclusive = if are_exclusive { all } else { self.exclusive.and(other.exclusive, locks) };
        Summary { all, exclusive }
    }

    /// The locks that conflict with a request of this mode by another transaction.
    pub fn against(&self, mode: RecordMode) -> &Lasts {
        match mode {
            RecordMode::Shared => &self.exclusive,
            RecordMode::Exclusive => &self.all,
        }
    }

    /// The locks of this mode or a stronger one.
    pub fn of_mode(&self, mode: RecordMode) -> &Lasts {
        match mode {
            RecordMode::Shared => &self.all,
            RecordMode::Exclusive => &self.exclusive,
        }
    }
}

#[derive(Debug)]
struct TreapNode {
    /// `NONE`: the node is free.
    lock: u32,
    left: u32,
    right: u32,
    /// No node below it has a higher rank.
    rank: u32,
    /// For the subtree whose root it is.
    summary: Summary,
}

/// See the [module](self). The locks themselves are the table's; no two are on the same span.
#[derive(Debug)]
pub(super) struct OrderedLocks {
    nodes: Vec<TreapNode>,
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
    /// An order of some locks, which are on different spans.
    pub fn of(locks: &[Lock], some: impl Iterator<Item = u32>) -> OrderedLocks {
        let mut ordered = OrderedLocks::default();
        some.for_each(|lock| ordered.insert(locks, lock));
        ordered
    }

    /// The number of locks that there is room for.
    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.nodes.capacity().max(self.free.capacity())
    }

    /// All locks, in no order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.nodes.iter().map(|node| node.lock).filter(|&lock| lock != NONE)
    }

    /// The lock on exactly this span.
    pub fn find(&self, locks: &[Lock], index: IndexId, span: SpanRef<'_>) -> Option<u32> {
        let mut at = self.root;
        while at != NONE {
            count_probe();
            let node = self.node(at);
            at = match (index, span).cmp(&locks[node.lock as usize].sort_key()) {
                Ordering::Less => node.left,
                Ordering::Equal => return Some(node.lock),
                Ordering::Greater => node.right,
            };
        }
        None
    }

    /// The locks on keys of this span that `last` counts, and perhaps others. `last` gives the lock of a subtree that
    /// ends last among those that count. A subtree in which there is none, or in which that one ends before the span,
    /// is skipped. In every other subtree that lies wholly before the end of the span, the lock that ends last is one
    /// of the result. So a search takes a few logarithms of steps, and as many again for each lock that it finds.
    pub fn overlapping<'a>(
        &'a self,
        locks: &'a [Lock],
        index: IndexId,
        span: SpanRef<'a>,
        last: impl Fn(&Summary) -> Option<u32> + 'a,
    ) -> impl Iterator<Item = &'a Lock> {
        let mut subtrees: SmallVec<[u32; 16]> = SmallVec::new();
        subtrees.extend((self.root != NONE).then_some(self.root));
        std::iter::from_fn(move || {
            while let Some(at) = subtrees.pop() {
                count_probe();
                let TreapNode { lock, left, right, summary, .. } = self.node(at);
                let Some(last) = last(summary) else { continue };
                let (last, here) = (&locks[last as usize], &locks[*lock as usize]);
                let all_end_before = last.index < index
                    || last.index == index && !last.span.borrow().ends_behind(span.lower());
                if all_end_before {
                    continue;
                }
                let begins_behind = here.index > index
                    || here.index == index && !span.ends_behind(here.span.borrow().lower());
                // All nodes to the right begin no earlier than this one.
                let next = [*left, if begins_behind { NONE } else { *right }];
                subtrees.extend(next.into_iter().filter(|&next| next != NONE));
                if here.index == index && here.span.borrow().overlaps(span) {
                    return Some(here);
                }
            }
            None
        })
    }

    /// Adds a lock. There is none on its span yet.
    pub fn insert(&mut self, locks: &[Lock], lock: u32) {
        let summary = Summary::of(lock, &locks[lock as usize]);
        let rank = (self.ranks.next() >> 32) as u32;
        let node = TreapNode { lock, left: NONE, right: NONE, rank, summary };
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

    /// Removes a lock that is there.
    pub fn remove(&mut self, locks: &[Lock], lock: u32) {
        self.root = self.take_out(locks, self.root, lock);
    }

    /// Brings the summaries up to date after a lock's holders or their modes have changed.
    pub fn update(&mut self, locks: &[Lock], lock: u32) {
        let sort_key = locks[lock as usize].sort_key();
        let (mut path, mut at): (SmallVec<[u32; 32]>, _) = (SmallVec::new(), self.root);
        loop {
            count_probe();
            path.push(at);
            let node = self.node(at);
            at = match sort_key.cmp(&locks[node.lock as usize].sort_key()) {
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

    fn node(&self, at: u32) -> &TreapNode {
        &self.nodes[at as usize]
    }

    fn node_mut(&mut self, at: u32) -> &mut TreapNode {
        &mut self.nodes[at as usize]
    }

    fn sum_up(&mut self, locks: &[Lock], at: u32) {
        let node = self.node(at);
        let below = [node.left, node.right].into_iter().filter(|&below| below != NONE);
        let own = Summary::of(node.lock, &locks[node.lock as usize]);
        let summary = below.fold(own, |summary, below| summary.and(self.node(below).summary, locks));
        self.node_mut(at).summary = summary;
    }

    /// Compares the span of a lock with that of a node.
    fn order(&self, locks: &[Lock], lock: u32, at: u32) -> Ordering {
        count_probe();
        locks[lock as usize].sort_key().cmp(&locks[self.node(at).lock as usize].sort_key())
    }

    /// Puts a new node into a subtree. Gives its root.
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

    /// Divides a subtree into the nodes before and behind a lock that is not in it.
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

    /// Joins two subtrees, of which one lies wholly before the other.
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

    /// Takes a lock out of its subtree. Gives its root.
    fn take_out(&mut self, locks: &[Lock], root: u32, lock: u32) -> u32 {
        let TreapNode { left, right, .. } = *self.node(root);
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
