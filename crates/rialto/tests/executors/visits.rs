//! Callers that run their calls themselves where threads own executors and are idle.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::common::in_time;
use rialto::io::{Disk, FaultKind, FaultyDisk, MemoryDisk};
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, Checkpointing, Database, Durability, Executors, HandOver, LockPolicy, Options, Procedure,
    TableDef, TxOptions,
};

/// The limit of each wait.
const LIMIT: Duration = Duration::from_secs(60);

/// A key of each of the two threads.
const OF_EACH: [i32; 2] = [1, 7];

fn options(executors: Executors) -> Options {
    Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        durability: Durability::Memory,
        memory_flush_interval: Duration::from_secs(3600),
        engine: executors.into(),
        lock_timeout: LIMIT,
        ..Options::default()
    }
}

fn database(executors: Executors) -> Database {
    database_on(MemoryDisk::new(), options(executors))
}

fn database_on(disk: Arc<dyn Disk>, options: Options) -> Database {
    let db = Database::open_on(disk, options).unwrap();
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
        // A sent call is always handed over.
        let before = ran_on.lock().unwrap().len();
        assert_eq!(db.send_call("count", &[Value::Int4(1)]).unwrap().wait(), Ok(vec![Value::Int8(5)]));
        assert!(!ran_on.lock().unwrap()[before..].contains(&thread::current().id()));
        db.close().unwrap();
    }
}

/// Calls for a thread that is at work are handed over to it; the other's queue is visited meanwhile.
#[test]
fn a_call_of_a_thread_at_work_is_handed_over_to_it() {
    let db = database(Executors::of(2, 2));
    let (ran_on, (begun, go_on)) = (register_count(&db), register_slow(&db));
    let began = Instant::now();
    for nth in 1.. {
        assert!(began.elapsed() < LIMIT, "no call was handed over");
        ran_on.lock().unwrap().clear();
        let slow = db.send_call("slow", &[Value::Int4(2)]).unwrap();
        begun.recv_timeout(LIMIT).unwrap();
        // Its key belongs to the thread at work: it is behind the slow call.
        let caller = thread::spawn({
            let db = db.clone();
            move || (thread::current().id(), db.call("count", &[Value::Int4(1)]))
        });
        assert_eq!(db.call("count", &[Value::Int4(7)]), Ok(vec![Value::Int8(nth)]));
        thread::sleep(Duration::from_millis(nth as u64));
        assert_eq!(*ran_on.lock().unwrap(), [thread::current().id()]);
        go_on.send(()).unwrap();
        assert_eq!(slow.wait(), Ok(vec![]));
        let (caller, counted) = caller.join().unwrap();
        assert_eq!(counted, Ok(vec![Value::Int8(nth)]));
        // A call that began when the slow call had ended has visited.
        if !ran_on.lock().unwrap().contains(&caller) {
            break;
        }
    }
}

/// While a caller visits, calls for the same thread are put on its queue, and run when the visit is over.
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

/// A visitor that waits for a lock gives its turn up: the thread goes on with its queue, which has the call for which
/// the visitor waits.
#[test]
fn a_visitor_that_waits_holds_up_no_other_call() {
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

/// The outcome of a visit is told to its caller, and the queue is as before: errors, panics, a lock that is refused.
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

/// A visitor is a call under way like any other: at most as many as calls are admitted, and further callers wait for
/// room. Admitted without a bound, visitors that wait for a lock would take all contexts, and the next caller would
/// fail.
#[test]
fn callers_beyond_those_that_are_let_in_wait_for_room() {
    let db = database_on(MemoryDisk::new(), Options { transactions_max: 4, ..options(Executors::of(2, 2)) });
    register_count(&db);
    let mut holder = db.begin().unwrap();
    let table = db.table("t").unwrap();
    holder.update(&table, 1, &[(1, Value::Int8(10))]).unwrap();
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let db = db.clone();
            thread::spawn(move || db.call("count", &[Value::Int4(1)]))
        })
        .collect();
    // None ends while the row is held.
    let until = Instant::now() + Duration::from_millis(500);
    while Instant::now() < until && !callers.iter().any(|caller| caller.is_finished()) {
        thread::yield_now();
    }
    holder.commit().unwrap();
    let mut counted: Vec<_> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
    counted.sort_by_key(|outcome| format!("{outcome:?}"));
    let expected: Vec<_> = (11..19).map(|n| Ok(vec![Value::Int8(n)])).collect();
    assert_eq!(counted, expected);
}

