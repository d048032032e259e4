//! [`MessageRoom`]: the memory that the large messages of all connections are read into.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rialto_sql::{SqlError, SqlState};

/// The most bytes that the large messages take together that the connections of a server read at a time.
pub(crate) const MESSAGE_ROOM_BYTES: usize = 2 << 30;
/// So much of a message is read whatever others take.
pub(super) const SMALL_BYTES: usize = 1 << 20;

/// A bound on the bytes of messages that the connections of a server take at a time, beyond [`SMALL_BYTES`] of each.
#[derive(Debug)]
pub(crate) struct MessageRoom {
    free: AtomicUsize,
}

impl Default for MessageRoom {
    fn default() -> MessageRoom {
        MessageRoom::new(MESSAGE_ROOM_BYTES)
    }
}

impl MessageRoom {
    /// A room of so many bytes.
    pub(super) fn new(bytes: usize) -> MessageRoom {
        MessageRoom { free: AtomicUsize::new(bytes) }
    }
}

/// What a connection has taken of a room; dropping it gives that back.
#[derive(Debug)]
pub(super) struct Taken {
    room: Arc<MessageRoom>,
    bytes: usize,
}

impl Taken {
    /// Nothing yet.
    pub(super) fn of(room: Arc<MessageRoom>) -> Taken {
        Taken { room, bytes: 0 }
    }

    /// Takes or gives back what is missing or too much for a buffer of so many bytes; an error, and nothing is changed, if that is
    /// not free.
    pub(super) fn fit(&mut self, buffer_bytes: usize) -> Result<(), SqlError> {
        let bytes = buffer_bytes.saturating_sub(SMALL_BYTES);
        if bytes <= self.bytes {
            self.room.free.fetch_add(self.bytes - bytes, Ordering::Relaxed);
            self.bytes = bytes;
            return Ok(());
        }
        // Relaxed: the counter guards no other memory.
        let more = bytes - self.bytes;
        let free = &self.room.free;
        match free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(more)) {
            Ok(_) => {
                self.bytes = bytes;
                Ok(())
            }
            Err(_) => {
                let message = "the messages that are being received take all the memory there is for them";
                Err(SqlError::new(SqlState::OutOfMemory, message)
                    .hint("Try again when they are received, or send it in smaller parts."))
            }
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.free.fetch_add(self.bytes, Ordering::Relaxed);
    }
}
