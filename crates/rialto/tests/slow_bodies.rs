//! A body that takes its time has the lock tables of its executors meanwhile. That holds up transactions that need these, and no others.

use std::sync::{Barrier, mpsc};
use std::time::{Duration, Instant};

use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, Checkpointing, Database, Durability, Error, Flow, LockForm, Options, Procedure, Table, TableDef,
    TxOptions,
};

/// Within so long all that does not need the body's lock table has to have happened.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two tables, each at an executor of its own, and a procedure whose body runs at that of `t` from when it says so until it is told
/// to end.
fn open(lock_timeout: Duration) -> (Database, [Table; 2], mpsc::Receiver<()>, mpsc::Sender<()>) {
    let options = Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        durability: Durability::Memory,
        locks: LockForm::Local,
        executors: 8,
        lock_timeout,
        ..Options::default()
    };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let tables = [("t", 100), ("u", -100)].map(|(name, bound)| {
        let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int4)];
        let definition = TableDef::new(name, columns).with_primary_key(&["id"]);
        let table = db
            .transact(|tx| {
                let table = tx.create_table(&definition)?;
                (0..10).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int4(0)]))?;
                Ok(table)
            })
            .unwrap();
        db.set_routing(name, WhichIndex::Primary, &[vec![Value::Int4(bound)]]).unwrap();
        table
    });
    let (began, has_begun) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    let ends = std::sync::Mutex::new(ends);
    let body = Action::exclusive("t", move |_, _, _| {
        began.send(()).unwrap();
        // It is told to by the sender's end, too.
        let _ = ends.lock().unwrap().recv_timeout(PATIENCE);
        Ok(())
    });
    db.register(Procedure::new("slow", [ColumnType::Int4], Flow::new().phase([body.by_argument(0)])))
        .unwrap();
    (db, tables, has_begun, end)
}

fn touch(db: &Database, table: &Table, id: i32) -> rialto::Result<bool> {
    db.transact(|tx| tx.update(table, id, &[(1, Value::Int4(1))]))
}

/// Waits until so many transactions wait for locks.
fn until_waiting(db: &Database, count: usize) {
    let since = Instant::now();
    while db.lock_waits().len() < count {
        assert!(since.elapsed() < PATIENCE, "{count} do not wait");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A transaction that waits at the body's executor looks for deadlocks, too, and must not keep the others from it.
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
        // By now it has looked.
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

/// Whoever waits at the body's executor for another transaction's lock gives up in time; the others there get what they wait for.
#[test]
fn a_wait_times_out_while_a_body_takes_its_time() {
    let timeout = Duration::from_millis(300);
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
        // Behind the one who gives up, whom alone it waits for.
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
