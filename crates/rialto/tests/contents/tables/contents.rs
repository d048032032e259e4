//! [`Contents`]: tables, keys, indexes and rows on plain maps, and the comparison of a database with them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use rialto::row::{Column, ColumnType, RowView, Value, WhichIndex};
use rialto::{Database, Direction, Result, Scan, TableDef, Transaction};

/// A table of one row, which counts the transactions that have committed.
pub const COUNT: &str = "count";

/// The columns of every table, by position. After these come as many integers as the table has extra columns.
const NAMES: [&str; 5] = ["serial", "k", "u", "n", "text"];
pub const K: usize = 1;
pub const U: usize = 2;
pub const N: usize = 3;
pub const TEXT: usize = 4;

/// A row without its serial number, which no other row of its table has ever had.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub k: i64,
    pub u: Option<i64>,
    pub n: i64,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Index {
    pub name: String,
    pub columns: Vec<usize>,
    pub is_unique: bool,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// `k` is its primary key. If not, it has none.
    pub is_keyed: bool,
    pub extra_columns: usize,
    pub indexes: Vec<Index>,
    pub rows: BTreeMap<i64, Row>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Contents {
    /// How many transactions have committed.
    pub transactions: i64,
    pub tables: BTreeMap<String, Table>,
}

impl Row {
    pub fn value(&self, serial: i64, column: usize) -> Value {
        match column {
            0 => Value::Int8(serial),
            K => Value::Int8(self.k),
            U => self.u.map_or(Value::Null, Value::Int8),
            N => Value::Int8(self.n),
            TEXT => Value::Text(self.text.clone()),
            extra => Value::Int8(serial ^ extra as i64),
        }
    }

    /// Its value in a column of integers; none if it is NULL.
    fn number(&self, serial: i64, column: usize) -> Option<i64> {
        match column {
            0 => Some(serial),
            K => Some(self.k),
            U => self.u,
            N => Some(self.n),
            _ => unreachable!("no index has column {column}"),
        }
    }

    /// Its values in columns of integers; none if one is NULL.
    pub fn key(&self, serial: i64, columns: &[usize]) -> Option<Vec<i64>> {
        columns.iter().map(|&column| self.number(serial, column)).collect()
    }
}

impl Table {
    pub fn definition(&self, name: &str) -> TableDef {
        let mut columns: Vec<_> = NAMES
            .iter()
            .enumerate()
            .map(|(at, name)| match at {
                U => Column::nullable(*name, ColumnType::Int8),
                TEXT => Column::nullable(*name, ColumnType::Text),
                _ => Column::new(*name, ColumnType::Int8),
            })
            .collect();
        columns.extend((0..self.extra_columns).map(|at| Column::new(format!("x{at}"), ColumnType::Int8)));
        let definition = TableDef::new(name, columns);
        if self.is_keyed { definition.with_primary_key(&["k"]) } else { definition }
    }

    pub fn column_names(columns: &[usize]) -> Vec<&'static str> {
        columns.iter().map(|&column| NAMES[column]).collect()
    }

    pub fn values(&self, serial: i64, row: &Row) -> Vec<Value> {
        (0..NAMES.len() + self.extra_columns).map(|column| row.value(serial, column)).collect()
    }

    /// The columns of its unique keys.
    fn unique_keys(&self) -> impl Iterator<Item = &[usize]> {
        let primary = self.is_keyed.then_some(&[K][..]);
        primary.into_iter().chain(self.indexes.iter().filter(|it| it.is_unique).map(|it| &it.columns[..]))
    }

    /// Whether another row has one of the unique keys that this row has, or would have.
    pub fn has_key_of(&self, serial: i64, row: &Row) -> bool {
        self.unique_keys().any(|columns| {
            self.rows.iter().any(|(other, it)| {
                let is_same = |&column: &usize| {
                    let number = it.number(*other, column);
                    number.is_some() && number == row.number(serial, column)
                };
                *other != serial && columns.iter().all(is_same)
            })
        })
    }

    /// Whether two rows have the same values there, without a NULL.
    pub fn has_twice(&self, columns: &[usize]) -> bool {
        let mut seen = BTreeSet::new();
        self.rows.iter().filter_map(|(serial, row)| row.key(*serial, columns)).any(|key| !seen.insert(key))
    }

    /// The columns by which an index orders the rows; none for a table without a key.
    pub fn columns_of(&self, index: Option<&Index>) -> Vec<usize> {
        match index {
            Some(index) => index.columns.clone(),
            None if self.is_keyed => vec![K],
            None => vec![],
        }
    }

    /// A row as a scan gives it.
    pub fn read(&self, row: RowView<'_>) -> Result<(i64, Row)> {
        let serial = row.get_i64(0)?;
        for at in NAMES.len()..NAMES.len() + self.extra_columns {
            assert_eq!(row.get_i64(at)?, serial ^ at as i64, "column {at} of row {serial}");
        }
        let u = if row.is_null(U) { None } else { Some(row.get_i64(U)?) };
        let text = row.get_str(TEXT)?.to_owned();
        Ok((serial, Row { k: row.get_i64(K)?, u, n: row.get_i64(N)?, text }))
    }
}

