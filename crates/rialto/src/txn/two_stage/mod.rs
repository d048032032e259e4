//! Two-stage execution (Charm, "An I/O-Driven Execution Strategy for High-Performance Transaction Processing", section 3).
//!
//! A transaction that reads the disk while it holds locks makes others wait for its disk. So it runs in two stages. In the *fetch
//! stage* (`fetch.rs`) its body runs without locks, and the pages that it touches come into memory and stay there. In the
//! *operate stage* it runs as any transaction does. A page that it has to read there all the same is a *misprefetch*.
//!
//! - [`TwoStage`] names the strategies. TSTE: always in two stages. OTSTE: in one stage until a page is missing, when
//!   the execution *converts*: it begins again, in two. HTSTE and adaptive choose one of these, or two-phase locking,
//!   for each procedure: [`policy`];
//! - [`StagedExecution`] is one transaction on its way through the stages; `runs.rs` leads it;
//! - [`TwoStages`] keeps what executions have told, by procedure.
//!
//! It is for databases with disk-resident tables: a transaction of another database does not come here. A call that threads of
//! executors run has its fetch stage on the thread where it begins (`engine/data_oriented/threads/execution.rs`).
//!
//! Two decisions:
//!
//! - **A miss runs the body again from its beginning**, where the paper goes on from the access that has missed. A body is a
//!   closure, which cannot be entered in its middle. What it had read is in memory by then, so that the second run costs
//!   processor time alone.
//! - **A conversion undoes nothing.** Writes wait in the write set until the commit (I1), so the paper's first step of a
//!   conversion, "the effects of all the database writes before this data access are undone", is nearly free. The paper finds
//!   OTSTE slower than TSTE for that step; here it should do better, and no cost is added in its place.

pub(crate) mod policy;
mod staged_execution;

use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;

pub(crate) use self::policy::{Begin, History};
pub(crate) use self::staged_execution::{AfterRun, StagedExecution, Told};
use crate::account::{PROCEDURES_MAX, ProcedureId};

/// How transactions on disk-resident tables are executed
/// ([`Options::two_stage`](crate::Options::two_stage)). The strategy affects when pages are read from the disk, never the result of a
/// transaction.
///
/// In two stages, a body runs first without locks on rows: the *fetch stage*. What it does there is dropped: changes, result, errors,
/// panics. Its reads are committed, but may be of several moments. The pages that it reads stay in memory for the second run, which takes
/// locks: the *operate stage*. An operation that ends the fetch stage fails with [`Error::Deadlock`](crate::Error::Deadlock); a body
/// passes it on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TwoStage {
    /// In one stage, under two-phase locking: a transaction reads pages while it holds locks.
    TwoPhaseLocking,
    /// Charm's TSTE: in two stages, always.
    Tste,
    /// Charm's OTSTE: in one stage, until a page is missing; then it begins again, in two.
    Otste,
    /// Charm's HTSTE: each procedure runs by one of these three, chosen from what its last executions have met.
    #[default]
    Htste,
    /// Ours: each procedure runs by the one of these three that costs least by measured times.
    Adaptive,
}

impl TwoStage {
    /// All of them, with the names by which they are chosen.
    pub const ALL: [(TwoStage, &'static str); 5] = [
        (TwoStage::TwoPhaseLocking, "2pl"),
        (TwoStage::Tste, "tste"),
        (TwoStage::Otste, "otste"),
        (TwoStage::Htste, "htste"),
        (TwoStage::Adaptive, "adaptive"),
    ];

    /// The name by which it is chosen.
    pub fn name(self) -> &'static str {
        TwoStage::ALL.iter().find(|(strategy, _)| *strategy == self).map_or("", |(_, name)| name)
    }
}

/// What executions of a procedure have met, since the database was opened ([`Metrics::two_stage`](crate::Metrics)).
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct TwoStageAccount {
    /// The procedure's name, or [`UNNAMED`](crate::account::UNNAMED).
    pub name: String,
    /// The strategy chosen at this moment: "2pl", "tste" or "otste". One execution in 32 may begin otherwise.
    pub strategy: &'static str,
    /// Executions that have touched pages, or begun with a fetch stage.
    pub executions: u64,
    /// Those that needed two stages: their fetch stage has read the disk, or they have left the operate stage at a missing page.
    pub conversions: u64,
    /// Those that went on under two-phase locking because they needed more pages than may be kept in memory.
    pub fallbacks: u64,
    /// Data accesses in operate stages: single entries, and leaves of scans.
    pub accesses: u64,
    /// How often they have waited for the disk: misprefetches, every miss of an execution in one stage, and waits for a place in
    /// memory until another page was written and had left it.
    pub lock_held_io_waits: u64,
    /// Those of the accesses that have read the disk, in executions that had a fetch stage: misprefetches.
    pub misprefetches: u64,
    /// Executions with at least one of these in their first run.
    pub misprefetched: u64,
    /// Pages that all stages have read.
    pub reads: u64,
    /// Pages that fetch stages have kept in memory for operate stages, in sum.
    pub kept_pages: u64,
}

