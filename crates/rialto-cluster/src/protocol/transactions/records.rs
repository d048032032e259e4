//! What a branch, or a decision, leaves in its partition as rows of the system: copies, checkpoints, standbys and
//! failovers have them, because they are rows (C8).

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use rialto::fault_injection;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Decision, Level, Opening, Request, TransactionId};
use crate::protocol::PartitionId;

/// What actions and their results are. The protocol hands them on and does not look at them.
pub trait Work: Debug + Clone + Copy + Eq + Hash + 'static {
    /// An action of a transaction in one partition.
    type Action: Debug + Clone + Serialize + DeserializeOwned;
    /// What an action gives, and what a client is answered.
    type Reply: Debug + Clone + Serialize + DeserializeOwned;
}

/// Whether a branch may change rows. A branch that only reads leaves nothing durable: it is confirmed instead (C9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Access {
    /// It only reads.
    Reads,
    /// It may write.
    Writes,
}

/// A branch of a transaction: its partition, and the opening that it runs under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchRef {
    /// The partition.
    pub partition: PartitionId,
    /// The opening epoch of that partition.
    pub opening: Opening,
    /// Whether the branch may write.
    pub access: Access,
}

/// All that the branches of a transaction know of it in common.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(into = "BranchesInBytes", try_from = "BranchesInBytes")]
pub struct Branches {
    /// The partition whose branch's commit is the decision (C10); it is one of `all`.
    pub deciding: PartitionId,
    /// All branches, each partition once.
    pub all: Arc<[BranchRef]>,
    /// The level of the transaction, of at least [`Level::Standby`].
    pub level: Level,
}

/// [`Branches`] as they are in messages and rows; what comes from there is checked.
#[derive(Serialize, Deserialize)]
struct BranchesInBytes {
    deciding: PartitionId,
    all: Vec<BranchRef>,
    level: Level,
}

impl From<Branches> for BranchesInBytes {
    fn from(branches: Branches) -> Self {
        let Branches { deciding, all, level } = branches;
        BranchesInBytes { deciding, all: all.to_vec(), level }
    }
}

impl TryFrom<BranchesInBytes> for Branches {
    type Error = &'static str;

    fn try_from(bytes: BranchesInBytes) -> Result<Branches, &'static str> {
        let BranchesInBytes { deciding, all, level } = bytes;
        let mut partitions: Vec<_> = all.iter().map(|branch| branch.partition).collect();
        partitions.sort_unstable();
        if partitions.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err("a partition has two branches of a transaction");
        }
        if partitions.binary_search(&deciding).is_err() {
            return Err("the deciding partition has no branch");
        }
        Ok(Branches { deciding, all: all.into(), level })
    }
}

impl Branches {
    /// The branch of a partition, if the transaction has one there.
    pub fn of(&self, partition: PartitionId) -> Option<&BranchRef> {
        self.all.iter().find(|branch| branch.partition == partition)
    }

    /// The opening that the deciding branch runs under.
    ///
    /// # Panics
    /// If the deciding partition has no branch, which is a bug.
    pub fn deciding_opening(&self) -> Opening {
        self.of(self.deciding).expect("the deciding partition is one of the branches'").opening
    }

    /// The branches that prepare: those that may write, without the deciding one.
    pub fn prepared(&self) -> impl Iterator<Item = &BranchRef> {
        self.all.iter().filter(|branch| branch.access == Access::Writes && branch.partition != self.deciding)
    }
}

