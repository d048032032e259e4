//! [`Flight`]: a call on its way through the executors.
//!
//! ```text
//!  caller ─▶ Call ─▶ queue ─▶ Flight: phase 1 ─▶ its part here ─┐                    ┌▶ place, apply, release
//!                               (DORA, 4.1.2)  └▶ Part ─▶ queue ─┴▶ rendezvous ─▶ phase 2 … ─▶ reply to the caller
//! ```
//!
//! A flight is its transaction: whoever runs it has it alone. A phase whose actions belong to one thread is run there; one
//! whose actions belong to several is shared out, each thread's actions merged into one part, with a context, locks and a
//! write set of its own. All parts of a phase are put on their queues at one time. Who comes last to the rendezvous point
//! makes one transaction of them again, and goes on. A phase whose plan is serial ([`Plan`]) is run whole by one thread, the
//! action that is the most likely to abort first; all its identifiers are locked before the first body, as ever.
//!
//! Kept here: **one meaning**. Actions of one phase whose identifiers overlap are in one part, in their order; so is, with
//! the transaction itself, whatever overlaps what earlier phases wrote. Outputs come in the flow's order, whoever was first.
//! **Tables stay as they are** until the transaction ends: it enters the intentions of a phase itself before it shares the
//! phase out, and its parts use those. **All that a phase names is locked before it is shared out**, by the transaction, in the
//! order of all: parts that each asked for several keys, one after the other, were on cycles with each other.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;

use super::call::Call;
use super::placing::{Part as Placed, in_turn, place, place_in_turn};
use super::planner::Plan;
use super::plans::PhaseCounts;
use super::queues::Queues;
use super::rendezvous::Rendezvous;
use crate::core::Core;
use crate::database::{Run, Runs, begin_run, end_run};
use crate::engine::identifier::Given;
use crate::engine::phase::{Ready, ReadyActions, lock, make_ready};
use crate::engine::procedure::{Outputs, Registered};
use crate::engine::sent::Landed;
use crate::error::{Error, Result};
use crate::row::Value;
use crate::txn::Transaction;

/// Where a task is run.
pub(super) struct Here<'a> {
    pub core: &'a Arc<Core>,
    pub queues: &'a Arc<Queues>,
    /// The queue of the thread.
    pub queue: usize,
}

/// What there is to do for a thread that owns executors.
pub(super) enum Task {
    /// Begin a call; again, if it has run before.
    Call(Arc<Call>, Option<Runs>),
    /// Go on with one: its next phase is run here.
    Flight(Box<Flight>),
    /// Run a part of a phase.
    Part(Box<Part>),
}

/// See the [module](self).
pub(super) struct Flight {
    call: Arc<Call>,
    runs: Runs,
    transaction: Transaction,
    outputs: Outputs,
    next_phase: usize,
}

/// What the parts of a phase have in common.
struct Meeting {
    call: Arc<Call>,
    phase: usize,
    /// What earlier phases gave.
    earlier: Vec<Value>,
    /// One of them has failed, so that the others need not begin what they have not begun.
    failed: AtomicBool,
    rendezvous: Rendezvous<Arrival>,
}

/// The actions of a phase that one thread runs.
pub(super) struct Part {
    meeting: Arc<Meeting>,
    /// Their positions in the phase, ascending.
    actions: SmallVec<[u16; 8]>,
    run: PartOf,
}

/// Whose context a part has.
enum PartOf {
    /// The transaction's own.
    Flight(Box<Flight>),
    /// One of its own.
    Own(Transaction, Outputs),
}

/// A part at the rendezvous point.
struct Arrival {
    run: PartOf,
    actions: SmallVec<[u16; 8]>,
    /// How many outputs there were behind each action that has run.
    ends: SmallVec<[usize; 8]>,
    failure: Option<Failure>,
}

enum Failure {
    Error(Error),
    Panic(Box<dyn Any + Send>),
}

impl Task {
    /// Runs it as far as it goes here.
    pub fn run(self, here: &Here<'_>) {
        match self {
            Task::Call(call, runs) => Flight::begin(call, runs, here),
            Task::Flight(flight) => flight.fly(here, true),
            Task::Part(part) => part.run(here),
        }
    }
}

