//! Definitions that change during a sweep: the copy has the catalog of its redo start, whole, whichever checkpointer
//! makes it.
//!
//! A gate holds the sweep's writes at a place of the backup copy. Tables and indexes change there, the sweep ends, and
//! the machine is cut off.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::gated::{GatedDisk, disk};
use rialto::checkpoint::CheckpointReport;
use rialto::io::{Disk, FaultKind, FaultyDisk, Random};
use rialto::recovery::check::check;
use rialto::row::{Column, ColumnType, Value};
use rialto::{Checkpointing, Database, Options, TableDef};

fn options(checkpoint: Checkpointing) -> Options {
    let checkpoint_interval = Duration::from_secs(3600);
    Options {
        memory_bytes: 256 << 20,
        checkpoint,
        checkpoint_interval,
        recovery_threads: 2,
        ..Options::default()
    }
}

/// A new database on a gated disk.
fn opened(options: Options) -> (GatedDisk, Database) {
    let disk = disk();
    let db = Database::open_on(disk.disk.clone(), options).unwrap();
    (disk, db)
}

/// Makes a checkpoint, and runs `work` while its sweep is held before it writes this segment.
fn beside_a_sweep(disk: &GatedDisk, db: &Database, segment: u64, work: impl FnOnce()) -> CheckpointReport {
    disk.gate.set(segment * SEGMENT);
    std::thread::scope(|scope| {
        let sweep = scope.spawn(|| db.checkpoint());
        disk.gate.wait_until_reached();
        work();
        disk.gate.set(u64::MAX);
        sweep.join().unwrap().unwrap()
    })
}

fn create(db: &Database, name: &str) {
    let table = TableDef::new(name, columns()).with_primary_key(&["id"]);
    db.transact(|tx| tx.create_table(&table).map(drop)).unwrap();
}

const SEGMENT: u64 = 64 << 10;

fn insert(db: &Database, name: &str, from: i32, to: i32) {
    db.transact(|tx| {
        let table = tx.table(name)?;
        for id in from..to {
            tx.insert(&table, &[Value::Int4(id), Value::Int4(id), Value::Int4(id)])?;
        }
        Ok(())
    })
    .unwrap();
}

fn columns() -> Vec<Column> {
    ["id", "a", "b"].map(|name| Column::new(name, ColumnType::Int4)).to_vec()
}

/// Checkpointers that also copy what transactions have done since the redo start. With copy-on-update nothing after the
/// cut is in the copy; there DDL can do harm between the copy of the catalog and the cut. (Beside a
/// transaction-consistent black/white sweep DDL waits for the sweep; see `recovery.rs`.)
const HELD: [Checkpointing; 2] = [Checkpointing::Fuzzy, Checkpointing::ActionBlackWhite];

/// Opens the directory of the machine that was cut off, which `check` finds sound.
fn reopened(disk: &GatedDisk, checkpoint: Checkpointing) -> Database {
    let shared: Arc<dyn Disk> = disk.disk.clone();
    let report = check(&shared, 256 << 20, 2).unwrap();
    assert!(report.is_sound(), "{checkpoint:?}: {report}");
    Database::open_on(disk.disk.clone(), options(checkpoint))
        .unwrap_or_else(|error| panic!("{checkpoint:?}: {error}"))
}

/// As pgbench -i makes its tables: without a key at first, the rows, and then the key, here by another session.
fn a_table_that_got_its_key_later(checkpoint: Checkpointing) {
    let (disk, db) = opened(options(checkpoint));
    db.transact(|tx| tx.create_table(&TableDef::new("t", columns())).map(drop)).unwrap();
    for n in 0..20 {
        insert(&db, "t", n * 2000, (n + 1) * 2000);
    }
    // Another session's context, so that its rows of the system tables go to other segments.
    let other = db.begin().unwrap();
    db.transact(|tx| tx.add_primary_key("t", &["id"])).unwrap();
    other.abort().unwrap();
    db.checkpoint().unwrap();
    insert(&db, "t", 50_000, 50_001);
    // A sweep that is held after the first segments writes all of them again.
    db.checkpoint().unwrap();
    db.transact(|tx| {
        let table = tx.table("t")?;
        for id in 0..40_000 {
            tx.modify(&table, id, |fields| fields.add(1, 1).map(drop))?;
        }
        Ok(())
    })
    .unwrap();
    // Makes every segment of the system tables dirty.
    db.transact(|tx| tx.create_table(&TableDef::new("x", columns())).map(drop)).unwrap();
    let other = db.begin().unwrap();
    db.transact(|tx| tx.create_table(&TableDef::new("y", columns())).map(drop)).unwrap();
    other.abort().unwrap();
    beside_a_sweep(&disk, &db, 8, || {
        insert(&db, "t", 60_000, 60_001);
        db.transact(|tx| tx.drop_table("t")).unwrap();
    });
    db.sync().unwrap();
    drop(db);
    let db = reopened(&disk, checkpoint);
    assert!(db.table("t").is_err());
    db.table("x").unwrap();
}

