//! The time of a recovery: reported while it runs, measured, kept, and predicted.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::hooked::HookedDisk;
use rialto::io::{Clock, Disk, MemoryDisk, SimulatedDisk};
use rialto::recovery::{RecoveryReport, inspect};
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Checkpointing, Database, Durability, Error, OpenError, Options, Scan, Table, TableDef, TxOptions,
};

fn options() -> Options {
    Options {
        durability: Durability::Memory,
        memory_bytes: 512 << 20,
        checkpoint: Checkpointing::None,
        ..Options::default()
    }
}

fn made(disk: &Arc<dyn Disk>, options: Options) -> (Database, Table) {
    let db = Database::open_on(disk.clone(), options).unwrap_or_else(|error| panic!("{error}"));
    let columns = vec![
        Column::new("id", ColumnType::Int4),
        Column::new("n", ColumnType::Int8),
        Column::new("text", ColumnType::Text),
    ];
    let definition = TableDef::new("t", columns).with_primary_key(&["id"]);
    let table = db
        .transact(|tx| {
            let table = tx.create_table(&definition)?;
            tx.create_index("t", "t_n", &["n"], false)?;
            Ok(table)
        })
        .unwrap();
    (db, table)
}

fn insert(db: &Database, table: &Table, ids: std::ops::Range<i32>) {
    for chunk in ids.clone().step_by(100) {
        db.transact(|tx| {
            for id in chunk..(chunk + 100).min(ids.end) {
                let text = Value::Text("x".repeat(id as usize % 150));
                tx.insert(table, &[Value::Int4(id), Value::Int8(i64::from(id % 97)), text])?;
            }
            Ok(())
        })
        .unwrap();
    }
}

fn change(db: &Database, table: &Table, id: i32) {
    db.transact(|tx| tx.modify(table, id, |row| row.add_i64(1, 1).map(drop)).map(drop)).unwrap();
}

/// What a killed process leaves: nothing is closed. The handles stay, because their drops would write.
fn killed(db: Database, disk: &Arc<MemoryDisk>) -> Arc<MemoryDisk> {
    db.transact_with(&TxOptions { durability: Some(Durability::Disk), ..TxOptions::default() }, |tx| {
        let table = tx.table("t")?;
        tx.modify(&table, 0, |row| row.add_i64(1, 1).map(drop)).map(drop)
    })
    .unwrap();
    let copy = copied(&**disk);
    drop(db);
    copy
}

/// Its files, without what only the boot remembers.
fn copied(disk: &dyn Disk) -> Arc<MemoryDisk> {
    use rialto::io::{Caching, Open};
    let copy = MemoryDisk::new();
    for name in disk.list().unwrap() {
        let Ok(from) = disk.open(&name, Open::ReadOnly, Caching::Buffered) else { continue };
        let mut bytes = vec![0; from.length().unwrap() as usize];
        from.read_at(&mut bytes, 0).unwrap();
        copy.open(&name, Open::Create, Caching::Buffered).unwrap().write_at(&bytes, 0).unwrap();
    }
    copy
}

type Rows = BTreeMap<i32, (i64, usize)>;