/// A change of the system's rows. It is written in one packet of the log with the effects that it belongs to.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum RowChange<W: Work> {
    /// A branch has voted: *Prepared*. (The kernel keeps its values and its locks beside it.)
    Prepared(TransactionId, Branches),
    /// A prepared branch has ended; its row goes, and that of [`RowChange::Bound`] if there is one.
    NotPrepared(TransactionId),
    /// From now on only this opening of the deciding partition, or a later one, is heard about the branch: how it ends
    /// if it is prepared, and that its decision is forgotten if it has committed. A prepared branch is bound when an
    /// opening that has had a loss asks. A branch that commits is bound if the opening that says so is later than its
    /// deciding branch's.
    Bound(TransactionId, Opening),
    /// A prepared branch has committed. The row says so until the decision is forgotten: after a loss the
    /// deciding partition asks for it.
    Committed(TransactionId, Branches),
    /// The decision of a committed branch is forgotten; its row goes, and that of [`RowChange::Bound`] if there is one.
    Settled(TransactionId),
    /// The decision of a transaction. The row stays until each branch has confirmed (C10). Only an inquiry after a
    /// loss leaves a row for an abort.
    Decision(TransactionId, Decision, Branches),
    /// A decision is forgotten; its row goes.
    Forgotten(TransactionId),
    /// The answer of a request; it takes the place of the session's last one (C12).
    Answer(Request, W::Reply),
    /// The answer of a request has expired; its row goes, unless it is that of a later request of the session by now.
    Expired {
        /// The session.
        session: u64,
        /// The request's number in it.
        number: u64,
    },
    /// The partition has had a loss. The driver of the opening that follows the loss writes it.
    Lost(Lost),
}

/// The last openings whose records a partition may have lost in part, by how durable these were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Those that were in memories alone: at level 2.
    pub in_memories: Option<Opening>,
    /// Those that were on disks, too: at level 3. Only force loses them.
    pub on_disks: Option<Opening>,
}

impl Lost {
    /// Whether what an opening has made durable at a level may be lost.
    pub fn has(&self, opening: Opening, level: Level) -> bool {
        let last = match level {
            Level::Disk if !fault_injection::is_on("lost-memories-taken-for-lost-disks") => self.on_disks,
            Level::Disk | Level::Standby | Level::Memory => self.in_memories,
        };
        last.is_some_and(|last| opening <= last)
    }

    /// Both losses.
    fn and(self, other: Lost) -> Lost {
        Lost {
            in_memories: self.in_memories.max(other.in_memories),
            on_disks: self.on_disks.max(other.on_disks),
        }
    }
}

/// The system's rows of a partition, as an opening finds them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct SystemRows<W: Work> {
    /// The prepared branches.
    pub prepared: Vec<(TransactionId, Branches)>,
    /// The openings of their deciding partitions that prepared and committed branches are bound to.
    pub bound: Vec<(TransactionId, Opening)>,
    /// The committed branches whose decisions may still be remembered.
    pub committed: Vec<(TransactionId, Branches)>,
    /// The decisions that are not forgotten.
    pub decisions: Vec<(TransactionId, Decision, Branches)>,
    /// The last answer of each session.
    pub answers: Vec<(Request, W::Reply)>,
    /// What the partition may have lost.
    pub lost: Lost,
}

impl<W: Work> Default for SystemRows<W> {
    fn default() -> Self {
        SystemRows {
            prepared: Vec::new(),
            bound: Vec::new(),
            committed: Vec::new(),
            decisions: Vec::new(),
            answers: Vec::new(),
            lost: Lost::default(),
        }
    }
}

impl<W: Work> SystemRows<W> {
    /// Makes a change. A driver whose system rows are tables does not need it; a model of a partition does.
    pub fn apply(&mut self, change: &RowChange<W>) {
        match change {
            RowChange::Prepared(id, branches) => self.prepared.push((*id, branches.clone())),
            RowChange::NotPrepared(id) => {
                self.prepared.retain(|(of, _)| of != id);
                self.bound.retain(|(of, _)| of != id);
            }
            RowChange::Bound(id, opening) => {
                self.bound.retain(|(of, _)| of != id);
                self.bound.push((*id, *opening));
            }
            RowChange::Committed(id, branches) => self.committed.push((*id, branches.clone())),
            RowChange::Settled(id) => {
                self.committed.retain(|(of, _)| of != id);
                self.bound.retain(|(of, _)| of != id);
            }
            RowChange::Decision(id, decision, branches) => {
                self.decisions.push((*id, *decision, branches.clone()));
            }
            RowChange::Forgotten(id) => self.decisions.retain(|(of, ..)| of != id),
            RowChange::Answer(request, reply) => {
                self.answers.retain(|(of, _)| of.session != request.session);
                self.answers.push((*request, reply.clone()));
            }
            RowChange::Expired { session, number } => {
                self.answers.retain(|(of, _)| (of.session, of.number) != (*session, *number));
            }
            RowChange::Lost(lost) => self.lost = self.lost.and(*lost),
        }
    }
}