/// A table of many columns, whose rows in `rialto_columns` lie in two segments.
fn a_table_whose_columns_lie_in_two_segments(checkpoint: Checkpointing) {
    let (disk, db) = opened(options(checkpoint));
    let wide =
        |n: usize| (0..n).map(|n| Column::new(format!("column_{n}"), ColumnType::Int4)).collect::<Vec<_>>();
    create(&db, "big");
    for n in 0..20 {
        insert(&db, "big", n * 2000, (n + 1) * 2000);
    }
    // A table may have 1,600 columns. A few hundred tables with a dozen columns also fill a segment, and one of them
    // then lies in two.
    let many = wide(1600);
    db.transact(|tx| {
        let table = tx.create_table(&TableDef::new("t", many.clone()).with_primary_key(&["column_0"]))?;
        let row: Vec<Value> = (0..1600).map(Value::Int4).collect();
        tx.insert(&table, &row)
    })
    .unwrap();
    beside_a_sweep(&disk, &db, 8, || {
        let row: Vec<Value> = (1..1601).map(Value::Int4).collect();
        db.transact(|tx| {
            let table = tx.table("t")?;
            tx.insert(&table, &row)
        })
        .unwrap();
        db.transact(|tx| tx.drop_table("t")).unwrap();
    });
    db.sync().unwrap();
    drop(db);
    let db = reopened(&disk, checkpoint);
    assert!(db.table("t").is_err());
    assert_eq!(db.table("big").unwrap().rows_estimate(), 40_000);
}

/// An index is dropped and made again under its name.
fn an_index_that_is_made_again(checkpoint: Checkpointing) {
    // At different progress of the sweep in the segments of the system, and of the table.
    for at in [0, 1, 2, 3, 6] {
        let (disk, db) = opened(options(checkpoint));
        create(&db, "t");
        (0..4).for_each(|n| insert(&db, "t", n * 2000, (n + 1) * 2000));
        db.transact(|tx| tx.create_index("t", "t_a", &["a"], false)).unwrap();
        beside_a_sweep(&disk, &db, at, || {
            for _ in 0..3 {
                db.transact(|tx| tx.drop_index("t_a")).unwrap();
                db.transact(|tx| tx.create_index("t", "t_a", &["a"], false)).unwrap();
            }
        });
        db.sync().unwrap();
        drop(db);
        let db = reopened(&disk, checkpoint);
        let table = db.table("t").unwrap();
        assert_eq!(
            (table.rows_estimate(), table.schema().indexes().len()),
            (8000, 1),
            "{checkpoint:?}, {at}"
        );
    }
}

/// The storage of a dropped table goes to a system table, ahead of the sweep. The copy must not have rows of a later
/// catalog there.
fn a_segment_that_a_system_table_takes_into_use(checkpoint: Checkpointing) {
    let (disk, db) = opened(options(checkpoint));
    for (name, rows) in [("first", 40_000), ("goes", 20_000)] {
        create(&db, name);
        (0..rows).step_by(2000).for_each(|from| insert(&db, name, from, from + 2000));
    }
    db.transact(|tx| tx.drop_table("goes")).unwrap();
    // Another context, so that DDL beside it takes segments of its own.
    let other = db.begin().unwrap();
    beside_a_sweep(&disk, &db, 8, || {
        create(&db, "made");
        db.transact(|tx| {
            let table = tx.table("made")?;
            tx.truncate(&table)
        })
        .unwrap();
        insert(&db, "made", 0, 10);
    });
    other.abort().unwrap();
    db.sync().unwrap();
    drop(db);
    let db = reopened(&disk, checkpoint);
    assert_eq!(db.table("first").unwrap().rows_estimate(), 40_000, "{checkpoint:?}");
    assert_eq!(db.table("made").unwrap().rows_estimate(), 10, "{checkpoint:?}");
}

/// DDL between the copy of the catalog and the redo start waits: it is after the redo start, or in the copy. Nothing is
/// kept in memory here, so the sweep is held at an image of the catalog, when some others are copied and some are not.
fn ddl_while_the_catalog_is_copied(checkpoint: Checkpointing) {
    // The system tables have the first four segments.
    for at in 0..4 {
        let (disk, db) = opened(Options { snapshot_bytes_max: Some(0), ..options(checkpoint) });
        create(&db, "t");
        insert(&db, "t", 0, 2000);
        std::thread::scope(|scope| {
            let mut ddl = None;
            beside_a_sweep(&disk, &db, at, || {
                let made = ddl.insert(scope.spawn(|| {
                    db.transact(|tx| tx.drop_table("t")).unwrap();
                    create(&db, "made");
                    insert(&db, "made", 0, 10);
                }));
                // It waits for this sweep. If it did not, it would soon be done.
                let end = Instant::now() + Duration::from_millis(50);
                while !made.is_finished() && Instant::now() < end {
                    std::thread::yield_now();
                }
            });
        });
        db.sync().unwrap();
        drop(db);
        let db = reopened(&disk, checkpoint);
        assert!(db.table("t").is_err(), "{checkpoint:?}, {at}");
        assert_eq!(db.table("made").unwrap().rows_estimate(), 10, "{checkpoint:?}, {at}");
    }
}

