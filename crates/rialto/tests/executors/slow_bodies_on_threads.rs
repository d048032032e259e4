//! A slow body on a thread that owns several executors. The thread's other bodies wait for it or for each other, but
//! none of them waits with a leased lock table. So a transaction that does not need the slow body's executor gets its
//! locks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::common::hooked;
use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, Checkpointing, Database, Durability, Executors, Flow, Options, Procedure, Sent, TableDef,
    TxOptions,
};

/// Longer than anything here takes that is not held up.
const PATIENCE: Duration = Duration::from_secs(20);

/// The tables, and the executor of each one's keys. Of three threads the last one owns the executors 4 and 5.
const TABLES: [(&str, i32); 4] = [("t", 0), ("u", 2), ("v", 4), ("s", 5)];

/// Each call of the disk takes a while once the flag is set.
fn open(is_slow: &Arc<AtomicBool>) -> Database {
    let (disk, is_slow) = (hooked::HookedDisk::new(MemoryDisk::new()), is_slow.clone());
    disk.before(move |_, _| {
        if is_slow.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let options = Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        durability: Durability::Memory,
        engine: Executors::of(6, 3).handing_over().into(),
        lock_timeout: 10 * PATIENCE,
        ..Options::default()
    };
    let db = Database::open_on(disk, options).unwrap();
    for (name, executor) in TABLES {
        let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int4)];
        db.transact(|tx| {
            let table = tx.create_table(&TableDef::new(name, columns.clone()).with_primary_key(&["id"]))?;
            (0..10).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int4(id)]))
        })
        .unwrap();
        route(&db, name, WhichIndex::Primary, executor);
    }
    db
}

/// Puts the keys 0 to 999 at this executor.
fn route(db: &Database, table: &str, which: WhichIndex, executor: i32) {
    let bounds = (0..5).map(|nth| if nth < executor { -100 + nth } else { 1_000 + nth });
    let bounds: Vec<_> = bounds.map(|bound| vec![Value::Int4(bound)]).collect();
    db.set_routing(table, which, &bounds).unwrap();
}

/// A body that says when it runs, and ends when it is told to.
struct Gate {
    runs: mpsc::Receiver<()>,
    end: mpsc::Sender<()>,
}

impl Gate {
    fn until_it_runs(&self) {
        self.runs.recv_timeout(PATIENCE).unwrap();
    }

    fn end(self) {
        drop(self.end);
    }
}

/// An action on the rows of a table with argument 0, with a gate, which changes one of `t` or `u`.
fn gated(table: &'static str, before_it_ends: impl Fn() + Send + Sync + 'static) -> (Action, Gate) {
    let (begins, runs) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    let ends = Mutex::new(ends);
    let action = Action::exclusive(table, move |tx, arguments, _| {
        if matches!(table, "t" | "u") {
            tx.update(arguments.table()?, 5, &[(1, Value::Int4(100))])?;
        }
        begins.send(()).unwrap();
        let _ = ends.lock().unwrap().recv_timeout(PATIENCE);
        before_it_ends();
        Ok(())
    });
    (action.by_argument(0), Gate { runs, end })
}

fn register(db: &Database, name: &str, flow: impl Into<Flow>) {
    db.register(Procedure::new(name, [ColumnType::Int4], flow)).unwrap();
}

fn send(db: &Database, name: &str, id: i32) -> Sent {
    db.send_call(name, &[Value::Int4(id)]).unwrap()
}

/// The last body of a call has leased executor 5 and is about to end. Whether, while a slow body at executor 4 runs
/// after it on its thread, the call is done and others get their locks at executor 5.
fn ends_well(db: &Database, mut call: Sent, last: Gate) -> bool {
    let (body, slow) = gated("v", || ());
    register(db, "slow", body);
    let slow_call = send(db, "slow", 0);
    last.end();
    slow.until_it_runs();
    let (s, patience) = (db.table("s").unwrap(), Some(PATIENCE / 4));
    let options = TxOptions { lock_timeout: patience, ..TxOptions::default() };
    let touched = db.transact_with(&options, |tx| tx.update(&s, 7, &[(1, Value::Int4(1))]));
    let is_done = call.is_done();
    slow.end();
    assert_eq!(slow_call.wait(), Ok(vec![]));
    assert_eq!(call.wait(), Ok(vec![]));
    println!("touched: {touched:?}, is done: {is_done}");
    touched == Ok(true) && is_done
}

/// A part of an earlier phase has kept a lock at executor 5, because its lock table was leased when the parts met. At
/// its end the call itself leases that table.
#[test]
fn a_call_with_kept_parts_ends_with_no_lock_table_out() {
    let db = open(&Arc::default());
    for name in ["t", "u"] {
        db.transact(|tx| tx.create_index(name, &format!("{name}_n"), &["n"], true)).unwrap();
        route(&db, name, WhichIndex::Secondary(0), 5);
    }
    let [(on_t, t), (on_u, u), (again_on_t, second)] = ["t", "u", "t"].map(|table| gated(table, || ()));
    let [(on_s, third), (beside, slow)] = ["s", "s"].map(|table| gated(table, || ()));
    register(&db, "parts", Flow::new().phase([on_t, on_u]).phase([again_on_t]).phase([on_s]));
    register(&db, "beside", beside);
    let parts = send(&db, "parts", 5);
    t.until_it_runs();
    u.until_it_runs();
    let beside = send(&db, "beside", 0);
    slow.until_it_runs();
    t.end();
    u.end();
    second.until_it_runs();
    slow.end();
    assert_eq!(beside.wait(), Ok(vec![]));
    second.end();
    third.until_it_runs();
    assert!(ends_well(&db, parts, third));
}

/// A body that has leased executor 5 waits for the log by a handle, or by the database.
#[test]
fn a_body_that_waits_for_the_log_keeps_its_turn() {
    type Wait = fn(&Database);
    let waits: [(&str, Wait); 3] = [
        ("commit", |db| {
            let options = TxOptions { durability: Some(Durability::Disk), ..TxOptions::default() };
            let mut handle = db.begin_with(&options).unwrap();
            handle.update(&db.table("t").unwrap(), 1, &[(1, Value::Int4(7))]).unwrap();
            handle.commit().unwrap();
        }),
        ("ticket", |db| {
            let options = TxOptions { durability: Some(Durability::Disk), ..TxOptions::default() };
            let mut handle = db.begin_with(&options).unwrap();
            handle.update(&db.table("t").unwrap(), 1, &[(1, Value::Int4(7))]).unwrap();
            handle.submit().unwrap().wait().unwrap();
        }),
        ("checkpoint", |db| {
            db.checkpoint().unwrap();
        }),
    ];
    let ends_well = waits.map(|(how, wait)| {
        let is_slow = Arc::new(AtomicBool::new(false));
        let db = open(&is_slow);
        let of_body = Mutex::new(Some(db.clone()));
        let wait = move || {
            is_slow.store(true, Ordering::SeqCst);
            // Taken out: a body keeps no database open.
            if let Some(db) = of_body.lock().unwrap().take() {
                wait(&db);
            }
        };
        let (body, last) = gated("s", wait);
        register(&db, "waits", body);
        let call = send(&db, "waits", 5);
        last.until_it_runs();
        (how, ends_well(&db, call, last))
    });
    assert_eq!(ends_well, waits.map(|(how, _)| (how, true)));
}
