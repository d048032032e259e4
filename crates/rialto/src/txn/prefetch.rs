//! Rows whose keys are known ahead are prefetched together ([`Storage::prefetch`](crate::store::Storage::prefetch)).

use smallvec::SmallVec;

use super::context::Context;
use super::transaction::Transaction;
use crate::catalog::Residence;
use crate::error::Result;
use crate::isolate::LockMode;
use crate::row::{IntoKey, Key, WhichIndex};
use crate::store::paged::fetch_together;
use crate::store::{Found, Prefetched, TOGETHER, Table};
use crate::unlikely::unlikely;

impl Transaction<'_> {
    /// Prefetches the rows with these primary keys into the processor's cache, up to 16 at a time, before the
    /// transaction uses them one by one.
    ///
    /// A lookup in a large table waits for memory three or four times. Separate lookups wait one after another;
    /// prefetching overlaps their waits. Small tables (an index of at most 252 leaves) are skipped. Of a disk-resident table it reads the
    /// pages that are not in memory side by side, 16 at a time, under a lock on the table by intention, and waits for the disk, unless the run is to end at the first page that is missing
    /// ([`TwoStage::Otste`](crate::TwoStage)).
    ///
    /// It returns no row, takes no lock on a row and changes only the time of later operations: the first lookups of up to 64 of
    /// the keys go on from what was found in the index, if that has not changed since. A key of the wrong type, and a
    /// handle of another database or opening, are skipped; the operation that uses them reports the error.
    pub fn prefetch<K: IntoKey>(&mut self, table: &Table, keys: impl IntoIterator<Item = K>) {
        let context = self.context();
        if unlikely(context.core.has_stages()) && table.residence() == Residence::Disk {
            return context.prefetch_pages(table, keys);
        }
        let Ok(slot) = context.find_table(table) else { return };
        let Context { core, tables, prefetched, .. } = context;
        let version = tables.at(slot);
        if !version.store.is_far(WhichIndex::Primary) {
            return;
        }
        let shape = version.schema.key_shape(WhichIndex::Primary);
        let mut together = |keys: &[Key]| {
            let lookups = keys.iter().map(|key| (&version.store, WhichIndex::Primary, key));
            core.storage.prefetch(lookups, prefetched);
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
        // The table is not locked. A version is retired before its indexes are discarded: then their nodes may have
        // been other indexes'.
        if unlikely(version.is_retired()) {
            prefetched.clear();
        }
    }
}

impl Transaction<'_> {
    /// Has what was found of its keys before it began, and gives its own empty memory for that.
    #[inline]
    pub(crate) fn begin_with_found(&mut self, found: &mut Prefetched) {
        let context = self.context();
        debug_assert!(context.prefetched.is_empty());
        std::mem::swap(&mut context.prefetched, found);
    }
}

impl Context {
    /// Prefetches the rows that keys of indexes lead to, each of a table that is locked by intention, given by its
    /// position in the transaction's list. Small indexes are left out.
    pub fn prefetch<'k>(&mut self, keys: impl Iterator<Item = (u32, WhichIndex, &'k Key)>) {
        let Context { core, tables, prefetched, .. } = self;
        let far = keys.map(|(slot, which, key)| (&tables.at(slot).store, which, key));
        let mut far = far.filter(|(store, which, _)| store.is_far(*which)).fuse();
        while core.storage.prefetch(&mut far, prefetched) == TOGETHER {}
    }

    /// Reads the pages of these keys that are not in memory, side by side. What goes wrong here shows again where a key is used.
    fn prefetch_pages<K: IntoKey>(&mut self, table: &Table, keys: impl IntoIterator<Item = K>) {
        if !self.page_access.reads() {
            return;
        }
        // Under a lock, since the trees of a table that is dropped are freed.
        let Ok(slot) = self.use_table(table, LockMode::IntentShared) else { return };
        let mut together: SmallVec<[Key; TOGETHER]> = SmallVec::new();
        let mut keys = keys.into_iter().fuse();
        loop {
            together.clear();
            let mut is_end = true;
            for key in keys.by_ref().take(TOGETHER) {
                is_end = false;
                // Also of the fetch stage's budget: any number of keys may follow from what it has read.
                if self.check().is_err() {
                    return;
                }
                let mut encoded = Key::new();
                let shape = self.tables.at(slot).schema.key_shape(WhichIndex::Primary);
                if key.encode_into(shape, &mut encoded).is_ok() {
                    together.push(encoded);
                }
            }
            let store = &self.tables.at(slot).store;
            let ahead = together.iter().filter_map(|key| store.key_ahead(WhichIndex::Primary, key));
            if is_end || fetch_together(&self.page_access, ahead).is_err() {
                return;
            }
        }
    }

    /// In a fetch stage: reads the pages that these keys of indexes lead to, side by side.
    ///
    /// # Errors
    /// Those of the disk; and if the stage gives up, because it may not keep so many pages.
    #[cold]
    pub fn fetch_together<'k>(
        &mut self,
        keys: impl Iterator<Item = (u32, WhichIndex, &'k Key)>,
    ) -> Result<()> {
        let Context { tables, page_access, .. } = self;
        fetch_together(
            page_access,
            keys.filter_map(|(slot, which, key)| tables.at(slot).store.key_ahead(which, key)),
        )
    }

    /// Looks the key in `self.key`, or another one, up in an index of a table: what was prefetched of it, or else by a
    /// descent.
    #[inline(always)]
    pub fn look_up(&mut self, slot: u32, which: WhichIndex, entry: Option<&[u8]>) -> Found {
        let Context { tables, key, prefetched, .. } = self;
        let (store, key) = (&tables.at(slot).store, entry.unwrap_or(key));
        if unlikely(!prefetched.is_empty())
            && let Some(found) = prefetched.find(store, which, key)
        {
            return *found;
        }
        store.find(which, key)
    }
}

#[cfg(test)]
mod tests;
