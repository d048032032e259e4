//! Which transactions have ended in a partition, so that a duplicate of a message opens none of them again (C10, hole
//! 20).
//!
//! Four facts together need little memory and lose nothing:
//!
//! - Messages of an earlier start of a node, or of a number below those that still run there, are stale.
//! - A transaction that has ended under this opening is remembered until its number lies below those.
//! - Each message that may open a branch names the opening. So what an earlier opening has known need not be known.
//! - Numbers of one start rise, and a node's starts do.

use std::collections::BTreeMap;

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
    low: u64,
    ended: BTreeMap<u64, Ended<W>>,
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

    /// Takes note of the lowest number that runs at a coordinator.
    pub fn hear_low(&mut self, id: TransactionId, low: u64) {
        let Some(node) = self.node(id) else { return };
        if low > node.low {
            node.low = low;
            node.ended = node.ended.split_off(&low);
        }
    }

    /// Whether a message about this transaction may have effects.
    pub fn admit(&mut self, id: TransactionId) -> Admission<W> {
        match self.node(id) {
            None => Admission::Stale,
            Some(node) if id.number < node.low => Admission::Stale,
            Some(node) => match node.ended.get(&id.number) {
                Some(ended) => Admission::Ended(ended.clone()),
                None => Admission::Open,
            },
        }
    }

    /// The transaction has ended here, or must not begin.
    pub fn end(&mut self, id: TransactionId, how: Ended<W>) {
        if let Some(node) = self.node(id)
            && id.number >= node.low
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
        let fresh = || Node { start: id.start, low: 0, ended: BTreeMap::new() };
        let node = self.nodes.entry(id.node).or_insert_with(fresh);
        if node.start < id.start {
            *node = fresh();
        }
        (node.start == id.start).then_some(node)
    }
}
