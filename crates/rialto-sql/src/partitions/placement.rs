//! [`Placement`]: which partition a table's rows lie in, and where that choice is kept.
//!
//! The kernel's definition of a table knows no partitions. What a definition says beyond the default is kept in the
//! rows of [`PLACEMENT_TABLE`], an ordinary table in each partition: they are written in the transaction that makes the
//! table, and deleted in the one that drops it.

use std::ops::ControlFlow;

use rialto::row::{Column, ColumnType, Decimal, Schema, Value, ValueRef, WhichIndex};
use rialto::{Error, KeyBound, NewIndex, Scan, ScanMode, TableDef, Transaction, fault_injection};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::message::PartitionNumber;
use crate::error::{Result, SqlError, SqlState};
use crate::parse::{Name, Placing};

/// The table that has the choices of placement: one row for each routing column that CREATE TABLE names, and one row
/// without a column for a replicated table.
pub const PLACEMENT_TABLE: &str = "rialto_placement";

/// Which partitions the rows of a table lie in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placement {
    /// Each row lies in the partition of its values in these columns, by their places among the table's columns.
    By(Vec<u32>),
    /// Each row lies in the partition that was nearest when it was inserted.
    Anywhere,
    /// Each row lies in all partitions.
    Replicated,
}

impl Placement {
    /// The placement of a table for which nothing was chosen: by the first column of the primary key.
    pub fn of_schema(schema: &Schema) -> Placement {
        if schema.table().starts_with("rialto_") {
            // Each partition has its own.
            return Placement::Replicated;
        }
        match schema.primary_key() {
            Some([first, ..]) => Placement::By(vec![*first as u32]),
            _ => Placement::Anywhere,
        }
    }

    /// The routing columns, if there are any.
    pub fn columns(&self) -> Option<&[u32]> {
        match self {
            Placement::By(columns) => Some(columns),
            Placement::Anywhere | Placement::Replicated => None,
        }
    }
}

/// The partition of a row, from the values of its routing columns. Values that are equal in a key give the same
/// partition, whatever their scale or sign of zero; so do a char(n) with and without its blanks. The values are of the types of
/// the columns.
pub fn partition_of<'v>(values: impl IntoIterator<Item = ValueRef<'v>>, count: u32) -> PartitionNumber {
    let mut hash = Xxh3::new();
    for value in values {
        put(&mut hash, value);
    }
    PartitionNumber((hash.digest() % u64::from(count)) as u32)
}

