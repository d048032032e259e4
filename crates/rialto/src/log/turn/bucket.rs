//! [`Bucket`]: a word that committers sleep on.

use std::time::Duration;

use super::{AtomicU32, Futex, Machine, Ordering};

/// A word to sleep on, with a count of its sleepers.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Bucket<F> {
    pub(super) epoch: F,
    pub(super) sleepers: AtomicU32,
}

impl<F: Futex> Bucket<F> {
    pub(super) fn new<M: Machine<Futex = F>>(machine: &M) -> Bucket<F> {
        Bucket { epoch: machine.futex(0), sleepers: AtomicU32::new(0) }
    }

    /// Counts the sleeper, and then sleeps if `must_sleep` says so.
    pub(super) fn sleep(&self, limit: Option<Duration>, must_sleep: impl FnOnce() -> bool) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let epoch = self.epoch.load();
        if must_sleep() {
            self.epoch.wait(epoch, limit);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes all sleepers with one call, and returns how many it woke; makes no call if there are none.
    pub(super) fn wake(&self) -> Option<u32> {
        if self.sleepers.load(Ordering::SeqCst) == 0 {
            return None;
        }
        self.epoch.fetch_add(1);
        Some(self.epoch.wake_all())
    }
}
