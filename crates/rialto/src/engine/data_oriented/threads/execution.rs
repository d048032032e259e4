//! [`Execution`]: a call on its way through the executors.
//!
//! ```text
//!  caller ─▶ Call ─▶ queue ─▶ Execution: phase 1 ─▶ its part here ─┐                    ┌▶ place, apply, release
//!                               (DORA, 4.1.2)  └▶ Part ─▶ queue ─┴▶ rendezvous ─▶ phase 2 … ─▶ reply to the caller
//! ```
//!
//! An execution owns its transaction: the thread that runs the execution has the transaction alone. If all actions of a
//! phase belong to one thread, the phase runs there. If they belong to several threads, the phase is split: each thread
//! gets one part, which has the thread's actions, a context, locks and a write set of its own. All parts of a phase are
//! put on their queues at one time. The part that comes last to the rendezvous point makes one transaction of them
//! again, and goes on (`split_phase`). A phase whose plan is serial ([`Plan`]) runs on one thread, and begins with the action that is
//! the most likely to abort. All its identifiers are locked before the first body. Actions whose result depends on the
//! order keep the flow's order ([`in_turn`]). If a plan cannot keep it, the call runs again whole.
//!
//! On disk-resident tables a call may have a **fetch stage** (`txn/two_stage`), which [`Call::fetch`] runs on the thread where the
//! call begins. An operate stage that meets a missing page ends like a run that begins again, whichever part meets it.
//!
//! Some phases **run whole**, on one thread in the flow's order: a phase with a plain closure, and every phase after a
//! definition has changed. A part cannot go on alone if another part wants the same key of a unique index, or if it has
//! used up its share of the write set's room ([`txn::part`](crate::txn)). Then the call runs again with all phases
//! whole, and the procedure's next calls run that phase whole, too ([`Plans`](crate::engine::data_oriented::Plans)).
//!
//! Kept here:
//! - **One meaning.** Actions of one phase whose identifiers overlap are in one part, in their order. An action that
//!   overlaps what earlier phases wrote is in the part that runs in the transaction's own context. Outputs come in the
//!   flow's order, whichever part ended first. What actions choose for their transaction, such as its durability, is
//!   applied in the flow's order, too. If actions fail, the first of them in the flow gives the call's error. The
//!   actions before it in the flow run all the same. Those behind it are not begun, or end their waits for locks.
//! - **Tables stay as they are** until the transaction ends. Before a phase is split, the transaction takes the phase's
//!   intention locks on tables. The parts use these locks.
//! - **All that a phase names is locked before it is split**, by the transaction, in the order in which all
//!   transactions lock. If each part asked for its keys itself, one after the other, parts of different transactions
//!   would form cycles.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use smallvec::SmallVec;

use super::assignment::{AssignedPart, assign, assign_in_turn, in_turn};
use super::call::Call;
#[cfg(test)]
use super::queues::Bug;
use super::queues::{BackoffId, Queues};
use super::rendezvous::Rendezvous;
use super::running_actions::{RunningActions, actions_at};
use super::split_phase::{Part, PartOf, PartProgress, SplitPhase};
use crate::engine::data_oriented::locking::{AtOnce, beside_lease, lock, lock_at_once, names_of};
use crate::engine::data_oriented::planner::Plan;
use crate::engine::identifier::Given;
use crate::engine::phase::{BoundAction, BoundActions, bind, has_plain};
use crate::engine::procedure::Outputs;
use crate::engine::servers::{Envelope, Unanswered};
use crate::engine::table_action::Identified;
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::foreign::{Panic, catch, run_caught};
use crate::io::Clock;
use crate::reply::{Failure, Outcome};
use crate::txn::Transaction;
use crate::txn::context::Context;
use crate::txn::core::Core;
use crate::txn::runs::Runs;

/// Where a task is run.
pub(in crate::engine) struct Here<'a> {
    pub core: &'a Arc<Core>,
    pub queues: &'a Arc<Queues>,
    /// The queue of the thread.
    pub queue: usize,
    /// If it is a transaction server's.
    pub unanswered: Option<&'a Arc<Unanswered>>,
}

