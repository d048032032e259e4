//! [`ThinIndex`]: the records that a long list of thin locks names, so that a request for a record that may be locked
//! already does not search the list.

use hashbrown::HashTable;

use super::{LENGTH_KEPT, VOID};
use crate::store::Budget;

/// The records of an owner's list of thin locks. It is filled only when it is first asked, so a lock that is never
/// asked for again costs nothing here.
#[derive(Debug, Default)]
pub(in super::super) struct ThinIndex {
    /// The records of the entries before `length`. No record is here twice (L9).
    records: HashTable<u64>,
    length: usize,
    /// The bytes that it has taken from the budget: for the room beyond that of a short list.
    bytes: u64,
}

impl ThinIndex {
    /// Adds the entries that the list has got since the last time; its length is `length` now. False: there is no
    /// memory for them.
    pub(in super::super) fn extend(
        &mut self,
        length: usize,
        record_at: impl Fn(usize) -> u64,
        memory: &Budget,
    ) -> bool {
        while self.length < length {
            let record = record_at(self.length);
            if record != VOID {
                if self.records.len() == self.records.capacity() && !self.grow(memory) {
                    return false;
                }
                debug_assert!(!self.has(record), "L9: a list names a record once");
                self.records.insert_unique(hash(record), record, |&record| hash(record));
            }
            self.length += 1;
        }
        true
    }

    #[cold]
    fn grow(&mut self, memory: &Budget) -> bool {
        let records = (2 * self.records.len()).max(LENGTH_KEPT);
        let bytes = if records > LENGTH_KEPT { bytes_of(records) } else { 0 };
        if !memory.take(bytes) {
            return false;
        }
        self.records.reserve(records - self.records.len(), |&record| hash(record));
        memory.give(std::mem::replace(&mut self.bytes, bytes));
        true
    }

    /// Whether the list names the record.
    pub(in super::super) fn has(&self, record: u64) -> bool {
        self.records.find(hash(record), |&other| other == record).is_some()
    }

    /// Removes a record whose entry was taken back.
    pub(in super::super) fn remove(&mut self, record: u64) {
        if let Ok(entry) = self.records.find_entry(hash(record), |&other| other == record) {
            entry.remove();
        }
    }

    /// Notes the list's length after entries at its end were taken back.
    pub(in super::super) fn shorten(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Empties the index of a list that is short now, and gives its memory back.
    pub(in super::super) fn clear(&mut self, memory: &Budget) {
        memory.give(self.bytes);
        *self = ThinIndex::default();
    }
}

/// The bytes of a table for so many records, at most.
fn bytes_of(records: usize) -> u64 {
    // One byte for each bucket, and a few behind them. At most seven of eight buckets are in use.
    let buckets = (records * 8).div_ceil(7).next_power_of_two();
    (buckets * (size_of::<u64>() + 1) + 64) as u64
}

/// Addresses differ in few bits, and the table uses the lowest and the highest bits of a hash.
fn hash(record: u64) -> u64 {
    let mixed = record.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ mixed >> 32
}
