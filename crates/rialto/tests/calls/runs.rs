//! Calls that do not run straight to their end: that rest and run again, that leave actions out, whose closures panic,
//! that have a limit or are cancelled, beside definitions and operations of their bodies.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{engines, in_time, until};
use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, Canceller, Checkpointing, Database, Engine, Error, Flow, Options, Procedure, Table, TableDef,
    TransactionServer, TransactionServerOptions, TxOptions,
};

/// Longer than any of this takes.
const LIMIT: Duration = Duration::from_secs(60);
/// All engines. On those with executors, one executor has all keys.
const ENGINES: [Engine; 4] = engines::each(1);

fn options(engine: Engine) -> Options {
    Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        engine,
        lock_timeout: 2 * LIMIT,
        ..Options::default()
    }
}

fn make(db: &Database, name: &str, rows: i32) -> Table {
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int4)];
    db.transact(|tx| {
        let table = tx.create_table(&TableDef::new(name, columns.clone()).with_primary_key(&["id"]))?;
        (0..rows).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int4(0)]))?;
        Ok(table)
    })
    .unwrap()
}

fn deadlock<T>() -> rialto::Result<T> {
    Err(Error::Deadlock { waiting_for: "a handle's lock".to_owned() })
}

fn until_set(flag: &AtomicBool) {
    until("a flag to be set", || flag.load(Ordering::SeqCst));
}