impl Flight {
    fn begin(call: Arc<Call>, runs: Option<Runs>, here: &Here<'_>) {
        // What its thread waits for is counted by thread.
        let mut runs = runs.map_or_else(Runs::new, Runs::on_this_thread);
        match begin_run(here.core, &call.options, &mut runs) {
            Ok(transaction) => {
                let outputs = call.procedure.new_outputs();
                Box::new(Flight { call, runs, transaction, outputs, next_phase: 0 }).fly(here, false);
            }
            Err(error) => call.land(Landed::NotBegun(error), here),
        }
    }

    /// Goes on; a panic of a body ends it. The next phase `is_here` if it was sent here for it.
    fn fly(mut self: Box<Self>, here: &Here<'_>, is_here: bool) {
        self.runs = self.runs.on_this_thread();
        let call = self.call.clone();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.go_on(here, is_here))) {
            call.land(Landed::Panicked(panic), here);
        }
    }

    fn go_on(mut self: Box<Self>, here: &Here<'_>, mut is_here: bool) {
        loop {
            let call = self.call.clone();
            if self.next_phase == call.procedure.flow().phases().len() {
                return self.end(Ok(()), here);
            }
            match self.run_phase(&call, here, is_here) {
                Ok(None) => self.meet_alone(),
                Ok(Some(parts)) => {
                    // On a queue it waits (L12).
                    self.transaction.leave_stint();
                    return match &parts[..] {
                        [part] => here.queues.put(here.core, part.queue, Task::Flight(self)),
                        _ => self.share_out(parts, here),
                    };
                }
                Err(error) => return self.end(Err(error), here),
            }
            is_here = false;
        }
    }

    /// The phase has been run as a whole.
    fn meet_alone(&mut self) {
        self.outputs.rendezvous();
        self.next_phase += 1;
    }

    /// Runs the next phase, if all of it belongs here; else says whose it is.
    fn run_phase(
        &mut self,
        call: &Call,
        here: &Here<'_>,
        is_here: bool,
    ) -> Result<Option<SmallVec<[Placed; 4]>>> {
        let Flight { transaction, outputs, next_phase, .. } = self;
        let (procedure, arguments) = (&*call.procedure, &call.arguments[..]);
        let phase = &procedure.flow().phases()[*next_phase];
        let (context, given) = (transaction.context(), Given { arguments, earlier: outputs.earlier() });
        let mut actions = ReadyActions::new();
        make_ready(procedure, phase, context, given, &mut actions)?;
        let positions = phase.iter().enumerate();
        let positions = positions.filter(|(_, action)| action.is_part_of(arguments, given.earlier));
        let positions: SmallVec<[u16; 16]> = positions.map(|(at, _)| at as u16).collect();
        let order = match procedure.plans().plan(*next_phase) {
            Plan::Serial { first } => Some(in_turn(&actions, &positions, &first)),
            Plan::Parallel => None,
        };
        if !is_here {
            let mut parts = match &order {
                Some(order) => {
                    let queue = place_in_turn(context, &actions, order, here);
                    SmallVec::from_iter([Placed { queue, actions: SmallVec::new() }])
                }
                None => place(context, &actions, positions.iter().copied(), here),
            };
            if parts.len() > 1 {
                // All at once, in the one order; its parts use the tables as they are under its intentions, which it keeps when
                // they are gone.
                lock(procedure, context, &mut actions, given)?;
                context.core.locks.leave_stint(&mut context.owner);
                parts = place(context, &actions, positions.iter().copied(), here);
            }
            let is_elsewhere = parts.first().is_some_and(|part| part.queue != here.queue);
            if parts.len() > 1 || is_elsewhere {
                return Ok(Some(parts));
            }
        }
        lock(procedure, context, &mut actions, given)?;
        let counts = procedure.plans().counts(here.queue, *next_phase);
        counts.begun();
        let mut run = Running { procedure, transaction, arguments, outputs, counts };
        match order {
            None => {
                actions.iter_mut().zip(&positions).try_for_each(|(action, &at)| run.action(action, at))?
            }
            Some(order) => run.in_turn(&mut actions, &positions, &order)?,
        }
        Ok(None)
    }

    /// Puts the parts of the next phase on their queues; the first one has the transaction's own context.
    fn share_out(mut self: Box<Self>, mut parts: SmallVec<[Placed; 4]>, here: &Here<'_>) {
        let mut contexts: SmallVec<[Transaction; 4]> = SmallVec::new();
        while contexts.len() + 1 < parts.len() {
            match self.transaction.begin_part() {
                Ok(part) => contexts.push(part),
                Err(_) => {
                    // There is no context left: the transaction does it itself.
                    let last = parts.pop().expect("there are several");
                    parts[0].actions.extend(last.actions);
                    parts[0].actions.sort_unstable();
                }
            }
        }
        self.call.procedure.plans().counts(here.queue, self.next_phase).begun();
        let meeting = Arc::new(Meeting {
            call: self.call.clone(),
            phase: self.next_phase,
            earlier: self.outputs.earlier().to_vec(),
            failed: AtomicBool::new(false),
            rendezvous: Rendezvous::new(parts.len()),
        });
        let outputs = || Outputs::after(meeting.earlier.clone());
        let own = contexts.into_iter().map(|transaction| PartOf::Own(transaction, outputs()));
        let runs = std::iter::once(PartOf::Flight(self)).chain(own);
        let tasks = parts.into_iter().zip(runs).map(|(Placed { queue, actions }, run)| {
            (queue, Task::Part(Box::new(Part { meeting: meeting.clone(), actions, run })))
        });
        here.queues.put_all(here.core, tasks.collect());
    }

    /// Has its outcome, or runs again.
    fn end(self, outcome: Result<()>, here: &Here<'_>) {
        let Flight { call, mut runs, transaction, outputs, .. } = self;
        let outcome = outcome.map(|()| outputs.into_values());
        let landed = match end_run(here.core, transaction, outcome, &mut runs, false) {
            Run::Placed(values, mut committed) => {
                let ticket = committed.ticket();
                committed.give_back(here.core);
                Landed::Placed(values, ticket)
            }
            Run::Again(rest) => {
                let again = Task::Call(call, Some(runs));
                return here.queues.restart(here.queue, again, rest.unwrap_or_default());
            }
            // What it read has to be durable before its error is told (I3).
            Run::Failed(mut transaction, error) => Landed::Failed(transaction.settled(), error),
            Run::NotBegun(error) => Landed::NotBegun(error),
        };
        call.land(landed, here);
    }
}