fn rows(db: &Database) -> Rows {
    let table = db.table("t").unwrap();
    let mut found = Rows::new();
    db.read(|tx| {
        found.clear();
        tx.scan(&table, &Scan::all(), |_, row| {
            found.insert(row.get_i32(0)?, (row.get_i64(1)?, row.get_str(2)?.len()));
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
    found
}

#[test]
fn redo_begins_where_the_home_block_says() {
    let disk = MemoryDisk::new();
    let (db, table) = made(&(disk.clone() as _), options());
    insert(&db, &table, 0..2_000);
    let checkpoint = db.checkpoint().unwrap();
    (0..7).for_each(|id| change(&db, &table, id));
    let db = Database::open_on(killed(db, &disk), options()).unwrap();
    let RecoveryReport { redo_start, log_end, packets, records, log_bytes, .. } =
        db.recovery().unwrap().clone();
    assert_eq!(redo_start, checkpoint.redo_start);
    // Seven and the last one; not the 21 before them, though the same file has them all.
    assert_eq!((packets, records, log_end.0 + 1 - redo_start.0), (8, 8, 8));
    assert!(log_bytes > 0);
}

#[test]
fn one_thread_and_several_recover_the_same_tables() {
    let disk = MemoryDisk::new();
    let (db, table) = made(&(disk.clone() as _), options());
    insert(&db, &table, 0..20_000);
    db.checkpoint().unwrap();
    insert(&db, &table, 20_000..30_000);
    for id in (0..30_000).step_by(3) {
        if id % 2 == 0 {
            change(&db, &table, id);
        } else {
            db.transact(|tx| tx.delete(&table, id)).unwrap();
        }
    }
    let expected = {
        let mut expected = rows(&db);
        expected.get_mut(&0).unwrap().0 += 1;
        expected
    };
    let left = killed(db, &disk);
    for threads in [1, 2, 5, 16] {
        let disk = copied(&*left);
        let db = Database::open_on(disk, Options { recovery_threads: threads, ..options() }).unwrap();
        assert!(rows(&db) == expected, "{threads} threads");
        let report = db.recovery().unwrap();
        assert_eq!((report.rows, report.tables), (expected.len() as u64, 1), "{threads} threads");
    }
}

/// A load file stays until the checkpoint after the one that has its rows.
#[test]
fn a_bulk_load_that_the_copy_holds_is_not_predicted_to_be_redone() {
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4)];
    let definition = TableDef::new("t", columns).with_primary_key(&["id"]);
    db.transact(|tx| {
        let table = tx.create_table(&definition)?;
        (0..5_000).try_for_each(|id| tx.insert(&table, &[Value::Int4(id)]))
    })
    .unwrap();
    let predicted = |disk: &MemoryDisk| {
        let left = copied(disk);
        let is_there = left.list().unwrap().iter().any(|name| name.starts_with("load-"));
        let predicted = inspect::inspect(&(left as _), 512 << 20, 1).unwrap();
        (is_there, predicted.contains("redo of bulk loads"), predicted)
    };
    db.sync().unwrap();
    let (is_there, is_predicted, text) = predicted(&disk);
    assert!(is_there && is_predicted, "{text}");
    db.checkpoint().unwrap();
    let (is_there, is_predicted, text) = predicted(&disk);
    assert!(is_there && !is_predicted, "{text}");
}

#[test]
fn a_short_recovery_says_nothing_and_what_it_measures_is_kept() {
    let inner = MemoryDisk::new();
    let disk: Arc<dyn Disk> = SimulatedDisk::named("nvme", inner.clone(), Clock::System).expect("a preset");
    let (db, table) = made(&disk, options());
    insert(&db, &table, 0..60_000);
    db.checkpoint().unwrap();
    (0..30_000).for_each(|n| change(&db, &table, n % 5_000));
    let left = killed(db, &inner);
    let disk: Arc<dyn Disk> = SimulatedDisk::named("nvme", left.clone(), Clock::System).expect("a preset");
    let predicted = inspect::inspect(&disk, 512 << 20, 1).unwrap();
    assert!(predicted.contains("recovery   predicted: ") && predicted.contains("assumed"), "{predicted}");
    let lines = Arc::new(Mutex::new(Vec::new()));
    let progress = {
        let lines = lines.clone();
        Some(Arc::new(move |text: &str| lines.lock().unwrap().push(text.to_owned())) as rialto::Progress)
    };
    // On one thread it takes long enough to measure, and on most machines less than a second.
    let db = Database::open_on(disk.clone(), Options { progress, recovery_threads: 1, ..options() }).unwrap();
    let report = db.recovery().unwrap().clone();
    let lines = lines.lock().unwrap().clone();
    // It reports after a second, during which the machine may have stood still.
    if report.took().as_secs_f64() < 0.5 {
        assert!(lines.is_empty(), "{lines:?}");
    }
    assert!(lines.iter().all(|line| !line.contains('\n')) && lines.len() <= 45, "{lines:?}");
    drop(db);
    let predicted = inspect::inspect(&disk, 512 << 20, 1).unwrap();
    let redo_is_measured = report.redo_time.as_millis() >= 50 && report.packets >= 10_000;
    assert_eq!(predicted.contains("transactions/s (measured)"), redo_is_measured, "{predicted}\n{report:?}");
}

/// The code that receives a recovery's progress is foreign: a panic at each line ends no recovery.
#[test]
fn a_recovery_goes_on_where_its_progress_panics() {
    let inner = MemoryDisk::new();
    let disk: Arc<dyn Disk> = inner.clone();
    let (db, table) = made(&disk, options());
    insert(&db, &table, 0..1_000);
    db.checkpoint().unwrap();
    (0..100).for_each(|n| change(&db, &table, n));
    let left = HookedDisk::new(killed(db, &inner));
    // A recovery reports after a second.
    let stood_still = AtomicBool::new(false);
    left.before_reads(move |file: &str, _| {
        if file.starts_with("backup") && !stood_still.swap(true, Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1_100));
        }
    });
    let lines = Arc::new(AtomicU64::new(0));
    let progress = {
        let lines = lines.clone();
        Some(Arc::new(move |_: &str| {
            lines.fetch_add(1, Ordering::Relaxed);
            assert_eq!(lines.load(Ordering::Relaxed), 0, "it panics");
        }) as rialto::Progress)
    };
    // On one thread: the one that reports.
    let db = Database::open_on(left, Options { progress, recovery_threads: 1, ..options() }).unwrap();
    assert!(lines.load(Ordering::Relaxed) > 0, "the test's own premise");
    assert_eq!(db.table("t").unwrap().rows_estimate(), 1_000);
    db.checkpoint().unwrap();
    db.close().unwrap();
}

