//! Directed interleaving tests of the whole engine, one for each critical case that is known: a commit or a sweep is
//! held at one moment, and the other threads go on. These tests are part of the kernel, because they hold a thread at a
//! point inside it: a segment's latch stops an apply half way, a hook of the disk stops a sweep between two segments.
//! Tests that a disk alone can set up are in `tests/durability/interleavings.rs`.

mod apply;
mod archived;
mod black_white;
#[path = "../../tests/common/mod.rs"]
pub(crate) mod common;
pub(crate) mod consistent;
mod followed;
mod given_back;
mod operations;
mod parts;
mod rehoused;
mod sweep;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(crate) use self::common::hooked;
use crate::io::{Disk, FaultyDisk, Random};
use crate::row::{Column, ColumnType, IntoKey, Key, Value, WhichIndex};
use crate::store::memory::RecordRef;
use crate::{
    Checkpointing, Database, Durability, KeyBound, Lsn, Options, Result, Scan, Table, TableDef, Transaction,
    TxOptions,
};

/// Options without background work: no checkpoint, and no write of commits at level 1 that have no waiter.
pub(crate) fn options() -> Options {
    Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        sweep_bytes_per_s: Some(0),
        recovery_threads: 2,
        memory_flush_interval: Duration::from_secs(3600),
        ..Options::default()
    }
}

pub(crate) fn seed() -> u64 {
    Random::seed_from_environment()
}

fn text(length: usize) -> Value {
    Value::Text("x".repeat(length))
}

/// Rows that fill several segments, eight to each, with room in the last one, all in both backup copies: so each
/// segment is clean. Row 0 is a little longer than the others.
const ROWS: i32 = 42;

fn filled(disk: Arc<dyn Disk>) -> (Database, Table) {
    filled_with(disk, options())
}

fn filled_with(disk: Arc<dyn Disk>, options: Options) -> (Database, Table) {
    let db = Database::open_on(disk, options).unwrap();
    let columns = vec![
        Column::new("id", ColumnType::Int4),
        Column::new("n", ColumnType::Int8),
        Column::new("text", ColumnType::Text),
    ];
    let table = db
        .transact(|tx| {
            let table = tx.create_table(&TableDef::new("t", columns.clone()).with_primary_key(&["id"]))?;
            tx.create_index("t", "by_n", &["n"], false)?;
            Ok(table)
        })
        .unwrap();
    for id in 0..ROWS {
        let length = if id == 0 { 9_000 } else { 7_700 };
        db.transact(|tx| tx.insert(&table, &[Value::Int4(id), Value::Int8(0), text(length)])).unwrap();
    }
    db.transact(|tx| tx.create_table(&TableDef::new("tick", vec![Column::new("n", ColumnType::Int4)])))
        .unwrap();
    for _ in 0..2 {
        tick(&db);
        assert!(!db.checkpoint().unwrap().skipped);
    }
    (db, table)
}

/// Gives the next checkpoint something to do.
fn tick(db: &Database) {
    let table = db.table("tick").unwrap();
    db.transact(|tx| tx.insert(&table, &[Value::Int4(1)])).unwrap();
}

fn record_of(table: &Table, id: i32) -> RecordRef {
    let version = table.version();
    let mut key = Key::new();
    id.encode_into(version.schema.key_shape(WhichIndex::Primary), &mut key).unwrap();
    version.store.find(WhichIndex::Primary, &key).location().expect("the row has an entry").into()
}

fn set_n(tx: &mut Transaction, table: &Table, id: i32, n: i64) -> Result<()> {
    let found = tx.update(table, id, &[(1, Value::Int8(n))])?;
    assert!(found, "row {id} is there");
    Ok(())
}

fn level_1() -> TxOptions {
    TxOptions { durability: Some(Durability::Memory), ..TxOptions::default() }
}

/// Commits without waiting, and without a request to the log server.
fn commit(db: &Database, body: impl FnMut(&mut Transaction) -> Result<()>) -> Lsn {
    db.submit_with(&level_1(), body).unwrap().1.lsn()
}

/// `(id, n, length of text)` of all rows, by the primary key, after a check that the secondary index agrees.
fn rows(db: &Database) -> Vec<(i32, i64, usize)> {
    let table = db.table("t").unwrap();
    let read = |which| {
        let mut rows = Vec::new();
        db.read(|tx| {
            rows.clear();
            tx.scan(&table, &Scan { index: which, ..Scan::all() }, |_, row| {
                rows.push((row.get_i32(0)?, row.get_i64(1)?, row.get_str(2)?.len()));
                Ok(ControlFlow::Continue(()))
            })
        })
        .unwrap();
        rows
    };
    let by_key = read(WhichIndex::Primary);
    let mut by_n = read(WhichIndex::Secondary(0));
    assert!(by_n.is_sorted_by_key(|row| row.1));
    by_n.sort_unstable();
    assert_eq!(by_n, by_key, "by the secondary index, and by the primary key");
    assert_eq!(table.rows_estimate(), by_key.len() as u64);
    by_key
}

fn n_of(rows: &[(i32, i64, usize)], id: i32) -> i64 {
    rows.iter().find(|row| row.0 == id).expect("the row is there").1
}

/// Crashes the machine; returns the database that opens on what the disk then holds.
fn crashed(faulty: &FaultyDisk, db: Database) -> (Arc<FaultyDisk>, Database) {
    faulty.crash();
    drop(db);
    let disk = faulty.restart();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    (disk, db)
}

/// Waits for what another thread is sure to do; the limit only makes a broken engine fail the test.
fn until(what: &str, happened: impl FnMut() -> bool) {
    until_while(what, happened, || ());
}

/// As [`until`], for many steps: the limit counts from the last step, so that a slow machine does not fail the test.
fn until_while<S: PartialEq>(
    what: &str,
    mut happened: impl FnMut() -> bool,
    mut progress: impl FnMut() -> S,
) {
    let (mut since, mut seen) = (Instant::now(), progress());
    while !happened() {
        let now = progress();
        if now != seen {
            (since, seen) = (Instant::now(), now);
        }
        assert!(since.elapsed() < Duration::from_secs(60), "waited in vain: {what}");
        std::thread::yield_now();
    }
}

/// Waits until another checkpoint is complete, as long as sweeps write to the copies.
pub(crate) fn until_checkpoint(db: &Database, swept: &AtomicU64) {
    let completed = || db.metrics().checkpoints.completed;
    let before = completed();
    until_while("a checkpoint is complete", || completed() > before, || swept.load(Ordering::Relaxed));
}

/// The rows with this `n`.
fn with_n(n: i64) -> Scan {
    let bound = || KeyBound::Included(vec![Value::Int8(n)]);
    Scan { index: WhichIndex::Secondary(0), lower: bound(), upper: bound(), ..Scan::all() }
}
