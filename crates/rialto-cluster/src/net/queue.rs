//! What is to be written to one node: a bounded queue that never blocks a sender.
//!
//! Invariants:
//! 1. Messages of a class are written in the order in which they were queued, each at most once. In which order the
//!    classes are written is said in `lanes.rs`.
//! 2. A message belongs to the connection that was there when it was admitted. When that connection ends, the message is
//!    dropped with it, and the node is told of the end. It is never written to a later connection: there, messages
//!    that came before it would be missing.
//! 3. Each class has room of its own: bytes that are admitted and not yet written. Therefore a message of one class finds
//!    room however many messages of another one wait.

use parking_lot::Mutex;

use super::bell::Bell;
use super::frame;
use super::lanes::{Class, Lanes, PerClass};

/// The number of a connection: a node gives each connection another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Why a message was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// The node is no member of the cluster, as far as this node knows.
    NotAMember,
    /// There is no connection to the node now.
    NotConnected,
    /// There is no room for its class.
    Full,
    /// It is longer than a message may be.
    TooLong,
}

impl std::fmt::Display for SendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SendError::NotAMember => "the node is no member of the cluster",
            SendError::NotConnected => "there is no connection to the node",
            SendError::Full => "the queue to the node is full",
            SendError::TooLong => "the message is too long",
        })
    }
}

impl std::error::Error for SendError {}

/// How much a queue holds, in bytes with their frames.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub classes: PerClass,
    pub message_max: usize,
}

/// The queue to one node.
pub(super) struct Queue {
    room: Room,
    state: Mutex<State>,
    bell: Bell,
}

#[derive(Default)]
struct State {
    connection: Option<ConnectionId>,
    lanes: Lanes,
    /// Bytes that are admitted and not yet written: here, in turns that have not ended, or being written.
    admitted: PerClass,
    /// Bytes that are being written.
    being_written: PerClass,
    /// Nothing is written, and no thread is about to write.
    rests: bool,
}

impl Queue {
    pub(super) fn new(room: Room) -> std::io::Result<Queue> {
        Ok(Queue { room, state: Mutex::default(), bell: Bell::new()? })
    }

    pub(super) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Takes room for a message that [`Queue::append`] brings later. Gives the connection that it belongs to.
    pub(super) fn admit(&self, class: Class, payload: usize) -> Result<ConnectionId, SendError> {
        self.state.lock().admit(self.room, class, payload)
    }

    /// Queues messages that were admitted for a connection, and leaves none of them in their lanes. If the connection
    /// has ended, they are dropped. True if no thread is about to write: then the caller has to write.
    #[must_use]
    pub(super) fn append(&self, connection: ConnectionId, messages: &mut Lanes) -> bool {
        let mut state = self.state.lock();
        if state.connection != Some(connection) {
            messages.clear();
            return false;
        }
        state.lanes.append(messages);
        std::mem::take(&mut state.rests)
    }

    /// Queues one message. True if no thread is about to write: then the caller has to write.
    pub(super) fn send(&self, class: Class, payload: &[u8]) -> Result<bool, SendError> {
        let mut state = self.state.lock();
        state.admit(self.room, class, payload.len())?;
        state.lanes.push(class, payload);
        Ok(std::mem::take(&mut state.rests))
    }

    /// A connection is there: messages are admitted from now on.
    pub(super) fn open(&self, connection: ConnectionId) {
        let mut state = self.state.lock();
        assert_eq!(state.connection, None, "one connection to a node at a time");
        state.connection = Some(connection);
    }

    /// The connection has ended: what was not written is dropped.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.connection = None;
        if !rialto::fault_injection::is_on("messages-outlive-their-connection") {
            state.lanes.clear();
        }
        state.admitted = state.lanes.bytes();
        state.being_written = PerClass::default();
        // The link's thread writes first to the next connection.
        state.rests = false;
    }

    /// Takes what goes by the next write into an empty buffer, and gives the number of messages; if nothing is queued, the
    /// next sender is told that no thread writes. What was taken before is written and makes room.
    pub(super) fn take(&self, into: &mut Vec<u8>) -> u64 {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        for (admitted, written) in state.admitted.iter_mut().zip(state.being_written) {
            *admitted -= written;
        }
        let taken = state.lanes.take(into);
        state.being_written = taken.bytes;
        state.rests = into.is_empty();
        taken.messages
    }
}

impl State {
    fn admit(&mut self, room: Room, class: Class, payload: usize) -> Result<ConnectionId, SendError> {
        if payload > room.message_max {
            return Err(SendError::TooLong);
        }
        let connection = self.connection.ok_or(SendError::NotConnected)?;
        let frame = frame::HEADER + payload;
        let has_room = if rialto::fault_injection::is_on("no-reserved-room") {
            self.admitted.iter().sum::<usize>() + frame <= room.classes.iter().sum()
        } else {
            self.admitted[class.index()] + frame <= room.classes[class.index()]
        };
        if !has_room {
            return Err(SendError::Full);
        }
        self.admitted[class.index()] += frame;
        Ok(connection)
    }
}