/// The measurements of earlier recoveries, in seconds: the newest counts half, and all before it the other half.
#[derive(Debug, Clone, Copy)]
struct Measured {
    load: f64,
    primary: f64,
    secondary: f64,
    /// The time to read a byte of log, and to redo a packet.
    byte: f64,
    packet: f64,
}

impl Measured {
    fn by(report: &RecoveryReport) -> Measured {
        Measured {
            load: report.load_time.as_secs_f64(),
            primary: report.primary_time.as_secs_f64(),
            secondary: report.secondary_time.as_secs_f64(),
            byte: report.read_time.as_secs_f64() / report.log_bytes as f64,
            packet: (report.redo_time - report.read_time).as_secs_f64() / report.packets as f64,
        }
    }

    fn and(self, next: Measured) -> Measured {
        let mean = |one: f64, other: f64| (one + other) / 2.0;
        Measured {
            load: mean(self.load, next.load),
            primary: mean(self.primary, next.primary),
            secondary: mean(self.secondary, next.secondary),
            byte: mean(self.byte, next.byte),
            packet: mean(self.packet, next.packet),
        }
    }

    /// The predicted time for as much work as this recovery did, with the same tables.
    fn predict(self, report: &RecoveryReport) -> f64 {
        let redo = self.byte * report.log_bytes as f64 + self.packet * report.packets as f64;
        self.load + self.primary + self.secondary + redo
    }
}

