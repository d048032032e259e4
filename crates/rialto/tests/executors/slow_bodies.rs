//! A slow body has leased the lock tables of its executors. That holds up transactions that need these, and no others.

use std::ops::ControlFlow;
use std::sync::{Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};

use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, Checkpointing, Database, Durability, Error, Executors, Flow, KeyBound, Options, Procedure,
    Result, Scan, Table, TableDef, Transaction, TxOptions,
};

/// Everything that does not need the body's lock table has to happen within this time.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time-out of waits that end while the body runs.
const TIME_OUT: Duration = Duration::from_millis(300);

fn options(lock_timeout: Duration) -> Options {
    Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        durability: Durability::Memory,
        engine: Executors::of(8, 0).into(),
        lock_timeout,
        ..Options::default()
    }
}

/// A table of the rows 0 to 9, all in the last of the datasets between these bounds, and so at the executor of that
/// number.
fn make(db: &Database, name: &str, bounds: &[i32]) -> Table {
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int4)];
    let definition = TableDef::new(name, columns).with_primary_key(&["id"]);
    let table = db
        .transact(|tx| {
            let table = tx.create_table(&definition)?;
            (0..10).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int4(id)]))?;
            Ok(table)
        })
        .unwrap();
    route(db, name, WhichIndex::Primary, bounds);
    table
}

fn route(db: &Database, name: &str, which: WhichIndex, bounds: &[i32]) {
    let bounds: Vec<_> = bounds.iter().map(|&bound| vec![Value::Int4(bound)]).collect();
    db.set_routing(name, which, &bounds).unwrap();
}

/// Registers a procedure whose body runs at the executor of a row until it is told to end. It says when it runs.
fn register_slow(db: &Database, table: &str) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (began, has_begun) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    let ends = Mutex::new(ends);
    let body = Action::exclusive(table, move |_, _, _| {
        began.send(()).unwrap();
        // The drop of the sender tells it, too.
        let _ = ends.lock().unwrap().recv_timeout(PATIENCE);
        Ok(())
    });
    db.register(Procedure::new("slow", [ColumnType::Int4], Flow::new().phase([body.by_argument(0)])))
        .unwrap();
    (has_begun, end)
}

/// Two tables, each at an executor of its own, that of `u` with the keys of `t` from 100 on, and a procedure whose body
/// runs at that of `t`.
fn open(lock_timeout: Duration) -> (Database, [Table; 2], mpsc::Receiver<()>, mpsc::Sender<()>) {
    let db = Database::open_on(MemoryDisk::new(), options(lock_timeout)).unwrap();
    let tables = [make(&db, "t", &[]), make(&db, "u", &[-100])];
    route(&db, "t", WhichIndex::Primary, &[100]);
    let (has_begun, end) = register_slow(&db, "t");
    (db, tables, has_begun, end)
}

fn touch(db: &Database, table: &Table, id: i32) -> Result<bool> {
    db.transact(|tx| tx.update(table, id, &[(1, Value::Int4(1))]))
}

/// Reads the rows from 5 on, which are of both executors, but not the row that the body has.
fn scan(tx: &mut Transaction, table: &Table) -> Result<()> {
    let rows = Scan { lower: KeyBound::Included(vec![Value::Int4(5)]), ..Scan::all() };
    tx.scan(table, &rows, |_, _| Ok(ControlFlow::Continue(())))
}

fn impatient() -> TxOptions {
    TxOptions { lock_timeout: Some(TIME_OUT), ..TxOptions::default() }
}

