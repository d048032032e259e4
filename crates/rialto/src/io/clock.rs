//! Time as the kernel sees it: the machine's clock, or one that a test moves.

use std::ops::{Add, Sub};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::time::{ClockId, clock_gettime};

use super::VirtualClock;

/// A reading of a monotone clock in nanoseconds; the machine's clock unless another is named. It is what [`Instant`]
/// is, but one number, so that taking it and comparing it cost a few instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment {
    pub(super) ns: u64,
}

impl Moment {
    /// Now, by the machine's clock.
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

    /// The time since the clock's origin.
    pub(crate) fn reading(self) -> Duration {
        Duration::from_nanos(self.ns)
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    /// The moment that much later. A time of more than [`FOR_EVER`] counts as that.
    fn add(self, time: Duration) -> Moment {
        Moment { ns: self.ns.saturating_add(time.min(FOR_EVER).as_nanos() as u64) }
    }
}

impl Sub for Moment {
    type Output = Duration;

    /// The time since an earlier moment; zero if it was not earlier.
    fn sub(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.ns_since(earlier))
    }
}

impl From<Instant> for Moment {
    /// The same moment, except for the time that the conversion takes.
    fn from(instant: Instant) -> Moment {
        let elapsed = instant.elapsed();
        Moment { ns: Moment::now().ns.saturating_sub(elapsed.as_nanos() as u64) }
    }
}

/// A time that never passes: a hundred years. A longer time that a user gives is replaced by this one where it is
/// accepted, because clocks end: adding [`Duration::MAX`] to a moment panics, adding this does not.
pub const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// How much too late a sleeping thread may wake up. This much of a sleep is spent polling the clock instead, so that
/// the service times of fast simulated disks come out right.
const WAKE_MARGIN: Duration = Duration::from_micros(60);

/// When the calendar of virtual clocks begins, in seconds since 1970: 2020-01-01.
const CALENDAR_BEGINS: u64 = 1_577_836_800;

/// The clock for the kernel's decisions and sleeps: time-outs, deadlines, intervals, rests. Times that it only
/// measures, such as the waits in the accounts, it may measure by the machine's clock in any case.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The machine's clock. Its readings are those of [`Moment::now`].
    #[default]
    System,
    /// A clock that stands still until it is moved.
    Virtual(Arc<VirtualClock>),
}

impl Clock {
    /// Now.
    #[inline(always)]
    pub fn now(&self) -> Moment {
        match self {
            Clock::System => Moment::now(),
            Clock::Virtual(clock) => clock.moment(),
        }
    }

    /// Milliseconds since 1970. Coarse: some ms behind, for the cost of a load. Every time that is compared with the
    /// times in the log is taken from here, so that a later event never has an earlier time.
    #[inline(always)]
    pub(crate) fn calendar_ms(&self) -> u64 {
        match self {
            Clock::System => {
                let now = clock_gettime(ClockId::RealtimeCoarse);
                now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
            }
            Clock::Virtual(clock) => CALENDAR_BEGINS * 1000 + clock.now().as_millis() as u64,
        }
    }

    /// Microseconds since 1970. The calendar of a virtual clock begins on 2020-01-01.
    pub fn calendar_us(&self) -> i64 {
        match self {
            Clock::System => {
                let now = clock_gettime(ClockId::Realtime);
                now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
            }
            Clock::Virtual(clock) => CALENDAR_BEGINS as i64 * 1_000_000 + clock.now().as_micros() as i64,
        }
    }

    /// Returns when at least `time` has passed. Polls at the end, which uses processor time, to return exactly then.
    pub fn sleep(&self, time: Duration) {
        if let Clock::Virtual(_) = self {
            return self.rest(time);
        }
        let until = self.now() + time;
        if time > WAKE_MARGIN {
            thread::sleep(time.min(FOR_EVER) - WAKE_MARGIN);
        }
        while self.now() < until {
            thread::yield_now();
        }
    }

    /// Returns when at least `time` has passed.
    pub(crate) fn rest(&self, time: Duration) {
        match self {
            Clock::System => thread::sleep(time),
            Clock::Virtual(clock) => clock.sleep_until(self.now() + time),
        }
    }

