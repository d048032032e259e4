//! Databases without threads of their own ([`Background::Driven`]): what calls of `drive` do, and what nothing does
//! without them.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::common::in_time;
use rialto::io::{Disk, FaultyDisk, MemoryDisk};
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Background, BackupKind, Checkpointing, Database, Durability, Error, Executors, Options, Table, TableDef,
    Transaction, TransactionServer, TransactionServerOptions, TxOptions,
};

const LONG: Duration = Duration::from_secs(60);

fn options() -> Options {
    Options {
        background: Background::Driven,
        memory_bytes: 64 << 20,
        // No sweep is to follow it.
        checkpoint_interval: Duration::from_secs(3_600),
        ..Options::default()
    }
}

fn open(disk: Arc<dyn Disk>, options: Options) -> (Database, Table) {
    let db = Database::open_on(disk, options).unwrap();
    let table = db.table("things").unwrap_or_else(|_| {
        let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
        let definition = TableDef::new("things", columns).with_primary_key(&["id"]);
        db.transact(|tx| tx.create_table(&definition)).unwrap()
    });
    (db, table)
}

fn replace(tx: &mut Transaction, table: &Table, id: i32) -> Result<(), Error> {
    tx.delete(table, id)?;
    tx.insert(table, &[Value::Int4(id), Value::Text("x".repeat(3_000))])
}

fn put(db: &Database, table: &Table, id: i32, level: Durability) -> Result<(), Error> {
    let level = TxOptions { durability: Some(level), ..TxOptions::default() };
    db.transact_with(&level, |tx| replace(tx, table, id))
}

fn there(db: &Database) -> u64 {
    db.table("things").map_or(0, |table| table.rows_estimate())
}

#[test]
fn a_commit_at_level_memory_comes_to_disk_with_the_next_call() {
    for is_driven in [false, true] {
        let disk = FaultyDisk::new(7);
        let (db, table) = open(disk.clone(), options());
        put(&db, &table, 1, Durability::Memory).unwrap();
        // Long enough for any thread that might exist.
        std::thread::sleep(5 * options().memory_flush_interval);
        if is_driven {
            db.drive().unwrap();
        }
        disk.crash();
        drop((table, db));
        let (db, _) = open(disk.restart(), options());
        assert_eq!(there(&db), u64::from(is_driven), "driven: {is_driven}");
    }
}

#[test]
fn checkpoints_are_made_in_calls_and_for_room_and_hurry() {
    in_time(LONG, || {
        let (db, table) = open(MemoryDisk::new(), Options { log_bytes_max: 1 << 20, ..options() });
        // Some 10 MB of log: a transaction that finds no room makes a checkpoint.
        for id in 0..3_000 {
            put(&db, &table, id % 100, Durability::Memory).unwrap();
        }
        let made = db.metrics().checkpoints.completed;
        assert!(made > 1, "{made} checkpoints");
        // A call makes one that is due.
        let (db, table) =
            open(MemoryDisk::new(), Options { checkpoint_interval: Duration::from_nanos(1), ..options() });
        for id in 0..3 {
            put(&db, &table, id, Durability::Disk).unwrap();
            assert_eq!(db.metrics().checkpoints.completed, id as u64);
            db.drive().unwrap();
            assert_eq!(db.metrics().checkpoints.completed, id as u64 + 1);
        }
    });
}

#[test]
fn where_no_checkpoint_is_made_a_full_log_is_told() {
    in_time(LONG, || {
        let few = Options {
            checkpoint: Checkpointing::None,
            log_bytes_max: 1 << 20,
            log_wait_max: Duration::from_millis(20),
            ..options()
        };
        let (db, table) = open(MemoryDisk::new(), few);
        let full = (0..3_000).find_map(|id| put(&db, &table, id % 100, Durability::Memory).err()).unwrap();
        assert!(matches!(full, Error::LogFull { .. }), "{full}");
        db.checkpoint().unwrap();
        db.checkpoint().unwrap();
        put(&db, &table, 0, Durability::Disk).unwrap();
    });
}

