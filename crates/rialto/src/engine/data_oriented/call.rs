//! [`Call`]: what a caller sends to the executors, and what he gets back.

use std::any::Any;
use std::panic::resume_unwind;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::flight::Task;
use super::queues::Queues;
use crate::core::Core;
use crate::database::InBody;
use crate::engine::procedure::Registered;
use crate::error::{Error, Result};
use crate::lock::SpanRef;
use crate::row::{Key, Value};
use crate::txn::{Ticket, TxOptions};

/// A call of a procedure.
pub(super) struct Call {
    pub procedure: Arc<Registered>,
    pub options: TxOptions,
    pub arguments: Vec<Value>,
    landed: Mutex<Option<Landed>>,
    bell: Condvar,
}

/// What became of it.
pub(super) enum Landed {
    /// It has its place; what it gave.
    Placed(Vec<Value>, Ticket),
    /// It has failed; done when what it read is durable (I3).
    Failed(Ticket, Error),
    NotBegun(Error),
    /// A body panicked.
    Panicked(Box<dyn Any + Send>),
}

impl Call {
    /// Tells the caller.
    pub fn land(&self, landed: Landed, queues: &Queues) {
        queues.release();
        *self.landed.lock() = Some(landed);
        self.bell.notify_one();
    }

    fn wait(&self) -> Landed {
        let mut landed = self.landed.lock();
        loop {
            if let Some(landed) = landed.take() {
                return landed;
            }
            self.bell.wait(&mut landed);
        }
    }

    /// The queue to begin at: that of the first action that names a key; the first queue if none does.
    fn first_queue(&self, core: &Core, queues: &Queues) -> usize {
        let first = || {
            let given = crate::engine::identifier::Given { arguments: &self.arguments, earlier: &[] };
            let mut actions = self.procedure.flow().phases().first()?.iter();
            let action = actions.find(|action| !action.identifier().is_empty())?;
            let target = action.target.as_ref()?;
            let version = target.table(&core.catalog).ok()?.version();
            let (which, mut key) = (target.which(&version.schema).ok()?, Key::new());
            if version.schema.key_shape(which).is_row_number() {
                return None;
            }
            target.key_prefix(given, &version.schema, which, &mut key).ok()?;
            Some(core.locks.executor_now(version.index_id(which), SpanRef::prefix(&key)))
        };
        first().map_or(0, |executor| queues.owner_of(executor))
    }
}

/// Sends a call to the executors, and waits until it has its place. What is wrong with it they will find.
pub(crate) fn send(
    core: &Arc<Core>,
    queues: &Arc<Queues>,
    procedure: Arc<Registered>,
    options: TxOptions,
    arguments: Vec<Value>,
) -> Result<(Vec<Value>, Ticket)> {
    // A caller who waits inside of a body may wait for himself.
    drop(InBody::enter()?);
    queues.admit()?;
    let (landed, bell) = (Mutex::new(None), Condvar::new());
    let call = Arc::new(Call { procedure, options, arguments, landed, bell });
    let queue = call.first_queue(core, queues);
    queues.put(core, queue, Task::Call(call.clone(), None));
    match call.wait() {
        Landed::Placed(values, ticket) => Ok((values, ticket)),
        Landed::Failed(settled, error) => {
            settled.wait()?;
            Err(error)
        }
        Landed::NotBegun(error) => Err(error),
        Landed::Panicked(panic) => resume_unwind(panic),
    }
}