/// A call rests on a thread all of whose other calls wait for locks: a thread is there when its rest is over.
#[test]
fn a_call_that_rests_runs_again_while_the_others_of_its_thread_wait() {
    in_time(LIMIT, || {
        let db = Database::open_on(MemoryDisk::new(), options(engines::of(1, 1))).unwrap();
        let table = make(&db, "t", 10);
        let (runs, last_run, sent) =
            (AtomicU32::new(0), Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (in_last_run, is_sent) = (last_run.clone(), sent.clone());
        // As a body that passes on the deadlock of its handle: often enough for a rest of 51 ms.
        let victim = Action::exclusive("t", move |_, _, _| {
            let run = runs.fetch_add(1, Ordering::SeqCst);
            if run == 10 {
                in_last_run.store(true, Ordering::SeqCst);
                until_set(&is_sent);
            }
            if run <= 10 { deadlock() } else { Ok(()) }
        });
        let waits = Action::exclusive("t", |_, _, _| Ok(()));
        db.register(Procedure::new("victim", [ColumnType::Int4], victim.by_argument(0))).unwrap();
        db.register(Procedure::new("waits", [ColumnType::Int4], waits.by_argument(0))).unwrap();
        let mut handle = db.begin().unwrap();
        handle.update(&table, 1, &[(1, Value::Int4(1))]).unwrap();

        let victim = db.send_call("victim", &[Value::Int4(2)]).unwrap();
        until_set(&last_run);
        let waits = db.send_call("waits", &[Value::Int4(1)]).unwrap();
        sent.store(true, Ordering::SeqCst);
        assert_eq!(victim.wait(), Ok(vec![]));
        handle.commit().unwrap();
        assert_eq!(waits.wait(), Ok(vec![]));
    });
}

/// A body has leased executors and asks for a checkpoint, while a transaction drops an index with a routing rule: the
/// drop does not wait for executors while the checkpoint waits for the drop.
#[test]
fn a_checkpoint_asked_for_in_a_body_beside_a_definition_ends() {
    in_time(LIMIT, || {
        for round in 0..3 {
            let db = Database::open_on(MemoryDisk::new(), options(engines::of(1, 0))).unwrap();
            // The first table has the catalog's lock position, so its lock does not move with executors.
            make(&db, "first", 0);
            make(&db, "t", 10);
            make(&db, "x", 10);
            db.transact(|tx| tx.create_index("x", "x_n", &["n"], false)).unwrap();
            db.set_routing("x", WhichIndex::Secondary(0), &[vec![Value::Int4(5)]]).unwrap();
            let (is_dropped, is_in_body) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
            let (of_body, in_body) = (db.clone(), is_in_body.clone());
            let body = Action::exclusive("t", move |_, _, _| {
                in_body.store(true, Ordering::SeqCst);
                // The drop is about to take its place now, or has it.
                std::thread::sleep(Duration::from_millis(100));
                of_body.checkpoint().map(drop)
            });
            db.register(Procedure::new("p", [ColumnType::Int4], body.by_argument(0))).unwrap();
            std::thread::scope(|scope| {
                let drops = scope.spawn(|| {
                    db.transact(|tx| {
                        tx.drop_index("x_n")?;
                        is_dropped.store(true, Ordering::SeqCst);
                        until_set(&is_in_body);
                        Ok(())
                    })
                });
                until_set(&is_dropped);
                assert_eq!(db.call("p", &[Value::Int4(1)]), Ok(vec![]), "round {round}");
                assert_eq!(drops.join().unwrap(), Ok(()), "round {round}");
            });
            // The procedure keeps a handle of it: its threads end with the process.
            std::mem::forget(db);
        }
    });
}

/// The identifier of an action that a call leaves out is not checked.
#[test]
fn the_identifier_of_an_action_that_is_left_out_is_not_worked_out() {
    fn doubled(arguments: &[Value]) -> Value {
        match arguments[1] {
            Value::Int4(n) => Value::Int4(2 * n),
            _ => panic!("worked out for a call that the action is left out of"),
        }
    }
    for engine in ENGINES {
        let db = Database::open_on(MemoryDisk::new(), options(engine)).unwrap();
        make(&db, "t", 10);
        let left_out =
            Action::exclusive("t", |_, _, _| Ok(())).by(doubled).when(|arguments| !arguments[1].is_null());
        let other = Action::exclusive("t", |_, _, outputs| {
            outputs.push(7);
            Ok(())
        });
        let flow = Flow::new().phase([left_out, other.by_argument(0)]);
        db.register(Procedure::new("p", [ColumnType::Int4, ColumnType::Int4], flow)).unwrap();
        let outcome = catch_unwind(AssertUnwindSafe(|| db.call("p", &[Value::Int4(1), Value::Null])));
        assert_eq!(outcome.ok(), Some(Ok(vec![Value::Int4(7)])), "{engine}");
    }
}

/// Closures that compute a call's conditions and identifiers are a part of it as its bodies are: their panics are its
/// outcome.
#[test]
fn a_panic_of_an_identifier_is_the_calls_outcome() {
    fn odd(arguments: &[Value]) -> Value {
        assert_ne!(arguments[0], Value::Int4(13), "no identifier");
        arguments[0].clone()
    }
    fn even(arguments: &[Value]) -> bool {
        assert_ne!(arguments[0], Value::Int4(14), "no condition");
        true
    }
    for engine in ENGINES {
        let about = format!("{engine}");
        let db = Database::open_on(MemoryDisk::new(), options(engine)).unwrap();
        make(&db, "t", 20);
        let action = || Action::exclusive("t", |_, _, _| Ok(())).by(odd).when(even);
        let first = Flow::new().phase([action()]);
        let second =
            Flow::new().phase([Action::shared("t", |_, _, _| Ok(())).by_argument(0)]).phase([action()]);
        db.register(Procedure::new("first", [ColumnType::Int4], first)).unwrap();
        db.register(Procedure::new("second", [ColumnType::Int4], second)).unwrap();
        for name in ["first", "second"] {
            for bad in [13, 14] {
                let bad = [Value::Int4(bad)];
                assert!(catch_unwind(AssertUnwindSafe(|| db.call(name, &bad))).is_err(), "{name}, {about}");
                if engines::threads(engine) > 0 {
                    let sent = db.send_call(name, &bad).unwrap();
                    assert!(catch_unwind(AssertUnwindSafe(|| sent.wait())).is_err(), "{name}, {about}");
                }
                let good = [Value::Int4(12)];
                assert_eq!(db.call(name, &good), Ok(vec![]), "{name}, {about}");
            }
        }
        if engines::threads(engine) == 0 {
            let server = TransactionServer::start(&db, &TransactionServerOptions::default()).unwrap();
            let procedure = server.procedure("first").unwrap();
            let mut client = server.message_server();
            for (argument, is_good) in [(13, false), (14, false), (12, true)] {
                let mut request = client.request(&procedure);
                request.push(argument);
                client.put(request).unwrap();
                assert_eq!(client.take().unwrap().outcome().is_ok(), is_good, "{argument}, {about}");
            }
        }
    }
}

/// A shared action that panics after a write gives the transaction's packet back, of which there are few here.
#[test]
fn a_panic_in_shared_mode_behind_a_write_keeps_no_packet() {
    const TRANSACTIONS: usize = 2;
    for engine in ENGINES {
        let few = Options { packets_max: 1, transactions_max: TRANSACTIONS, ..options(engine) };
        let options = Options { log_wait_max: LIMIT, ..few };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        let table = make(&db, "t", 10);
        let writes = Action::exclusive("t", |tx, arguments, _| {
            tx.update(arguments.table()?, arguments.get::<i32>(0)?, &[(1, Value::Int4(5))]).map(drop)
        });
        let panics = Action::shared("t", |_, _, _| panic!("it panics"));
        let flow = Flow::new().phase([writes.by_argument(0)]).phase([panics.by_argument(0)]);
        db.register(Procedure::new("p", [ColumnType::Int4], flow)).unwrap();
        for _ in 0..2 * TRANSACTIONS {
            assert!(catch_unwind(AssertUnwindSafe(|| db.call("p", &[Value::Int4(1)]))).is_err());
        }
        for nth in 0..3 {
            // Each with a context that has no packet yet.
            let write = || db.transact(|tx| tx.update(&table, 2, &[(1, Value::Int4(nth))]));
            let outcome = std::thread::scope(|scope| scope.spawn(write).join().unwrap());
            assert_eq!(outcome, Ok(true), "writer {nth}, {engine}");
        }
    }
}

/// A transaction's limit is for all its runs together.
#[test]
fn a_transaction_that_runs_again_has_one_time_limit() {
    for engine in ENGINES {
        let db = Database::open_on(MemoryDisk::new(), options(engine)).unwrap();
        make(&db, "t", 10);
        let victim = Action::exclusive("t", |tx, _, _| {
            std::thread::sleep(Duration::from_millis(60));
            tx.check()?;
            deadlock()
        });
        db.register(Procedure::new("p", [ColumnType::Int4], victim.by_argument(0))).unwrap();
        let limited = TxOptions { timeout: Some(Duration::from_millis(100)), ..TxOptions::default() };
        let began = Instant::now();
        let outcome = db.call_with(&limited, "p", &[Value::Int4(1)]);
        let about = format!("{outcome:?} after {:?}, {engine}", began.elapsed());
        // Each of its runs alone would be short enough.
        assert_eq!(outcome, Err(Error::Timeout { limit_ms: 100 }), "{about}");
    }
}

/// A canceller is the transaction's, in whichever of its runs it was made: one is used in that run, after all
/// operations, and one in the next run.
#[test]
fn what_cancels_one_run_of_a_transaction_cancels_the_next() {
    for engine in ENGINES {
        for later in [false, true] {
            let db = Database::open_on(MemoryDisk::new(), options(engine)).unwrap();
            make(&db, "t", 10);
            let runs = Arc::new(AtomicU32::new(0));
            let (count, canceller) = (runs.clone(), Mutex::new(None::<Canceller>));
            let body = Action::exclusive("t", move |tx, arguments, _| {
                let mut canceller = canceller.lock().unwrap();
                if count.fetch_add(1, Ordering::SeqCst) == 0 {
                    let made = canceller.insert(tx.canceller());
                    if !later {
                        made.cancel();
                    }
                    return deadlock();
                }
                if later {
                    canceller.as_ref().expect("made in the first run").cancel();
                }
                tx.update(arguments.table()?, 1, &[(1, Value::Int4(1))]).map(drop)
            });
            db.register(Procedure::new("p", [ColumnType::Int4], body.by_argument(0))).unwrap();
            let about = format!("{engine}, in the next run: {later}");
            assert_eq!(db.call("p", &[Value::Int4(1)]), Err(Error::Cancelled), "{about}");
            assert!(runs.load(Ordering::SeqCst) <= 2, "{about}");
            // It does not cancel another transaction.
            assert_eq!(db.call("p", &[Value::Int4(1)]), Ok(vec![]), "{about}");
        }
    }
}

/// An error that ends the second run of a checked procedure says nothing about the procedure.
#[test]
fn a_cancelled_run_does_not_tell_against_determinism() {
    let options = Options { check_determinism: true, ..options(Engine::thin()) };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    make(&db, "t", 10);
    let runs = AtomicU32::new(0);
    let body = Action::exclusive("t", move |tx, arguments, _| {
        if runs.fetch_add(1, Ordering::SeqCst) == 1 {
            tx.canceller().cancel();
        }
        tx.update(arguments.table()?, 1, &[(1, Value::Int4(1))]).map(drop)
    });
    let procedure = Procedure::new("p", [ColumnType::Int4], body.by_argument(0)).deterministic(1);
    db.register(procedure).unwrap();
    assert_eq!(db.call("p", &[Value::Int4(1)]), Err(Error::Cancelled));
    assert_eq!(db.call("p", &[Value::Int4(1)]), Ok(vec![]));
}

/// Leaves a context to this thread whose transaction has waited long. The thread's next transaction but `next_but` gets
/// it.
fn leave_one_that_has_waited(db: &Database, table: &Table, next_but: usize) {
    let mut holder = db.begin().unwrap();
    holder.update(table, 1, &[(1, Value::Int4(1))]).unwrap();
    let others: Vec<_> = (0..next_but).map(|_| db.begin().unwrap()).collect();
    let mut waiter = db.begin().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            holder.commit().unwrap();
        });
        waiter.update(table, 1, &[(1, Value::Int4(2))]).unwrap();
        waiter.commit().unwrap();
    });
    drop(others);
}

/// The locks of a handle that commits in a body are released when the body's are. Before that its waits are its own.
#[test]
fn a_handle_that_commits_in_a_body_has_waited_as_long_as_it_has() {
    for next_but in 0..3 {
        in_time(LIMIT, move || {
            let db = Database::open_on(MemoryDisk::new(), options(engines::of(1, 0))).unwrap();
            // The first table has the catalog's lock position, so its lock does not move with executors.
            make(&db, "first", 0);
            let table = make(&db, "t", 10);
            leave_one_that_has_waited(&db, &table, next_but);
            // It has its lock before the body has leased the table that this is in.
            let mut handle = db.begin().unwrap();
            handle.update(&table, 7, &[(1, Value::Int4(1))]).unwrap();
            let handle = Mutex::new(Some(handle));
            let body = Action::exclusive("t", move |_, _, _| {
                handle.lock().unwrap().take().expect("the body runs once").commit()
            });
            db.register(Procedure::new("p", [ColumnType::Int4], body.by_argument(0))).unwrap();
            // An account with more waits than response time fails an assertion.
            assert_eq!(db.call("p", &[Value::Int4(2)]), Ok(vec![]));
        });
    }
}
