//! [`ThinIndex`]: where a long list of thin locks names a record, so that a lock that is strengthened does not walk the list.

use hashbrown::HashTable;
use smallvec::SmallVec;

use super::thin::VOID;

/// The places in a list that name one record, the earliest first.
pub(super) type Entries = SmallVec<[u32; 2]>;

/// The entries of an owner's list of thin locks by their record: made when first asked for, so that a lock costs nothing for it.
#[derive(Debug, Default)]
pub(super) struct ThinIndex {
    /// A record and its place, for every entry before `length` that names one. An entry that was taken back since may still be
    /// here.
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
            self.places.insert_unique(hash(record), (record, at as u32), |&(record, _)| hash(record));
        }
        self.length = length;
    }

    /// Where the list names the record.
    pub(super) fn entries(&self, record: u64, record_at: impl Fn(usize) -> u64) -> Entries {
        let named = self.places.iter_hash(hash(record)).filter(|place| place.0 == record);
        let mut entries: Entries =
            named.map(|place| place.1).filter(|&at| record_at(at as usize) == record).collect();
        entries.sort_unstable();
        entries.dedup();
        entries
    }

    /// The entry is taken back.
    pub(super) fn remove(&mut self, record: u64, at: u32) {
        if let Ok(entry) = self.places.find_entry(hash(record), |&place| place == (record, at)) {
            entry.remove();
        }
    }

    /// The list has become shorter.
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
