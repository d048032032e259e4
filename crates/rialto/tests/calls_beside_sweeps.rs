//! Values beside calls, beside a transaction-consistent black/white sweep (`Logging::Transaction`): recovery does the packets that
//! the copy lacks, and no others, whatever kind they are of.
//!
//! A gate holds the sweep's writes at a place of the backup copy. A transaction that runs meanwhile, and touches only segments
//! behind that place, is white: the copy has all of it, and its place is behind the redo start.

#[path = "common/gated.rs"]
mod gated;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use gated::{GatedDisk, disk};
use rialto::io::{Caching, Disk, MemoryDisk, Open};
use rialto::recovery::RecoveryReport;
use rialto::recovery::check::check;
use rialto::row::{Column, ColumnType, Value};
use rialto::{Action, Checkpointing, Database, Logging, Options, Procedure, Scan, TableDef};

const SEGMENT: u64 = 64 << 10;
/// Of a row that comes into the last segment.
const KEY: i32 = 1000;

fn remove() -> Procedure {
    let remove = Action::exclusive("things", |transaction, arguments, _| {
        let id = arguments.get::<i32>(0)?;
        transaction.delete(arguments.table()?, id).map(drop)
    });
    Procedure::new("remove", [ColumnType::Int4], remove.by_argument(0)).deterministic(1)
}

fn add() -> Procedure {
    let add = Action::exclusive("things", |transaction, arguments, _| {
        let id = arguments.get::<i32>(0)?;
        transaction.insert(arguments.table()?, &row(id, 9))
    });
    Procedure::new("add", [ColumnType::Int4], add.by_argument(0)).deterministic(1)
}

fn options() -> Options {
    Options {
        memory_bytes: 256 << 20,
        logging: Logging::Transaction,
        checkpoint: Checkpointing::TransactionBlackWhite,
        checkpoint_interval: Duration::from_secs(3600),
        procedures: vec![remove(), add()],
        recovery_threads: 2,
        ..Options::default()
    }
}

fn row(id: i32, n: i32) -> [Value; 3] {
    [Value::Int4(id), Value::Int4(n), Value::Text("x".repeat(30_000))]
}

/// Rows two to a segment, of which the last two are deleted: there is room for others in the last segment. A
/// transaction-consistent copy is in force, so calls are logged as such.
fn filled() -> (GatedDisk, Database) {
    let disk = disk();
    let db = Database::open_on(disk.disk.clone(), options()).unwrap();
    let columns = vec![
        Column::new("id", ColumnType::Int4),
        Column::new("n", ColumnType::Int4),
        Column::new("text", ColumnType::Text),
    ];
    db.transact(|tx| {
        tx.create_table(&TableDef::new("things", columns.clone()).with_primary_key(&["id"]))?;
        tx.create_index("things", "things_n", &["n"], true)
    })
    .unwrap();
    for id in 0..40 {
        put(&db, id, 10 * id);
    }
    db.checkpoint().unwrap();
    for id in [38, 39] {
        delete(&db, id);
    }
    (disk, db)
}

/// Logged as values.
fn put(db: &Database, id: i32, n: i32) {
    let table = db.table("things").unwrap();
    db.transact(|tx| tx.insert(&table, &row(id, n))).unwrap();
}

/// Logged as values.
fn delete(db: &Database, id: i32) {
    let table = db.table("things").unwrap();
    db.transact(|tx| tx.delete(&table, id).map(drop)).unwrap();
}

/// Makes a checkpoint, and runs `work` while its sweep is held before it writes the tenth segment.
fn beside_a_sweep(disk: &GatedDisk, db: &Database, work: impl FnOnce()) {
    disk.gate.set(10 * SEGMENT);
    std::thread::scope(|scope| {
        let sweep = scope.spawn(|| db.checkpoint());
        disk.gate.wait_until_reached();
        work();
        disk.gate.set(u64::MAX);
        sweep.join().unwrap().unwrap()
    });
    assert_eq!(db.metrics().aborted_colour, 0, "the test's own premise: all of it is white");
}

