//! [`Runs`]: a transaction that may have to run several times; [`Run`]: how one of its runs ended.

use std::sync::Arc;
use std::time::Duration;

use super::cancellation::Cancellation;
use super::canceller::Canceller;
use super::committed::Committed;
use super::context::Context;
use super::core::Core;
use super::options::{LockPolicy, TxOptions};
use super::retries::Retries;
use super::transaction::Transaction;
use super::two_stage::{AfterRun, StagedExecution};
use crate::account::waits::TravellingWaits;
use crate::commit::NoPlace;
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::io::{Clock, Moment};
use crate::reply::{Failure, Outcome};
use crate::unlikely::unlikely;

/// The back-off of a run that no ending call wakes: the lock in its way may belong to a transaction that wakes no run.
pub(crate) const BACKOFF: Duration = Duration::from_millis(5);
/// After this many back-offs that ended without a wake-up the transaction waits in the queue of the lock.
const UNWOKEN_BACKOFFS_MAX: u32 = 2;
/// The same after this many back-offs in all: at each wake-up another run may take the lock first.
const BACKOFFS_MAX: u32 = 64;

/// How one run of a transaction ended.
pub(crate) enum Run<T> {
    /// It has its place.
    Placed(T, Committed),
    /// It had no effect, so that others can go on. The transaction is to run again, at once or after a back-off (of
    /// zero: after others have had their turn).
    Again(Option<Duration>),
    /// The transaction is still open: what it read has to be durable before its error, or the payload of its body's
    /// panic, is told (I3). `None`: it did not begin.
    Failed(Option<Transaction<'static>>, Failure),
}

impl<T> Run<T> {
    /// The transaction's outcome, if this run was its last; otherwise the back-off before the next one.
    pub(crate) fn outcome(self, core: &Core) -> std::result::Result<Outcome<T>, Option<Duration>> {
        match self {
            Run::Placed(value, mut committed) => {
                let ticket = (!committed.has_ended()).then(|| committed.ticket());
                committed.give_back(core);
                Ok(Outcome::placed(value, ticket))
            }
            Run::Again(backoff) => Err(backoff),
            Run::Failed(None, failure) => Ok(Outcome::failed(failure, None)),
            Run::Failed(Some(transaction), failure) => Ok(transaction.failed(failure)),
        }
    }
}

/// How a run reaches what it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Without locks; at the end everything that was read is checked again. If anything has changed the transaction
    /// runs again, in the next stage.
    Optimistic,
    /// Under locks, which are held to the end.
    Locked,
}

/// What the runs of one transaction share.
pub(crate) struct Runs {
    retries: Retries,
    /// The stage of the run that began last.
    stage: Option<Stage>,
    /// How many runs only asked for locks and then backed off; and how many of the back-offs ended without a wake-up.
    backoffs: u32,
    unwoken: u32,
    /// Since when the transaction backs off, if it does; and how much of its back-offs counts for the time-out of the
    /// wait in the lock's queue that follows them.
    backoff_since: Option<Moment>,
    backed_off: Duration,
    /// When the first run began.
    pub(super) started: Option<Moment>,
    /// What they have waited for since the first run began.
    pub(super) waits: TravellingWaits,
    /// When the present run left a thread, if it is on none now; and how long it was on none so far.
    left: Option<Moment>,
    away: Duration,
    /// How long the runs without effect waited for locks.
    pub(super) lock_wait_ns: u64,
    /// Whether the parts of a run could not go on alone; the later runs have no parts.
    whole: bool,
    /// Whether their caller waits for the outcome at once, so that the last run may end with it.
    pub(super) replies: bool,
    /// The cancellation of the runs so far, if they have a canceller.
    cancellation: Option<Arc<Cancellation>>,
    /// Its way through the stages of two-stage execution, where there are stages.
    execution: Option<Box<StagedExecution>>,
}

impl Runs {
    pub(crate) fn new() -> Runs {
        Runs {
            retries: Retries::default(),
            stage: None,
            backoffs: 0,
            unwoken: 0,
            backoff_since: None,
            backed_off: Duration::ZERO,
            started: None,
            waits: TravellingWaits::begin(),
            left: None,
            away: Duration::ZERO,
            lock_wait_ns: 0,
            whole: false,
            replies: false,
            cancellation: None,
            execution: None,
        }
    }

    /// Runs of a caller that waits for the outcome.
    pub fn to_reply() -> Runs {
        Runs { replies: true, ..Runs::new() }
    }

    /// Runs that this canceller ends, if there is one, of a caller that waits for the outcome.
    pub fn cancelled_by(canceller: Option<&Canceller>) -> Runs {
        Runs { cancellation: canceller.map(|canceller| canceller.cancellation.clone()), ..Runs::to_reply() }
    }

