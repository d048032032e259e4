//! Time as the kernel sees it: the machine's, or one that a test moves.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, MutexGuard};
use rustix::time::{ClockId, clock_gettime};

/// A reading of the machine's monotone clock in nanoseconds: what [`Instant`] is, but one number, so that taking it and
/// comparing it cost a few instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment {
    ns: u64,
}

impl Moment {
    /// Now.
    #[inline]
    pub fn now() -> Moment {
        let now = clock_gettime(ClockId::Monotonic);
        Moment { ns: now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64 }
    }

    /// Nanoseconds since an earlier moment; 0 if it was not earlier.
    #[inline]
    pub fn ns_since(self, earlier: Moment) -> u64 {
        self.ns.saturating_sub(earlier.ns)
    }
}

impl From<Instant> for Moment {
    /// The same moment, but for the time that this takes.
    fn from(instant: Instant) -> Moment {
        let elapsed = instant.elapsed();
        Moment { ns: Moment::now().ns.saturating_sub(elapsed.as_nanos() as u64) }
    }
}

/// A time that never passes: a hundred years. A longer one that a user asks for counts as this where it comes in, because clocks
/// end: to add [`Duration::MAX`] to a moment is a panic, to add this is not.
pub const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Milliseconds since 1970, by the machine's clock. Coarse: some ms behind, for the price of a load. All that is compared with the
/// times in the log takes it from here, so that what comes later has no earlier time.
#[inline(always)]
pub(crate) fn calendar_ms() -> u64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

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
        let time = time.min(FOR_EVER);
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
        self.now_ns.fetch_add(time.min(FOR_EVER).as_nanos() as u64, Ordering::AcqRel);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.now_ns.load(Ordering::Acquire))
    }

    fn sleep(&self, time: Duration) {
        let until = self.now() + time.min(FOR_EVER);
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
    fn moments_go_on_as_instants_do() {
        let (instant, moment) = (Instant::now(), Moment::now());
        thread::sleep(Duration::from_millis(2));
        let later = Moment::now();
        let (least, most) = (Duration::from_millis(2).as_nanos() as u64, instant.elapsed().as_nanos() as u64);
        assert!(
            (least..=most).contains(&later.ns_since(moment)),
            "{least} {} {most}",
            later.ns_since(moment)
        );
        assert_eq!(moment.ns_since(later), 0);
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
