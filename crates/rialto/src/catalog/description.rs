//! [`Description`]: everything that the system tables say about one table.

use super::{NewIndex, Residence, TableDef, system};
use crate::error::{Error, Result};
use crate::ids::{HeapId, IndexId, TableId};
use crate::row::{Column, INDEXES_MAX, IndexDef, Schema};

/// A table as the system tables describe it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Description {
    pub id: TableId,
    pub name: String,
    pub fill_percent: u8,
    /// The columns as in the rows' layout: one that ADD PRIMARY KEY made NOT NULL still has its null bit.
    pub columns: Vec<Column>,
    pub primary_id: IndexId,
    pub primary_key: Option<Vec<usize>>,
    pub indexes: Vec<IndexDef>,
    pub heap: HeapId,
    /// Whether bodies begin with a hidden row number.
    pub numbered: bool,
    pub residence: Residence,
}

/// Refuses a table with more secondary indexes than allowed: each has memory of its own, and each row has an entry in
/// it.
pub(crate) fn check_index_count(table: &str, count: usize) -> Result<()> {
    if count <= INDEXES_MAX {
        return Ok(());
    }
    let reason = format!("{count} secondary indexes, and the limit is {INDEXES_MAX}");
    Err(Error::BadDefinition { name: table.to_owned(), reason })
}

impl Description {
    /// The description of a definition, with identifiers from `new_id`. A refused definition takes none.
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
        // Until the definition is checked, its indexes have numbers that tell them apart.
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
            residence: def.residence,
        })
    }

    pub fn schema(&self) -> Result<Schema> {
        Schema::stored(
            self.name.clone(),
            self.columns.clone(),
            self.primary_key.clone(),
            self.indexes.clone(),
        )
    }

    /// The descriptions of the system tables themselves, which no row describes.
    pub fn of_system_tables() -> Vec<Description> {
        system::tables()
    }
}
