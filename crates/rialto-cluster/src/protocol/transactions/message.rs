//! The messages between coordinators and partitions, and between partitions.

use rialto::fault_injection;
use serde::{Deserialize, Serialize};

use super::{Access, Branches, Level, Opening, Request, TransactionId, Work};
use crate::protocol::{NodeId, PartitionId};

/// An end of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Address {
    /// The coordinators of a node.
    Coordinator(NodeId),
    /// The primary of a partition, on whichever node it is.
    Partition(PartitionId),
}

/// The sender of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Sender {
    /// The coordinators of a node. Its start is in the transaction's name.
    Coordinator(NodeId),
    /// The primary of a partition, in this opening of it (C2).
    Partition(PartitionId, Opening),
}

impl Sender {
    /// Where an answer goes. If the partition has been opened anew since, it goes to the new primary.
    pub fn address(self) -> Address {
        match self {
            Sender::Coordinator(node) => Address::Coordinator(node),
            Sender::Partition(partition, _) => Address::Partition(partition),
        }
    }
}

/// A message about a transaction.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Message<W: Work> {
    /// Its sender.
    pub from: Sender,
    /// Its receiver.
    pub to: Address,
    /// The transaction.
    pub transaction: TransactionId,
    /// What it says.
    pub body: Body<W>,
}

/// What a coordinator tells its client at the end.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Outcome<W: Work> {
    /// The request has had its effects, once, or has failed for good: the answer.
    Answered(W::Reply),
    /// The transaction has no effects; the same request may be sent again.
    Aborted,
    /// Whether the transaction has committed is not known here (SQLSTATE 08007). A request that has a number is sent
    /// again.
    Unknown,
    /// The session has had a later request answered, or the request is older than answers are kept: it is not run.
    TooOld,
}

/// How a transaction ends in its deciding partition.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Verdict<W: Work> {
    /// It commits, and this is the answer.
    Commit(W::Reply),
    /// It fails for a reason of its own: nothing is kept but the answer, so that a late duplicate of the request does
    /// not run after its client was told of the failure.
    Fail(W::Reply),
}

/// How a transaction has ended, as its deciding partition tells its branches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision {
    /// Its effects stay.
    Commit,
    /// It has none.
    Abort,
}

impl std::fmt::Display for Decision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Decision::Commit => "commit",
            Decision::Abort => "abort",
        })
    }
}

/// What a branch knows of a transaction, when its deciding partition has lost its own record of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// Prepared, in doubt, and bound to this opening of the deciding partition, which has asked.
    Prepared(Opening),
    /// Committed.
    Committed,
    /// Neither, and never to be: the branch has made sure.
    Ended,
    /// The branch's own partition has had a loss since.
    Lost,
}

/// An action for a branch.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Act<W: Work> {
    /// The opening that the branch is to run under.
    pub opening: Opening,
    /// The lowest number of a transaction that runs at this coordinator.
    pub low: u64,
    /// The deciding partition.
    pub deciding: PartitionId,
    /// The client's request, if it has one.
    pub request: Option<Request>,
    /// The level that the client asks for: that at which its request is answered from its row.
    pub level: Level,
    /// The number of the action in its branch, from 0 on.
    pub sequence: u32,
    /// The action.
    pub action: W::Action,
    /// If this is the branch's last action, and the branch may write: it prepares, and votes with the reply (C8).
    pub vote: Option<Branches>,
}

