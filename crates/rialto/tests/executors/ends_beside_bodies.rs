//! A transaction that ends on a thread that owns executors waits neither for a lock table that a slow body has leased
//! nor for the next body of its thread: its caller is told, and its locks are released as soon as the table is back.

use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use rialto::io::{Caching, FaultKind, FaultyDisk, MemoryDisk};
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, Checkpointing, Database, Durability, Executors, Flow, Options, Procedure, Sent, TableDef,
    TxOptions,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// Of three threads each owns two executors: 0 and 1, 2 and 3, 4 and 5.
const TABLES: [(&str, i32); 5] = [("t", 0), ("w", 1), ("u", 2), ("v", 4), ("s", 5)];

fn open() -> Database {
    let options = Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        durability: Durability::Memory,
        engine: Executors::of(6, 3).handing_over().into(),
        lock_timeout: 10 * PATIENCE,
        ..Options::default()
    };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    for (name, executor) in TABLES {
        let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int4)];
        db.transact(|tx| {
            let table = tx.create_table(&TableDef::new(name, columns.clone()).with_primary_key(&["id"]))?;
            (0..10).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int4(id)]))
        })
        .unwrap();
        route(&db, name, WhichIndex::Primary, executor);
    }
    for name in ["t", "u"] {
        db.transact(|tx| tx.create_index(name, &format!("{name}_n"), &["n"], true)).unwrap();
        route(&db, name, WhichIndex::Secondary(0), 5);
    }
    db
}

fn route(db: &Database, table: &str, which: WhichIndex, executor: i32) {
    let bounds = (0..5).map(|nth| if nth < executor { -100 + nth } else { 1_000 + nth });
    let bounds: Vec<_> = bounds.map(|bound| vec![Value::Int4(bound)]).collect();
    db.set_routing(table, which, &bounds).unwrap();
}

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

fn gate() -> (impl Fn() + Send + Sync + 'static, Gate) {
    let (begins, runs) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    let ends = Mutex::new(ends);
    let pass = move || {
        begins.send(()).unwrap();
        let _ = ends.lock().unwrap().recv_timeout(PATIENCE);
    };
    (pass, Gate { runs, end })
}

/// An action that changes row 5 of `t` or `u`, which locks keys at executor 5, too; then its gate.
fn gated(table: &'static str) -> (Action, Gate) {
    let (pass, gate) = gate();
    let action = Action::exclusive(table, move |tx, arguments, _| {
        if matches!(table, "t" | "u") {
            tx.update(arguments.table()?, 5, &[(1, Value::Int4(100))])?;
        }
        pass();
        Ok(())
    });
    (action.by_argument(0), gate)
}

fn register(db: &Database, name: &str, flow: impl Into<Flow>) {
    db.register(Procedure::new(name, [ColumnType::Int4], flow)).unwrap();
}

fn send(db: &Database, name: &str, id: i32) -> Sent {
    db.send_call(name, &[Value::Int4(id)]).unwrap()
}

/// Whether this becomes true while the bodies wait at their gates.
fn until(mut is_so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + PATIENCE / 4;
    while !is_so() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    is_so()
}

fn within() -> TxOptions {
    TxOptions { lock_timeout: Some(PATIENCE / 4), ..TxOptions::default() }
}

/// T has a lock at executor 5, whose table X (on another thread) has leased as T ends. Y, at executor 4, is next on T's
/// thread. X ends; Y goes on. T's row is free then, and its caller knows.
#[test]
fn a_commit_that_waits_for_a_lock_table_waits_for_no_turn() {
    let db = open();
    let (pass, t_gate) = gate();
    let closure = Flow::of(move |_, _, _| {
        pass();
        Ok(())
    });
    let closure = closure.phases()[0][0].clone();
    let change = Action::exclusive("s", |tx, arguments, _| {
        tx.update(arguments.table()?, 1, &[(1, Value::Int4(100))]).map(drop)
    });
    register(&db, "T", Flow::new().phase([change.by_argument(0)]).phase([closure]));
    let [(on_t, x_gate), (on_v, y_gate)] = ["t", "v"].map(gated);
    register(&db, "X", on_t);
    register(&db, "Y", on_v);

    let mut t = send(&db, "T", 1);
    t_gate.until_it_runs();
    let x = send(&db, "X", 5);
    x_gate.until_it_runs();
    let y = send(&db, "Y", 0);
    t_gate.end();
    y_gate.until_it_runs();
    let is_done = until(|| t.is_done());
    x_gate.end();
    assert_eq!(x.wait(), Ok(vec![]));
    // No body has executor 5 leased any more. Y, at executor 4, runs on.
    let s = db.table("s").unwrap();
    let touched = db.transact_with(&within(), |tx| tx.update(&s, 1, &[(1, Value::Int4(2))]));
    let is_done_after_x = t.is_done();
    y_gate.end();
    assert_eq!(y.wait(), Ok(vec![]));
    assert_eq!(t.wait(), Ok(vec![]));
    assert_eq!((touched, is_done, is_done_after_x), (Ok(true), true, true));
}