/// What there is to do for a thread that owns executors.
pub(in crate::engine) enum Task {
    /// Begin a call; again, if it has run before.
    Call(Arc<Call>, Option<Box<EarlierRuns>>),
    /// Go on with one: its next phase is run here.
    Execution(Box<Execution>),
    /// Run a part of a phase.
    Part(Box<Part>),
    /// Run a request of a message server, whole; again, if it has run before.
    Request(Box<Envelope>),
}

/// The earlier runs of a call, and the back-off that it comes from, if there is one.
pub(in crate::engine) struct EarlierRuns(pub(super) Runs, pub(super) Option<BackoffId>);

/// See the [module](self).
pub(in crate::engine) struct Execution {
    pub(super) call: Arc<Call>,
    pub(super) runs: Runs,
    pub(super) transaction: Transaction<'static>,
    pub(super) outputs: Outputs,
    next_phase: usize,
    /// Whether the next phase runs whole, in the flow's order. Decided once, on the thread that finds out whose the
    /// phase is.
    is_whole: bool,
    /// The names of what its phases have locked, for calls that back off for it.
    names: SmallVec<[u64; 4]>,
}

/// How the run of a phase on a thread ended.
enum PhaseEnd {
    Ran,
    /// Other threads are to run it.
    Reassigned(ReassignedPhase),
    /// Not begun: the call backs off for a lock on the identifier of this name.
    BackOff(u64),
}

/// Where a phase is to run, and what is locked for it.
struct ReassignedPhase {
    parts: SmallVec<[AssignedPart; 4]>,
    /// If there are several parts.
    identified: Vec<(u16, Identified)>,
}

impl Task {
    /// Begins a call again, after runs that end on this thread.
    pub(super) fn again(call: Arc<Call>, mut runs: Runs, backoff: Option<BackoffId>, clock: &Clock) -> Task {
        runs.leave_thread(clock);
        Task::Call(call, Some(Box::new(EarlierRuns(runs, backoff))))
    }

    /// Runs the task as far as it can run on this thread. A panic ends the task's call, and the call's caller gets it.
    /// It does not end the thread, because the thread owns executors.
    pub fn run(self, here: &Here<'_>) {
        let Some(call) = self.call().cloned() else { return self.go(here) };
        let ended = catch(|| self.go(here));
        // The last to have the call drops it, and with it what bodies of an older version have captured.
        run_caught(move || {
            if let Err(panic) = ended {
                call.lost(panic, here);
            }
        });
    }

    fn go(self, here: &Here<'_>) {
        match self {
            Task::Call(call, runs) => Execution::begin(call, runs, here),
            Task::Execution(mut execution) => {
                execution.runs.come_to_thread(&here.core.clock);
                execution.dispatch(here, true);
            }
            Task::Part(part) => part.run(here),
            Task::Request(envelope) => envelope.run(here),
        }
    }

    /// Its call. A request has none, and answers for its panics itself.
    fn call(&self) -> Option<&Arc<Call>> {
        match self {
            Task::Call(call, _) => Some(call),
            Task::Execution(execution) => Some(&execution.call),
            Task::Part(part) => Some(&part.split.call),
            Task::Request(..) => None,
        }
    }
}

impl Execution {
    fn begin(call: Arc<Call>, before: Option<Box<EarlierRuns>>, here: &Here<'_>) {
        let (mut runs, backoff) = before.map_or_else(|| (Runs::new(), None), |before| (before.0, before.1));
        runs.come_to_thread(&here.core.clock);
        if let Some(backoff) = backoff {
            runs.end_backoff(here.core.clock.now(), here.queues.end_backoff(backoff));
        }
        #[cfg(test)]
        here.queues.panic_at(Bug::Begin);
        let transaction = loop {
            match runs.begin(here.core, &call.options) {
                Ok(transaction) if runs.fetches() => call.fetch(&mut runs, transaction, here),
                Ok(transaction) => break transaction,
                Err(error) => return call.complete(Outcome::failed(Failure::Error(error), None), here),
            }
        };
        let outputs = call.procedure.new_outputs();
        Box::new(Execution {
            call,
            runs,
            transaction,
            outputs,
            next_phase: 0,
            is_whole: false,
            names: SmallVec::new(),
        })
        .dispatch(here, false);
    }