fn rows(db: &Database) -> Vec<(i32, i32)> {
    let table = db.table("things").unwrap();
    let mut rows = Vec::new();
    db.read(|tx| {
        rows.clear();
        tx.scan(&table, &Scan::all(), |_, row| {
            rows.push((row.get_i32(0)?, row.get_i32(1)?));
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
    rows
}

/// Closes the database, and opens it again by recovery: `check` finds it sound, and the rows are the same.
fn recovered(disk: &GatedDisk, db: Database) -> RecoveryReport {
    let expected = rows(&db);
    db.close().unwrap();
    let shared: Arc<dyn Disk> = disk.disk.clone();
    let report = check(&shared, 256 << 20, 2).unwrap();
    assert!(report.is_sound(), "{report}");
    let db = Database::open_on(disk.disk.clone(), options()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(rows(&db), expected);
    db.recovery().unwrap().clone()
}

/// The copy has the insert and the call that takes it back, so it has no such row, and nothing in it says of which place that is.
#[test]
fn a_row_that_a_held_call_deleted_stays_deleted() {
    let (disk, db) = filled();
    beside_a_sweep(&disk, &db, || {
        put(&db, KEY, 7);
        db.call("remove", &[Value::Int4(KEY)]).unwrap();
    });
    assert_eq!(recovered(&disk, db).calls, 0, "the copy has the call");
}

/// A call that is run again finds the rows that it found.
#[test]
fn a_call_behind_the_sweep_puts_anew_what_a_held_call_deleted() {
    let (disk, db) = filled();
    beside_a_sweep(&disk, &db, || {
        put(&db, KEY, 7);
        db.call("remove", &[Value::Int4(KEY)]).unwrap();
    });
    db.call("add", &[Value::Int4(KEY)]).unwrap();
    assert_eq!(recovered(&disk, db).calls, 1);
}

/// Held values delete what a held call put, and the other way round; packets of both kinds go on behind the sweep.
#[test]
fn values_and_calls_take_turns_beside_a_sweep() {
    let (disk, db) = filled();
    beside_a_sweep(&disk, &db, || {
        db.call("add", &[Value::Int4(KEY)]).unwrap();
        put(&db, KEY + 1, 7);
        delete(&db, KEY);
        db.call("remove", &[Value::Int4(KEY + 1)]).unwrap();
    });
    put(&db, KEY, 12);
    db.call("add", &[Value::Int4(KEY + 1)]).unwrap();
    delete(&db, KEY);
    db.call("remove", &[Value::Int4(KEY + 1)]).unwrap();
    db.call("add", &[Value::Int4(KEY)]).unwrap();
    assert_eq!(recovered(&disk, db).calls, 3);
}

/// A sweep that is cut off has no copy in force: what it would have held is done again.
#[test]
fn what_a_sweep_that_is_cut_off_would_have_held_is_done_again() {
    let (disk, db) = filled();
    let mut left = None;
    beside_a_sweep(&disk, &db, || {
        put(&db, KEY, 7);
        put(&db, KEY + 1, 8);
        db.call("remove", &[Value::Int4(KEY)]).unwrap();
        left = Some(copied(&*disk.disk));
    });
    let again = Database::open_on(left.unwrap(), options()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(rows(&again), rows(&db));
    assert_eq!(again.recovery().unwrap().calls, 1);
}

/// A disk with the same files.
fn copied(disk: &dyn Disk) -> Arc<MemoryDisk> {
    let copy = MemoryDisk::new();
    for name in disk.list().unwrap() {
        let Ok(from) = disk.open(&name, Open::ReadOnly, Caching::Buffered) else { continue };
        let mut bytes = vec![0; from.length().unwrap() as usize];
        from.read_at(&mut bytes, 0).unwrap();
        copy.open(&name, Open::Create, Caching::Buffered).unwrap().write_at(&bytes, 0).unwrap();
    }
    copy
}
