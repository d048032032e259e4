//! Bodies with error types of their own (`Database::try_transact` and its kin).

use std::cell::Cell;
use std::sync::mpsc;
use std::thread;

use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value};
use rialto::{Database, Engine, Error, Options, Table, TableDef, Transaction};

use crate::common::until;

#[derive(Debug, PartialEq)]
enum Refusal {
    Overdrawn(i64),
    /// What the body makes of an error of the database's, or the database of one behind the body.
    Database(Error),
    /// What the body makes of a deadlock.
    Busy,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Database(error)
    }
}

fn open(options: Options) -> (Database, Table) {
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("balance", ColumnType::Int8)];
    let table = db.transact(|tx| {
        let table = tx.create_table(&TableDef::new("account", columns.clone()).with_primary_key(&["id"]))?;
        (0..4).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int8(100)]))?;
        Ok(table)
    });
    (db, table.unwrap())
}

fn withdraw(tx: &mut Transaction, account: &Table, id: i32, sum: i64) -> Result<i64, Refusal> {
    let mut left = 0;
    tx.modify(account, id, |row| row.add_i64(1, -sum).map(|balance| left = balance))?;
    if left < 0 { Err(Refusal::Overdrawn(left)) } else { Ok(left) }
}

fn balance(db: &Database, account: &Table, id: i32) -> i64 {
    db.read(|tx| tx.get(account, id)?.expect("it is there").read("balance")).unwrap()
}

#[test]
fn the_error_of_a_body_is_given_and_nothing_of_it_is_kept() {
    for engine in Engine::ALL {
        let (db, account) = open(Options { engine, ..Options::default() });
        assert_eq!(db.try_transact(|tx| withdraw(tx, &account, 1, 30)), Ok(70));
        assert_eq!(db.try_transact(|tx| withdraw(tx, &account, 1, 100)), Err(Refusal::Overdrawn(-30)));
        let told = db.try_submit(|tx| withdraw(tx, &account, 1, 100));
        assert_eq!(told.map(|(left, _)| left), Err(Refusal::Overdrawn(-30)));
        assert_eq!(balance(&db, &account, 1), 70);
        let (left, ticket) = db.try_submit(|tx| withdraw(tx, &account, 1, 20)).unwrap();
        ticket.wait().unwrap();
        assert_eq!((left, balance(&db, &account, 1)), (50, 50));
        let told = db.try_read(|tx| withdraw(tx, &account, 1, 20));
        assert_eq!(told, Err(Refusal::Database(Error::ReadOnly)));
        let nested = db.try_transact(|_| db.try_transact(|tx| withdraw(tx, &account, 1, 20)));
        assert_eq!(nested, Err(Refusal::Database(Error::Nested)));
    }
}

/// Has `body` run beside an older transaction that closes a cycle with it: its transaction is the victim of the deadlock. The body is
/// given the number of the run, and whether the cycle may close.
fn as_a_victim<T: Send>(
    db: &Database,
    account: &Table,
    deadlocks: u32,
    run: impl FnOnce(&dyn Fn(&mut Transaction) -> Result<i64, Refusal>) -> T + Send,
) -> (T, u32) {
    let (has_first, closes) = mpsc::channel();
    thread::scope(|scope| {
        // It has its row before the other one begins.
        let mut older: Vec<_> = (0..deadlocks).map(|_| db.begin().unwrap()).collect();
        older
            .iter_mut()
            .for_each(|older| assert!(older.update(account, 2, &[(1, Value::Int8(1_000))]).unwrap()));
        let victim = scope.spawn(move || {
            let runs = Cell::new(0);
            let body = |tx: &mut Transaction| {
                runs.set(runs.get() + 1);
                withdraw(tx, account, 1, 10)?;
                has_first.send(()).unwrap();
                // Where the cycle closes: the body says of its own that it was busy.
                withdraw(tx, account, 2, 10).map_err(|_| Refusal::Busy)
            };
            let told = run(&body);
            (told, runs.get())
        });
        for mut older in older {
            closes.recv().unwrap();
            until("the younger one waits", || !db.lock_waits().is_empty());
            older.update(account, 1, &[(1, Value::Int8(1_000))]).unwrap();
            older.commit().unwrap();
        }
        victim.join().unwrap()
    })
}

#[test]
fn a_victim_runs_again_whatever_its_body_makes_of_the_deadlock() {
    let (db, account) = open(Options::default());
    let (told, runs) = as_a_victim(&db, &account, 1, |body| db.try_transact(body));
    assert_eq!((told, runs), (Ok(990), 2));
    assert_eq!((balance(&db, &account, 1), balance(&db, &account, 2)), (990, 990));
}

#[test]
fn a_victim_that_may_not_run_again_gives_its_own_error() {
    let (db, account) = open(Options { deadlock_retries_max: 0, ..Options::default() });
    let (told, runs) = as_a_victim(&db, &account, 1, |body| db.try_transact(body));
    assert_eq!((told, runs), (Err(Refusal::Busy), 1));
    assert_eq!((balance(&db, &account, 1), balance(&db, &account, 2)), (1_000, 1_000));
}

/// The error is the last run's: what an earlier run's body gave is not told for what comes behind a later one.
#[test]
fn an_error_of_an_earlier_run_is_not_told_for_a_later_one() {
    let (db, account) = open(Options::default());
    let (told, runs) = as_a_victim(&db, &account, 1, |body| {
        db.try_transact(|tx| {
            let left = body(tx)?;
            // The commit fails.
            tx.canceller().cancel();
            Ok(left)
        })
    });
    assert_eq!((told, runs), (Err(Refusal::Database(Error::Cancelled)), 2));
    assert_eq!((balance(&db, &account, 1), balance(&db, &account, 2)), (1_000, 1_000));
}

#[test]
fn a_panic_of_a_body_goes_on_to_its_caller() {
    let (db, account) = open(Options::default());
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        db.try_transact(|tx| -> Result<(), Refusal> {
            withdraw(tx, &account, 1, 10)?;
            panic!("it panics")
        })
    }));
    assert_eq!(*panic.unwrap_err().downcast::<&str>().unwrap(), "it panics");
    assert_eq!(balance(&db, &account, 1), 100);
}

/// Nothing is told of what a run without effect has read: its body's error rests on rows that do not fit together, or on rows that need
/// not be durable. The next run does not begin, so the error is the database's.
#[test]
fn an_error_of_a_run_without_effect_is_not_told_if_the_next_run_does_not_begin() {
    let (db, account) = open(Options::default());
    let runs = Cell::new(0);
    let told = db.try_read(|tx| -> Result<(), Refusal> {
        runs.set(runs.get() + 1);
        let before: i64 = tx.get(&account, 1)?.expect("it is there").read("balance")?;
        thread::scope(|scope| {
            let beside = scope.spawn(|| {
                db.transact(|tx| tx.update(&account, 1, &[(1, Value::Int8(1_000))])).unwrap();
                db.clone().close().unwrap();
            });
            beside.join().unwrap();
        });
        Err(Refusal::Overdrawn(before))
    });
    assert_eq!((told, runs.get()), (Err(Refusal::Database(Error::Closed)), 1));
}
