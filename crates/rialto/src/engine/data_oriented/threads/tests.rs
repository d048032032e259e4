//! Panics in the engine's own code, outside of any body: which call gets the panic, and when; and that all other calls
//! go on. Also calls that wait for packets, and for room in the log.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::queues::Bug;
use crate::engine::data_oriented::planner::Plan;
use crate::engine::data_oriented::resource_manager::HAS_NO_THREAD;
use crate::engine::{Action, Flow, Procedure};
use crate::io::{Disk, MemoryDisk};
use crate::row::{Column, ColumnType, Value, WhichIndex};
use crate::{
    Arguments, Checkpointing, Database, Durability, Error, Executors, Lsn, OpenError, Options, Outputs,
    Planning, Result, TableDef, Transaction, TxOptions,
};

/// The limit of the longest wait.
const LIMIT: Duration = Duration::from_secs(60);

fn count<const AT: usize>(
    tx: &mut Transaction,
    arguments: &Arguments<'_>,
    outputs: &mut Outputs,
) -> Result<()> {
    let key: i32 = arguments.get(AT)?;
    let mut n = 0;
    tx.modify(arguments.table()?, key, |row| {
        n = row.add_i64(1, 1)?;
        Ok(())
    })?;
    outputs.push(n);
    Ok(())
}

/// Two keys of two threads. A call counts both rows at the same time, and then again. Commits at level 1 are written
/// to the log only when a thread waits for them.
fn database() -> Database {
    database_with(options())
}

fn options() -> Options {
    Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        memory_flush_interval: Duration::from_secs(3600),
        durability: Durability::Disk,
        engine: Executors { planning: Planning::Adaptive, ..Executors::of(4, 2).handing_over() }.into(),
        ..Options::default()
    }
}

/// After an opening that fails, no thread of it has the database's files when another opening takes the directory.
#[test]
fn an_opening_that_fails_leaves_no_thread_behind() {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let options = || Options { checkpoint: Checkpointing::Fuzzy, ..options() };
    HAS_NO_THREAD.set(true);
    let failed = Database::open_on(disk.clone(), options());
    HAS_NO_THREAD.set(false);
    assert!(matches!(failed, Err(OpenError::Io(_))), "{failed:?}");
    assert_eq!(Arc::strong_count(&disk), 1);
    let db = Database::open_on(disk.clone(), options()).unwrap();
    assert!(Arc::strong_count(&disk) > 1);
    db.close().unwrap();
    assert_eq!(Arc::strong_count(&disk), 1);
}

fn database_with(options: Options) -> Database {
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int8)];
    db.transact(|tx| {
        let table = tx.create_table(&TableDef::new("counters", columns.clone()).with_primary_key(&["id"]))?;
        (0..8).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int8(0)]))
    })
    .unwrap();
    db.set_routing("counters", WhichIndex::Primary, &[2, 4, 6].map(|bound| vec![Value::Int4(bound)]))
        .unwrap();
    let phase = || {
        [
            Action::exclusive("counters", count::<0>).by_argument(0),
            Action::exclusive("counters", count::<1>).by_argument(1),
        ]
    };
    let flow = Flow::new().phase(phase()).phase(phase());
    db.register(Procedure::new("both", [ColumnType::Int4; 2], flow)).unwrap();
    db
}

