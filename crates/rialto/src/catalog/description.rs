//! [`Description`]: all that the system tables say about one table.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::row_numbers::RowNumbers;
use super::table::{TableParts, TableVersion};
use super::{NewIndex, TableDef, system};
use crate::error::{Error, Result};
use crate::ids::{HeapId, IndexId, TableId};
use crate::row::{Column, INDEXES_MAX, IndexDef, Schema};
use crate::store::memory::index::{Full, Index, NodePool};
use crate::store::memory::{Heap, Segments};

/// A table as the system tables describe it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Description {
    pub id: TableId,
    pub name: String,
    pub fill_percent: u8,
    /// As the rows' layout has them: one that ADD PRIMARY KEY made NOT NULL still has its null bit.
    pub columns: Vec<Column>,
    pub primary_id: IndexId,
    pub primary_key: Option<Vec<usize>>,
    pub indexes: Vec<IndexDef>,
    pub heap: HeapId,
    /// Bodies begin with a hidden row number.
    pub numbered: bool,
}

/// What tables are built from.
pub(crate) struct Material<'a> {
    pub segments: &'a Arc<Segments>,
    pub nodes: &'a Arc<NodePool>,
    /// The first hidden row number that was never handed out.
    pub first_row_number: u64,
}

/// Refuses a table of more secondary indexes than there may be: each has memory of its own, and each row an entry in it.
pub(crate) fn check_index_count(table: &str, count: usize) -> Result<()> {
    if count <= INDEXES_MAX {
        return Ok(());
    }
    let reason = format!("{count} secondary indexes, and the limit is {INDEXES_MAX}");
    Err(Error::BadDefinition { name: table.to_owned(), reason })
}

impl Description {
    /// What a definition comes to with identifiers from `new_id`. A definition that is refused takes none.
    pub fn of(def: &TableDef, mut new_id: impl FnMut() -> Result<u32>) -> Result<Description> {
        if !(10..=100).contains(&def.fill_percent) {
            return Err(Error::BadDefinition {
                name: def.name.clone(),
                reason: format!("a fill factor of {} percent, expected 10 to 100", def.fill_percent),
            });
        }
        let position = |name: &String| {
            def.columns
                .iter()
                .position(|column| column.name == *name)
                .ok_or_else(|| Error::NoSuchColumn { table: def.name.clone(), column: name.clone() })
        };
        let primary_key = match &def.primary_key {
            Some(names) => Some(names.iter().map(position).collect::<Result<Vec<usize>>>()?),
            None => None,
        };
        check_index_count(&def.name, def.indexes.len())?;
        // Until the definition is checked, its indexes have numbers by which they differ from each other.
        let index = |(number, index): (u32, &NewIndex)| {
            let columns = index.columns.iter().map(position).collect::<Result<Vec<usize>>>()?;
            Ok(IndexDef { id: IndexId(number), name: index.name.clone(), columns, unique: index.unique })
        };
        let mut indexes = (0..).zip(&def.indexes).map(index).collect::<Result<Vec<_>>>()?;
        Schema::new(def.name.clone(), def.columns.clone(), primary_key.clone(), indexes.clone())?;
        let (id, primary_id, heap) = (TableId(new_id()?), IndexId(new_id()?), HeapId(new_id()?));
        for index in &mut indexes {
            index.id = IndexId(new_id()?);
        }
        Ok(Description {
            id,
            name: def.name.clone(),
            fill_percent: def.fill_percent,
            columns: def.columns.clone(),
            primary_id,
            numbered: primary_key.is_none(),
            primary_key,
            heap,
            indexes,
        })
    }

    /// The description of a table that is there.
    pub fn of_version(version: &TableVersion) -> Description {
        Description {
            id: version.id,
            name: version.name().to_owned(),
            fill_percent: version.fill_percent,
            columns: version.schema.stored_columns(),
            primary_id: version.primary_id,
            primary_key: version.schema.primary_key().map(<[usize]>::to_vec),
            indexes: version.schema.indexes().to_vec(),
            heap: version.heap.id(),
            numbered: version.numbered,
        }
    }

    pub fn schema(&self) -> Result<Schema> {
        Schema::stored(
            self.name.clone(),
            self.columns.clone(),
            self.primary_key.clone(),
            self.indexes.clone(),
        )
    }

    /// An empty table of this description.
    pub fn build(&self, storage: &Material<'_>) -> Result<TableVersion> {
        let budget = storage.segments.budget();
        let full = |_: Full| Error::MemoryLimit { used: budget.used(), limit: budget.limit() };
        let index = || Index::new(storage.nodes.clone()).map(Arc::new).map_err(full);
        let schema = Arc::new(self.schema()?);
        Ok(TableVersion::new(TableParts {
            id: self.id,
            primary_id: self.primary_id,
            numbered: self.numbered,
            fill_percent: self.fill_percent,
            heap: Arc::new(Heap::new(storage.segments.clone(), self.heap, self.fill_percent)),
            primary: index()?,
            secondaries: schema.indexes().iter().map(|_| index()).collect::<Result<_>>()?,
            numbers: Arc::new(RowNumbers::new(storage.first_row_number)),
            floor: Arc::new(AtomicU64::new(0)),
            lineage: Arc::default(),
            schema,
        }))
    }

    /// The descriptions of the system tables themselves, which no row describes.
    pub fn of_system_tables() -> Vec<Description> {
        system::tables()
    }
}
