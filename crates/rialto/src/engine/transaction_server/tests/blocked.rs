//! Waits of executors say that they are waits.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{database_with, until};
use crate::core::Core;
use crate::engine::transaction_server::blocked::{Turns, take_turns};
use crate::in_flight::Gate;
use crate::row::{Column, ColumnType};
use crate::{Database, Durability, Error, Options, TableDef};

/// Counts what an executor says.
#[derive(Default)]
struct Counted {
    left: AtomicU32,
    came_back: AtomicU32,
}

impl Turns for Counted {
    fn leave(&self) {
        self.left.fetch_add(1, Ordering::SeqCst);
    }

    fn come_back(&self) {
        self.came_back.fetch_add(1, Ordering::SeqCst);
    }
}

/// Commits are written when something waits for them.
fn database() -> Database {
    let memory_flush_interval = Duration::from_secs(3600);
    database_with(Options { durability: Durability::Disk, memory_flush_interval, ..Options::default() })
}

/// An executor waits, and is given what it waits for when it has said so; how often it has said that it waits.
fn waits(wait: impl FnOnce() + Send, give: impl FnOnce()) -> u32 {
    let (counted, began) = (Arc::new(Counted::default()), Instant::now());
    let left = || counted.left.load(Ordering::SeqCst);
    let said_before = std::thread::scope(|scope| {
        let executor = scope.spawn(|| {
            let _takes_turns = take_turns(counted.clone());
            wait();
        });
        while left() == 0 && !executor.is_finished() && began.elapsed() < Duration::from_secs(30) {
            std::thread::yield_now();
        }
        let said_before = left();
        give();
        executor.join().unwrap();
        said_before
    });
    assert_eq!(said_before, 1);
    assert_eq!(counted.came_back.load(Ordering::SeqCst), left());
    left()
}

#[test]
fn waits_at_the_gates_of_checkpoints_let_others_run() {
    let database = database();
    let core = database.core();
    let commit = || {
        let table = database.table("rows").unwrap();
        drop(database.submit(|transaction| transaction.delete(&table, 1).map(drop)).unwrap());
    };
    core.in_flight.close_gate();
    assert_eq!(waits(commit, || core.in_flight.open_gate(Gate::Open)), 1);
    let new = TableDef::new("new", vec![Column::new("id", ColumnType::Int4)]);
    let define = || {
        drop(database.submit(|transaction| transaction.create_table(&new).map(drop)).unwrap());
    };
    core.definitions.hold();
    assert_eq!(waits(define, || core.definitions.release()), 1);
}

/// An executor whose turn comes when the sender goes away.
struct Late {
    counted: Counted,
    turn: Mutex<Receiver<()>>,
}

impl Turns for Late {
    fn leave(&self) {
        self.counted.leave();
    }

    fn come_back(&self) {
        self.counted.come_back();
        let _ = self.turn.lock().unwrap().recv();
    }
}

/// The turn may be a slow body's: nothing but definitions of its own kind waits for that.
#[test]
fn a_definition_that_waits_for_its_turn_has_passed_no_gate() {
    type Change = fn(&Core);
    let gates: [(Change, Change); 2] = [
        (|core| core.definitions.hold(), |core| core.definitions.release()),
        (|core| core.in_flight.close_gate(), |core| core.in_flight.open_gate(Gate::Open)),
    ];
    for (close, open) in gates {
        let database = database();
        let (its_turn, turn) = channel::<()>();
        let late = Arc::new(Late { counted: Counted::default(), turn: Mutex::new(turn) });
        close(database.core());
        let executor = std::thread::spawn({
            let (database, late) = (database.clone(), late.clone());
            move || {
                let _takes_turns = take_turns(late);
                let new = TableDef::new("new", vec![Column::new("id", ColumnType::Int4)]);
                database.submit(|transaction| transaction.create_table(&new).map(drop)).map(drop)
            }
        });
        until("it waits at the gate", || late.counted.left.load(Ordering::SeqCst) == 1);
        open(database.core());
        until("it waits for its turn", || late.counted.came_back.load(Ordering::SeqCst) == 1);
        let (held, is_held) = channel();
        std::thread::spawn({
            let database = database.clone();
            move || {
                database.core().definitions.hold();
                database.core().definitions.release();
                held.send(())
            }
        });
        is_held.recv_timeout(Duration::from_secs(30)).expect("a checkpoint can begin");
        drop(its_turn);
        executor.join().unwrap().unwrap();
        assert!(database.table("new").is_ok());
    }
}

/// Whose gates are open keeps its turn.
#[test]
fn a_definition_that_meets_no_closed_gate_does_not_wait() {
    let database = database();
    let counted = Arc::new(Counted::default());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _takes_turns = take_turns(counted.clone());
            let new = TableDef::new("new", vec![Column::new("id", ColumnType::Int4)]);
            drop(database.submit(|transaction| transaction.create_table(&new).map(drop)).unwrap());
        });
    });
    assert_eq!(counted.left.load(Ordering::SeqCst), 0);
}

/// A definition that waits while a checkpoint takes what it needs hears what other waits hear, too.
#[test]
fn a_definition_before_a_held_gate_is_cancelled() {
    let database = database();
    database.core().definitions.hold();
    let mut transaction = database.begin().unwrap();
    let new = TableDef::new("new", vec![Column::new("id", ColumnType::Int4)]);
    transaction.create_table(&new).unwrap();
    let canceller = transaction.canceller();
    let (ended, has_ended) = channel();
    std::thread::spawn(move || ended.send(transaction.commit()));
    canceller.cancel();
    assert_eq!(has_ended.recv_timeout(Duration::from_secs(30)), Ok(Err(Error::Cancelled)));
    database.core().definitions.release();
    assert!(database.table("new").is_err());
}

#[test]
fn a_wait_for_the_log_lets_others_run() {
    let database = database();
    let table = database.table("rows").unwrap();
    let commit = || database.transact(|transaction| transaction.delete(&table, 1).map(drop)).unwrap();
    assert_eq!(waits(commit, || ()), 1);
}

/// Waits within it are part of it.
#[test]
fn a_checkpoint_lets_others_run() {
    let database = database();
    let core = database.core();
    let checkpoint = || assert!(!database.checkpoint().unwrap().skipped);
    core.definitions.hold();
    assert_eq!(waits(checkpoint, || core.definitions.release()), 1);
}

#[test]
fn a_wait_for_the_ends_of_others_lets_them_run() {
    let database = database();
    let locks = &database.core().locks;
    let [owner, other] = [(); 2].map(|()| locks.begin().unwrap());
    let outlast = || assert!(locks.outlast_others(&owner, Duration::from_secs(30), || false));
    assert_eq!(waits(outlast, || locks.end(other)), 1);
    locks.end(owner);
}