/// Waits until this many transactions wait for locks.
fn until_waiting(db: &Database, count: usize) {
    let since = Instant::now();
    while db.lock_waits().len() < count {
        assert!(since.elapsed() < PATIENCE, "{count} do not wait");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until the resource manager has divided the keys of all tables, as far as can be seen. A request that waits
/// while any rule changes is routed again when it is granted.
fn until_shared_out(db: &Database) {
    let changes = || db.metrics().routing.changes;
    let (since, mut before) = (Instant::now(), None);
    while before.replace(changes()) != Some(changes()) {
        assert!(since.elapsed() < PATIENCE, "rules change again and again");
        std::thread::sleep(Duration::from_millis(250));
    }
}

/// A transaction that waits at the body's executor detects deadlocks, too, and must not keep the others from it.
#[test]
fn a_deadlock_elsewhere_is_found_while_a_body_takes_its_time() {
    let (db, [t, u], has_begun, end) = open(10 * PATIENCE);
    let mut holder = db.begin().unwrap();
    holder.update(&t, 5, &[(1, Value::Int4(1))]).unwrap();
    let barrier = Barrier::new(2);
    let cycle = |first: i32, second: i32| {
        let mut tx = db.begin().unwrap();
        tx.update(&u, first, &[(1, Value::Int4(1))]).unwrap();
        barrier.wait();
        tx.update(&u, second, &[(1, Value::Int4(1))]).map(drop)
    };
    std::thread::scope(|scope| {
        scope.spawn(|| touch(&db, &t, 5).unwrap());
        until_waiting(&db, 1);
        let slow = scope.spawn(|| db.call("slow", &[Value::Int4(0)]).map(drop));
        has_begun.recv_timeout(PATIENCE).unwrap();
        // By now it has detected.
        std::thread::sleep(Duration::from_millis(500));
        let since = Instant::now();
        let other = scope.spawn(|| cycle(1, 2));
        let outcomes = [cycle(2, 1), other.join().unwrap()];
        let after = since.elapsed();
        drop(end);
        drop(holder);
        slow.join().unwrap().unwrap();
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
        assert!(after < PATIENCE / 2, "found after {after:?}, when the body had ended");
    });
}

/// A transaction that waits at the body's executor for another transaction's lock gives up in time; the others there
/// get their locks.
#[test]
fn a_wait_times_out_while_a_body_takes_its_time() {
    let timeout = 5 * TIME_OUT;
    let (db, [t, _], has_begun, end) = open(10 * PATIENCE);
    let mut holder = db.begin().unwrap();
    holder.get(&t, 5).unwrap();
    std::thread::scope(|scope| {
        let impatient = scope.spawn(|| {
            let options = TxOptions { lock_timeout: Some(timeout), ..TxOptions::default() };
            let mut tx = db.begin_with(&options).unwrap();
            let since = Instant::now();
            let outcome = tx.update(&t, 5, &[(1, Value::Int4(1))]);
            let after = since.elapsed();
            // The same slot waits once more.
            let again = tx.update(&t, 5, &[(1, Value::Int4(1))]);
            (outcome, after, again)
        });
        until_waiting(&db, 1);
        // Behind the transaction that gives up, for which alone it waits.
        let reader = scope.spawn(|| db.transact(|tx| tx.get(&t, 5)).map(|row| row.is_some()));
        until_waiting(&db, 2);
        let slow = scope.spawn(|| db.call("slow", &[Value::Int4(0)]).map(drop));
        has_begun.recv_timeout(PATIENCE).unwrap();
        let (outcome, after, again) = impatient.join().unwrap();
        assert!(!slow.is_finished(), "the test's own premise");
        drop(end);
        assert!(matches!(outcome, Err(Error::LockTimeout { .. })), "{outcome:?}");
        assert!(matches!(again, Err(Error::LockTimeout { .. })), "{again:?}");
        assert!(after < PATIENCE / 2, "{after:?}");
        slow.join().unwrap().unwrap();
        assert_eq!(reader.join().unwrap(), Ok(true));
        drop(holder);
    });
    assert_eq!(touch(&db, &t, 5), Ok(true));
}

/// Makes a transaction wait for the part of a range that a holder has at one executor, while a slow body is at the
/// executor of the other part and the test does something with the holder. The wait times out.
fn time_out_of_a_range(
    timeout: Duration,
    meanwhile: impl FnOnce(Transaction<'static>) -> Option<Transaction<'static>>,
) {
    let (db, [t, _], has_begun, end) = open(10 * PATIENCE);
    until_shared_out(&db);
    let mut holder = db.begin().unwrap();
    holder.insert(&t, &[Value::Int4(150), Value::Int4(0)]).unwrap();
    let options = TxOptions { lock_timeout: Some(timeout), ..TxOptions::default() };
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let since = Instant::now();
            (db.transact_with(&options, |tx| scan(tx, &t)), since.elapsed())
        });
        until_waiting(&db, 1);
        let slow = scope.spawn(|| db.call("slow", &[Value::Int4(0)]).map(drop));
        has_begun.recv_timeout(PATIENCE).unwrap();
        let holder = meanwhile(holder);
        let (outcome, after) = reader.join().unwrap();
        assert!(!slow.is_finished(), "the test's own premise");
        drop(end);
        assert!(matches!(outcome, Err(Error::LockTimeout { .. })), "{outcome:?}");
        assert!(after < PATIENCE / 2, "{after:?}");
        slow.join().unwrap().unwrap();
        // Nothing of the range is left behind.
        assert_eq!(touch(&db, &t, 5), Ok(true));
        drop(holder);
    });
    assert_eq!(db.transact(|tx| scan(tx, &t)), Ok(()));
}

/// A wait for one part of a range ends while the lock table of the other part is leased.
#[test]
fn a_wait_for_a_range_of_two_executors_times_out_while_a_body_takes_its_time() {
    time_out_of_a_range(5 * TIME_OUT, Some);
}