    /// Whether the run has read without locks and what it read has changed since: this may be the cause of an error or
    /// a panic.
    pub(crate) fn is_invalidated(&self, transaction: &mut Transaction<'static>) -> bool {
        self.stage == Some(Stage::Optimistic) && transaction.context().is_invalidated()
    }

    /// Whether the next run is to wait at its commit if it straddles a black/white checkpoint.
    pub(crate) fn waits_for_sweep(&self) -> bool {
        self.retries.waits_for_sweep()
    }

    /// Whether the run has to be without parts.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Ends, without effect, a run whose parts could not go on alone.
    pub(crate) fn end_parts(&mut self, mut transaction: Transaction<'static>) {
        let context = transaction.context();
        context.abort();
        self.lock_wait_ns += context.lock_wait_ns;
        self.whole = true;
        self.note_canceller(context);
    }

    /// Whether a run that has done nothing yet may back off for a lock, instead of waiting in the lock's queue: its
    /// lock policy is to wait, fewer than [`UNWOKEN_BACKOFFS_MAX`] of its back-offs ended without a wake-up, there were
    /// fewer than [`BACKOFFS_MAX`] of them, and its time-out leaves time for another one.
    pub(crate) fn may_back_off(&self, context: &Context) -> bool {
        context.choices.lock_wait == LockPolicy::Wait
            && self.unwoken < UNWOKEN_BACKOFFS_MAX
            && self.backoffs < BACKOFFS_MAX
            && self.backed_off + BACKOFF <= context.choices.lock_timeout / 4
    }

    /// Ends a run that has only asked for locks. Its back-off counts as a wait for a lock.
    pub(crate) fn back_off(&mut self, mut transaction: Transaction<'static>) {
        let context = transaction.context();
        let now = context.core.clock.now();
        context.end_undone();
        self.lock_wait_ns += context.lock_wait_ns;
        self.note_canceller(context);
        (self.backoffs, self.backoff_since) = (self.backoffs + 1, Some(now));
    }

    /// Begins the next run after a back-off; `was_woken` says whether an ending call woke it.
    pub(crate) fn end_backoff(&mut self, now: Moment, was_woken: bool) {
        let Some(since) = self.backoff_since.take() else { return };
        let time = now - since;
        self.lock_wait_ns += time.as_nanos() as u64;
        self.backed_off += time.min(BACKOFF);
        self.unwoken += u32::from(!was_woken);
    }

    /// How long it has backed off so far. From now on it waits in the lock's queue.
    pub(crate) fn take_backed_off(&mut self) -> Duration {
        std::mem::take(&mut self.backed_off)
    }

    /// For a run that is not the last: its canceller cancels the next run too, if it has not done so already.
    fn note_canceller(&mut self, context: &Context) {
        if context.cancellation.is_used() {
            self.cancellation = Some(context.cancellation.clone());
        }
    }

    /// Ends a run after which the transaction runs again, after a back-off.
    pub(crate) fn again<T>(
        &mut self,
        mut transaction: Transaction<'static>,
        backoff: Option<Duration>,
    ) -> Run<T> {
        self.note_canceller(transaction.context());
        Run::Again(backoff)
    }

