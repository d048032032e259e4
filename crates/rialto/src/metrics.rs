//! [`Metrics`]: what a database has done since it was opened.

use crate::account::{ProcedureAccount, ServerTimes};
use crate::checkpoint::{CheckpointStats, RecoveryForecast};
use crate::engine::PhasePlan;
use crate::isolate::{LockCounters, RoutingChanges};
use crate::log::{ArchiveStats, LogStats, WritePath};
use crate::store::PageStats;
use crate::txn::two_stage::TwoStageAccount;

/// Sums since the database was opened. Times are in nanoseconds, added up over all transactions.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Metrics {
    /// Transactions committed, read-only ones included.
    pub committed: u64,
    /// Transactions aborted by their body, by an error, or by a deadlock.
    pub aborted: u64,
    /// Of the aborted transactions, those that were a deadlock's victim and ran again.
    pub aborted_deadlock: u64,
    /// Of the aborted transactions, those that touched both sides of a transaction-consistent black/white checkpoint,
    /// or moved a row between the sides under an action-consistent one. All of them ran again. The transaction of a
    /// handle is not aborted for that, and not counted: its commit waits.
    pub aborted_straddling: u64,
    /// How often a commit in progress, or an insert, found the latch of its segment held by the checkpointer or by
    /// another transaction.
    pub latch_conflicts: u64,
    /// Requests at each executor; empty on the [conventional](crate::Engine::Conventional) engine. Requests for indexes
    /// that are only read are not counted, since these indexes share an executor of their own.
    pub executor_requests: Vec<u64>,
    /// Changes of routing rules, and how long a change held transactions up.
    pub routing: RoutingChanges,
    /// How threads that own executors ([`Executors::threads`](crate::Executors::threads)) run the phases of procedures,
    /// and how often their actions abort. It lists the phases that have run, by name and number.
    pub plans: Vec<PhasePlan>,
    /// Time of committed transactions while they ran: their response times without the waits below.
    pub run_ns: u64,
    /// Time of the same transactions in waits for locks.
    pub lock_wait_ns: u64,
    /// Time of the same transactions in waits for latches.
    pub latch_wait_ns: u64,
    /// Time of the same transactions in waits for the log; of a ticket only the time for which a thread waited for it.
    pub log_wait_ns: u64,
    /// The time accounts with a count, by procedure.
    pub procedures: Vec<ProcedureAccount>,
    /// Locks by kind, and waits.
    pub locks: LockCounters,
    /// Groups, bytes and writes of the log.
    pub log: LogStats,
    /// How the log is written, and what was measured to choose that.
    pub log_writes: WritePath,
    /// Checkpoints, their bytes, and the error of the last one if it failed.
    pub checkpoints: CheckpointStats,
    /// Processor time of the servers.
    pub servers: ServerTimes,
    /// What a recovery from now would take, and whether that is within its target.
    pub recovery: RecoveryForecast,
    /// What the archive has taken, and the reason if it takes nothing; `None` without an archive.
    pub archive: Option<ArchiveStats>,
    /// Bytes of segments and index nodes in use.
    pub memory_used: u64,
    /// The pages of disk-resident tables; zeros if there are none.
    pub pages: PageStats,
    /// How transactions on disk-resident tables were executed ([`Options::two_stage`](crate::Options::two_stage)), by procedure:
    /// those that have touched pages, or begun with a fetch stage.
    pub two_stage: Vec<TwoStageAccount>,
    /// The bound on `memory_used`, in bytes.
    pub memory_limit: u64,
}