/// Runs a closure when a thread ends.
struct AtEnd(RefCell<Option<Box<dyn FnOnce()>>>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        if let Some(work) = self.0.take() {
            work();
        }
    }
}

/// A caller whose thread is ending cannot give a turn away any more, so it has none.
#[test]
fn a_thread_that_ends_keeps_no_turn_while_it_waits() {
    thread_local! {
        static AT_END: AtEnd = const { AtEnd(RefCell::new(None)) };
    }
    let db = database(Executors::of(2, 2));
    register_count(&db);
    let mut holder = db.begin().unwrap();
    let table = db.table("t").unwrap();
    holder.update(&table, 1, &[(1, Value::Int8(10))]).unwrap();
    let caller = thread::spawn({
        let db = db.clone();
        move || {
            // Destroyed after the database's own thread-locals, which are made later.
            AT_END.with(|at_end| {
                let db = db.clone();
                at_end.0.replace(Some(Box::new(move || {
                    let _ = db.call("count", &[Value::Int4(1)]);
                })));
            });
            db.call("count", &[Value::Int4(3)]).unwrap();
        }
    });
    while db.lock_waits().is_empty() {
        thread::yield_now();
    }
    let mut sent = db.send_call("count", &[Value::Int4(2)]).unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    while !sent.is_done() && Instant::now() < until {
        thread::yield_now();
    }
    let is_done = sent.is_done();
    holder.commit().unwrap();
    caller.join().unwrap();
    assert!(is_done, "the queue's turn is kept by a thread that waits for a lock");
}

/// Calls a procedure of another database when it is dropped.
struct CallsWhenDropped(Database);

impl Drop for CallsWhenDropped {
    fn drop(&mut self) {
        let _ = self.0.call("count", &[Value::Int4(1)]);
    }
}

/// A visitor's body panics, and what it had read never becomes durable: that error is given in place of the panic. The
/// panic's payload is dropped there, and calls another database. That visit is a separate one, and the first one ends
/// all the same.
#[test]
fn a_visit_at_the_end_of_another_one_leaves_both_queues_free() {
    in_time(LIMIT, || {
        let (faulty, other) = (FaultyDisk::new(3), database(Executors::of(2, 2)));
        let db = database_on(faulty.clone(), options(Executors::of(2, 2)));
        register_count(&db);
        let ran_on = register_count(&other);
        let ((has_begun, begun), (go_on, goes_on)) = (channel(), channel());
        let (ends, carried) = (Mutex::new((has_begun, goes_on)), other.clone());
        let bursts = Action::exclusive("t", move |tx, arguments, _| {
            assert!(tx.get(arguments.table()?, 1)?.is_some());
            let ends = ends.lock().unwrap();
            ends.0.send(()).unwrap();
            ends.1.recv_timeout(LIMIT).unwrap();
            panic_any(CallsWhenDropped(carried.clone()));
        });
        db.register(Procedure::new("bursts", [ColumnType::Int4], bursts.by_argument(0))).unwrap();
        // The body reads what is only in memory.
        db.call("count", &[Value::Int4(1)]).unwrap();
        let visitor = thread::spawn({
            let db = db.clone();
            let on_disk = TxOptions { durability: Some(Durability::Disk), ..TxOptions::default() };
            move || (thread::current().id(), db.call_with(&on_disk, "bursts", &[Value::Int4(1)]))
        });
        begun.recv_timeout(LIMIT).unwrap();
        faulty.fail_always(FaultKind::Sync, "log-0", 0);
        assert!(db.sync().is_err());
        go_on.send(()).unwrap();
        let (visitor, outcome) = visitor.join().unwrap();
        assert!(matches!(outcome, Err(rialto::Error::OutcomeUnknown { .. })), "{outcome:?}");
        assert_eq!(*ran_on.lock().unwrap(), [visitor], "it was a visit, too");
        assert_eq!(other.call("count", &[Value::Int4(1)]), Ok(vec![Value::Int8(2)]));
        // It waits for the threads, and these for the ends of visits.
        assert!(db.close().is_err());
        other.close().unwrap();
    });
}
