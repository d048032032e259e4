//! [`Catalog`]: the tables of an open database.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::RwLock;

use super::memory::Heap;
use super::table::{Table, TableVersion};
use crate::catalog::system;
use crate::error::{Error, Result};
use crate::ids::{HeapId, IndexId, Lsn, TableId};
use crate::opening::Opening;
use crate::row::WhichIndex;

/// The committed tables.
pub(crate) struct Catalog {
    /// The opening whose handles belong to it.
    opening: Opening,
    tables: RwLock<Tables>,
    /// Counts changes, for plan caches.
    version: AtomicU64,
    /// The place of the last DDL: what the absence of a name depends on (I3).
    changed_at: AtomicU64,
    pub(super) next_id: AtomicU32,
}

#[derive(Default)]
struct Tables {
    by_name: HashMap<String, Table>,
    by_id: HashMap<TableId, Table>,
    /// The tables that indexes of these names belong to, primary ones included.
    by_index: HashMap<String, TableId>,
}

impl Tables {
    /// Enters the names of a version's indexes.
    fn add_indexes(&mut self, version: &TableVersion) {
        self.by_index.extend(version.schema.index_names().map(|name| (name.to_owned(), version.id)));
    }

    /// Removes the names of a version's indexes, except a name that belongs to another table by now.
    fn remove_indexes(&mut self, version: &TableVersion) {
        for name in version.schema.index_names() {
            if self.by_index.get(name) == Some(&version.id) {
                self.by_index.remove(name);
            }
        }
    }
}

/// A change of the set of tables.
pub(crate) enum CatalogChange<'a> {
    /// A table is put in, or a new version of it.
    Put(&'a Arc<TableVersion>),
    /// A table is taken out.
    Remove(&'a TableVersion),
}

impl Catalog {
    pub fn new(next_id: u32) -> Catalog {
        Catalog {
            opening: Opening::new(),
            tables: RwLock::default(),
            version: AtomicU64::new(0),
            changed_at: AtomicU64::new(0),
            next_id: AtomicU32::new(next_id.max(system::FIRST_USER_ID)),
        }
    }

    /// The opening whose handles belong to it.
    #[inline]
    pub fn opening(&self) -> Opening {
        self.opening
    }

    /// A handle of a version that a transaction has made and not committed.
    pub fn handle(&self, version: Arc<TableVersion>) -> Table {
        Table::new(self.opening, version)
    }

    /// A new identifier, of a table, an index, a heap or a load file.
    ///
    /// # Errors
    /// [`Error::NumbersUsedUp`]: no later call succeeds either.
    pub fn new_id(&self) -> Result<u32> {
        let next = |id: u32| (id <= system::LAST_ID).then(|| id + 1);
        self.next_id.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).map_err(|_| {
            let what = "tables, indexes, TRUNCATEs and bulk loads";
            Error::NumbersUsedUp { what, limit: system::LAST_ID }
        })
    }

    /// The next identifier, which the home block keeps.
    pub fn next_id(&self) -> u32 {
        self.next_id.load(Ordering::Relaxed)
    }

    /// Keeps the identifiers below this one from being handed out: they may be in use.
    pub fn raise_next_id(&self, next: u32) {
        self.next_id.fetch_max(next, Ordering::Relaxed);
    }

    #[inline]
    pub fn is_system(&self, id: TableId) -> bool {
        id.0 < system::FIRST_USER_ID
    }

    /// Counts the changes of the catalog since it was opened.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Notes that the DDL of this place is coming. It is called before any of that DDL is visible.
    pub fn note_change(&self, lsn: Lsn) {
        self.changed_at.fetch_max(lsn.0, Ordering::SeqCst);
    }

    /// The place of the last DDL. Read it after the look-up of the names that depends on it.
    pub fn changed_at(&self) -> Lsn {
        Lsn(self.changed_at.load(Ordering::SeqCst))
    }

    pub fn table(&self, name: &str) -> Result<Table> {
        let tables = self.tables.read();
        tables.by_name.get(name).cloned().ok_or_else(|| Error::NoSuchTable { table: name.to_owned() })
    }

    pub fn by_id(&self, id: TableId) -> Option<Table> {
        self.tables.read().by_id.get(&id).cloned()
    }

    /// All tables by name, with the system tables.
    pub fn all(&self) -> Vec<Table> {
        let mut tables: Vec<Table> = self.tables.read().by_id.values().cloned().collect();
        tables.sort_by_key(Table::name);
        tables
    }

    /// The storage of all tables.
    pub fn heaps(&self) -> Vec<Arc<Heap>> {
        let tables = self.tables.read();
        let heap = |table: &Table| Some(table.version().store.memory()?.heap.clone());
        tables.by_id.values().filter_map(heap).collect()
    }

    /// Whether a table has this storage.
    pub fn has_heap(&self, heap: HeapId) -> bool {
        self.tables.read().by_id.values().any(|table| table.version().store.heap() == heap)
    }

    /// The table that has an index of this name, its primary key included.
    pub fn table_of_index(&self, name: &str) -> Option<(Table, WhichIndex)> {
        let tables = self.tables.read();
        let table = tables.by_id.get(tables.by_index.get(name)?)?;
        let which = table.schema().index_named(name).ok()?;
        Some((table.clone(), which))
    }

    /// Puts a table in, or a new version of it.
    pub fn publish(&self, version: Arc<TableVersion>) {
        self.change([CatalogChange::Put(&version)]);
    }

    /// Makes changes, in this order, visible all at once. A name that a transaction takes from one table and gives to
    /// another is never absent in between, and the handles of a table never have a version that another change here
    /// replaces.
    pub fn change<'a>(&self, changes: impl IntoIterator<Item = CatalogChange<'a>>) {
        let mut tables = self.tables.write();
        let mut newest: HashMap<TableId, (Table, &Arc<TableVersion>)> = HashMap::new();
        for change in changes {
            match change {
                CatalogChange::Put(version) => {
                    let table = match tables.by_id.get(&version.id).cloned() {
                        Some(table) => {
                            match newest.get(&version.id) {
                                Some((_, before)) => tables.remove_indexes(before),
                                None => tables.remove_indexes(&table.version()),
                            }
                            table
                        }
                        None => {
                            let (id, name) = (version.id, version.name().to_owned());
                            let table = self.handle(version.clone());
                            tables.by_id.insert(id, table.clone());
                            tables.by_name.insert(name, table.clone());
                            table
                        }
                    };
                    tables.add_indexes(version);
                    newest.insert(version.id, (table, version));
                }
                CatalogChange::Remove(version) => {
                    tables.by_id.remove(&version.id);
                    tables.by_name.remove(version.name());
                    tables.remove_indexes(version);
                }
            }
        }
        for (table, version) in newest.into_values() {
            table.replace(version.clone());
            version.become_committed();
        }
        self.version.fetch_add(1, Ordering::Release);
    }

    pub fn index_by_id(&self, id: IndexId) -> Option<(Table, WhichIndex)> {
        let tables = self.tables.read();
        tables.by_id.values().find_map(|table| {
            let version = table.version();
            if version.primary_id == id {
                return Some((table.clone(), WhichIndex::Primary));
            }
            let position = version.schema.indexes().iter().position(|index| index.id == id)?;
            Some((table.clone(), WhichIndex::Secondary(position)))
        })
    }
}
