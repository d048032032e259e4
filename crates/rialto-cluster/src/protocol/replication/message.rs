//! The messages between the replicas of a partition.

use rialto::log::LogPoint;

use super::configuration::{Known, Member};
use super::promise::Asked;
use crate::control::Revision;
use crate::protocol::{Epoch, Life, NodeId, PartitionId};

/// A stretch of shipping from a primary to one replica: the blocks of one stream follow one another. A new one begins when the
/// replica's end has to be compared with the primary's log again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stream {
    /// The epoch in which the primary began it.
    pub epoch: Epoch,
    /// Its number among those that this primary has begun.
    pub number: u64,
}

/// A message with what every message carries (C2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// The partition.
    pub partition: PartitionId,
    /// The highest epoch that the sender has seen.
    pub epoch: Epoch,
    /// The sender, in its life.
    pub from: Member,
    /// The node that it goes to.
    pub to: NodeId,
    /// If it is for one life only: that one.
    pub to_life: Option<Life>,
    /// What it says.
    pub message: Message,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// A primary leads under this configuration, and asks for a promise.
    Heartbeat {
        /// The configuration in force.
        known: Known,
        /// The request.
        ask: Asked,
        /// What all replicas in sync have: it may be redone.
        redo: LogPoint,
    },
    /// How far a replica is.
    Status {
        /// The request that it answers with a promise.
        promise: Option<Asked>,
        /// The stream that its log's end belongs to, if any.
        stream: Option<Stream>,
        /// What it has in memory that outlives its process.
        received: LogPoint,
        /// Whether it can go on as a standby.
        fitness: Fitness,
    },
    /// Blocks of the primary's log. Their bytes travel beside the message.
    Blocks {
        /// The stream. Its first message shows that the primary's log goes through `begin`.
        stream: Stream,
        /// Where the first block begins.
        begin: LogPoint,
        /// Where the last one ends; `begin` if there is none.
        end: LogPoint,
    },
    /// The primary's log does not go through this end of the receiver's log, or is not there any more behind it.
    StartOver {
        /// The stream that was to begin there, or to go on.
        stream: Stream,
        /// The receiver's end.
        end: LogPoint,
    },
    /// The receiver is behind: the envelope has the newer epoch.
    Newer {
        /// The configuration, if the sender knows it.
        known: Option<Known>,
    },
    /// The primary has stopped to serve in this epoch and gives the receiver's promise back.
    Handover {
        /// Where the log ends of those in `with`.
        end: LogPoint,
        /// Replicas in sync whose logs end there, and will not grow in this epoch.
        with: Vec<Member>,
    },
    /// A recorded primary with a new life asks whether the receiver has one, too.
    AskLife {
        /// The configuration that the question is about.
        revision: Revision,
    },
    /// The answer: the envelope has the life.
    LifeIs {
        /// That of the question.
        revision: Revision,
    },
    /// An operator has a replica go on by force: the envelope's epoch ends all earlier ones.
    Fence,
    /// The answer: no epoch below the envelope's goes on through the sender.
    Fenced {
        /// The end of the sender's log.
        received: LogPoint,
    },
    /// The other answer: the epoch of the fence is not above all.
    FenceRefused {
        /// It has to be above this one.
        above: Epoch,
    },
}

/// Whether a replica can be a standby.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fitness {
    /// It can.
    Fit,
    /// Its log has stopped, or its redo has failed (C7).
    Unfit,
}
