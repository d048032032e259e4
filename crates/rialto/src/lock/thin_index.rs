//! [`ThinIndex`]: where a long list of thin locks names a record, so that the list is not walked for one that is locked again.

use hashbrown::HashTable;

use super::thin::VOID;

/// The entries of an owner's list of thin locks by their record: made when first asked for, so that a lock costs nothing for it.
#[derive(Debug, Default)]
pub(super) struct ThinIndex {
    /// A record and its place, for every entry before `length` that names one. No record is here twice (L9).
    places: HashTable<(u64, u32)>,
    length: usize,
}

impl ThinIndex {
    /// Takes in what the list has got since the last time; the list is so long now.
    pub(super) fn extend(&mut self, length: usize, record_at: impl Fn(usize) -> u64) {
        for at in self.length..length {
            let record = record_at(at);
            if record == VOID {
                continue;
            }
            debug_assert_eq!(self.place_of(record), None, "L9: a list names a record once");
            self.places.insert_unique(hash(record), (record, at as u32), |&(record, _)| hash(record));
        }
        self.length = length;
    }

    /// Where the list names the record.
    pub(super) fn place_of(&self, record: u64) -> Option<usize> {
        self.places.find(hash(record), |place| place.0 == record).map(|place| place.1 as usize)
    }

    /// The record's entry is taken back.
    pub(super) fn remove(&mut self, record: u64) {
        if let Ok(entry) = self.places.find_entry(hash(record), |place| place.0 == record) {
            entry.remove();
        }
    }

    /// The list has become shorter, by entries that were taken back.
    pub(super) fn shorten(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// The list is short. The memory is given back.
    pub(super) fn clear(&mut self) {
        *self = ThinIndex::default();
    }
}

/// Addresses differ in few bits, and the table takes a hash's lowest and highest ones.
fn hash(record: u64) -> u64 {
    let mixed = record.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ mixed >> 32
}
