//! [`SplitPhase`]: a phase whose actions several threads run; [`Part`]: those of one thread; [`join_parts`]: what follows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use smallvec::SmallVec;

use super::call::Call;
use super::execution::{Execution, Here};
#[cfg(test)]
use super::queues::Bug;
use super::rendezvous::Rendezvous;
use super::running_actions::{RunningActions, actions_at, give};
use crate::engine::identifier::Given;
use crate::engine::phase::{BoundActions, bind};
use crate::engine::procedure::Outputs;
use crate::engine::table_action::Identified;
use crate::error::Result;
use crate::fault_injection;
use crate::foreign::catch;
use crate::reply::Failure;
use crate::row::Value;
use crate::txn::Transaction;
use crate::txn::core::Core;
use crate::txn::part::PartTransaction;

/// The state that the parts of a phase share.
pub(super) struct SplitPhase {
    pub call: Arc<Call>,
    pub phase: usize,
    /// What earlier phases gave.
    pub earlier: Vec<Value>,
    /// What is locked for its actions that have identifiers, by their positions, ascending.
    pub identified: Vec<(u16, Identified)>,
    /// The lowest position of an action that has failed so far. Actions behind it need not begin, nor wait for locks.
    pub failed_at: AtomicU32,
    pub parts: SmallVec<[PartProgress; 4]>,
    pub rendezvous: Rendezvous<FinishedPart>,
}

/// The progress of a part, for the other parts to read.
pub(super) struct PartProgress {
    /// The lock owner of its context.
    pub owner: u16,
    /// The position of the action that it runs; 0 before the first. It ascends.
    pub action: AtomicU32,
}

/// The actions of a phase that one thread runs.
pub(in crate::engine) struct Part {
    pub(super) split: Arc<SplitPhase>,
    /// Which of the parts it is.
    pub(super) nth: usize,
    /// Their positions in the phase, ascending.
    pub(super) actions: SmallVec<[u16; 8]>,
    pub(super) run: PartOf,
}

/// The context that a part runs in.
pub(super) enum PartOf {
    /// The transaction's own.
    Execution(Box<Execution>),
    /// One of its own.
    Own(PartTransaction, Outputs),
}

/// A part at the rendezvous point, with its outcome.
pub(super) struct FinishedPart {
    run: PartOf,
    actions: SmallVec<[u16; 8]>,
    /// How many outputs there were behind each action that has run.
    ends: SmallVec<[usize; 8]>,
    failure: Option<Failure>,
}

impl Part {
    pub(super) fn run(self, here: &Here<'_>) {
        let Part { split, nth, actions, mut run } = self;
        let mut ends = SmallVec::new();
        if let PartOf::Execution(execution) = &mut run {
            execution.runs.come_to_thread(&here.core.clock);
        }
        let (transaction, outputs) = match &mut run {
            PartOf::Execution(execution) => (&mut execution.transaction, &mut execution.outputs),
            PartOf::Own(part, outputs) => (part.transaction(), outputs),
        };
        let outcome =
            catch(|| run_actions(&split, nth, &actions, transaction, outputs, &mut ends, here.queue));
        // Until all parts have met it may wait for any lock. A part arrives whatever happens: the others wait for it
        // with what they hold.
        let left = catch(|| {
            #[cfg(test)]
            here.queues.panic_at(Bug::PartDone);
            transaction.return_lease();
        });
        let outcome = left.and(outcome);
        let failure = match outcome {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(Failure::Error(error)),
            Err(panic) => Some(Failure::Panic(panic)),
        };
        if let PartOf::Execution(execution) = &mut run {
            execution.runs.leave_thread(&here.core.clock);
        }
        let mut finished = FinishedPart { run, actions, ends, failure };
        // If an action needs the whole transaction, the transaction runs again whatever the other parts return.
        let failed_at = if finished.needs_whole() { Some(0) } else { finished.failed_at() };
        if let Some(position) = failed_at {
            split.fail(position, here.core);
        }
        if let Some(parts) = split.rendezvous.arrive(finished) {
            join_parts(parts, here);
        }
    }
}

impl SplitPhase {
    /// An action has failed: those behind it in the flow end their waits for locks. Their transaction ends without
    /// effect, and the error of one before them is told.
    fn fail(&self, position: u16, core: &Core) {
        let position = u32::from(position);
        // Either a part sees this before its next action, or its action is seen here.
        self.failed_at.fetch_min(position, Ordering::SeqCst);
        let behind = self.parts.iter().filter(|part| part.action.load(Ordering::SeqCst) > position);
        behind.for_each(|part| core.locks.end_waits_of_part(part.owner));
    }
}

