//! The queue of messages that wait for a connection (C13): a vote never waits behind requests for room. The simulation
//! runs with it; a node's queues are those of [`net`](crate::net), which have room for each class, and before them its own of what
//! finds no room there.
//!
//! Invariants kept here: a sender never blocks; a request finds room or is refused at once, before it holds anything;
//! a message of the protocol is never refused, and never waits behind a request. The room for the latter has a bound,
//! because a transaction has been admitted before it has such messages, and each kind is in the queue once at most for
//! a transaction ([`Message::key`]).

use std::collections::VecDeque;

use rialto::fault_injection;

use super::{Class, Message, Work};

/// The queue of one direction of a connection.
#[derive(Debug)]
pub struct SendQueue<W: Work> {
    requests: VecDeque<Message<W>>,
    reserved: VecDeque<Message<W>>,
    requests_max: usize,
}

/// A request found no room: nothing of it was sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

impl<W: Work> SendQueue<W> {
    /// A queue with room for so many requests.
    pub fn new(requests_max: usize) -> SendQueue<W> {
        SendQueue { requests: VecDeque::new(), reserved: VecDeque::new(), requests_max }
    }

    /// Puts a message into the queue.
    ///
    /// # Errors
    /// [`Full`] for a request only ([`Class::Request`]).
    pub fn push(&mut self, message: Message<W>) -> Result<(), Full> {
        let is_request = message.class() == Class::Request || fault_injection::is_on("votes-behind-requests");
        if is_request {
            if self.requests.len() == self.requests_max {
                return Err(Full);
            }
            self.requests.push_back(message);
            return Ok(());
        }
        let key = message.key();
        match self.reserved.iter_mut().find(|earlier| earlier.key() == key) {
            Some(earlier) => *earlier = message,
            None => self.reserved.push_back(message),
        }
        Ok(())
    }

    /// The next message to send: those of the protocol first.
    pub fn pop(&mut self) -> Option<Message<W>> {
        self.reserved.pop_front().or_else(|| self.requests.pop_front())
    }

    /// How many messages of the protocol wait.
    pub fn reserved(&self) -> usize {
        self.reserved.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.reserved.is_empty()
    }

    /// The connection has ended: what waits for it is lost.
    pub fn clear(&mut self) {
        self.requests.clear();
        self.reserved.clear();
    }
}
