//! Time as the kernel sees it: the machine's, or one that a test moves.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, MutexGuard};

/// A monotone clock.
pub trait Clock: Send + Sync + Debug {
    /// The time since an arbitrary origin that stays the same for the clock's life.
    fn now(&self) -> Duration;

    /// Returns when at least `time` has passed on this clock.
    fn sleep(&self, time: Duration);

    /// Waits on the condition variable for about `time` at most; returns early when notified. Costs one wake-up, where
    /// [`sleep`](Clock::sleep) spends processor time on ending exactly.
    fn wait(&self, changed: &Condvar, guard: &mut MutexGuard<'_, ()>, time: Duration);
}

/// The machine's monotone clock; its origin is the moment it was made.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    origin: Instant,
}

/// What a sleeping thread may wake up too late by: this much of a sleep is spent looking at the clock instead, so that
/// the service times of fast simulated disks come out right.
const WAKE_MARGIN: Duration = Duration::from_micros(60);

impl SystemClock {
    /// A clock that starts at zero now.
    pub fn new() -> SystemClock {
        SystemClock { origin: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        if time > WAKE_MARGIN {
            thread::sleep(time - WAKE_MARGIN);
        }
        while Instant::now() < until {
            thread::yield_now();
        }
    }

    fn wait(&self, changed: &Condvar, guard: &mut MutexGuard<'_, ()>, time: Duration) {
        changed.wait_for(guard, time);
    }
}

/// A clock that stands still until someone sleeps on it: a sleep returns at once and moves the clock.
///
/// Threads that sleep at the same time sleep in parallel: the clock moves to the latest of their ends.
#[derive(Debug, Default)]
pub struct VirtualClock {
    now_ns: AtomicU64,
}

impl VirtualClock {
    /// A clock at zero.
    pub fn new() -> VirtualClock {
        VirtualClock::default()
    }

    /// Moves the clock.
    pub fn advance(&self, time: Duration) {
        self.now_ns.fetch_add(time.as_nanos() as u64, Ordering::AcqRel);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.now_ns.load(Ordering::Acquire))
    }

    fn sleep(&self, time: Duration) {
        let until = self.now() + time;
        self.now_ns.fetch_max(until.as_nanos() as u64, Ordering::AcqRel);
    }

    /// Returns at once, as [`sleep`](Clock::sleep) does: nobody can notify in no time.
    fn wait(&self, _: &Condvar, _: &mut MutexGuard<'_, ()>, time: Duration) {
        self.sleep(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_clock_sleeps_no_shorter_than_asked() {
        let clock = SystemClock::new();
        for time in [Duration::ZERO, Duration::from_micros(30), Duration::from_millis(2)] {
            let start = clock.now();
            clock.sleep(time);
            assert!(clock.now() >= start + time);
        }
    }

    #[test]
    fn a_wait_ends_when_it_is_told_or_when_its_time_is_over() {
        let (lock, changed) = (parking_lot::Mutex::new(()), Condvar::new());
        let long = Duration::from_secs(3600);
        std::thread::scope(|scope| {
            let mut guard = lock.lock();
            scope.spawn(|| {
                let _guard = lock.lock();
                changed.notify_all();
            });
            SystemClock::new().wait(&changed, &mut guard, long);
            SystemClock::new().wait(&changed, &mut guard, Duration::from_millis(2));
        });
        let clock = VirtualClock::new();
        clock.wait(&changed, &mut lock.lock(), long);
        assert_eq!(clock.now(), long);
    }

    #[test]
    fn virtual_clock_moves_only_by_sleeping() {
        let clock = VirtualClock::new();
        assert_eq!(clock.now(), Duration::ZERO);
        clock.sleep(Duration::from_secs(3600));
        clock.advance(Duration::from_secs(1));
        assert_eq!(clock.now(), Duration::from_secs(3601));
    }
}