    /// Waits on the condition variable, for about the limit at most, if there is one. May return early: the caller
    /// looks again.
    pub(crate) fn wait<T>(&self, changed: &Condvar, guard: &mut MutexGuard<'_, T>, limit: Option<Duration>) {
        match (self, limit) {
            (Clock::System, None) => changed.wait(guard),
            (Clock::System, Some(limit)) => _ = changed.wait_for(guard, limit),
            (Clock::Virtual(clock), limit) => {
                clock.wait_on(changed, guard, limit.map(|limit| self.now() + limit));
            }
        }
    }

    /// As [`Clock::wait`], until a moment; `false` if the moment has come.
    pub(crate) fn wait_until<T>(
        &self,
        changed: &Condvar,
        guard: &mut MutexGuard<'_, T>,
        until: Moment,
    ) -> bool {
        let left = until - self.now();
        if !left.is_zero() {
            self.wait(changed, guard, Some(left));
        }
        !left.is_zero()
    }

    /// Locks a mutex that is held across waits on this clock. Under a [`Scheduler`](super::Scheduler) a thread that
    /// slept on the mutex would keep its turn, and the holder could not continue.
    pub(crate) fn lock<'m, T>(&self, mutex: &'m Mutex<T>) -> MutexGuard<'m, T> {
        match self {
            Clock::System => mutex.lock(),
            Clock::Virtual(clock) => loop {
                match mutex.try_lock() {
                    Some(guard) => return guard,
                    None => clock.wait(None, thread::sleep),
                }
            },
        }
    }

    /// As [`Clock::wait`], where `sleep` does the sleeping, for at most its argument if there is one.
    pub(crate) fn wait_by(&self, limit: Option<Duration>, sleep: impl FnOnce(Option<Duration>)) {
        match self {
            Clock::System => sleep(limit),
            Clock::Virtual(clock) => {
                clock.wait(limit.map(|limit| self.now() + limit), |limit| sleep(Some(limit)))
            }
        }
    }

    /// What the calling thread has waited for has happened, and it goes on.
    #[inline]
    pub(crate) fn end_wait(&self) {
        if let Clock::Virtual(clock) = self {
            clock.end_wait();
        }
    }

    /// A run of a transaction on disk-resident tables has come to the end of its body: on a virtual clock that takes time.
    #[cold]
    pub(crate) fn end_body(&self) {
        if let Clock::Virtual(clock) = self {
            clock.end_body();
        }
    }

    /// Lets other threads run for a moment. For a caller that waits for something that takes no time.
    pub(crate) fn look_later(&self, looks: u32) {
        match (self, looks) {
            (Clock::System, ..20) => thread::yield_now(),
            (Clock::System, _) => thread::sleep(Duration::from_micros(50)),
            (Clock::Virtual(clock), _) => clock.wait(None, thread::sleep),
        }
    }
}

impl From<Arc<VirtualClock>> for Clock {
    fn from(clock: Arc<VirtualClock>) -> Clock {
        Clock::Virtual(clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(clock: VirtualClock) -> (Clock, Arc<VirtualClock>) {
        let clock = Arc::new(clock);
        (clock.clone().into(), clock)
    }

    #[test]
    fn the_system_clock_sleeps_no_shorter_than_asked() {
        let clock = Clock::System;
        for time in [Duration::ZERO, Duration::from_micros(30), Duration::from_millis(2)] {
            for sleep in [Clock::sleep, Clock::rest] {
                let start = clock.now();
                sleep(&clock, time);
                assert!(clock.now() >= start + time);
            }
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
        assert!(later + Duration::MAX > later + Duration::from_secs(1), "a clock does not end");
    }

    #[test]
    fn a_wait_ends_when_it_is_told_or_when_its_time_is_over() {
        let (lock, changed) = (Mutex::new(()), Condvar::new());
        let long = Duration::from_secs(3600);
        for clock in [Clock::System, on(VirtualClock::moved_by_hand()).0] {
            let is_told = Mutex::new(false);
            std::thread::scope(|scope| {
                let mut guard = is_told.lock();
                scope.spawn(|| {
                    *is_told.lock() = true;
                    changed.notify_all();
                });
                while !*guard {
                    clock.wait(&changed, &mut guard, Some(long));
                }
            });
        }
        Clock::System.wait(&changed, &mut lock.lock(), Some(Duration::from_millis(2)));
        let (clock, hands) = on(VirtualClock::new());
        clock.wait(&changed, &mut lock.lock(), Some(long));
        assert_eq!(hands.now(), long);
    }
}