/// A range of which both parts are granted is the owner's when it has looked at both tables once more.
#[test]
fn a_range_whose_parts_are_granted_times_out_while_a_body_takes_its_time() {
    time_out_of_a_range(10 * TIME_OUT, |holder| {
        drop(holder);
        None
    });
}

/// A transaction that holds a lock at the body's executor, and waits elsewhere, is told of the time-out in time, by
/// each way to end.
#[test]
fn a_waiter_that_holds_a_lock_beside_the_body_is_told_in_time() {
    type End = fn(Transaction<'static>);
    let ends: [(&str, End); 2] = [("abort", |tx| tx.abort().unwrap()), ("drop", drop)];
    for (how, end_waiter) in ends {
        let (db, [t, u], has_begun, end) = open(10 * PATIENCE);
        let mut holder = db.begin().unwrap();
        holder.update(&u, 1, &[(1, Value::Int4(1))]).unwrap();
        let mut waiter = db.begin_with(&impatient()).unwrap();
        waiter.update(&t, 5, &[(1, Value::Int4(1))]).unwrap();
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| db.call("slow", &[Value::Int4(0)]).map(drop));
            has_begun.recv_timeout(PATIENCE).unwrap();
            let since = Instant::now();
            let outcome = waiter.update(&u, 1, &[(1, Value::Int4(1))]);
            end_waiter(waiter);
            let after = since.elapsed();
            assert!(!slow.is_finished(), "the test's own premise, {how}");
            drop(end);
            assert!(matches!(outcome, Err(Error::LockTimeout { .. })), "{outcome:?}");
            assert!(after < PATIENCE / 2, "{how}: {after:?}");
            slow.join().unwrap().unwrap();
        });
        assert_eq!(touch(&db, &t, 5), Ok(true), "{how}");
        drop(holder);
        db.close().unwrap();
    }
}

/// The victim of a deadlock holds a lock at the body's executor, too. The locks for which the others wait are released
/// all the same.
#[test]
fn a_victim_that_holds_a_lock_beside_the_body_ends_its_deadlock() {
    let (db, [t, u], has_begun, end) = open(10 * PATIENCE);
    let update = |tx: &mut Transaction, table: &Table, id: i32| tx.update(table, id, &[(1, Value::Int4(1))]);
    let mut elder = db.begin().unwrap();
    update(&mut elder, &u, 1).unwrap();
    let mut victim = db.begin().unwrap();
    update(&mut victim, &t, 5).unwrap();
    update(&mut victim, &u, 2).unwrap();
    let since = Instant::now();
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| db.call("slow", &[Value::Int4(0)]).map(drop));
        has_begun.recv_timeout(PATIENCE).unwrap();
        let other = scope.spawn(|| {
            let outcome = update(&mut elder, &u, 2);
            (outcome, since.elapsed())
        });
        let outcome = update(&mut victim, &u, 1);
        drop(victim);
        let (of_elder, after) = other.join().unwrap();
        assert!(!slow.is_finished(), "the test's own premise");
        drop(end);
        assert!(matches!(outcome, Err(Error::Deadlock { .. })), "{outcome:?}");
        assert_eq!(of_elder, Ok(true));
        assert!(after < PATIENCE / 2, "{after:?}");
        slow.join().unwrap().unwrap();
    });
    elder.commit().unwrap();
    assert_eq!(touch(&db, &t, 5), Ok(true));
}

/// A commit beside the body waits for no table, and releases at once what it holds elsewhere.
#[test]
fn a_commit_beside_the_body_holds_up_no_other_transaction() {
    let (db, [t, u], has_begun, end) = open(10 * PATIENCE);
    let mut both = db.begin().unwrap();
    both.update(&t, 5, &[(1, Value::Int4(1))]).unwrap();
    both.update(&u, 1, &[(1, Value::Int4(1))]).unwrap();
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| db.call("slow", &[Value::Int4(0)]).map(drop));
        has_begun.recv_timeout(PATIENCE).unwrap();
        let since = Instant::now();
        let commit = scope.spawn(|| both.commit());
        assert_eq!(touch(&db, &u, 1), Ok(true));
        let committed = commit.join().unwrap();
        let after = since.elapsed();
        assert!(!slow.is_finished(), "the test's own premise");
        drop(end);
        assert!(after < PATIENCE / 2, "{after:?}");
        assert_eq!(committed, Ok(()));
        slow.join().unwrap().unwrap();
    });
    assert_eq!(touch(&db, &t, 5), Ok(true));
}

