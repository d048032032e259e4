//! Names and numbers of transactions over several partitions.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rialto::fault_injection;
use serde::{Deserialize, Serialize};

use crate::protocol::NodeId;

/// The number of a start of a node's process. Each start of the same node has a higher one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Start(pub u64);

/// The *opening epoch* of a partition: the number of the opening that its primary runs transactions under. Each
/// opening, by a promotion or by a start of the primary's process, has a higher one. Transactions that were open and
/// not prepared do not outlive their opening.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Opening(pub u64);

/// A transaction, across the cluster: the node that coordinates it, the start of that node, and a number that rises
/// with each transaction of this start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TransactionId {
    /// The coordinator.
    pub node: NodeId,
    /// Its start.
    pub start: Start,
    /// The number.
    pub number: u64,
}

/// A request of a client, for C12. A session has one request outstanding at a time, and numbers its requests upwards.
/// Each retry of a request carries the same three values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Request {
    /// The client's session.
    pub session: u64,
    /// The number of the request in its session.
    pub number: u64,
    /// When the client first sent it, on the clock of the cluster (see [`super::Answers`]).
    pub issued: Duration,
}

/// How durable a commit is when it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Level {
    /// Level 1: in the primary's memory that outlives its process.
    Memory,
    /// Level 2: in the memory of every standby that is in sync.
    Standby,
    /// Level 3: on the primary's disk, and in the memory of every standby that is in sync.
    Disk,
}

impl Level {
    /// The level of a transaction over several partitions whose client has asked for this one (C11).
    pub fn over_partitions(self) -> Level {
        if fault_injection::is_on("level-one-over-partitions") {
            return self;
        }
        self.max(Level::Standby)
    }
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transaction {}", self.name())
    }
}

impl TransactionId {
    /// Its three numbers with dots between them: the name under which an operator knows it. [`str::parse`] reads it.
    pub fn name(&self) -> String {
        format!("{}.{}.{}", self.node.0, self.start.0, self.number)
    }
}

/// A text that names no transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoTransactionId;

impl fmt::Display for NoTransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected three numbers with dots between them, as in 0.1760000000000.17")
    }
}

impl std::error::Error for NoTransactionId {}

impl FromStr for TransactionId {
    type Err = NoTransactionId;

    fn from_str(name: &str) -> Result<TransactionId, NoTransactionId> {
        let mut parts = name.split('.');
        let mut next = || parts.next().ok_or(NoTransactionId);
        let (node, start, number) = (next()?, next()?, next()?);
        let wrong = |_| NoTransactionId;
        let id = TransactionId {
            node: NodeId(node.parse().map_err(wrong)?),
            start: Start(start.parse().map_err(wrong)?),
            number: number.parse().map_err(wrong)?,
        };
        // One name for each transaction: no signs, and no zeros in front.
        (id.name() == name).then_some(id).ok_or(NoTransactionId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_one_transaction() {
        let id = TransactionId { node: NodeId(3), start: Start(1_760_000_000_000), number: 17 };
        assert_eq!(id.name().parse(), Ok(id));
        for wrong in ["", "3", "3.1", "3.1.17.0", "3.1.", "+3.1.17", "3.01.17", "a.1.17", "3.1.17 "] {
            assert_eq!(wrong.parse::<TransactionId>(), Err(NoTransactionId), "{wrong:?}");
        }
    }
}
