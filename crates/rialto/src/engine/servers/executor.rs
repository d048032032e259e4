//! An executor's life: take a request, run it to its place, go on to the next.

use std::sync::Arc;
use std::task::{Wake, Waker};

use parking_lot::Mutex;

use super::dispatch::Dispatch;
use super::forwarder::{Forwarder, Places};
use super::mailbox::Mailbox;
use super::request::Letter;
use crate::account::processor;
use crate::account::wait_guard::{Turns, take_turns};
use crate::engine::Runtime;
use crate::engine::run::run_once;
use crate::error::Error;
use crate::foreign::catch;
use crate::ids::Lsn;
use crate::inside::InBody;
use crate::log::{Durability, Listener, Log};
use crate::reply::{Failure, Ticket};
use crate::txn::Transaction;
use crate::txn::core::Core;
use crate::txn::runs::{Run, Runs};

/// After so many requests without a sleep an executor counts its processor time.
const REQUESTS_A_LAP: u32 = 64;

/// A request, and what came of earlier runs of it.
pub(super) struct Job {
    pub letter: Box<Letter>,
    pub runs: Option<Runs>,
}

/// A response that waits for the log.
pub(super) struct Reply {
    ticket: Ticket,
    letter: Box<Letter>,
    /// Whether the transaction committed: its wait is part of its account then.
    is_counted: bool,
}

/// The log, as far as responses wait for it.
pub(super) struct LogPlaces(Arc<Log>);

impl Places for LogPlaces {
    type Place = (Lsn, Durability);
    type Response = Reply;

    fn place(reply: &Reply) -> (Lsn, Durability) {
        (reply.ticket.lsn(), reply.ticket.durability())
    }

    fn has_reached(&self, (lsn, durability): (Lsn, Durability)) -> bool {
        self.0.is_done(lsn, durability).is_some()
    }

    fn call(&self, (lsn, durability): (Lsn, Durability), forwarder: &Arc<Forwarder<Self>>) -> bool {
        // While there are requests to run; then the log is hurried.
        let listener = || Listener::own(&forwarder.clone().into());
        self.0.register_patient(lsn, durability, listener).is_none()
    }

    fn send(&self, reply: Reply) {
        let Reply { mut ticket, letter, is_counted } = reply;
        let outcome = ticket.poll_done().expect("the log has reached its place, or has stopped");
        if is_counted {
            ticket.account_wait();
        }
        answer(&self.0, letter, outcome.err());
    }
}

impl Wake for Forwarder<LogPlaces> {
    fn wake(self: Arc<Self>) {
        self.forward();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.forward();
    }
}

/// Puts a response on the queue of who asked. An error of the log's goes before the transaction's own.
fn answer(log: &Log, mut letter: Box<Letter>, error: Option<Error>) {
    if let Some(error) = error {
        letter.outcome = Err(error);
    }
    let sender = letter.sender.clone();
    if let Err(letter) = sender.put(letter) {
        drop_elsewhere(log, letter);
    }
}

