//! Two stages on the data-oriented engine: a call that misses a page leaves its executors.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{FAR, ROWS, account, cold, cold_on, cold_with, options};
use crate::io::MemoryDisk;
use crate::io::watched::{Transfers, WatchedDisk};
use crate::row::{ColumnType, Value, WhichIndex};
use crate::store::paged::PAGE_FILE;
use crate::txn::runs::Runs;
use crate::txn::two_stage::TwoStageAccount;
use crate::{
    Action, Arguments, Database, Engine, Error, Executors, Flow, HandOver, Options, Outputs, Procedure,
    Transaction, TwoStage, TxOptions,
};

/// Registers a call that changes a row; `in_fetch_stage` is told the key in a fetch stage.
fn register(db: &Database, in_fetch_stage: impl Fn(i32) + Send + Sync + 'static) {
    let touch = Action::exclusive("things", move |tx, arguments, outputs| {
        let key: i32 = arguments.get(0)?;
        tx.modify(arguments.table()?, key, |row| row.set(3, &Value::Text("touched".to_owned())))?;
        let context = tx.context();
        if context.fetches() {
            assert!(!context.owner.holds_lease(), "a fetch stage uses no executor");
            in_fetch_stage(key);
        }
        outputs.push(key);
        Ok(())
    });
    db.register(Procedure::new("touch", [ColumnType::Int4], touch.by_argument(0))).unwrap();
}

/// While a call reads its pages, others use its executor, the same key included.
#[test]
fn a_call_that_misses_a_page_leaves_its_executor() {
    for two_stage in [TwoStage::Otste, TwoStage::Tste] {
        let engine = Executors::of(1, 0).into();
        let (db, _) = cold_with(Options { engine, ..options(two_stage) });
        let met = Arc::new(AtomicU32::new(0));
        let (others, count) = (db.clone(), met.clone());
        register(&db, move |key| {
            // The first call is in its fetch stage. The other one finds the page.
            if key == 2 * FAR && count.fetch_add(1, Ordering::Relaxed) == 0 {
                std::thread::scope(|scope| {
                    scope.spawn(|| others.call("touch", &[Value::Int4(2 * FAR)])).join().unwrap().unwrap();
                });
            }
        });
        assert_eq!(db.call("touch", &[Value::Int4(2 * FAR)]).unwrap(), [Value::Int4(2 * FAR)]);
        assert!(met.load(Ordering::Relaxed) >= 1, "it had a fetch stage");
        let all = account(&db);
        let met = db.metrics().two_stage;
        let (waits, conversions) =
            met.iter().fold((0, 0), |sum, one| (sum.0 + one.lock_held_io_waits, sum.1 + one.conversions));
        assert!(waits == 0 && conversions > 0, "{all:?} of {met:?}");
        db.close().unwrap();
    }
}

/// The threads that own executors run all calls.
fn on_threads(threads: usize) -> Engine {
    Executors { hand_over: HandOver::Always, ..Executors::of(2, threads) }.into()
}

/// What is done when a page is read next, once.
type NextRead = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

fn cold_with_reads_seen(options: Options) -> (Database, NextRead) {
    let (disk, next_read) = (MemoryDisk::new(), NextRead::default());
    let act = next_read.clone();
    let seen = WatchedDisk::over(disk.clone(), move |file, transfers| {
        let is_read = file == PAGE_FILE && matches!(transfers, Transfers::Reads(_));
        if let Some(act) = is_read.then(|| act.lock().take()).flatten() {
            act();
        }
    });
    (cold_on(disk, seen, options).0, next_read)
}

