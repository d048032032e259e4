//! The system tables: what the catalog is on disk.
//!
//! ```text
//! rialto_tables    table_id*, name, fill_percent
//! rialto_columns   table_id*, position*, name, type, nullable
//! rialto_indexes   index_id*, table_id, name, is_unique, is_primary, columns      (positions, "0,2")
//! rialto_heaps     table_id*, heap_id, numbered
//! ```
//!
//! A nullable column has a null bit in the table's rows; as a column of the primary key it takes no NULL all the same. So
//! ADD PRIMARY KEY changes no row.
//!
//! The record [`Lsn`](crate::Lsn) of a `rialto_heaps` row is the place at which the table got its rows' storage: redo
//! records of an earlier place are not for it. That of an `is_primary` row in `rialto_indexes` is the place since which
//! redo records name the table's rows by that key; an `is_primary` row without columns stands for the hidden number.

use super::description::Description;
use crate::error::{Error, Result};
use crate::ids::{HeapId, IndexId, TableId};
use crate::row::{Column, ColumnType, IndexDef, Value};

/// Identifiers below are the system's own.
pub(crate) const FIRST_USER_ID: u32 = 64;

pub(crate) const TABLES: TableId = TableId(1);
pub(crate) const COLUMNS: TableId = TableId(2);
pub(crate) const INDEXES: TableId = TableId(3);
pub(crate) const HEAPS: TableId = TableId(4);

fn table(id: TableId, name: &str, columns: &[(&str, ColumnType)], key_columns: usize) -> Description {
    Description {
        id,
        name: name.to_owned(),
        fill_percent: 100,
        columns: columns.iter().map(|&(name, ty)| Column::new(name, ty)).collect(),
        primary_id: IndexId(id.0),
        primary_key: Some((0..key_columns).collect()),
        indexes: Vec::new(),
        heap: HeapId(id.0),
        numbered: false,
    }
}

/// The descriptions of the system tables.
pub(crate) fn tables() -> Vec<Description> {
    use ColumnType::{Bool, Int2, Int4, Text};
    vec![
        table(TABLES, "rialto_tables", &[("table_id", Int4), ("name", Text), ("fill_percent", Int2)], 1),
        table(
            COLUMNS,
            "rialto_columns",
            &[("table_id", Int4), ("position", Int2), ("name", Text), ("type", Text), ("nullable", Bool)],
            2,
        ),
        table(
            INDEXES,
            "rialto_indexes",
            &[
                ("index_id", Int4),
                ("table_id", Int4),
                ("name", Text),
                ("is_unique", Bool),
                ("is_primary", Bool),
                ("columns", Text),
            ],
            1,
        ),
        table(HEAPS, "rialto_heaps", &[("table_id", Int4), ("heap_id", Int4), ("numbered", Bool)], 1),
    ]
}

/// A row of a system table: which, its key, and all of its values.
pub(crate) struct SystemRow {
    pub table: TableId,
    pub key: Vec<Value>,
    pub values: Vec<Value>,
}

fn int(id: u32) -> Value {
    Value::Int4(id as i32)
}

fn positions(columns: &[usize]) -> Value {
    Value::Text(columns.iter().map(usize::to_string).collect::<Vec<_>>().join(","))
}

pub(crate) fn index_row(table: TableId, index: &IndexDef) -> SystemRow {
    let values = vec![
        int(index.id.0),
        int(table.0),
        Value::Text(index.name.clone()),
        Value::Bool(index.unique),
        Value::Bool(false),
        positions(&index.columns),
    ];
    SystemRow { table: INDEXES, key: vec![int(index.id.0)], values }
}

pub(crate) fn primary_row(description: &Description) -> SystemRow {
    let id = int(description.primary_id.0);
    let values = vec![
        id.clone(),
        int(description.id.0),
        Value::Text(format!("{}_pkey", description.name)),
        Value::Bool(true),
        Value::Bool(true),
        positions(description.primary_key.as_deref().unwrap_or(&[])),
    ];
    SystemRow { table: INDEXES, key: vec![id], values }
}

pub(crate) fn heap_row(description: &Description) -> SystemRow {
    let id = int(description.id.0);
    let values = vec![id.clone(), int(description.heap.0), Value::Bool(description.numbered)];
    SystemRow { table: HEAPS, key: vec![id], values }
}

/// All rows that describe a table.
pub(crate) fn rows(description: &Description) -> Vec<SystemRow> {
    let id = int(description.id.0);
    let name = Value::Text(description.name.clone());
    let values = vec![id.clone(), name, Value::Int2(i16::from(description.fill_percent))];
    let mut rows = vec![SystemRow { table: TABLES, key: vec![id.clone()], values }];
    for (position, column) in description.columns.iter().enumerate() {
        let key = vec![id.clone(), Value::Int2(position as i16)];
        let mut values = key.clone();
        values.push(Value::Text(column.name.clone()));
        values.push(Value::Text(column.ty.to_string()));
        values.push(Value::Bool(column.nullable));
        rows.push(SystemRow { table: COLUMNS, key, values });
    }
    rows.push(primary_row(description));
    rows.extend(description.indexes.iter().map(|index| index_row(description.id, index)));
    rows.push(heap_row(description));
    rows
}

/// The rows of the system tables, for reading the catalog back.
#[derive(Default)]
pub(crate) struct SystemRows {
    pub tables: Vec<Vec<Value>>,
    pub columns: Vec<Vec<Value>>,
    pub indexes: Vec<Vec<Value>>,
    pub heaps: Vec<Vec<Value>>,
}

