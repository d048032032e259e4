//! Calls of the disk that hang: a transaction that needs one waits, no other one does, and no answer tells what the
//! call was to make durable.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::common::archives::loaded;
use crate::common::in_time;
use crate::common::quiet::{count, level, numbers, open, options, put, thing, things};
use rialto::backup::Archive;
use rialto::io::{Caching, FaultKind, FaultyDisk};
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{Action, Database, Durability, Error, Executors, Flow, OpenError, Options, Procedure, TableDef};

/// Releases what hangs also when the test fails: otherwise its threads never end.
struct LetsGo<'a>(&'a FaultyDisk);

impl Drop for LetsGo<'_> {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

fn until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::yield_now();
    }
}

/// The ways of writing the log, each with the call that can hang.
fn ways() -> [(Caching, FaultKind); 3] {
    [
        (Caching::Buffered, FaultKind::Sync),
        (Caching::Direct, FaultKind::Sync),
        (Caching::DirectSync, FaultKind::Write),
    ]
}

fn opened(disk: &std::sync::Arc<FaultyDisk>, log_writes: Caching) -> Database {
    let options = Options { log_writes: Some(log_writes), ..options() };
    Database::open_on(disk.clone(), options).unwrap()
}

/// A commit that waits for the disk has released its rows: other transactions change them, and are answered at level 1.
/// At level 3 none is answered: not the commit itself, no later one, and none that only read.
#[test]
fn a_commit_whose_log_write_hangs_holds_up_no_other() {
    for (log_writes, kind) in ways() {
        let disk = FaultyDisk::new(1);
        let db = opened(&disk, log_writes);
        let table = numbers(&db);
        db.sync().unwrap();
        disk.hang(kind, "log-0");
        let (done, answers) = channel();
        let tell = |what: &'static str, outcome: rialto::Result<()>| {
            outcome.unwrap();
            done.send(what).unwrap();
        };
        let add = |durability| {
            db.transact_with(&level(durability), |tx| {
                tx.modify(&table, 3, |row| row.add(1, 1).map(drop)).map(drop)
            })
        };
        let look = || {
            db.read(|tx| {
                let row = tx.get(&table, 3)?.expect("it is there");
                assert_ne!(row.get(1)?, Value::Int4(0));
                Ok(())
            })
        };
        std::thread::scope(|scope| {
            let _lets_go = LetsGo(&disk);
            scope.spawn(|| tell("commit", add(Durability::Disk)));
            until(|| disk.hanging() > 0);
            scope.spawn(|| tell("commit behind it", add(Durability::Disk)));
            for _ in 0..50 {
                add(Durability::Memory).unwrap();
            }
            scope.spawn(|| tell("reader", look()));
            std::thread::sleep(Duration::from_millis(30));
            assert_eq!(answers.try_recv().ok(), None, "{log_writes:?}: an answer before its log write");
            disk.let_go();
            let mut all: Vec<&str> = (0..3).map(|_| answers.recv().unwrap()).collect();
            all.sort_unstable();
            assert_eq!(all, ["commit", "commit behind it", "reader"]);
        });
        db.close().unwrap();
    }
}

