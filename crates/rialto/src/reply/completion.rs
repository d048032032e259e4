//! [`Completion`]: where a caller finds the outcome of a call that other threads run.

use parking_lot::Mutex;

use super::outcome::Outcome;
use crate::log::{Listener, Log};
use crate::row::Value;

/// The event that a caller waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// The call has its place, or has failed.
    Placed,
    /// Its outcome may be returned.
    Durable,
}

/// A call that was sent and has a completion.
pub(crate) trait Completes: Send + Sync {
    fn completion(&self) -> &Completion;
}

/// See the [module](self). One caller asks it, until it has the outcome.
pub(crate) struct Completion(Mutex<CompletionState>);

enum CompletionState {
    /// The call is running; holds the listener to wake, if the caller waits.
    Running(Option<(Listener, Until)>),
    Completed(Outcome<Vec<Value>>),
    /// The caller has the outcome.
    Told,
}

impl Completion {
    /// For a call that is running.
    pub fn new() -> Completion {
        Completion(Mutex::new(CompletionState::Running(None)))
    }

    /// The call has its outcome. A caller that waits for its place is woken now. One that waits until it is durable
    /// sleeps on until the log wakes it, unless there is nothing to wait for.
    pub fn complete(&self, outcome: Outcome<Vec<Value>>, log: &Log) {
        let mut state = self.0.lock();
        let CompletionState::Running(waiter) =
            std::mem::replace(&mut *state, CompletionState::Completed(outcome))
        else {
            unreachable!("a call completes once")
        };
        let Some((listener, until)) = waiter else { return };
        let place = match (&mut *state, until) {
            (CompletionState::Completed(outcome), Until::Durable) => outcome.await_log(),
            _ => None,
        };
        drop(state);
        match place {
            Some((lsn, durability)) => log.wake_when_done(lsn, durability, listener, false),
            None => log.wake(listener),
        }
    }

    /// Whether the call has no outcome yet.
    pub fn is_on_its_way(&self) -> bool {
        matches!(&*self.0.lock(), CompletionState::Running(_))
    }

    /// Takes the outcome, if there is one; it can be taken once.
    pub fn take(&self) -> Option<Outcome<Vec<Value>>> {
        self.0.lock().take()
    }

    /// As [`Completion::take`]; if there is no outcome yet, the listener is woken when there is one, in place of an
    /// earlier listener.
    pub fn take_or_wake(
        &self,
        listener: impl FnOnce() -> Listener,
        until: Until,
    ) -> Option<Outcome<Vec<Value>>> {
        if let Some(outcome) = self.take() {
            return Some(outcome);
        }
        // Wakers are foreign code, also when they are cloned and dropped: no latch is held around them.
        let listener = listener();
        let mut state = self.0.lock();
        let outcome = state.take();
        let unused = match outcome {
            Some(_) => CompletionState::Running(Some((listener, until))),
            None => std::mem::replace(&mut *state, CompletionState::Running(Some((listener, until)))),
        };
        drop(state);
        drop(unused);
        outcome
    }
}

impl CompletionState {
    fn take(&mut self) -> Option<Outcome<Vec<Value>>> {
        match self {
            CompletionState::Running(_) => None,
            _ => match std::mem::replace(self, CompletionState::Told) {
                CompletionState::Completed(outcome) => Some(outcome),
                _ => unreachable!("the one caller asks until it has the outcome"),
            },
        }
    }
}
