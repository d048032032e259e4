//! Rows whose keys are known ahead are brought near the processor together (see [`LeafAhead`]).

use super::transaction::{Context, Transaction};
use crate::catalog::Table;
use crate::row::{IntoKey, Key, WhichIndex};
use crate::store::memory::index::{Index, LeafAhead};
use crate::store::memory::{RecordRef, Segments};

/// How many lookups go side by side: a processor has about so many loads under way.
const TOGETHER: usize = 16;

impl Transaction<'_> {
    /// Brings the rows with these primary keys near the processor, all of them together, before the transaction uses them one by one.
    ///
    /// A lookup in a large table waits for memory three or four times. Lookups that follow one another wait in turn; prefetched
    /// ones have waited together, for about as long as one of them. Of tables that are small it does nothing.
    ///
    /// It is advice. It reads no row and locks none, and has no effect but on the time that the operations behind it take. A key that is
    /// none of the table's is left out: the operation that uses it says what is wrong.
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
