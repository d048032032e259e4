//! [`Room`]: a bound on the memory that clients' input takes in all sessions of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Result, SqlError, SqlState};

/// A session takes this much outside of any room, so that the large values of one session do not keep the others from
/// their small ones.
pub const SMALL_BYTES: usize = 1 << 20;

/// A number of bytes that sessions share.
///
/// Invariant: no more than the bound is taken.
#[derive(Debug)]
pub struct Room {
    free: AtomicUsize,
}

impl Room {
    /// A room of so many bytes.
    pub fn new(bytes: usize) -> Arc<Room> {
        Arc::new(Room { free: AtomicUsize::new(bytes) })
    }
}

/// The part of a room that a session has taken; dropping it gives it back.
#[derive(Debug)]
pub struct Taken {
    room: Arc<Room>,
    bytes: usize,
}

impl Taken {
    /// Nothing taken yet.
    pub fn of(room: &Arc<Room>) -> Taken {
        Taken { room: room.clone(), bytes: 0 }
    }

    /// Whether nothing is taken.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Takes what is missing for `what`, or gives back what is too much. `what` needs this number of bytes in all, of
    /// which [`SMALL_BYTES`] are free of charge.
    ///
    /// # Errors
    /// SQLSTATE 53200 if the room does not have that many; then nothing is changed.
    pub fn fit(&mut self, bytes: usize, what: &str) -> Result<()> {
        let wanted = bytes.saturating_sub(SMALL_BYTES);
        // Relaxed: the counter guards no other memory.
        if wanted <= self.bytes {
            self.room.free.fetch_add(self.bytes - wanted, Ordering::Relaxed);
            self.bytes = wanted;
            return Ok(());
        }
        let more = wanted - self.bytes;
        let free = &self.room.free;
        match free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(more)) {
            Ok(_) => {
                self.bytes = wanted;
                Ok(())
            }
            Err(free) => {
                let message = format!(
                    "{what} takes {} MiB or more, and beside what other sessions take {} MiB are free",
                    bytes >> 20,
                    (free + self.bytes) >> 20
                );
                Err(SqlError::new(SqlState::OutOfMemory, message))
            }
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if !self.is_empty() {
            self.room.free.fetch_add(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_bounded_and_given_back() {
        let room = Room::new(10 * SMALL_BYTES);
        let [mut one, mut other] = [(); 2].map(|()| Taken::of(&room));
        let fit = |taken: &mut Taken, bytes: usize| {
            let answer = taken.fit(bytes, "it");
            answer.map_err(|error| (error.sqlstate.code(), error.message)).err()
        };
        assert_eq!(fit(&mut one, SMALL_BYTES), None);
        assert!(one.is_empty(), "small things take nothing");
        assert_eq!(fit(&mut one, 7 * SMALL_BYTES), None);
        assert_eq!(fit(&mut other, 3 * SMALL_BYTES), None);
        let message =
            "it takes 6 MiB or more, and beside what other sessions take 4 MiB are free".to_string();
        assert_eq!(fit(&mut other, 6 * SMALL_BYTES), Some(("53200", message)));
        assert_eq!(fit(&mut other, 5 * SMALL_BYTES), None, "a refusal has changed nothing");
        assert_eq!(fit(&mut other, 5 * SMALL_BYTES + 1).map(|told| told.0), Some("53200"));
        assert_eq!(fit(&mut one, 2 * SMALL_BYTES), None, "it gives back");
        assert_eq!(fit(&mut other, 10 * SMALL_BYTES), None);
        drop((one, other));
        assert_eq!(fit(&mut Taken::of(&room), 11 * SMALL_BYTES), None);
    }
}
