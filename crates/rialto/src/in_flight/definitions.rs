//! [`Definitions`]: the gate before the places of transactions that change the catalog.

use super::sync::{Condvar, Mutex};

/// Keeps transactions with DDL from their places while a checkpoint takes what it needs of the catalog, and lets no two of them
/// be on their way. Others never come here.
///
/// A transaction enters before it says that it is in flight, and leaves when its writes are applied and its tables are visible.
/// So while the gate is held, nothing of any DDL is between its place and its visibility.
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

impl Definitions {
    pub fn new() -> Definitions {
        Definitions { state: Mutex::new(State::default()), changed: Condvar::new() }
    }

    /// Before the place of a transaction with DDL. Waits while the gate is held.
    pub fn enter(&self) {
        let mut state = self.state.lock();
        while state.held || state.on_its_way {
            self.changed.wait(&mut state);
        }
        state.on_its_way = true;
    }

    /// The transaction is visible, or has no place after all.
    pub fn leave(&self) {
        self.state.lock().on_its_way = false;
        self.changed.notify_all();
    }

    /// Keeps transactions with DDL from their places, once the one that is on its way is visible.
    pub fn hold(&self) {
        let mut state = self.state.lock();
        while state.held || state.on_its_way {
            self.changed.wait(&mut state);
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