/// While a call reads its page, another one locks the same key on the same thread.
#[test]
fn a_call_on_threads_of_executors_leaves_them_while_it_reads() {
    for two_stage in [TwoStage::Otste, TwoStage::Tste] {
        let (db, next_read) = cold_with_reads_seen(Options { engine: on_threads(1), ..options(two_stage) });
        let fetch_stages = Arc::new(AtomicU32::new(0));
        let count = fetch_stages.clone();
        register(&db, move |_| _ = count.fetch_add(1, Ordering::Relaxed));
        let lock = Action::exclusive("things", |_, _, _| Ok(())).by_argument(0);
        db.register(Procedure::new("lock", [ColumnType::Int4], lock)).unwrap();
        // From now on only leaves are missing.
        db.call("touch", &[Value::Int4(30 * FAR)]).unwrap();
        let (others, (told, finished)) = (db.clone(), mpsc::channel());
        let key = [Value::Int4(2 * FAR)];
        *next_read.lock() = Some(Box::new(move || {
            let (done, locked) = mpsc::channel();
            std::thread::spawn(move || done.send(others.call("lock", &[Value::Int4(2 * FAR)])));
            told.send(locked.recv_timeout(Duration::from_secs(20)).is_ok()).unwrap();
        }));
        assert_eq!(db.call("touch", &key).unwrap(), key);
        assert_eq!(
            finished.try_recv(),
            Ok(true),
            "{two_stage:?}: another call locks the key that a call reads"
        );
        assert!(fetch_stages.load(Ordering::Relaxed) > 0);
        let met = db.metrics().two_stage;
        let waits: u64 = met.iter().map(|one| one.lock_held_io_waits).sum();
        assert!(waits == 0 && met.iter().any(|one| one.conversions > 0), "{met:?}");
        assert_eq!(db.metrics().pages.kept, 0, "what was kept for the operate stage is kept no longer");
        db.close().unwrap();
    }
}

/// A phase that is split: its parts, on two threads, miss their pages. They end, and the call reads the pages for both.
#[test]
fn parts_that_miss_their_pages_leave_their_executors() {
    let (db, table) = cold_with(Options { engine: on_threads(2), ..options(TwoStage::Otste) });
    db.set_routing("things", WhichIndex::Primary, &[vec![Value::Int4(ROWS / 2)]]).unwrap();
    let touch = |argument: usize| {
        let body = move |tx: &mut Transaction<'_>, arguments: &Arguments<'_>, outputs: &mut Outputs| {
            let key: i32 = arguments.get(argument)?;
            let there = tx.modify(arguments.table()?, key, |row| row.set(1, &Value::Int4(-key)))?;
            outputs.push(i32::from(there));
            Ok(())
        };
        Action::exclusive("things", body).by_argument(argument)
    };
    let flow = Flow::new().phase([touch(0), touch(1)]);
    db.register(Procedure::new("both", [ColumnType::Int4; 2], flow)).unwrap();
    // The first part misses its page, the second one, or both.
    let mut keys = [2 * FAR, ROWS - 2 * FAR];
    for nth in 1..30 {
        if nth % 3 != 0 {
            keys[0] = 2 * nth * FAR / 3;
        }
        if nth % 3 != 1 {
            keys[1] = ROWS - 2 * nth * FAR / 3;
        }
        keys = keys.map(|key| key / 2 * 2);
        assert_eq!(db.call("both", &keys.map(Value::Int4)).unwrap(), [1, 1].map(Value::Int4));
        for key in keys {
            let row = db.transact(|tx| tx.get(&table, key)).unwrap().unwrap();
            assert_eq!(row.view().get_i32(1), Ok(-key));
        }
    }
    let metrics = db.metrics();
    assert!(metrics.plans.iter().any(|plan| plan.in_parts > 0), "{:?}", metrics.plans);
    let both = metrics.two_stage.iter().find(|one| one.name == "both").unwrap();
    assert!(both.lock_held_io_waits == 0 && both.conversions >= 20, "{both:?}");
    assert_eq!((both.executions, metrics.pages.kept), (29, 0));
    db.close().unwrap();
}

/// A panic of a body that has met a missing page is not the call's.
#[test]
fn a_panic_over_a_missing_page_is_dropped_on_threads_of_executors_too() {
    let (db, _) = cold_with(Options { engine: on_threads(2), ..options(TwoStage::Otste) });
    let touch = Action::exclusive("things", |tx, arguments, outputs| {
        let there = tx.modify(arguments.table()?, arguments.get::<i32>(0)?, |_| Ok(()));
        outputs.push(i32::from(there.expect("the row can be changed")));
        Ok(())
    });
    db.register(Procedure::new("touch", [ColumnType::Int4], touch.by_argument(0))).unwrap();
    for nth in 0..5 {
        assert_eq!(db.call("touch", &[Value::Int4(2 * nth * FAR)]).unwrap(), [Value::Int4(1)]);
    }
    assert!(account_of(&db, "touch").conversions > 0);
    db.close().unwrap();
}

