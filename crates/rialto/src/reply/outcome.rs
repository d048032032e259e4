//! [`Outcome`]: the outcome of a transaction, and when it may be returned.

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
    /// Reports the failure: returns the error, or resumes the panic.
    pub fn tell<T>(self) -> Result<T> {
        match self {
            Failure::Error(error) => Err(error),
            Failure::Panic(panic) => panic.resume(),
        }
    }
}

/// The outcome of a transaction. It may be returned when the log is durable up to a place: the transaction's own, or
/// that of everything that it has read (I3), which a failure may reveal. If the log never gets there, the log's error
/// is returned instead.
pub(crate) struct Outcome<T> {
    what: Result<T, Failure>,
    /// `None` for a transaction that failed before it had read anything, or that was as durable as it asked as soon as
    /// it had its place.
    ticket: Option<Ticket>,
}

impl<T> Outcome<T> {
    /// For a transaction that has its place; without a ticket if it is already as durable as it asked.
    pub fn placed(value: T, ticket: Option<Ticket>) -> Outcome<T> {
        Outcome { what: Ok(value), ticket }
    }

    /// For a transaction that has failed; `settled` covers what it read.
    pub fn failed(failure: Failure, settled: Option<Ticket>) -> Outcome<T> {
        Outcome { what: Err(failure), ticket: settled }
    }

    /// Replaces a panic, which is dropped here, by an error.
    pub fn replace_panic(&mut self, error: impl FnOnce(&Panic) -> Error) {
        if let Err(Failure::Panic(panic)) = &self.what {
            self.what = Err(Failure::Error(error(panic)));
        }
    }

    /// The log's result, if the outcome may be returned.
    pub fn done(&self) -> Option<Result<()>> {
        self.ticket.as_ref().map_or(Some(Ok(())), Ticket::poll_done)
    }

    /// Whether the outcome may be returned.
    pub fn is_done(&self) -> bool {
        self.done().is_some()
    }

    /// Notes that a caller waits until it may be returned. Returns the place that the log has to be durable up to, if
    /// any.
    pub fn await_log(&mut self) -> Option<(Lsn, Durability)> {
        let ticket = self.ticket.as_mut()?;
        ticket.note_waiter();
        Some((ticket.lsn(), ticket.durability()))
    }

    /// Waits until the outcome may be returned, and returns it.
    pub fn wait(self) -> Result<T> {
        let Outcome { what, ticket } = self;
        ticket.map_or(Ok(()), Ticket::wait)?;
        what.or_else(Failure::tell)
    }

    /// The value of a transaction that has its place, before it is durable. A failure is returned as in
    /// [`Outcome::wait`].
    pub fn wait_for_place(self) -> Result<(T, Ticket)> {
        match self {
            Outcome { what: Ok(value), ticket: Some(ticket) } => Ok((value, ticket)),
            failed => match failed.wait() {
                Ok(_) => unreachable!("what has its place has a ticket"),
                Err(error) => Err(error),
            },
        }
    }

    /// Whether the outcome may be returned; if not, the listener is woken when it may.
    pub fn poll_by(&mut self, listener: impl FnOnce() -> Listener) -> Poll<Result<()>> {
        self.ticket.as_mut().map_or(Poll::Ready(Ok(())), |ticket| ticket.poll_by(listener))
    }

    /// Returns the outcome, given the log's result, after a wait for that has ended.
    pub fn tell(mut self, durable: Result<()>) -> Result<T> {
        self.ticket.iter_mut().for_each(Ticket::end_wait);
        durable.and_then(|()| self.what.or_else(Failure::tell))
    }

    /// Whether the transaction has its place.
    pub fn is_placed(&self) -> bool {
        self.what.is_ok()
    }
}
