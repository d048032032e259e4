//! The tables that a transaction slot has used, kept across transactions so that none of them counts references.

use std::sync::Arc;

use crate::catalog::TableVersion;
use crate::ids::TableId;
use crate::lock::LockMode;

/// Table versions by a small number, with the lock that the running transaction holds on each.
#[derive(Default)]
pub(crate) struct TableCache {
    entries: Vec<Entry>,
    /// Incremented by each transaction, so that locks need no clearing.
    transaction: u64,
}

struct Entry {
    id: TableId,
    version: Arc<TableVersion>,
    locked: Option<LockMode>,
    transaction: u64,
    /// Hidden row numbers at hand: next, end.
    numbers: (u64, u64),
}

/// A cache that holds more tables than this starts anew.
const ENTRIES_MAX: usize = 256;

impl TableCache {
    /// Begins a transaction: forgets the locks of the last one.
    pub fn begin(&mut self) {
        self.transaction += 1;
        if self.entries.len() > ENTRIES_MAX {
            self.entries.clear();
        }
    }

    #[inline]
    pub fn find(&self, id: TableId) -> Option<u32> {
        self.entries.iter().rposition(|entry| entry.id == id).map(|slot| slot as u32)
    }

    #[inline]
    pub fn id(&self, slot: u32) -> TableId {
        self.entries[slot as usize].id
    }

    #[inline]
    pub fn at(&self, slot: u32) -> &TableVersion {
        &self.entries[slot as usize].version
    }

    pub fn shared(&self, slot: u32) -> &Arc<TableVersion> {
        &self.entries[slot as usize].version
    }

    /// Puts a version in, in place of an older one of the same table.
    pub fn put(&mut self, version: Arc<TableVersion>) -> u32 {
        match self.find(version.id) {
            Some(slot) => {
                let entry = &mut self.entries[slot as usize];
                entry.version = version;
                entry.numbers = (0, 0);
                slot
            }
            None => {
                let entry = Entry { id: version.id, version, locked: None, transaction: 0, numbers: (0, 0) };
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        }
    }

    /// Puts a version in beside an older one of the same table, which writes of this transaction may still name.
    pub fn supersede(&mut self, version: Arc<TableVersion>) -> u32 {
        let held = self.find(version.id).and_then(|slot| self.locked(slot));
        let entry =
            Entry { id: version.id, version, locked: held, transaction: self.transaction, numbers: (0, 0) };
        self.entries.push(entry);
        self.entries.len() as u32 - 1
    }

    /// The lock that the running transaction holds on the table.
    #[inline]
    pub fn locked(&self, slot: u32) -> Option<LockMode> {
        let entry = &self.entries[slot as usize];
        entry.locked.filter(|_| entry.transaction == self.transaction)
    }

    #[inline]
    pub fn note_locked(&mut self, slot: u32, mode: LockMode) {
        let entry = &mut self.entries[slot as usize];
        entry.locked = Some(mode);
        entry.transaction = self.transaction;
    }

    pub fn next_row_number(&mut self, slot: u32) -> u64 {
        let entry = &mut self.entries[slot as usize];
        if entry.numbers.0 == entry.numbers.1 {
            entry.numbers = entry.version.numbers.take_block();
        }
        entry.numbers.0 += 1;
        entry.numbers.0 - 1
    }

    pub fn clear(&mut self) {
        self.entries.clear();
    }
}
