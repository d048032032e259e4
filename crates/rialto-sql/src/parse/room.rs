//! [`ReadingRoom`]: the memory that all sessions of a server read statements in.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Result, SqlError, SqlState};

/// The most bytes that reading one statement takes.
pub const READING_BYTES_MAX: usize = 1 << 30;
/// The most bytes that the statements take together that the sessions of a server read at a time.
pub const READING_ROOM_BYTES: usize = 2 << 30;
/// A statement of up to so many bytes is read whatever others take: a session reads one at a time.
const SMALL_BYTES: usize = 1 << 20;

/// A bound on the bytes that several sessions take at a time for reading statements.
///
/// Kept here: what is taken is no more than its bound. Small statements take nothing of it, so that the large ones of a session
/// do not keep the others from theirs.
#[derive(Debug)]
pub struct ReadingRoom {
    free: AtomicUsize,
}

impl Default for ReadingRoom {
    fn default() -> ReadingRoom {
        ReadingRoom::new(READING_ROOM_BYTES)
    }
}

/// What a statement has taken of a room; dropping it gives that back.
pub(super) struct Taken<'a> {
    room: &'a ReadingRoom,
    bytes: usize,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.room.free.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

impl ReadingRoom {
    /// A room of so many bytes.
    pub fn new(bytes: usize) -> ReadingRoom {
        ReadingRoom { free: AtomicUsize::new(bytes) }
    }

    /// Takes what reading a statement takes at most.
    pub(super) fn take(&self, bytes: usize) -> Result<Taken<'_>> {
        if bytes <= SMALL_BYTES {
            return Ok(Taken { room: self, bytes: 0 });
        }
        if bytes > READING_BYTES_MAX {
            let message = format!(
                "reading the statement would take up to {} MiB: the limit is {} MiB",
                bytes >> 20,
                READING_BYTES_MAX >> 20
            );
            return Err(SqlError::new(SqlState::LimitExceeded, message)
                .hint("Split it, give values as parameters, or use COPY."));
        }
        // Relaxed: the counter guards no other memory.
        let taken =
            self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(bytes));
        match taken {
            Ok(_) => Ok(Taken { room: self, bytes }),
            Err(free) => {
                let message = format!(
                    "reading the statement would take up to {} MiB, and beside the statements that other sessions read \
                     {} MiB are free",
                    bytes >> 20,
                    free >> 20
                );
                Err(SqlError::new(SqlState::OutOfMemory, message)
                    .hint("Try again when they are read, split it, give values as parameters, or use COPY."))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_bounded_and_given_back() {
        let code = |taken: Result<Taken<'_>>| taken.err().map(|error| error.sqlstate.code());
        let room = ReadingRoom::new(10 * SMALL_BYTES);
        let first = room.take(6 * SMALL_BYTES).unwrap();
        assert_eq!(code(room.take(5 * SMALL_BYTES)), Some("53200"));
        let second = room.take(4 * SMALL_BYTES).unwrap();
        assert_eq!(code(room.take(SMALL_BYTES + 1)), Some("53200"));
        assert_eq!(code(room.take(SMALL_BYTES)), None, "a small one takes nothing");
        drop(first);
        assert_eq!(code(room.take(6 * SMALL_BYTES)), None);
        drop(second);
        assert_eq!(code(room.take(10 * SMALL_BYTES)), None);
        assert_eq!(code(ReadingRoom::default().take(READING_BYTES_MAX)), None);
        assert_eq!(code(ReadingRoom::default().take(READING_BYTES_MAX + 1)), Some("54000"));
    }
}
