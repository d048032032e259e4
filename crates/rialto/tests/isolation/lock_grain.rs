//! Which rows of a disk-resident table a lock on one of them locks.

use std::time::Duration;

use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value};
use rialto::{Database, Engine, Error, LockGrain, Options, Residence, TableDef};

const ROWS: i32 = 1_000;

fn options(lock_grain: LockGrain) -> Options {
    Options {
        memory_bytes: 32 << 20,
        cache_bytes: 4 << 20,
        page_bytes: 4_096,
        engine: Engine::central(),
        lock_timeout: Duration::from_millis(1),
        lock_grain,
        ..Options::default()
    }
}

/// The keys of the rows that cannot be changed while another transaction has changed the first one.
fn locked_with_the_first(rows: i32, lock_grain: LockGrain) -> Vec<i32> {
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options(LockGrain::Record)).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
    let definition =
        TableDef::new("things", columns).with_primary_key(&["id"]).with_residence(Residence::Disk);
    let table = db.transact(|tx| tx.create_table(&definition)).unwrap();
    for key in 0..rows {
        let row = [Value::Int4(key), Value::Text("x".repeat(200))];
        db.transact(|tx| tx.insert(&table, &row)).unwrap();
    }
    db.close().unwrap();

    // The grain of pages is found when the database is opened.
    let db = Database::open_on(disk, options(lock_grain)).unwrap();
    let table = db.table("things").unwrap();
    let change = [(1, Value::Text(String::new()))];
    let mut holder = db.begin().unwrap();
    assert!(holder.update(&table, 0, &change).unwrap());
    let is_locked = |key: &i32| match db.transact(|tx| tx.update(&table, *key, &change)) {
        Ok(there) => {
            assert!(there, "{key}");
            false
        }
        Err(Error::LockTimeout { .. }) => true,
        Err(error) => panic!("{key}: {error}"),
    };
    let locked = (0..rows).filter(is_locked).collect();
    holder.commit().unwrap();
    assert!((0..rows).all(|key| !is_locked(&key)), "all locks end with their transaction");
    db.close().unwrap();
    locked
}

#[test]
fn a_lock_on_a_row_locks_the_row() {
    assert_eq!(locked_with_the_first(ROWS, LockGrain::Record), [0]);
}

#[test]
fn with_the_grain_of_pages_a_lock_on_a_row_locks_its_neighbours() {
    let locked = locked_with_the_first(ROWS, LockGrain::Page);
    // A page of 4 KiB has at most 20 rows of 200 bytes, and half as many if it has been split.
    assert!((4..=16).contains(&locked.len()), "{locked:?}");
    assert_eq!(locked, (0..locked.len() as i32).collect::<Vec<_>>(), "those that are beside it");
}

#[test]
fn with_the_grain_of_pages_all_rows_of_an_index_of_one_page_are_locked_together() {
    assert_eq!(locked_with_the_first(5, LockGrain::Page), [0, 1, 2, 3, 4]);
    assert_eq!(locked_with_the_first(5, LockGrain::Record), [0]);
}
