//! What is to be written to one node: a bounded queue that never blocks a sender.
//!
//! Invariants:
//! 1. Messages are written in the order in which they were queued, each at most once.
//! 2. A message belongs to the connection that was there when it was admitted. When that connection ends, the message is
//!    dropped with it, and the node is told of the end. It is never written to a later connection: there, messages
//!    that came before it would be missing.
//! 3. Bytes that are admitted and not yet written are at most `work_room + protocol_room`; those of [`Class::Work`] are
//!    refused from `work_room` on. Therefore a message of the protocol has room however much work there is.

use std::sync::atomic::Ordering::Relaxed;

use parking_lot::{Mutex, MutexGuard};

use super::bell::Bell;
use super::counters::Counters;
use super::frame::{self, Kind};

/// What a message is for, and therefore how much room it may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Requests, answers, blocks of the log: their senders have a way to wait.
    Work,
    /// Votes, decisions, promises: room is reserved for them.
    Protocol,
}

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
    pub work: usize,
    pub protocol: usize,
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
    /// What is to be written.
    bytes: Vec<u8>,
    messages: u64,
    /// Bytes that are admitted and not yet written: here, in turns that have not ended, or being written.
    admitted: usize,
    /// The writer waits for the bell.
    sleeps: bool,
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

    /// Queues frames that were admitted for a connection. If it has ended, they are dropped.
    pub(super) fn append(&self, connection: ConnectionId, frames: &[u8], messages: u64, counters: &Counters) {
        let mut state = self.state.lock();
        if state.connection != Some(connection) {
            return;
        }
        state.bytes.extend_from_slice(frames);
        state.messages += messages;
        self.wake(state, counters);
    }

    /// Queues one message.
    pub(super) fn send(&self, class: Class, payload: &[u8], counters: &Counters) -> Result<(), SendError> {
        let mut state = self.state.lock();
        state.admit(self.room, class, payload.len())?;
        frame::append(&mut state.bytes, Kind::Message, payload);
        state.messages += 1;
        self.wake(state, counters);
        Ok(())
    }

    fn wake(&self, mut state: MutexGuard<'_, State>, counters: &Counters) {
        if std::mem::take(&mut state.sleeps) {
            drop(state);
            counters.wake_ups.fetch_add(1, Relaxed);
            self.bell.ring();
        }
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
            state.bytes.clear();
        }
        state.messages = 0;
        state.admitted = state.bytes.len();
    }

    /// Takes all that is queued into an empty buffer, and gives the number of messages; if nothing is queued, the next
    /// message rings the bell. `written` bytes of earlier ones are written and make room.
    pub(super) fn take(&self, into: &mut Vec<u8>, written: usize) -> u64 {
        debug_assert!(into.is_empty());
        let mut state = self.state.lock();
        state.admitted -= written;
        std::mem::swap(&mut state.bytes, into);
        state.sleeps = into.is_empty();
        std::mem::take(&mut state.messages)
    }
}

impl State {
    fn admit(&mut self, room: Room, class: Class, payload: usize) -> Result<ConnectionId, SendError> {
        if payload > room.message_max {
            return Err(SendError::TooLong);
        }
        let bytes_max = match class {
            Class::Work if !rialto::fault_injection::is_on("no-reserved-room") => room.work,
            Class::Work | Class::Protocol => room.work + room.protocol,
        };
        let connection = self.connection.ok_or(SendError::NotConnected)?;
        let admitted = self.admitted + frame::HEADER + payload;
        if admitted > bytes_max {
            return Err(SendError::Full);
        }
        self.admitted = admitted;
        Ok(connection)
    }
}
