//! Calls that their caller does not wait for (`Database::send_call`), in place and on threads that own executors: what
//! the caller learns in the end, in each way of asking, and what becomes of calls whose caller goes away.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::common::{in_time, until};
use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, Arguments, Checkpointing, Database, Durability, Error, Executors, Options, Outputs, Procedure,
    Result, Sent, TableDef, Transaction,
};

/// The limit of each wait in these tests.
const LIMIT: Duration = Duration::from_secs(120);
const KEYS: i32 = 8;

fn options(threads: usize) -> Options {
    Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        engine: Executors::of(5, threads).handing_over().into(),
        // Some wait for a row for as long as a test holds it.
        lock_timeout: LIMIT,
        ..Options::default()
    }
}

type Body = fn(&mut Transaction, &Arguments<'_>, &mut Outputs) -> Result<()>;

/// Adds one to the row of the argument's key, and gives the new value.
fn count(tx: &mut Transaction, arguments: &Arguments<'_>, outputs: &mut Outputs) -> Result<()> {
    let key: i32 = arguments.get(0)?;
    let mut n = 0;
    assert!(tx.modify(arguments.table()?, key, |row| {
        n = row.add_i64(1, 1)?;
        Ok(())
    })?);
    outputs.push(n);
    Ok(())
}

fn database(options: Options) -> Database {
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int8)];
    db.transact(|tx| {
        let table = tx.create_table(&TableDef::new("counters", columns.clone()).with_primary_key(&["id"]))?;
        (0..KEYS).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int8(0)]))
    })
    .unwrap();
    let bounds = [2, 4, 6].map(|bound| vec![Value::Int4(bound)]);
    db.set_routing("counters", WhichIndex::Primary, &bounds).unwrap();
    let bodies: [(&str, Body); 3] = [
        ("count", count),
        ("fails", |_, _, _| Err(Error::aborted("it fails"))),
        ("panics", |_, _, _| panic!("it panics")),
    ];
    for (name, body) in bodies {
        let action = Action::exclusive("counters", body).by_argument(0);
        db.register(Procedure::new(name, [ColumnType::Int4], action)).unwrap();
    }
    db
}

fn send(db: &Database, name: &str, key: i32) -> Sent {
    db.send_call(name, &[Value::Int4(key)]).unwrap()
}

fn counter(db: &Database, key: i32) -> i64 {
    let table = db.table("counters").unwrap();
    db.transact(|tx| tx.look(&table, key, |row| row.get_i64(1))).unwrap().unwrap().unwrap()
}

/// A handle that has the row of a key, so that a call on it runs until the handle is gone.
fn holder(db: &Database, key: i32) -> Transaction<'static> {
    let table = db.table("counters").unwrap();
    let mut handle = db.begin().unwrap();
    assert!(handle.modify(&table, key, |row| row.add_i64(1, 0).map(drop)).unwrap());
    handle
}

/// Counts its wake-ups.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wakes {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll(sent: &mut Sent, wakes: &Arc<Wakes>) -> Poll<Result<Vec<Value>>> {
    Pin::new(sent).poll(&mut Context::from_waker(&Waker::from(wakes.clone())))
}

type Ask = fn(Sent) -> Result<Vec<Value>>;

/// The ways to learn the outcome of a call.
const ASKS: [Ask; 4] = [
    Sent::wait,
    |sent| {
        let (values, ticket) = sent.wait_for_place()?;
        ticket.wait().map(|()| values)
    },
    |mut sent| {
        until("its end", || sent.is_done());
        sent.wait()
    },
    |mut sent| {
        let wakes = Arc::new(Wakes::default());
        loop {
            let seen = wakes.count();
            if let Poll::Ready(outcome) = poll(&mut sent, &wakes) {
                return outcome;
            }
            until("a wake", || wakes.count() > seen);
        }
    },
];

#[test]
fn a_caller_learns_the_outcome_of_its_call_in_each_way_of_asking() {
    in_time(LIMIT, || {
        for (threads, durability) in [0, 1, 3]
            .into_iter()
            .flat_map(|threads| [(threads, Durability::Memory), (threads, Durability::Disk)])
        {
            let db = database(Options { durability, ..options(threads) });
            for (nth, ask) in (1..).zip(ASKS) {
                for key in 0..KEYS {
                    assert_eq!(ask(send(&db, "count", key)), Ok(vec![Value::Int8(nth)]));
                    assert_eq!(ask(send(&db, "fails", key)), Err(Error::aborted("it fails")));
                    let panics = send(&db, "panics", key);
                    let panic = catch_unwind(AssertUnwindSafe(|| ask(panics))).unwrap_err();
                    assert_eq!(panic.downcast_ref::<&str>(), Some(&"it panics"));
                }
            }
            assert!(db.send_call("nobody", &[]).unwrap_err().to_string().contains("nobody"));
            assert!(db.send_call("count", &[Value::Bool(true)]).is_err());
            let nested = db.transact(|_| db.send_call("count", &[Value::Int4(1)]).map(drop));
            assert_eq!(nested, Err(Error::Nested));
            let sent = send(&db, "count", 1);
            assert_eq!(db.transact(|_| Ok(())), Ok(()));
            let mut sent = Some(sent);
            let nested = db.transact(|_| sent.take().expect("the body runs once").wait().map(drop));
            assert_eq!(nested, Err(Error::Nested));
        }
    });
}

