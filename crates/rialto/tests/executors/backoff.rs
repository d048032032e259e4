//! Calls that back off for their first locks: they hold nothing meanwhile, keep no thread, and for their callers wait
//! like others.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{in_time, until};
use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Action, Arguments, Checkpointing, Database, Durability, Error, Executors, Flow, LockPolicy, Options,
    Outputs, Planning, Procedure, Scan, TableDef, Transaction, TxOptions,
};

const KEYS: i32 = 64;

/// Counts one key, or one after the other in one phase.
fn open(threads: usize, lock_timeout: Duration) -> Database {
    let add = |by: usize| {
        let add = move |tx: &mut Transaction, arguments: &Arguments<'_>, _: &mut Outputs| {
            let key: i32 = arguments.get(by)?;
            tx.modify(arguments.table()?, key, |row| row.add_i64(1, 1).map(drop)).map(drop)
        };
        Action::exclusive("counters", add).by_argument(by)
    };
    let options = Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        durability: Durability::Memory,
        engine: Executors { planning: Planning::Parallel, ..Executors::of(2, threads).handing_over() }.into(),
        lock_timeout,
        procedures: vec![
            Procedure::new("add", [ColumnType::Int4], add(0)),
            Procedure::new("add_two", [ColumnType::Int4; 2], Flow::new().phase([add(0), add(1)])),
            Procedure::new("in_turn", [ColumnType::Int4; 2], Flow::new().phase([add(0)]).phase([add(1)])),
        ],
        ..Options::default()
    };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int8)];
    db.transact(|tx| {
        let table = tx.create_table(&TableDef::new("counters", columns.clone()).with_primary_key(&["id"]))?;
        (0..KEYS).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int8(0)]))
    })
    .unwrap();
    db.set_routing("counters", rialto::row::WhichIndex::Primary, &[vec![Value::Int4(KEYS / 2)]]).unwrap();
    db
}

/// A transaction that holds a key's lock.
fn hold(db: &Database, key: i32) -> Transaction<'static> {
    let table = db.table("counters").unwrap();
    let mut holder = db.begin().unwrap();
    assert!(holder.get_for_update(&table, key).unwrap().is_some());
    holder
}

fn counted(db: &Database, key: i32) -> i64 {
    let table = db.table("counters").unwrap();
    db.transact(|tx| tx.look(&table, key, |row| row.get_i64(1))).unwrap().expect("it is there").unwrap()
}

/// Calls that wait for a lock of a transaction that is no call: they back off at first, then wait in line.
#[test]
fn calls_wait_for_a_transaction_that_is_none() {
    let db = open(1, Duration::from_secs(400));
    let holder = hold(&db, 0);
    let waiting: Vec<_> = (0..50).map(|_| db.send_call("add", &[Value::Int4(0)]).unwrap()).collect();
    for _ in 0..100 {
        db.call("add", &[Value::Int4(1)]).unwrap();
    }
    until("all wait in line", || db.lock_waits().len() == 50);
    assert_eq!(db.metrics().aborted, 0, "a run that backs off is no abort");
    holder.abort().unwrap();
    waiting.into_iter().for_each(|call| drop(call.wait().unwrap()));
    assert_eq!((counted(&db, 0), counted(&db, 1)), (50, 100));
    let metrics = db.metrics();
    assert_eq!((metrics.aborted, metrics.aborted_deadlock), (1, 0), "the holder's own");
    let add = metrics.procedures.iter().find(|account| account.name == "add").expect("it has run");
    assert!(add.lock_wait.count() >= 50, "calls that backed off have waited for a lock");
    db.close().unwrap();
}