impl Part {
    fn run(self, here: &Here<'_>) {
        let Part { meeting, actions, mut run } = self;
        let mut ends = SmallVec::new();
        let (transaction, outputs) = match &mut run {
            PartOf::Flight(flight) => (&mut flight.transaction, &mut flight.outputs),
            PartOf::Own(transaction, outputs) => (transaction, outputs),
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            run_actions(&meeting, &actions, transaction, outputs, &mut ends, here.queue)
        }));
        // Until all have met it may wait for anybody.
        transaction.leave_stint();
        let failure = match outcome {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(Failure::Error(error)),
            Err(panic) => Some(Failure::Panic(panic)),
        };
        if failure.is_some() {
            meeting.failed.store(true, Ordering::Relaxed);
        }
        if let Some(arrivals) = meeting.rendezvous.arrive(Arrival { run, actions, ends, failure }) {
            meet(arrivals, here);
        }
    }
}

/// Actions that are being run, on one thread.
struct Running<'a> {
    procedure: &'a Registered,
    transaction: &'a mut Transaction,
    arguments: &'a [Value],
    outputs: &'a mut Outputs,
    counts: PhaseCounts<'a>,
}

impl Running<'_> {
    /// Runs one, and counts how it ends.
    fn action(&mut self, action: &mut Ready<'_>, position: u16) -> Result<()> {
        let ended = action.run(self.procedure, self.transaction, self.arguments, self.outputs);
        self.counts.ran(position, ended.as_ref().err());
        ended
    }

    /// Runs them in this order; their outputs stand in the flow's all the same.
    fn in_turn(&mut self, actions: &mut [Ready<'_>], positions: &[u16], order: &[u16]) -> Result<()> {
        let (mut ran, mut ends): (SmallVec<[u16; 16]>, SmallVec<[usize; 16]>) = Default::default();
        for &nth in order {
            let position = positions[usize::from(nth)];
            self.action(&mut actions[usize::from(nth)], position)?;
            ran.push(position);
            ends.push(self.outputs.values().len());
        }
        if !ran.is_sorted() {
            let given = self.outputs.take_own(&ran, &ends);
            give(self.outputs, given);
        }
        Ok(())
    }
}

