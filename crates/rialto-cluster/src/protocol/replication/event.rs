//! What goes into a replica's state machine, and what comes out.

use rialto::Lsn;
use rialto::log::LogPoint;
use serde::{Deserialize, Serialize};

use super::configuration::{Configuration, Known, LostBefore, Member, StoreIdentity};
use super::message::{Envelope, Stream};
use crate::control::Revision;
use crate::protocol::{Epoch, Life, Moment, NodeId};

/// How far a replica's own log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogState {
    /// The end of what is in memory that outlives the process.
    pub received: LogPoint,
    /// The end of what is on the disk, at most `received`.
    pub on_disk: LogPoint,
}

/// When a step is taken, and how far the log is then.
#[derive(Debug, Clone, Copy)]
pub struct At {
    /// The node's clock, which runs through suspension.
    pub now: Moment,
    /// The replica's log. None while its database is closed, being opened, or being copied.
    pub log: Option<LogState>,
}

impl At {
    /// The same with the log, if there is one.
    pub(super) fn with_log(self) -> Option<WithLog> {
        self.log.map(|log| WithLog { now: self.now, log })
    }
}

/// As [`At`], for a step that has a log.
#[derive(Debug, Clone, Copy)]
pub(super) struct WithLog {
    pub now: Moment,
    pub log: LogState,
}

/// The number of a request to the control store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// What a read of the control store gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadOutcome {
    /// The partition's configuration.
    Is(Known),
    /// The partition has none.
    Missing,
    /// The control store gave no answer.
    Unavailable,
}

/// What became of a swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwapOutcome {
    /// It was done, by this write.
    Done(Revision),
    /// Another revision was found: nothing has changed.
    Lost,
    /// It may have been done, may still be done, or not at all.
    Unknown,
}

/// What goes in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Time has passed. It is to come several times in a heartbeat.
    Tick,
    /// The replica's log has grown, or more of it is on the disk.
    LogMoved,
    /// A message has come. The bytes beside it stay until the step's effects are carried out.
    Received(Envelope),
    /// A read has ended.
    ReadEnded(Ticket, ReadOutcome),
    /// A swap has ended.
    SwapEnded(Ticket, SwapOutcome),
    /// The control store says that the partition's configuration has changed. It is a hint: replicas that get none, since the
    /// store tells of no changes or a hint is lost, ask in [`ReplicationOptions::poll`](super::ReplicationOptions::poll).
    StoreChanged,
    /// [`Effect::Lead`] has not ended, and has got further. It is to come at least several times in
    /// [`ReplicationOptions::opening_patience`](super::ReplicationOptions::opening_patience).
    OpeningMoved,
    /// The replica's database takes transactions ([`Effect::Lead`]).
    Led,
    /// It does not: [`Effect::Lead`] has failed. The driver closes the database and opens it again, as for
    /// [`Effect::Follow`], which is among the effects.
    LeadFailed,
    /// The database is open, whole, and follows: after [`Effect::Follow`] or [`Effect::StartOver`], or because a driver has
    /// opened it anew. What had failed before has failed no more.
    Opened {
        /// Its life. A copy has another one than the log that it replaces.
        life: Life,
    },
    /// [`Effect::StartOver`] has failed, so there is no whole database. The replica asks for it again.
    StartOverFailed,
    /// The log stands still ([`Effect::Drain`]), and all that ran has its place in it.
    Drained,
    /// The blocks that [`Effect::Ship`] asked for are not in this log: it goes through another end, or was trimmed.
    CannotShip {
        /// The replica.
        to: NodeId,
        /// The stream.
        stream: Stream,
    },
    /// The log has stopped, for good (C7).
    LogStopped,
    /// The redo has failed, or a database that was to follow cannot be opened (C7).
    RedoFailed,
    /// Blocks that came could not be appended (C7).
    AppendFailed,
    /// Reads at this replica, which follows, have to know how old its tables are: it asks its primary.
    AskEnd,
    /// The tables of a replica are not those of this one at the same place of the log (C6). Only a primary follows this: the
    /// replica gets out of sync once the control store is there, and takes a new copy. Until then it counts as before.
    Differs {
        /// The replica, in its life.
        member: Member,
    },
    /// An operator wants another primary. Only a primary follows this.
    Switchover {
        /// The standby that is to lead.
        to: NodeId,
    },
    /// An operator adds a replica to the partition. Only a primary follows this, and keeps the command while it leads. The
    /// command is to be repeated, about each second, until the configuration shows the replica; one that is not repeated
    /// is forgotten after some seconds. A member's replica stays as it is.
    AddLearner {
        /// The replica.
        member: Member,
    },
    /// An operator takes a replica from the partition. The same holds as for [`Event::AddLearner`]. A primary is not
    /// removed: it is changed before ([`Event::Switchover`]).
    Remove {
        /// Its node.
        node: NodeId,
        /// It is removed only under a configuration for which this holds.
        once: Once,
    },
    /// An operator has this replica lead, whatever the control store and other replicas say. What they have and this one
    /// has not is lost.
    Force {
        /// The nodes that the operator knows to be dead: the force does not wait for them.
        without: Vec<NodeId>,
    },
}

