//! [`Blocked`]: what a thread says before it sleeps for something that another transaction has to give back. An executor of
//! a transaction server then lets another one run; to other threads it means nothing.
//!
//! Only waits at which the thread holds no latch may say so: an executor that goes on waits for its turn, and whoever has
//! the turn must never need what it holds, but by a wait that says so, too.

use std::cell::RefCell;
use std::sync::Arc;

/// Who lets others run.
pub(in crate::engine) trait Turns {
    /// The calling executor is about to block.
    fn leave(&self);
    /// What it waited for is there: returns when it is its turn.
    fn come_back(&self);
}

thread_local! {
    static TURNS: RefCell<Option<Arc<dyn Turns>>> = const { RefCell::new(None) };
}

/// Makes the calling thread an executor.
pub(in crate::engine) fn take_turns(turns: Arc<dyn Turns>) {
    TURNS.set(Some(turns));
}

/// The calling thread is blocked until this is dropped.
#[derive(Debug)]
pub(crate) struct Blocked(());

impl Blocked {
    /// Lets another executor run.
    pub fn enter() -> Blocked {
        TURNS.with_borrow(|turns| turns.iter().for_each(|turns| turns.leave()));
        Blocked(())
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        TURNS.with_borrow(|turns| turns.iter().for_each(|turns| turns.come_back()));
    }
}
