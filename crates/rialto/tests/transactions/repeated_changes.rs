//! A transaction that repeats one operation: on one row, or on many.

use std::ops::ControlFlow;

use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Checkpointing, Database, Durability, Flow, Logging, Options, Procedure, Scan, Table, TableDef,
    Transaction,
};

/// Far more than the calls for which a stack of `STACK_BYTES` has room.
const CHANGES: i32 = 200_000;

const STACK_BYTES: usize = 512 << 10;

fn options(logging: Logging) -> Options {
    Options {
        memory_bytes: 256 << 20,
        checkpoint: Checkpointing::None,
        durability: Durability::Memory,
        logging,
        procedures: vec![change_one_row_by_call()],
        ..Options::default()
    }
}

fn definition(name: &str) -> TableDef {
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int4)];
    TableDef::new(name, columns).with_primary_key(&["id"])
}

fn rows(db: &Database, scan: &Scan) -> Vec<(i32, i32)> {
    let (table, mut rows) = (db.table("t").unwrap(), Vec::new());
    db.transact(|tx| {
        tx.scan(&table, scan, |_, row| {
            rows.push((row.get_i32(0)?, row.get_i32(1)?));
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
    rows
}

fn add(tx: &mut Transaction, table: &Table, id: i32) -> rialto::Result<bool> {
    tx.modify(table, id, |row| row.add_i32(1, 1).map(drop))
}

/// On a stack that has no room for a call for each change.
fn on_a_small_stack(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, work)
            .unwrap()
            .join()
            .unwrap();
    });
}

/// Adds 1 to the row `CHANGES` times, with as many additions between that a roll back to a savepoint undoes.
fn change_one_row(tx: &mut Transaction, table: &Table) -> rialto::Result<()> {
    for n in 0..CHANGES {
        assert!(add(tx, table, 1)?);
        if n == CHANGES / 2 {
            let savepoint = tx.savepoint();
            (0..100).try_for_each(|_| add(tx, table, 1).map(drop))?;
            tx.rollback_to(&savepoint)?;
        }
    }
    Ok(())
}

fn two_rows(tx: &mut Transaction, indexed: bool) -> rialto::Result<Table> {
    let table = tx.create_table(&definition("t"))?;
    if indexed {
        tx.create_index("t", "by_n", &["n"], false)?;
    }
    (1..3).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int4(0)]))?;
    Ok(table)
}

fn change_one_row_by_call() -> Procedure {
    let body = Flow::of(|tx, _, _| {
        let table = tx.table("t")?;
        change_one_row(tx, &table)
    });
    Procedure::new("change one row", [], body).deterministic(1)
}

#[test]
fn a_transaction_changes_one_row_many_times() {
    let cases = [
        (Logging::Value, false),
        (Logging::Action, false),
        (Logging::Transaction, false),
        (Logging::Value, true),
    ];
    for (logging, indexed) in cases {
        let disk = MemoryDisk::new();
        let by_n = Scan::prefix(WhichIndex::Secondary(0), vec![Value::Int4(CHANGES)]);
        let check = |db: &Database| {
            assert_eq!(rows(db, &Scan::all()), [(1, CHANGES), (2, 0)]);
            assert!(!indexed || rows(db, &by_n) == [(1, CHANGES)]);
        };
        on_a_small_stack(|| {
            let db = Database::open_on(disk.clone(), options(logging)).unwrap();
            let table = db.transact(|tx| two_rows(tx, indexed)).unwrap();
            match logging {
                Logging::Transaction => db.call("change one row", &[]).map(drop).unwrap(),
                _ => db.transact(|tx| change_one_row(tx, &table)).unwrap(),
            }
            check(&db);
            db.close().unwrap();
            check(&Database::open_on(disk, options(logging)).unwrap());
        });
    }
}

/// Each earlier version of the row is an entry that the index no longer has.
#[test]
fn a_row_is_changed_many_times_before_and_after_its_index_is_made() {
    let disk = MemoryDisk::new();
    let by_n = |n| Scan::prefix(WhichIndex::Secondary(0), vec![Value::Int4(n)]);
    let check = |db: &Database| {
        assert_eq!(rows(db, &Scan { index: WhichIndex::Secondary(0), ..Scan::all() }), [(2, 0), (1, 2_000)]);
        assert_eq!(rows(db, &by_n(1_000)), []);
    };
    let db = Database::open_on(disk.clone(), options(Logging::Value)).unwrap();
    db.transact(|tx| {
        let table = two_rows(tx, false)?;
        (0..1_000).try_for_each(|_| add(tx, &table, 1).map(drop))?;
        tx.create_index("t", "by_n", &["n"], false)?;
        let table = tx.table("t")?;
        (0..1_000).try_for_each(|_| add(tx, &table, 1).map(drop))
    })
    .unwrap();
    check(&db);
    db.close().unwrap();
    check(&Database::open_on(disk, options(Logging::Value)).unwrap());
}
