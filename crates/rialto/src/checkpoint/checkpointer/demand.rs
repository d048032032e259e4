//! [`Demand`]: a checkpoint that a caller waits for, and which therefore hurries.

use std::sync::atomic::Ordering;

use crate::checkpoint::Checkpointer;

/// A caller waits for a checkpoint, or for the end of one: until this is dropped, sweeps make no pauses.
pub(super) struct Demand<'a>(&'a Checkpointer);

impl Demand<'_> {
    pub(super) fn of(checkpointer: &Checkpointer) -> Demand<'_> {
        checkpointer.demands.fetch_add(1, Ordering::SeqCst);
        checkpointer.control.set_urgent(true);
        Demand(checkpointer)
    }
}

impl Drop for Demand<'_> {
    fn drop(&mut self) {
        self.0.demands.fetch_sub(1, Ordering::SeqCst);
        self.0.calm();
    }
}