#[test]
fn a_panic_outside_of_bodies_ends_its_call_and_nothing_else() {
    let keys = [Value::Int4(1), Value::Int4(7)];
    for bug in [Bug::Begin, Bug::ShareOut, Bug::PartDone, Bug::Join, Bug::End] {
        let (done, is_done) = channel();
        let keys = keys.clone();
        std::thread::spawn(move || {
            let db = database();
            assert_eq!(db.call("both", &keys), Ok([1, 1, 2, 2].map(Value::Int8).to_vec()));
            *db.runtime().queues.as_ref().unwrap().bug.lock() = Some(bug);
            let told = catch_unwind(AssertUnwindSafe(|| db.call("both", &keys)));
            assert!(told.is_err(), "{bug:?}: the panic was lost: {told:?}");
            // Nothing of the call is kept, not even a lock, and each thread still runs what is sent to it.
            for nth in 1..4 {
                let counts = [2 * nth + 1, 2 * nth + 1, 2 * nth + 2, 2 * nth + 2];
                assert_eq!(db.call("both", &keys), Ok(counts.map(Value::Int8).to_vec()), "{bug:?}");
            }
            db.close().unwrap();
            done.send(()).unwrap();
        });
        is_done.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("{bug:?}: {error}"));
    }
}

/// Commits at level 1. Returns its place.
fn place_one(db: &Database) -> Lsn {
    let table = db.table("counters").unwrap();
    let in_memory = TxOptions { durability: Some(Durability::Memory), ..TxOptions::default() };
    assert_eq!(db.transact_with(&in_memory, |tx| tx.update(&table, 5, &[(1, Value::Int8(0))])), Ok(true));
    let placed = db.core().commits.log.place();
    assert_eq!(db.core().commits.log.is_done(placed, Durability::Disk), None, "the test's own premise");
    placed
}

/// Calls a procedure that panics, and checks that the log is durable up to this place when the caller gets the panic.
fn assert_told_when_durable(db: &Database, procedure: &str, arguments: &[Value], placed: Lsn) {
    let told = catch_unwind(AssertUnwindSafe(|| db.call(procedure, arguments)));
    assert!(told.is_err(), "the panic was lost: {told:?}");
    assert_eq!(db.core().commits.log.is_done(placed, Durability::Disk), Some(Ok(())));
}

/// I3: what a lost call has read is not known, so all that it may have read is durable before its caller gets the
/// panic.
#[test]
fn a_call_that_is_lost_is_told_of_when_all_that_has_its_place_is_durable() {
    let db = database();
    let placed = place_one(&db);
    *db.runtime().queues.as_ref().unwrap().bug.lock() = Some(Bug::Begin);
    assert_told_when_durable(&db, "both", &[Value::Int4(1), Value::Int4(7)], placed);
}

/// The second action runs first, because it has aborted often, and chooses a lower level than the transaction has.
/// The first action reads and panics. In the flow's order the choice stands behind the action that has panicked, so
/// it does not count: when the caller gets the panic, what was read is as durable as the transaction has chosen (I3).
#[test]
fn a_panic_amid_a_serial_plan_is_told_when_what_was_read_is_as_durable_as_chosen_before() {
    let db = database();
    let reads = Action::exclusive("counters", |tx, arguments, _| {
        let (key, ends): (i32, i32) = (arguments.get(0)?, arguments.get(2)?);
        tx.get(arguments.table()?, key)?;
        assert_ne!(ends, 2, "as it was asked to");
        Ok(())
    });
    let chooses = Action::exclusive("counters", |tx, arguments, _| {
        if arguments.get::<i32>(2)? == 1 {
            return Err(Error::aborted("as it was asked to"));
        }
        tx.set_durability(Durability::Memory);
        Ok(())
    });
    let flow = Flow::new().phase([reads.by_argument(0), chooses.by_argument(1)]);
    db.register(Procedure::new("p", [ColumnType::Int4; 3], flow)).unwrap();
    let arguments = |ends: i32| [5, 1, ends].map(Value::Int4);
    let began = Instant::now();
    let is_so = || {
        let plans = db.metrics().plans;
        plans.iter().any(|it| matches!(&it.plan, Plan::Serial { first } if first.first() == Some(&1)))
    };
    while !is_so() {
        assert!(began.elapsed() < LIMIT, "{:?}", db.metrics().plans);
        (0..20).for_each(|_| assert!(db.call("p", &arguments(1)).is_err()));
    }
    let placed = place_one(&db);
    assert_told_when_durable(&db, "p", &arguments(2), placed);
}