    /// Goes on; a panic of a body ends it. The next phase `is_here` if it was sent here for it.
    pub(super) fn dispatch(mut self: Box<Self>, here: &Here<'_>, mut is_here: bool) {
        loop {
            let call = self.call.clone();
            if self.next_phase == call.procedure.flow().phases().len() {
                return self.end(Ok(()), here);
            }
            let ended = catch(|| self.run_phase(&call, here, is_here));
            if self.transaction.needs_whole() {
                return self.run_whole(here);
            }
            match ended {
                Ok(Ok(PhaseEnd::Ran)) => self.end_phase(),
                Ok(Ok(PhaseEnd::BackOff(name))) => return self.back_off(name, here),
                Ok(Ok(PhaseEnd::Reassigned(reassigned))) => {
                    // On a queue it waits (L12).
                    self.transaction.return_lease();
                    self.runs.leave_thread(&here.core.clock);
                    return match &reassigned.parts[..] {
                        [part] => here.queues.put(part.queue, Task::Execution(self)),
                        _ => self.share_out(reassigned, here),
                    };
                }
                Ok(Err(error)) => return self.end(Err(error), here),
                Err(panic) => {
                    self.transaction.end_turns_early();
                    return self.end_by_panic(panic, here);
                }
            }
            is_here = false;
        }
    }

    /// The phase has been run as a whole.
    pub(super) fn end_phase(&mut self) {
        self.outputs.rendezvous();
        self.next_phase += 1;
    }