impl Contents {
    /// The table of one row that counts transactions.
    pub fn prepare(db: &Database) {
        db.transact(|tx| {
            let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int8)];
            let table = tx.create_table(&TableDef::new(COUNT, columns).with_primary_key(&["id"]))?;
            tx.insert(&table, &[Value::Int4(0), Value::Int8(0)])
        })
        .unwrap();
    }

    /// The number of transactions in the database.
    pub fn count(db: &Database) -> i64 {
        let table = db.table(COUNT).unwrap();
        let mut tx = db.begin().unwrap();
        let count = tx.look(&table, 0, |row| row.get_i64(1)).unwrap().expect("its row is there").unwrap();
        let _ = tx.abort();
        count
    }

    /// Fails unless the database has exactly these contents, by each of its indexes.
    pub fn assert_in(&self, db: &Database, about: &str) {
        assert_eq!(Contents::count(db), self.transactions, "{about}: transactions");
        let tables = db.tables();
        let names = tables.iter().map(|table| table.name()).filter(|it| !it.starts_with("rialto_"));
        let names: BTreeSet<_> = names.filter(|it| *it != COUNT).collect();
        assert_eq!(names, self.tables.keys().cloned().collect(), "{about}: tables");
        let mut tx = db.begin().unwrap();
        self.assert_seen(&mut tx, about);
        // The machine may have ended: then whether what was read is durable is unknown.
        let _ = tx.abort();
        for (name, table) in &self.tables {
            let rows = db.table(name).unwrap().rows_estimate();
            assert_eq!(rows, table.rows.len() as u64, "{about}: rows of {name}");
        }
    }

    /// Fails unless the transaction sees this, by each index and in its order, in both directions.
    pub fn assert_seen(&self, tx: &mut Transaction, about: &str) {
        for (name, table) in &self.tables {
            let handle = tx.table(name).unwrap_or_else(|error| panic!("{about}: {error}"));
            let schema = handle.schema();
            assert_eq!(schema.primary_key().is_some(), table.is_keyed, "{about}: the key of {name}");
            let there = schema.indexes().iter();
            let mut there: Vec<_> =
                there.map(|it| (it.name.clone(), it.columns.clone(), it.unique)).collect();
            let expected = table.indexes.iter();
            let mut expected: Vec<_> =
                expected.map(|it| (it.name.clone(), it.columns.clone(), it.is_unique)).collect();
            there.sort();
            expected.sort();
            assert_eq!(there, expected, "{about}: indexes of {name}");
            for position in 0..=schema.indexes().len() {
                let which = match position {
                    0 => WhichIndex::Primary,
                    _ => WhichIndex::Secondary(position - 1),
                };
                let columns = match position {
                    0 => table.columns_of(None),
                    _ => schema.indexes()[position - 1].columns.clone(),
                };
                let direction = match (position + self.transactions as usize) % 2 {
                    0 => Direction::Forward,
                    _ => Direction::Backward,
                };
                let mut found = Vec::new();
                tx.scan(&handle, &Scan { index: which, direction, ..Scan::all() }, |_, row| {
                    found.push(table.read(row)?);
                    Ok(ControlFlow::Continue(()))
                })
                .unwrap_or_else(|error| panic!("{about}: {name} by {which:?}: {error}"));
                table.assert_rows(&found, &format!("{about}: {name} by {which:?}"));
                assert_ordered(&found, &columns, direction, &format!("{about}: {name} by {which:?}"));
            }
        }
    }
}

impl Table {
    /// These are its rows, each once.
    fn assert_rows(&self, found: &[(i64, Row)], about: &str) {
        let by_serial: BTreeMap<_, _> = found.iter().map(|(serial, row)| (*serial, row)).collect();
        assert_eq!(by_serial.len(), found.len(), "{about}: a row is there twice");
        let missing = self.rows.iter().find(|(serial, row)| by_serial.get(serial) != Some(row));
        let extra = by_serial.iter().find(|(serial, row)| self.rows.get(serial) != Some(row));
        assert!(missing.is_none() && extra.is_none(), "{about}: expected {missing:?}, found {extra:?}");
    }
}

/// Fails unless rows without a NULL in these columns are in their order.
pub fn assert_ordered(found: &[(i64, Row)], columns: &[usize], direction: Direction, about: &str) {
    let mut keys: Vec<_> = found.iter().filter_map(|(serial, row)| row.key(*serial, columns)).collect();
    if direction == Direction::Backward {
        keys.reverse();
    }
    assert!(keys.is_sorted(), "{about}: out of order");
}