impl TwoStageAccount {
    /// What has come since an earlier one of the same procedure.
    pub fn since(&self, earlier: &TwoStageAccount) -> TwoStageAccount {
        TwoStageAccount {
            name: self.name.clone(),
            strategy: self.strategy,
            executions: self.executions - earlier.executions,
            conversions: self.conversions - earlier.conversions,
            fallbacks: self.fallbacks - earlier.fallbacks,
            accesses: self.accesses - earlier.accesses,
            lock_held_io_waits: self.lock_held_io_waits - earlier.lock_held_io_waits,
            misprefetches: self.misprefetches - earlier.misprefetches,
            misprefetched: self.misprefetched - earlier.misprefetched,
            reads: self.reads - earlier.reads,
            kept_pages: self.kept_pages - earlier.kept_pages,
        }
    }
}

/// What executions have told, by procedure.
pub(crate) struct TwoStages {
    strategy: TwoStage,
    procedures: Box<[ProcedureStages]>,
}

/// Of one procedure.
struct ProcedureStages {
    /// How its executions begin ([`Begin`]), as a number.
    begin: AtomicU8,
    told: Mutex<ProcedureHistory>,
}

#[derive(Default)]
struct ProcedureHistory {
    history: History,
    account: TwoStageAccount,
}

impl TwoStages {
    pub fn new(strategy: TwoStage) -> TwoStages {
        // The first execution of a procedure has two stages only if it meets a missing page: it may be one that touches none.
        let begin = match strategy {
            TwoStage::TwoPhaseLocking => Begin::Once,
            _ => Begin::UntilMiss,
        }
        .number();
        let procedures = (0..PROCEDURES_MAX)
            .map(|_| ProcedureStages { begin: AtomicU8::new(begin), told: Mutex::default() });
        TwoStages { strategy, procedures: procedures.collect() }
    }

    /// How the next execution of a procedure begins.
    pub fn begin(&self, procedure: ProcedureId) -> Begin {
        Begin::of_number(self.of(procedure).begin.load(Ordering::Relaxed))
    }

    /// An execution has met this.
    pub fn tell(&self, procedure: ProcedureId, told: &Told) {
        let of = self.of(procedure);
        let mut procedure = of.told.lock();
        let ProcedureHistory { history, account } = &mut *procedure;
        account.executions += u64::from(told.is_first);
        account.conversions += u64::from(!told.is_fetch_told && told.needed_two());
        account.fallbacks += u64::from(told.fell_back);
        account.accesses += told.operated.accesses;
        let under_locks = [told.operated, told.given_up];
        account.lock_held_io_waits +=
            under_locks.iter().map(|counts| counts.misses + counts.room_waits).sum::<u64>();
        if told.has_fetched && told.operated.misses > 0 {
            account.misprefetches += told.operated.misses;
            // Of a deadlock's victim that runs again, the first run counts.
            account.misprefetched += u64::from(told.is_first);
        }
        account.reads += told.fetched.reads + told.operated.reads + told.given_up.reads;
        account.kept_pages += told.kept;
        if told.is_first {
            let next = history.tell(self.strategy, told);
            of.begin.store(next.number(), Ordering::Relaxed);
        }
    }

    fn of(&self, procedure: ProcedureId) -> &ProcedureStages {
        &self.procedures[procedure.position()]
    }

    /// The procedures with executions that have touched pages.
    pub fn accounts(&self, names: &[String]) -> Vec<TwoStageAccount> {
        let named = names.iter().zip(&self.procedures);
        let accounts = named.map(|(name, of)| {
            let told = of.told.lock();
            TwoStageAccount {
                name: name.clone(),
                strategy: told.history.strategy().name(),
                ..told.account.clone()
            }
        });
        accounts.filter(|account| account.executions > 0).collect()
    }
}

#[cfg(test)]
mod tests;
