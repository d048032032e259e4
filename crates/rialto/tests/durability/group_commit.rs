//! Group commit from a user's view: every design by name, the settings of a transaction and of an administrator, and
//! refusals.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::common::hooked::{About, HookedDisk};
use parking_lot::{Condvar, Mutex};
use rialto::io::{Caching, FaultKind, FaultyDisk, MemoryDisk};
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Checkpointing, Database, Durability, Error, GroupCommitDesign, GroupCommitOptions, OpenError, Options,
    Table, TableDef, TxOptions,
};

const CLIENTS: i64 = 6;
const EACH: i64 = 40;

fn options(group_commit: GroupCommitOptions) -> Options {
    Options { memory_bytes: 64 << 20, group_commit, ..Options::default() }
}

fn table(db: &Database) -> Table {
    let columns = vec![Column::new("id", ColumnType::Int8)];
    db.transact(|tx| tx.create_table(&TableDef::new("t", columns.clone()).with_primary_key(&["id"]))).unwrap()
}

#[test]
fn every_design_serves_blocking_clients_tickets_and_level_1_at_once() {
    for design in GroupCommitDesign::ALL {
        let disk = MemoryDisk::new();
        let db = Database::open_on(disk.clone(), options(design.into())).unwrap();
        let table = table(&db);
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (db, table) = (&db, &table);
                scope.spawn(move || {
                    let mut tickets = Vec::new();
                    for nth in 0..EACH {
                        let row = [Value::Int8(client * EACH + nth)];
                        let level = [Durability::Disk, Durability::Memory][(nth % 5 / 4) as usize];
                        let options = TxOptions { durability: Some(level), ..TxOptions::default() };
                        if client % 2 == 0 {
                            db.transact_with(&options, |tx| tx.insert(table, &row)).unwrap();
                        } else {
                            tickets.push(db.submit_with(&options, |tx| tx.insert(table, &row)).unwrap().1);
                        }
                    }
                    tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());
                });
            }
        });
        // No group is in flight while they are read.
        db.sync().unwrap();
        let log = db.metrics().log;
        assert_eq!(log.waits.groups(), log.groups, "{design}: {log:?}");
        assert_eq!(log.write_times.iter().sum::<u64>(), log.groups, "{design}: {log:?}");
        db.close().unwrap();
        let db = Database::open_on(disk, options(design.into())).unwrap();
        let table = db.transact(|tx| tx.table("t")).unwrap();
        for id in 0..CLIENTS * EACH {
            assert!(db.read(|tx| tx.get(&table, id)).unwrap().is_some(), "{design}: {id}");
        }
    }
}

#[test]
fn a_transaction_waits_as_long_as_it_is_willing_to() {
    // Nothing else shows it on a disk without latency: in willing-to-wait, the wait is the least that a commit takes.
    let wait = Duration::from_millis(40);
    let db = Database::open_on(MemoryDisk::new(), options(GroupCommitDesign::WillingToWait.into())).unwrap();
    let table = table(&db);
    let willing = TxOptions { willing_to_wait: Some(wait), ..TxOptions::default() };
    let began = Instant::now();
    db.transact_with(&willing, |tx| tx.insert(&table, &[Value::Int8(1)])).unwrap();
    assert!(began.elapsed() >= wait * 9 / 10, "it took {:?} only", began.elapsed());
    let stalled = db.metrics().log.waits;
    assert!(stalled.stalls >= 1 && stalled.stalled_ns > 0, "{stalled:?}");
    // A transaction without this setting does not wait.
    db.transact(|tx| tx.insert(&table, &[Value::Int8(2)])).unwrap();
    assert_eq!(db.metrics().log.waits.stalls, stalled.stalls);
    // An administrator can make all transactions wait, and undo it.
    db.raise_stalls(wait).unwrap();
    assert_eq!(db.raised_stalls(), wait);
    let began = Instant::now();
    db.transact(|tx| tx.insert(&table, &[Value::Int8(3)])).unwrap();
    assert!(began.elapsed() >= wait * 9 / 10);
    db.raise_stalls(Duration::ZERO).unwrap();
    let stalls = db.metrics().log.waits.stalls;
    db.transact(|tx| tx.insert(&table, &[Value::Int8(4)])).unwrap();
    assert_eq!(db.metrics().log.waits.stalls, stalls);
}

