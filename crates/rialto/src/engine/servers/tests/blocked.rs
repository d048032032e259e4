//! Waits of executors are announced as waits.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{database_with, until};
use crate::account::wait_guard::{Turns, take_turns};
use crate::commit::CommitBarrier;
use crate::io::{Clock, MemoryDisk};
use crate::row::{Column, ColumnType, Value};
use crate::txn::core::Core;
use crate::{Checkpointing, Database, Durability, Error, Options, Table, TableDef, Transaction, TxOptions};

/// Counts what an executor announces.
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

/// Commits are written when a thread waits for them.
fn database() -> Database {
    let memory_flush_interval = Duration::from_secs(3600);
    database_with(Options { durability: Durability::Disk, memory_flush_interval, ..Options::default() })
}

/// An executor waits, and gets what it waits for when it has announced the wait. Returns how often it has announced a
/// wait.
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
fn waits_at_the_barriers_of_checkpoints_let_others_run() {
    let database = database();
    let core = database.core();
    let commit = || {
        let table = database.table("rows").unwrap();
        drop(database.submit(|transaction| transaction.delete(&table, 1).map(drop)).unwrap());
    };
    core.commits.in_progress.close_barrier();
    assert_eq!(waits(commit, || core.commits.in_progress.open_barrier(CommitBarrier::Open)), 1);
    let new = TableDef::new("new", vec![Column::new("id", ColumnType::Int4)]);
    let define = || {
        drop(database.submit(|transaction| transaction.create_table(&new).map(drop)).unwrap());
    };
    core.commits.definitions.hold(&Clock::System);
    assert_eq!(waits(define, || core.commits.definitions.release()), 1);
}

/// An executor whose turn comes when the sender is dropped.
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

type Change = fn(&Core);

/// The barriers before definitions, closed and opened.
const BARRIERS: [(Change, Change); 2] = [
    (|core| core.commits.definitions.hold(&Clock::System), |core| core.commits.definitions.release()),
    (
        |core| core.commits.in_progress.close_barrier(),
        |core| core.commits.in_progress.open_barrier(CommitBarrier::Open),
    ),
];

/// The turn may belong to a slow body: neither checkpoints nor transactions wait for that.
#[test]
fn a_definition_that_waits_for_its_turn_has_ended() {
    for (close, open) in BARRIERS {
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
        until("it waits at the barrier", || late.counted.left.load(Ordering::SeqCst) == 1);
        open(database.core());
        until("it waits for its turn", || late.counted.came_back.load(Ordering::SeqCst) == 1);
        let (held, is_held) = channel();
        std::thread::spawn({
            let database = database.clone();
            move || {
                database.core().commits.definitions.hold(&Clock::System);
                database.core().commits.definitions.release();
                held.send(database.table("new").is_ok())
            }
        });
        let is_there = is_held.recv_timeout(Duration::from_secs(30)).expect("a checkpoint can begin");
        assert!(is_there, "the table is visible");
        drop(its_turn);
        executor.join().unwrap().unwrap();
    }
}

/// Rows with text: so many of them take about one megabyte of log.
const ROWS_A_MEGABYTE: i32 = 34;

fn write(transaction: &mut Transaction, table: &Table, megabytes: i32, text: &str) -> crate::Result<()> {
    (0..megabytes * ROWS_A_MEGABYTE).try_for_each(|id| {
        transaction.delete(table, id)?;
        transaction.insert(table, &[Value::Int4(id), Value::Text(text.repeat(30_000))])
    })
}

/// A log of 16 MiB, of which more than half is used.
fn used_log(log_wait_max: Duration) -> (Database, Table) {
    let options = Options {
        memory_bytes: 64 << 20,
        log_bytes_max: 16 << 20,
        checkpoint: Checkpointing::None,
        durability: Durability::Memory,
        log_wait_max,
        ..Options::default()
    };
    let database = Database::open_on(MemoryDisk::new(), options).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
    let texts = TableDef::new("texts", columns).with_primary_key(&["id"]);
    let table = database.transact(|transaction| transaction.create_table(&texts)).unwrap();
    for _ in 0..10 {
        database.transact(|transaction| write(transaction, &table, 1, "a")).unwrap();
    }
    (database, table)
}

/// A commit that was given room in the log goes on without its turn, which may belong to a slow body: it keeps
/// neither locks nor room from others.
#[test]
fn a_commit_that_has_waited_for_room_is_placed_before_its_turn() {
    let limit = Duration::from_secs(30);
    let (database, table) = used_log(limit);
    let (its_turn, turn) = channel::<()>();
    let late = Arc::new(Late { counted: Counted::default(), turn: Mutex::new(turn) });
    let executor = std::thread::spawn({
        let (database, table, late) = (database.clone(), table.clone(), late.clone());
        move || {
            let _takes_turns = take_turns(late);
            database.transact(|transaction| write(transaction, &table, 8, "b"))
        }
    });
    until("it waits for room", || database.core().commits.log.is_short());
    database.checkpoint().unwrap();
    until("it waits for its turn", || late.counted.came_back.load(Ordering::SeqCst) == 1);
    until("what it was promised is used", || database.core().commits.log.promised() < 4 << 20);
    // A row that it has written, and whose lock it has held.
    let deleted = database.transact(|transaction| transaction.delete(&table, 7));
    drop(its_turn);
    executor.join().unwrap().unwrap();
    assert_eq!(deleted, Ok(true));
}

