//! Rows whose keys are known ahead are prefetched together (see [`LeafAhead`]).

use super::memory::RecordRef;
use super::tree::LeafAhead;
use super::{Found, Prefetched, Storage, TableStore};
use crate::row::{Key, WhichIndex};

/// How many lookups go side by side: a processor has about so many loads under way.
pub(crate) const TOGETHER: usize = 16;

impl Storage {
    /// Prefetches what the first keys lead to, each of an index, so many as go side by side, and keeps what it finds;
    /// how many there were.
    #[inline]
    pub fn prefetch<'k>(
        &self,
        keys: impl Iterator<Item = (&'k TableStore, WhichIndex, &'k Key)>,
        prefetched: &mut Prefetched,
    ) -> usize {
        prefetched.begin();
        self.prefetch_each(keys, |_, leaf, found| prefetched.keep(leaf, found))
    }

    /// The same; `keep` gets what is found of each key, with the key's position.
    #[inline]
    pub fn prefetch_each<'k>(
        &self,
        keys: impl Iterator<Item = (&'k TableStore, WhichIndex, &'k Key)>,
        mut keep: impl FnMut(usize, &LeafAhead<'_>, Found),
    ) -> usize {
        let segments = &self.memory.segments;
        let mut leaves = [const { None::<LeafAhead<'_>> }; TOGETHER];
        let mut count = 0;
        for (leaf, (store, which, key)) in leaves.iter_mut().zip(keys) {
            *leaf = store.memory().and_then(|memory| memory.index(which).prefetch_leaf(key));
            count += 1;
        }
        let leaves = || leaves.iter().enumerate().filter_map(|(at, leaf)| Some((at, leaf.as_ref()?)));
        leaves().for_each(|(_, leaf)| leaf.prefetch_entry());
        let (mut records, mut found) = ([RecordRef(0); TOGETHER], 0);
        for (at, leaf) in leaves() {
            let Some(entry) = leaf.found() else { continue };
            if let Some(record) = entry.value.map(RecordRef) {
                segments.prefetch_head(record);
                (records[found], found) = (record, found + 1);
            }
            keep(at, leaf, entry);
        }
        records[..found].iter().for_each(|record| segments.prefetch_rest(*record));
        count
    }
}
