//! A database on which nothing happens by itself, and small tables, for tests that set the scene step by step.

use std::sync::Arc;
use std::time::Duration;

use rialto::io::Disk;
use rialto::row::{Column, ColumnType, Value};
use rialto::{Checkpointing, Database, Durability, Options, Table, TableDef, TxOptions};

/// The log is written only for waits, and a checkpoint is made only on demand. A wait for the log lasts as long as a
/// loaded machine takes to prepare the next file.
pub fn options() -> Options {
    Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        sweep_bytes_per_s: Some(0),
        recovery_threads: 2,
        memory_flush_interval: Duration::from_secs(3600),
        log_wait_max: Duration::from_secs(60),
        ..Options::default()
    }
}

pub fn open(disk: Arc<dyn Disk>) -> Database {
    Database::open_on(disk, options()).unwrap()
}

pub fn level(durability: Durability) -> TxOptions {
    TxOptions { durability: Some(durability), ..TxOptions::default() }
}

pub fn columns() -> Vec<Column> {
    vec![
        Column::new("id", ColumnType::Int4),
        Column::new("n", ColumnType::Int8),
        Column::new("text", ColumnType::Text),
    ]
}

pub fn row(id: i32, n: i64, text: &str) -> [Value; 3] {
    [Value::Int4(id), Value::Int8(n), Value::Text(text.to_owned())]
}

/// A table with a unique index on `n`.
pub fn unique_n(db: &Database) -> Table {
    db.transact(|tx| {
        let table = tx.create_table(&TableDef::new("t", columns()).with_primary_key(&["id"]))?;
        tx.create_index("t", "by_n", &["n"], true)?;
        Ok(table)
    })
    .unwrap()
}

/// A table "t" of ten rows, each with the number 0.
pub fn numbers(db: &Database) -> Table {
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int4)];
    db.transact(|tx| {
        let table = tx.create_table(&TableDef::new("t", columns.clone()).with_primary_key(&["id"]))?;
        (0..10).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int4(0)]))?;
        Ok(table)
    })
    .unwrap()
}

pub fn things(db: &Database) -> Table {
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
    db.transact(|tx| tx.create_table(&TableDef::new("things", columns.clone()).with_primary_key(&["id"])))
        .unwrap()
}

pub fn thing(id: i32, length: usize) -> [Value; 2] {
    [Value::Int4(id), Value::Text("x".repeat(length))]
}

pub fn put(db: &Database, ids: std::ops::Range<i32>) {
    let table = db.table("things").unwrap();
    db.transact(|tx| ids.clone().try_for_each(|id| tx.insert(&table, &thing(id, 400)))).unwrap();
}

pub fn count(db: &Database) -> u64 {
    let table = db.table("things").unwrap();
    db.read(|tx| tx.count(&table)).unwrap()
}
