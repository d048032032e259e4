//! Sweeps that meet half-applied commits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::hooked::{About, HookedDisk};
use super::*;
use crate::Error;
use crate::io::FaultKind;
use crate::store::memory::segments::Copy;
use crate::store::memory::{SEGMENT_BYTES, SegmentId};

/// I5, the redo start: a commit has its place and stays half applied during a whole checkpoint. The half that is not
/// applied is in no segment that the sweep copies, so only redo from the commit's own place has it.
#[test]
fn a_commit_that_is_half_applied_through_a_whole_checkpoint_is_redone() {
    let faulty = FaultyDisk::new(seed());
    let (db, table) = filled(faulty.clone());
    let (low, high) = (record_of(&table, 0), record_of(&table, ROWS - 1));
    let core = db.core();
    let segments = &core.storage.memory.segments;
    assert_ne!(low.segment(), high.segment());
    assert!(!segments.is_dirty(low.segment(), Copy::Ping) && !segments.is_dirty(low.segment(), Copy::Pong));
    // Without it the redo start would be the one in force, and the checkpoint would have nothing to do.
    tick(&db);
    let place = core.commits.log.place().next();
    std::thread::scope(|scope| {
        let latched = segments.latch(low.segment());
        let committer = scope.spawn(|| {
            commit(&db, |tx| {
                set_n(tx, &table, ROWS - 1, 7)?;
                set_n(tx, &table, 0, 7)
            })
        });
        until("the first write is applied", || segments.lsn(high) == place);
        assert!(segments.lsn(low) < place, "the second is not");
        let report = db.checkpoint().unwrap();
        assert!(!report.skipped);
        assert_eq!(report.redo_start, place, "at the oldest packet in flight");
        assert!(segments.lsn(low) < place, "still not: the sweep has copied half of the commit");
        drop(latched);
        assert_eq!(committer.join().unwrap(), place);
    });
    let (_, db) = crashed(&faulty, db);
    assert_eq!(db.recovery().unwrap().redo_start, place);
    let rows = rows(&db);
    assert_eq!((n_of(&rows, 0), n_of(&rows, ROWS - 1)), (7, 7));
}

/// I5, the clearance: the sweep copies one row of a commit and has passed the other, and the log fails before it holds
/// the commit. So the checkpoint must not take effect, and after the crash the commit is there whole or not at all.
#[test]
fn a_copy_with_half_of_a_commit_that_the_log_lost_never_takes_effect() {
    let base = seed();
    for round in 0..20 {
        let about = format!("RIALTO_SEED={base}, round {round}");
        let faulty = FaultyDisk::new(base.wrapping_add(round));
        let disk = HookedDisk::new(faulty.clone());
        let (db, table) = filled(disk.clone());
        // The segments of both rows are dirty, so the sweep copies them.
        commit(&db, |tx| (0..ROWS).try_for_each(|id| set_n(tx, &table, id, 1)));
        db.sync().unwrap();
        let (low, high) = (record_of(&table, 0), record_of(&table, ROWS - 1));
        let copied = Arc::new(Mutex::new(None));
        let hook = {
            let (db, table, faulty, copied) = (db.clone(), table.clone(), faulty.clone(), copied.clone());
            move |file: &str, about: About| {
                let About::Write(offset) = about else { return };
                if file.starts_with("backup") && offset == at(low.segment()) {
                    let kind = if round % 2 == 0 { FaultKind::Write } else { FaultKind::Sync };
                    faulty.fail_always(kind, "log-0", 0);
                    let lsn = commit(&db, |tx| {
                        set_n(tx, &table, 0, 9)?;
                        set_n(tx, &table, ROWS - 1, 9)
                    });
                    *copied.lock() = Some(lsn);
                }
            }
        };
        disk.before(hook);
        let error = db.checkpoint().unwrap_err();
        disk.unhook();
        let lsn: Lsn = copied.lock().expect("the sweep copied the row");
        assert_eq!(db.core().storage.memory.segments.lsn(high), lsn, "the test's own premise");
        assert!(high.segment() > low.segment(), "the test's own premise");
        assert!(
            matches!(&error, Error::Stopped { cause, .. } if cause.contains("log-0")),
            "{about}: {error}"
        );
        let (_, db) = crashed(&faulty, db);
        let rows = rows(&db);
        let found = (n_of(&rows, 0), n_of(&rows, ROWS - 1));
        assert!(found == (1, 1) || found == (9, 9), "{about}: half a commit, {found:?}");
        assert!((1..ROWS - 1).all(|id| n_of(&rows, id) == 1), "{about}");
    }
}

