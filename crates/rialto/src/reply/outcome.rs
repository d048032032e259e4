//! [`Outcome`]: what became of a transaction, and when that may be told.

use std::task::Poll;

use super::ticket::Ticket;
use crate::error::{Error, Result};
use crate::foreign::Panic;
use crate::ids::Lsn;
use crate::log::{Durability, Listener};

/// How a transaction failed.
pub(crate) enum Failure {
    Error(Error),
    /// One of its bodies panicked.
    Panic(Panic),
}

impl Failure {
    /// Tells it: gives the error, or goes on with the panic.
    pub fn tell<T>(self) -> Result<T> {
        match self {
            Failure::Error(error) => Err(error),
            Failure::Panic(panic) => panic.resume(),
        }
    }
}

/// What became of a transaction, to be told when the log is durable up to a place: its own, or that of all that it has read (I3), which
/// a failure may tell of. If the log never gets there, its error is what is told.
pub(crate) struct Outcome<T> {
    what: Result<T, Failure>,
    /// None of a transaction that failed before it had read anything, or was as durable as it asked as soon as it had its place.
    ticket: Option<Ticket>,
}

impl<T> Outcome<T> {
    /// Of a transaction that has its place, and no ticket if it is as durable as it asked.
    pub fn placed(value: T, ticket: Option<Ticket>) -> Outcome<T> {
        Outcome { what: Ok(value), ticket }
    }

    /// Of one that has failed; `settled` is for what it read.
    pub fn failed(failure: Failure, settled: Option<Ticket>) -> Outcome<T> {
        Outcome { what: Err(failure), ticket: settled }
    }

    /// Puts an error in the place of a panic, which is dropped here.
    pub fn replace_panic(&mut self, error: impl FnOnce(&Panic) -> Error) {
        if let Err(Failure::Panic(panic)) = &self.what {
            self.what = Err(Failure::Error(error(panic)));
        }
    }

    /// What the log has come to, if the outcome may be told.
    pub fn done(&self) -> Option<Result<()>> {
        self.ticket.as_ref().map_or(Some(Ok(())), Ticket::poll_done)
    }

    /// Whether it may be told.
    pub fn is_done(&self) -> bool {
        self.done().is_some()
    }

    /// A caller waits until it may be told: the place that the log has to be durable up to for that, if any.
    pub fn await_log(&mut self) -> Option<(Lsn, Durability)> {
        let ticket = self.ticket.as_mut()?;
        ticket.note_waiter();
        Some((ticket.lsn(), ticket.durability()))
    }

    /// Waits until it may be told, and tells it.
    pub fn wait(self) -> Result<T> {
        let Outcome { what, ticket } = self;
        ticket.map_or(Ok(()), Ticket::wait)?;
        what.or_else(Failure::tell)
    }

    /// The value of a transaction that has its place, before it is durable. A failure is told as ever.
    pub fn wait_for_place(self) -> Result<(T, Ticket)> {
        match self {
            Outcome { what: Ok(value), ticket: Some(ticket) } => Ok((value, ticket)),
            failed => match failed.wait() {
                Ok(_) => unreachable!("what has its place has a ticket"),
                Err(error) => Err(error),
            },
        }
    }

    /// Whether it may be told; if not, the listener is woken when it may.
    pub fn poll_by(&mut self, listener: impl FnOnce() -> Listener) -> Poll<Result<()>> {
        self.ticket.as_mut().map_or(Poll::Ready(Ok(())), |ticket| ticket.poll_by(listener))
    }

    /// Tells it, if the log has come so far; a wait for that has ended.
    pub fn tell(mut self, durable: Result<()>) -> Result<T> {
        self.ticket.iter_mut().for_each(Ticket::end_wait);
        durable.and_then(|()| self.what.or_else(Failure::tell))
    }

    /// Whether the transaction has its place.
    pub fn is_placed(&self) -> bool {
        self.what.is_ok()
    }
}
