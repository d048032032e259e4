//! A node of the simulation: a replica with its log, clock and disk, and what is wrong with them.

use std::time::Duration;

use rialto::log::LogPoint;
use rialto_cluster::protocol::replication::{LogState, Member, Replica, Saved};
use rialto_cluster::protocol::{Life, Moment, NodeId};

use crate::log::ModelLog;

/// A transaction that ran at a primary and is not answered yet.
#[derive(Debug, Clone, Copy)]
pub struct Running {
    pub place: usize,
    pub level: u8,
    /// For a read: what was answered when it began.
    pub read_after: Option<LogPoint>,
}

/// Whether a node's database takes transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    Follows,
    BeginsToLead,
    Leads,
    Drains,
}

/// Whether a node's database is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    Open,
    /// It is being opened, or copied.
    Closed,
}

/// What is left of a log in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    Kept,
    Lost,
}

/// What becomes of the swaps that a node sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swaps {
    Usual,
    /// They have no answer, and are done late.
    Late,
    /// So is the next one, and the process dies when it has sent it.
    LateAndDies,
}

/// How a database opens that is to lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Openings {
    Usual,
    /// It takes longer than a promise, and moves all the time.
    Slow,
    /// It does not move, and ends late.
    Stuck,
}

/// Whether a standby redoes what it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redoes {
    Usual,
    /// Reads hold it up.
    HeldUp,
}

/// What becomes of blocks that come to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appends {
    Work,
    /// The disk is full, say, and the driver says so.
    Fail,
    /// Nothing becomes of them, and nothing is said.
    Stick,
}

pub struct Node {
    pub id: NodeId,
    pub life: Life,
    /// None while the process is dead.
    pub replica: Option<Replica>,
    /// How many processes it had: what was begun for an earlier one is void.
    pub process: u64,
    pub saved: Saved,
    pub log: ModelLog,
    pub kernel: Kernel,
    pub database: Database,
    /// The directory has a part of a copy only.
    pub is_half: bool,
    pub appends: Appends,
    /// The database does not lead.
    pub fails_to_lead: bool,
    pub openings: Openings,
    pub redoes: Redoes,
    /// Its tables are not its log, redone. Only a copy repairs that.
    pub differs: bool,
    /// What has failed is repaired by an opening only.
    pub needs_opening: bool,
    /// Its replica has said that it is none of the partition's.
    pub says_removed: bool,
    pub leads_begun: u64,
    pub reads: u64,
    pub bound: usize,
    /// The log before this is not there any more to be shipped.
    pub trimmed: usize,
    pub running: Vec<Running>,
    /// Where the primary's log ended when it was asked at which time. The tables are as old as that once they have it.
    pub ends: Vec<(u64, usize)>,
    pub log_stopped: bool,
    pub paused_until: u64,
    /// How fast its clock runs, in thousandths, and where it began.
    pub rate: u64,
    pub offset: u64,
    /// How probable it is at a tick that the disk has got what is there, of 100.
    pub disk: u64,
    /// The process dies after so many effects.
    pub dies_after: Option<u64>,
    pub swaps: Swaps,
    pub cut_off_store: bool,
}

impl Node {
    pub fn member(&self) -> Member {
        Member { node: self.id, life: self.life }
    }

    /// Whether its replica waits for the outcome of a swap.
    pub fn has_open_swap(&self, time: u64) -> bool {
        let replica = self.replica.as_ref();
        replica.is_some_and(|replica| replica.status(self.now(time)).open_swap.is_some())
    }

    /// The log, as a driver tells it.
    pub fn log_state(&self) -> Option<LogState> {
        (self.database == Database::Open).then(|| self.log.state())
    }

    pub fn now(&self, time: u64) -> Moment {
        Moment(Duration::from_micros(self.offset + time * self.rate))
    }

    /// The time of a moment on its clock.
    pub fn time_of(&self, moment: Moment) -> u64 {
        (moment.0.as_micros() as u64 - self.offset) / self.rate
    }

    pub fn is_paused(&self, time: u64) -> bool {
        time < self.paused_until
    }
}
