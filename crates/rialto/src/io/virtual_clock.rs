//! [`VirtualClock`]: a clock that a test moves, and how threads wait on it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, MutexGuard};

use super::Moment;

/// Runs the threads of a virtual clock, usually one at a time.
pub trait Scheduler: Send + Sync {
    /// The calling thread waits for another thread's action, or until a moment. Returns when it is to look again, which
    /// may be before either.
    ///
    /// The thread holds no lock that another thread sleeps for. (While it waits for a [simulated disk](super::SimulatedDisk) on
    /// this clock it may hold some that others request by way of the clock.) If all threads wait, the scheduler has to
    /// [move](VirtualClock::advance_to) the clock to the first of these moments.
    fn wait(&self, clock: &VirtualClock, until: Option<Moment>);

    /// What the calling thread has waited for has happened: what it does now others may wait for. It keeps its turn.
    fn end_wait(&self) {}

    /// The calling thread sleeps until a moment, whatever others do.
    fn sleep(&self, clock: &VirtualClock, until: Moment) {
        while clock.moment() < until {
            self.wait(clock, Some(until));
        }
    }
}

/// A clock that stands still until it is moved. How a thread waits on it is chosen at its creation.
#[derive(Debug)]
pub struct VirtualClock {
    now_ns: AtomicU64,
    waits: WaitMode,
    /// The processor time that a run of a transaction takes.
    run: Duration,
    /// Until when the processor is taken by such runs.
    busy_until_ns: AtomicU64,
}

/// How a thread waits.
enum WaitMode {
    /// A thread's wait moves the clock.
    MoveIt,
    /// A thread sleeps until another thread moves the clock, or ends its wait.
    Sleep,
    Scheduled(Arc<dyn Scheduler>),
}

impl fmt::Debug for WaitMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WaitMode::MoveIt => "MoveIt",
            WaitMode::Sleep => "Sleep",
            WaitMode::Scheduled(_) => "Scheduled",
        })
    }
}

/// How often a thread that sleeps on a virtual clock looks at it: nothing wakes the thread when the clock is moved.
const LOOK_EVERY: Duration = Duration::from_millis(1);

impl Default for VirtualClock {
    fn default() -> VirtualClock {
        VirtualClock::new()
    }
}

impl VirtualClock {
    /// A clock at zero for one thread: when the thread waits, the clock moves to the end of the wait, because nothing
    /// else could end it.
    ///
    /// Threads that wait at the same time wait in parallel: the clock moves to the latest of their ends.
    pub fn new() -> VirtualClock {
        VirtualClock {
            now_ns: AtomicU64::new(0),
            waits: WaitMode::MoveIt,
            run: Duration::ZERO,
            busy_until_ns: AtomicU64::new(0),
        }
    }

    /// A clock at zero that only [`advance`](VirtualClock::advance) moves: a wait ends when another thread ends it or
    /// moves the clock.
    pub fn moved_by_hand() -> VirtualClock {
        VirtualClock { waits: WaitMode::Sleep, ..VirtualClock::new() }
    }

    /// A clock at zero whose threads run under a scheduler.
    pub fn scheduled(by: Arc<dyn Scheduler>) -> VirtualClock {
        VirtualClock { waits: WaitMode::Scheduled(by), ..VirtualClock::new() }
    }

    /// The same clock, on which each run of a transaction on disk-resident tables takes so much processor time: it passes at the
    /// end of the body. Computation takes no time otherwise.
    #[must_use]
    pub fn with_run_time(self, run: Duration) -> VirtualClock {
        VirtualClock { run, ..self }
    }

    /// A run of a transaction has come to the end of its body: returns when the processor has done it, after those that came before.
    pub(crate) fn end_body(&self) {
        if self.run.is_zero() {
            return;
        }
        let mut until = self.moment();
        // In one step: without a scheduler several threads come here at the same time.
        let _ = self.busy_until_ns.fetch_update(Ordering::AcqRel, Ordering::Acquire, |busy_until_ns| {
            until = self.moment().max(Moment { ns: busy_until_ns }) + self.run;
            Some(until.ns)
        });
        self.sleep_until(until);
    }

