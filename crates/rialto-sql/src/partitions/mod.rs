//! SQL over partitions: one database that is split into several, each a kernel [`Database`] of its own, possibly on
//! another machine.
//!
//! A [`Session`](crate::Session) that was made by [`Session::over_partitions`](crate::Session::over_partitions) binds
//! statements by the definitions in [`Partitions::catalog`], finds the partitions that a statement concerns, and sends
//! it there through [`Branches`]. There a [`BranchSession`] runs it: an ordinary session in one open transaction, the
//! *branch*. This crate has no network: the traits [`Partitions`] and [`Branches`] are the interface to one, and
//! everything that passes it ([`Request`], [`Reply`]) is plain data.
//!
//! Invariants:
//!
//! - All statements of a transaction that concern one partition run in one branch there. The branches of a transaction
//!   are committed together, by [`Branches::commit`], or none of them is.
//! - A branch that may have company reads with locks and may be prepared. Only a statement that is alone in its
//!   transaction and concerns one partition ([`Run::then_commit`]) runs without that, and costs one exchange.
//! - Both sides have the same definition of a table, or the statement does not run: a request has the digest of the
//!   definition that its sender knows ([`Statement::expects`]), and the branch compares it with its own. The placement
//!   of the table's rows is part of the definition.
//! - Rows are sent in portions of bounded size, and a branch waits before the next portion until it was asked for. So
//!   neither side keeps a large result.
//! - A row lies in the partition that its routing columns say ([`Placement`]); a replicated row lies in every
//!   partition.
//!
//! `placement` says where rows lie, `routing` which partitions a statement concerns, `message` what is sent, `branch`
//! what runs in a partition, `over` what a session keeps of its branches, `gather` how rows of several branches become
//! one result, `spread` how rows get to their partitions, `reads` what is accepted of replicas, `run` what each kind of
//! statement does. Blocks and definitions are in `session/over_partitions.rs`.

mod branch;
mod counts;
mod gather;
mod known;
mod message;
mod over;
mod partial;
mod placement;
mod reads;
mod routing;
mod run;
mod scratch;
mod spread;
mod wire;

use std::sync::Arc;

use rialto::Database;

pub use branch::{BranchCanceller, BranchPool, BranchSession, Next, Portions};
pub use counts::NodeCounts;
pub use message::{
    Answer, Arguments, Choices, Definition, EncodedRows, Insert, Level, Notice, Opening, Part,
    PartitionNumber, Reply, Request, Run, Savepoints, Statement, TakeMisplaced, Work,
};
pub use placement::{PLACEMENT_TABLE, Placement, partition_of};
pub use reads::{NoPositions, Position, Positions, ReplicaReads, Written};
pub use wire::{Cause, Cells, Told};

pub(crate) use over::{CATALOG_LAG_MAX, Header, Over, first_error, unexpected};
pub(crate) use placement::{check_index, choose_placement, forget_placement};
pub(crate) use run::{Sent, run_sent};
pub(crate) use spread::{NotInserted, Spread};

use crate::error::Result;

/// The partitions of a database, as a session sees them.
pub trait Partitions: Send + Sync {
    /// How many there are, at least 1. It never changes.
    fn count(&self) -> u32;

    /// The partition that costs least from here: for rows without a key, and for reads of replicated tables.
    fn nearest(&self) -> PartitionNumber;

    /// A database of this process that has the definitions of all tables: that of a partition, or of a follower of
    /// one. Only definitions are read from it, and the rows of [`PLACEMENT_TABLE`].
    ///
    /// A definition may come here later than to the partitions. The session then binds its statement again, and waits
    /// for some time. If it misses a definition, it asks for [`Partitions::await_definitions`] first.
    fn catalog(&self) -> Database;

    /// Waits, for some time at most, until the catalog has all definitions that were committed before this call. False if it
    /// has them anyway: what it lacks is not there.
    ///
    /// # Errors
    /// Those of `check`, which says whether the statement is cancelled; 40001 if the definitions do not come in time.
    fn await_definitions(&self, catalog: &Database, check: &dyn Fn() -> Result<()>) -> Result<bool> {
        let _ = (catalog, check);
        Ok(false)
    }