/// The destructor of the waker that a wait replaces waits for another call, on the same thread. The outer call ends
/// meanwhile: its wake-up is not taken for the inner call's, and the outer wait ends, too.
#[test]
fn a_wait_inside_of_a_wait_takes_none_of_its_rings() {
    struct Waits(Mutex<Option<Sent>>);
    impl Wake for Waits {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Waits {
        fn drop(&mut self) {
            let inner = self.0.lock().unwrap().take().expect("it is dropped once");
            assert_eq!(inner.wait(), Ok(vec![Value::Int8(1)]));
        }
    }
    in_time(LIMIT, || {
        let asks: [Ask; 2] = [Sent::wait, |sent| sent.wait_for_place().map(|(values, _)| values)];
        for ask in asks {
            let db = database(options(2));
            let (of_outer, of_inner) = (holder(&db, 0), holder(&db, 5));
            let (mut outer, inner) = (send(&db, "count", 0), send(&db, "count", 5));
            let waker = Waker::from(Arc::new(Waits(Mutex::new(Some(inner)))));
            assert!(Pin::new(&mut outer).poll(&mut Context::from_waker(&waker)).is_pending());
            drop(waker);
            let waits = std::thread::spawn(move || ask(outer));
            // Time for the inner wait to begin, and for the outer call to end; a test that is too early finds nothing.
            std::thread::sleep(Duration::from_millis(100));
            drop(of_outer);
            std::thread::sleep(Duration::from_millis(100));
            drop(of_inner);
            assert_eq!(waits.join().unwrap(), Ok(vec![Value::Int8(1)]));
        }
    });
}

/// A waker is user code: when another waker replaces it, its destructor may call, and wait for the thread that runs
/// both.
#[test]
fn a_waker_that_goes_away_may_call() {
    struct Calls(Database, Arc<AtomicBool>);
    impl Wake for Calls {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Calls {
        fn drop(&mut self) {
            self.1.store(true, Ordering::SeqCst);
            assert_eq!(self.0.call("count", &[Value::Int4(0)]), Ok(vec![Value::Int8(1)]));
        }
    }
    let db = database(options(1));
    let may_end = Arc::new(AtomicBool::new(false));
    let ends = may_end.clone();
    let action = Action::exclusive("counters", move |_, _, _| {
        until("leave to end", || ends.load(Ordering::SeqCst));
        Ok(())
    });
    db.register(Procedure::new("waits", [ColumnType::Int4], action.by_argument(0))).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let asks = {
        let (db, done) = (db.clone(), done.clone());
        std::thread::spawn(move || {
            let mut sent = send(&db, "waits", 0);
            let waker = Waker::from(Arc::new(Calls(db, may_end)));
            assert!(Pin::new(&mut sent).poll(&mut Context::from_waker(&waker)).is_pending());
            drop(waker);
            let _ = poll(&mut sent, &Arc::new(Wakes::default()));
            done.store(true, Ordering::SeqCst);
            assert_eq!(sent.wait(), Ok(vec![]));
        })
    };
    until("the waker's call", || done.load(Ordering::SeqCst));
    asks.join().unwrap();
}

/// Many calls at a time, all on one row: they run one after the other, each once.
#[test]
fn a_client_has_many_calls_on_their_way() {
    in_time(LIMIT, || {
        for threads in [0, 1, 3] {
            let db = database(options(threads));
            let sent: Vec<_> = (0..200).map(|_| send(&db, "count", 3)).collect();
            let counts = sent.into_iter().map(|sent| match sent.wait().unwrap()[..] {
                [Value::Int8(n)] => n,
                ref other => panic!("{other:?}"),
            });
            let mut counts: Vec<_> = counts.collect();
            counts.sort_unstable();
            assert_eq!(counts, (1..=200).collect::<Vec<i64>>());
        }
    });
}

/// A sent call is none that its caller waits for. The caller is woken once: when the outcome is durable.
#[test]
fn sending_waits_for_nothing_and_the_caller_is_woken_once() {
    in_time(LIMIT, || {
        for durability in [Durability::Memory, Durability::Disk] {
            let db = database(Options { durability, ..options(2) });
            let handle = holder(&db, 1);
            let (mut sent, wakes) = (send(&db, "count", 1), Arc::new(Wakes::default()));
            assert!(!sent.is_done());
            assert_eq!(poll(&mut sent, &wakes), Poll::Pending);
            until("its wait for the row", || !db.lock_waits().is_empty());
            assert_eq!(wakes.count(), 0);
            drop(handle);
            until("a wake", || wakes.count() > 0);
            assert_eq!(
                poll(&mut sent, &wakes),
                Poll::Ready(Ok(vec![Value::Int8(1)])),
                "it was woken too early"
            );
            // No other thread wakes it: the log has no more to do.
            db.sync().unwrap();
            assert_eq!(wakes.count(), 1);
        }
    });
}

#[test]
fn calls_whose_caller_goes_away_run_to_their_end() {
    in_time(LIMIT, || {
        for threads in [0, 1, 3] {
            let db = database(options(threads));
            for nth in 0..300 {
                let key = nth % KEYS;
                match nth % 5 {
                    0 => drop(send(&db, "fails", key)),
                    1 => drop(send(&db, "panics", key)),
                    2 => {
                        let mut sent = send(&db, "count", key);
                        // The call ends while it is waited for.
                        let _ = poll(&mut sent, &Arc::new(Wakes::default()));
                    }
                    _ => drop(send(&db, "count", key)),
                }
            }
            until("all to have run", || (0..KEYS).map(|key| counter(&db, key)).sum::<i64>() == 180);
            assert_eq!(send(&db, "count", 0).wait().map(|values| values.len()), Ok(1));
            assert!(db.lock_waits().is_empty());
        }
    });
}

#[test]
fn a_close_has_an_answer_for_every_call_on_its_way() {
    in_time(LIMIT, || {
        let db = database(options(2));
        let handle = holder(&db, 1);
        let waiting: Vec<_> = (0..20).map(|_| send(&db, "count", 1)).collect();
        let fine: Vec<_> = (0..20).map(|_| send(&db, "count", 5)).collect();
        until("one to wait for the row", || !db.lock_waits().is_empty());
        db.clone().close().unwrap();
        for sent in waiting {
            assert_eq!(sent.wait(), Err(Error::Closed));
        }
        for sent in fine {
            let outcome = sent.wait();
            assert!(matches!(outcome, Ok(_) | Err(Error::Closed)), "{outcome:?}");
        }
        assert_eq!(db.send_call("count", &[Value::Int4(1)]).map(drop), Err(Error::Closed));
        drop(handle);
    });
}

/// Three calls are admitted, and the fourth waits for room. If a client never asks about its calls, they run all the
/// same.
#[test]
fn no_more_calls_are_on_their_way_than_there_is_room_for() {
    in_time(LIMIT, || {
        let db = database(Options { transactions_max: 6, ..options(2) });
        let handle = holder(&db, 1);
        let mut sent: Vec<_> = (0..3).map(|_| send(&db, "count", 1)).collect();
        let is_in = Arc::new(AtomicBool::new(false));
        let late = {
            let (db, is_in) = (db.clone(), is_in.clone());
            std::thread::spawn(move || {
                let sent = send(&db, "count", 1);
                is_in.store(true, Ordering::SeqCst);
                sent.wait()
            })
        };
        until("them to wait for the row", || !db.lock_waits().is_empty());
        for _ in 0..1_000 {
            std::thread::yield_now();
            assert!(!is_in.load(Ordering::SeqCst), "a fourth call was let in");
        }
        drop(handle);
        sent.extend((0..100).map(|_| send(&db, "count", 1)));
        assert!(late.join().unwrap().is_ok());
        sent.into_iter().for_each(|sent| assert_eq!(sent.wait().map(|values| values.len()), Ok(1)));
        assert_eq!(counter(&db, 1), 104);
    });
}

/// Two calls, each of which needs a lock of the other: a victim runs again, and its caller does not notice.
#[test]
fn deadlocks_of_calls_on_their_way_are_run_again() {
    in_time(LIMIT, || {
        let db = database(Options { deadlock_retries_max: 100_000, ..options(3) });
        fn nth<const AT: usize>(
            tx: &mut Transaction,
            arguments: &Arguments<'_>,
            _: &mut Outputs,
        ) -> Result<()> {
            let key: i32 = arguments.get(AT)?;
            std::thread::yield_now();
            assert!(tx.modify(arguments.table()?, key, |row| row.add_i64(1, 1).map(drop))?);
            Ok(())
        }
        let flow = rialto::Flow::new()
            .phase([Action::exclusive("counters", nth::<0>).by_argument(0)])
            .phase([Action::exclusive("counters", nth::<1>).by_argument(1)]);
        db.register(Procedure::new("two", [ColumnType::Int4; 2], flow)).unwrap();
        let both = |nth: i32| if nth % 2 == 0 { [1, 5] } else { [5, 1] };
        // Few at a time: each victim has to be found, and goes to the end of the queue.
        let (mut on_their_way, mut calls) = (VecDeque::new(), 0);
        while calls < 60 || db.metrics().aborted_deadlock == 0 {
            on_their_way.push_back(db.send_call("two", &both(calls).map(Value::Int4)).unwrap());
            calls += 1;
            if on_their_way.len() == 6 {
                assert_eq!(on_their_way.pop_front().map(Sent::wait), Some(Ok(vec![])));
            }
        }
        on_their_way.into_iter().for_each(|sent| assert_eq!(sent.wait(), Ok(vec![])));
        assert_eq!([counter(&db, 1), counter(&db, 5)], [i64::from(calls); 2]);
    });
}
