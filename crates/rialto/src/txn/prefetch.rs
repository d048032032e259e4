//! Rows whose keys are known ahead are prefetched together ([`Storage::prefetch`](crate::store::Storage::prefetch)).

use super::context::Context;
use super::transaction::Transaction;
use crate::row::{IntoKey, Key, WhichIndex};
use crate::store::{TOGETHER, Table};

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
        if !version.store.is_far(WhichIndex::Primary) {
            return;
        }
        let shape = version.schema.key_shape(WhichIndex::Primary);
        let together = |keys: &[Key]| {
            let lookups = keys.iter().map(|key| (&version.store, WhichIndex::Primary, key));
            context.core.storage.prefetch(lookups)
        };
        let mut encoded = [const { Key::new() }; TOGETHER];
        let mut count = 0;
        for key in keys {
            count += usize::from(key.encode_into(shape, &mut encoded[count]).is_ok());
            if count == TOGETHER {
                together(&encoded);
                count = 0;
            }
        }
        together(&encoded[..count]);
    }
}

impl Context {
    /// Prefetches the rows that keys of indexes lead to, the table given by its place in the transaction's list. Small indexes are left out.
    pub fn prefetch<'k>(&self, keys: impl Iterator<Item = (u32, WhichIndex, &'k Key)>) {
        let far = keys.map(|(slot, which, key)| (&self.tables.at(slot).store, which, key));
        let mut far = far.filter(|(store, which, _)| store.is_far(*which)).fuse();
        while self.core.storage.prefetch(&mut far) == TOGETHER {}
    }
}
