//! [`Forwarder`]: responses that wait for the log.
//!
//! Transactions have their places in the order in which they ran, so their responses wait in one line. The log is asked to
//! call when it has reached the first one's place; who calls (the log server, section 2.1: "the LS will then forward the
//! message to the MS") forwards all whose places it has reached, and asks to be called for the next. So an executor never
//! waits for the log, and a group commit costs one call.
//!
//! **F1** If responses wait, somebody is bound to forward them: a call that was asked for, or who is at it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::sync::{Condvar, Mutex};

/// The log, as responses wait for it.
pub(super) trait Places: Sized {
    /// How far it has to be.
    type Place: Copy;
    /// What waits.
    type Response;

    /// What a response waits for.
    fn place(response: &Self::Response) -> Self::Place;

    fn has_reached(&self, place: Self::Place) -> bool;

    /// Has [`Forwarder::forward`] called when it has reached the place; false if it has, and nobody will call.
    fn call(&self, place: Self::Place, forwarder: &Arc<Forwarder<Self>>) -> bool;

    /// Sends a response that need not wait any longer.
    fn send(&self, response: Self::Response);
}

struct Line<R> {
    responses: VecDeque<R>,
    /// Somebody is bound to forward (F1).
    is_served: bool,
}

/// See the module.
pub(super) struct Forwarder<P: Places> {
    places: P,
    line: Mutex<Line<P::Response>>,
    /// For who waits until nothing waits.
    empty: Condvar,
    /// Those on their way from the line to their queues; its memory is used again.
    leaving: Mutex<VecDeque<P::Response>>,
}

impl<P: Places> Forwarder<P> {
    pub fn new(places: P) -> Arc<Forwarder<P>> {
        let line = Line { responses: VecDeque::new(), is_served: false };
        let (line, leaving) = (Mutex::new(line), Mutex::new(VecDeque::new()));
        Arc::new(Forwarder { places, line, empty: Condvar::default(), leaving })
    }

    /// Adds a response to the line.
    pub fn wait_for_log(self: &Arc<Self>, response: P::Response) {
        let mut line = self.line.lock();
        line.responses.push_back(response);
        if !std::mem::replace(&mut line.is_served, true) {
            drop(line);
            self.forward();
        }
    }

    /// Forwards what need not wait any longer. For who is bound to.
    pub fn forward(self: &Arc<Self>) {
        loop {
            let first = {
                let mut leaving = self.leaving.lock();
                let mut line = self.line.lock();
                debug_assert!(line.is_served, "F1");
                while let Some(first) = line.responses.front()
                    && self.places.has_reached(P::place(first))
                {
                    leaving.extend(line.responses.pop_front());
                }
                drop(line);
                leaving.drain(..).for_each(|response| self.places.send(response));
                let mut line = self.line.lock();
                let Some(first) = line.responses.front().map(P::place) else {
                    line.is_served = false;
                    self.empty.notify_all();
                    return;
                };
                first
            };
            if self.places.call(first, self) {
                return;
            }
        }
    }

    /// Whether something waits for the log.
    pub fn has_responses(&self) -> bool {
        self.line.lock().is_served
    }

    /// Waits until nothing waits for the log.
    pub fn wait_until_empty(&self) {
        let mut line = self.line.lock();
        while line.is_served {
            line = self.empty.wait(line, None);
        }
    }
}
