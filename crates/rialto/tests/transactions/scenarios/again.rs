//! Handles of transactions that go on after a loss: a deadlock's victim that begins again, and one that was cancelled.

use std::thread;
use std::time::{Duration, Instant};

use rialto::Retries;

use super::*;

/// A database with the rows 1 and 2.
fn two_rows(options: Options) -> (Database, Table) {
    let options = Options { memory_bytes: 64 << 20, engine: ENGINE, ..options };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let table = accounts(&db);
    db.transact(|tx| (1..=2).try_for_each(|id| tx.insert(&table, &row(id, 0, &id.to_string())))).unwrap();
    (db, table)
}

fn change(tx: &mut Transaction, table: &Table, id: i32) -> Result<(), Error> {
    tx.modify(table, id, |fields| fields.add_i64(1, 1).map(drop)).map(drop)
}

fn sum(db: &Database, table: &Table) -> i64 {
    let balance = |tx: &mut Transaction, id: i32| tx.get(table, id)?.expect("it is there").view().get_i64(1);
    db.transact(|tx| Ok(balance(tx, 1)? + balance(tx, 2)?)).unwrap()
}

/// Whether no transaction has a lock on the row.
fn is_free(db: &Database, table: &Table, id: i32) -> bool {
    let refuse = TxOptions { lock_wait: LockPolicy::Refuse, ..TxOptions::default() };
    change(&mut db.begin_with(&refuse).unwrap(), table, id).is_ok()
}

fn deadlock() -> Error {
    Error::Deadlock { waiting_for: "a row".to_owned() }
}

/// A transaction that began later than all before it.
fn begin(db: &Database) -> Transaction<'static> {
    let before = Instant::now();
    let tx = db.begin().unwrap();
    while before.elapsed().is_zero() {}
    tx
}

/// Two transactions, each of which requests the other's row. One commits; the other, whose name this gives, begins
/// again.
fn victim(
    db: &Database,
    table: &Table,
    (first, mut one): (&'static str, Transaction<'static>),
    (second, mut other): (&'static str, Transaction<'static>),
) -> (&'static str, Transaction<'static>) {
    change(&mut one, table, 1).unwrap();
    change(&mut other, table, 2).unwrap();
    let ask = |name, mut tx: Transaction<'static>, id| match change(&mut tx, table, id) {
        Ok(()) => {
            tx.commit().unwrap();
            None
        }
        Err(error) => {
            Some((name, db.begin_again(tx, error, &TxOptions::default(), &mut Retries::default()).unwrap()))
        }
    };
    thread::scope(|scope| {
        let waiting = scope.spawn(|| ask(first, one, 2));
        let end = Instant::now() + Duration::from_secs(60);
        while db.lock_waits().is_empty() {
            assert!(Instant::now() < end, "the first one waits");
            thread::yield_now();
        }
        let of_second = ask(second, other, 1);
        of_second.or(waiting.join().unwrap()).expect("one of them is the victim")
    })
}

/// A victim that begins again is older than transactions that began meanwhile, so that it is not the victim for ever.
#[test]
fn a_victim_that_begins_again_is_as_old_as_it_was() {
    let (db, table) = two_rows(Options::default());
    let (oldest, middle, youngest) = (begin(&db), begin(&db), begin(&db));
    let (name, again) = victim(&db, &table, ("oldest", oldest), ("middle", middle));
    assert_eq!(name, "middle");
    let (name, again) = victim(&db, &table, ("middle, again", again), ("youngest", youngest));
    assert_eq!(name, "youngest", "it began before the other one's second run, and after its first");
    // Nothing of a victim is kept but its age.
    assert_eq!(sum(&db, &table), 4);
    again.commit().unwrap();
    assert_eq!(db.metrics().aborted_deadlock, 2);
}

