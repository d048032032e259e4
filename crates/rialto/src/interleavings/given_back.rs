//! Memory runs out while a checkpoint copies the catalog: the segments that the checkpoint counts as the system tables'
//! remain theirs.

use std::sync::Arc;

use parking_lot::Mutex;

use super::hooked::{About, HookedDisk};
use super::*;
use crate::Error;
use crate::catalog::system;
use crate::store::memory::SegmentId;

fn wide(name: &str, columns: usize, length: usize) -> TableDef {
    let column = |n| Column::new(format!("c{n:0>length$}"), ColumnType::Int4);
    TableDef::new(name, (0..columns).map(column).collect())
}

fn row(id: i32) -> [Value; 3] {
    [Value::Int4(id), Value::Int8(0), text(30_000)]
}

fn system_segments(db: &Database) -> Vec<u32> {
    let segments = &db.core().storage.memory.segments;
    let is_systems = |&id: &u32| segments.heap(SegmentId(id)).is_some_and(system::is_system_heap);
    (0..segments.high_water()).filter(is_systems).collect()
}

/// Fills the table until there is no memory; returns the next row's number.
fn fill(db: &Database, table: &Table, from: i32) -> i32 {
    for id in from.. {
        match db.transact_with(&level_1(), |tx| tx.insert(table, &row(id))) {
            Ok(()) => {}
            Err(Error::MemoryLimit { .. }) => return id,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("memory has a bound")
}

/// Between the copy of the catalog and the redo start a transaction with DDL looks for room, while system tables have
/// empty segments; and other transactions commit rows where they find room. The sweep skips the system tables'
/// segments, and redo begins after those rows.
#[test]
fn what_is_committed_while_the_catalog_is_copied_is_in_the_copy() {
    let faulty = FaultyDisk::new(seed());
    let disk = HookedDisk::new(faulty.clone());
    // Each image is written when it is copied, so that the hook runs between the copies and the redo start.
    let options = Options { memory_bytes: 8 << 20, snapshot_bytes_max: Some(0), ..options() };
    let (db, table) = filled_with(disk.clone(), options.clone());
    for name in ["a", "b", "c"] {
        db.transact(|tx| tx.create_table(&wide(name, 1600, 4)).map(drop)).unwrap();
    }
    for name in ["a", "b", "c"] {
        db.transact(|tx| tx.drop_table(name)).unwrap();
    }
    let systems = system_segments(&db);
    assert!(systems.len() > 6, "the test's own premise: {systems:?}");
    let next = fill(&db, &table, ROWS);
    let (last, ddl) = (SegmentId(systems[systems.len() - 1]), Arc::new(Mutex::new(None)));
    let hook = {
        let (db, table, systems, ddl) = (db.clone(), table.clone(), systems.clone(), ddl.clone());
        move |file: &str, about: About| {
            let comes = file.starts_with("backup") && about == About::Write(sweep::at(last));
            if comes && ddl.lock().is_none() {
                assert!(db.core().commits.definitions.is_held(), "the test's own premise");
                // Rows that fit into no free slot. The transaction takes room before it waits for the checkpoint.
                let define = {
                    let db = db.clone();
                    move || db.transact(|tx| tx.create_table(&wide("d", 1600, 60)).map(drop))
                };
                let mut ddl = ddl.lock();
                let ddl = ddl.insert(std::thread::spawn(define));
                until("it has found no room, or some", || {
                    ddl.is_finished() || system_segments(&db) != systems
                });
                fill(&db, &table, next);
            }
        }
    };
    disk.before(hook);
    assert!(!db.checkpoint().unwrap().skipped);
    disk.unhook();
    let defined = ddl.lock().take().expect("the sweep came by").join().unwrap();
    assert!(matches!(defined, Err(Error::MemoryLimit { .. })), "the test's own premise: {defined:?}");
    let expected = rows(&db);
    faulty.crash();
    drop((table, db));
    let db = Database::open_on(faulty.restart(), options).unwrap();
    assert!(rows(&db) == expected, "a system table keeps its segments");
}
