//! [`Relay`]: what operators ask of nodes on other machines goes through the node of their own.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};

use super::report::{AdminAnswer, AdminRequest};
use crate::net::{Class, SendError};
use crate::node::packet::Packet;
use crate::node::random::random_number;
use crate::node::sending::Sending;
use crate::protocol::NodeId;

/// How long another node has for its whole answer. It is less than an operator waits for the node in between.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// The bytes of a piece of an answer, but for the last one.
const PIECE_BYTES: usize = 32 << 10;
/// The requests of other nodes that wait here at most. What comes beyond is not answered.
const ASKED_MAX: usize = 64;
/// How often a full queue is looked at again.
const LOOK_FOR_ROOM: Duration = Duration::from_millis(5);

/// What nodes say to each other for operators. The bytes beside it are JSON, as on the admin socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RelayMessage {
    /// A request. It is beside the message.
    Asks {
        /// A number of the asking node's.
        number: u64,
    },
    /// A piece of the answer. It is beside the message.
    Answers {
        /// The request's number.
        number: u64,
        /// Whether no other piece follows.
        is_last: bool,
    },
}

/// Why another node has not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// It could not be asked.
    NotSent(SendError),
    /// Nothing has come in time.
    Silent,
    /// Its answer is of another version, or too long.
    Odd(String),
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unanswered::NotSent(error) => error.fmt(f),
            Unanswered::Silent => write!(f, "it has not answered within {} s", PATIENCE.as_secs()),
            Unanswered::Odd(why) => write!(f, "its answer makes no sense here: {why}"),
        }
    }
}

/// A request of another node.
pub(super) struct Asked {
    by: NodeId,
    number: u64,
    /// The request, in JSON.
    pub request: Vec<u8>,
}

/// A node's requests of others, and those of others that its admin socket is to answer.
pub(in crate::node) struct Relay {
    sending: Arc<Sending>,
    last: AtomicU64,
    /// The requests that other nodes have to answer.
    waiting: Mutex<HashMap<u64, Waiting>>,
    asked: Mutex<Queue>,
    comes: Condvar,
}

struct Waiting {
    of: NodeId,
    pieces: Sender<Piece>,
}

/// A piece of an answer, and whether it is the last one.
type Piece = (Vec<u8>, bool);

/// The requests of other nodes, in their order.
#[derive(Default)]
struct Queue {
    asked: VecDeque<Asked>,
    /// Whether there is an admin socket that answers.
    is_open: bool,
}

/// A request that was sent. Dropped, it waits no longer.
pub(super) struct Pending<'a> {
    relay: &'a Relay,
    number: u64,
    pieces: Receiver<Piece>,
}

impl Relay {
    pub fn new(sending: Arc<Sending>) -> Relay {
        // The answers to an earlier process of this node are not taken for those to this one.
        let last = AtomicU64::new(random_number() >> 16);
        Relay { sending, last, waiting: Mutex::default(), asked: Mutex::default(), comes: Condvar::new() }
    }

    /// Sends a request to another node. If the queue to it is full, it waits until that time for room.
    ///
    /// # Errors
    /// [`Unanswered::NotSent`].
    pub(super) fn send(
        &self,
        to: NodeId,
        request: &AdminRequest,
        until: Instant,
    ) -> Result<Pending<'_>, Unanswered> {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (pieces, receiver) = channel();
        self.waiting.lock().insert(number, Waiting { of: to, pieces });
        let pending = Pending { relay: self, number, pieces: receiver };
        let bytes = serde_json::to_vec(request).expect("a request is JSON");
        let sent = self.send_packet(to, RelayMessage::Asks { number }, &bytes, until);
        sent.map(|()| pending).map_err(Unanswered::NotSent)
    }

    /// Something has come from another node. It never blocks.
    pub fn received(&self, from: NodeId, message: RelayMessage, beside: &[u8]) {
        match message {
            RelayMessage::Asks { number } => {
                let mut queue = self.asked.lock();
                if queue.is_open && queue.asked.len() < ASKED_MAX {
                    queue.asked.push_back(Asked { by: from, number, request: beside.to_vec() });
                    self.comes.notify_one();
                }
            }
            RelayMessage::Answers { number, is_last } => {
                if let Some(waiting) = self.waiting.lock().get(&number)
                    && waiting.of == from
                {
                    // What waits for it may have gone meanwhile.
                    let _ = waiting.pieces.send((beside.to_vec(), is_last));
                }
            }
        }
    }

    /// From now on requests of other nodes are answered, until [`Relay::end`].
    pub(super) fn begin(&self) {
        self.asked.lock().is_open = true;
    }

    /// No more requests are answered.
    pub(super) fn end(&self) {
        let mut queue = self.asked.lock();
        queue.is_open = false;
        queue.asked.clear();
        self.comes.notify_all();
    }

    /// The next request of another node; none at the end.
    pub(super) fn next_asked(&self) -> Option<Asked> {
        let mut queue = self.asked.lock();
        loop {
            if !queue.is_open {
                return None;
            }
            if let Some(asked) = queue.asked.pop_front() {
                return Some(asked);
            }
            self.comes.wait(&mut queue);
        }
    }

    /// Answers a request of another node. One that has gone, or does not read, does without.
    pub(super) fn answer(&self, asked: &Asked, answer: &AdminAnswer) {
        let bytes = serde_json::to_vec(answer).expect("an answer is JSON");
        let (until, pieces) = (Instant::now() + PATIENCE, bytes.chunks(PIECE_BYTES));
        let last = pieces.len() - 1;
        for (index, piece) in pieces.enumerate() {
            let message = RelayMessage::Answers { number: asked.number, is_last: index == last };
            if self.send_packet(asked.by, message, piece, until).is_err() {
                return;
            }
        }
    }

    /// Waits for room in the queue to that node, until that time.
    fn send_packet(
        &self,
        to: NodeId,
        message: RelayMessage,
        beside: &[u8],
        until: Instant,
    ) -> Result<(), SendError> {
        loop {
            match self.sending.send(to, Class::Work, &Packet::Relay(message), &[beside]) {
                Err(SendError::Full) if Instant::now() < until => std::thread::sleep(LOOK_FOR_ROOM),
                sent => return sent,
            }
        }
    }
}

impl Pending<'_> {
    /// Waits for the answer, until that time.
    ///
    /// # Errors
    /// [`Unanswered::Silent`] and [`Unanswered::Odd`].
    pub fn answer(self, until: Instant) -> Result<AdminAnswer, Unanswered> {
        let mut answer = Vec::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let (piece, is_last) = self.pieces.recv_timeout(left).map_err(|_| Unanswered::Silent)?;
            answer.extend_from_slice(&piece);
            if is_last {
                let odd = |error: serde_json::Error| Unanswered::Odd(error.to_string());
                return serde_json::from_slice(&answer).map_err(odd);
            }
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.relay.waiting.lock().remove(&self.number);
    }
}
