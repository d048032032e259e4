//! [`Pace`]: how many bytes a second a node sends of copies.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A bound on the bytes that a node sends each second, over all that share it. Each piece is given a time of its own,
/// after that of the piece before, and is sent when that time begins. Unused time is not saved up.
pub struct Pace {
    /// None: no bound.
    bytes_per_second: Option<NonZeroU64>,
    /// When the next piece may be sent.
    next: Mutex<Instant>,
}

impl Pace {
    pub fn new(bytes_per_second: Option<NonZeroU64>) -> Pace {
        Pace { bytes_per_second, next: Mutex::new(Instant::now()) }
    }

    /// How long a piece of so many bytes has to wait from now on. Its time is taken.
    pub fn take(&self, bytes: usize, now: Instant) -> Duration {
        let Some(each_second) = self.bytes_per_second else { return Duration::ZERO };
        let takes = Duration::from_secs_f64(bytes as f64 / each_second.get() as f64);
        let mut next = self.next.lock();
        let begins = (*next).max(now);
        *next = begins + takes;
        begins - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_each_other_at_the_pace() {
        let pace = Pace::new(NonZeroU64::new(1000));
        let began = Instant::now() + Duration::from_secs(1);
        let after = |ms| began + Duration::from_millis(ms);
        assert_eq!(pace.take(500, began), Duration::ZERO);
        // Two at once, of any transfers.
        assert_eq!(pace.take(100, began), Duration::from_millis(500));
        assert_eq!(pace.take(400, after(200)), Duration::from_millis(400));
        // After a pause a piece waits for nothing, and the next one for it.
        assert_eq!(pace.take(500, after(5000)), Duration::ZERO);
        assert_eq!(pace.take(500, after(5000)), Duration::from_millis(500));
        let unbounded = Pace::new(None);
        (0..9).for_each(|_| assert_eq!(unbounded.take(1 << 30, began), Duration::ZERO));
    }
}
