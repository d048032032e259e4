//! The tables that a transaction slot has used, kept across transactions so that none of them counts references.

use std::sync::Arc;

use crate::catalog::TableVersion;
use crate::ids::TableId;

/// A power of two; of tables whose numbers agree in the low bits, one is found at the first look.
const PLACES: usize = 16;

/// Table versions by a small number. Which of them the running transaction has locked, its lock slot knows.
#[derive(Default)]
pub(crate) struct TableCache {
    entries: Vec<Entry>,
    /// By the low bits of the table's number: where the last one of these was put.
    places: [u32; PLACES],
}

struct Entry {
    id: TableId,
    version: Arc<TableVersion>,
    /// Hidden row numbers at hand: next, end.
    numbers: (u64, u64),
}

/// A cache that holds more tables than this starts anew.
const ENTRIES_MAX: usize = 256;

impl TableCache {
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
        let place = self.places[id.0 as usize % PLACES];
        match self.entries.get(place as usize) {
            // No other version of it was put in later: that would have taken its place.
            Some(entry) if entry.id == id => Some(place),
            _ => self.search(id),
        }
    }

    /// The same, and the version, if it is found at the first look.
    #[inline(always)]
    pub fn find_at_once(&self, id: TableId) -> Option<(u32, &TableVersion)> {
        let place = self.places[id.0 as usize % PLACES];
        let entry = self.entries.get(place as usize)?;
        (entry.id == id).then_some((place, &*entry.version))
    }

    #[cold]
    fn search(&self, id: TableId) -> Option<u32> {
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
            None => self.supersede(version),
        }
    }

    /// Puts a version in beside an older one of the same table, which writes of this transaction may still name.
    pub fn supersede(&mut self, version: Arc<TableVersion>) -> u32 {
        let slot = self.entries.len() as u32;
        self.places[version.id.0 as usize % PLACES] = slot;
        self.entries.push(Entry { id: version.id, version, numbers: (0, 0) });
        slot
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