/// The same for a transaction of which a part has kept a lock at executor 5: X, at executor 5, and Y, at executor 1,
/// run on. The row of `u` is at executor 2, where no body runs.
#[test]
fn a_commit_with_kept_parts_waits_for_no_turn() {
    let db = open();
    let [(on_t, t_gate), (on_u, u_gate), (on_s, x_gate), (on_w, y_gate)] = ["t", "u", "s", "w"].map(gated);
    register(&db, "parts", Flow::new().phase([on_t, on_u]));
    register(&db, "X", on_s);
    register(&db, "Y", on_w);

    let mut parts = send(&db, "parts", 5);
    t_gate.until_it_runs();
    u_gate.until_it_runs();
    let x = send(&db, "X", 0);
    x_gate.until_it_runs();
    u_gate.end();
    std::thread::sleep(Duration::from_millis(500));
    let y = send(&db, "Y", 0);
    t_gate.end();
    y_gate.until_it_runs();
    let is_done = until(|| parts.is_done());
    let u = db.table("u").unwrap();
    let read = db.transact_with(&within(), |tx| tx.get(&u, 5)).map(|row| row.is_some());
    y_gate.end();
    x_gate.end();
    assert_eq!(x.wait(), Ok(vec![]));
    assert_eq!(y.wait(), Ok(vec![]));
    assert_eq!(parts.wait(), Ok(vec![]));
    assert_eq!((read, is_done), (Ok(true), true));
}

/// A handle's commit has waited in vain for a lock table, and waits for the disk, which hangs. When the table is back,
/// its row is free.
#[test]
fn a_commit_that_could_not_release_at_once_does_so_beside_its_wait_for_the_disk() {
    let disk = FaultyDisk::new(1);
    let options = Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        durability: Durability::Memory,
        engine: Executors::of(8, 0).into(),
        log_writes: Some(Caching::Buffered),
        memory_flush_interval: Duration::from_secs(3600),
        ..Options::default()
    };
    let db = Database::open_on(disk.clone(), options).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int4)];
    let t = db
        .transact(|tx| {
            let t = tx.create_table(&TableDef::new("t", columns.clone()).with_primary_key(&["id"]))?;
            (0..10).try_for_each(|id| tx.insert(&t, &[Value::Int4(id), Value::Int4(0)]))?;
            Ok(t)
        })
        .unwrap();
    db.set_routing("t", WhichIndex::Primary, &[]).unwrap(); // all of t at executor 0
    let ((began, has_begun), (end, ends)) = (mpsc::channel(), mpsc::channel::<()>());
    let ends = Mutex::new(ends);
    let body = Action::exclusive("t", move |_, _, _| {
        began.send(()).unwrap();
        let _ = ends.lock().unwrap().recv_timeout(Duration::from_secs(60));
        Ok(())
    });
    db.register(Procedure::new("slow", [ColumnType::Int4], body.by_argument(0))).unwrap();
    let disk_level = TxOptions { durability: Some(Durability::Disk), ..TxOptions::default() };
    let mut h = db.begin_with(&disk_level).unwrap();
    h.update(&t, 5, &[(1, Value::Int4(1))]).unwrap(); // entered at executor 0
    db.sync().unwrap();
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| db.call("slow", &[Value::Int4(0)]).map(drop));
        has_begun.recv_timeout(Duration::from_secs(60)).unwrap(); // the table of executor 0 is out
        disk.hang(FaultKind::Sync, "log-0");
        let commit = scope.spawn(move || h.commit()); // place, apply, 100 ms at the table, owes; then the disk
        assert!(until(|| disk.hanging() > 0), "the commit comes to the disk");
        drop(end); // the table comes back
        let slow = slow.join().unwrap();
        let soon = TxOptions { lock_timeout: Some(Duration::from_secs(2)), ..TxOptions::default() };
        let touched = db.transact_with(&soon, |tx| tx.update(&t, 5, &[(1, Value::Int4(2))]));
        disk.let_go();
        commit.join().unwrap().unwrap();
        slow.unwrap();
        assert_eq!(touched, Ok(true)); // is Err(LockTimeout): row 5 is locked by a commit that waits for the disk only
    });
}
