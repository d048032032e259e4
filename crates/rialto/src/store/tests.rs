//! What is kept of versions that DDL has replaced or taken back: at most one version for each holder, whatever number
//! of them there were, and none of their segments and index nodes.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::TableVersion;
use crate::catalog::system::LAST_ID;
use crate::io::{Disk, MemoryDisk};
use crate::row::{Column, ColumnType, Value};
use crate::{
    Checkpointing, Database, Durability, Error, Options, Result, Table, TableDef, Transaction, TxOptions,
};

const ROUNDS: usize = 1_000;
/// Contexts that have used the tables and are idle.
const IDLE: usize = 4;

fn open() -> Database {
    let options = Options { memory_bytes: 32 << 20, checkpoint: Checkpointing::None, ..Options::default() };
    Database::open_on(MemoryDisk::new(), options).unwrap()
}

fn transact<T>(db: &Database, body: impl FnMut(&mut Transaction) -> Result<T>) -> T {
    let level_1 = TxOptions { durability: Some(Durability::Memory), ..TxOptions::default() };
    db.transact_with(&level_1, body).unwrap()
}

fn create(tx: &mut Transaction, name: &str) -> Result<Table> {
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int4)];
    tx.create_table(&TableDef::new(name, columns).with_primary_key(&["id"]))
}

fn fill(tx: &mut Transaction, table: &Table) -> Result<()> {
    (0..3).try_for_each(|id| tx.insert(table, &[Value::Int4(id), Value::Int4(-id)]))
}

/// Has several contexts use a table and leaves them idle; the calling thread goes on with one of them.
fn use_in_contexts(db: &Database, table: &Table) {
    let mut used: Vec<_> = (0..IDLE).map(|_| db.begin().unwrap()).collect();
    used.iter_mut().for_each(|tx| drop(tx.get(table, 0).unwrap()));
    used.into_iter().for_each(|tx| tx.commit().unwrap());
}

/// The memory that tables have taken.
fn taken(db: &Database) -> (u64, u64) {
    let core = db.core();
    let segments: usize = core.storage.catalog.heaps().iter().map(|heap| heap.owned().len()).sum();
    let others = core.storage.memory.segments.budget().used() - core.storage.memory.nodes.bytes_taken();
    assert_eq!(others, segments as u64 * crate::store::memory::SEGMENT_BYTES as u64, "segments of no table");
    (core.storage.memory.nodes.nodes_in_use(), others)
}

/// Runs rounds of DDL, each of which shows the versions that it has made. Returns how many versions are alive at the
/// end, and checks that the tables have taken no more memory than at the beginning, except for a leaf or a segment of
/// the system tables.
fn alive_after(db: &Database, mut round: impl FnMut(&mut dyn FnMut(&Table))) -> usize {
    let mut made: Vec<Weak<TableVersion>> = Vec::new();
    let mut run = |rounds| {
        for _ in 0..rounds {
            round(&mut |table| made.push(Arc::downgrade(&table.version())));
        }
    };
    run(10);
    let before = taken(db);
    run(ROUNDS);
    let after = taken(db);
    assert!(after.0 <= before.0 + 20, "{before:?} {after:?}");
    assert!(after.1 <= before.1 + (8 << 16), "{before:?} {after:?}");
    assert!(made.len() >= ROUNDS);
    made.iter().filter(|version| version.strong_count() > 0).count()
}

#[test]
fn truncates_leave_a_version_for_each_holder() {
    let db = open();
    // The transaction's own handle, and the catalog's.
    let own = transact(&db, |tx| create(tx, "t"));
    let table = db.table("t").unwrap();
    transact(&db, |tx| fill(tx, &table));
    use_in_contexts(&db, &table);
    let first = Arc::downgrade(&own.version());
    let alive = alive_after(&db, |note| {
        transact(&db, |tx| {
            tx.truncate(&table)?;
            fill(tx, &table)
        });
        note(&table);
    });
    assert!(alive <= IDLE + 2, "{alive} versions");
    assert!(first.strong_count() > 0, "the test's own premise");
    assert!(Arc::ptr_eq(&own.version(), &table.version()), "a handle goes over to the committed version");
    assert_eq!(transact(&db, |tx| tx.count(&own)), 3);
}

#[test]
fn indexes_that_come_and_go_leave_a_version_for_each_holder() {
    let db = open();
    let own = transact(&db, |tx| create(tx, "t"));
    transact(&db, |tx| fill(tx, &own));
    use_in_contexts(&db, &own);
    let table = db.table("t").unwrap();
    let alive = alive_after(&db, |note| {
        transact(&db, |tx| tx.create_index("t", "by_n", &["n"], true));
        note(&table);
        transact(&db, |tx| tx.drop_index("by_n"));
        note(&table);
    });
    assert!(alive <= IDLE + 2, "{alive} versions");
    use_in_contexts(&db, &own);
}

#[test]
fn tables_that_come_and_go_leave_a_version_for_each_holder() {
    let db = open();
    let mut kept = Vec::new();
    let alive = alive_after(&db, |note| {
        let table = transact(&db, |tx| {
            let table = create(tx, "t")?;
            tx.create_index("t", "by_n", &["n"], false)?;
            fill(tx, &table)?;
            Ok(table)
        });
        note(&table);
        if kept.len() < 10 {
            use_in_contexts(&db, &table);
            kept.push(table);
        }
        transact(&db, |tx| tx.drop_table("t"));
    });
    assert!(alive <= 10, "{alive} versions");
    // The holder of a handle gets an error.
    for table in kept {
        let read = db.read(|tx| tx.get(&table, 1));
        assert_eq!(read.unwrap_err(), Error::NoSuchTable { table: "t".to_owned() });
    }
}

