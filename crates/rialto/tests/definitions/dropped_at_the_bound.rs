//! A table is dropped, and copied no more, while a transaction at the memory bound wants its empty segments. A copy, or
//! an increment, that is taken after the drop has none of them, so the database opens without a warning.

use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rialto::backup::{Backup, BackupKind, Restore, restore};
use rialto::io::{Disk, FaultyDisk, MemoryDisk};
use rialto::row::{Column, ColumnType, Value};
use rialto::{Checkpointing, Database, Durability, Error, Options, Table, TableDef, TxOptions};

const SEEDS: u64 = 20;

fn options() -> Options {
    Options { memory_bytes: 8 << 20, checkpoint: Checkpointing::None, ..Options::default() }
}

fn level_1() -> TxOptions {
    TxOptions { durability: Some(Durability::Memory), ..TxOptions::default() }
}

fn insert(db: &Database, table: &Table, id: i32) -> Result<(), Error> {
    let row = [Value::Int4(id), Value::Text("x".repeat(30_000))];
    db.transact_with(&level_1(), |tx| tx.insert(table, &row))
}

/// A database with two tables: "t", whose rows are all deleted, and "u".
fn with_an_emptied_table(disk: Arc<FaultyDisk>) -> (Database, Table) {
    let db = Database::open_on(disk, options()).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
    let [t, u] = ["t", "u"].map(|name| {
        db.transact(|tx| tx.create_table(&TableDef::new(name, columns.clone()).with_primary_key(&["id"])))
            .unwrap()
    });
    (0..20).for_each(|id| insert(&db, &t, id).unwrap());
    (0..20).for_each(|id| db.transact_with(&level_1(), |tx| tx.delete(&t, id).map(drop)).unwrap());
    (db, u)
}

/// Drops "t" and does `work` while another thread inserts into "u" at the bound. A transaction is open all the time, so
/// a transaction that needs another table's segments waits for it.
fn drop_beside_inserts(db: &Database, u: &Table, seed: u64, work: impl FnOnce()) {
    let mut open = db.begin().unwrap();
    open.get(u, 0).unwrap();
    let (is_over, refused) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for id in 2.. {
                if is_over.load(Ordering::SeqCst) {
                    return;
                }
                match insert(db, u, id) {
                    Ok(()) => {}
                    Err(Error::MemoryLimit { .. }) => _ = refused.fetch_add(1, Ordering::SeqCst),
                    Err(error) => panic!("{error}"),
                }
            }
        });
        while refused.load(Ordering::SeqCst) < 3 + seed % 3 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(1 + seed % 4));
        db.transact_with(&level_1(), |tx| tx.drop_table("t")).unwrap();
        work();
        is_over.store(true, Ordering::SeqCst);
    });
    open.abort().unwrap();
}

/// The disk of a database that was cut off after the checkpoint, or in the next one, once that has retired the older
/// copy.
fn cut_off(seed: u64, in_the_next: bool) -> Arc<FaultyDisk> {
    let disk = FaultyDisk::new(seed);
    let (db, u) = with_an_emptied_table(disk.clone());
    db.checkpoint().unwrap();
    insert(&db, &u, 0).unwrap();
    db.checkpoint().unwrap();
    insert(&db, &u, 1).unwrap();
    drop_beside_inserts(&db, &u, seed, || assert!(!db.checkpoint().unwrap().skipped));
    if in_the_next {
        db.transact(|tx| tx.delete(&u, 0).map(drop)).unwrap();
        disk.crash_at(disk.steps() + 6);
        assert!(db.checkpoint().is_err());
    } else {
        db.sync().unwrap();
        disk.crash();
    }
    drop((u, db));
    disk.restart()
}

#[test]
fn a_copy_has_no_segment_of_a_table_that_was_dropped_before_it() {
    for seed in 0..SEEDS {
        let db = Database::open_on(cut_off(seed, false), options()).unwrap();
        assert_eq!(db.recovery().unwrap().fell_back, None, "seed {seed}");
    }
}

#[test]
fn a_database_whose_table_was_dropped_opens_where_no_older_copy_stands_in() {
    for seed in 0..SEEDS {
        Database::open_on(cut_off(seed, true), options())
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn an_increment_behind_the_drop_is_restored() {
    for seed in 0..SEEDS {
        let (db, u) = with_an_emptied_table(FaultyDisk::new(seed));
        let (mut base, mut increment) = (Vec::new(), Vec::new());
        insert(&db, &u, 0).unwrap();
        db.backup_to(&mut base, BackupKind::Full).unwrap();
        drop_beside_inserts(&db, &u, seed, || {
            let report = db.backup_to(&mut increment, BackupKind::Incremental).unwrap();
            assert!(report.base.is_some());
        });
        let backups = [base, increment].map(|bytes| Backup::stream("backup", Cursor::new(bytes)));
        let to: Arc<dyn Disk> = MemoryDisk::new();
        restore(Restore::new(backups.into()), to.clone()).unwrap();
        Database::open_on(to, options()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}