#[test]
fn only_a_deadlock_lets_a_transaction_begin_again_and_not_for_ever() {
    let (db, table) = two_rows(Options { deadlock_retries_max: 3, ..Options::default() });
    let options = TxOptions::default();
    for error in [Error::aborted("on its own account"), Error::Cancelled] {
        let mut tx = db.begin().unwrap();
        change(&mut tx, &table, 1).unwrap();
        let again = db.begin_again(tx, error.clone(), &options, &mut Retries::default());
        assert_eq!(again.map(drop), Err(error));
        assert!(is_free(&db, &table, 1));
    }
    let mut tx = db.begin().unwrap();
    let mut retries = Retries::default();
    for _ in 0..3 {
        change(&mut tx, &table, 1).unwrap();
        tx = db.begin_again(tx, deadlock(), &options, &mut retries).unwrap();
        assert!(is_free(&db, &table, 1), "what it had locked is free");
    }
    change(&mut tx, &table, 1).unwrap();
    assert_eq!(db.begin_again(tx, deadlock(), &options, &mut retries).map(drop), Err(deadlock()));
    assert!(is_free(&db, &table, 1));
    let read_only = TxOptions { read_only: true, ..TxOptions::default() };
    let tx = db.begin().unwrap();
    let mut tx = db.begin_again(tx, deadlock(), &read_only, &mut Retries::default()).unwrap();
    assert_eq!(change(&mut tx, &table, 1), Err(Error::ReadOnly), "the options are the new run's");
    drop(tx);
    assert_eq!(sum(&db, &table), 0);
}

#[test]
fn a_victim_of_another_database_is_given_up_there() {
    let ((db, table), (other, others)) = (two_rows(Options::default()), two_rows(Options::default()));
    for error in [deadlock(), Error::aborted("on its own account")] {
        let mut tx = db.begin().unwrap();
        change(&mut tx, &table, 1).unwrap();
        let again = other.begin_again(tx, error.clone(), &TxOptions::default(), &mut Retries::default());
        assert!(is_free(&db, &table, 1));
        match again {
            Ok(mut again) => {
                assert_eq!(error, deadlock());
                assert!(change(&mut again, &table, 1).is_err(), "it is no transaction of the first database");
            }
            Err(told) => assert_eq!(told, error),
        }
        let mut tx = other.begin().unwrap();
        change(&mut tx, &others, 1).unwrap();
        tx.commit().unwrap();
    }
    assert_eq!((sum(&db, &table), sum(&other, &others)), (0, 2));
}

#[test]
fn a_victim_of_a_closed_database_does_not_begin_again() {
    for error in [deadlock(), Error::aborted("on its own account")] {
        let (db, table) = two_rows(Options::default());
        let mut tx = db.begin().unwrap();
        change(&mut tx, &table, 1).unwrap();
        db.clone().close().unwrap();
        let again = db.begin_again(tx, error.clone(), &TxOptions::default(), &mut Retries::default());
        let expected = if error == deadlock() { Error::Closed } else { error };
        assert_eq!(again.map(drop), Err(expected));
    }
}

/// A cancelled transaction does nothing more until it says itself that it goes on, as after a rollback to a savepoint.
#[test]
fn a_transaction_that_was_cancelled_goes_on_when_it_says_so() {
    let (db, table) = two_rows(Options::default());
    let mut tx = db.begin().unwrap();
    tx.clear_cancellation();
    change(&mut tx, &table, 1).unwrap();
    let mark = tx.savepoint();
    change(&mut tx, &table, 2).unwrap();
    let canceller = tx.canceller();
    for _ in 0..2 {
        canceller.cancel();
        assert_eq!(change(&mut tx, &table, 1), Err(Error::Cancelled));
        tx.rollback_to(&mark).unwrap();
        assert_eq!((change(&mut tx, &table, 1), tx.check()), (Err(Error::Cancelled), Err(Error::Cancelled)));
        tx.clear_cancellation();
        tx.check().unwrap();
        // The same canceller cancels it once more.
        change(&mut tx, &table, 2).unwrap();
    }
    tx.commit().unwrap();
    assert_eq!(sum(&db, &table), 2);
    // It reaches no later transaction.
    let mut next = db.begin().unwrap();
    canceller.cancel();
    change(&mut next, &table, 1).unwrap();
    next.commit().unwrap();
}
