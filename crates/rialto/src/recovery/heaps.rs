//! [`Heaps`]: the storage of the tables during redo. The segments that one table gives up are room for the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::table::{At, RedoTable, Scratch};
use crate::commit::redo::RedoRecord;
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::ids::HeapId;
use crate::store::Budget;
use crate::store::memory::SEGMENT_BYTES;
use crate::store::tree::NodePool;

/// During redo tables are compacted again as long as each compaction frees at least one in this many of the segments in
/// use.
const COMPACTION_FREES: u64 = 64;

/// The storage of the existing users' tables.
pub(super) struct Heaps {
    tables: Mutex<HashMap<HeapId, Arc<RedoTable>>>,
    /// Whether the last compaction during redo was worth its cost.
    gains: AtomicBool,
    /// See [`Heaps::let_rows_move`].
    rows_may_move: AtomicBool,
    /// The nodes of all indexes.
    nodes: Arc<NodePool>,
}

#[cfg(test)]
thread_local! {
    /// How often this thread has searched all segments for empty ones.
    pub(super) static SEARCHES: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

impl Heaps {
    /// No tables yet; `threads` threads will redo them. Rows of tables that one thread redoes may move.
    pub fn new(nodes: Arc<NodePool>, threads: usize) -> Heaps {
        Heaps {
            tables: Mutex::default(),
            rows_may_move: AtomicBool::new(threads == 1),
            gains: AtomicBool::new(true),
            nodes,
        }
    }

    /// Adds a table with its storage, or replaces it.
    pub fn add(&self, table: &Arc<RedoTable>) {
        self.tables.lock().insert(table.heap.id(), table.clone());
    }

    /// Removes a table: its storage is emptied.
    pub fn remove(&self, table: &RedoTable) {
        self.tables.lock().remove(&table.heap.id());
        table.heap.clear();
    }

    /// Sets whether rows may move. They may not where transactions use the tables, which then have secondary indexes.
    pub fn let_rows_move(&self, may_move: bool) {
        self.rows_may_move.store(may_move, Ordering::Relaxed);
    }

    /// Compacts the tables, if rows may move. Returns whether that frees anything.
    fn compact(&self) -> bool {
        // The injected fault must keep the empty segments, which a compaction would free.
        let keeps_empty = fault_injection::is_on("redo-keeps-empty-segments");
        if keeps_empty || !self.rows_may_move.load(Ordering::Relaxed) {
            return false;
        }
        let tables = self.tables.lock();
        let in_use: usize = tables.values().map(|table| table.heap.owned().len()).sum();
        let freed: u64 = tables.values().map(|table| table.compact()).sum();
        self.gains.store(freed >= in_use as u64 / COMPACTION_FREES, Ordering::Relaxed);
        freed > 0
    }

    /// The same during redo, as long as it is worth its cost: each compaction visits all tables.
    fn compact_again(&self) -> bool {
        self.gains.load(Ordering::Relaxed) && self.compact()
    }

    /// Gives back what rows do not need, before secondary indexes and other tables take it. Rows are moved together
    /// where memory is short.
    pub fn make_room(&self, budget: &Budget) {
        self.give_back_empty();
        if budget.used() > budget.limit() / 2 {
            self.compact();
        }
    }

    /// Gives back the segments that hold no row, and index nodes if they make up a segment. During redo no transaction
    /// seeks their slots. False if there are none.
    pub fn give_back_empty(&self) -> bool {
        if fault_injection::is_on("redo-keeps-empty-segments") {
            return false;
        }
        #[cfg(test)]
        SEARCHES.set(SEARCHES.get() + 1);
        let segments = self.tables.lock().values().map(|table| table.heap.give_back_unsought()).sum::<u64>();
        self.nodes.give_back_free(SEGMENT_BYTES as u64) > 0 || segments > 0
    }

    /// Gives back free index nodes.
    pub fn give_back_nodes(&self) {
        self.nodes.give_back_free(0);
    }

    /// Redoes one record of a packet. If memory runs out it tries once more after giving back empty segments, and once
    /// more after moving rows together. A failed attempt has changed nothing. There are no more attempts: what could be
    /// given back after that is only the segment that the record itself took.
    pub fn redo(
        &self,
        table: &RedoTable,
        at: At,
        record: &RedoRecord<'_>,
        scratch: &mut Scratch,
    ) -> Result<bool> {
        self.retry(|| table.redo(at, record, scratch))
    }

    /// Runs an attempt that may reach the memory bound; as [`Heaps::redo`].
    pub fn retry<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        let ways: [fn(&Heaps) -> bool; 2] = [Heaps::give_back_empty, Heaps::compact_again];
        let mut done = attempt();
        for make_room in ways {
            if !matches!(done, Err(Error::MemoryLimit { .. })) {
                break;
            }
            if make_room(self) {
                done = attempt();
            }
        }
        done
    }
}