/// A transaction with DDL takes room for its rows while the catalog is copied, and changes these segments after the
/// cut. No snapshot of them is kept: the copy has the catalog already, and no sweep would take the snapshots, so that
/// commits which wait for room would wait for good.
fn ddl_behind_a_cut_keeps_no_segments(checkpoint: Checkpointing) {
    let (disk, db) = opened(Options { snapshot_bytes_max: Some(0), ..options(checkpoint) });
    create(&db, "t");
    (0..20).for_each(|n| insert(&db, "t", n * 2000, (n + 1) * 2000));
    disk.gate.set(3 * SEGMENT);
    let report = std::thread::scope(|scope| {
        let sweep = scope.spawn(|| db.checkpoint());
        disk.gate.wait_until_reached();
        let gate = &disk.gate;
        let stepper = scope.spawn(move || {
            // By then the rows of the DDL have their room, as a rule, and it waits.
            std::thread::sleep(Duration::from_millis(50));
            // On to the users' segments, after the cut.
            gate.set(4 * SEGMENT);
            gate.wait_until_reached();
        });
        // By the session that made the first table, so that its rows lie in the same segments.
        create(&db, "made");
        stepper.join().unwrap();
        disk.gate.set(u64::MAX);
        sweep.join().unwrap().unwrap()
    });
    assert_eq!(report.snapshot_bytes, 0, "{checkpoint:?}");
    let table = db.table("t").unwrap();
    let report = beside_a_sweep(&disk, &db, 4, || {
        assert!(db.transact(|tx| tx.modify(&table, 39_999, |fields| fields.add(1, 1).map(drop))).unwrap());
    });
    assert!(report.snapshot_bytes > 0, "{checkpoint:?}: the test's own premise");
}

/// A checkpoint fails after it has taken the catalog, or while it does: the next one to the same copy has the catalog
/// whole.
#[test]
fn a_checkpoint_that_failed_leaves_the_catalog_to_the_next() {
    for (snapshot_bytes_max, kind) in
        [(None, FaultKind::Write), (None, FaultKind::Sync), (Some(0), FaultKind::Write)]
    {
        for nth in 0.. {
            let faulty = FaultyDisk::new(Random::seed_from_environment());
            let options = || Options { snapshot_bytes_max, ..options(Checkpointing::None) };
            let db = Database::open_on(faulty.clone(), options()).unwrap();
            create(&db, "t");
            for n in 0..2 {
                insert(&db, "t", n, n + 1);
                assert!(!db.checkpoint().unwrap().skipped, "both copies have the catalog");
            }
            create(&db, "made");
            insert(&db, "made", 0, 10);
            faulty.fail(kind, "backup", nth);
            let failed = db.checkpoint().is_err();
            faulty.mend();
            insert(&db, "made", 10, 20);
            assert!(!db.checkpoint().unwrap().skipped);
            faulty.crash();
            drop(db);
            let about = format!("{snapshot_bytes_max:?}, {kind:?}, {nth}");
            let db = Database::open_on(faulty.restart(), options())
                .unwrap_or_else(|error| panic!("{about}: {error}"));
            let made = db.table("made").unwrap_or_else(|error| panic!("{about}: {error}"));
            assert_eq!((made.rows_estimate(), db.table("t").unwrap().rows_estimate()), (20, 2), "{about}");
            if !failed {
                assert!(nth > 0, "{about}: the test's own premise");
                break;
            }
        }
    }
}

#[test]
fn ddl_waits_while_the_catalog_is_copied() {
    Checkpointing::ALL.into_iter().for_each(ddl_while_the_catalog_is_copied);
}

#[test]
fn ddl_beside_copy_on_update_keeps_no_segments() {
    [Checkpointing::ActionCopyOnUpdate, Checkpointing::TransactionCopyOnUpdate]
        .into_iter()
        .for_each(ddl_behind_a_cut_keeps_no_segments);
}

#[test]
fn a_system_table_takes_a_segment_into_use() {
    HELD.into_iter().for_each(a_segment_that_a_system_table_takes_into_use);
}

#[test]
fn a_table_that_got_its_key_later_is_dropped() {
    HELD.into_iter().for_each(a_table_that_got_its_key_later);
}

#[test]
fn a_table_whose_columns_lie_in_two_segments_is_dropped() {
    HELD.into_iter().for_each(a_table_whose_columns_lie_in_two_segments);
}

#[test]
fn an_index_is_dropped_and_made_again_under_its_name() {
    HELD.into_iter().for_each(an_index_that_is_made_again);
}