pub(super) fn at(segment: SegmentId) -> u64 {
    u64::from(segment.0) * SEGMENT_BYTES as u64
}

/// A row that `moves` while the sweep is between its old slot and its new one: from behind the sweep to before it, so
/// that the copy has the row nowhere, or `forward`, so that the copy has it twice. Before that, `change` changes all
/// rows.
pub(super) fn moved_past(
    forward: bool,
    options: Options,
    change: impl Fn(&mut Transaction, &Table, i32) -> Result<()>,
    moves: impl Fn(&Database, &Table, i32) + Send + Sync + 'static,
) -> (Arc<FaultyDisk>, Database, Table, i32) {
    let faulty = FaultyDisk::new(seed());
    let disk = HookedDisk::new(faulty.clone());
    let (db, table) = filled_with(disk.clone(), options);
    // All segments are dirty. Room for a longer row is before the sweep, or behind all others.
    let row = if forward { 1 } else { 30 };
    db.transact(|tx| {
        if !forward {
            assert!(tx.delete(&table, 0)?);
        }
        (1..ROWS).try_for_each(|id| change(tx, &table, id))
    })
    .unwrap();
    let (before, watch, last) = (record_of(&table, row), record_of(&table, 10), record_of(&table, ROWS - 1));
    let moved = Arc::new(AtomicBool::new(false));
    let hook = {
        let (db, table, moved) = (db.clone(), table.clone(), moved.clone());
        move |file: &str, about: About| {
            if file.starts_with("backup") && about == About::Write(at(watch.segment())) {
                moves(&db, &table, row);
                moved.store(true, Ordering::Relaxed);
            }
        }
    };
    disk.before(hook);
    assert!(!db.checkpoint().unwrap().skipped);
    disk.unhook();
    assert!(moved.load(Ordering::Relaxed), "the test's own premise");
    let after = record_of(&table, row);
    let passed = if forward {
        before.segment() < watch.segment() && after.segment() > watch.segment()
    } else {
        before.segment() > watch.segment() && after.segment() < watch.segment()
    };
    assert!(passed, "the test's own premise: from {before:?} to {after:?}, the sweep at {watch:?}");
    assert!(after.segment() <= last.segment(), "and the sweep comes there");
    (faulty, db, table, row)
}

#[test]
fn a_row_that_moves_past_the_sweep_is_there_once() {
    for forward in [false, true] {
        let change = |tx: &mut Transaction, table: &Table, id| set_n(tx, table, id, 1);
        let moves = |db: &Database, table: &Table, row: i32| {
            // The text is longer than the row's slot, and than the rest of its segment.
            commit(db, |tx| tx.update(table, row, &[(1, Value::Int8(2)), (2, text(8_900))]).map(drop));
        };
        let (faulty, db, ..) = moved_past(forward, options(), change, moves);
        let expected = rows(&db);
        let (_, db) = crashed(&faulty, db);
        assert_eq!(rows(&db), expected);
    }
}

