//! [`Freed`]: the condition variable on which threads wait for a packet slot.

use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::io::{Clock, Moment};

/// Tells threads that wait for a packet slot that there may be one: packets were gathered, or the log takes no more. It
/// costs one load while no thread waits.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    waiting: AtomicU32,
    /// How often it was told while a thread waited.
    told: Mutex<u64>,
    changed: Condvar,
}

/// A thread that waits, counted as long as this lives.
pub(crate) struct Waiter<'a> {
    freed: &'a Freed,
    seen: u64,
}

impl Freed {
    /// There may be slots for this many threads.
    #[inline]
    pub fn tell(&self, slots: u64) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.wake(slots);
        }
    }

    #[cold]
    fn wake(&self, slots: u64) {
        *self.told.lock() += 1;
        for _ in 0..slots.min(self.waiting.load(Ordering::SeqCst).into()) {
            self.changed.notify_one();
        }
    }

    /// The thread waits from now on: what is told from here on ends its next sleep.
    pub fn join(&self) -> Waiter<'_> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        Waiter { freed: self, seen: *self.told.lock() }
    }
}

impl Waiter<'_> {
    /// Sleeps until `until`, or until something is told that was not told before this thread joined or before its last
    /// sleep ended.
    pub fn sleep(&mut self, clock: &Clock, until: Moment) {
        let mut told = self.freed.told.lock();
        while *told == self.seen && clock.wait_until(&self.freed.changed, &mut told, until) {}
        self.seen = *told;
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.freed.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_told_before_the_sleep_ends_it_too() {
        let freed = Freed::default();
        let until = Moment::now() + Duration::from_secs(60);
        freed.tell(1);
        let mut waiter = freed.join();
        freed.tell(1);
        waiter.sleep(&Clock::System, until);
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(move || waiter.sleep(&Clock::System, until));
            while !sleeper.is_finished() {
                freed.tell(1);
                std::thread::yield_now();
            }
        });
        assert!(Moment::now() < until, "it was woken");
        let mut waiter = freed.join();
        waiter.sleep(&Clock::System, Moment::now());
    }
}