fn put(hash: &mut Xxh3, value: ValueRef<'_>) {
    let mut put = |tag: u8, bytes: &[u8]| {
        hash.update(&[tag]);
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    let integer = |value: i64| value.to_le_bytes();
    match value {
        ValueRef::Null => put(0, &[]),
        ValueRef::Bool(value) => put(1, &[u8::from(value)]),
        ValueRef::Int2(value) => put(2, &integer(value.into())),
        ValueRef::Int4(value) => put(2, &integer(value.into())),
        ValueRef::Int8(value) => put(2, &integer(value)),
        ValueRef::Float8(value) => {
            let value = if value == 0.0 { 0.0 } else { value };
            let value = if value.is_nan() { f64::NAN } else { value };
            put(3, &value.to_bits().to_le_bytes());
        }
        ValueRef::Decimal(value) => {
            let (unscaled, scale) = reduced(value);
            let mut bytes = [0; 17];
            bytes[..16].copy_from_slice(&unscaled.to_le_bytes());
            bytes[16] = scale;
            put(4, &bytes);
        }
        ValueRef::Text(value) => put(5, value.as_bytes()),
        ValueRef::Bytes(value) => put(6, value),
        ValueRef::Date(value) => put(7, &integer(value.into())),
        ValueRef::Timestamp(value) => put(8, &integer(value)),
    }
}

/// The number without zeros at the end of its decimals.
fn reduced(value: Decimal) -> (i128, u8) {
    let (mut unscaled, mut scale) = (value.unscaled(), value.scale());
    while scale > 0 && unscaled % 10 == 0 && !fault_injection::is_on("decimals-route-by-their-scale") {
        unscaled /= 10;
        scale -= 1;
    }
    (unscaled, scale)
}

/// The placement that was chosen for a table, or the default.
pub(super) fn placement(tx: &mut Transaction<'_>, schema: &Schema) -> Result<Placement> {
    let default = || Ok(Placement::of_schema(schema));
    if schema.table().starts_with("rialto_") {
        return default();
    }
    let table = match tx.table_unlocked(PLACEMENT_TABLE) {
        Ok(table) => table,
        Err(Error::NoSuchTable { .. }) => return default(),
        Err(error) => return Err(error.into()),
    };
    let mut names = Vec::new();
    tx.scan(&table, &rows_of(schema.table(), ScanMode::Share), |_, row| {
        names.push(row.get(2));
        Ok(ControlFlow::Continue(()))
    })?;
    match &names[..] {
        [] => default(),
        [Value::Null] => Ok(Placement::Replicated),
        names => {
            let place = |name: &Value| match name {
                Value::Text(name) => Ok(schema.position_of(name)? as u32),
                _ => Err(SqlError::new(SqlState::Internal, "a placement by a column without a name")),
            };
            Ok(Placement::By(names.iter().map(place).collect::<Result<_>>()?))
        }
    }
}

/// The rows of a table's choice, in the order of the routing columns.
fn rows_of(table: &str, mode: ScanMode) -> Scan {
    let bound = || KeyBound::Included(vec![Value::Text(table.to_owned())]);
    Scan { mode, lower: bound(), upper: bound(), ..Scan::all() }
}

/// Checks where the rows of a new table are to lie, and keeps the choice if there is one. The table is there already.
///
/// # Errors
/// SQLSTATE 42P16 for routing columns that the primary key or a unique index does not have: two rows with equal keys
/// could then lie in two partitions, which do not know of each other.
pub(crate) fn choose_placement(
    tx: &mut Transaction<'_>,
    schema: &Schema,
    placing: Option<&Placing>,
) -> Result<()> {
    let placement = match placing {
        None => Placement::of_schema(schema),
        Some(Placing::Replicated) => Placement::Replicated,
        Some(Placing::By(names)) => {
            let columns = crate::bind::column_positions(schema, names)?;
            Placement::By(columns.into_iter().map(|column| column as u32).collect())
        }
    };
    if let Some(key) = schema.primary_key() {
        check_key(&placement, schema, key, "the primary key")?;
    }
    for index in schema.indexes().iter().filter(|index| index.unique) {
        check_key(&placement, schema, &index.columns, &format!("the unique index \"{}\"", index.name))?;
    }
    let Some(placing) = placing else { return Ok(()) };
    let table = have_table(tx)?;
    let mut insert = |position: i32, column: Value| {
        tx.insert(&table, &[Value::Text(schema.table().to_owned()), Value::Int4(position), column])
    };
    match placing {
        Placing::Replicated => insert(0, Value::Null)?,
        Placing::By(names) => {
            for (position, Name { text, .. }) in names.iter().enumerate() {
                insert(position as i32, Value::Text(text.clone()))?;
            }
        }
    }
    Ok(())
}

/// Forgets what was chosen for a table that is dropped.
pub(crate) fn forget_placement(tx: &mut Transaction<'_>, name: &str) -> Result<()> {
    let table = match tx.table(PLACEMENT_TABLE) {
        Ok(table) => table,
        Err(Error::NoSuchTable { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mut keys = Vec::new();
    tx.scan(&table, &rows_of(name, ScanMode::Update), |_, row| {
        keys.push([row.get(0), row.get(1)]);
        Ok(ControlFlow::Continue(()))
    })?;
    if fault_injection::is_on("dropped-table-keeps-its-placement") {
        keys.clear();
    }
    for key in keys {
        tx.delete(&table, &key[..])?;
    }
    Ok(())
}

/// Checks a further key of a table: of an index that is to be made, or the primary key.
///
/// # Errors
/// As [`choose_placement`].
pub(crate) fn check_index(
    tx: &mut Transaction<'_>,
    schema: &Schema,
    columns: &[usize],
    which: WhichIndex,
) -> Result<()> {
    match (placement(tx, schema)?, which) {
        // The rows are placed by the new key.
        (Placement::Anywhere, WhichIndex::Primary) => {
            let unique = schema.indexes().iter().filter(|index| index.unique);
            let placement = Placement::By(vec![columns[0] as u32]);
            unique.into_iter().try_for_each(|index| {
                let name = format!("the unique index \"{}\"", index.name);
                check_key(&placement, schema, &index.columns, &name)
            })
        }
        (placement, WhichIndex::Primary) => check_key(&placement, schema, columns, "the primary key"),
        (placement, WhichIndex::Secondary(_)) => check_key(&placement, schema, columns, "the unique index"),
    }
}

fn check_key(placement: &Placement, schema: &Schema, key: &[usize], what: &str) -> Result<()> {
    let routing: &[u32] = match placement {
        Placement::Replicated => return Ok(()),
        Placement::By(columns) => columns,
        Placement::Anywhere => {
            let message = format!(
                "{what} of table \"{}\" would have to be unique over all partitions, and the table has no primary key",
                schema.table()
            );
            return Err(SqlError::new(SqlState::InvalidDefinition, message).hint(
                "Give the table a primary key whose first column is in the index, name the routing columns with \
                 WITH (partition_by = 'column'), or use WITH (replicated = true).",
            ));
        }
    };
    let missing = routing.iter().find(|column| !key.contains(&(**column as usize)));
    let missing = missing.filter(|_| !fault_injection::is_on("keys-without-routing-columns"));
    let Some(missing) = missing else { return Ok(()) };
    let column = &schema.columns()[*missing as usize].name;
    let message = format!(
        "{what} of table \"{}\" does not have column \"{column}\", by which the rows are partitioned",
        schema.table()
    );
    Err(SqlError::new(SqlState::InvalidDefinition, message).hint(format!(
        "Add column \"{column}\" to it, choose other routing columns with WITH (partition_by = 'column'), or use WITH \
         (replicated = true)."
    )))
}

/// The table of the choices, which is made if it is not there.
fn have_table(tx: &mut Transaction<'_>) -> Result<rialto::Table> {
    match tx.table(PLACEMENT_TABLE) {
        Err(Error::NoSuchTable { .. }) => {}
        found => return Ok(found?),
    }
    let columns = vec![
        Column::new("table_name", ColumnType::Text),
        Column::new("position", ColumnType::Int4),
        Column::nullable("column_name", ColumnType::Text),
    ];
    let primary_key = Some(vec!["table_name".to_owned(), "position".to_owned()]);
    let indexes: Vec<NewIndex> = Vec::new();
    Ok(tx.create_table(&TableDef { primary_key, indexes, ..TableDef::new(PLACEMENT_TABLE, columns) })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(value: Value, count: u32) -> u32 {
        partition_of([value.borrow()], count).0
    }

    #[test]
    fn values_that_are_equal_in_a_key_have_one_partition() {
        let decimal = |unscaled, scale| Value::Decimal(Decimal::new(unscaled, scale).unwrap());
        for (one, other) in [
            (Value::Float8(0.0), Value::Float8(-0.0)),
            (Value::Float8(f64::NAN), Value::Float8(-f64::NAN)),
            (decimal(15, 1), decimal(1_500, 3)),
            (decimal(0, 0), decimal(0, 5)),
            (Value::Int2(7), Value::Int8(7)),
        ] {
            assert_eq!(
                partition(one.clone(), 1 << 30),
                partition(other.clone(), 1 << 30),
                "{one:?}, {other:?}"
            );
        }
        let two =
            |left: &str, right: &str| partition_of([ValueRef::Text(left), ValueRef::Text(right)], 1 << 30);
        assert_ne!(two("a", "bc"), two("ab", "c"));
    }

    #[test]
    fn keys_are_spread_evenly() {
        let mut rows = [0; 4];
        (0..40_000).for_each(|key| rows[partition(Value::Int4(key), 4) as usize] += 1);
        assert!(rows.iter().all(|rows| (9_500..10_500).contains(rows)), "{rows:?}");
    }
}
