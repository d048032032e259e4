//! Callers that run their calls themselves where threads own executors and have nothing to do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, Checkpointing, Database, Durability, Executors, HandOver, LockPolicy, Options, Procedure,
    TableDef, TxOptions,
};

/// Of the longest wait.
const LIMIT: Duration = Duration::from_secs(60);

/// The keys of two threads.
const OF_EACH: [i32; 2] = [1, 7];

fn database(executors: Executors) -> Database {
    let options = Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        durability: Durability::Memory,
        engine: executors.into(),
        lock_timeout: LIMIT,
        ..Options::default()
    };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int8)];
    db.transact(|tx| {
        let table = tx.create_table(&TableDef::new("t", columns.clone()).with_primary_key(&["id"]))?;
        (0..8).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int8(0)]))
    })
    .unwrap();
    db.set_routing("t", WhichIndex::Primary, &[vec![Value::Int4(4)]]).unwrap();
    db
}

/// Registers a procedure that counts its key's row, and notes the thread that runs it.
fn register_count(db: &Database) -> Arc<Mutex<Vec<ThreadId>>> {
    let ran_on: Arc<Mutex<Vec<ThreadId>>> = Arc::default();
    let noted = ran_on.clone();
    let count = Action::exclusive("t", move |tx, arguments, outputs| {
        noted.lock().unwrap().push(thread::current().id());
        let mut n = 0;
        tx.modify(arguments.table()?, arguments.get::<i32>(0)?, |row| {
            n = row.add_i64(1, 1)?;
            Ok(())
        })?;
        outputs.push(n);
        Ok(())
    });
    db.register(Procedure::new("count", [ColumnType::Int4], count.by_argument(0))).unwrap();
    ran_on
}

/// Registers a procedure whose body says that it has begun, and goes on when it is told to.
fn register_slow(db: &Database) -> (Receiver<()>, Sender<()>) {
    let ((has_begun, begun), (go_on, goes_on)) = (channel(), channel());
    let ends = Mutex::new((has_begun, goes_on));
    let slow = Action::exclusive("t", move |_, _, _| {
        let ends = ends.lock().unwrap();
        ends.0.send(()).unwrap();
        ends.1.recv_timeout(LIMIT).unwrap();
        Ok(())
    });
    db.register(Procedure::new("slow", [ColumnType::Int4], slow.by_argument(0))).unwrap();
    (begun, go_on)
}

#[test]
fn a_caller_runs_its_call_itself_unless_threads_are_handed_every_call() {
    for hand_over in [HandOver::IfBusy, HandOver::Always] {
        let db = database(Executors { hand_over, ..Executors::of(2, 2) });
        let ran_on = register_count(&db);
        let mut prepared = db.prepare_call("count").unwrap();
        for (nth, key) in OF_EACH.into_iter().enumerate() {
            let arguments = [Value::Int4(key)];
            assert_eq!(db.call("count", &arguments), Ok(vec![Value::Int8(1)]));
            assert_eq!(db.submit_call("count", &arguments).unwrap().0, [Value::Int8(2)]);
            assert_eq!(prepared.call(&arguments), Ok(&[Value::Int8(3)][..]));
            assert_eq!(prepared.submit(&arguments).unwrap().0, [Value::Int8(4)]);
            let ran_on = ran_on.lock().unwrap();
            let by_caller = ran_on.iter().filter(|thread| **thread == thread::current().id()).count();
            assert_eq!(by_caller, if hand_over == HandOver::IfBusy { 4 * (nth + 1) } else { 0 });
        }
        // What is sent is handed over always.
        let before = ran_on.lock().unwrap().len();
        assert_eq!(db.send_call("count", &[Value::Int4(1)]).unwrap().wait(), Ok(vec![Value::Int8(5)]));
        assert!(!ran_on.lock().unwrap()[before..].contains(&thread::current().id()));
        db.close().unwrap();
    }
}

/// A thread that is at work is handed what is its own; the other's queue is visited meanwhile.
#[test]
fn a_call_of_a_thread_at_work_is_handed_over_to_it() {
    let db = database(Executors::of(2, 2));
    let (ran_on, (begun, go_on)) = (register_count(&db), register_slow(&db));
    let slow = db.send_call("slow", &[Value::Int4(2)]).unwrap();
    begun.recv_timeout(LIMIT).unwrap();
    // Its key is of the thread at work: it is behind the slow call.
    let caller = thread::spawn({
        let db = db.clone();
        move || (thread::current().id(), db.call("count", &[Value::Int4(1)]))
    });
    assert_eq!(db.call("count", &[Value::Int4(7)]), Ok(vec![Value::Int8(1)]));
    assert_eq!(*ran_on.lock().unwrap(), [thread::current().id()]);
    go_on.send(()).unwrap();
    assert_eq!(slow.wait(), Ok(vec![]));
    let (caller, counted) = caller.join().unwrap();
    assert_eq!(counted, Ok(vec![Value::Int8(1)]));
    assert!(!ran_on.lock().unwrap().contains(&caller), "the thread at work ran it");
}

