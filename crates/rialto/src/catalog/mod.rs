//! The catalog: the tables of a database, and their definitions.
//!
//! Its durable part is rows of the system tables ([`system`]), so a DDL statement is a transaction like any other. In
//! memory, a transaction reaches a table by a [`Table`](crate::Table) handle, which leads to the table's current
//! version (`store/table.rs`). DDL transactions take the catalog's lock ([`CATALOG_LOCK`]) exclusively, and the lock of
//! each table that they change.
//!
//! Identifiers of tables, indexes, heaps and load files come from one counter and are never reused: the home block
//! keeps it, and redo raises it past each identifier that it meets. When it has reached [`system::LAST_ID`], no table,
//! index or load file can be made any more; all that exist can still be used.

mod described;
pub(crate) mod description;
mod residence;
mod row_numbers;
pub(crate) mod system;

pub(crate) use self::described::{Described, SystemRowId};
pub(crate) use self::description::Description;
pub use self::residence::Residence;
pub(crate) use self::row_numbers::{NumberShare, NumbersAtHand, RowNumbers, first_row_number};
use crate::ids::TableId;
use crate::row::{Column, Record};

/// The lock that DDL holds while it looks names up and makes new ones.
pub(crate) const CATALOG_LOCK: TableId = TableId(0);

/// The definition of a new table.
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
    /// The share of each segment that inserts fill, 10 to 100 percent; the rest is for rows that grow. (It means nothing to
    /// a disk-resident table.)
    pub fill_percent: u8,
    /// Where it lives.
    pub residence: Residence,
}

/// The definition of a secondary index of a new table.
#[derive(Debug, Clone, PartialEq)]
pub struct NewIndex {
    /// Its name, 1 to 63 bytes.
    pub name: String,
    /// Its columns, the most significant first.
    pub columns: Vec<String>,
    /// Whether two rows must not have the same values in these columns; rows with a NULL among them always may.
    pub unique: bool,
}

impl TableDef {
    /// A table of these columns without a key; the fields have the rest.
    pub fn new(name: impl Into<String>, columns: Vec<Column>) -> TableDef {
        TableDef {
            name: name.into(),
            columns,
            primary_key: None,
            indexes: Vec::new(),
            fill_percent: 100,
            residence: Residence::Memory,
        }
    }

    /// The table of a record type: its columns, its primary key and its indexes.
    pub fn of<R: Record>() -> TableDef {
        let mut def = TableDef::new(R::TABLE, R::columns());
        let key = R::primary_key();
        if !key.is_empty() {
            def = def.with_primary_key(&key);
        }
        let indexes = R::indexes().into_iter();
        indexes.fold(def, |def, (name, columns, unique)| def.with_index(name, &columns, unique))
    }

    /// The same with a primary key.
    pub fn with_primary_key(mut self, columns: &[&str]) -> TableDef {
        self.primary_key = Some(columns.iter().map(|&name| name.to_owned()).collect());
        self
    }

    /// The same with another residence.
    pub fn with_residence(mut self, residence: Residence) -> TableDef {
        self.residence = residence;
        self
    }

    /// The same with one more secondary index.
    pub fn with_index(mut self, name: impl Into<String>, columns: &[&str], unique: bool) -> TableDef {
        let columns = columns.iter().map(|&name| name.to_owned()).collect();
        self.indexes.push(NewIndex { name: name.into(), columns, unique });
        self
    }
}