/// Puts what actions of the phase under way have given into the flow's order.
fn give(outputs: &mut Outputs, mut given: Vec<(u16, Vec<Value>)>) {
    given.sort_by_key(|(action, _)| *action);
    given.into_iter().flat_map(|(_, values)| values).for_each(|value| outputs.push(value));
}

/// Runs some actions of a phase on a thread, and notes how many outputs there are behind each.
fn run_actions(
    meeting: &Meeting,
    positions: &[u16],
    transaction: &mut Transaction,
    outputs: &mut Outputs,
    ends: &mut SmallVec<[usize; 8]>,
    thread: usize,
) -> Result<()> {
    let (procedure, arguments) = (&*meeting.call.procedure, &meeting.call.arguments[..]);
    let phase = &procedure.flow().phases()[meeting.phase];
    let given = Given { arguments, earlier: &meeting.earlier };
    let actions = positions.iter().map(|&at| &phase[usize::from(at)]);
    let mut ready = ReadyActions::new();
    // The transaction has locked what they name, and their tables by intention: as these are now.
    let context = transaction.context();
    make_ready(procedure, actions, context, given, &mut ready)?;
    ready.iter_mut().try_for_each(|action| action.intend(procedure, context, given))?;
    let counts = procedure.plans().counts(thread, meeting.phase);
    let mut run = Running { procedure, transaction, arguments, outputs, counts };
    for (action, &at) in ready.iter_mut().zip(positions) {
        // Before each: what a part that has failed makes needless.
        if meeting.failed.load(Ordering::Relaxed) {
            break;
        }
        run.action(action, at)?;
        ends.push(run.outputs.values().len());
    }
    Ok(())
}

/// All parts of a phase have arrived: makes one transaction of them again, and goes on with it.
fn meet(mut arrivals: Vec<Arrival>, here: &Here<'_>) {
    // What comes first in the flow tells what went wrong.
    let failed_at = |arrival: &Arrival| arrival.actions.get(arrival.ends.len()).copied();
    let failed = arrivals.iter_mut().filter(|arrival| arrival.failure.is_some());
    let failure = failed.min_by_key(|arrival| failed_at(arrival)).and_then(|arrival| arrival.failure.take());
    let own = arrivals.iter().position(|arrival| matches!(arrival.run, PartOf::Flight(_)));
    let own = arrivals.swap_remove(own.expect("one part has the transaction's own context"));
    let PartOf::Flight(mut flight) = own.run else { unreachable!("it was just found to be") };
    let mut given = flight.outputs.take_own(&own.actions, &own.ends);
    for Arrival { run, actions, ends, .. } in arrivals {
        let PartOf::Own(part, mut outputs) = run else { unreachable!("only one has the flight") };
        match failure {
            None => {
                flight.transaction.absorb(part);
                given.extend(outputs.take_own(&actions, &ends));
            }
            Some(_) => flight.transaction.forget(part),
        }
    }
    match failure {
        None => {
            give(&mut flight.outputs, given);
            flight.meet_alone();
            flight.fly(here, false);
        }
        Some(Failure::Error(error)) => flight.end(Err(error), here),
        Some(Failure::Panic(panic)) => {
            let call = flight.call.clone();
            // Who is told finds nothing held.
            drop(flight);
            call.land(Landed::Panicked(panic), here);
        }
    }
}