/// While a caller visits, what is of the same thread is put on its queue, and run when the visit is over.
#[test]
fn calls_wait_on_the_queue_for_the_end_of_a_visit() {
    let db = database(Executors::of(2, 2));
    let (ran_on, (begun, go_on)) = (register_count(&db), register_slow(&db));
    let visitor = thread::spawn({
        let db = db.clone();
        move || db.call("slow", &[Value::Int4(2)])
    });
    begun.recv_timeout(LIMIT).unwrap();
    let mut behind = db.send_call("count", &[Value::Int4(1)]).unwrap();
    let other = db.send_call("count", &[Value::Int4(7)]).unwrap();
    assert_eq!(other.wait(), Ok(vec![Value::Int8(1)]));
    assert!(!behind.is_done(), "one thread at a time uses what a thread owns");
    go_on.send(()).unwrap();
    assert_eq!(visitor.join().unwrap(), Ok(vec![]));
    assert_eq!(behind.wait(), Ok(vec![Value::Int8(1)]));
    assert_eq!(ran_on.lock().unwrap().len(), 2);
}

/// A visitor that waits for a lock gives its turn up: the thread goes on with what is on its queue, among it what the visitor waits for.
#[test]
fn a_visitor_that_waits_holds_up_nobody() {
    let db = database(Executors::of(2, 2));
    let ran_on = register_count(&db);
    let mut holder = db.begin().unwrap();
    let table = db.table("t").unwrap();
    holder.update(&table, 1, &[(1, Value::Int8(10))]).unwrap();
    let visitor = thread::spawn({
        let db = db.clone();
        move || db.call("count", &[Value::Int4(1)])
    });
    while db.lock_waits().is_empty() {
        thread::yield_now();
    }
    // The visitor waits, on its own thread, and has no turn any more: calls of the same thread's keys are visits again.
    let (by_send, by_visit) = ([Value::Int4(2)], [Value::Int4(3)]);
    assert_eq!(db.send_call("count", &by_send).unwrap().wait(), Ok(vec![Value::Int8(1)]));
    assert_eq!(db.call("count", &by_visit), Ok(vec![Value::Int8(1)]));
    assert_eq!(ran_on.lock().unwrap().last(), Some(&thread::current().id()));
    holder.commit().unwrap();
    assert_eq!(visitor.join().unwrap(), Ok(vec![Value::Int8(11)]));
}

/// What a visit ends with is told to its caller, and leaves the queue as it was: errors, panics, a lock that is refused.
#[test]
fn a_visit_that_fails_leaves_its_queue_to_others() {
    let db = database(Executors::of(2, 2));
    register_count(&db);
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let fails = Action::exclusive("t", move |tx, arguments, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        tx.update(arguments.table()?, 1, &[(1, Value::Int8(99))])?;
        assert_eq!(arguments.get::<i32>(1)?, 0, "as it was asked to");
        Err(rialto::Error::aborted("as it was asked to"))
    });
    db.register(Procedure::new("fails", [ColumnType::Int4; 2], fails.by_argument(0))).unwrap();
    let call = |how| catch_unwind(AssertUnwindSafe(|| db.call("fails", &[Value::Int4(1), Value::Int4(how)])));
    assert!(matches!(call(0), Ok(Err(rialto::Error::Aborted { .. }))));
    assert!(call(1).is_err(), "the panic is the caller's");
    let mut holder = db.begin().unwrap();
    holder.update(&db.table("t").unwrap(), 1, &[(1, Value::Int8(0))]).unwrap();
    let refuses = TxOptions { lock_wait: LockPolicy::Refuse, ..TxOptions::default() };
    assert!(db.call_with(&refuses, "count", &[Value::Int4(1)]).is_err());
    holder.abort().unwrap();
    for nth in 1..4 {
        assert_eq!(
            db.send_call("count", &[Value::Int4(1)]).unwrap().wait(),
            Ok(vec![Value::Int8(2 * nth - 1)])
        );
        assert_eq!(db.call("count", &[Value::Int4(1)]), Ok(vec![Value::Int8(2 * nth)]));
    }
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    db.close().unwrap();
}
