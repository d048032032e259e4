//! The catalog: which tables there are, and what they are made of.
//!
//! What is durable of it is rows of the system tables ([`system`]), so a DDL statement is a transaction like any other.
//! What transactions use is in memory: a [`Table`] handle per table, over its current [`TableVersion`]. DDL transactions
//! take the catalog's lock ([`CATALOG_LOCK`]) exclusively, and that of each table that they change.
//!
//! Identifiers of tables, indexes, heaps and load files come from one counter and are never reused: the home block
//! keeps it, and redo passes each that it meets. It ends at [`system::LAST_ID`]; from then on there is no new storage, and all
//! that is there can be used.

pub(crate) mod description;
mod row_numbers;
pub(crate) mod system;
mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::RwLock;

pub(crate) use self::description::{Description, Material};
pub(crate) use self::row_numbers::{NumberShare, NumbersAtHand, RowNumbers, first_row_number};
#[cfg(test)]
pub(crate) use self::table::AFTER_FOLLOWING;
pub use self::table::Table;
pub(crate) use self::table::{Followed, ROW_NUMBER_BYTES, TableParts, TableVersion};
use crate::error::{Error, Result};
use crate::ids::{IndexId, Lsn, TableId};
use crate::opening::Opening;
use crate::row::{Column, WhichIndex};
use crate::store::memory::Heap;

/// The lock that DDL holds while it looks at names and makes new ones.
pub(crate) const CATALOG_LOCK: TableId = TableId(0);

/// What a new table is to be.
#[derive(Debug, Clone, PartialEq)]
pub struct TableDef {
    /// Its name, 1 to 63 bytes.
    pub name: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// The columns of its primary key, the most significant first. Without one a row's identity is a hidden number.
    pub primary_key: Option<Vec<String>>,
    /// Its secondary indexes, at most [`INDEXES_MAX`](crate::row::INDEXES_MAX).
    pub indexes: Vec<NewIndex>,
    /// The share of each segment that inserts fill, 10 to 100; the rest is for rows that grow.
    pub fill_percent: u8,
}

/// What a secondary index of a new table is to be.
#[derive(Debug, Clone, PartialEq)]
pub struct NewIndex {
    /// Its name, 1 to 63 bytes.
    pub name: String,
    /// Its columns, the most significant first.
    pub columns: Vec<String>,
    /// Whether two rows may not have the same values in these columns; rows with a NULL among them always may.
    pub unique: bool,
}

impl TableDef {
    /// A table of these columns with no key; see the fields for the rest.
    pub fn new(name: impl Into<String>, columns: Vec<Column>) -> TableDef {
        TableDef { name: name.into(), columns, primary_key: None, indexes: Vec::new(), fill_percent: 100 }
    }

    /// The same with a primary key.
    pub fn with_primary_key(mut self, columns: &[&str]) -> TableDef {
        self.primary_key = Some(columns.iter().map(|&name| name.to_owned()).collect());
        self
    }

    /// The same with one more secondary index.
    pub fn with_index(mut self, name: impl Into<String>, columns: &[&str], unique: bool) -> TableDef {
        let columns = columns.iter().map(|&name| name.to_owned()).collect();
        self.indexes.push(NewIndex { name: name.into(), columns, unique });
        self
    }
}

/// The tables that are committed.
pub(crate) struct Catalog {
    /// Which handles are of it.
    opening: Opening,
    tables: RwLock<Tables>,
    /// Counts changes, for plan caches.
    version: AtomicU64,
    /// The place of the last DDL: what a name that is not there depends on (I3).
    changed_at: AtomicU64,
    next_id: AtomicU32,
}

#[derive(Default)]
struct Tables {
    by_name: HashMap<String, Table>,
    by_id: HashMap<TableId, Table>,
    /// The tables that indexes of these names belong to, primary ones included.
    by_index: HashMap<String, TableId>,
}

impl Tables {
    /// Makes the names of a version's indexes known.
    fn add_indexes(&mut self, version: &TableVersion) {
        self.by_index.extend(version.schema.index_names().map(|name| (name.to_owned(), version.id)));
    }

    /// Forgets the names of a version's indexes, but for one that belongs to another table by now.
    fn remove_indexes(&mut self, version: &TableVersion) {
        for name in version.schema.index_names() {
            if self.by_index.get(name) == Some(&version.id) {
                self.by_index.remove(name);
            }
        }
    }
}

/// A change of what tables there are.
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

    /// Which handles are of it.
    #[inline]
    pub fn opening(&self) -> Opening {
        self.opening
    }

    /// A handle of a version that a transaction has made.
    pub fn handle(&self, version: Arc<TableVersion>) -> Table {
        Table::new(self.opening, version)
    }

    /// A new identifier, of a table, an index, a heap or a load file.
    ///
    /// # Errors
    /// [`Error::NumbersUsedUp`], for good.
    pub fn new_id(&self) -> Result<u32> {
        let next = |id: u32| (id <= system::LAST_ID).then(|| id + 1);
        self.next_id.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).map_err(|_| {
            let what = "tables, indexes, TRUNCATEs and bulk loads";
            Error::NumbersUsedUp { what, limit: system::LAST_ID }
        })
    }

    /// The identifier that comes next; what the home block keeps.
    pub fn next_id(&self) -> u32 {
        self.next_id.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn is_system(&self, id: TableId) -> bool {
        id.0 < system::FIRST_USER_ID
    }

    /// Counts the changes of the catalog since it was opened.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Says that the DDL of this place comes: before any of it is visible.
    pub fn note_change(&self, lsn: Lsn) {
        self.changed_at.fetch_max(lsn.0, Ordering::SeqCst);
    }

    /// The place of the last DDL. Read it after the look at the names that depends on it.
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

    /// All tables by name, the system's among them.
    pub fn all(&self) -> Vec<Table> {
        let mut tables: Vec<Table> = self.tables.read().by_id.values().cloned().collect();
        tables.sort_by_key(Table::name);
        tables
    }

    /// The storage of all tables.
    pub fn heaps(&self) -> Vec<Arc<Heap>> {
        self.tables.read().by_id.values().map(|table| table.version().heap.clone()).collect()
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

    /// Makes changes, in this order, visible all at once: a name that a transaction takes from one table and gives to another is
    /// never absent in between, and a table's handles never have a version that another change here replaces.
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
