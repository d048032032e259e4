//! [`Envelope`]: a request on its way from a message server to an executor, and its response on the way back.

use std::sync::Arc;
use std::sync::mpsc::Sender;
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
use crate::log::{Listener, Listens, Log};
use crate::opening::Opening;
use crate::reply::{Failure, Outcome};
use crate::row::Value;
use crate::txn::Transaction;
use crate::txn::options::TxOptions;
use crate::txn::runs::Runs;

/// A request, and then the response to it. Its memory is used again.
///
/// It is not a call like those that callers send. A call is shared by its caller and its executors, so it is
/// reference-counted and allocated each time, and its caller sleeps for one completion. An envelope has one owner at
/// a time, and its message server sleeps for the first of many responses, or for room.
pub(in crate::engine) struct Envelope {
    /// The database of the procedure.
    pub(super) opening: Opening,
    pub(super) procedure: Prepared,
    pub(super) options: TxOptions,
    pub(super) arguments: Vec<Value>,
    pub(super) outputs: Outputs,
    pub(super) outcome: Result<()>,
    pub(super) tag: u64,
    /// The queue that the response goes to.
    pub(super) responses: Arc<Responses>,
    pub(super) put: Instant,
    pub(super) taken: Instant,
    /// The state of earlier runs.
    runs: Option<Box<Runs>>,
    /// The outcome that it will have, while it waits for the log.
    waiting: Option<(Outcome<()>, Arc<Unanswered>)>,
}

/// Held by everything that may still put responses on queues: a server's executors, and responses that wait for the
/// log.
pub(in crate::engine) struct Unanswered {
    pub(super) log: Arc<Log>,
    /// A server that closes sees when the last holder drops it.
    pub(super) _last: Sender<()>,
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
            runs: None,
            waiting: None,
        })
    }

    /// Runs the whole request on this thread, as the engine runs a flow in place.
    pub fn run(mut self: Box<Self>, here: &Here<'_>) {
        let mut runs = self.runs.take().map_or_else(Runs::to_reply, |runs| *runs);
        runs.come_to_thread(&here.core.clock);
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
        let mut outcome = match ended {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(backoff)) => {
                runs.leave_thread(&here.core.clock);
                self.runs = Some(Box::new(runs));
                return here.queues.restart(here.queue, Task::Request(self), backoff.unwrap_or_default());
            }
            // A bug of ours, outside of the body: what it had read is not known.
            Err(panic) => Outcome::failed(Failure::Panic(panic), Some(here.core.settle_all(&self.options))),
        };
        // The transaction holds nothing any more, so the payload of a panic is dropped now, which runs foreign code.
        // Its text may be derived from what the body read (I3).
        outcome.replace_panic(|panic| {
            let said = panic.text().unwrap_or_default();
            self.procedure.error(format!("its body panicked: {said}"))
        });
        let unanswered = here.unanswered.expect("its thread is a transaction server's");
        self.reply(outcome, unanswered);
    }

    /// Sends the response when the outcome of the request may be told. Until then it is a listener of the log.
    fn reply(mut self: Box<Self>, mut outcome: Outcome<()>, unanswered: &Arc<Unanswered>) {
        match outcome.await_log() {
            Some((lsn, durability)) if !outcome.is_done() => {
                self.waiting = Some((outcome, unanswered.clone()));
                unanswered.log.wake_when_done(lsn, durability, Listener::Boxed(self), true);
            }
            _ => self.complete(outcome, &unanswered.log),
        }
    }

    /// Puts the response on its queue.
    fn complete(mut self: Box<Self>, outcome: Outcome<()>, log: &Log) {
        let done = outcome.done().expect("the log has reached its place, or has stopped");
        self.outcome = outcome.tell(done);
        let responses = self.responses.clone();
        if let Err(unclaimed) = responses.put(self) {
            unclaimed.drop_elsewhere(log);
        }
    }

    /// Drops an envelope whose response no message server takes. The last holder of a procedure drops what its bodies
    /// have captured, which is foreign code. Therefore the thread that runs foreign wakers does it, and not one that
    /// writes the log, or an executor.
    #[cold]
    fn drop_elsewhere(self: Box<Self>, log: &Log) {
        struct UnclaimedEnvelope(#[expect(dead_code, reason = "it is dropped")] Mutex<Box<Envelope>>);
        impl Wake for UnclaimedEnvelope {
            fn wake(self: Arc<Self>) {}
        }
        let waker = Waker::from(Arc::new(UnclaimedEnvelope(Mutex::new(self))));
        let listener = Listener::foreign(&waker);
        drop(waker);
        log.wake(listener);
    }
}

impl Listens for Envelope {
    fn wake(mut self: Box<Self>) {
        let (outcome, unanswered) = self.waiting.take().expect("it waits for the log");
        self.complete(outcome, &unanswered.log);
    }
}
