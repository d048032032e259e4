//! The system tables: the catalog on disk.
//!
//! ```text
//! rialto_tables    table_id*, name, fill_percent
//! rialto_columns   table_id*, position*, name, type, nullable
//! rialto_indexes   index_id*, table_id, name, is_unique, is_primary, columns      (positions, "0,2")
//! rialto_heaps     table_id*, heap_id, numbered
//! rialto_residence table_id*, residence                                           (of tables that are not in memory)
//! ```
//!
//! `rialto_prepared` is no part of the catalog: it is made when it is needed, and these tables describe it as they do a
//! user's (`txn/prepared`).
//!
//! A nullable column has a null bit in the table's rows. As a column of the primary key it still takes no NULL. So ADD
//! PRIMARY KEY changes no row.
//!
//! An `is_primary` row in `rialto_indexes` says by which key redo records name the table's rows, from the place in the
//! log of the transaction that wrote it. Without columns it stands for the hidden number.

use hashbrown::{HashMap, HashSet};

use super::Residence;
use super::description::Description;
use crate::ids::{HeapId, IndexId, TableId};
use crate::row::{Column, ColumnType, IndexDef, RowView, Value, primary_index_name};

/// Identifiers below this one belong to the system.
pub(crate) const FIRST_USER_ID: u32 = 64;

/// Of these, the tables from here on are made when they are needed, and described as users' tables are.
pub(crate) const FIRST_MADE_ID: u32 = 32;

/// The last identifier: the system tables have them as int4.
pub(crate) const LAST_ID: u32 = i32::MAX as u32;

pub(crate) const TABLES: TableId = TableId(1);
pub(crate) const COLUMNS: TableId = TableId(2);
pub(crate) const INDEXES: TableId = TableId(3);
pub(crate) const HEAPS: TableId = TableId(4);
pub(crate) const RESIDENCE: TableId = TableId(5);

/// Whether this is one of the tables that describe all others.
pub(crate) fn is_system(table: TableId) -> bool {
    table.0 < FIRST_MADE_ID
}

/// The highest identifier in a row of a system table.
pub(crate) fn highest_id(table: TableId, row: RowView<'_>) -> u32 {
    let columns: &[usize] = match table {
        TABLES => &[0],
        INDEXES => &[0, 1],
        HEAPS => &[0, 1],
        RESIDENCE => &[0],
        _ => &[],
    };
    let id = |&column: &usize| row.get_i32(column).ok().and_then(|id| u32::try_from(id).ok());
    columns.iter().filter_map(id).max().unwrap_or(0)
}

/// An identifier higher than this load file's number.
pub(crate) fn after_load(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX).saturating_add(1)
}

/// Whether this is the storage of one of them, which has the table's number.
pub(crate) fn is_system_heap(heap: HeapId) -> bool {
    heap.0 < FIRST_MADE_ID
}

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
        residence: Residence::Memory,
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
        table(RESIDENCE, "rialto_residence", &[("table_id", Int4), ("residence", Text)], 1),
    ]
}

/// A row of a system table: the table, the row's key, and all of its values.
#[derive(PartialEq)]
pub(crate) struct SystemRow {
    pub table: TableId,
    pub key: Vec<Value>,
    pub values: Vec<Value>,
}

/// An identifier as a value; [`as_id`] is the way back.
fn int(id: u32) -> Value {
    Value::Int4(i32::try_from(id).expect("no identifier is above LAST_ID"))
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
        Value::Text(primary_index_name(&description.name)),
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
        let position = i16::try_from(position).expect("a table has at most COLUMNS_MAX columns");
        let key = vec![id.clone(), Value::Int2(position)];
        let mut values = key.clone();
        values.push(Value::Text(column.name.clone()));
        values.push(Value::Text(column.ty.to_string()));
        values.push(Value::Bool(column.nullable));
        rows.push(SystemRow { table: COLUMNS, key, values });
    }
    rows.push(primary_row(description));
    rows.extend(description.indexes.iter().map(|index| index_row(description.id, index)));
    rows.push(heap_row(description));
    if description.residence != Residence::Memory {
        let values = vec![id.clone(), Value::Text(description.residence.to_string())];
        rows.push(SystemRow { table: RESIDENCE, key: vec![id], values });
    }
    rows
}

/// The rows of the system tables, from which the catalog is read back.
#[derive(Default)]
pub(crate) struct SystemRows {
    tables: Vec<Vec<Value>>,
    columns: Vec<Vec<Value>>,
    indexes: Vec<Vec<Value>>,
    heaps: Vec<Vec<Value>>,
    residences: Vec<Vec<Value>>,
}

/// The rows about one table.
#[derive(Default)]
struct RowsOf<'a> {
    columns: Vec<&'a [Value]>,
    indexes: Vec<&'a [Value]>,
    heaps: Vec<&'a [Value]>,
    residences: Vec<&'a [Value]>,
}

