//! The tables that a transaction slot has used. They are kept across transactions, so that a transaction counts no
//! references.

use std::sync::Arc;

use crate::catalog::{NumberShare, NumbersAtHand};
use crate::ids::TableId;
use crate::opening::{Opening, TableKey};
use crate::store::TableVersion;

/// A power of two. Of tables whose numbers agree in the low bits, one is found at the first probe.
const SLOTS: usize = 16;

/// Table versions by a small number. The transaction's lock slot knows which of them it has locked.
pub(crate) struct TableCache {
    /// The opening of the database that the tables of handles have to belong to.
    opening: Opening,
    entries: Vec<TableEntry>,
    /// By the low bits of the table's number: where the last table with these bits was put.
    by_id: [u32; SLOTS],
}

struct TableEntry {
    key: TableKey,
    version: Arc<TableVersion>,
    numbers: NumbersAtHand,
}

/// A cache that holds more tables than this is cleared.
const ENTRIES_MAX: usize = 256;

impl TableCache {
    pub fn new(opening: Opening) -> TableCache {
        TableCache { opening, entries: Vec::new(), by_id: [0; SLOTS] }
    }

    /// The opening of the database that the tables of handles have to belong to.
    #[inline]
    pub fn opening(&self) -> Opening {
        self.opening
    }

    /// Begins a transaction.
    #[inline]
    pub fn begin(&mut self) {
        if self.entries.len() > ENTRIES_MAX {
            self.entries.clear();
        }
    }

    /// The newest version of the table.
    #[inline]
    pub fn find(&self, id: TableId) -> Option<u32> {
        self.find_key(self.opening.key(id))
    }

    /// The newest version of a handle's table.
    #[inline]
    pub fn find_key(&self, key: TableKey) -> Option<u32> {
        let slot = self.by_id[key.id().0 as usize % SLOTS];
        match self.entries.get(slot as usize) {
            // No other version of the table was put in later: that would have taken its slot.
            Some(entry) if entry.key == key => Some(slot),
            _ => self.search(key),
        }
    }

    /// The same, and the version, if it is found at the first probe.
    #[inline(always)]
    pub fn find_at_once(&self, key: TableKey) -> Option<(u32, &TableVersion)> {
        let slot = self.by_id[key.id().0 as usize % SLOTS];
        let entry = self.entries.get(slot as usize)?;
        (entry.key == key).then_some((slot, &*entry.version))
    }

    #[cold]
    fn search(&self, key: TableKey) -> Option<u32> {
        self.entries.iter().rposition(|entry| entry.key == key).map(|slot| slot as u32)
    }

    #[inline]
    pub fn id(&self, slot: u32) -> TableId {
        self.entries[slot as usize].key.id()
    }

    #[inline]
    pub fn at(&self, slot: u32) -> &TableVersion {
        &self.entries[slot as usize].version
    }

    pub fn shared(&self, slot: u32) -> &Arc<TableVersion> {
        &self.entries[slot as usize].version
    }

    /// Puts a version in, in the place of an older one of the same table.
    pub fn put(&mut self, version: Arc<TableVersion>) -> u32 {
        match self.find(version.id) {
            Some(slot) => {
                let entry = &mut self.entries[slot as usize];
                entry.version = version;
                entry.numbers = NumbersAtHand::default();
                slot
            }
            None => self.supersede(version),
        }
    }

    /// Puts a version in beside an older one of the same table, which writes of this transaction may still name.
    pub fn supersede(&mut self, version: Arc<TableVersion>) -> u32 {
        let slot = self.entries.len() as u32;
        let key = self.opening.key(version.id);
        self.by_id[version.id.0 as usize % SLOTS] = slot;
        self.entries.push(TableEntry { key, version, numbers: NumbersAtHand::default() });
        slot
    }

    /// A hidden row number of this share, or of any share.
    #[inline]
    pub fn next_row_number(&mut self, slot: u32, share: Option<NumberShare>) -> u64 {
        let TableEntry { version, numbers, .. } = &mut self.entries[slot as usize];
        numbers.take(&version.numbers, share)
    }

    /// The number of entries. A savepoint keeps it for [`TableCache::cut_back`].
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Forgets the retired versions among the entries after the first `kept` ones: the transaction has made them and
    /// taken them back. The first `kept` entries keep their positions. What names a later entry is taken back already,
    /// so the later entries that stay close up. A table that came into the list there stays in it, because the
    /// transaction may have it locked.
    #[cold]
    pub fn cut_back(&mut self, kept: usize) {
        let mut slot = 0;
        self.entries.retain(|entry| {
            slot += 1;
            slot <= kept || !entry.version.is_retired()
        });
        self.by_id = [0; SLOTS];
        for (slot, entry) in self.entries.iter().enumerate() {
            self.by_id[entry.key.id().0 as usize % SLOTS] = slot as u32;
        }
    }

    pub fn clear(&mut self) {
        self.entries.clear();
    }
}
