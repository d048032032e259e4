//! [`Call`]: what a caller sends to the executors, and where he finds what became of it.

use std::sync::Arc;

use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use super::flight::{Here, Task};
use super::planner::Plan;
use super::queues::Queues;
use crate::engine::Runtime;
use crate::engine::action::Action;
use crate::engine::identifier::Given;
use crate::engine::procedure::Registered;
use crate::engine::sent::{Landed, Sent, Until};
use crate::error::Result;
use crate::foreign::{Panic, catch};
use crate::inside::InBody;
use crate::isolate::SpanRef;
use crate::log::Listener;
use crate::row::{Key, Value};
use crate::txn::core::Core;
use crate::txn::{Ticket, TxOptions};

/// A call of a procedure, shared by its caller, who may go away, and whoever runs it.
pub(crate) struct Call {
    pub(super) procedure: Arc<Registered>,
    pub(super) options: TxOptions,
    pub(super) arguments: Vec<Value>,
    landing: Mutex<Landing>,
}

enum Landing {
    /// On its way; whom to wake, if somebody waits.
    Flying(Option<(Listener, Until)>),
    Landed(Landed),
    /// The caller knows.
    Told,
}

impl Call {
    /// It has its outcome. Who waits for its place is woken now. Who waits until it is durable sleeps on until the log
    /// wakes him, unless it need not.
    pub(super) fn land(&self, landed: Landed, here: &Here<'_>) {
        here.queues.release();
        let mut landing = self.landing.lock();
        let Landing::Flying(waiter) = std::mem::replace(&mut *landing, Landing::Landed(landed)) else {
            unreachable!("a call lands once")
        };
        let Some((listener, until)) = waiter else { return };
        let place = match (&mut *landing, until) {
            (Landing::Landed(landed), Until::Durable) => landed.await_log(),
            _ => None,
        };
        drop(landing);
        match place {
            Some((lsn, durability)) => here.core.commits.log.wake_when_done(lsn, durability, listener),
            None => here.core.commits.log.wake(listener),
        }
    }

    /// A panic outside of its bodies, a bug of ours, has ended the task that it was: the caller is told, unless it has its
    /// outcome already. What the task held was given back as the panic dropped it, what it had read is not known.
    pub(super) fn lost(&self, panic: Panic, here: &Here<'_>) {
        if matches!(&*self.landing.lock(), Landing::Flying(_)) {
            self.land(Landed::Panicked(Ticket::of_all_placed(here.core, &self.options), panic), here);
        }
    }

    /// What became of it, if it has landed; that is told once.
    pub(crate) fn take_landed(&self) -> Option<Landed> {
        Call::take(&mut self.landing.lock())
    }

    /// As [`Call::take_landed`]; if it is on its way, the listener is woken in the end, and no earlier one.
    pub(crate) fn take_landed_or_wake(
        &self,
        listener: impl FnOnce() -> Listener,
        until: Until,
    ) -> Option<Landed> {
        if let Some(landed) = self.take_landed() {
            return Some(landed);
        }
        // Wakers are foreign code, when they are cloned and dropped, too: no latch is held around them.
        let listener = listener();
        let mut landing = self.landing.lock();
        let landed = Call::take(&mut landing);
        let unused = match landed {
            Some(_) => Landing::Flying(Some((listener, until))),
            None => std::mem::replace(&mut *landing, Landing::Flying(Some((listener, until)))),
        };
        drop(landing);
        drop(unused);
        landed
    }

    fn take(landing: &mut Landing) -> Option<Landed> {
        match landing {
            Landing::Flying(_) => None,
            _ => match std::mem::replace(landing, Landing::Told) {
                Landing::Landed(landed) => Some(landed),
                _ => unreachable!("the one caller asks until he knows"),
            },
        }
    }

    /// The queue to begin at: that of the first action of the call that names a key, as the plan has it; the first queue if none
    /// does.
    fn first_queue(&self, core: &Core, queues: &Queues) -> usize {
        let given = Given { arguments: &self.arguments, earlier: &[] };
        let place = |action: &Action| {
            let target = action.target.as_ref()?;
            let version = target.table(&core.storage.catalog).ok()?.version();
            let (which, mut key) = (target.which(&version.schema).ok()?, Key::new());
            if version.schema.key_shape(which).is_row_number() {
                return None;
            }
            target.key_prefix(given, &version.schema, which, &mut key).ok()?;
            Some((core.locks.executor_now(version.index_id(which), SpanRef::prefix(&key)), key))
        };
        let Some(actions) = self.procedure.flow().phases().first() else { return 0 };
        let first = match self.procedure.plans().plan(0) {
            Plan::Serial { first } => first.first().map(|&at| usize::from(at)),
            Plan::Parallel => None,
        };
        let actions = first.into_iter().chain(0..actions.len()).map(|at| &actions[at]);
        let named = |action: &&Action| !action.identifier().is_empty();
        let mut identified = actions.filter(named).filter(|it| it.is_part_of(&self.arguments, given.earlier));
        let Some((executor, key)) = identified.next().and_then(place) else { return 0 };
        let owner = queues.owner_of(executor, core).or_else(|| {
            let mut places = identified.filter_map(place);
            places.find_map(|(executor, _)| queues.owner_of(executor, core))
        });
        // Of calls that only read what is only read, each thread has as many.
        owner.unwrap_or_else(|| xxh3_64(&key) as usize % queues.len())
    }
}

/// Sends a call to the executors. What is wrong with it they will find.
///
/// # Errors
/// [`Error::Nested`](crate::Error::Nested) inside of a body: a caller who waits there may wait for himself.
/// [`Error::Closed`](crate::Error::Closed).
pub(crate) fn send(
    runtime: &Arc<Runtime>,
    queues: &Arc<Queues>,
    procedure: Arc<Registered>,
    options: TxOptions,
    arguments: Vec<Value>,
) -> Result<Sent> {
    let core = &runtime.core;
    drop(InBody::enter(core.storage.catalog.opening())?);
    let landing = Mutex::new(Landing::Flying(None));
    let call = Arc::new(Call { procedure, options, arguments, landing });
    // Conditions and identifiers are worked out by closures of the caller. One that panics does so again as the call runs, whose
    // outcome the panic is, as a body's is.
    let queue = catch(|| call.first_queue(core, queues)).unwrap_or(0);
    queues.admit()?;
    queues.put(runtime, queue, Task::Call(call.clone(), None));
    Ok(Sent::flying(core.storage.catalog.opening(), call))
}