/// Tables, indexes and truncations that are taken back with their transaction, or with a savepoint, leave nothing.
#[test]
fn what_is_taken_back_leaves_nothing() {
    let db = open();
    let own = transact(&db, |tx| create(tx, "t"));
    transact(&db, |tx| fill(tx, &own));
    use_in_contexts(&db, &own);
    let mut kept = Vec::new();
    let mut number = 0;
    let alive = alive_after(&db, |note| {
        number += 1;
        let mut tx = db.begin().unwrap();
        let savepoint = tx.savepoint();
        for _ in 0..2 {
            let new = create(&mut tx, "new").unwrap();
            tx.create_index("new", "by_n", &["n"], true).unwrap();
            fill(&mut tx, &new).unwrap();
            note(&tx.table("new").unwrap());
            tx.create_index("t", "t_by_n", &["n"], false).unwrap();
            note(&tx.table("t").unwrap());
            tx.truncate(&own).unwrap();
            fill(&mut tx, &own).unwrap();
            let truncated = tx.table("t").unwrap();
            note(&truncated);
            if kept.len() < 10 {
                kept.push(truncated);
            }
            tx.rollback_to(&savepoint).unwrap();
            assert_eq!(tx.count(&own).unwrap(), 3);
        }
        if number % 2 == 0 { tx.abort().unwrap() } else { tx.commit().unwrap() }
    });
    assert!(alive <= 10, "{alive} versions");
    assert!(kept.iter().all(|table| Arc::ptr_eq(&table.version(), &own.version())));
    assert_eq!(transact(&db, |tx| tx.count(&own)), 3);
}

/// A table without a primary key, two of whose rows have the same `n`.
fn create_unkeyed(tx: &mut Transaction) -> Result<()> {
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int4)];
    let table = tx.create_table(&TableDef::new("unkeyed", columns))?;
    (0..3).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int4(id / 2)]))
}

#[test]
fn a_refused_definition_takes_no_identifier() {
    let db = open();
    transact(&db, create_unkeyed);
    let before = db.core().storage.catalog.next_id();
    let columns = || vec![Column::new("id", ColumnType::Int4)];
    let many = (0..9)
        .fold(TableDef::new("t", columns()), |def, nth| def.with_index(format!("i{nth}"), &["id"], false));
    for def in [
        many.clone().with_index("twice", &["id", "id"], false),
        many.with_index("absent", &["nothing"], false),
        TableDef::new("t", columns()).with_primary_key(&["nothing"]),
        TableDef::new("t", vec![Column::new("id", ColumnType::Int4); 2]),
        TableDef::new("unkeyed", columns()),
    ] {
        assert!(db.transact(|tx| tx.create_table(&def)).is_err(), "{def:?}");
    }
    for columns in [&["nothing"][..], &["id", "id"], &["n"]] {
        assert!(db.transact(|tx| tx.create_index("unkeyed", "i", columns, true)).is_err(), "{columns:?}");
        assert!(db.transact(|tx| tx.add_primary_key("unkeyed", columns)).is_err(), "{columns:?}");
    }
    assert_eq!(db.core().storage.catalog.next_id(), before);
}

/// Uses up the identifiers from `next` on: each statement succeeds or is refused, and the database opens with
/// everything that was made.
fn uses_up_identifiers(next: u32) {
    const ROWS: i32 = 1_000;
    let options =
        || Options { memory_bytes: 32 << 20, checkpoint: Checkpointing::None, ..Options::default() };
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    transact(&db, create_unkeyed);
    db.core().storage.catalog.next_id.store(next, Ordering::Relaxed);
    // A table takes three identifiers, and its rows would be a bulk load.
    let last = db.transact(|tx| {
        let table = create(tx, "last")?;
        (0..ROWS).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int4(id)]))
    });
    let is_refusal = |error: &Error| matches!(error, Error::NumbersUsedUp { limit: LAST_ID, .. });
    assert_eq!(last.is_ok(), next <= LAST_ID - 2);
    assert!(last.as_ref().err().is_none_or(is_refusal), "{last:?}");
    let names = disk.list().unwrap();
    assert!(!names.iter().any(|name| name.starts_with("load-")), "there is no number for one: {names:?}");
    let is_used_up = |db: &Database| {
        let refused = |statement: &mut dyn FnMut(&mut Transaction) -> Result<()>| {
            let outcome = db.transact(&mut *statement);
            assert!(outcome.as_ref().is_err_and(is_refusal), "{outcome:?}");
        };
        refused(&mut |tx| create(tx, "more").map(drop));
        refused(&mut |tx| tx.create_index("unkeyed", "i", &["n"], false));
        refused(&mut |tx| tx.add_primary_key("unkeyed", &["id"]));
        refused(&mut |tx| tx.truncate(&db.table("unkeyed")?));
    };
    is_used_up(&db);
    db.close().unwrap();
    let db = Database::open_on(disk, options()).unwrap();
    for (name, rows) in [("unkeyed", 3), ("last", ROWS as u64)] {
        if name == "unkeyed" || last.is_ok() {
            let table = db.table(name).unwrap();
            assert_eq!(db.transact(|tx| tx.count(&table)), Ok(rows), "{name}");
        }
    }
    if last.is_ok() {
        is_used_up(&db);
        db.transact(|tx| tx.drop_table("last")).unwrap();
    }
}

#[test]
fn a_database_opens_when_its_identifiers_are_used_up() {
    uses_up_identifiers(LAST_ID - 2);
    uses_up_identifiers(LAST_ID - 1);
    uses_up_identifiers(LAST_ID + 1);
    uses_up_identifiers(u32::MAX);
}
