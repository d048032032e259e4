//! [`Heaps`]: the storage of the tables that are redone. What one table gives up is another one's room.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::table::{At, RedoTable, Scratch};
use crate::canary;
use crate::error::{Error, Result};
use crate::ids::HeapId;
use crate::store::memory::index::NodePool;
use crate::store::memory::{Heap, SEGMENT_BYTES};
use crate::txn::redo::RedoRecord;

/// The storage of the users' tables that there are.
pub(super) struct Heaps {
    heaps: Mutex<HashMap<HeapId, Arc<Heap>>>,
    /// Of all indexes.
    nodes: Arc<NodePool>,
}

#[cfg(test)]
thread_local! {
    /// How often this thread has searched all segments for empty ones.
    pub(super) static SEARCHES: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

impl Heaps {
    /// No tables yet.
    pub fn new(nodes: Arc<NodePool>) -> Heaps {
        Heaps { heaps: Mutex::default(), nodes }
    }

    /// From here on there is this one.
    pub fn add(&self, heap: &Arc<Heap>) {
        self.heaps.lock().insert(heap.id(), heap.clone());
    }

    /// Its table is gone: it is emptied.
    pub fn remove(&self, heap: &Heap) {
        self.heaps.lock().remove(&heap.id());
        heap.clear();
    }

    /// Gives the segments back in which there is no row any more, and index nodes if they make a segment; during redo no
    /// transaction looks for their slots. False if there are none.
    pub fn give_back_empty(&self) -> bool {
        if canary::is_back("redo-keeps-empty-segments") {
            return false;
        }
        #[cfg(test)]
        SEARCHES.set(SEARCHES.get() + 1);
        let segments = self.heaps.lock().values().map(|heap| heap.give_back_unsought()).sum::<u64>();
        self.nodes.give_back_free(SEGMENT_BYTES as u64) > 0 || segments > 0
    }

    /// Gives the index nodes back that no index uses.
    pub fn give_back_nodes(&self) {
        self.nodes.give_back_free(0);
    }

    /// Redoes one record of a packet, and once more when memory has run out and something could be given back. The first
    /// attempt has changed nothing then. Only once: what is given back after that is the segment that the record took itself.
    pub fn redo(
        &self,
        table: &RedoTable,
        at: At,
        record: &RedoRecord<'_>,
        scratch: &mut Scratch,
    ) -> Result<bool> {
        self.retry(|| table.redo(at, record, scratch))
    }

    /// Does what may come to the memory bound, and if it does once more when something could be given back.
    pub fn retry<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        match attempt() {
            Err(Error::MemoryLimit { .. }) if self.give_back_empty() => attempt(),
            done => done,
        }
    }
}
