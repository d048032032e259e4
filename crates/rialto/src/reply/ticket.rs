//! [`Ticket`]: the promise that an outcome will be durable.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::account::{Accounts, ProcedureId};
use crate::error::Result;
use crate::fault_injection;
use crate::ids::Lsn;
use crate::io::Moment;
use crate::log::{Durability, Listener, Log, Patience, RegisteredListener};

/// A shared handle to a database's log and accounts. Each context has one with a reference count of its own, so that
/// tickets of different threads do not share a count.
#[derive(Clone)]
pub(crate) struct LogLease(Arc<Leased>);

struct Leased {
    log: Arc<Log>,
    accounts: Arc<Accounts>,
}

impl LogLease {
    pub fn new(log: &Arc<Log>, accounts: &Arc<Accounts>) -> LogLease {
        LogLease(Arc::new(Leased { log: log.clone(), accounts: accounts.clone() }))
    }

    pub fn log(&self) -> &Log {
        &self.0.log
    }
}

/// A transaction's outcome that is not yet durable: it is done when the log is durable up to its place, at its level.
///
/// Dropping a ticket cancels nothing. A ticket is also a `Future`. As long as no thread waits for it, by
/// [`Ticket::wait`] or by polling the future, the log may delay its write
/// ([`GroupCommitOptions::linger`](crate::GroupCommitOptions)), so that many commits are written in one group.
#[must_use = "a transaction's outcome is known only when its ticket is done"]
pub struct Ticket {
    lease: LogLease,
    lsn: Lsn,
    durability: Durability,
    patience: Patience,
    account: Option<TicketAccount>,
    /// Whether a caller was told to wait.
    waited: bool,
    /// The one listener that the log has for it, once it was polled.
    registered: Option<RegisteredListener>,
}

/// What a ticket's transaction has in its time account so far; the end of the wait is missing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TicketAccount {
    pub procedure: ProcedureId,
    /// When the transaction had its place.
    pub placed: Moment,
    /// How long the transaction had taken until then.
    pub before_ns: u64,
}

impl Ticket {
    pub(crate) fn new(lease: LogLease, lsn: Lsn, durability: Durability, patience: Patience) -> Ticket {
        Ticket { lease, lsn, durability, patience, account: None, waited: false, registered: None }
    }

    pub(crate) fn with_account(mut self, account: TicketAccount) -> Ticket {
        self.account = Some(account);
        self
    }

    /// How durable the log has to be.
    pub(crate) fn durability(&self) -> Durability {
        self.durability
    }

    /// Notes that a caller waits for it.
    pub(crate) fn note_waiter(&mut self) {
        self.waited = true;
    }

    /// It is done: if a caller was told to wait, that wait has ended.
    pub(crate) fn end_wait(&mut self) {
        if self.waited {
            self.account_wait();
        }
    }

    /// A caller has waited, until now: accounts that.
    fn account_wait(&mut self) {
        if let Some(TicketAccount { procedure, placed, before_ns }) = self.account.take() {
            let waited_ns = self.lease.log().clock().now().ns_since(placed);
            self.lease.0.accounts.ticket_waited(procedure, waited_ns, before_ns);
        }
    }

    /// The outcome, if it is there; if not, the listener is woken when it is.
    pub(crate) fn poll_by(&mut self, listener: impl FnOnce() -> Listener) -> Poll<Result<()>> {
        match self.lease.log().register(self.lsn, self.durability, listener, &mut self.registered, false) {
            Some(outcome) => {
                self.end_wait();
                Poll::Ready(outcome)
            }
            None => {
                self.waited = true;
                Poll::Pending
            }
        }
    }

    /// The place that the log has to be durable up to: the transaction's own, or the newest that it read.
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Waits until it is done.
    ///
    /// # Blocking
    /// The call blocks the thread until the log is durable up to the ticket's place. An async task awaits the ticket
    /// instead: polling does not block.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`](crate::Error::OutcomeUnknown) if the log fails first.
    pub fn wait(mut self) -> Result<()> {
        if let Some(done) = self.lease.log().is_done(self.lsn, self.durability) {
            return done;
        }
        let outcome = self.lease.log().wait(self.lsn, self.durability, &self.patience);
        self.account_wait();
        outcome
    }

    /// The outcome, if it is done. Asking does not hurry the log.
    pub fn poll_done(&self) -> Option<Result<()>> {
        if fault_injection::is_on("ticket-done-at-its-place") {
            return Some(Ok(()));
        }
        self.lease.log().is_done(self.lsn, self.durability)
    }
}

impl Future for Ticket {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.get_mut().poll_by(|| Listener::foreign(context.waker()))
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ticket({}, {:?})", self.lsn, self.durability)
    }
}