impl SystemRows {
    /// Adds rows of a system table.
    pub fn extend(&mut self, table: TableId, rows: impl IntoIterator<Item = Vec<Value>>) {
        match table {
            TABLES => self.tables.extend(rows),
            COLUMNS => self.columns.extend(rows),
            INDEXES => self.indexes.extend(rows),
            HEAPS => self.heaps.extend(rows),
            RESIDENCE => self.residences.extend(rows),
            _ => unreachable!("there are five system tables"),
        }
    }

    /// The tables that the rows describe, in the order of their identifiers. The error says which rows make no sense,
    /// or belong to no table.
    pub fn descriptions(&self) -> Result<Vec<Description>, String> {
        let mut by_table: HashMap<TableId, RowsOf<'_>> = HashMap::new();
        for row in &self.columns {
            by_table.entry(table_of(COLUMNS, row)?).or_default().columns.push(row);
        }
        for row in &self.indexes {
            by_table.entry(table_of(INDEXES, row)?).or_default().indexes.push(row);
        }
        for row in &self.heaps {
            by_table.entry(table_of(HEAPS, row)?).or_default().heaps.push(row);
        }
        for row in &self.residences {
            by_table.entry(table_of(RESIDENCE, row)?).or_default().residences.push(row);
        }
        let mut described = Vec::new();
        for row in &self.tables {
            let rows = by_table.remove(&table_of(TABLES, row)?).unwrap_or_default();
            let described_by = |what: String| format!("the rows that describe table {row:?}: {what}");
            let description = describe(row, rows).map_err(described_by)?;
            description.schema().map_err(|error| described_by(error.to_string()))?;
            described.push(description);
        }
        if let Some((table, rows)) = by_table.into_iter().next() {
            let row =
                rows.columns.iter().chain(&rows.indexes).chain(&rows.heaps).chain(&rows.residences).next();
            return Err(format!(
                "the row {row:?} is about table {}, and rialto_tables has none of that number",
                table.0
            ));
        }
        described.sort_by_key(|description| description.id);
        let mut taken = TakenNames::default();
        described.iter().try_for_each(|description| taken.take(description))?;
        Ok(described)
    }
}

/// The table that a row of a system table is about.
///
/// # Errors
/// The row names no table; the text says so.
pub(crate) fn table_of(system: TableId, row: &[Value]) -> Result<TableId, String> {
    let (what, at) = match system {
        TABLES => ("rialto_tables", 0),
        COLUMNS => ("rialto_columns", 0),
        INDEXES => ("rialto_indexes", 1),
        HEAPS => ("rialto_heaps", 0),
        RESIDENCE => ("rialto_residence", 0),
        _ => unreachable!("there are five system tables"),
    };
    let id = row.get(at).and_then(as_id);
    id.map(TableId).ok_or_else(|| format!("the row {row:?} of {what} names no table"))
}

/// What each table or index has for itself: names and the identifiers of storage, none of which two may share.
#[derive(Default)]
pub(crate) struct TakenNames {
    names: HashSet<String>,
    heaps: HashSet<HeapId>,
}

impl TakenNames {
    /// Takes the names and identifiers of a table.
    ///
    /// # Errors
    /// Another table has one of them; the text says which.
    pub fn take(&mut self, description: &Description) -> Result<(), String> {
        for name in names_of(description) {
            if let Some(twice) = self.names.replace(name) {
                return Err(format!("\"{twice}\" is the name of two tables or indexes"));
            }
        }
        if !self.heaps.insert(description.heap) {
            return Err(format!(
                "two tables have heap {}, \"{}\" is one",
                description.heap.0, description.name
            ));
        }
        Ok(())
    }

    /// Gives back the names and identifiers of a table.
    pub fn give_back(&mut self, description: &Description) {
        for name in names_of(description) {
            self.names.remove(&name);
        }
        self.heaps.remove(&description.heap);
    }
}

/// The names of a table and of its indexes.
pub(crate) fn names_of(description: &Description) -> impl Iterator<Item = String> {
    let primary = primary_index_name(&description.name);
    let indexes = description.indexes.iter().map(|index| index.name.clone());
    [description.name.clone(), primary].into_iter().chain(indexes)
}