/// No message server takes the response. The last to have a procedure drops what its bodies have captured, which is foreign code: the thread
/// that does so is the one that runs foreign wakers, and not one that writes the log, or an executor.
#[cold]
fn drop_elsewhere(log: &Log, letter: Box<Letter>) {
    struct Unclaimed(#[expect(dead_code, reason = "it is dropped")] Mutex<Box<Letter>>);
    impl Wake for Unclaimed {
        fn wake(self: Arc<Self>) {}
    }
    let waker = Waker::from(Arc::new(Unclaimed(Mutex::new(letter))));
    let listener = Listener::foreign(&waker);
    drop(waker);
    log.wake(listener);
}

/// What a transaction server's executors share.
pub(super) struct Shared {
    pub core: Arc<Core>,
    pub runtime: Arc<Runtime>,
    pub dispatch: Dispatch<Job, Mailbox<Box<Letter>>>,
    /// Responses that wait for the log in memory, and on disk.
    forwarders: [Arc<Forwarder<LogPlaces>>; 2],
}

impl Shared {
    pub fn new(runtime: &Arc<Runtime>, queue: usize, executors: usize) -> Shared {
        let core = &runtime.core;
        let forwarders = [(); 2].map(|()| Forwarder::new(LogPlaces(core.commits.log.clone())));
        Shared {
            core: core.clone(),
            runtime: runtime.clone(),
            dispatch: Dispatch::new(queue, executors),
            forwarders,
        }
    }

    /// There is nothing to run for now: responses that wait for the disk need not wait for others.
    fn hurry_log(&self) {
        if self.forwarders[1].has_responses() {
            self.core.commits.log.hurry();
        }
    }

    /// Waits until no response waits for the log.
    pub fn wait_until_answered(&self) {
        self.hurry_log();
        self.forwarders.iter().for_each(|forwarder| forwarder.wait_until_empty());
    }

    /// Sends the response when its ticket is done.
    fn answer_when_durable(&self, ticket: Ticket, letter: Box<Letter>, is_counted: bool) {
        if let Some(outcome) = ticket.poll_done() {
            return answer(&self.core.commits.log, letter, outcome.err());
        }
        let forwarder = match ticket.durability() {
            Durability::Memory => &self.forwarders[0],
            Durability::Disk => &self.forwarders[1],
        };
        forwarder.wait_for_log(Reply { ticket, letter, is_counted });
    }
}

/// One executor.
pub(super) struct Executor {
    pub shared: Arc<Shared>,
    pub me: usize,
}

impl Turns for Executor {
    fn leave(&self) {
        // Who blocks may be the last who runs.
        self.shared.hurry_log();
        self.shared.runtime.server_times.transaction.lap();
        let _ = self.shared.dispatch.leave(self.me);
    }

    fn come_back(&self) {
        self.shared.dispatch.come_back(self.me);
    }
}

impl Executor {
    /// Runs requests until the server is closed and all are run.
    pub fn serve(self) {
        let executor = Arc::new(self);
        let (shared, me) = (executor.shared.clone(), executor.me);
        let _takes_turns = take_turns(executor.clone());
        // Its procedures are bodies: what they call must not begin transactions of its own.
        let Ok(_in_body) = InBody::enter(shared.core.storage.catalog.opening()) else {
            unreachable!("the thread is new")
        };
        processor::begin();
        let lap = || shared.runtime.server_times.transaction.lap();
        let mut requests = 0;
        let nap = || {
            shared.hurry_log();
            lap();
        };
        while let Some(job) = shared.dispatch.next(me, nap) {
            requests += 1;
            if requests % REQUESTS_A_LAP == 0 {
                lap();
            }
            executor.run(job);
        }
        lap();
    }

    fn run(&self, job: Job) {
        let Job { mut letter, runs } = job;
        // What its thread waits for is counted by thread.
        let mut runs = runs.map_or_else(Runs::new, Runs::on_this_thread);
        letter.procedure.follow(&self.shared.core.storage.catalog);
        let Letter { procedure, options, arguments, outputs, .. } = &mut *letter;
        let ended = catch(|| {
            loop {
                let mut body = |transaction: &mut Transaction| procedure.run(transaction, arguments, outputs);
                match run_once(&self.shared.core, options, &mut runs, &mut body) {
                    Run::Again(None) => {}
                    ended => return ended,
                }
            }
        });
        match ended {
            Ok(Run::Placed((), committed)) => {
                letter.outcome = Ok(());
                match committed.finish_or_ticket() {
                    Ok(()) => answer(&self.shared.core.commits.log, letter, None),
                    Err(ticket) => self.shared.answer_when_durable(ticket, letter, true),
                }
            }
            Ok(Run::Again(rest)) => {
                self.shared.dispatch.restart(Job { letter, runs: Some(runs) }, rest.unwrap_or_default());
            }
            Ok(Run::Failed(transaction, failure)) => {
                let settled = transaction.map(|mut transaction| transaction.settled());
                // It holds nothing any more: what a panic carries is dropped now, which runs foreign code.
                letter.outcome = Err(told(&letter, failure));
                match settled {
                    None => answer(&self.shared.core.commits.log, letter, None),
                    Some(settled) => self.shared.answer_when_durable(settled, letter, false),
                }
            }
            // A bug of ours, outside of the body; what it had read is not known.
            Err(panic) => {
                letter.outcome = Err(told(&letter, Failure::Panic(panic)));
                let settled = self.shared.core.settle_all(&letter.options);
                self.shared.answer_when_durable(settled, letter, false);
            }
        }
    }
}

/// The error that a message server is given for a failure. The text of a panic may be what the body read (I3).
fn told(letter: &Letter, failure: Failure) -> Error {
    match failure {
        Failure::Error(error) => error,
        Failure::Panic(panic) => {
            let said = panic.text().unwrap_or_default();
            letter.procedure.error(format!("its body panicked: {said}"))
        }
    }
}
