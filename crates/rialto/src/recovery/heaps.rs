//! [`Heaps`]: the storage of the tables that are redone. What one table gives up is another one's room.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::store::memory::{Heap, Unclaimed};

/// The storage of the users' tables that there are.
#[derive(Default)]
pub(super) struct Heaps(Mutex<Vec<Arc<Heap>>>);

impl Heaps {
    /// From here on there are these.
    pub fn set(&self, heaps: impl Iterator<Item = Arc<Heap>>) {
        *self.0.lock() = heaps.collect();
    }

    /// Gives the segments back in which there is no row any more; during redo no transaction looks for their slots. False if there are none.
    pub fn give_back_empty(&self) -> bool {
        let given = self.0.lock().iter().map(|heap| heap.give_back_empty(&mut Unclaimed)).sum::<usize>();
        given > 0
    }
}
