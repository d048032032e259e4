//! Transactions by handles inside the body of a call, whose own transaction may have leased executors meanwhile.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::in_time;
use crate::common::quiet;
use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, Database, Durability, Executors, Flow, LockPolicy, Options, Procedure, Result, Table, TableDef,
    Transaction, TxOptions,
};

/// Longer than any of this takes, so that a wait for the own thread is found to hang.
const LIMIT: Duration = Duration::from_secs(60);

/// The position of a test's table among all tables. The number of the first table shares its low bits with the
/// catalog's, by which table locks are told apart: a request for one waits for the holder of the other.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stands {
    First,
    Second,
}

fn options(threads: usize) -> Options {
    Options {
        durability: Durability::Memory,
        // All keys are of one executor.
        engine: Executors::of(1, threads).handing_over().into(),
        lock_timeout: 2 * LIMIT,
        ..quiet::options()
    }
}

fn open_standing(threads: usize, stands: Stands) -> (Database, Table) {
    let db = Database::open_on(MemoryDisk::new(), options(threads)).unwrap();
    if stands == Stands::Second {
        let first = TableDef::new("first", vec![Column::new("id", ColumnType::Int4)]);
        db.transact(|tx| tx.create_table(&first).map(drop)).unwrap();
    }
    let table = quiet::numbers(&db);
    (db, table)
}

fn open(threads: usize) -> (Database, Table) {
    open_standing(threads, Stands::Second)
}

fn number(tx: &mut Transaction, table: &Table, id: i32) -> Result<i32> {
    match tx.get(table, id)?.expect("no row goes").get(1)? {
        Value::Int4(n) => Ok(n),
        other => panic!("{other:?} is no number"),
    }
}

fn add(tx: &mut Transaction, table: &Table, id: i32) -> Result<()> {
    let n = number(tx, table, id)?;
    tx.update(table, id, &[(1, Value::Int4(n + 1))]).map(drop)
}

fn numbers(db: &Database, table: &Table) -> Vec<i32> {
    (0..10).map(|id| db.transact(|tx| number(tx, table, id)).unwrap()).collect()
}

/// Calls a procedure three times that adds 1 to row 0 and runs this beside.
fn call_beside(
    db: &Database,
    table: &Table,
    beside: impl Fn(&mut Transaction) -> Result<()> + Send + Sync + 'static,
) -> Result<()> {
    let own = table.clone();
    let body = Action::exclusive("t", move |tx, _, _| {
        add(tx, &own, 0)?;
        beside(tx)
    });
    let flow = Flow::new().phase([body.by_argument(0)]);
    db.register(Procedure::new("p", [ColumnType::Int4], flow)).unwrap();
    (0..3).try_for_each(|_| db.call("p", &[Value::Int4(0)]).map(drop))
}

#[test]
fn a_handle_in_a_body_locks_what_is_free() {
    for threads in [0, 2] {
        in_time(LIMIT, move || {
            let (db, table) = open(threads);
            let (of_body, beside) = (db.clone(), table.clone());
            let outcome = call_beside(&db, &table, move |_| {
                let mut handle = of_body.begin()?;
                add(&mut handle, &beside, 7)?;
                handle.commit()
            });
            assert_eq!(outcome, Ok(()), "{threads} threads");
            let numbers = numbers(&db, &table);
            assert_eq!((numbers[0], numbers[7]), (3, 3), "{threads} threads");
        });
    }
}

/// The body ignores the error that its handle may get when it runs first.
#[test]
fn a_body_that_drops_its_handles_error_runs_again_all_the_same() {
    in_time(LIMIT, || {
        let (db, table) = open(0);
        let (of_body, beside) = (db.clone(), table.clone());
        let outcome = call_beside(&db, &table, move |_| {
            let mut handle = of_body.begin()?;
            let _ = add(&mut handle, &beside, 7).and_then(|()| handle.commit());
            Ok(())
        });
        assert_eq!(outcome, Ok(()));
        let numbers = numbers(&db, &table);
        assert_eq!((numbers[0], numbers[7]), (3, 3));
    });
}

