//! [`Envelope`]: what goes from a message server to an executor and back.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Instant;

use parking_lot::Mutex;

use super::response_queue::ResponseQueue;
use super::server::ServedProcedure;
use crate::engine::data_oriented::{Here, Task};
use crate::engine::prepared::Prepared;
use crate::engine::procedure::Outputs;
use crate::engine::run::run_once;
use crate::error::Result;
use crate::foreign::catch;
use crate::log::{Listener, Log};
use crate::opening::Opening;
use crate::reply::{Failure, Outcome};
use crate::row::Value;
use crate::txn::Transaction;
use crate::txn::options::TxOptions;
use crate::txn::runs::Runs;

/// A request, and then the response to it. It is used again, with its memory.
pub(in crate::engine) struct Envelope {
    /// Of which database the procedure is.
    pub(super) opening: Opening,
    pub(super) procedure: Prepared,
    pub(super) options: TxOptions,
    pub(super) arguments: Vec<Value>,
    pub(super) outputs: Outputs,
    pub(super) outcome: Result<()>,
    pub(super) tag: u64,
    /// The response queue that it goes to.
    pub(super) responses: Arc<Responses>,
    pub(super) put: Instant,
    pub(super) taken: Instant,
}

/// The response queue of a message server.
pub(in crate::engine) type Responses = ResponseQueue<Box<Envelope>>;

impl Envelope {
    pub(super) fn new(to: &ServedProcedure, responses: &Arc<Responses>) -> Box<Envelope> {
        let now = Instant::now();
        Box::new(Envelope {
            opening: to.opening,
            procedure: to.procedure.clone(),
            options: to.options.clone(),
            arguments: Vec::new(),
            outputs: Outputs::none(),
            outcome: Ok(()),
            tag: 0,
            responses: responses.clone(),
            put: now,
            taken: now,
        })
    }

    /// Runs the request on this thread, all of it, as the engine runs a flow in place; what came of earlier runs of it is in `runs`.
    pub fn run(mut self: Box<Self>, runs: Option<Runs>, here: &Here<'_>) {
        // What its thread waits for is counted by thread.
        let mut runs = runs.map_or_else(Runs::new, Runs::on_this_thread);
        self.procedure.follow(&here.core.storage.catalog);
        let Envelope { procedure, options, arguments, outputs, .. } = &mut *self;
        let ended = catch(|| {
            let mut body = |transaction: &mut Transaction| procedure.run(transaction, arguments, outputs);
            loop {
                match run_once(here.core, options, &mut runs, &mut body).outcome(here.core) {
                    Err(None) => {}
                    ended => return ended,
                }
            }
        });
        let outcome = match ended {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(rest)) => {
                let again = Task::Request(self, Some(runs));
                return here.queues.restart(here.queue, again, rest.unwrap_or_default());
            }
            // A bug of ours, outside of the body; what it had read is not known.
            Err(panic) => Outcome::failed(Failure::Panic(panic), Some(here.core.settle_all(&self.options))),
        };
        // The transaction holds nothing any more: what a panic carries is dropped now, which runs foreign code. Its text may be
        // what the body read (I3).
        let outcome = outcome.without_panic(|panic| {
            let said = panic.text().unwrap_or_default();
            self.procedure.error(format!("its body panicked: {said}"))
        });
        here.queues.forwarders().complete(outcome, self);
    }

    /// Puts the response on its queue.
    pub(super) fn complete(mut self: Box<Self>, outcome: Result<()>, log: &Log) {
        self.outcome = outcome;
        let responses = self.responses.clone();
        if let Err(unclaimed) = responses.put(self) {
            unclaimed.drop_elsewhere(log);
        }
    }

    /// No message server takes the response. The last to have a procedure drops what its bodies have captured, which is foreign
    /// code: the thread that does so is the one that runs foreign wakers, and not one that writes the log, or an executor.
    #[cold]
    fn drop_elsewhere(self: Box<Self>, log: &Log) {
        struct Unclaimed(#[expect(dead_code, reason = "it is dropped")] Mutex<Box<Envelope>>);
        impl Wake for Unclaimed {
            fn wake(self: Arc<Self>) {}
        }
        let waker = Waker::from(Arc::new(Unclaimed(Mutex::new(self))));
        let listener = Listener::foreign(&waker);
        drop(waker);
        log.wake(listener);
    }
}
