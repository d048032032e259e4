//! The synchronisation primitives that the lock manager uses, behind one interface: the model tests compile the same
//! sources against another `sync`, whose primitives are scheduled by a model checker.

use std::time::{Duration, Instant};

use crate::io::Clock;

pub(super) use parking_lot::{Mutex, MutexGuard};
pub(super) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};

/// The number of cache lines over which a contended counter is spread.
pub(super) const STRIPES: usize = 64;

/// Checks a few times whether a wait is over before the waiter falls asleep. This takes about as long as a short
/// transaction that runs on another core holds a lock, which is less than falling asleep and being woken takes.
pub(super) fn spin_a_while(is_over: impl Fn() -> bool) {
    for _ in 0..64 {
        if is_over() {
            return;
        }
        std::hint::spin_loop();
    }
}

/// About as long as falling asleep and being woken takes.
const GIVE_WAY_WITHIN: Duration = Duration::from_micros(100);

/// Lets other threads run until a wait is over, for about as long as falling asleep and being woken takes. It is for
/// locks whose holder waits for nothing, so that it runs, or would run if a core were free.
pub(super) fn give_way(is_over: impl Fn() -> bool) {
    let began = Instant::now();
    for _ in 0..100 {
        if is_over() {
            return;
        }
        // Where there are more threads than cores, this may take as long as another thread's turn on the core.
        std::thread::yield_now();
        if began.elapsed() > GIVE_WAY_WITHIN {
            return;
        }
    }
}

/// Locks a mutex that is held across waits on this clock.
pub(super) fn lock_across_waits<'m, T>(clock: &Clock, mutex: &'m Mutex<T>) -> MutexGuard<'m, T> {
    clock.lock(mutex)
}

/// A condition variable that takes its guard by value.
#[derive(Debug, Default)]
pub(super) struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// Sleeps until notified, at most for `limit`, perhaps less.
    pub(super) fn wait_for<'a, T>(
        &self,
        clock: &Clock,
        mut guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> MutexGuard<'a, T> {
        clock.wait(&self.0, &mut guard, Some(limit));
        guard
    }

    pub(super) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(super) fn notify_all(&self) {
        self.0.notify_all();
    }
}
