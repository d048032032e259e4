//! [`WatchedTables`]: which rows commits change in a table that is copied while it is used.
//!
//! Invariant: **a commit that changes rows of a watched table notes their keys before it releases its locks on them.** A reader that
//! starts watching and then locks a row sees the effect of every commit whose key is not noted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashSet;
use parking_lot::{Mutex, RwLock};

use crate::ids::HeapId;
use crate::row::Key;

/// The keys that are noted, and not taken yet, have at most this many bytes.
const BYTES_MAX: usize = 64 << 20;
/// What a key takes beside its bytes, about.
const BYTES_PER_KEY: usize = size_of::<Key>() + 8;

/// The tables whose changes are noted, by the storage of their rows.
#[derive(Debug, Default)]
pub(crate) struct WatchedTables {
    /// How many there are: all that a commit reads where there is none.
    count: AtomicUsize,
    tables: RwLock<Vec<Arc<ChangedRows>>>,
}

/// The rows of a table that commits have changed since it is watched.
#[derive(Debug)]
pub(crate) struct ChangedRows {
    heap: HeapId,
    keys: Mutex<Keys>,
}

#[derive(Debug, Default)]
struct Keys {
    set: HashSet<Key>,
    bytes: usize,
    /// Whether there were more than there is room for.
    has_overflowed: bool,
}

/// Watches a table until it is dropped.
pub(crate) struct RowWatch<'a> {
    watched: &'a WatchedTables,
    rows: Arc<ChangedRows>,
}

impl WatchedTables {
    /// Whether any table is watched.
    #[inline(always)]
    pub fn is_any(&self) -> bool {
        // Relaxed is enough: a committer reads the count while it holds its locks on rows, and a watcher locks rows only after it has
        // set the count, so the locks order the two.
        self.count.load(Ordering::Relaxed) != 0
    }

    /// Watches the table with this storage.
    pub fn watch(&self, heap: HeapId) -> RowWatch<'_> {
        let rows = Arc::new(ChangedRows { heap, keys: Mutex::default() });
        let mut tables = self.tables.write();
        tables.push(rows.clone());
        self.count.store(tables.len(), Ordering::SeqCst);
        RowWatch { watched: self, rows }
    }

    /// Notes the keys of rows that a commit changes, each with the storage of its table.
    pub fn note<'k>(&self, changed: impl Iterator<Item = (HeapId, &'k [u8])>) {
        let tables = self.tables.read();
        for (heap, key) in changed {
            tables.iter().filter(|rows| rows.heap == heap).for_each(|rows| rows.note(key));
        }
    }
}

impl ChangedRows {
    /// Notes a key.
    pub fn note(&self, key: &[u8]) {
        let mut keys = self.keys.lock();
        if keys.bytes > BYTES_MAX {
            keys.has_overflowed = true;
        } else if keys.set.insert(owned(key)) {
            keys.bytes += key.len() + BYTES_PER_KEY;
        }
    }

    /// How many keys are noted.
    pub fn len(&self) -> usize {
        self.keys.lock().set.len()
    }

    /// Takes the noted keys. `None`: there were more than there is room for.
    pub fn take(&self) -> Option<Vec<Key>> {
        let keys = std::mem::take(&mut *self.keys.lock());
        (!keys.has_overflowed).then(|| keys.set.into_iter().collect())
    }
}

impl std::ops::Deref for RowWatch<'_> {
    type Target = ChangedRows;

    fn deref(&self) -> &ChangedRows {
        &self.rows
    }
}

impl Drop for RowWatch<'_> {
    fn drop(&mut self) {
        let mut tables = self.watched.tables.write();
        tables.retain(|rows| !Arc::ptr_eq(rows, &self.rows));
        self.watched.count.store(tables.len(), Ordering::SeqCst);
    }
}

fn owned(bytes: &[u8]) -> Key {
    let mut key = Key::new();
    key.extend_from_slice(bytes);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_watched_table_are_noted_once_each_and_no_others() {
        let watched = WatchedTables::default();
        assert!(!watched.is_any());
        let (first, second) = (watched.watch(HeapId(1)), watched.watch(HeapId(2)));
        let keys: [&[u8]; 4] = [b"a", b"b", b"a", b"c"];
        watched.note([1, 2, 1, 3].map(HeapId).into_iter().zip(keys));
        let taken =
            |rows: &ChangedRows| rows.take().unwrap().iter().map(|key| key.to_vec()).collect::<Vec<_>>();
        assert_eq!(
            (first.len(), taken(&first), taken(&second)),
            (1, vec![b"a".to_vec()], vec![b"b".to_vec()])
        );
        assert_eq!(first.len(), 0, "they are taken");
        drop(first);
        assert!(watched.is_any());
        drop(second);
        assert!(!watched.is_any());
    }

    #[test]
    fn more_keys_than_there_is_room_for_are_told() {
        let watched = WatchedTables::default();
        let rows = watched.watch(HeapId(1));
        let long = vec![7; 1 << 20];
        for nth in 0..70_u8 {
            rows.note(&[&long[..], &[nth]].concat());
        }
        assert!(rows.take().is_none());
        rows.note(b"a");
        assert_eq!(rows.take().map(|keys| keys.len()), Some(1), "it goes on");
    }
}
