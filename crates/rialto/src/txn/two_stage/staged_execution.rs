//! [`StagedExecution`]: a transaction on its way through the stages; [`Told`]: what it tells at its end.

use super::Begin;
use crate::account::{PageCounts, ProcedureId};
use crate::io::Moment;
use crate::store::paged::{GaveUp, KeptPages, PageAccess, PageMode};

/// What an execution of a procedure has met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Told {
    /// How it began.
    pub begin: Begin,
    /// Whether it is told for the first time: a deadlock's victim tells again of each further run.
    pub is_first: bool,
    /// Whether it had a fetch stage, and whether that was told before.
    pub has_fetched: bool,
    pub is_fetch_told: bool,
    /// Whether it went on under two-phase locking, because it needed more pages than may be kept in memory.
    pub fell_back: bool,
    pub fetched: PageCounts,
    pub operated: PageCounts,
    /// Of the run that a conversion threw away.
    pub given_up: PageCounts,
    /// Pages that were kept in memory for the operate stage.
    pub kept: u64,
    /// Processor times of the stages, in nanoseconds: without waits for pages, and for locks.
    pub fetch_ns: u64,
    pub operate_ns: u64,
    /// The same of the run that a conversion threw away.
    pub given_up_ns: u64,
    /// Waits for pages in the stages.
    pub fetch_io_ns: u64,
    pub operate_io_ns: u64,
    /// How many transactions waited for locks at the end of an operate stage that has read the disk.
    pub waiters: u32,
}

impl Told {
    /// Whether the execution needed two stages. (One that began with the fetch stage did if that has read the disk.)
    pub fn needed_two(&self) -> bool {
        self.has_fetched && (self.is_converted() || self.fetched.reads > 0)
    }

    /// Whether it began in the operate stage and left it for the fetch stage.
    pub fn is_converted(&self) -> bool {
        self.has_fetched && self.begin == Begin::UntilMiss
    }
}

/// The stage of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExecutionStage {
    Fetch,
    Operate(PageMode),
}

/// What comes after a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterRun {
    /// The transaction runs again, at once: in its next stage.
    NextStage,
    /// The run was the operate stage.
    Operated,
}

/// A transaction on its way through the stages.
pub(crate) struct StagedExecution {
    pub procedure: ProcedureId,
    stage: ExecutionStage,
    /// Dropped with it: then they need not stay.
    kept: KeptPages,
    told: Told,
    /// When the run began, and how long the runs before it had waited for pages.
    began: Moment,
    page_ns_before: u64,
}

impl StagedExecution {
    pub fn new(procedure: ProcedureId, begin: Begin, now: Moment) -> StagedExecution {
        let stage = match begin {
            Begin::Once => ExecutionStage::Operate(PageMode::Read),
            Begin::UntilMiss => ExecutionStage::Operate(PageMode::UntilMiss),
            Begin::Fetch => ExecutionStage::Fetch,
        };
        let told = Told { begin, is_first: true, ..Told::default() };
        StagedExecution { procedure, stage, kept: KeptPages::default(), told, began: now, page_ns_before: 0 }
    }

    /// A statement of a transaction that its caller runs. It does not convert.
    pub fn of_statement(procedure: ProcedureId, begin: Begin, now: Moment) -> StagedExecution {
        let mut execution = StagedExecution::new(procedure, begin, now);
        if begin == Begin::UntilMiss {
            execution.stage = ExecutionStage::Operate(PageMode::Read);
        }
        execution
    }

    /// A statement is over. What its operate stage took is not known: the caller's own time was part of it.
    pub fn end_statement(&mut self, access: &PageAccess, waiters: impl FnOnce() -> u32) -> Option<Told> {
        access.end();
        self.told.operated = access.counts();
        self.tell(waiters)
    }

    /// Whether its next run is a fetch stage.
    pub fn fetches(&self) -> bool {
        self.stage == ExecutionStage::Fetch
    }

    /// Begins a run. For `page_ns` the runs before it have waited for pages.
    pub fn begin_run(&mut self, access: &PageAccess, now: Moment, page_ns: u64) {
        match self.stage {
            // What an operate stage before it has kept goes on to be kept.
            ExecutionStage::Fetch => access.begin(PageMode::Fetch, std::mem::take(&mut self.kept)),
            ExecutionStage::Operate(mode) => access.begin(mode, KeptPages::default()),
        }
        (self.began, self.page_ns_before) = (now, page_ns);
    }

    /// A run has ended, whatever its body has given. For `elsewhere_ns` the run has waited for locks or was on no thread; for
    /// `page_ns` all runs so far have waited for pages. The execution keeps the pages that the run has kept.
    pub fn end_run(&mut self, access: &PageAccess, now: Moment, elsewhere_ns: u64, page_ns: u64) -> AfterRun {
        let kept = access.end();
        let (counts, gave_up) = (access.counts(), access.gave_up());
        let io_ns = page_ns.saturating_sub(self.page_ns_before);
        let busy_ns = now.ns_since(self.began).saturating_sub(io_ns + elsewhere_ns);
        self.told.fell_back |= gave_up == Some(GaveUp::KeepsTooMany);
        match (self.stage, gave_up) {
            (ExecutionStage::Fetch, _) => {
                self.kept = kept;
                self.told.has_fetched = true;
                (self.told.fetched, self.told.fetch_ns, self.told.fetch_io_ns) = (counts, busy_ns, io_ns);
                self.told.kept = self.kept.len() as u64;
                self.stage = ExecutionStage::Operate(PageMode::Read);
                AfterRun::NextStage
            }
            (ExecutionStage::Operate(_), Some(GaveUp::Missed)) => {
                self.kept = kept;
                (self.told.given_up, self.told.given_up_ns) = (counts, busy_ns);
                self.stage = ExecutionStage::Fetch;
                AfterRun::NextStage
            }
            (ExecutionStage::Operate(_), _) => {
                // What comes now needs only what it has changed, and that stays.
                self.kept.release();
                (self.told.operated, self.told.operate_ns, self.told.operate_io_ns) =
                    (counts, busy_ns, io_ns);
                AfterRun::Operated
            }
        }
    }

    /// What it has met, after an operate stage. `None`: it has touched no page, and was not expected to.
    pub fn tell(&mut self, waiters: impl FnOnce() -> u32) -> Option<Told> {
        let mut told = self.told;
        if !told.has_fetched && told.operated.accesses == 0 {
            return None;
        }
        if told.operated.misses > 0 {
            told.waiters = waiters();
        }
        // A further run of it tells of itself alone.
        (self.told.is_first, self.told.kept) = (false, 0);
        (self.told.fetched, self.told.given_up) = Default::default();
        (self.told.is_fetch_told, self.told.fell_back) = (told.has_fetched, false);
        Some(told)
    }
}