#[test]
fn a_transaction_stalls_as_long_as_it_says() {
    let db = Database::open_on(MemoryDisk::new(), options(GroupCommitDesign::HiberStall.into())).unwrap();
    let table = table(&db);
    let stall = Duration::from_millis(40);
    let patient = TxOptions { commit_stall: Some(stall), ..TxOptions::default() };
    let began = Instant::now();
    db.transact_with(&patient, |tx| tx.insert(&table, &[Value::Int8(1)])).unwrap();
    assert!(began.elapsed() >= stall * 9 / 10, "it took {:?} only", began.elapsed());
    let (before, hasty) = (db.metrics().log.waits, Some(Duration::ZERO));
    let options = TxOptions { commit_stall: hasty, ..TxOptions::default() };
    db.transact_with(&options, |tx| tx.insert(&table, &[Value::Int8(2)])).unwrap();
    assert_eq!(db.metrics().log.waits.stalls, before.stalls);
}

#[test]
fn a_lone_client_writes_at_once_where_nothing_says_otherwise() {
    for design in [GroupCommitDesign::Hiber, GroupCommitDesign::LogServer, GroupCommitDesign::Adaptive] {
        let db = Database::open_on(MemoryDisk::new(), options(design.into())).unwrap();
        let table = table(&db);
        for id in 0..200 {
            db.transact(|tx| tx.insert(&table, &[Value::Int8(id)])).unwrap();
        }
        let waits = db.metrics().log.waits;
        assert_eq!((waits.stalls, waits.groups_by_committers), (0, waits.groups()), "{design}: {waits:?}");
    }
}

#[test]
fn a_failing_disk_releases_every_committer_with_the_sticky_error() {
    for design in GroupCommitDesign::ALL {
        let disk = FaultyDisk::new(3);
        let db = Database::open_on(disk.clone(), options(design.into())).unwrap();
        let table = table(&db);
        disk.fail(FaultKind::Sync, "log-0", 3);
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (db, table) = (&db, &table);
                scope.spawn(move || {
                    let failed = (0..1_000).find_map(|nth| {
                        let row = [Value::Int8(client * 1_000 + nth)];
                        db.transact(|tx| tx.insert(table, &row)).err()
                    });
                    let released =
                        matches!(failed, Some(Error::OutcomeUnknown { .. } | Error::Stopped { .. }));
                    assert!(released, "{design}: {failed:?}");
                });
            }
        });
        let after = db.transact(|tx| tx.insert(&table, &[Value::Int8(-1)]));
        assert!(matches!(after, Err(Error::Stopped { .. })), "{design}: sticky, not {after:?}");
    }
}

/// The progress of a test.
#[derive(Default)]
struct Stage(Mutex<u32>, Condvar);

impl Stage {
    fn reach(&self, stage: u32) {
        *self.0.lock() = stage;
        self.1.notify_all();
    }

    /// Whether it was reached within this time.
    fn wait(&self, stage: u32, most: Duration) -> bool {
        !self.1.wait_while_for(&mut self.0.lock(), |reached| *reached < stage, most).timed_out()
    }
}