/// What is kept in a file of the replica's own. It is there again at the next opening.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// The store of the configurations, once it is known.
    pub store: Option<StoreIdentity>,
    /// The highest epoch that was seen.
    pub epoch: Epoch,
    /// The highest epoch that this replica has sent a swap for. While it is above the known configuration's, the swap may
    /// still be done.
    pub proposed: Epoch,
    /// What is in the replica's directory.
    pub contents: Contents,
    /// The newest epoch of whose primary the replica has the log: it was in sync in it, or has taken a copy under it. A fence
    /// and what is only heard of do not raise it.
    pub agrees: Epoch,
}

/// The condition under which a replica may be removed. It is checked when the change is made, which may be long after
/// the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Once {
    /// The replica on this node is in sync.
    InSync(NodeId),
    /// So many other replicas are in sync.
    Others(usize),
    /// It is not in sync itself.
    CatchesUp,
}

impl Once {
    /// Whether this holds for a node's replica.
    pub fn holds(self, node: NodeId, configuration: &Configuration) -> bool {
        match self {
            Once::InSync(to) => to != node && configuration.life_in_sync(to).is_some(),
            Once::Others(count) => {
                configuration.in_sync.iter().filter(|member| member.node != node).count() >= count
            }
            Once::CatchesUp => configuration.life_in_sync(node).is_none(),
        }
    }
}

/// What is in a replica's directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Contents {
    /// A database, or nothing yet.
    #[default]
    Whole,
    /// What [`Effect::StartOver`] has left. A driver that finds this when its process begins does not open the database, and
    /// waits for the next [`Effect::StartOver`].
    AmidACopy,
}

/// What comes out. A driver carries effects out in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Write this to the replica's file. It is on the disk before the effects after it are carried out.
    Save(Saved),
    /// Send a message. It may be lost.
    Send(Envelope),
    /// Read the partition's configuration. Exactly one [`Event::ReadEnded`] follows, within the store's time.
    Read(Ticket),
    /// Swap the partition's configuration, if the store is this one and the revision the expected one. Exactly one
    /// [`Event::SwapEnded`] follows.
    Swap {
        /// The request.
        ticket: Ticket,
        /// The store.
        store: StoreIdentity,
        /// The revision that the key has to have.
        expected: Revision,
        /// The new value.
        configuration: Configuration,
    },
    /// Send blocks of the log as a [`Message::Blocks`](super::Message::Blocks) with their bytes, also if there are
    /// none, or give [`Event::CannotShip`]. A long stretch goes in several messages, one after the other. Another
    /// stretch of the same stream that begins before the end of the last one repeats what seems to be lost.
    Ship {
        /// The replica, in its life.
        to: Member,
        /// The stream.
        stream: Stream,
        /// Where it begins.
        begin: LogPoint,
        /// Where it ends: a place that the log has gone through.
        end: LogPoint,
    },
    /// Append the blocks that came with the message of this step, or give [`Event::AppendFailed`]. They end here.
    Append {
        /// Their end.
        end: LogPoint,
    },
    /// Transactions up to this place may be redone.
    RedoUpTo(Lsn),
    /// Write the log to the disk.
    SyncDisk,
    /// Take transactions.
    Lead {
        /// The epoch.
        epoch: Epoch,
        /// Whether what was answered before is there. If not, transactions over partitions ask their branches.
        lost_before: LostBefore,
    },
    /// Take no transactions any more, answer none, close the database, and open it as a follower; then
    /// [`Event::Opened`]. An [`Effect::Lead`] that has not ended yet is taken back: no [`Event::Led`] comes from it.
    Follow,
    /// Take no new transactions, and wait for those that run; the log then stands still ([`Event::Drained`]).
    Drain,
    /// Take transactions again, after [`Effect::Drain`].
    GoOn,
    /// Take a new copy: the primary's log cannot follow this one, or the tables are not the log, redone (C6). Exactly
    /// one [`Event::Opened`] or [`Event::StartOverFailed`] follows.
    StartOver {
        /// The primary.
        primary: NodeId,
    },
    /// More can be answered than before ([`Replica::answers`](super::Replica::answers)).
    AnswersGrew,
    /// The answer to a question ([`Event::AskEnd`]). Once the tables have everything up to the end, they have everything
    /// that was answered before the question.
    EndKnown {
        /// When the question was asked.
        asked_at: Moment,
        /// The end of the primary's log, of which this replica's log is a part.
        end: LogPoint,
    },
    /// Tell the operator.
    Report(Report),
}

/// What an operator is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The control store has an older configuration than the replica has seen, or is another store: it was restored. It
    /// needs force.
    StoreRefused {
        /// What it has.
        found: Known,
    },
    /// The partition has no replica on this node any more. What the node has of it may be deleted.
    Removed {
        /// The epoch of the configuration without it.
        epoch: Epoch,
    },
    /// This replica was to lead, and its database does not. It pauses, and gives way to other replicas in sync.
    CannotLead {
        /// The epoch.
        epoch: Epoch,
    },
    /// An operator's force is refused: the partition has no replica here, or its database is not whole.
    ForceRefused,
    /// A replica in sync is told to start over: a contradiction. It does not.
    CutOffRefused,
    /// This replica leads by force. These replicas have more than it has, which is lost.
    ForcedLoss {
        /// The replicas, and the ends of their logs.
        ahead: Vec<(NodeId, LogPoint)>,
        /// Nodes that were not asked, or whose databases were not open.
        unasked: Vec<NodeId>,
    },
}