    /// As [`Scheduler::end_wait`].
    pub(super) fn end_wait(&self) {
        if let WaitMode::Scheduled(scheduler) = &self.waits {
            scheduler.end_wait();
        }
    }

    /// Returns when the moment has come.
    pub(super) fn sleep_until(&self, until: Moment) {
        match &self.waits {
            WaitMode::Scheduled(scheduler) => scheduler.sleep(self, until),
            _ => {
                while self.moment() < until {
                    self.wait(Some(until), std::thread::sleep);
                }
            }
        }
    }

    /// The clock's present reading.
    pub(super) fn moment(&self) -> Moment {
        Moment { ns: self.now_ns.load(Ordering::Acquire) }
    }

    /// The time since the clock was made.
    pub fn now(&self) -> Duration {
        self.moment().reading()
    }

    /// Moves the clock.
    pub fn advance(&self, time: Duration) {
        let later = |now| Some((Moment { ns: now } + time).ns);
        let _ = self.now_ns.fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
    }

    /// Moves the clock to a moment, unless that is past.
    pub fn advance_to(&self, moment: Moment) {
        self.now_ns.fetch_max(moment.ns, Ordering::AcqRel);
    }

    /// As [`Clock::wait`](super::Clock), until a moment if there is one.
    pub(super) fn wait_on<T>(&self, changed: &Condvar, guard: &mut MutexGuard<'_, T>, until: Option<Moment>) {
        match &self.waits {
            // It waits while other threads have their turns, which need what it has locked.
            WaitMode::Scheduled(scheduler) => MutexGuard::unlocked(guard, || scheduler.wait(self, until)),
            _ => self.wait(until, |limit| _ = changed.wait_for(guard, limit)),
        }
    }

    /// The calling thread waits; `sleep` sleeps until what it waits for has happened, or for so long.
    pub(super) fn wait(&self, until: Option<Moment>, sleep: impl FnOnce(Duration)) {
        match (&self.waits, until) {
            (WaitMode::MoveIt, Some(until)) => self.advance_to(until),
            // Another thread has to end the wait.
            (WaitMode::MoveIt | WaitMode::Sleep, _) => sleep(LOOK_EVERY),
            (WaitMode::Scheduled(scheduler), until) => scheduler.wait(self, until),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use parking_lot::Mutex;

    use super::super::Clock;
    use super::*;

    fn on(clock: VirtualClock) -> (Clock, Arc<VirtualClock>) {
        let clock = Arc::new(clock);
        (clock.clone().into(), clock)
    }

    #[test]
    fn a_clock_for_one_thread_moves_only_by_its_waits() {
        let (clock, hands) = on(VirtualClock::new());
        let calendar = clock.calendar_ms();
        assert_eq!(hands.now(), Duration::ZERO);
        clock.sleep(Duration::from_secs(3600));
        hands.advance(Duration::from_secs(1));
        assert_eq!(hands.now(), Duration::from_secs(3601));
        assert_eq!(clock.calendar_ms() - calendar, 3_601_000);
    }

    /// Each run takes the processor for itself, whether threads have a scheduler or not.
    #[test]
    fn runs_of_several_threads_follow_each_other_on_one_processor() {
        const RUNS: u32 = 1_000_000;
        let clock = VirtualClock::new().with_run_time(Duration::from_millis(1));
        let begin = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    begin.wait();
                    (0..RUNS).for_each(|_| clock.end_body());
                });
            }
        });
        assert_eq!(clock.now(), 8 * RUNS * Duration::from_millis(1));
    }

    #[test]
    fn a_clock_that_is_moved_by_hand_stands_still_meanwhile() {
        let (clock, hands) = on(VirtualClock::moved_by_hand());
        let until = clock.now() + Duration::from_secs(10);
        let (lock, changed) = (Mutex::new(()), Condvar::new());
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                while clock.wait_until(&changed, &mut lock.lock(), until) {}
                clock.now()
            });
            hands.advance(Duration::from_secs(10) - Duration::from_nanos(1));
            // Long enough for it to look.
            thread::sleep(3 * LOOK_EVERY);
            assert!(!sleeper.is_finished());
            hands.advance_to(until);
            assert_eq!(sleeper.join().unwrap(), until);
        });
    }
}