impl SystemRows {
    /// Takes a row in. Rows of other tables are left out.
    #[cfg(test)]
    pub fn add(&mut self, table: TableId, row: crate::row::RowView<'_>) {
        let rows = match table {
            TABLES => &mut self.tables,
            COLUMNS => &mut self.columns,
            INDEXES => &mut self.indexes,
            HEAPS => &mut self.heaps,
            _ => return,
        };
        rows.push(row.values());
    }

    /// The tables that the rows describe. During redo, rows of a table can be missing while its DDL is not redone
    /// whole: such a table is left out unless `complete`.
    pub fn descriptions(&self, complete: bool) -> Result<Vec<Description>> {
        let mut described = Vec::new();
        for row in &self.tables {
            let description =
                self.describe(row).ok_or_else(|| "incomplete, or they make no sense".to_owned());
            // With rows missing, a key can name a column that is not there.
            let description = description.and_then(|description| match description.schema() {
                Ok(_) => Ok(description),
                Err(error) => Err(error.to_string()),
            });
            match description {
                Ok(description) => described.push(description),
                Err(what) if complete => {
                    return Err(Error::Corrupt {
                        file: "the system tables".to_owned(),
                        offset: 0,
                        what: format!("the rows that describe table {row:?}: {what}"),
                    });
                }
                Err(_) => {}
            }
        }
        described.sort_by_key(|description| description.id);
        Ok(described)
    }

    fn describe(&self, row: &[Value]) -> Option<Description> {
        let id = as_id(&row[0])?;
        let heap = self.heaps.iter().find(|heap| heap[0] == row[0])?;
        let of_table = |rows: &[Vec<Value>], at: usize| -> Vec<Vec<Value>> {
            rows.iter().filter(|other| other[at] == row[0]).cloned().collect()
        };
        let mut columns = of_table(&self.columns, 0);
        columns.sort_by_key(|column| as_i16(&column[1]));
        let dense = columns.iter().enumerate().all(|(n, column)| as_i16(&column[1]) == Some(n as i16));
        if columns.is_empty() || !dense {
            return None;
        }
        let indexes = of_table(&self.indexes, 1);
        let primary = indexes.iter().find(|index| index[4] == Value::Bool(true))?;
        let primary_key = as_positions(&primary[5])?;
        let mut secondaries = Vec::new();
        for index in indexes.iter().filter(|index| index[4] == Value::Bool(false)) {
            secondaries.push(IndexDef {
                id: IndexId(as_id(&index[0])?),
                name: as_text(&index[2])?.to_owned(),
                columns: as_positions(&index[5])?,
                unique: index[3] == Value::Bool(true),
            });
        }
        secondaries.sort_by_key(|index| index.id);
        let column = |column: &Vec<Value>| {
            Some(Column {
                name: as_text(&column[2])?.to_owned(),
                ty: as_text(&column[3])?.parse().ok()?,
                nullable: column[4] == Value::Bool(true),
            })
        };
        Some(Description {
            id: TableId(id),
            name: as_text(&row[1])?.to_owned(),
            fill_percent: as_i16(&row[2])? as u8,
            columns: columns.iter().map(column).collect::<Option<_>>()?,
            primary_id: IndexId(as_id(&primary[0])?),
            primary_key: Some(primary_key).filter(|key| !key.is_empty()),
            indexes: secondaries,
            heap: HeapId(as_id(&heap[1])?),
            numbered: heap[2] == Value::Bool(true),
        })
    }
}

fn as_id(value: &Value) -> Option<u32> {
    match value {
        Value::Int4(id) => u32::try_from(*id).ok(),
        _ => None,
    }
}

fn as_i16(value: &Value) -> Option<i16> {
    match value {
        Value::Int2(number) => Some(*number),
        _ => None,
    }
}

fn as_text(value: &Value) -> Option<&str> {
    match value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

fn as_positions(value: &Value) -> Option<Vec<usize>> {
    match as_text(value)? {
        "" => Some(Vec::new()),
        text => text.split(',').map(|position| position.parse().ok()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::TableDef;
    use crate::row::{RowView, Schema, encode};

    #[test]
    fn a_description_is_read_back_from_its_rows() {
        let columns = vec![
            Column::new("id", ColumnType::Int8),
            Column::nullable("amount", ColumnType::Decimal { precision: 12, scale: 2 }),
            Column::new("kind", ColumnType::Char(4)),
        ];
        let mut next = FIRST_USER_ID;
        let mut new_id = || {
            next += 1;
            next
        };
        let def = TableDef::new("things", columns).with_primary_key(&["kind", "id"]);
        let mut description = Description::of(&def, &mut new_id).unwrap();
        description.indexes.push(IndexDef {
            id: IndexId(new_id()),
            name: "by_amount".into(),
            columns: vec![1, 0],
            unique: true,
        });
        let system: Vec<(TableId, Schema)> =
            tables().iter().map(|table| (table.id, table.schema().unwrap())).collect();
        let mut rows = SystemRows::default();
        let mut bytes = Vec::new();
        for row in super::rows(&description) {
            let schema = &system.iter().find(|(id, _)| *id == row.table).unwrap().1;
            bytes.clear();
            encode(schema, &row.values, &mut bytes).unwrap();
            rows.add(row.table, RowView::new(schema, &bytes));
        }
        assert_eq!(rows.descriptions(true).unwrap(), [description]);
        // Without its last column the table makes sense but for its key; without its first one not at all.
        let kind = rows.columns.iter().position(|column| column[1] == Value::Int2(2)).unwrap();
        for (column, expected) in [(kind, "no column at position 2"), (0, "incomplete")] {
            rows.columns.remove(column);
            let error = rows.descriptions(true).unwrap_err();
            assert!(matches!(&error, Error::Corrupt { what, .. } if what.contains(expected)), "{error}");
            assert!(rows.descriptions(false).unwrap().is_empty());
        }
    }
}
