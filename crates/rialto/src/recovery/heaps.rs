//! [`Heaps`]: the storage of the tables that are redone. What one table gives up is another one's room.

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
use crate::store::memory::index::NodePool;

/// Tables are compacted again on the way as long as each compaction frees one in so many of the segments in use.
const COMPACTION_FREES: u64 = 64;

/// The storage of the users' tables that there are.
pub(super) struct Heaps {
    tables: Mutex<HashMap<HeapId, Arc<RedoTable>>>,
    /// The last compaction on the way was worth its cost.
    gains: AtomicBool,
    /// See [`Heaps::let_rows_move`].
    rows_may_move: AtomicBool,
    /// Of all indexes.
    nodes: Arc<NodePool>,
}

#[cfg(test)]
thread_local! {
    /// How often this thread has searched all segments for empty ones.
    pub(super) static SEARCHES: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

impl Heaps {
    /// No tables yet, which so many threads will redo. Rows of tables that one thread redoes may move.
    pub fn new(nodes: Arc<NodePool>, threads: usize) -> Heaps {
        Heaps {
            tables: Mutex::default(),
            rows_may_move: AtomicBool::new(threads == 1),
            gains: AtomicBool::new(true),
            nodes,
        }
    }

    /// From here on this is the table with its storage.
    pub fn add(&self, table: &Arc<RedoTable>) {
        self.tables.lock().insert(table.heap.id(), table.clone());
    }

    /// The table is gone: its storage is emptied.
    pub fn remove(&self, table: &RedoTable) {
        self.tables.lock().remove(&table.heap.id());
        table.heap.clear();
    }

    /// Whether rows may move: not where transactions use the tables, which have secondary indexes then.
    pub fn let_rows_move(&self, may_move: bool) {
        self.rows_may_move.store(may_move, Ordering::Relaxed);
    }

    /// Compacts the tables, if rows may move; whether that frees anything.
    fn compact(&self) -> bool {
        // It would free the empty ones, too.
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

    /// The same on the way, as long as it is worth its cost: each goes through all tables.
    fn compact_again(&self) -> bool {
        self.gains.load(Ordering::Relaxed) && self.compact()
    }

    /// Gives back what rows do not need, before secondary indexes and other tables take it: rows are moved together where memory is
    /// short.
    pub fn make_room(&self, budget: &Budget) {
        self.give_back_empty();
        if budget.used() > budget.limit() / 2 {
            self.compact();
        }
    }

    /// Gives the segments back in which there is no row any more, and index nodes if they make a segment; during redo no
    /// transaction looks for their slots. False if there are none.
    pub fn give_back_empty(&self) -> bool {
        if fault_injection::is_on("redo-keeps-empty-segments") {
            return false;
        }
        #[cfg(test)]
        SEARCHES.set(SEARCHES.get() + 1);
        let segments = self.tables.lock().values().map(|table| table.heap.give_back_unsought()).sum::<u64>();
        self.nodes.give_back_free(SEGMENT_BYTES as u64) > 0 || segments > 0
    }

    /// Gives the index nodes back that no index uses.
    pub fn give_back_nodes(&self) {
        self.nodes.give_back_free(0);
    }

    /// Redoes one record of a packet, and once more when memory has run out and something could be given back, and once more when rows
    /// could be moved together. An attempt that fails has changed nothing. Only so often: what is given back after that is the
    /// segment that the record took itself.
    pub fn redo(
        &self,
        table: &RedoTable,
        at: At,
        record: &RedoRecord<'_>,
        scratch: &mut Scratch,
    ) -> Result<bool> {
        self.retry(|| table.redo(at, record, scratch))
    }

    /// Does what may come to the memory bound; as [`Heaps::redo`].
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
