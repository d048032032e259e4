//! [`Metrics`]: what a database has done since it was opened.

use crate::account::{ProcedureAccount, ServerTimes};
use crate::checkpoint::{CheckpointStats, RecoveryForecast};
use crate::engine::PhasePlan;
use crate::isolate::{LockCounters, RoutingChanges};
use crate::log::{ArchiveStats, LogStats, WritePath};

/// Sums since the database was opened. Times are in nanoseconds, over all transactions.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Metrics {
    /// Transactions committed, read-only ones included.
    pub committed: u64,
    /// Transactions aborted, by their body, an error, or a deadlock.
    pub aborted: u64,
    /// Of those, the ones that were a deadlock's victim and ran again.
    pub aborted_deadlock: u64,
    /// Of the aborted ones, those that touched both sides of a transaction-consistent black/white checkpoint, or moved a
    /// row between them under an action-consistent one. All of them ran again. A handle's transaction is not aborted for that, and not counted:
    /// its commit waits.
    pub aborted_straddling: u64,
    /// How often a commit on its way, or an insert, found the latch of its segment taken, by the checkpointer or by another.
    pub latch_conflicts: u64,
    /// Requests that each executor has had; none on the [conventional](crate::Engine::Conventional) engine. Those for indexes
    /// that are only read are not among them: they share an executor of their own.
    pub executor_requests: Vec<u64>,
    /// Changes of routing rules, and how long one held transactions up.
    pub routing: RoutingChanges,
    /// How threads that own executors ([`Executors::threads`](crate::Executors::threads)) run the phases of
    /// procedures, and how often their actions abort; those that they have run, by name and phase.
    pub plans: Vec<PhasePlan>,
    /// Transactions that committed, running: what is left of their response times.
    pub run_ns: u64,
    /// The same transactions, waiting for locks.
    pub lock_wait_ns: u64,
    /// The same, waiting for latches.
    pub latch_wait_ns: u64,
    /// The same, waiting for the log; tickets only as far as somebody waited for them.
    pub log_wait_ns: u64,
    /// The time accounts, by procedure; those in which something was counted.
    pub procedures: Vec<ProcedureAccount>,
    /// Locks by kind, and waits.
    pub locks: LockCounters,
    /// Groups, bytes, writes.
    pub log: LogStats,
    /// How the log is written, and what was measured for that.
    pub log_writes: WritePath,
    /// Checkpoints, their bytes, and why the last one failed if it did.
    pub checkpoints: CheckpointStats,
    /// Processor time of the servers.
    pub servers: ServerTimes,
    /// What a recovery from now would take, and whether it stays within its target.
    pub recovery: RecoveryForecast,
    /// What the archive has taken, and why it takes nothing if it does not; none without one.
    pub archive: Option<ArchiveStats>,
    /// Bytes of segments and index nodes in use.
    pub memory_used: u64,
    /// The bound on them.
    pub memory_limit: u64,
}
