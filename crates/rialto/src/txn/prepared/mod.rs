//! Prepared transactions: a transaction that has voted to commit, and waits for the decision of others.
//!
//! The database is one of several that a transaction has changed. Each of them votes
//! ([`Transaction::prepare`](crate::Transaction::prepare)). When all have voted, the transaction commits in each; if one
//! has not, it aborts in each. From its vote on it can do both: it keeps its locks, has its slots, index entries and room
//! in the log, and is on disk as far as its level says.
//!
//! A prepared transaction is on disk as rows of the system table `rialto_prepared` (`record`): its redo records, its
//! locks (`noted_locks`), and a note of the caller. Another, small transaction has inserted these rows; the prepared
//! one deletes them, whichever way it ends. Therefore checkpoints, backups, followers and the log treat them as they
//! treat any rows, and a decision is one packet in the log, which is there whole or not at all.
//!
//! An opening, and a follower that takes over, make a transaction of each record again before anything else runs
//! (`take_again`).
//!
//! Invariants:
//!
//! - **V1** Once a vote is told, the transaction can commit: nothing that its commit needs can fail, but for the
//!   database as a whole. (A commit that waits, for a checkpoint or for room in the log, is tried again.) The rows that a
//!   caller adds to a decision (`decision_rows`) are its own risk: if they fail, the transaction is undecided still.
//! - **V2** From the vote to the decision no other transaction changes what it has read, or reads what it has changed,
//!   in this opening or in a later one.
//! - **V3** A record is on disk exactly as long as its transaction is undecided: it is durable before the vote is told,
//!   and goes with the decision.
//! - **V4** Only a decision ends it: no time-out, no cancel, no deadlock (it waits for nothing), no close.
//!
//! One branch of a transaction may decide by its own commit, and is never prepared (`deciding`).
//!
//! Begin reading at `vote`, then [`registry`], `decision_rows`, `take_again`.

mod deciding;
mod decision_rows;
mod noted_locks;
mod record;
pub(crate) mod registry;
mod take_again;
mod vote;

pub(crate) use noted_locks::NotedLocks;
pub(crate) use record::PREPARED;
pub use registry::PreparedTransaction;
pub(crate) use registry::{Decision, PreparedTransactions};
pub(crate) use take_again::TakenAgain;
pub(crate) use vote::have_table;
