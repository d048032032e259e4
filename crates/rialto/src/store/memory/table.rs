//! [`MemoryTable`]: the storage of one table in memory.

use std::sync::Arc;

use super::{Heap, RecordRef, Segments};
use crate::ids::Lsn;
use crate::row::WhichIndex;
use crate::store::Followed;
use crate::store::tree::Index;

/// The records of a table, and its indexes.
#[derive(Clone)]
pub(crate) struct MemoryTable {
    /// The heap's segments, one load nearer.
    segments: Arc<Segments>,
    pub heap: Arc<Heap>,
    pub primary: Arc<Index>,
    /// As in [`Schema::indexes`](crate::row::Schema::indexes).
    pub secondaries: Vec<Arc<Index>>,
}

impl MemoryTable {
    pub fn new(heap: Arc<Heap>, primary: Arc<Index>, secondaries: Vec<Arc<Index>>) -> MemoryTable {
        MemoryTable { segments: heap.segments().clone(), heap, primary, secondaries }
    }

    #[inline]
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    #[inline]
    pub fn index(&self, which: WhichIndex) -> &Arc<Index> {
        match which {
            WhichIndex::Primary => &self.primary,
            WhichIndex::Secondary(position) => &self.secondaries[position],
        }
    }

    pub fn index_mut(&mut self, which: WhichIndex) -> &mut Arc<Index> {
        match which {
            WhichIndex::Primary => &mut self.primary,
            WhichIndex::Secondary(position) => &mut self.secondaries[position],
        }
    }

    /// Reads the body that an index entry leads to, of a row that is not locked.
    ///
    /// The entry is looked up again under the segment's latch, which keeps the slot as it is. An entry goes before its
    /// slot is freed, so a slot that an entry points to belongs to that row. Without the latch the slot may soon be
    /// another row's, even while the entry's key is locked, because rows move. Therefore everything that the caller
    /// needs of the row is read here.
    pub(in crate::store) fn follow(&self, which: WhichIndex, entry: &[u8], body: &mut Vec<u8>) -> Followed {
        let (index, segments) = (self.index(which), self.segments());
        loop {
            let found = index.get(entry);
            let removal = found.removal;
            let Some(record) = found.value.map(RecordRef) else {
                return Followed { record: None, lsn: Lsn::ZERO, removal, there: false };
            };
            let _latched = segments.latch(record.segment());
            if index.unchanged(&found.leaf) || index.get(entry).value == Some(record.0) {
                // Entries go before their slots are freed, and freeing takes this latch.
                assert!(
                    !segments.is_free(record),
                    "an entry of an index of heap {} leads to a free slot: a bug, please report it",
                    self.heap.id().0
                );
                segments.read(record, body);
                let there = !segments.is_absent(record);
                return Followed { record: Some(record.into()), lsn: segments.lsn(record), removal, there };
            }
        }
    }
}
