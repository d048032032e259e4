//! Log cursors of a database.

use std::time::Duration;

use crate::common::quiet::{numbers, options};
use rialto::io::{Disk, FaultyDisk, MemoryDisk};
use rialto::row::{Column, ColumnType, Value};
use rialto::{Checkpointing, Database, Durability, Error, Logging, Options, TableDef};

/// What a cursor has read of level 1 may be lost with the machine. The next opening tells that at once.
#[test]
fn a_point_that_a_crash_took_back_is_refused() {
    let options = Options {
        durability: Durability::Memory,
        memory_flush_interval: Duration::from_secs(600),
        ..options()
    };
    let disk = FaultyDisk::new(21);
    let db = Database::open_on(disk.clone(), options.clone()).unwrap();
    let table = numbers(&db);
    db.sync().unwrap();
    let mut cursor = db.log_cursor(None, u64::MAX).unwrap();
    let start = cursor.point();
    db.transact(|tx| tx.modify(&table, 3, |row| row.add(1, 1).map(drop)).map(drop)).unwrap();
    let read = cursor.next_blocks(usize::MAX, Duration::from_secs(60)).unwrap().expect("a block").end;
    assert!(read.lsn > start.lsn);
    disk.crash();
    drop((cursor, table, db));
    let db = Database::open_on(disk.restart(), options).unwrap();
    let refused = db.log_cursor(Some(read), u64::MAX).map(drop);
    assert!(matches!(refused, Err(Error::LogDiverged { .. })), "{refused:?}");
    // The log goes on from what was on the disk.
    let mut cursor = db.log_cursor(Some(start), u64::MAX).unwrap();
    let table = db.table("t").unwrap();
    db.transact(|tx| tx.modify(&table, 3, |row| row.add(1, 1).map(drop)).map(drop)).unwrap();
    while cursor.point().lsn <= start.lsn {
        assert!(cursor.next_blocks(usize::MAX, Duration::from_secs(60)).unwrap().is_some());
    }
}

#[test]
fn a_database_without_a_log_has_no_cursor() {
    let options = Options { logging: Logging::None, checkpoint: Checkpointing::None, ..options() };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let refused = db.log_cursor(None, 0).map(drop);
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
}

/// The load files that the log names stay with it.
#[test]
fn a_cursor_keeps_the_load_files_of_its_log() {
    let disk = FaultyDisk::new(22);
    let db =
        Database::open_on(disk.clone(), Options { checkpoint: Checkpointing::Fuzzy, ..options() }).unwrap();
    let load_files = || disk.list().unwrap().into_iter().filter(|name| name.starts_with("load-")).count();
    let cursor = db.log_cursor(None, u64::MAX).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int4)];
    let definition = TableDef::new("loaded", columns).with_primary_key(&["id"]);
    db.transact(|tx| {
        let table = tx.create_table(&definition)?;
        (0..2_000).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int4(id)]))
    })
    .unwrap();
    assert_eq!(load_files(), 1, "the test's own premise");
    let table = db.table("loaded").unwrap();
    let checkpoints = || {
        for _ in 0..4 {
            db.transact(|tx| tx.modify(&table, 1, |row| row.add(1, 1).map(drop)).map(drop)).unwrap();
            db.checkpoint().unwrap();
        }
    };
    checkpoints();
    assert_eq!(load_files(), 1);
    drop(cursor);
    checkpoints();
    assert_eq!(load_files(), 0);
}
