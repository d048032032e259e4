//! Transactions whose write sets reach the bound of 64 MiB, by many rows and by few large ones. What was committed is
//! there after a crash, with each form of logs and locks; a transaction beyond the bound is refused, and the error
//! names the bound.

use std::ops::ControlFlow;
use std::sync::Arc;

use rialto::io::FaultyDisk;
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Checkpointing, Database, Engine, Error, Flow, Logging, Options, Procedure, Result, Scan, Table, TableDef,
    Transaction,
};

const BOUND: usize = 64 << 20;
/// Bytes of the text of a row: of many rows, and of few.
const LENGTHS: [usize; 2] = [400, 31_000];
/// The most bytes that a row takes in a write set beside its text.
const BESIDE: usize = 64;

/// How many rows of this length are within the bound, and nearly at it.
fn rows_within(length: usize) -> i32 {
    (BOUND / (length + BESIDE)) as i32
}

fn text(id: i32, length: usize) -> String {
    let mut text = format!("{id:010} ").repeat(length / 11 + 1);
    text.truncate(length);
    text
}

fn insert(tx: &mut Transaction, table: &Table, id: i32, length: usize) -> Result<()> {
    tx.insert(table, &[Value::Int4(id), Value::Text(text(id, length))])
}

/// Inserts consecutive rows of a length: (rows, length).
fn insert_many() -> Procedure {
    let flow = Flow::of(|tx, arguments, _| {
        let (rows, length) = (arguments.get::<i32>(0)?, arguments.get::<i32>(1)?);
        let table = tx.table("t")?;
        (0..rows).try_for_each(|id| insert(tx, &table, id, length as usize))
    });
    Procedure::new("insert many", [ColumnType::Int4, ColumnType::Int4], flow).deterministic(1)
}

fn options(logging: Logging, engine: Engine) -> Options {
    Options {
        memory_bytes: 512 << 20,
        log_bytes_max: 512 << 20,
        logging,
        engine,
        checkpoint: Checkpointing::TransactionCopyOnUpdate,
        procedures: vec![insert_many()],
        ..Options::default()
    }
}

/// An empty table, in a database whose checkpoint has it.
fn open(disk: &Arc<FaultyDisk>, options: Options) -> (Database, Table) {
    let db = Database::open_on(disk.clone(), options).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("v", ColumnType::Text)];
    let definition = TableDef::new("t", columns).with_primary_key(&["id"]);
    let table = db.transact(|tx| tx.create_table(&definition));
    db.checkpoint().unwrap();
    (db, table.unwrap())
}

/// Whether the table has this many rows, all as they were inserted.
fn has_rows(db: &Database, rows: i32, length: usize) -> bool {
    let table = db.table("t").unwrap();
    let mut next = 0;
    let read = db.read(|tx| {
        next = 0;
        tx.scan(&table, &Scan::all(), |_, row| {
            let is_next = row.get_i32(0)? == next && row.get_str(1)? == text(next, length);
            next += i32::from(is_next);
            Ok(if is_next { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })
    });
    read.is_ok() && next == rows
}

/// Inserts rows until the next one would exceed the bound, which is an error, and commits those within it.
fn insert_to_the_bound(db: &Database, table: &Table, length: usize) -> i32 {
    db.transact(|tx| {
        let outcome = |id| insert(tx, table, id, length).err().map(|error| (id, error));
        let (rows, error) = (0..).find_map(outcome).expect("there is a bound");
        let Error::WriteSetTooLarge { length: asked, limit } = error else { panic!("{error}") };
        assert!(limit == BOUND && asked > BOUND && asked < BOUND + length + BESIDE, "{error}");
        let said = error.to_string();
        assert!(said.contains("write_set_bytes_max") && said.contains("67108864"), "{said}");
        Ok(rows)
    })
    .unwrap()
}

fn recovers_large_transactions(engine: Engine) {
    for logging in [Logging::Value, Logging::Action, Logging::Transaction] {
        for length in LENGTHS {
            let disk = FaultyDisk::new(length as u64);
            let (db, table) = open(&disk, options(logging, engine));
            let rows = match logging {
                Logging::Transaction => rows_within(length),
                _ => insert_to_the_bound(&db, &table, length),
            };
            if logging == Logging::Transaction {
                let call =
                    |rows: i32| db.call("insert many", &[Value::Int4(rows), Value::Int4(length as i32)]);
                let refused = call(BOUND as i32 / length as i32 + 1).map(drop);
                assert!(matches!(refused, Err(Error::WriteSetTooLarge { limit: BOUND, .. })), "{refused:?}");
                call(rows).unwrap();
            }
            assert!(rows >= rows_within(length), "{rows} rows of {length} bytes have room");
            disk.crash();
            drop((table, db));
            let db = Database::open_on(disk.restart(), options(logging, engine)).unwrap();
            let recovery = db.recovery().unwrap();
            assert_eq!((recovery.calls > 0, recovery.rows), (logging == Logging::Transaction, rows as u64));
            assert!(has_rows(&db, rows, length), "{logging:?}, {engine}: {rows} rows of {length} bytes");
        }
    }
}

#[test]
fn large_transactions_are_recovered_with_locks_in_records() {
    recovers_large_transactions(Engine::thin());
}

#[test]
fn large_transactions_are_recovered_with_central_locks() {
    recovers_large_transactions(Engine::central());
}

#[test]
fn large_transactions_are_recovered_with_local_locks() {
    recovers_large_transactions(Engine::data_oriented());
}