fn describe(row: &[Value], rows: RowsOf<'_>) -> Result<Description, String> {
    let RowsOf { mut columns, indexes, heaps, residences } = rows;
    let senseless = |what: &str, row: &[Value]| format!("the row {row:?} of {what} makes no sense");
    columns.sort_by_key(|column| as_i16(&column[1]));
    if columns.is_empty() {
        return Err("incomplete: it has no columns".to_owned());
    }
    if let Some((n, _)) =
        columns.iter().enumerate().find(|&(n, column)| as_i16(&column[1]) != i16::try_from(n).ok())
    {
        return Err(format!("incomplete: no column at position {n}"));
    }
    let &[heap] = &*heaps else {
        return Err(format!("incomplete: {} rows of rialto_heaps, and each table has one", heaps.len()));
    };
    let (primaries, others): (Vec<_>, Vec<_>) =
        indexes.into_iter().partition(|index| index[4] == Value::Bool(true));
    let &[primary] = &*primaries else {
        return Err(format!(
            "incomplete: {} primary rows of rialto_indexes, and each table has one",
            primaries.len()
        ));
    };
    let index = |index: &[Value]| {
        Some(IndexDef {
            id: IndexId(as_id(&index[0])?),
            name: as_text(&index[2])?.to_owned(),
            columns: as_positions(&index[5])?,
            unique: index[3] == Value::Bool(true),
        })
    };
    let column = |column: &[Value]| {
        Some(Column {
            name: as_text(&column[2])?.to_owned(),
            ty: as_text(&column[3])?.parse().ok()?,
            nullable: column[4] == Value::Bool(true),
        })
    };
    let mut secondaries = Vec::new();
    for row in others {
        secondaries.push(index(row).ok_or_else(|| senseless("rialto_indexes", row))?);
    }
    secondaries.sort_by_key(|index| index.id);
    let primary = index(primary).ok_or_else(|| senseless("rialto_indexes", primary))?;
    let mut described = Vec::new();
    for row in columns {
        described.push(column(row).ok_or_else(|| senseless("rialto_columns", row))?);
    }
    let of_table = || {
        let fill_percent = u8::try_from(as_i16(&row[2])?).ok()?;
        Some((TableId(as_id(&row[0])?), as_text(&row[1])?.to_owned(), fill_percent))
    };
    let (id, name, fill_percent) = of_table().ok_or_else(|| senseless("rialto_tables", row))?;
    let heap_id = as_id(&heap[1]).ok_or_else(|| senseless("rialto_heaps", heap))?;
    let residence = match &*residences {
        [] => Residence::Memory,
        [row] => {
            let parsed = as_text(&row[1]).and_then(|text| text.parse().ok());
            parsed.ok_or_else(|| senseless("rialto_residence", row))?
        }
        rows => return Err(format!("{} rows of rialto_residence, and a table has at most one", rows.len())),
    };
    Ok(Description {
        id,
        name,
        fill_percent,
        columns: described,
        primary_id: primary.id,
        primary_key: Some(primary.columns).filter(|key| !key.is_empty()),
        indexes: secondaries,
        heap: HeapId(heap_id),
        numbered: heap[2] == Value::Bool(true),
        residence,
    })
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
    use crate::row::{RowView, encode};

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
            Ok(next)
        };
        let def = TableDef::new("things", columns)
            .with_primary_key(&["kind", "id"])
            .with_residence(Residence::Disk);
        let mut description = Description::of(&def, &mut new_id).unwrap();
        description.indexes.push(IndexDef {
            id: IndexId(new_id().unwrap()),
            name: "by_amount".into(),
            columns: vec![1, 0],
            unique: true,
        });
        let mut rows = SystemRows::default();
        let mut bytes = Vec::new();
        for row in super::rows(&description) {
            let schema = tables().into_iter().find(|table| table.id == row.table).unwrap().schema().unwrap();
            bytes.clear();
            encode(&schema, &row.values, &mut bytes).unwrap();
            rows.extend(row.table, [RowView::new(&schema, &bytes).values()]);
        }
        assert_eq!(rows.descriptions().unwrap(), [description]);

        let refused = |change: &dyn Fn(&mut SystemRows), expected: &str| {
            let SystemRows { tables, columns, indexes, heaps, residences } = &rows;
            let (tables, columns) = (tables.clone(), columns.clone());
            let (indexes, heaps, residences) = (indexes.clone(), heaps.clone(), residences.clone());
            let mut rows = SystemRows { tables, columns, indexes, heaps, residences };
            change(&mut rows);
            let error = rows.descriptions().unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        let column = |position| move |column: &Vec<Value>| column[1] != Value::Int2(position);
        refused(&|rows| rows.columns.retain(column(2)), "no column at position 2");
        refused(&|rows| rows.columns.retain(column(0)), "no column at position 0");
        refused(&|rows| rows.columns.clear(), "it has no columns");
        refused(&|rows| rows.heaps.clear(), "0 rows of rialto_heaps");
        refused(
            &|rows| rows.residences[0][1] = Value::Text("moon".into()),
            "rialto_residence makes no sense",
        );
        refused(&|rows| rows.residences.extend(rows.residences.clone()), "2 rows of rialto_residence");
        refused(&|rows| rows.indexes.retain(|index| index[4] == Value::Bool(false)), "0 primary rows");
        refused(&|rows| rows.tables.clear(), "rialto_tables has none of that number");
        refused(&|rows| rows.indexes[1][5] = Value::Text("1,x".into()), "rialto_indexes makes no sense");
        let again = |rows: &mut SystemRows| {
            let mut index = rows.indexes[1].clone();
            index[0] = Value::Int4(999);
            rows.indexes.push(index);
        };
        refused(&again, "\"by_amount\"");
    }
}
