//! [`Visit`]: a caller runs its call itself, in place of a thread that owns executors and is idle.
//!
//! Handing a call over costs two thread switches, which is more than a short call takes. A caller that waits for its
//! call anyway runs it in place, as on an engine without threads, if the queue of the call's first executor is empty
//! and none of the queue's threads runs. Meanwhile the caller has the queue's *turn*: requests that arrive are put on
//! the queue, and no thread of the queue runs. So one thread at a time uses the queue's executors.
//!
//! A visitor that has to wait gives its turn up for good, and goes on without it when the wait is over. This is
//! correct, because which thread runs an action only affects speed: the action's locks are at the executors that the
//! routing rules name.

use std::cell::Cell;
use std::sync::{Arc, Weak};

use super::queues::Queues;
use crate::account::wait_guard::{TakesTurns, Turns, can_take_turns, take_turns};

thread_local! {
    /// The slot of the calling thread's visit, until it gives its turn up.
    static SLOT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// What all visits of one queue share.
pub(super) struct Visitor {
    queues: Weak<Queues>,
    queue: usize,
}

impl Visitor {
    /// One for each queue.
    pub fn of_all(queues: &Arc<Queues>) -> Box<[Arc<Visitor>]> {
        (0..queues.room()).map(|queue| Arc::new(Visitor { queues: Arc::downgrade(queues), queue })).collect()
    }
}

impl Turns for Visitor {
    fn leave(&self) {
        if let Some(slot) = SLOT.take()
            && let Some(queues) = self.queues.upgrade()
        {
            queues.end_visit(self.queue, slot);
        }
    }

    fn come_back(&self) {}
}

/// The calling thread has the turn of a queue, until this is dropped or the thread waits.
#[must_use = "the visit is over when this is dropped"]
pub(crate) struct Visit<'a> {
    queues: &'a Queues,
    visitor: Arc<Visitor>,
    _takes_turns: TakesTurns,
}

impl<'a> Visit<'a> {
    /// Whether the calling thread could give a turn up; not if it is ending. It has no turn yet: it is in no body,
    /// and a visit gives its turn up before it runs foreign code outside of any body.
    pub(super) fn is_possible() -> bool {
        debug_assert!(SLOT.get().is_none(), "a visit in a visit");
        SLOT.get().is_none() && can_take_turns()
    }

    /// Begins a visit in this slot, for a call that was admitted.
    pub(super) fn begin(queues: &'a Queues, visitor: &Arc<Visitor>, slot: usize) -> Visit<'a> {
        SLOT.set(Some(slot));
        let _takes_turns = take_turns(visitor.clone());
        Visit { queues, visitor: visitor.clone(), _takes_turns }
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.visitor.leave();
        self.queues.admission.release();
    }
}