    /// Runs the next phase, if all of it belongs here; else says whose it is.
    fn run_phase(&mut self, call: &Call, here: &Here<'_>, is_here: bool) -> Result<PhaseEnd> {
        let Execution { transaction, runs, outputs, next_phase, is_whole, names, .. } = self;
        let (procedure, arguments) = (&call.procedure, &call.arguments[..]);
        let phase = &procedure.flow().phases()[*next_phase];
        let bindings = procedure.bindings.of_phase(*next_phase);
        let (context, given) = (transaction.context(), Given { arguments, earlier: outputs.earlier() });
        let (mut positions, mut actions) = (SmallVec::<[u16; 16]>::new(), BoundActions::new());
        beside_lease(procedure, context, |context| {
            let part_of_it = phase.iter().enumerate();
            let part_of_it = part_of_it.filter(|(_, action)| action.is_part_of(arguments, given.earlier));
            // There are no more actions in a phase (`Flow::problem`).
            positions.extend(part_of_it.map(|(at, _)| at as u16));
            bind(procedure, actions_at(phase, bindings, &positions), context, given, &mut actions)
        })?;
        // In a first phase nothing has been done, and nothing need be held. If this run waited here, tasks behind it on
        // the queue, for which others may wait, would be held up.
        let runs_whole = runs.is_whole();
        let mut lock_or_back_off = |context: &mut Context, actions: &mut BoundActions<'_>| {
            names.extend(names_of(actions));
            if *next_phase > 0 {
                return lock(procedure, context, actions, given).map(|()| None);
            }
            if runs.may_back_off(context) {
                match lock_at_once(procedure, context, actions, given)? {
                    AtOnce::Locked => return Ok(None),
                    AtOnce::Conflict(name) => return Ok(Some(name)),
                    AtOnce::Refused => {}
                }
            }
            // Its back-offs and the wait that follows share one time-out.
            let limit = context.choices.lock_timeout;
            context.choices.lock_timeout = limit.saturating_sub(runs.take_backed_off());
            let locked = lock(procedure, context, actions, given);
            context.choices.lock_timeout = limit;
            locked.map(|()| None)
        };
        if !is_here {
            let defines = context.ddl.is_some() && !fault_injection::is_on("parts-beside-definitions");
            *is_whole = runs_whole || defines || procedure.plans().takes_whole(*next_phase);
        }
        let first = match procedure.plans().plan(*next_phase) {
            Plan::Serial { first } if !*is_whole => Some(first),
            _ => None,
        };
        if !is_here {
            let one = |queue| SmallVec::from_iter([AssignedPart { queue, actions: SmallVec::new() }]);
            let mut parts = match &first {
                Some(first) => {
                    let order = in_turn(&actions, &positions, first);
                    let in_order = order.iter().map(|&nth| &actions[usize::from(nth)]);
                    one(assign_in_turn(context, in_order, here))
                }
                None if *is_whole
                    || has_plain(&actions) && !fault_injection::is_on("closures-beside-parts") =>
                {
                    one(assign_in_turn(context, actions.iter(), here))
                }
                None => assign(context, &actions, positions.iter().copied(), here),
            };
            if parts.len() > 1 {
                // All at once, in the one order; its parts use the tables as they are under its intentions, which it
                // keeps when they are gone.
                if let Some(name) = lock_or_back_off(context, &mut actions)? {
                    return Ok(PhaseEnd::BackOff(name));
                }
                context.core.locks.return_lease(&mut context.owner);
                parts = assign(context, &actions, positions.iter().copied(), here);
            }
            let is_elsewhere = parts.first().is_some_and(|part| part.queue != here.queue);
            if parts.len() > 1 || is_elsewhere {
                let identified = if parts.len() > 1 { identified(&positions, &actions) } else { Vec::new() };
                return Ok(PhaseEnd::Reassigned(ReassignedPhase { parts, identified }));
            }
        }
        if let Some(name) = lock_or_back_off(context, &mut actions)? {
            return Ok(PhaseEnd::BackOff(name));
        }
        // By the tables as they are now that they are locked. In the flow's order no action lacks what those before it
        // chose.
        let order = first.map(|first| in_turn(&actions, &positions, &first));
        let order = order.filter(|order| !order.is_sorted());
        let counts = procedure.plans().counts(here.queue, *next_phase);
        counts.begun();
        let mut run = RunningActions { procedure, transaction, arguments, outputs, counts };
        match order {
            None => {
                actions.iter_mut().zip(&positions).try_for_each(|(action, &at)| run.action(action, at))?
            }
            Some(order) => run.in_turn(&mut actions, &positions, &order)?,
        }
        Ok(PhaseEnd::Ran)
    }

    /// Puts the parts of the next phase on their queues; the first one has the transaction's own context.
    fn share_out(
        mut self: Box<Self>,
        ReassignedPhase { mut parts, identified }: ReassignedPhase,
        here: &Here<'_>,
    ) {
        #[cfg(test)]
        here.queues.panic_at(Bug::ShareOut);
        let phase = &self.call.procedure.flow().phases()[self.next_phase];
        let writes = |part: &AssignedPart| part.actions.iter().any(|&at| phase[usize::from(at)].writes());
        let writes: SmallVec<[bool; 4]> = parts.iter().map(writes).collect();
        let mut contexts = self.transaction.split(&writes);
        if contexts.len() + 1 < parts.len() && fault_injection::is_on("parts-want-contexts") {
            return self
                .end(Err(Error::TooManyTransactions { limit: here.core.defaults.transactions_max }), here);
        }
        // The transaction itself runs the actions of parts for which there is no context, or all if it has no packet.
        for part in parts.drain(contexts.len() + 1..).collect::<SmallVec<[AssignedPart; 4]>>() {
            parts[0].actions.extend(part.actions);
            parts[0].actions.sort_unstable();
        }
        let counts = self.call.procedure.plans().counts(here.queue, self.next_phase);
        if contexts.is_empty() {
            counts.begun()
        } else {
            counts.begun_in_parts()
        }
        let owners = contexts.iter_mut().map(|part| part.transaction().lock_owner());
        let owners = std::iter::once(self.transaction.lock_owner()).chain(owners);
        let split = Arc::new(SplitPhase {
            call: self.call.clone(),
            phase: self.next_phase,
            earlier: self.outputs.earlier().to_vec(),
            identified,
            failed_at: AtomicU32::new(u32::MAX),
            parts: owners.map(|owner| PartProgress { owner, action: AtomicU32::new(0) }).collect(),
            rendezvous: Rendezvous::new(parts.len()),
        });
        let outputs = || Outputs::after(split.earlier.clone());
        let own = contexts.into_iter().map(|part| PartOf::Own(part, outputs()));
        let runs = std::iter::once(PartOf::Execution(self)).chain(own);
        let tasks =
            parts.into_iter().zip(runs).enumerate().map(|(nth, (AssignedPart { queue, actions }, run))| {
                (queue, Task::Part(Box::new(Part { split: split.clone(), nth, actions, run })))
            });
        here.queues.put_all(tasks.collect());
    }

    /// Restarts the call, to run whole.
    pub(super) fn run_whole(self, here: &Here<'_>) {
        let Execution { call, mut runs, transaction, next_phase, mut names, .. } = self;
        call.procedure.plans().run_whole(next_phase);
        runs.end_parts(transaction);
        here.queues.ended(&mut names);
        here.queues.restart(here.queue, Task::again(call, runs, None, &here.core.clock), Duration::ZERO);
    }

    /// Makes way for other calls. If calls waited for their first locks on their thread, each of them would need
    /// another standby thread.
    fn back_off(self, name: u64, here: &Here<'_>) {
        let Execution { call, mut runs, transaction, .. } = self;
        runs.back_off(transaction);
        here.queues.back_off(here.queue, call, runs, name);
    }

    /// Ends the stage of the run, whose bodies have ended. `None`: the next stage follows.
    fn end_stage(mut self, here: &Here<'_>) -> Option<Execution> {
        if !self.runs.is_staged() || !self.runs.ends_stage(here.core, &mut self.transaction) {
            return Some(self);
        }
        let Execution { call, mut runs, transaction, mut names, .. } = self;
        _ = runs.again::<()>(transaction, None);
        here.queues.ended(&mut names);
        here.queues.restart(here.queue, Task::again(call, runs, None, &here.core.clock), Duration::ZERO);
        None
    }

    /// Has its outcome, or runs again.
    pub(super) fn end(self, outcome: Result<()>, here: &Here<'_>) {
        let Some(ended) = self.end_stage(here) else { return };
        let Execution { call, mut runs, transaction, outputs, mut names, .. } = ended;
        #[cfg(test)]
        here.queues.panic_at(Bug::End);
        let outcome = outcome.map(|()| outputs.into_values());
        let ended = runs.end(here.core, transaction, outcome).outcome(here.core);
        if fault_injection::is_on("executor-awaits-the-log") {
            // Without a standby in its place.
            while ended.as_ref().is_ok_and(|outcome| outcome.is_placed() && !outcome.is_done()) {
                std::thread::yield_now();
            }
        }
        here.queues.ended(&mut names);
        match ended {
            Ok(outcome) => call.complete(outcome, here),
            Err(backoff) => {
                let again = Task::again(call, runs, None, &here.core.clock);
                here.queues.restart(here.queue, again, backoff.unwrap_or_default());
            }
        }
    }

    /// A body has panicked. What the panic carries may rest on what the transaction has read (I3).
    pub(super) fn end_by_panic(self, panic: Panic, here: &Here<'_>) {
        let Some(ended) = self.end_stage(here) else { return run_caught(|| drop(panic)) };
        let Execution { call, transaction, mut names, .. } = ended;
        let outcome = transaction.failed(Failure::Panic(panic));
        here.queues.ended(&mut names);
        call.complete(outcome, here);
    }
}

/// What the identifiers of these actions are, by their positions.
fn identified(positions: &[u16], actions: &[BoundAction<'_>]) -> Vec<(u16, Identified)> {
    let of = |(&at, action): (&u16, &BoundAction<'_>)| action.on_table().map(|it| (at, it.identifier()));
    positions.iter().zip(actions).filter_map(of).collect()
}
