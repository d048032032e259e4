//! The synchronisation primitives of the hand-over, behind one interface: the model compiles the same sources against
//! primitives whose every step is scheduled by a model checker (`model.rs`).

use std::time::Duration;

pub(in crate::engine) use std::sync::atomic::{AtomicBool, AtomicUsize};

pub(in crate::engine) use parking_lot::{Mutex, MutexGuard};

/// A condition variable that takes its guard by value.
#[derive(Debug, Default)]
pub(in crate::engine) struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// Sleeps until notified; at most for `limit`, if there is one. May return early.
    pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>, limit: Option<Duration>) -> MutexGuard<'a, T> {
        match limit {
            Some(limit) => drop(self.0.wait_for(&mut guard, limit)),
            None => self.0.wait(&mut guard),
        }
        guard
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