/// What a message says.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Body<W: Work> {
    /// To a partition: a whole transaction, which needs no other partition.
    Call {
        /// The opening of the partition.
        opening: Opening,
        /// The lowest number of a transaction that runs at this coordinator.
        low: u64,
        /// The client's request, if it has one.
        request: Option<Request>,
        /// The level of its commit.
        level: Level,
        /// What it does.
        action: W::Action,
    },
    /// To a branch: an action. The first one opens the branch.
    Act(Act<W>),
    /// To a branch that writes: a vote is asked for in a round of its own.
    Prepare {
        /// The opening that the branch runs under.
        opening: Opening,
        /// The branches.
        branches: Branches,
    },
    /// To a branch that only reads, after the last acquisition anywhere: does it still hold its locks (C9)?
    Confirm {
        /// The opening that the branch runs under.
        opening: Opening,
        /// The level that what it has read needs (C11).
        level: Level,
    },
    /// To the deciding partition: all have voted for it.
    Decide {
        /// The branches.
        branches: Branches,
        /// The client's request, if it has one.
        request: Option<Request>,
        /// What is to be decided.
        verdict: Verdict<W>,
    },
    /// To a branch: the coordinator has given up, and never asks for a decision.
    Abort,
    /// To a partition, with each heartbeat: what runs at the coordinator.
    Low {
        /// No transaction below this number runs there,
        low: u64,
        /// but these, in order: those with [`super::Pace::Statements`] may take any time.
        older: Vec<u64>,
    },
    /// To a coordinator: the result of an action. `None`: the branch could not run it, and has aborted.
    Reply {
        /// The number of the action.
        sequence: u32,
        /// What the action gave.
        reply: Option<W::Reply>,
        /// Whether the branch has written so far.
        access: Access,
        /// The branch has voted for the transaction, too.
        votes: bool,
    },
    /// To a coordinator: a branch has voted for the transaction.
    Voted,
    /// To a coordinator: a branch that only reads held all its locks, and has ended; what it has read is durable.
    StillHeld,
    /// To a coordinator: there is no such branch in the sender's opening, and there will be none. To a whole call it
    /// says that this copy of the message has opened nothing: under an earlier opening, an earlier copy may have
    /// committed.
    NoBranch,
    /// To a coordinator: what the deciding partition says.
    Outcome(Outcome<W>),
    /// From a deciding partition to a branch: the decision.
    Decided(Decision, Branches),
    /// From a branch to its deciding partition: its commit, or its abort, is durable at the transaction's level.
    Confirmed(Decision, Branches),
    /// From a deciding partition to a branch: the decision is forgotten.
    Forgotten,
    /// From a branch in doubt to its deciding partition.
    Inquire(Branches),
    /// From a deciding partition to a branch in doubt: it has not decided yet.
    NotYet,
    /// From a deciding partition that has had a loss to a branch. One that answers that it is prepared waits for
    /// a decision of the sender's opening, or of a later one, from then on.
    Ask(Branches),
    /// The answer to it.
    Standing(Standing, Branches),
}

/// Which room a message takes in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// It begins work, and may be refused when there is no room.
    Request,
    /// It ends work, or belongs to work that was admitted: there is room for it.
    Reserved,
}

/// What two messages have in common of which the later one says all that the earlier one says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageKey<W: Work> {
    from: Sender,
    to: Address,
    transaction: Option<TransactionId>,
    kind: std::mem::Discriminant<Body<W>>,
    /// The action that a reply is to.
    reply_to: Option<u32>,
}

impl<W: Work> Message<W> {
    /// The room that the message takes (C13).
    pub fn class(&self) -> Class {
        match &self.body {
            Body::Call { .. } | Body::Act(_) => Class::Request,
            _ => Class::Reserved,
        }
    }

    /// What a later message has in common with an earlier one whose place it takes, if that is still in a queue.
    /// Therefore the room for a transaction's messages has a bound, however often they are sent again.
    pub fn key(&self) -> MessageKey<W> {
        // These are about no transaction: the last one says all.
        let is_low = matches!(self.body, Body::Low { .. }) && !fault_injection::is_on("heartbeats-pile-up");
        MessageKey {
            from: self.from,
            to: self.to,
            transaction: (!is_low).then_some(self.transaction),
            kind: std::mem::discriminant(&self.body),
            reply_to: match self.body {
                Body::Reply { sequence, .. } => Some(sequence),
                _ => None,
            },
        }
    }
}
