//! Action logging beside fuzzy sweeps: a recovered row has each increment once, wherever the sweep has met the row and
//! whatever else the transaction did to it. (The argument is in [`crate::recovery`].)

use super::sweep::moved_past;
use super::*;
use crate::{Fields, Logging};

fn actions() -> Options {
    Options { logging: Logging::Action, ..options() }
}

fn add(tx: &mut Transaction, table: &Table, id: i32, delta: i64) -> Result<()> {
    let found = tx.modify(table, id, |fields: &mut Fields<'_>| fields.add(1, delta).map(drop))?;
    assert!(found, "row {id} is there");
    Ok(())
}

/// Everything that a transaction can do to a row beside an increment of it.
fn mixtures(tx: &mut Transaction, table: &Table, from: i32) -> Result<()> {
    add(tx, table, from, 5)?;
    // Two increments.
    add(tx, table, from + 1, 5)?;
    add(tx, table, from + 1, 6)?;
    // With a value set before, after, and around them.
    set_n(tx, table, from + 2, 100)?;
    add(tx, table, from + 2, 1)?;
    add(tx, table, from + 3, 1)?;
    set_n(tx, table, from + 3, 200)?;
    add(tx, table, from + 4, 1)?;
    set_n(tx, table, from + 4, 300)?;
    add(tx, table, from + 4, 1)?;
    // Deleted, and inserted again.
    add(tx, table, from + 5, 1)?;
    assert!(tx.delete(table, from + 5)?);
    add(tx, table, from + 6, 1)?;
    assert!(tx.delete(table, from + 6)?);
    tx.insert(table, &[Value::Int4(from + 6), Value::Int8(40), text(7_600)])?;
    add(tx, table, from + 6, 2)?;
    // With another field in the same operation, and with a field that makes the row move.
    assert!(tx.modify(table, from + 7, |fields| {
        fields.add(1, 3)?;
        fields.add(1, 4)?;
        fields.set(2, &text(10))
    })?);
    add(tx, table, from + 8, 1)?;
    tx.update(table, from + 8, &[(2, text(8_900))]).map(drop)?;
    add(tx, table, from + 8, 1)?;
    // Taken back to a savepoint.
    let savepoint = tx.savepoint();
    add(tx, table, from + 9, 1_000)?;
    tx.rollback_to(&savepoint)?;
    add(tx, table, from + 9, 1)
}

/// A half-applied commit keeps the redo start before transactions that the copy has whole: redo meets rows with their
/// own places, and with later ones.
#[test]
fn increments_that_the_copy_has_are_not_done_again() {
    let faulty = FaultyDisk::new(seed());
    let (db, table) = filled_with(faulty.clone(), actions());
    let (low, high) = (record_of(&table, 0), record_of(&table, ROWS - 1));
    tick(&db);
    let core = db.core();
    let place = core.commits.log.place().next();
    std::thread::scope(|scope| {
        let latched = core.storage.memory.segments.latch(low.segment());
        let committer = scope.spawn(|| {
            commit(&db, |tx| {
                add(tx, &table, ROWS - 1, 7)?;
                add(tx, &table, 0, 7)
            })
        });
        until("the first write is applied", || core.storage.memory.segments.lsn(high) == place);
        commit(&db, |tx| mixtures(tx, &table, 10));
        commit(&db, |tx| mixtures(tx, &table, 25));
        commit(&db, |tx| (25..30).try_for_each(|id| add(tx, &table, id, 1)));
        assert_eq!(db.checkpoint().unwrap().redo_start, place, "the test's own premise");
        // Only the log has these.
        commit(&db, |tx| (25..30).try_for_each(|id| add(tx, &table, id, 10)));
        drop(latched);
        committer.join().unwrap();
    });
    let expected = rows(&db);
    assert_eq!([10, 11, 12, 13, 14].map(|id| n_of(&expected, id)), [5, 11, 101, 200, 301]);
    assert_eq!([16, 17, 18, 19].map(|id| n_of(&expected, id)), [42, 7, 2, 1]);
    let (_, db) = crashed(&faulty, db);
    assert_eq!(db.recovery().unwrap().redo_start, place, "the test's own premise");
    assert_eq!(rows(&db), expected);
}

/// The same from the log alone, twice (I8), with one thread and with several.
#[test]
fn increments_are_redone_from_the_log_alone() {
    let faulty = FaultyDisk::new(seed());
    let (db, table) = filled_with(faulty.clone(), actions());
    for _ in 0..3 {
        commit(&db, |tx| (20..30).try_for_each(|id| add(tx, &table, id, -3)));
    }
    commit(&db, |tx| mixtures(tx, &table, 20));
    db.sync().unwrap();
    let expected = rows(&db);
    let (disk, db) = crashed(&faulty, db);
    assert_eq!(rows(&db), expected);
    disk.crash();
    drop(db);
    let disk = disk.restart();
    let single = Options { recovery_threads: 1, ..actions() };
    assert_eq!(rows(&Database::open_on(disk, single).unwrap()), expected);
}

/// A row is added to and moves past the sweep, so that the copy has it twice, or nowhere.
#[test]
fn a_row_that_moves_past_the_sweep_between_increments_has_each_once() {
    for forward in [false, true] {
        let change = |tx: &mut Transaction, table: &Table, id| add(tx, table, id, 1);
        let moves = |db: &Database, table: &Table, row: i32| {
            commit(db, |tx| add(tx, table, row, 10));
            // The text is longer than the row's slot, and than the rest of its segment.
            commit(db, |tx| {
                add(tx, table, row, 100)?;
                tx.update(table, row, &[(2, text(8_900))]).map(drop)
            });
            commit(db, |tx| add(tx, table, row, 1_000));
        };
        let (faulty, db, table, row) = moved_past(forward, actions(), change, moves);
        commit(&db, |tx| add(tx, &table, row, 10_000));
        db.sync().unwrap();
        let expected = rows(&db);
        assert_eq!(n_of(&expected, row), 11_111);
        let (_, db) = crashed(&faulty, db);
        assert_eq!(rows(&db), expected);
    }
}
