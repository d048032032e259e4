//! The time account: where a transaction's time went, by procedure.

use std::future::Future;
use std::pin::Pin;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rialto::io::{Clock, MemoryDisk, SimulatedDisk};
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Checkpointing, Database, Durability, Flow, Options, Procedure, ProcedureAccount, Table, TableDef,
    TxOptions,
};

fn options() -> Options {
    Options { memory_bytes: 64 << 20, ..Options::default() }
}

fn database() -> (Database, Table) {
    with_table(Database::open_on(MemoryDisk::new(), options()).unwrap())
}

/// On a spindle, each of whose syncs takes milliseconds.
fn slow_database() -> (Database, Table) {
    let disk = SimulatedDisk::named("hdd", MemoryDisk::new(), Clock::System).unwrap();
    with_table(Database::open_on(disk, options()).unwrap())
}

fn with_table(db: Database) -> (Database, Table) {
    let table = db.transact(|tx| {
        let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int8)];
        let table = tx.create_table(&TableDef::new("t", columns).with_primary_key(&["id"]))?;
        (0..10).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int8(0)]))?;
        Ok(table)
    });
    (db, table.unwrap())
}

fn named(db: &Database, name: &str) -> TxOptions {
    TxOptions { procedure: Some(db.procedure_id(name)), ..TxOptions::default() }
}

fn account(db: &Database, name: &str) -> ProcedureAccount {
    let found = db.metrics().procedures.into_iter().find(|account| account.name == name);
    found.unwrap_or_else(|| panic!("nothing was counted for {name}"))
}

fn add(db: &Database, options: &TxOptions, table: &Table, id: i32) {
    let changed = db.transact_with(options, |tx| tx.modify(table, id, |row| row.add_i64(1, 1).map(drop)));
    assert!(changed.unwrap());
}

#[test]
fn a_transaction_that_never_waits_has_run_time_only() {
    // Only this thread touches the log, or latches a segment.
    let alone = Options {
        memory_flush_interval: Duration::from_secs(3_600),
        checkpoint: Checkpointing::None,
        ..options()
    };
    let (db, table) = with_table(Database::open_on(MemoryDisk::new(), alone).unwrap());
    let options = TxOptions { durability: Some(Durability::Memory), ..named(&db, "quick") };
    // The creation of the table is durable: nothing is left to wait for.
    db.sync().unwrap();
    let began = Instant::now();
    (0..100).for_each(|nth| add(&db, &options, &table, nth % 10));
    let elapsed = began.elapsed();
    let quick = account(&db, "quick");
    assert_eq!((quick.committed, quick.aborted), (100, 0));
    assert_eq!((quick.response.count(), quick.run.count()), (100, 100));
    let waits = (quick.lock_wait.count(), quick.latch_wait.count(), quick.log_wait.count());
    assert_eq!(waits, (0, 0, 0), "gathering its own packet is no wait");
    assert!(quick.time.run_ns > 0 && quick.time.response() <= elapsed, "{quick:?} in {elapsed:?}");
    let absent = (quick.time.queue_ns, quick.time.fetch_io_ns, quick.time.standby_wait_ns);
    assert_eq!(absent, (None, None, None), "what this engine does not have is not zero");
}

#[test]
fn a_wait_for_a_lock_is_lock_wait_and_the_parts_are_the_response_time() {
    let (db, table) = database();
    let held = Duration::from_millis(30);
    let mut holder = db.begin().unwrap();
    holder.modify(&table, 1, |row| row.add_i64(1, 1).map(drop)).unwrap();
    let elapsed = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let began = Instant::now();
            add(&db, &named(&db, "waiter"), &table, 1);
            began.elapsed()
        });
        while db.lock_waits().is_empty() {
            std::thread::yield_now();
        }
        std::thread::sleep(held);
        holder.commit().unwrap();
        waiter.join().unwrap()
    });
    let waiter = account(&db, "waiter");
    assert_eq!((waiter.committed, waiter.lock_wait.count()), (1, 1));
    assert!(Duration::from_nanos(waiter.time.lock_wait_ns) >= held, "{waiter:?}");
    assert!(waiter.time.response() <= elapsed, "{waiter:?} in {elapsed:?}");
    // The handle held its lock for this time, which is its own run: no other transaction kept it waiting.
    let holder = account(&db, rialto::account::UNNAMED);
    assert!(Duration::from_nanos(holder.time.run_ns) >= held, "{holder:?}");
    assert_eq!(holder.lock_wait.count(), 0);
}

