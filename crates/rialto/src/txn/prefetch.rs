//! Rows whose keys are known ahead are prefetched together (see [`LeafAhead`]).

use super::context::Context;
use super::transaction::Transaction;
use crate::row::{IntoKey, Key, WhichIndex};
use crate::store::Table;
use crate::store::memory::index::{Index, LeafAhead};
use crate::store::memory::{RecordRef, Segments};

/// How many lookups go side by side: a processor has about so many loads under way.
const TOGETHER: usize = 16;

impl Transaction<'_> {
    /// Prefetches the rows with these primary keys into the processor's cache, up to 16 at a time, before the transaction uses them one by one.
    ///
    /// A lookup in a large table waits for memory three or four times. Separate lookups wait one after another; prefetching overlaps
    /// their waits. Small tables (an index of at most 252 leaves) are skipped.
    ///
    /// It is a hint: it returns no row, takes no lock and changes only the time of later operations. A key of the wrong type, and a handle of
    /// another database or opening, are skipped; the operation that uses them reports the error.
    pub fn prefetch<K: IntoKey>(&mut self, table: &Table, keys: impl IntoIterator<Item = K>) {
        let context = self.context();
        let Ok(slot) = context.find_table(table) else { return };
        let version = context.tables.at(slot);
        if !version.primary.is_far() {
            return;
        }
        let (index, shape) = (&*version.primary, version.schema.key_shape(WhichIndex::Primary));
        let mut encoded = [const { Key::new() }; TOGETHER];
        let mut count = 0;
        for key in keys {
            count += usize::from(key.encode_into(shape, &mut encoded[count]).is_ok());
            if count == TOGETHER {
                together(encoded.iter().map(|key| (index, key)), version.segments());
                count = 0;
            }
        }
        together(encoded[..count].iter().map(|key| (index, key)), version.segments());
    }
}

impl Context {
    /// Prefetches the rows that keys of indexes lead to, the table given by its place in the transaction's list. Small indexes are left out.
    pub fn prefetch<'k>(&self, keys: impl Iterator<Item = (u32, WhichIndex, &'k Key)>) {
        let far = keys.map(|(slot, which, key)| (self.tables.at(slot).index(which), key));
        let mut far = far.filter(|(index, _)| index.is_far()).fuse();
        while together(&mut far, &self.core.storage.segments) == TOGETHER {}
    }
}

/// Prefetches what the first keys lead to, each of an index, so many as go side by side; how many there were.
#[inline]
fn together<'k>(keys: impl Iterator<Item = (&'k Index, &'k Key)>, segments: &Segments) -> usize {
    let mut leaves = [const { None::<LeafAhead<'_>> }; TOGETHER];
    let mut count = 0;
    for (leaf, (index, key)) in leaves.iter_mut().zip(keys) {
        *leaf = index.prefetch_leaf(key);
        count += 1;
    }
    let leaves = || leaves.iter().flatten();
    leaves().for_each(LeafAhead::prefetch_entry);
    let (mut records, mut found) = ([RecordRef(0); TOGETHER], 0);
    for record in leaves().filter_map(LeafAhead::value).map(RecordRef) {
        segments.prefetch_head(record);
        (records[found], found) = (record, found + 1);
    }
    records[..found].iter().for_each(|record| segments.prefetch_rest(*record));
    count
}
