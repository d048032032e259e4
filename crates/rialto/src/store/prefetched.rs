//! [`Prefetched`]: what a prefetch has found in indexes, for the lookups that come after it.

use super::TableStore;
use super::tree::{Found, LeafAhead};
use crate::fault_injection;
use crate::row::{Key, WhichIndex};

/// Keys behind so many are prefetched only.
const KEYS_MAX: usize = 64;

/// After so many lookups in a row of other keys the rest is forgotten.
const MISSES_MAX: u32 = 16;

/// What a prefetch has found of keys, in their order.
///
/// Invariant: what [`Prefetched::find`] gives is what a descent would give at that moment. The leaf is as it was, so it
/// still covers the key, and has the same entries and the same removal. It is a leaf of the same index: the nodes of an
/// index that is discarded change their versions, so an index that has an unchanged leaf is kept, and no other one has
/// its root. So nothing has to be told to what was prefetched when rows, indexes and tables change, also before the
/// transaction that uses a find begins. A lookup checks a find as it checks what a descent gives (L8).
#[derive(Default)]
pub(crate) struct Prefetched {
    /// Those behind `len` only keep the memory of their keys.
    entries: Vec<PrefetchedEntry>,
    len: usize,
    /// Behind the entry that was found last: lookups mostly have the order of the prefetch.
    next: usize,
    /// How many lookups have found nothing since.
    misses: u32,
    /// The low bits of the roots that entries have, as a set.
    roots: u64,
}

struct PrefetchedEntry {
    /// Of the index.
    root: u32,
    key: Key,
    found: Found,
}

impl Prefetched {
    /// Whether there is nothing to find.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub fn clear(&mut self) {
        (self.len, self.next, self.misses, self.roots) = (0, 0, 0, 0);
    }

    /// Makes room for a prefetch, if the last of what is there was found.
    pub(super) fn begin(&mut self) {
        if self.next == self.len {
            self.clear();
        }
    }

    /// Keeps what a prefetch has found, as long as there is room.
    pub fn keep(&mut self, ahead: &LeafAhead<'_>, found: Found) {
        let (at, root) = (self.len, ahead.root());
        if at == KEYS_MAX {
            return;
        }
        if at == self.entries.len() {
            self.entries.push(PrefetchedEntry { root, key: Key::new(), found });
        }
        let entry = &mut self.entries[at];
        (entry.root, entry.found) = (root, found);
        entry.key.clear();
        entry.key.extend_from_slice(ahead.key());
        self.len += 1;
        self.roots |= bit(root);
    }

    /// What looking the key up in an index would give, if it was prefetched and its leaf is unchanged.
    #[inline(never)]
    pub fn find(&mut self, store: &TableStore, which: WhichIndex, key: &[u8]) -> Option<&Found> {
        let index = store.memory()?.index(which);
        let root = index.root();
        if self.roots & bit(root) == 0 {
            return None;
        }
        let at = if self.next < self.len { self.next } else { 0 };
        let at = if self.entries[at].is_of(root, key) { at } else { self.search(root, key)? };
        (self.next, self.misses) = (at + 1, 0);
        let found = &self.entries[at].found;
        (fault_injection::is_on("prefetched-leaf-unchecked") || index.unchanged(&found.leaf)).then_some(found)
    }

    /// Where the key is, if not next. The last one comes first: it is asked for again where one lookup has not
    /// sufficed.
    #[cold]
    fn search(&mut self, root: u32, key: &[u8]) -> Option<usize> {
        let mut all = self.next.checked_sub(1).into_iter().chain(0..self.len);
        let found = all.find(|&at| self.entries[at].is_of(root, key));
        if found.is_none() {
            self.misses += 1;
            if self.misses > MISSES_MAX {
                self.clear();
            }
        }
        found
    }
}

impl PrefetchedEntry {
    #[inline(always)]
    fn is_of(&self, root: u32, key: &[u8]) -> bool {
        self.root == root && *self.key == *key
    }
}

#[inline]
fn bit(root: u32) -> u64 {
    1 << (root % u64::BITS)
}