#[test]
fn a_handle_in_a_body_locks_a_table_that_is_free() {
    for stands in [Stands::First, Stands::Second] {
        in_time(LIMIT, move || {
            let (db, table) = open_standing(0, stands);
            let (of_body, names) = (db.clone(), Mutex::new(0));
            let outcome = call_beside(&db, &table, move |_| {
                let mut handle = of_body.begin()?;
                let columns = vec![Column::new("id", ColumnType::Int4)];
                let mut nth = names.lock().unwrap();
                handle.create_table(&TableDef::new(format!("u{nth}"), columns))?;
                handle.commit()?;
                *nth += 1;
                Ok(())
            });
            assert_eq!(outcome, Ok(()), "{stands:?}");
            assert!(db.table("u2").is_ok());
        });
    }
}

/// A handle that locked keys before the call ends inside its body, in each way: its locks are released when the call
/// has ended at the latest.
#[test]
fn a_handle_that_ends_in_a_body_gives_back_what_it_held_before() {
    type End = fn(Transaction<'static>) -> Result<()>;
    let ends: [(&str, End); 4] = [
        ("commit", |handle| handle.commit()),
        ("submit", |handle| handle.submit().map(drop)),
        ("abort", |handle| handle.abort()),
        ("drop", |handle| {
            drop(handle);
            Ok(())
        }),
    ];
    for (how, end) in ends {
        in_time(LIMIT, move || {
            let (db, table) = open(0);
            let mut handle = db.begin().unwrap();
            add(&mut handle, &table, 7).unwrap();
            let handle = Arc::new(Mutex::new(Some(handle)));
            let outcome = call_beside(&db, &table, move |_| match handle.lock().unwrap().take() {
                Some(handle) => end(handle),
                None => Ok(()),
            });
            assert_eq!(outcome, Ok(()), "{how}");
            assert_eq!(db.transact(|tx| add(tx, &table, 7)), Ok(()), "{how}");
            let expected = if how == "commit" || how == "submit" { 2 } else { 1 };
            let numbers = numbers(&db, &table);
            assert_eq!((numbers[0], numbers[7]), (3, expected), "{how}");
            db.close().unwrap();
        });
    }
}

/// An action without an identifier locks its rows as it reaches them, but other actions of its phase may have leased
/// executors.
#[test]
fn a_handle_in_a_body_without_an_identifier_waits_for_no_executor_of_its_phase() {
    for threads in [0, 2] {
        in_time(LIMIT, move || {
            let (db, table) = open(threads);
            let (of_body, beside, own) = (db.clone(), table.clone(), table.clone());
            let adds = Action::exclusive("t", move |tx, _, _| add(tx, &own, 0));
            let uses_handle = Action::shared("t", move |_, _, _| {
                let mut handle = of_body.begin()?;
                add(&mut handle, &beside, 7)?;
                handle.commit()
            });
            let flow = Flow::new().phase([adds.by_argument(0), uses_handle]);
            db.register(Procedure::new("p", [ColumnType::Int4], flow)).unwrap();
            for _ in 0..3 {
                assert_eq!(db.call("p", &[Value::Int4(0)]), Ok(vec![]), "{threads} threads");
            }
            let numbers = numbers(&db, &table);
            assert_eq!((numbers[0], numbers[7]), (3, 3), "{threads} threads");
        });
    }
}

/// A lock that is not free at once is refused; a lock that only the body's own executor lease keeps away is free.
#[test]
fn a_handle_in_a_body_that_refuses_to_wait_locks_what_is_free() {
    in_time(LIMIT, || {
        let (db, table) = open(0);
        let (of_body, beside) = (db.clone(), table.clone());
        let outcome = call_beside(&db, &table, move |_| {
            let refusing = TxOptions { lock_wait: LockPolicy::Refuse, ..TxOptions::default() };
            let mut handle = of_body.begin_with(&refusing)?;
            add(&mut handle, &beside, 7)?;
            handle.commit()
        });
        assert_eq!(outcome, Ok(()));
        let numbers = numbers(&db, &table);
        assert_eq!((numbers[0], numbers[7]), (3, 3));
    });
}

/// A handle that has emptied a table before the call, whose keys have a routing rule, ends inside the call.
#[test]
fn a_handle_that_ends_with_definitions_in_a_body_waits_for_no_executor() {
    type End = fn(Transaction<'static>) -> Result<()>;
    let ends: [(&str, End, u64); 3] = [
        ("commit", |handle| handle.commit(), 0),
        ("abort", |handle| handle.abort(), 10),
        (
            "drop",
            |handle| {
                drop(handle);
                Ok(())
            },
            10,
        ),
    ];
    let all = [Stands::First, Stands::Second].into_iter().flat_map(|stands| ends.map(|end| (stands, end)));
    for (stands, (how, end, rows)) in all {
        in_time(LIMIT, move || {
            let (db, table) = open_standing(0, stands);
            db.set_routing_by_hash("t", WhichIndex::Primary, 1).unwrap();
            let columns = vec![Column::new("id", ColumnType::Int4)];
            let other = TableDef::new("other", columns).with_primary_key(&["id"]);
            db.transact(|tx| tx.create_table(&other)).unwrap();
            let mut handle = db.begin().unwrap();
            handle.truncate(&table).unwrap();
            let handle = Mutex::new(Some(handle));
            let body = Action::exclusive("other", move |_, _, _| {
                let handle = handle.lock().unwrap().take().expect("the body runs once");
                assert_eq!(end(handle), Ok(()), "{how}, {stands:?}");
                Ok(())
            });
            db.register(Procedure::new("p", [ColumnType::Int4], Flow::new().phase([body.by_argument(0)])))
                .unwrap();
            assert_eq!(db.call("p", &[Value::Int4(0)]), Ok(vec![]), "{how}, {stands:?}");
            assert_eq!(db.transact(|tx| tx.count(&table)), Ok(rows), "{how}, {stands:?}");
        });
    }
}

/// A handle is used by the closure of an identifier, or of a condition, of an action whose call has leased executors in
/// an earlier phase.
#[test]
fn a_handle_in_an_identifier_or_a_condition_locks_what_is_free() {
    static HANDLE: Mutex<Option<(Database, Table)>> = Mutex::new(None);
    fn add_beside() -> Result<()> {
        let (db, table) = HANDLE.lock().unwrap().clone().unwrap();
        let mut handle = db.begin()?;
        add(&mut handle, &table, 7)?;
        handle.commit()
    }
    fn identifier(arguments: &[Value]) -> Value {
        // The outcome of the handle's operation does not count.
        add_beside().map_or(Value::Null, |()| arguments[0].clone())
    }
    fn condition(_: &[Value]) -> bool {
        add_beside().is_ok()
    }
    type With = fn(Action) -> Action;
    let all: [(&str, With); 2] = [
        ("identifier", |action| action.by(identifier)),
        ("condition", |action| action.by_argument(0).when(condition)),
    ];
    for ((what, with), threads, beside) in all.into_iter().flat_map(|it| [(it, 0, 0), (it, 0, 1), (it, 2, 0)])
    {
        in_time(LIMIT, move || {
            let (db, table) = open(threads);
            *HANDLE.lock().unwrap() = Some((db.clone(), table.clone()));
            let own = table.clone();
            let body = Action::exclusive("t", move |tx, _, _| add(tx, &own, 0));
            let first = body.clone().by_argument(0);
            let second =
                [with(body.clone())].into_iter().chain((0..beside).map(|_| body.clone().by_argument(0)));
            let flow = Flow::new().phase([first]).phase(second);
            db.register(Procedure::new("p", [ColumnType::Int4], flow)).unwrap();
            assert_eq!(db.call("p", &[Value::Int4(0)]), Ok(vec![]), "{what}, {threads} threads");
            let numbers = numbers(&db, &table);
            assert_eq!(numbers[0], 2 + beside, "{what}, {threads} threads");
            assert!(numbers[7] > 0, "{what}, {threads} threads");
            HANDLE.lock().unwrap().take();
        });
    }
}

/// A call that runs again without its executor lease counts as none of the deadlocks.
#[test]
fn a_handle_in_a_body_locks_what_is_free_without_retries() {
    in_time(LIMIT, || {
        let options = Options { deadlock_retries_max: 0, ..options(0) };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        let table = quiet::numbers(&db);
        let (of_body, beside) = (db.clone(), table.clone());
        let outcome = call_beside(&db, &table, move |_| {
            let mut handle = of_body.begin()?;
            add(&mut handle, &beside, 7)?;
            handle.commit()
        });
        assert_eq!(outcome, Ok(()));
        let numbers = numbers(&db, &table);
        assert_eq!((numbers[0], numbers[7]), (3, 3));
    });
}
