//! [`Definitions`]: the barrier before the places of transactions that change the catalog.

use std::time::Duration;

use super::sync::{Clock, Condvar, Mutex};

/// Keeps transactions with DDL from their places while a checkpoint takes what it needs of the catalog, and lets no two of them
/// be on their way. Others never come here.
///
/// A transaction enters before it says that it is in flight, and leaves when its writes are applied and its tables are visible.
/// So while the barrier is held, nothing of any DDL is between its place and its visibility.
pub(crate) struct Definitions {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// A transaction with DDL is on its way.
    on_its_way: bool,
    held: bool,
}

impl State {
    fn is_free(&self) -> bool {
        !self.held && !self.on_its_way
    }
}

impl Definitions {
    pub fn new() -> Definitions {
        Definitions { state: Mutex::new(State::default()), changed: Condvar::new() }
    }

    /// Before the place of a transaction with DDL; false if the barrier is held, or another one is on its way. The thread then
    /// [waits](Definitions::wait), and enters if it can when it goes on: that it may go on may take longer than the wait.
    pub fn try_enter(&self) -> bool {
        let mut state = self.state.lock();
        let is_free = state.is_free();
        state.on_its_way |= is_free;
        is_free
    }

    /// Waits while a transaction could not enter, at most so long. Does not enter.
    pub fn wait(&self, clock: &Clock, limit: Duration) {
        let mut state = self.state.lock();
        if !state.is_free() {
            clock.wait(&self.changed, &mut state, Some(limit));
        }
    }

    /// The transaction is visible, or has no place after all.
    pub fn leave(&self) {
        self.state.lock().on_its_way = false;
        self.changed.notify_all();
    }

    /// Keeps transactions with DDL from their places, once the one that is on its way is visible.
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

    /// Lets them go on.
    pub fn release(&self) {
        self.state.lock().held = false;
        self.changed.notify_all();
    }
}
