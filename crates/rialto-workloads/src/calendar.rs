//! [`Calendar`]: the times that rows have.

use std::time::Instant;

use rialto::io::Clock;

/// Tells the time of day at which a transaction begins. On a virtual clock that is the clock's, so that the same run writes the same
/// rows.
#[derive(Debug, Clone)]
pub(crate) struct Calendar {
    clock: Clock,
    began: Instant,
    began_us: i64,
}

impl Calendar {
    /// By this clock.
    pub fn of(clock: &Clock) -> Calendar {
        Calendar { clock: clock.clone(), began: Instant::now(), began_us: clock.calendar_us() }
    }

    /// Microseconds since 1970 at an instant, without another look at the machine's clock.
    #[inline]
    pub fn us(&self, now: Instant) -> i64 {
        match &self.clock {
            Clock::System => self.began_us + now.saturating_duration_since(self.began).as_micros() as i64,
            Clock::Virtual(_) => self.clock.calendar_us(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use rialto::io::VirtualClock;

    use super::*;

    #[test]
    fn virtual_times_are_the_same_in_each_run() {
        let clock = Arc::new(VirtualClock::new());
        let calendar = Calendar::of(&Clock::from(clock.clone()));
        assert_eq!(calendar.us(Instant::now()), 1_577_836_800_000_000);
        clock.advance(Duration::from_micros(7));
        assert_eq!(calendar.us(Instant::now()), 1_577_836_800_000_007);
    }

    #[test]
    fn other_times_are_those_of_the_machine() {
        let calendar = Calendar::of(&Clock::System);
        let now = calendar.us(Instant::now() + Duration::from_secs(5));
        assert!((4_000_000..60_000_000).contains(&(now - Clock::System.calendar_us())));
    }
}
