//! [`Definitions`]: the barrier for transactions that change the catalog, before they take their places.

use std::time::Duration;

use super::sync::{Clock, Condvar, Mutex};

/// Keeps transactions with DDL from their places while a checkpoint takes what it needs of the catalog, and lets only
/// one of them commit at a time. Other transactions never come here.
///
/// A transaction enters before it counts as a commit in progress, and leaves when its writes are applied and its tables
/// are visible. Therefore, while the barrier is held, no DDL is between its place and its visibility.
pub(crate) struct Definitions {
    state: Mutex<DefinitionsState>,
    changed: Condvar,
}

#[derive(Default)]
struct DefinitionsState {
    /// A transaction with DDL has entered.
    on_its_way: bool,
    held: bool,
}

impl DefinitionsState {
    fn is_free(&self) -> bool {
        !self.held && !self.on_its_way
    }
}

impl Definitions {
    pub fn new() -> Definitions {
        Definitions { state: Mutex::new(DefinitionsState::default()), changed: Condvar::new() }
    }

    /// Before the place of a transaction with DDL. `false` if the barrier is held, or another such transaction has
    /// entered: then the thread [waits](Definitions::wait), and tries again when it resumes, which may be long after
    /// the wait has ended.
    pub fn try_enter(&self) -> bool {
        let mut state = self.state.lock();
        let is_free = state.is_free();
        state.on_its_way |= is_free;
        is_free
    }

    /// Waits while no transaction can enter, for at most the limit. Does not enter.
    pub fn wait(&self, clock: &Clock, limit: Duration) {
        let mut state = self.state.lock();
        if !state.is_free() {
            clock.wait(&self.changed, &mut state, Some(limit));
        }
    }

    /// The transaction is visible, or gets no place after all.
    pub fn leave(&self) {
        self.state.lock().on_its_way = false;
        self.changed.notify_all();
    }

    /// Keeps transactions with DDL from their places, once the one that has entered is visible.
    pub fn hold(&self, clock: &Clock) {
        let mut state = self.state.lock();
        while !state.is_free() {
            clock.wait(&self.changed, &mut state, None);
        }
        state.held = true;
    }

    #[cfg(test)]
    pub fn is_held(&self) -> bool {
        self.state.lock().held
    }

    /// Lets them enter again.
    pub fn release(&self) {
        self.state.lock().held = false;
        self.changed.notify_all();
    }
}