/// While a group does not get to the disk, level 1 commits go on until the log's buffer is full, and no longer. They all
/// are durable in the end.
#[test]
fn the_log_buffer_bounds_how_far_level_1_is_ahead() {
    const ROW_BYTES: u64 = 4_000;
    let ahead = |log_buffer_bytes: usize| {
        let disk = FaultyDisk::new(8);
        let waits_long = Duration::from_secs(600);
        let options = Options {
            log_buffer_bytes,
            log_wait_max: waits_long,
            durability: Durability::Memory,
            ..options()
        };
        let db = Database::open_on(disk.clone(), Options { log_writes: Some(Caching::Buffered), ..options })
            .unwrap();
        let texts = TableDef::new(
            "texts",
            vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)],
        )
        .with_primary_key(&["id"]);
        let table = db.transact(|tx| tx.create_table(&texts)).unwrap();
        db.sync().unwrap();
        disk.hang(FaultKind::Sync, "log-0");
        let answered = AtomicU64::new(0);
        let enough = 4 * (1 << 20) / ROW_BYTES;
        let answered_meanwhile = std::thread::scope(|scope| {
            let _lets_go = LetsGo(&disk);
            scope.spawn(|| {
                for id in 0..enough {
                    let text = Value::Text("x".repeat(ROW_BYTES as usize));
                    db.transact(|tx| tx.insert(&table, &[Value::Int4(id as i32), text.clone()])).unwrap();
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
            until(|| disk.hanging() > 0);
            // Without a bound it would be done with all of them.
            let mut seen = u64::MAX;
            while seen != answered.load(Ordering::Relaxed) {
                seen = answered.load(Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(300));
            }
            seen
        });
        assert_eq!(answered.load(Ordering::Relaxed), enough);
        db.close().unwrap();
        answered_meanwhile * ROW_BYTES
    };
    let (small, large) = (ahead(256 << 10), ahead(2 << 20));
    assert!(small <= 256 << 10, "{small}");
    assert!((1 << 20..=2 << 20).contains(&large), "{large}");
}

/// I6: no executor waits for a log write. A call whose commit waits for one holds up no other: others run on the same
/// executors, and are answered at level 1.
#[test]
fn executors_go_on_beside_a_log_write_that_hangs() {
    for (log_writes, kind) in ways() {
        let disk = FaultyDisk::new(6);
        let of_threads = Options { engine: Executors::of(2, 2).handing_over().into(), ..options() };
        let db =
            Database::open_on(disk.clone(), Options { log_writes: Some(log_writes), ..of_threads }).unwrap();
        let [low, high] = [0, 1].map(|nth| {
            Action::exclusive("t", move |tx, arguments, _| {
                let id: i32 = arguments.get(nth)?;
                tx.modify(arguments.table()?, id, |row| row.add(1, 1).map(drop)).map(drop)
            })
            .by_argument(nth)
        });
        numbers(&db);
        db.set_routing("t", WhichIndex::Primary, &[vec![Value::Int4(5)]]).unwrap();
        let types = [ColumnType::Int4; 2];
        db.register(Procedure::new("add", types, Flow::new().phase([low, high]))).unwrap();
        let ids = [Value::Int4(0), Value::Int4(9)];
        db.sync().unwrap();
        disk.hang(kind, "log-0");
        let _lets_go = LetsGo(&disk);
        let waits = db.send_call("add", &ids).unwrap();
        until(|| disk.hanging() > 0);
        let mut behind_it: Vec<_> = (0..20).map(|_| db.send_call("add", &ids).unwrap()).collect();
        let (again, more) = (db.clone(), ids.clone());
        in_time(Duration::from_secs(100), move || {
            for _ in 0..20 {
                let outcome = again.call_with(&level(Durability::Memory), "add", &more);
                assert_eq!(outcome, Ok(vec![]), "{log_writes:?}");
            }
        });
        assert!(
            !behind_it.iter_mut().any(|sent| sent.is_done()),
            "{log_writes:?}: an answer before its log write"
        );
        disk.let_go();
        for sent in behind_it.into_iter().chain([waits]) {
            assert_eq!(sent.wait(), Ok(vec![]), "{log_writes:?}");
        }
        db.close().unwrap();
    }
}

/// The machine ends while a commit's log write hangs: the commit's outcome is unknown, and what was answered before is
/// there.
#[test]
fn a_commit_whose_log_write_never_comes_back_has_no_outcome() {
    for (log_writes, kind) in ways() {
        let disk = FaultyDisk::new(2);
        let db = opened(&disk, log_writes);
        let table = things(&db);
        put(&db, 0..10);
        disk.hang(kind, "log-0");
        let outcome = std::thread::scope(|scope| {
            let commit = scope.spawn(|| db.transact(|tx| tx.insert(&table, &thing(10, 10))));
            until(|| disk.hanging() > 0);
            disk.crash();
            commit.join().unwrap()
        });
        assert!(matches!(outcome, Err(Error::OutcomeUnknown { .. })), "{log_writes:?}: {outcome:?}");
        drop(db);
        let found = count(&open(disk.restart()));
        assert!((10..=11).contains(&found), "{log_writes:?}: {found} rows");
    }
}

/// A sweep whose write or sync hangs holds up its own checkpoint, and neither commits nor a close. As long as it may
/// still write, no other process gets the directory.
#[test]
fn commits_go_on_beside_a_checkpoint_that_hangs() {
    // Images, the name of their file, the home block.
    let calls = ["backup-", "backup-", ".", "home", "home"].into_iter().zip([
        FaultKind::Write,
        FaultKind::Sync,
        FaultKind::Sync,
        FaultKind::Write,
        FaultKind::Sync,
    ]);
    for kind in calls {
        let disk = FaultyDisk::new(3);
        let db = open(disk.clone());
        things(&db);
        put(&db, 0..100);
        disk.hang(kind.1, kind.0);
        std::thread::scope(|scope| {
            let _lets_go = LetsGo(&disk);
            let db = db;
            let again = db.clone();
            let checkpoint = scope.spawn(move || again.checkpoint().map(drop));
            until(|| disk.hanging() > 0);
            for round in 1..20 {
                put(&db, round * 100..round * 100 + 10);
            }
            assert!(!checkpoint.is_finished(), "{kind:?}");
            db.close().unwrap();
            assert!(!checkpoint.is_finished(), "{kind:?}");
            let other = Database::open_on(disk.clone(), options());
            assert!(matches!(other, Err(OpenError::Locked { .. })), "{kind:?}: {other:?}");
            disk.let_go();
            let outcome = checkpoint.join().unwrap();
            assert!(matches!(outcome, Ok(()) | Err(Error::Closed)), "{kind:?}: {outcome:?}");
        });
        assert_eq!(count(&open(disk)), 100 + 19 * 10, "{kind:?}");
    }
}

/// A bulk load whose file cannot be written waits alone; only definitions wait with it, and no commit of another
/// table's rows.
#[test]
fn commits_go_on_beside_a_load_that_hangs() {
    for kind in [FaultKind::Write, FaultKind::Sync] {
        let disk = FaultyDisk::new(7);
        let db = open(disk.clone());
        things(&db);
        disk.hang(kind, "load-");
        std::thread::scope(|scope| {
            let _lets_go = LetsGo(&disk);
            let load = scope.spawn(|| loaded(&db, "loaded"));
            until(|| disk.hanging() > 0);
            for round in 0..20 {
                put(&db, round * 100..round * 100 + 10);
            }
            assert!(!load.is_finished(), "{kind:?}: its file is not on the disk");
            assert!(matches!(db.table("loaded"), Err(Error::NoSuchTable { .. })), "{kind:?}");
            disk.let_go();
            load.join().unwrap();
        });
        db.close().unwrap();
        let db = open(disk);
        let table = db.table("loaded").unwrap();
        let rows = db.read(|tx| tx.count(&table)).unwrap();
        assert_eq!((count(&db), rows), (200, 400), "{kind:?}");
    }
}

/// An archive that hangs holds up the checkpoint that would free log files, and no commit: the log goes on to further
/// files, up to its bound.
#[test]
fn commits_go_on_beside_an_archive_that_hangs() {
    let (disk, elsewhere) = (FaultyDisk::new(4), FaultyDisk::new(5));
    let archive = Archive::on(elsewhere.clone());
    let options = Options { log_bytes_max: 4 << 20, archive: Some(archive), ..options() };
    let db = Database::open_on(disk.clone(), options).unwrap();
    things(&db);
    // A log file takes a dozen such transactions.
    let fill =
        |rounds: std::ops::Range<i32>| rounds.for_each(|round| put(&db, round * 100..round * 100 + 100));
    fill(0..24);
    // The older copy needs the log from the beginning until there are two.
    db.checkpoint().unwrap();
    fill(24..30);
    elsewhere.hang(FaultKind::Write, "");
    std::thread::scope(|scope| {
        let _lets_go = LetsGo(&elsewhere);
        let checkpoint = scope.spawn(|| db.checkpoint());
        until(|| elsewhere.hanging() > 0 || checkpoint.is_finished());
        assert!(!checkpoint.is_finished(), "no log file is freed that is not archived");
        fill(30..60);
        assert!(!checkpoint.is_finished());
        elsewhere.let_go();
        checkpoint.join().unwrap().unwrap();
    });
    assert_eq!(count(&db), 6_000);
    db.close().unwrap();
}
