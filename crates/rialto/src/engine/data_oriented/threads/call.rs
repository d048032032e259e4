//! [`Call`]: a call that is sent to the executors, and its outcome.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::execution::{Here, Task};
use super::queues::Queues;
use super::visit::Visit;
use crate::engine::conventional;
use crate::engine::data_oriented::planner::Plan;
use crate::engine::identifier::Given;
use crate::engine::options::HandOver;
use crate::engine::prepared::Prepared;
use crate::error::{Error, Result};
use crate::foreign::{Panic, catch, run_caught};
use crate::inside::InBody;
use crate::isolate::SpanRef;
use crate::reply::{Completes, Completion, Failure, Outcome, Sent};
use crate::row::{Key, Value};
use crate::txn::runs::Runs;
use crate::txn::{Transaction, TxOptions};

/// A call of a procedure, shared by its caller, which may go away, and the threads that run it.
pub(crate) struct Call {
    pub(super) procedure: Prepared,
    pub(super) options: TxOptions,
    pub(super) arguments: Vec<Value>,
    completion: Completion,
}

impl Completes for Call {
    fn completion(&self) -> &Completion {
        &self.completion
    }
}

impl Call {
    /// Ends the call with its outcome.
    pub(super) fn complete(&self, outcome: Outcome<Vec<Value>>, here: &Here<'_>) {
        here.queues.admission.release();
        self.completion.complete(outcome, &here.core.commits.log);
    }

    /// Runs the call's fetch stage, from the first phase to the last. It locks no identifier and uses no executor, so one
    /// thread runs all of it. While it waits for the disk, a standby runs the next tasks. Whatever it gives is dropped.
    pub(super) fn fetch(&self, runs: &mut Runs, mut transaction: Transaction<'static>, here: &Here<'_>) {
        let mut outputs = self.procedure.new_outputs();
        let ended =
            catch(|| conventional::run(&self.procedure, &mut transaction, &self.arguments, &mut outputs));
        let has_next = runs.ends_stage(here.core, &mut transaction);
        debug_assert!(has_next, "the operate stage follows");
        _ = runs.again::<()>(transaction, None);
        // What a panic carries is foreign code.
        run_caught(|| drop(ended));
    }

    /// Ends the call by a panic outside of its bodies (a bug of ours), which has ended its task. The caller gets the
    /// panic, unless the call has its outcome already. What the task held was given back as the panic dropped it;
    /// what it had read is not known.
    pub(super) fn lost(&self, panic: Panic, here: &Here<'_>) {
        if self.completion.is_on_its_way() {
            let settled = here.core.settle_all(&self.options);
            self.complete(Outcome::failed(Failure::Panic(panic), Some(settled)), here);
        }
    }
}

/// Where a call runs.
pub(crate) enum Way<'a> {
    /// On the calling thread, which has the turn of a queue if it visits one.
    Here(Option<Visit<'a>>),
    /// On the threads that own executors, beginning at this queue.
    Queue(usize),
}

/// Decides where a call runs whose caller waits for it.
///
/// # Errors
/// [`Error::Nested`](crate::Error::Nested) inside of a body.
pub(crate) fn way<'a>(
    queues: &'a Arc<Queues>,
    hand_over: HandOver,
    procedure: &Prepared,
    arguments: &[Value],
) -> Result<Way<'a>> {
    drop(InBody::enter(queues.core.storage.catalog.opening())?);
    let queue = first_queue(procedure, arguments, queues);
    let visit = (hand_over == HandOver::IfBusy).then(|| queues.visit(queue)).flatten();
    Ok(visit.map_or(Way::Queue(queue), |visit| Way::Here(Some(visit))))
}

/// Sends a call to the executors, beginning at this queue if it is known. They check the call.
///
/// # Errors
/// [`Error::Nested`](crate::Error::Nested) inside of a body: a caller that waits there may wait for itself.
/// [`Error::Closed`](crate::Error::Closed).
pub(crate) fn send(
    queues: &Arc<Queues>,
    queue: Option<usize>,
    procedure: Prepared,
    options: TxOptions,
    arguments: Vec<Value>,
) -> Result<Sent> {
    let opening = queues.core.storage.catalog.opening();
    drop(InBody::enter(opening)?);
    let completion = Completion::new();
    let queue = queue.unwrap_or_else(|| first_queue(&procedure, &arguments, queues));
    let call = Arc::new(Call { procedure, options, arguments, completion });
    if !queues.admission.admit() {
        return Err(Error::Closed);
    }
    queues.put(queue, Task::Call(call.clone(), None));
    Ok(Sent::running(opening, call))
}

/// The queue to begin at: that of the first action of the call that names a key, in the order of the plan; the first
/// queue if no action does.
///
/// Conditions and identifiers are computed by closures of the caller. If one panics here, it panics again when the
/// call runs, and the panic is then the call's outcome, as a body's panic is.
pub(super) fn first_queue(procedure: &Prepared, arguments: &[Value], queues: &Queues) -> usize {
    catch(|| named_queue(procedure, arguments, queues)).unwrap_or(0)
}

fn named_queue(procedure: &Prepared, arguments: &[Value], queues: &Queues) -> usize {
    let given = Given { arguments, earlier: &[] };
    let Some(actions) = procedure.flow().phases().first() else { return 0 };
    let executor_of = |at: usize| {
        let (target, binding) = (actions[at].target.as_ref()?, procedure.bindings.of_phase(0)[at].as_ref()?);
        if binding.by_columns {
            return None;
        }
        let mut key = Key::new();
        binding.key_prefix(target, given, &mut key).ok()?;
        Some((queues.core.locks.executor_now(binding.index, SpanRef::prefix(&key)), key))
    };
    let first = match procedure.plans().plan(0) {
        Plan::Serial { first } => first.first().map(|&at| usize::from(at)),
        Plan::Parallel => None,
    };
    let in_order = first.into_iter().chain(0..actions.len());
    let named = in_order.filter(|&at| !actions[at].identifier().is_empty());
    let mut identified = named.filter(|&at| actions[at].is_part_of(arguments, given.earlier));
    let Some((executor, key)) = identified.next().and_then(executor_of) else { return 0 };
    let owner = queues.owner_of(executor).or_else(|| {
        let mut others = identified.filter_map(executor_of);
        others.find_map(|(executor, _)| queues.owner_of(executor))
    });
    // Calls that only read what is only read are spread evenly over the threads.
    owner.unwrap_or_else(|| xxh3_64(&key) as usize % queues.len())
}
