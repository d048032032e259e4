//! Names and numbers of transactions over several partitions.

use std::fmt;
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

/// How durable a commit is when it is answered: section 2's levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Level {
    /// Level 1: in the primary's memory that outlives its process.
    Memory,
    /// Level 2: in the memory of every standby that is in sync.
    Replicated,
    /// Level 3: on the primary's disk, and in the memory of every standby that is in sync.
    Disk,
}

impl Level {
    /// The level of a transaction over several partitions whose client has asked for this one (C11).
    pub fn over_partitions(self) -> Level {
        if fault_injection::is_on("level-one-over-partitions") {
            return self;
        }
        self.max(Level::Replicated)
    }
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transaction {}.{}.{}", self.node.0, self.start.0, self.number)
    }
}
