//! [`ResponseQueue`]: the queue from which a message server takes its responses, and on which it sleeps.

use std::collections::VecDeque;

use super::RoomWaiter;
use super::sync::{Condvar, Mutex};

/// What a message server waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum ServerWait {
    /// A response.
    Response,
    /// Room in the request queue.
    Room,
    /// Whichever comes first.
    Either,
}

struct Inbox<R> {
    responses: VecDeque<R>,
    /// There has been room since [`ResponseQueue::forget_room`].
    has_room: bool,
    /// What its message server sleeps for, if it sleeps.
    awaited: Option<ServerWait>,
    /// Its message server has gone.
    is_closed: bool,
}

/// The responses for one message server. Other threads put them here.
pub(in crate::engine) struct ResponseQueue<R> {
    inbox: Mutex<Inbox<R>>,
    bell: Condvar,
}

impl<R> Inbox<R> {
    fn has(&self, awaited: ServerWait) -> bool {
        match awaited {
            ServerWait::Response => !self.responses.is_empty(),
            ServerWait::Room => self.has_room,
            ServerWait::Either => !self.responses.is_empty() || self.has_room,
        }
    }

    /// Whether its message server sleeps and what it sleeps for is there now.
    fn is_to_wake(&mut self) -> bool {
        let is_there = self.awaited.is_some_and(|awaited| self.has(awaited));
        if is_there {
            self.awaited = None;
        }
        is_there
    }
}

impl<R> ResponseQueue<R> {
    pub fn new() -> ResponseQueue<R> {
        let inbox = Inbox { responses: VecDeque::new(), has_room: false, awaited: None, is_closed: false };
        ResponseQueue { inbox: Mutex::new(inbox), bell: Condvar::default() }
    }

    /// Puts a response into it, or gives it back if its message server has gone.
    pub fn put(&self, response: R) -> Result<(), R> {
        let mut inbox = self.inbox.lock();
        if inbox.is_closed {
            return Err(response);
        }
        inbox.responses.push_back(response);
        if inbox.is_to_wake() {
            drop(inbox);
            self.bell.notify_all();
        }
        Ok(())
    }

    /// Closes the queue, because its message server goes, and returns what is in it. A response keeps its queue
    /// alive, so otherwise neither would ever be freed.
    pub fn close(&self) -> VecDeque<R> {
        let mut inbox = self.inbox.lock();
        inbox.is_closed = true;
        std::mem::take(&mut inbox.responses)
    }

    /// The oldest response.
    pub fn take(&self) -> Option<R> {
        self.inbox.lock().responses.pop_front()
    }

    /// To be called before the check that may find the queue full: room from then on counts.
    pub fn forget_room(&self) {
        self.inbox.lock().has_room = false;
    }

    /// Sleeps until what is awaited is there. If it is not, `before_sleep` is called first, without the latch.
    pub fn wait(&self, awaited: ServerWait, before_sleep: impl FnOnce()) {
        if self.inbox.lock().has(awaited) {
            return;
        }
        before_sleep();
        let mut inbox = self.inbox.lock();
        while !inbox.has(awaited) {
            inbox.awaited = Some(awaited);
            inbox = self.bell.wait(inbox, None);
        }
        inbox.awaited = None;
    }
}

impl<R: Send> RoomWaiter for ResponseQueue<R> {
    fn tell_of_room(&self) {
        let mut inbox = self.inbox.lock();
        inbox.has_room = true;
        if inbox.is_to_wake() {
            drop(inbox);
            self.bell.notify_all();
        }
    }
}