/// A run that ends between its stages leaves nothing to the transaction of a handle that has its context next.
#[test]
fn a_run_that_begins_again_leaves_no_stage_behind() {
    let (db, table) = cold(TwoStage::Otste);
    let (core, options) = (db.core(), TxOptions::default());
    let begin = || {
        let mut runs = Runs::new();
        let transaction = runs.begin(core, &options).unwrap();
        (runs, transaction)
    };
    let (mut runs, transaction) = begin();
    runs.back_off(transaction);
    // With the context that the run has given back.
    let mut handle = db.begin().unwrap();
    assert!(handle.get(&table, 2 * FAR).unwrap().is_some());
    handle.commit().unwrap();
    let (mut runs, mut transaction) = begin();
    assert!(transaction.get(&table, 2 * FAR).unwrap().is_some());
    assert!(db.metrics().pages.kept > 0, "the run keeps the page of the row");
    runs.end_parts(transaction);
    assert_eq!(db.metrics().pages.kept, 0);
    db.close().unwrap();
}

/// A phase whose second part ends, or fails, after the first one: the call ends on the thread of the second part. That thread has
/// waited for no page, the other one has.
#[test]
fn a_call_may_end_on_another_thread_than_it_began_on() {
    let (db, _) = cold_with(Options { engine: on_threads(2), ..options(TwoStage::Otste) });
    db.set_routing("things", WhichIndex::Primary, &[vec![Value::Int4(ROWS / 2)]]).unwrap();
    register(&db, |_| {});
    let look = Action::exclusive("things", |tx, arguments, _| {
        tx.get(arguments.table()?, arguments.get::<i32>(0)?).map(drop)
    });
    let last = Action::exclusive("things", |_, arguments, _| {
        std::thread::sleep(Duration::from_millis(50));
        if arguments.get::<bool>(2)? { Err(Error::aborted("by its body")) } else { Ok(()) }
    });
    let flow = Flow::new().phase([look.by_argument(0), last.by_argument(1)]);
    let types = [ColumnType::Int4, ColumnType::Int4, ColumnType::Bool];
    db.register(Procedure::new("travel", types, flow)).unwrap();
    let began = Instant::now();
    for nth in 0..6 {
        db.call("touch", &[Value::Int4(2 * nth * FAR)]).unwrap();
        let fails = nth % 2 == 0;
        let ended =
            db.call("travel", &[Value::Int4(2 * nth * FAR), Value::Int4(ROWS - 2), Value::Bool(fails)]);
        assert_eq!(ended, if fails { Err(Error::aborted("by its body")) } else { Ok(Vec::new()) });
    }
    let accounts = db.metrics().procedures;
    let time = accounts.iter().find(|account| account.name == "travel").unwrap().time;
    let most = began.elapsed().as_nanos() as u64;
    assert!(time.fetch_io_ns.unwrap_or_default() <= most, "{time:?} in {most} ns");
    db.close().unwrap();
}

/// The account of a call has the waits for pages of its fetch stage.
#[test]
fn the_waits_of_a_fetch_stage_on_threads_are_accounted() {
    let (db, next_read) = cold_with_reads_seen(Options { engine: on_threads(1), ..options(TwoStage::Otste) });
    register(&db, |_| {});
    *next_read.lock() = Some(Box::new(|| std::thread::sleep(Duration::from_millis(20))));
    db.call("touch", &[Value::Int4(2 * FAR)]).unwrap();
    let accounts = db.metrics().procedures;
    let time = accounts.iter().find(|account| account.name == "touch").unwrap().time;
    assert!(time.fetch_io_ns >= Some(20_000_000), "{time:?}");
    db.close().unwrap();
}

fn account_of(db: &Database, name: &str) -> TwoStageAccount {
    db.metrics().two_stage.into_iter().find(|one| one.name == name).unwrap_or_default()
}
