//! What the connections of a node have done.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts since the node's links were opened. They only grow.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub messages_sent: AtomicU64,
    pub bytes_sent: AtomicU64,
    pub writes: AtomicU64,
    pub wake_ups: AtomicU64,
    pub messages_received: AtomicU64,
    pub bytes_received: AtomicU64,
    pub reads: AtomicU64,
    pub messages_refused: AtomicU64,
}

/// The counts at some moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that were written to a connection.
    pub messages_sent: u64,
    /// Bytes of them, with their frames, before encryption.
    pub bytes_sent: u64,
    /// Writes: all that was queued for a node goes by one.
    pub writes: u64,
    /// Times that a sleeping writer was woken.
    pub wake_ups: u64,
    /// Messages that came.
    pub messages_received: u64,
    /// Bytes that came, with their frames, after decryption.
    pub bytes_received: u64,
    /// Reads that brought bytes.
    pub reads: u64,
    /// Messages that were not queued for want of room.
    pub messages_refused: u64,
}

impl Counters {
    pub(super) fn now(&self) -> Counts {
        Counts {
            messages_sent: self.messages_sent.load(Relaxed),
            bytes_sent: self.bytes_sent.load(Relaxed),
            writes: self.writes.load(Relaxed),
            wake_ups: self.wake_ups.load(Relaxed),
            messages_received: self.messages_received.load(Relaxed),
            bytes_received: self.bytes_received.load(Relaxed),
            reads: self.reads.load(Relaxed),
            messages_refused: self.messages_refused.load(Relaxed),
        }
    }
}