/// A phase of two threads comes to its bodies while there is no free packet: one thread runs it whole, and goes on
/// with calls that need no packet while it waits for one.
#[test]
fn calls_that_read_go_on_while_one_waits_for_a_packet() {
    // Too few for homes.
    let db = database_with(Options { packets_max: 1, log_wait_max: LIMIT, ..options() });
    let bodies = Arc::new(AtomicU32::new(0));
    let writes = |at: usize| {
        let bodies = bodies.clone();
        Action::exclusive("counters", move |tx, arguments, _| {
            bodies.fetch_add(1, Ordering::SeqCst);
            tx.update(arguments.table()?, arguments.get::<i32>(at)?, &[(1, Value::Int8(9))]).map(drop)
        })
        .by_argument(at)
    };
    let flow = Flow::new().phase([writes(0), writes(1)]);
    db.register(Procedure::new("write", [ColumnType::Int4; 2], flow)).unwrap();
    let reads = Action::shared("counters", |tx, arguments, _| {
        tx.get(arguments.table()?, arguments.get::<i32>(0)?).map(drop)
    });
    db.register(Procedure::new("read", [ColumnType::Int4], reads.by_argument(0))).unwrap();
    let packets = db.core().commits.log.borrow_all_packets();
    let mut written = db.send_call("write", &[1, 7].map(Value::Int4)).unwrap();
    let began = Instant::now();
    while bodies.load(Ordering::SeqCst) == 0 {
        assert!(began.elapsed() < LIMIT);
        std::thread::yield_now();
    }
    for of_each_thread in [2, 5] {
        assert_eq!(db.call("read", &[Value::Int4(of_each_thread)]), Ok(vec![]));
    }
    assert_eq!((written.is_done(), bodies.load(Ordering::SeqCst)), (false, 1), "it waits still");
    drop(packets);
    assert_eq!(written.wait(), Ok(vec![]));
}

/// A thread whose call waits for room in the log goes on with calls that need none.
#[test]
fn a_call_that_reads_goes_on_while_one_waits_for_room_in_the_log() {
    let options = Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        durability: Durability::Memory,
        engine: Executors { threads: 1, ..Executors::default().handing_over() }.into(),
        log_bytes_max: 16 << 20,
        log_wait_max: LIMIT,
        ..Options::default()
    };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
    db.transact(|tx| {
        let table = tx.create_table(&TableDef::new("t", columns.clone()).with_primary_key(&["id"]))?;
        (0..9).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Text(String::new())]))
    })
    .unwrap();
    let write = Action::exclusive("t", |tx, arguments, _| {
        let text = Value::Text("text".repeat(arguments.get::<i32>(1)? as usize));
        tx.update(arguments.table()?, arguments.get::<i32>(0)?, &[(1, text)]).map(drop)
    });
    db.register(Procedure::new("write", [ColumnType::Int4; 2], write.by_argument(0))).unwrap();
    let read = Action::shared("t", |tx, arguments, _| {
        tx.get(arguments.table()?, arguments.get::<i32>(0)?).map(drop)
    });
    db.register(Procedure::new("read", [ColumnType::Int4], read.by_argument(0))).unwrap();
    let (log, mut nth) = (&db.core().commits.log, 0);
    let mut fill = loop {
        nth += 1;
        let mut sent = db.send_call("write", &[8, 1_000 + nth % 2].map(Value::Int4)).unwrap();
        while !log.is_short() && !sent.is_done() {
            std::thread::yield_now();
        }
        if log.is_short() {
            break sent;
        }
        sent.wait().unwrap();
    };
    assert_eq!(db.call("read", &[Value::Int4(4)]), Ok(vec![]));
    assert!(!fill.is_done(), "it waits still");
    db.checkpoint().unwrap();
    assert_eq!(fill.wait(), Ok(vec![]));
}