impl FinishedPart {
    /// The position of its failed action, if it has failed.
    fn failed_at(&self) -> Option<u16> {
        let at = self.actions.get(self.ends.len()).or(self.actions.last());
        self.failure.as_ref().and(at.copied())
    }

    /// Whether one of its actions needs the whole transaction.
    fn needs_whole(&mut self) -> bool {
        match &mut self.run {
            PartOf::Execution(execution) => execution.transaction.needs_whole(),
            PartOf::Own(part, _) => part.transaction().needs_whole(),
        }
    }
}

/// Runs some actions of a phase on a thread, and notes how many outputs there are behind each.
fn run_actions(
    split: &SplitPhase,
    part: usize,
    positions: &[u16],
    transaction: &mut Transaction<'static>,
    outputs: &mut Outputs,
    ends: &mut SmallVec<[usize; 8]>,
    thread: usize,
) -> Result<()> {
    let (procedure, arguments) = (&split.call.procedure, &split.call.arguments[..]);
    let phase = &procedure.flow().phases()[split.phase];
    let given = Given { arguments, earlier: &split.earlier };
    let bindings = procedure.bindings.of_phase(split.phase);
    let mut bound = BoundActions::new();
    // The transaction has locked what they name, and their tables by intention: as these are now.
    let context = transaction.context();
    bind(procedure, actions_at(phase, bindings, positions), context, given, &mut bound)?;
    for (action, position) in bound.iter_mut().zip(positions) {
        action.intend(procedure, context, given)?;
        let locked = split.identified.binary_search_by_key(position, |(at, _)| *at);
        if let (Some(action), Ok(nth)) = (action.on_table(), locked) {
            action.check_is(&split.identified[nth].1, procedure)?;
        }
    }
    let counts = procedure.plans().counts(thread, split.phase);
    let mut run = RunningActions { procedure, transaction, arguments, outputs, counts };
    for (action, &at) in bound.iter_mut().zip(positions) {
        split.parts[part].action.store(u32::from(at), Ordering::SeqCst);
        // An action before the failed one runs: it may fail, too, and then gives the error.
        if split.failed_at.load(Ordering::SeqCst) < u32::from(at) {
            break;
        }
        run.action(action, at)?;
        ends.push(run.outputs.values().len());
    }
    Ok(())
}

/// All parts of a phase have arrived: makes one transaction of them again, and goes on with it.
fn join_parts(mut parts: Vec<FinishedPart>, here: &Here<'_>) {
    #[cfg(test)]
    here.queues.panic_at(Bug::Join);
    // What comes first in the flow tells what went wrong.
    let needs_whole = parts.iter_mut().any(FinishedPart::needs_whole);
    let failed = parts.iter_mut().filter_map(|finished| Some((finished.failed_at()?, finished)));
    let first = failed.min_by_key(|(position, _)| *position);
    let (failed_at, failure) =
        first.map_or((None, None), |(position, finished)| (Some(position), finished.failure.take()));
    let goes_on = failure.is_none() && !needs_whole;
    // What the other panics carry is dropped last, when the transaction holds nothing any more: its destructors are
    // foreign code.
    let mut others = Vec::new();
    let own = parts.iter().position(|finished| matches!(finished.run, PartOf::Execution(_)));
    let own = parts.swap_remove(own.expect("one part has the transaction's own context"));
    let PartOf::Execution(mut execution) = own.run else { unreachable!("it was just found to be") };
    if !fault_injection::is_on("joins-on-the-thread-of-its-part") {
        execution.runs.come_to_thread(&here.core.clock);
    }
    let mut given = execution.outputs.take_own(&own.actions, &own.ends);
    for FinishedPart { run, actions, ends, failure } in parts {
        others.extend(failure);
        let PartOf::Own(part, mut outputs) = run else { unreachable!("only one has the execution") };
        if goes_on {
            execution.transaction.absorb(part);
            given.extend(outputs.take_own(&actions, &ends));
        } else {
            execution.transaction.forget(part);
        }
    }
    execution.transaction.end_split(failed_at);
    match failure {
        // An error of a part counts for nothing: the whole may succeed.
        _ if needs_whole => execution.run_whole(here),
        None => {
            give(&mut execution.outputs, given);
            execution.end_phase();
            execution.dispatch(here, false);
        }
        Some(Failure::Error(error)) => execution.end(Err(error), here),
        Some(Failure::Panic(panic)) => execution.end_by_panic(panic, here),
    }
}