/// A commit that waits for room in the log is ended by what ends other waits: as the first that waits, and behind
/// another one.
#[test]
fn a_commit_that_waits_for_room_is_cancelled() {
    let (database, table) = used_log(crate::io::FOR_EVER);
    let commit = |from: i32| {
        let mut transaction = database.begin().unwrap();
        let text = Value::Text("b".repeat(30_000));
        (0..8 * ROWS_A_MEGABYTE)
            .try_for_each(|id| transaction.insert(&table, &[Value::Int4(from + id), text.clone()]))
            .unwrap();
        let canceller = transaction.canceller();
        let (ended, has_ended) = channel();
        std::thread::spawn(move || ended.send(transaction.commit()));
        (canceller, has_ended)
    };
    let waiters = [10_000, 20_000].map(|from| {
        let before = database.core().commits.log.waiting_for_room();
        let waiter = commit(from);
        until("it waits for room", || database.core().commits.log.waiting_for_room() > before);
        waiter
    });
    for (canceller, has_ended) in waiters.into_iter().rev() {
        canceller.cancel();
        assert_eq!(has_ended.recv_timeout(Duration::from_secs(30)), Ok(Err(Error::Cancelled)));
    }
}

/// A commit that has waited and fails also ends with its executor's turn.
#[test]
fn a_commit_that_fails_at_a_barrier_waits_for_its_turn() {
    let new = TableDef::new("new", vec![Column::new("id", ColumnType::Int4)]);
    let limits = TxOptions { lock_timeout: Some(Duration::from_millis(100)), ..TxOptions::default() };
    for (close, open) in BARRIERS {
        let (database, counted) = (database(), Arc::new(Counted::default()));
        close(database.core());
        let (outcome, came_back) = std::thread::scope(|scope| {
            let executor = scope.spawn(|| {
                let _takes_turns = take_turns(counted.clone());
                let mut transaction = database.begin_with(&limits).unwrap();
                transaction.create_table(&new).unwrap();
                let outcome = transaction.commit();
                (outcome, counted.came_back.load(Ordering::SeqCst))
            });
            executor.join().unwrap()
        });
        open(database.core());
        assert!(matches!(outcome, Err(Error::LockTimeout { .. })), "{outcome:?}");
        assert_eq!((counted.left.load(Ordering::SeqCst), came_back), (1, 1));
    }
}

/// A write that waits for a packet is ended by what ends other waits.
#[test]
fn a_write_that_waits_for_a_packet_is_cancelled_and_hears_its_limit() {
    // Too few for homes.
    let few = Options { packets_max: 1, log_wait_max: crate::io::FOR_EVER, ..Options::default() };
    let database = database_with(few);
    let table = database.table("rows").unwrap();
    let packets = database.core().commits.log.borrow_all_packets();
    for timeout in [None, Some(Duration::from_secs(1))] {
        let mut transaction = database.begin_with(&TxOptions { timeout, ..TxOptions::default() }).unwrap();
        let canceller = transaction.canceller();
        let (ended, has_ended) = channel();
        let table = table.clone();
        std::thread::spawn(move || ended.send(transaction.delete(&table, 1)));
        let expected = match timeout {
            None => {
                canceller.cancel();
                Error::Cancelled
            }
            Some(_) => Error::Timeout { limit_ms: 1_000 },
        };
        assert_eq!(has_ended.recv_timeout(Duration::from_secs(30)), Ok(Err(expected)));
    }
    drop(packets);
    assert_eq!(database.transact(|transaction| transaction.delete(&table, 1)), Ok(true));
}

/// A transaction whose barriers are open keeps its turn.
#[test]
fn a_definition_that_meets_no_closed_barrier_does_not_wait() {
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

/// A commit that waits at a barrier is ended by what ends other waits, too.
#[test]
fn a_commit_before_a_closed_barrier_is_cancelled_and_hears_its_limits() {
    let new = TableDef::new("new", vec![Column::new("id", ColumnType::Int4)]);
    let limits = [
        TxOptions::default(),
        TxOptions { timeout: Some(Duration::from_secs(1)), ..TxOptions::default() },
        TxOptions { lock_timeout: Some(Duration::from_millis(100)), ..TxOptions::default() },
    ];
    for (close, open) in BARRIERS {
        let database = database();
        for (nth, limits) in limits.iter().enumerate() {
            close(database.core());
            let mut transaction = database.begin_with(limits).unwrap();
            transaction.create_table(&new).unwrap();
            let canceller = transaction.canceller();
            let (ended, has_ended) = channel();
            std::thread::spawn(move || ended.send(transaction.commit()));
            if nth == 0 {
                canceller.cancel();
            }
            let outcome = has_ended.recv_timeout(Duration::from_secs(30)).map(Result::unwrap_err);
            open(database.core());
            assert!(
                match (nth, &outcome) {
                    (0, Ok(Error::Cancelled)) | (1, Ok(Error::Timeout { limit_ms: 1_000 })) => true,
                    (2, Ok(Error::LockTimeout { waited_ms, .. })) => *waited_ms >= 100,
                    _ => false,
                },
                "{outcome:?}"
            );
            assert!(database.table("new").is_err());
        }
        // None of them holds a barrier.
        database.transact(|transaction| transaction.create_table(&new).map(drop)).unwrap();
        database.checkpoint().unwrap();
    }
}

#[test]
fn a_wait_for_the_log_lets_others_run() {
    let database = database();
    let table = database.table("rows").unwrap();
    let commit = || database.transact(|transaction| transaction.delete(&table, 1).map(drop)).unwrap();
    assert_eq!(waits(commit, || ()), 1);
}

/// Waits within a checkpoint are part of it.
#[test]
fn a_checkpoint_lets_others_run() {
    let database = database();
    let core = database.core();
    let checkpoint = || assert!(!database.checkpoint().unwrap().skipped);
    core.commits.definitions.hold(&Clock::System);
    assert_eq!(waits(checkpoint, || core.commits.definitions.release()), 1);
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