    /// Where clients reach the nodes that have the partitions, each as `host:port`. Empty if all are in this process.
    fn nodes(&self) -> Vec<String> {
        Vec::new()
    }

    /// What this node has counted; `None` if all partitions are in this process.
    fn counts(&self) -> Option<NodeCounts> {
        None
    }

    /// The number of the cluster, of letters and digits, if the partitions have replicas; else `None`.
    fn cluster(&self) -> Option<String> {
        None
    }

    /// Begins a transaction. No branch is opened before the first request for its partition.
    ///
    /// # Errors
    /// Whatever keeps a transaction from beginning; no branch is open then.
    fn begin(&self, opening: &Opening) -> Result<Box<dyn Branches>>;

    /// Begins a transaction that only reads, and that may read at replicas which are not primaries. Each partition is at one
    /// state of its own for the whole transaction. Here without replicas: as [`Partitions::begin`].
    ///
    /// # Errors
    /// As [`Partitions::begin`].
    fn begin_reading(&self, opening: &Opening, _reads: &ReplicaReads) -> Result<Box<dyn Branches>> {
        self.begin(opening)
    }

    /// Positions at or after what a transaction has written in these partitions. Each is at level 2 when this returns,
    /// so that no change of a primary takes it back. Without replicas there are none.
    ///
    /// `watch` is given what cancels the wait, before it begins.
    ///
    /// # Errors
    /// A partition does not tell; or what was written may have been lost.
    fn positions(
        &self,
        _opening: &Opening,
        _written: &[Written],
        _watch: &dyn Fn(Arc<dyn CancelBranches>),
    ) -> Result<Positions> {
        Ok(Positions::default())
    }
}

/// A transaction over partitions: a branch in each partition that has got a request. If it is dropped, all branches are
/// aborted.
pub trait Branches: Send {
    /// Sends each branch its request, and waits for all replies: one for each request, in their order. The branches
    /// work at the same time. There is at most one request for each partition; the first one for a partition opens the
    /// branch there ([`BranchPool::begin`]).
    ///
    /// After a [`Run`] with [`Run::then_commit`], the branch commits as soon as it has given its last row, and is over
    /// with its last reply, whatever that says: that reply is sent when the commit is as durable as
    /// [`Choices::durability`] asks. An error of it with the SQLSTATE 08007 says that the outcome is unknown. The whole
    /// transaction is over then, and takes no further call but a drop.
    fn run(&mut self, requests: Vec<(PartitionNumber, Request)>) -> Vec<Reply>;

    /// Ends the requests that run, from another thread: each branch gets [`BranchCanceller::cancel`], also one that has
    /// not begun with its request. It works until the transaction has ended.
    fn canceller(&self) -> Arc<dyn CancelBranches>;

    /// In which opening of its partition each branch runs, or the branch of [`Run::then_commit`] has run: as far as there are
    /// openings. Asked for before the transaction ends.
    fn openings(&self) -> Vec<(PartitionNumber, u64)> {
        Vec::new()
    }

    /// Takes a cancellation back that came too late for its statement, before the next request
    /// ([`BranchSession::clear_cancellation`]).
    fn clear_cancellation(&mut self);

    /// Waits until all that the branches have read is durable at the level of these choices
    /// ([`BranchSession::settled`]): the client is told of it before the transaction has ended.
    ///
    /// # Errors
    /// It will never be durable.
    fn settle(&mut self, choices: &Choices) -> Result<()>;

    /// Commits all branches, and waits until that is durable at the level of these choices. If one branch has written,
    /// and no other has to be confirmed, no two-phase commit is needed.
    ///
    /// # Errors
    /// The transaction is aborted; or, with SQLSTATE 08007, its outcome is unknown.
    fn commit(self: Box<Self>, choices: &Choices) -> Result<()>;

    /// Aborts all branches, and waits until what they have read is durable at the level of these choices.
    ///
    /// # Errors
    /// What was read will never be durable.
    fn abort(self: Box<Self>, choices: &Choices) -> Result<()>;
}

/// Ends what the branches of one transaction run.
pub trait CancelBranches: Send + Sync {
    /// See [`Branches::canceller`].
    fn cancel(&self);
}
