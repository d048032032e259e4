//! [`Sent`]: a call that was sent and may still be running.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::bell::Bell;
use super::completion::{Completes, Until};
use super::outcome::Outcome;
use super::ticket::Ticket;
use crate::error::Result;
use crate::inside::InBody;
use crate::log::Listener;
use crate::opening::Opening;
use crate::row::Value;

/// How often a thread checks for an outcome before it sleeps.
const YIELDS: usize = 20;

/// A call of a procedure that was sent ([`Database::send_call`](crate::Database::send_call)): first the call gets its
/// place in the log, and then its outcome becomes durable.
///
/// Dropping it cancels nothing: the call runs to its end, and what it wrote is kept; only its outcome is not reported.
/// A panic of a body is resumed in the thread that asks for the outcome, when what the call read is durable; if it
/// never will be, the error of the log is the outcome. It is also a `Future`, of what [`Sent::wait`] returns. It wakes
/// the task that polled it once, when the whole outcome is there.
#[must_use = "a call's outcome is known only to a caller that asks for it"]
pub struct Sent {
    database: Opening,
    way: SentState,
}

/// How far the call has come, as its caller knows.
enum SentState {
    /// It may still be with the executors.
    Running(Arc<dyn Completes>),
    Completed(Outcome<Vec<Value>>),
    /// The future has returned its outcome.
    Told,
}

impl Sent {
    pub(crate) fn running(database: Opening, call: Arc<dyn Completes>) -> Sent {
        Sent { database, way: SentState::Running(call) }
    }

    pub(crate) fn completed(database: Opening, outcome: Outcome<Vec<Value>>) -> Sent {
        Sent { database, way: SentState::Completed(outcome) }
    }

    /// Whether [`Sent::wait`] would return at once.
    pub fn is_done(&mut self) -> bool {
        self.look();
        match &self.way {
            SentState::Running(_) => false,
            SentState::Completed(outcome) => outcome.is_done(),
            SentState::Told => true,
        }
    }

    /// Yields the processor to the threads that run the call for a moment, before this thread sleeps and has to be
    /// woken.
    fn spin_a_while(&mut self) {
        for _ in 0..YIELDS {
            self.look();
            match self.way {
                SentState::Running(_) => std::thread::yield_now(),
                SentState::Completed(_) | SentState::Told => return,
            }
        }
    }

    /// Takes the outcome, if there is one.
    fn look(&mut self) {
        if let SentState::Running(call) = &self.way
            && let Some(outcome) = call.completion().take()
        {
            self.way = SentState::Completed(outcome);
        }
    }

    /// Waits until the outcome is durable, and returns what the call returned. The thread is woken at most once.
    ///
    /// # Blocking
    /// The call blocks the thread until the outcome is durable. An async task awaits it instead: polling does not
    /// block.
    ///
    /// # Errors
    /// As [`Database::call`](crate::Database::call): an error of its bodies, an error that keeps it from its place,
    /// [`Error::OutcomeUnknown`](crate::Error::OutcomeUnknown). [`Error::Nested`](crate::Error::Nested) inside of a
    /// body, which may hold what the call waits for.
    pub fn wait(mut self) -> Result<Vec<Value>> {
        drop(InBody::enter(self.database)?);
        self.spin_a_while();
        match self.way {
            SentState::Running(_) => Bell::block_on(|waker| self.poll_by(|| Listener::own(waker))),
            SentState::Completed(_) | SentState::Told => self.take().wait(),
        }
    }

    /// Waits until the call has its place, and returns what it returned; the ticket says when that is durable.
    ///
    /// # Errors
    /// As [`Sent::wait`], except for later failures of the log. A failure is returned when what the call read is
    /// durable.
    pub fn wait_for_place(mut self) -> Result<(Vec<Value>, Ticket)> {
        drop(InBody::enter(self.database)?);
        self.spin_a_while();
        if let SentState::Running(call) = &self.way {
            let ask = |waker: &_| match call.completion().take_or_wake(|| Listener::own(waker), Until::Placed)
            {
                Some(outcome) => Poll::Ready(outcome),
                None => Poll::Pending,
            };
            self.way = SentState::Completed(Bell::block_on(ask));
        }
        self.take().wait_for_place()
    }

    /// The call's outcome, which is returned once.
    fn take(&mut self) -> Outcome<Vec<Value>> {
        match std::mem::replace(&mut self.way, SentState::Told) {
            SentState::Completed(outcome) => outcome,
            _ => panic!("a call that was sent was asked for its outcome again after it had given it"),
        }
    }

    /// The outcome, if it is there; if it is not, the listener is woken when it is.
    fn poll_by(&mut self, listener: impl Fn() -> Listener) -> Poll<Result<Vec<Value>>> {
        if let SentState::Running(call) = &self.way {
            match call.completion().take_or_wake(&listener, Until::Durable) {
                Some(outcome) => self.way = SentState::Completed(outcome),
                None => return Poll::Pending,
            }
        }
        let durable = match &mut self.way {
            SentState::Completed(outcome) => outcome.poll_by(listener),
            _ => Poll::Ready(Ok(())),
        };
        durable.map(|durable| self.take().tell(durable))
    }
}

impl Future for Sent {
    type Output = Result<Vec<Value>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Vec<Value>>> {
        self.get_mut().poll_by(|| Listener::foreign(context.waker()))
    }
}

impl std::fmt::Debug for Sent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.way {
            SentState::Running(_) => "Sent(on its way)",
            SentState::Completed(outcome) if outcome.is_placed() => "Sent(placed)",
            SentState::Completed(_) => "Sent(failed)",
            SentState::Told => "Sent(told)",
        })
    }
}