/// Two groups have been written. The second one's sync fails, and loses what the first one wrote; the first one's sync
/// begins and succeeds before the second one's caller is told.
#[test]
fn a_group_that_a_failed_sync_of_another_one_has_lost_is_not_acknowledged() {
    const HANG: Duration = Duration::from_secs(60);
    for caching in [Caching::Buffered, Caching::Direct] {
        let faulty = FaultyDisk::new(3);
        let disk = HookedDisk::new(faulty.clone());
        let options = Options {
            checkpoint: Checkpointing::None,
            log_writes: Some(caching),
            log_writes_in_flight: Some(2),
            ..options(GroupCommitDesign::Hiber.into())
        };
        let db = Database::open_on(disk.clone(), options).unwrap();
        let table = table(&db);
        db.sync().unwrap();
        // 1: the first group is about to sync. 2: the sync of the second one has failed. 3: the first one is answered.
        let (stage, syncs) = (Arc::new(Stage::default()), AtomicU32::new(0));
        disk.before({
            let stage = stage.clone();
            move |file: &str, about| match about {
                About::Sync if file.starts_with("log-0") => match syncs.fetch_add(1, Ordering::SeqCst) {
                    0 => {
                        stage.reach(1);
                        assert!(stage.wait(2, HANG), "the second group is not written");
                    }
                    1 => faulty.fail(FaultKind::Sync, "log-0", 0),
                    _ => {}
                },
                _ => {}
            }
        });
        disk.behind_syncs({
            let stage = stage.clone();
            move |_: &str, succeeded| {
                if !succeeded {
                    stage.reach(2);
                    // The first one is not answered meanwhile.
                    stage.wait(3, Duration::from_millis(100));
                }
            }
        });
        let add = |id| db.transact(|tx| tx.insert(&table, &[Value::Int8(id)]));
        let outcomes = std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                let outcome = add(1);
                stage.reach(3);
                outcome
            });
            assert!(stage.wait(1, HANG), "the first group is not written");
            [add(2), first.join().unwrap()]
        });
        for outcome in outcomes {
            assert!(matches!(outcome, Err(Error::OutcomeUnknown { .. })), "{caching:?}: {outcome:?}");
        }
    }
}

/// A panic in the log stops the database as an error does: `Database::stopped`, by which a server ends, reports it.
#[test]
fn a_panic_while_the_log_is_written_stops_the_database() {
    for design in GroupCommitDesign::ALL {
        let disk = HookedDisk::new(MemoryDisk::new());
        let db = Database::open_on(disk.clone(), options(design.into())).unwrap();
        let table = table(&db);
        assert_eq!(db.stopped(), None);
        disk.before(|file, _| {
            if file.starts_with("log") {
                panic!("the test's");
            }
        });
        let commit = || db.transact(|tx| tx.insert(&table, &[Value::Int8(1)]));
        // The committer may write the log itself, and panic.
        if let Ok(outcome) = catch_unwind(AssertUnwindSafe(commit)) {
            assert!(matches!(outcome, Err(Error::OutcomeUnknown { .. })), "{design}: {outcome:?}");
        }
        let stopped = db.stopped().expect("the log has stopped");
        assert!(matches!(&stopped, Error::Stopped { cause, .. } if cause.contains("panicked")), "{stopped}");
        assert_eq!(commit(), Err(stopped));
        assert!(db.close().is_err());
    }
}

#[test]
fn bad_settings_are_refused_with_the_reason() {
    let us = |us| Some(Duration::from_micros(us));
    for (group_commit, words) in [
        (
            GroupCommitOptions { stall: us(5), ..GroupCommitDesign::Hiber.into() },
            &["hiber has no stall", "commit-stall, hiber-stall"][..],
        ),
        (
            GroupCommitOptions {
                willing_to_wait: us(u64::MAX / 2),
                ..GroupCommitDesign::WillingToWait.into()
            },
            &["willing_to_wait", "at most 60s"],
        ),
        (GroupCommitOptions { group_max: Some(0), ..Default::default() }, &["group_max is 0"]),
    ] {
        let error = Database::open_on(MemoryDisk::new(), options(group_commit)).expect_err("it is refused");
        assert!(matches!(error, OpenError::Options { .. }), "{error:?}");
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
    }
    let db = Database::open_on(MemoryDisk::new(), options(GroupCommitOptions::default())).unwrap();
    let patient = TxOptions { willing_to_wait: Some(Duration::from_secs(3_600)), ..TxOptions::default() };
    let error = db.transact_with(&patient, |_| Ok(())).unwrap_err();
    assert!(error.to_string().contains("willing_to_wait") && error.to_string().contains("60s"), "{error}");
    let error = db.raise_stalls(Duration::from_secs(61)).unwrap_err();
    assert!(error.to_string().contains("raise_stalls"), "{error}");
}
