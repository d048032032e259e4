//! Which transactions have ended in a partition, so that a duplicate of a message opens none of them again (C10).
//!
//! Four facts together need little memory and lose nothing:
//!
//! - Messages of an earlier start of a node, or of a number that does not run there any more, are stale. A node says
//!   which numbers run: none below a bound, but some that are named one by one, because they may run for any time.
//! - A transaction that has ended under this opening is remembered until its coordinator says that it does not run.
//! - Each message that may open a branch names the opening. So what an earlier opening has known need not be known.
//! - Numbers of one start rise, and a node's starts do.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::{Decision, Start, TransactionId, Work};
use crate::protocol::NodeId;

/// How a transaction ended here.
#[derive(Debug, Clone)]
pub(super) enum Ended<W: Work> {
    /// It was decided. The deciding partition has the answer, too.
    Decided(Decision, Option<W::Reply>),
    /// It has aborted, or was refused before it began.
    Aborted,
    /// The branch only read, held all its locks when it was asked, and has released them.
    StillHeld,
}

/// Whether a message of a coordinator may have effects.
#[derive(Debug)]
pub(super) enum Admission<W: Work> {
    /// The transaction has not ended here.
    Open,
    /// It has.
    Ended(Ended<W>),
    /// Its coordinator does not wait for it any more.
    Stale,
}

#[derive(Debug)]
struct Node<W: Work> {
    start: Start,
    /// Nothing below this number runs,
    low: u64,
    /// but these.
    older: BTreeSet<u64>,
    ended: BTreeMap<u64, Ended<W>>,
}

impl<W: Work> Node<W> {
    fn is_stale(&self, number: u64) -> bool {
        number < self.low && !self.older.contains(&number)
    }
}

/// The transactions that have ended here, by their coordinators.
#[derive(Debug)]
pub(super) struct EndedTransactions<W: Work> {
    nodes: BTreeMap<NodeId, Node<W>>,
}

impl<W: Work> EndedTransactions<W> {
    pub fn new() -> Self {
        EndedTransactions { nodes: BTreeMap::new() }
    }

    /// Takes note that nothing below a number runs at a coordinator, but some that are named. Says whether that is
    /// news; then some transactions may have become stale.
    pub fn hear_low(&mut self, id: TransactionId, low: u64, older: &[u64]) -> bool {
        let Some(node) = self.node(id) else { return false };
        let (low_before, older_before) = (node.low, node.older.len());
        // What did not run once never runs again, whatever an older message says.
        let runs = |number: &u64| *number >= low || older.binary_search(number).is_ok();
        node.older.retain(runs);
        if low > low_before {
            let since = older.iter().filter(|number| (low_before..low).contains(number));
            node.older.extend(since);
            node.low = low;
        }
        if low <= low_before && node.older.len() == older_before {
            return false;
        }
        let later = node.ended.split_off(&node.low);
        let older = std::mem::replace(&mut node.ended, later);
        node.ended.extend(older.into_iter().filter(|(number, _)| node.older.contains(number)));
        true
    }

    /// Whether a transaction does not run any more at its coordinator.
    pub fn is_stale(&self, id: TransactionId) -> bool {
        self.nodes.get(&id.node).is_some_and(|node| match id.start.cmp(&node.start) {
            Ordering::Less => true,
            Ordering::Equal => node.is_stale(id.number),
            Ordering::Greater => false,
        })
    }

    /// Whether a message about this transaction may have effects.
    pub fn admit(&mut self, id: TransactionId) -> Admission<W> {
        match self.node(id) {
            None => Admission::Stale,
            Some(node) if node.is_stale(id.number) => Admission::Stale,
            Some(node) => match node.ended.get(&id.number) {
                Some(ended) => Admission::Ended(ended.clone()),
                None => Admission::Open,
            },
        }
    }

    /// The transaction has ended here, or must not begin.
    pub fn end(&mut self, id: TransactionId, how: Ended<W>) {
        if let Some(node) = self.node(id)
            && !node.is_stale(id.number)
        {
            node.ended.insert(id.number, how);
        }
    }

    /// How many transactions are remembered.
    pub fn len(&self) -> usize {
        self.nodes.values().map(|node| node.ended.len()).sum()
    }

    /// The node of a transaction, unless a later start of it is known.
    fn node(&mut self, id: TransactionId) -> Option<&mut Node<W>> {
        let fresh = || Node { start: id.start, low: 0, older: BTreeSet::new(), ended: BTreeMap::new() };
        let node = self.nodes.entry(id.node).or_insert_with(fresh);
        if node.start < id.start {
            *node = fresh();
        }
        (node.start == id.start).then_some(node)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Bank;
    use super::*;

    fn id(start: u64, number: u64) -> TransactionId {
        TransactionId { node: NodeId(1), start: Start(start), number }
    }

    fn ended(of: &mut EndedTransactions<Bank>, number: u64) -> &'static str {
        match of.admit(id(1, number)) {
            Admission::Stale => "stale",
            Admission::Ended(_) => "ended",
            Admission::Open => "open",
        }
    }

    #[test]
    fn one_that_runs_for_long_keeps_the_others_from_nothing() {
        let mut of = EndedTransactions::<Bank>::new();
        (1..10).for_each(|number| of.end(id(1, number), Ended::Aborted));
        assert!(of.hear_low(id(1, 0), 8, &[2, 5, 6]));
        assert_eq!(
            [1, 2, 5, 7, 8].map(|at| ended(&mut of, at)),
            ["stale", "ended", "ended", "stale", "ended"]
        );
        assert_eq!(of.len(), 5, "2, 5, 6, 8, and 9");
        // A message that comes late: it makes nothing run again, and what has ended since does not run.
        assert!(!of.hear_low(id(1, 0), 4, &[2]));
        assert_eq!(ended(&mut of, 5), "ended");
        assert!(of.hear_low(id(1, 0), 9, &[3, 5, 8]));
        assert_eq!(
            [2, 3, 5, 6, 8].map(|at| ended(&mut of, at)),
            ["stale", "stale", "ended", "stale", "ended"]
        );
        assert!(!of.hear_low(id(1, 0), 9, &[3, 5, 8]), "no news");
        // One with an action says what the lowest is, whatever it is.
        assert!(of.hear_low(id(1, 0), 6, &[]));
        assert_eq!([5, 8, 9].map(|at| ended(&mut of, at)), ["stale", "ended", "ended"]);
        assert!(of.is_stale(id(0, 100)) && of.is_stale(id(1, 5)) && !of.is_stale(id(2, 0)));
        assert!(!of.is_stale(id(1, 8)) && !of.is_stale(id(1, 100)));
    }
}