/// I3's bound: a commit at level 1 without a waiter is on disk within the flush interval and two group writes, the one
/// in progress and its own. This is counted, not timed: the group in progress is held up, and no other thread asks for
/// a write.
#[test]
fn a_level_1_commit_is_in_the_group_after_the_one_in_flight() {
    let faulty = FaultyDisk::new(seed());
    let disk = HookedDisk::new(faulty.clone());
    let options = Options { memory_flush_interval: Duration::from_millis(1), ..options() };
    let db = Database::open_on(disk.clone(), options).unwrap();
    let table = db
        .transact(|tx| tx.create_table(&TableDef::new("t", vec![Column::new("n", ColumnType::Int4)])))
        .unwrap();
    // The disk does not hold yet: this is the bound itself.
    let written = || db.metrics().log.packets;
    let packets = written();
    db.transact_with(&level_1(), |tx| tx.insert(&table, &[Value::Int4(1)])).unwrap();
    until("it has no waiter, and it is written", || written() > packets);

    let (held, open) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let hook = {
        let (held, open) = (held.clone(), open.clone());
        move |file: &str, about: About| {
            if file.starts_with("log-0") && matches!(about, About::Write(_)) {
                held.fetch_add(1, Ordering::SeqCst);
                until("the disk goes on", || open.load(Ordering::SeqCst));
            }
        }
    };
    disk.before(hook);
    let (packets, groups) = (written(), db.metrics().log.groups);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| db.transact(|tx| tx.insert(&table, &[Value::Int4(2)])));
        until("a group is being written", || held.load(Ordering::SeqCst) == 1);
        for n in 3..10 {
            db.transact_with(&level_1(), |tx| tx.insert(&table, &[Value::Int4(n)])).unwrap();
        }
        assert_eq!(written(), packets, "answered at level 1 while the disk stood still");
        open.store(true, Ordering::SeqCst);
        first.join().unwrap().unwrap();
        until("all are written", || written() == packets + 8);
    });
    assert_eq!(db.metrics().log.groups, groups + 2, "the group in flight, and the next one");
    let (_, db) = crashed(&faulty, db);
    let table = db.table("t").unwrap();
    assert_eq!(db.read(|tx| tx.count(&table)).unwrap(), 9);
}

/// I5: a dirty bit that a sweep has cleared is set again when the sweep ends by a panic, as by an error. Otherwise the
/// next copy, which takes effect, would lack what the panic kept from being written.
#[test]
fn a_panic_amid_a_sweep_loses_no_change() {
    let strategies = [
        Checkpointing::Fuzzy,
        Checkpointing::ActionCopyOnUpdate,
        Checkpointing::TransactionCopyOnUpdate,
        Checkpointing::ActionBlackWhite,
        Checkpointing::TransactionBlackWhite,
    ];
    for (checkpoint, at_sync) in strategies.into_iter().flat_map(|it| [(it, false), (it, true)]) {
        let faulty = FaultyDisk::new(seed());
        let disk = HookedDisk::new(faulty.clone());
        let checkpoint_interval = Duration::from_secs(3600);
        let (db, table) = filled_with(disk.clone(), Options { checkpoint, checkpoint_interval, ..options() });
        for id in [0, 20, ROWS - 1] {
            db.transact(|tx| set_n(tx, &table, id, 7)).unwrap();
        }
        disk.before(move |file: &str, about: About| {
            assert!(!file.starts_with("backup") || (about == About::Sync) != at_sync, "put in by the test");
        });
        let panicked = catch_unwind(AssertUnwindSafe(|| db.checkpoint()));
        assert!(panicked.is_err(), "{checkpoint:?}: the test's own premise");
        disk.unhook();
        tick(&db);
        assert!(!db.checkpoint().unwrap().skipped, "{checkpoint:?}");
        let (_, db) = crashed(&faulty, db);
        assert!(db.recovery().unwrap().fell_back.is_none(), "{checkpoint:?}");
        let rows = rows(&db);
        for id in [0, 20, ROWS - 1] {
            assert_eq!(n_of(&rows, id), 7, "{checkpoint:?}, row {id}");
        }
    }
}