/// Ends what runs beside a test, also when it fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A request in line comes before a call that asks anew: it has to get in line, too.
#[test]
fn a_call_has_its_turn_beside_transactions_that_wait_in_line() {
    let db = open(1, Duration::from_secs(400));
    let table = db.table("counters").unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    db.transact(|tx| {
                        tx.modify(&table, 0, |row| row.add_i64(1, 1).map(drop))?;
                        std::thread::sleep(Duration::from_millis(1));
                        Ok(())
                    })
                    .unwrap();
                }
            });
        }
        let _ends = Ends(&over);
        let (caller, calls) = (db.clone(), 10);
        in_time(Duration::from_secs(60), move || {
            (0..calls).for_each(|_| drop(caller.call("add", &[Value::Int4(0)]).unwrap()));
        });
    });
    db.close().unwrap();
}

#[test]
fn a_call_that_backs_off_times_out_as_others_do() {
    let db = open(1, Duration::from_millis(300));
    let holder = hold(&db, 0);
    let began = Instant::now();
    let outcome = db.call("add", &[Value::Int4(0)]);
    assert!(matches!(outcome, Err(Error::LockTimeout { .. })), "{outcome:?}");
    assert!(began.elapsed() >= Duration::from_millis(300));
    holder.abort().unwrap();
    db.call("add", &[Value::Int4(0)]).unwrap();
    assert_eq!(counted(&db, 0), 1);
    db.close().unwrap();
}

/// The back-offs of a first phase are no part of the wait for a lock of a later one.
#[test]
fn a_lock_of_a_later_phase_has_its_whole_time_out() {
    let db = open(1, Duration::from_millis(40));
    for _ in 0..5 {
        let (first, second) = (hold(&db, 0), hold(&db, KEYS - 1));
        let before = db.metrics().locks.refused;
        let call = db.send_call("in_turn", &[Value::Int4(0), Value::Int4(KEYS - 1)]).unwrap();
        until("it backs off", || db.metrics().locks.refused > before);
        first.abort().unwrap();
        let outcome = call.wait();
        let Err(Error::LockTimeout { lock, waited_ms }) = &outcome else { panic!("{outcome:?}") };
        // If the machine has stood still it may be the first lock.
        assert!(*waited_ms >= 40 || !lock.contains(&(KEYS - 1).to_string()), "{outcome:?}");
        second.abort().unwrap();
    }
    db.close().unwrap();
}

/// The end of a call wakes a call with the same identifier. A call waits in line at once for a lock that only overlaps
/// its own.
#[test]
fn what_only_overlaps_is_waited_for_in_line() {
    const CALLS: usize = 10;
    let db = open(1, Duration::from_secs(400));
    let table = db.table("counters").unwrap();
    let mut holder = db.begin().unwrap();
    holder.scan(&table, &Scan::all(), |_, _| Ok(ControlFlow::Continue(()))).unwrap();
    let before = db.metrics().locks.refused;
    let send = |key: usize| db.send_call("add", &[Value::Int4(key as i32)]).unwrap();
    let waiting: Vec<_> = (0..CALLS).map(send).collect();
    until("all wait in line", || db.lock_waits().len() == CALLS);
    assert_eq!(db.metrics().locks.refused - before, CALLS as u64, "each has asked at once, and then in line");
    holder.abort().unwrap();
    waiting.into_iter().for_each(|call| drop(call.wait().unwrap()));
    db.close().unwrap();
}