/// A database closes beside a body whose lock table still has what a waiter left.
#[test]
fn a_close_waits_for_no_lock_that_a_waiter_has_left() {
    let (db, [t, u], has_begun, end) = open(10 * PATIENCE);
    let mut holder = db.begin().unwrap();
    holder.update(&u, 1, &[(1, Value::Int4(1))]).unwrap();
    let mut waiter = db.begin_with(&impatient()).unwrap();
    waiter.update(&t, 5, &[(1, Value::Int4(1))]).unwrap();
    std::thread::scope(|scope| {
        let beside = db.clone();
        let slow = scope.spawn(move || beside.call("slow", &[Value::Int4(0)]).map(drop));
        has_begun.recv_timeout(PATIENCE).unwrap();
        let outcome = waiter.update(&u, 1, &[(1, Value::Int4(1))]);
        drop(waiter);
        drop(holder);
        let since = Instant::now();
        db.close().unwrap();
        let after = since.elapsed();
        assert!(!slow.is_finished(), "the test's own premise");
        drop(end);
        assert!(matches!(outcome, Err(Error::LockTimeout { .. })), "{outcome:?}");
        assert!(after < PATIENCE / 2, "{after:?}");
        let _ = slow.join().unwrap();
    });
}

/// A database closes beside a body while its resource manager divides a table's keys anew, for which it takes all lock
/// tables.
#[test]
fn a_close_waits_for_no_change_of_rules() {
    let (db, [_, u], has_begun, end) = open(10 * PATIENCE);
    std::thread::scope(|scope| {
        let beside = db.clone();
        let slow = scope.spawn(move || beside.call("slow", &[Value::Int4(0)]).map(drop));
        has_begun.recv_timeout(PATIENCE).unwrap();
        let grow = |tx: &mut Transaction| {
            (10..2_000).try_for_each(|id| tx.insert(&u, &[Value::Int4(id), Value::Int4(0)]))
        };
        db.transact(grow).unwrap();
        // By now it has begun.
        std::thread::sleep(Duration::from_millis(500));
        let since = Instant::now();
        db.close().unwrap();
        let after = since.elapsed();
        assert!(!slow.is_finished(), "the test's own premise");
        drop(end);
        assert!(after < PATIENCE / 2, "{after:?}");
        let _ = slow.join().unwrap();
    });
}

/// Parts of a phase, on threads of their own, hold keys of unique indexes at the body's executor when they meet. They
/// wait for no table, and their locks end with the transaction.
#[test]
fn parts_that_hold_locks_beside_the_body_meet_and_commit() {
    let options = Options { engine: Executors::of(3, 3).handing_over().into(), ..options(10 * PATIENCE) };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let tables = [make(&db, "t", &[]), make(&db, "u", &[-100]), make(&db, "s", &[-100, -50])];
    for name in ["t", "u"] {
        db.transact(|tx| tx.create_index(name, &format!("{name}_n"), &["n"], true)).unwrap();
        route(&db, name, WhichIndex::Secondary(0), &[-100, -50]);
    }
    let (has_begun, end) = register_slow(&db, "s");
    let (locked, has_locked) = mpsc::channel();
    let (goes_on, actions): (Vec<_>, Vec<_>) = ["t", "u"]
        .into_iter()
        .map(|name| {
            let (goes_on, may_go_on) = mpsc::channel::<()>();
            let (locked, may_go_on) = (locked.clone(), Mutex::new(may_go_on));
            let body = Action::exclusive(name, move |tx, arguments, _| {
                tx.update(arguments.table()?, 5, &[(1, Value::Int4(100))])?;
                locked.send(()).unwrap();
                let _ = may_go_on.lock().unwrap().recv_timeout(PATIENCE);
                Ok(())
            });
            (goes_on, body.by_argument(0))
        })
        .unzip();
    db.register(Procedure::new("parts", [ColumnType::Int4], Flow::new().phase(actions))).unwrap();
    let parts = db.send_call("parts", &[Value::Int4(5)]).unwrap();
    (0..2).for_each(|_| has_locked.recv_timeout(PATIENCE).unwrap());
    let slow = db.send_call("slow", &[Value::Int4(0)]).unwrap();
    has_begun.recv_timeout(PATIENCE).unwrap();
    let since = Instant::now();
    drop(goes_on);
    assert_eq!(parts.wait(), Ok(vec![]));
    // Their threads go on, too.
    for (table, id) in tables[..2].iter().zip(1..) {
        assert_eq!(db.transact(|tx| tx.get(table, id)).map(|row| row.is_some()), Ok(true));
    }
    let after = since.elapsed();
    drop(end);
    assert!(after < PATIENCE / 2, "{after:?}");
    assert_eq!(slow.wait(), Ok(vec![]));
    // The keys are free again.
    for table in &tables[..2] {
        assert_eq!(db.transact(|tx| tx.update(table, 5, &[(1, Value::Int4(5))])), Ok(true));
        assert_eq!(db.transact(|tx| tx.update(table, 6, &[(1, Value::Int4(100))])), Ok(true));
    }
    db.close().unwrap();
}