/// The prediction for a recovery is the time that earlier ones of the same directory took for as much work, by their
/// reports. How close that came is printed: it depends on other load of the machine.
#[test]
fn what_is_predicted_is_what_earlier_recoveries_took() {
    // So slow that reading the files takes far longer than what is too short to be measured.
    let recover = |disk: &Arc<MemoryDisk>| {
        let slow = SimulatedDisk::named("hdd", disk.clone(), Clock::System).expect("a preset");
        let options = Options { recovery_threads: 1, ..options() };
        let began = Instant::now();
        let db = Database::open_on(slow, options).unwrap();
        let report = db.recovery().unwrap().clone();
        // The disk reads 200 MB in a second.
        let read = |bytes: u64| Duration::from_secs_f64(bytes as f64 / 200e6);
        assert!(
            report.load_time >= read(report.loaded_bytes) && report.took() <= began.elapsed(),
            "{report:?}"
        );
        (db, report)
    };
    let change_many = |db: &Database| {
        let table = db.table("t").unwrap();
        (0..60_000).for_each(|n| change(db, &table, n % 20_000));
    };
    let made_on = MemoryDisk::new();
    let (db, table) = made(&(made_on.clone() as _), options());
    insert(&db, &table, 0..200_000);
    db.checkpoint().unwrap();
    change_many(&db);
    let disk = killed(db, &made_on);
    let check = |report: &RecoveryReport, measured: Measured| {
        let predicted = report.predicted.expect("this disk has a speed").as_secs_f64();
        println!("predicted : took = {:.2}", predicted / report.took().as_secs_f64());
        let expected = measured.predict(report);
        assert!(
            (predicted / expected - 1.0).abs() < 0.01,
            "expected {expected} s by {measured:?}: {report:?}"
        );
    };
    // The first one measures, and each later one.
    let (_, first) = recover(&disk);
    assert!(first.load_time.min(first.redo_time).as_millis() >= 50, "the test's own premise: {first:?}");
    let mut measured = Measured::by(&first);
    for _ in 0..2 {
        let (_, report) = recover(&disk);
        check(&report, measured);
        measured = measured.and(Measured::by(&report));
    }
    // With more to redo the prediction grows by as much.
    let (db, report) = recover(&disk);
    check(&report, measured);
    measured = measured.and(Measured::by(&report));
    change_many(&db);
    let (_, report) = recover(&killed(db, &disk));
    assert!(report.packets > first.packets * 19 / 10, "the test's own premise: {report:?}");
    check(&report, measured);
}

/// The more log there is to redo, the more often sweeps run; no time is compared.
#[test]
fn sweeps_come_as_often_as_there_is_more_to_redo() {
    let within = Duration::from_millis(40);
    // Checkpoints with at least this many changes, and more until there are enough: another thread makes them.
    let completed = |least: i32, is_enough: &dyn Fn(u64) -> bool| {
        let disk = MemoryDisk::new();
        let options = Options {
            checkpoint: Checkpointing::Fuzzy,
            // The longest time of a sweep; no longer the shortest interval between two.
            checkpoint_interval: Duration::from_millis(5),
            recovery_within: Some(within),
            ..options()
        };
        let (db, table) = made(&(disk.clone() as _), options);
        insert(&db, &table, 0..1_000);
        let mut changes = 0;
        while changes < least || changes < 30 * least && !is_enough(db.metrics().checkpoints.completed) {
            (0..1_000).for_each(|id| change(&db, &table, id));
            changes += 1_000;
        }
        let metrics = db.metrics();
        assert_eq!(metrics.recovery.within, Some(within));
        let (work, place) = (metrics.recovery.work, i64::from(changes) + 12);
        assert!(work.packets as i64 <= place && work.memory_bytes > 0, "{work:?}");
        let found = rows(&db);
        db.close().unwrap();
        assert!(rows(&Database::open_on(disk, self::options()).unwrap()) == found);
        metrics.checkpoints.completed
    };
    let few = completed(1_000, &|_| true);
    let many = completed(100_000, &|completed| completed > few + 2);
    assert!(many > few + 2, "{few} checkpoints of 1,000 changes, {many} of 100,000 and more");
}

#[test]
fn a_target_without_checkpoints_is_refused() {
    let disk = MemoryDisk::new();
    let refused = |options: Options| match Database::open_on(disk.clone(), options) {
        Err(OpenError::Options { what }) => what,
        other => panic!("{other:?}"),
    };
    let within = Some(Duration::from_secs(5));
    assert!(refused(Options { recovery_within: within, ..options() }).contains("needs checkpoints"));
    let fuzzy = Options { checkpoint: Checkpointing::Fuzzy, ..options() };
    assert!(
        refused(Options { recovery_within: Some(Duration::ZERO), ..fuzzy.clone() }).contains("expected 10ms")
    );
    let db = Database::open_on(disk.clone(), Options { recovery_within: within, ..fuzzy }).unwrap();
    match db.set_checkpoint(Checkpointing::None) {
        Err(Error::Unsupported { what }) => assert!(what.contains("recovery_within"), "{what}"),
        other => panic!("{other:?}"),
    }
}