/// Each call that wants a leased lock table meets it once.
#[test]
fn a_lock_table_that_is_out_is_met_once_a_call() {
    const CALLS: i32 = 8;
    let db = open(2, Duration::from_secs(400));
    let (begun, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (has_begun, is_over) = (begun.clone(), over.clone());
    let slow = Action::exclusive("counters", move |_, _, _| {
        has_begun.store(true, Ordering::SeqCst);
        while !is_over.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    });
    let flow = Flow::new().phase([slow.by_argument(0)]);
    db.register(Procedure::new("slow", [ColumnType::Int4], flow)).unwrap();
    let slow = db.send_call("slow", &[Value::Int4(KEYS - 1)]).unwrap();
    let ends = Ends(&over);
    until("the body runs", || begun.load(Ordering::SeqCst));
    let before = db.metrics().locks.refused;
    let calls: Vec<_> = (0..CALLS)
        .map(|n| db.send_call("add_two", &[Value::Int4(n), Value::Int4(KEYS - 2 - n)]).unwrap())
        .collect();
    until("each has met it", || db.metrics().locks.refused - before >= CALLS as u64);
    // After all of them.
    db.call("add", &[Value::Int4(KEYS / 2 - 1)]).unwrap();
    drop(ends);
    slow.wait().unwrap();
    calls.into_iter().for_each(|call| drop(call.wait().unwrap()));
    assert_eq!(db.metrics().locks.refused - before, CALLS as u64);
    db.close().unwrap();
}

#[test]
fn a_call_that_may_not_wait_is_refused() {
    let db = open(1, Duration::from_secs(400));
    let holder = hold(&db, 0);
    let refuse = TxOptions { lock_wait: LockPolicy::Refuse, ..TxOptions::default() };
    let outcome = db.call_with(&refuse, "add", &[Value::Int4(0)]);
    assert!(matches!(outcome, Err(Error::WouldWait { .. })), "{outcome:?}");
    drop(holder);
    db.close().unwrap();
}

#[test]
fn a_call_that_backs_off_hears_its_time_limit() {
    let db = open(1, Duration::from_secs(400));
    let holder = hold(&db, 0);
    let limited = TxOptions { timeout: Some(Duration::from_millis(100)), ..TxOptions::default() };
    let outcome = db.call_with(&limited, "add", &[Value::Int4(0)]);
    assert!(matches!(outcome, Err(Error::Timeout { .. })), "{outcome:?}");
    drop(holder);
    db.close().unwrap();
}

/// A close waits for calls under way: one that backs off comes to its end, and its outcome is told.
#[test]
fn a_close_ends_each_call_that_backs_off() {
    let db = open(2, Duration::from_secs(400));
    let holder = hold(&db, 0);
    let send = |nth: i32| db.send_call("add_two", &[Value::Int4(0), Value::Int4(KEYS - 1 - nth)]).unwrap();
    let waiting: Vec<_> = (0..20).map(send).collect();
    let closer = db.clone();
    let closing = std::thread::spawn(move || closer.close());
    until("the close has begun", || db.call("add", &[Value::Int4(1)]) == Err(Error::Closed));
    for call in waiting {
        assert_eq!(call.wait(), Err(Error::Closed));
    }
    drop(holder);
    drop(db);
    closing.join().expect("no panic").unwrap();
}

/// Calls of two keys of two threads, nearly all of which conflict: each happens once, in any order. Most calls that
/// meet a lock are woken by its holder, before they wait in line.
#[test]
fn calls_that_meet_all_the_time_are_all_done_once() {
    const CLIENTS: i32 = 4;
    const EACH: i32 = 2_000;
    let db = open(2, Duration::from_secs(400));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let db = &db;
            scope.spawn(move || {
                let mut sent = VecDeque::new();
                for nth in 0..EACH {
                    // Four hot keys, two of each thread.
                    let (one, other) = ((client + nth) % 2, KEYS - 1 - nth % 2);
                    sent.push_back(db.send_call("add_two", &[Value::Int4(one), Value::Int4(other)]).unwrap());
                    if sent.len() == 64 {
                        sent.pop_front().expect("it is full").wait().unwrap();
                    }
                }
                sent.into_iter().for_each(|call| drop(call.wait().unwrap()));
            });
        }
    });
    let all: i64 = (0..KEYS).map(|key| counted(&db, key)).sum();
    assert_eq!(all, 2 * i64::from(CLIENTS * EACH));
    assert_eq!(db.metrics().aborted, 0);
    // A call that backs off is not in line.
    let locks = db.metrics().locks;
    println!("{} calls waited in line, {} met a lock", locks.waits, locks.refused);
    assert!(
        locks.waits * 2 < locks.refused,
        "{} calls waited in line, {} met a lock",
        locks.waits,
        locks.refused
    );
    db.close().unwrap();
}