    /// Begins the next run of a transaction.
    #[inline(never)]
    pub(crate) fn begin(&mut self, core: &Arc<Core>, options: &TxOptions) -> Result<Transaction<'static>> {
        let mut transaction = start(core, options, self.started)?;
        let context = transaction.context();
        if self.started.is_none() {
            self.started = Some(context.began);
        }
        let stage = match options.read_only && self.stage.is_none() {
            true => Stage::Optimistic,
            false => Stage::Locked,
        };
        if stage == Stage::Optimistic {
            context.read_unlocked(true);
        }
        self.stage = Some(stage);
        if unlikely(core.has_stages()) {
            self.begin_stage(core, options, context);
        }
        if let Some(cancellation) = &self.cancellation {
            cancellation.follow(context.owner.transaction());
            context.cancellation = cancellation.clone();
        }
        Ok(transaction)
    }

    /// Begins the next stage of two-stage execution.
    #[cold]
    fn begin_stage(&mut self, core: &Core, options: &TxOptions, context: &mut Context) {
        let Some(stages) = &core.stages else { return };
        let procedure = options.procedure.unwrap_or_default();
        let execution = self.execution.get_or_insert_with(|| {
            Box::new(StagedExecution::new(procedure, stages.begin(procedure), context.began))
        });
        execution.begin_run(&context.page_access, context.began, self.waits.so_far().page_ns);
        self.away = Duration::ZERO;
        context.page_access.forget_disk_waits();
        context.be_led();
        if execution.fetches() {
            context.read_unlocked(false);
            if !fault_injection::is_on("fetch-stage-under-locks") {
                context.begin_fetch_stage();
            }
        }
    }

    /// Whether the transaction is on its way through the stages of two-stage execution.
    #[inline(always)]
    pub(crate) fn is_staged(&self) -> bool {
        self.execution.is_some()
    }

    /// Whether the run that has begun is a fetch stage.
    #[inline(always)]
    pub(crate) fn fetches(&self) -> bool {
        self.execution.as_ref().is_some_and(|execution| execution.fetches())
    }

    /// Ends the stage of a run whose body has ended, whatever it has given. True: the run is over, and the next stage follows.
    #[cold]
    pub(crate) fn ends_stage(&mut self, core: &Core, transaction: &mut Transaction<'static>) -> bool {
        let (Some(execution), Some(stages)) = (&mut self.execution, &core.stages) else { return false };
        core.clock.end_body();
        let context = transaction.context();
        let lock_wait_ns = context.waited_so_far_ns();
        if execution.fetches() && context.page_access.counts().accesses == 0 {
            // The next run may read without locks, if it only reads: all is in memory.
            self.stage = None;
        }
        let elsewhere_ns = lock_wait_ns + self.away.as_nanos() as u64;
        let page_ns = self.waits.so_far().page_ns;
        match execution.end_run(&context.page_access, core.clock.now(), elsewhere_ns, page_ns) {
            AfterRun::NextStage => {
                // What the first of two runs waited for is part of the transaction's response time.
                self.lock_wait_ns += lock_wait_ns;
                true
            }
            // What has read rows in memory without locks, and then pages, runs again.
            AfterRun::Operated if self.stage == Some(Stage::Optimistic) && context.is_invalidated() => false,
            AfterRun::Operated => {
                if let Some(told) = execution.tell(|| core.locks.waiters()) {
                    stages.tell(execution.procedure, &told);
                }
                false
            }
        }
    }

    /// Ends a run whose body had this outcome.
    #[inline(always)]
    pub(crate) fn end<T>(
        &mut self,
        core: &Core,
        mut transaction: Transaction<'static>,
        outcome: Result<T>,
    ) -> Run<T> {
        let error = match outcome {
            Ok(value) => match transaction.take_place(Some((self, core))) {
                Ok(committed) => {
                    // Its context is in `Committed` now.
                    std::mem::forget(transaction);
                    return Run::Placed(value, committed);
                }
                Err(_) if self.is_invalidated(&mut transaction) => return self.again(transaction, None),
                Err(NoPlace::Straddles) => {
                    self.retries.after_straddling();
                    self.lock_wait_ns += transaction.context().lock_wait_ns;
                    return self.again(transaction, Some(core.defaults.straddling_retry));
                }
                Err(NoPlace::Error(error)) => error,
            },
            Err(error) => error,
        };
        // A victim reveals nothing of what it read: it runs again.
        if matches!(error, Error::Deadlock { .. })
            && let Some(backoff) = self.retries.after_deadlock(deadlocks_allowed(core, &mut transaction))
        {
            self.lock_wait_ns += transaction.give_up();
            return self.again(transaction, Some(backoff));
        }
        Run::Failed(Some(transaction), Failure::Error(error))
    }

    /// The runs leave this thread, and may continue on another one.
    pub(crate) fn leave_thread(&mut self, clock: &Clock) {
        self.waits.leave();
        self.left = self.is_staged().then(|| clock.now());
    }

    /// The runs continue on this thread.
    pub(crate) fn come_to_thread(&mut self, clock: &Clock) {
        self.waits.come();
        if let Some(left) = self.left.take() {
            self.away += clock.now() - left;
        }
    }
}

/// How often the transaction may be a deadlock's victim. A victim that was refused a leased lock table takes no part in
/// what it lost to, and may be a victim any number of times.
pub(crate) fn deadlocks_allowed(core: &Core, victim: &mut Transaction<'static>) -> u32 {
    if victim.context().met_lease { u32::MAX } else { core.defaults.deadlock_retries_max }
}

#[inline(always)]
pub(crate) fn start(
    core: &Arc<Core>,
    options: &TxOptions,
    started: Option<Moment>,
) -> Result<Transaction<'static>> {
    let mut context = core.lend()?;
    match context.begin(options, started) {
        Ok(()) => Ok(Transaction::of(context)),
        Err(error) => {
            core.contexts.give_back(context);
            Err(error)
        }
    }
}