#[test]
fn a_blocking_commit_waits_for_the_log_and_so_does_a_ticket_that_is_waited_for() {
    // On a busy machine a thread may come to its wait when the log is written already, or stand still in its body. So
    // the test need not succeed each time.
    assert!((0..50).any(|_| all_wait_for_the_log()));
}

/// Whether each way to wait for the log was counted as a wait that takes longer than the run.
fn all_wait_for_the_log() -> bool {
    let (db, table) = slow_database();
    let change = |name: &str| {
        let options = named(&db, name);
        db.submit_with(&options, |tx| tx.modify(&table, 2, |row| row.add_i64(1, 1).map(drop))).unwrap().1
    };
    add(&db, &named(&db, "blocking"), &table, 1);
    let mut handle = db.begin_with(&named(&db, "handle")).unwrap();
    handle.modify(&table, 3, |row| row.add_i64(1, 1).map(drop)).unwrap();
    handle.commit().unwrap();
    change("ticket").wait().unwrap();
    let mut future = change("future");
    let mut context = Context::from_waker(Waker::noop());
    while Pin::new(&mut future).poll(&mut context) == Poll::Pending {
        std::thread::sleep(Duration::from_millis(1));
    }
    let all_wait = ["blocking", "handle", "ticket", "future"].into_iter().all(|name| {
        let account = account(&db, name);
        let counts = (account.committed, account.log_wait.count(), account.response.count());
        let waits = counts == (1, 1, 1) && account.time.log_wait_ns > account.time.run_ns;
        if !waits {
            println!("{name}: {account:?}");
        }
        waits
    });
    // A caller that only polls has the time to itself.
    let asked = change("asked");
    while asked.poll_done().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let asked = account(&db, "asked");
    assert_eq!((asked.committed, asked.log_wait.count(), asked.response.count()), (1, 0, 0));
    all_wait
}

#[test]
fn the_lost_runs_of_a_deadlocks_victim_are_in_its_response_time() {
    let (db, table) = database();
    let (both, runs) = (Barrier::new(2), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for (first, second) in [(1, 2), (2, 1)] {
            let (db, table, both, runs) = (&db, &table, &both, &runs);
            scope.spawn(move || {
                let mut met = false;
                let outcome = db.transact_with(&named(db, "crossing"), |tx| {
                    runs.fetch_add(1, Ordering::Relaxed);
                    tx.modify(table, first, |row| row.add_i64(1, 1).map(drop))?;
                    if !std::mem::replace(&mut met, true) {
                        both.wait();
                    }
                    tx.modify(table, second, |row| row.add_i64(1, 1).map(drop)).map(drop)
                });
                outcome.unwrap();
            });
        }
    });
    let crossing = account(&db, "crossing");
    let lost = runs.load(Ordering::Relaxed) - 2;
    assert!(lost >= 1);
    assert_eq!((crossing.committed, crossing.aborted, crossing.deadlocks), (2, lost, lost));
    assert_eq!(crossing.response.count(), 2, "a transaction is one, however often it ran");
    assert!(crossing.lock_wait.count() >= 1 && crossing.time.lock_wait_ns > 0, "{crossing:?}");
    let metrics = db.metrics();
    assert_eq!((metrics.aborted, metrics.aborted_deadlock), (lost, lost));
    // All waits for locks were in transactions that committed in the end.
    assert_eq!(crossing.time.lock_wait_ns, metrics.locks.wait_ns);
}

#[test]
fn registered_procedures_have_accounts_and_an_abort_is_counted_once() {
    let (db, _) = database();
    let touch = |fails: bool| {
        Flow::of(move |tx, _, _| {
            let table = tx.table("t")?;
            tx.modify(&table, 1, |row| row.add_i64(1, 1).map(drop))?;
            if fails { Err(rialto::Error::aborted("on purpose")) } else { Ok(()) }
        })
    };
    db.register(Procedure::new("touch", [], touch(false))).unwrap();
    db.register(Procedure::new("fail", [], touch(true))).unwrap();
    (0..3).for_each(|_| drop(db.call("touch", &[]).unwrap()));
    db.submit_call("touch", &[]).unwrap().1.wait().unwrap();
    db.call("fail", &[]).unwrap_err();
    db.call_with(&named(&db, "other"), "touch", &[]).unwrap();
    let counts = |name| {
        let account = account(&db, name);
        (account.committed, account.aborted)
    };
    assert_eq!((counts("touch"), counts("fail"), counts("other")), ((4, 0), (0, 1), (1, 0)));
}