/// The stream of a backup runs its caller's code, which keeps checkpoints off: none is made for its commits.
#[test]
fn commits_amid_a_backup_are_told_that_the_log_is_full() {
    struct Commits<'a>(&'a Database, &'a Table, Option<Error>);
    impl Write for Commits<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let Commits(db, table, full) = self;
            if full.is_none() {
                let commit = |id| -> Result<(), Error> {
                    let mut tx = db.begin()?;
                    replace(&mut tx, table, id)?;
                    tx.set_durability(Durability::Memory);
                    tx.commit()
                };
                *full = (0..3_000).find_map(|id| commit(id % 100).err());
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    in_time(LONG, || {
        let few = Options { log_bytes_max: 1 << 20, log_wait_max: Duration::from_millis(20), ..options() };
        let (db, table) = open(MemoryDisk::new(), few);
        put(&db, &table, 1, Durability::Disk).unwrap();
        let mut commits = Commits(&db, &table, None);
        db.backup_to(&mut commits, BackupKind::Full).unwrap();
        let full = commits.2.expect("the log is full");
        assert!(matches!(full, Error::LogFull { .. }), "{full}");
        db.drive().unwrap();
        put(&db, &table, 1, Durability::Disk).unwrap();
    });
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Woken>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn tickets_are_done_where_they_are_waited_for_or_polled() {
    let (db, table) = open(MemoryDisk::new(), options());
    let insert = |id| db.submit(|tx| tx.insert(&table, &[Value::Int4(id), Value::Text("z".into())]));
    let ((), ticket) = insert(1).unwrap();
    assert_eq!(ticket.poll_done(), None);
    ticket.wait().unwrap();
    let ((), mut ticket) = insert(2).unwrap();
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(woken.clone());
    let first = std::pin::Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker));
    db.drive().unwrap();
    assert!(first.is_ready() || woken.0.load(Ordering::SeqCst), "it is done, or its waker is run");
    assert_eq!(std::pin::Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)), Poll::Ready(Ok(())));
    let ((), ticket) = insert(3).unwrap();
    db.drive().unwrap();
    assert_eq!(ticket.poll_done(), Some(Ok(())));
}

#[test]
fn threads_that_work_beside_each_other_wait_for_no_work_that_is_never_done() {
    in_time(LONG, || {
        let (db, table) = open(MemoryDisk::new(), options());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (db, table) = (&db, &table);
                scope.spawn(move || {
                    for id in 0..300 {
                        let id = thread * 1_000 + id;
                        match id % 3 {
                            0 => put(db, table, id, Durability::Disk).unwrap(),
                            1 => {
                                let row = [Value::Int4(id), Value::Text("t".into())];
                                let ((), mut ticket) = db.submit(|tx| tx.insert(table, &row)).unwrap();
                                // Woken by whichever thread writes its group.
                                let woken = Arc::new(Woken(AtomicBool::new(false)));
                                let waker = Waker::from(woken.clone());
                                let mut context = Context::from_waker(&waker);
                                if std::pin::Pin::new(&mut ticket).poll(&mut context).is_pending() {
                                    ticket.wait().unwrap();
                                }
                            }
                            _ => db.drive().unwrap(),
                        }
                    }
                });
            }
        });
        db.close().unwrap();
    });
}

#[test]
fn what_needs_threads_is_refused() {
    let threads = Options {
        engine: Executors { threads: 2, ..Executors::default().handing_over() }.into(),
        ..options()
    };
    let refused = Database::open_on(MemoryDisk::new(), threads).unwrap_err().to_string();
    assert!(refused.contains("threads is 2 with background Driven"), "{refused}");
    let (db, _) = open(MemoryDisk::new(), options());
    let refused = TransactionServer::start(&db, &TransactionServerOptions::default()).err().unwrap();
    assert!(refused.to_string().contains("Options::background Driven"), "{refused}");
    let in_a_body = db.transact(|_| db.drive());
    assert_eq!(in_a_body, Err(Error::Nested));
    db.clone().close().unwrap();
    assert_eq!(db.drive(), Err(Error::Closed));
}
