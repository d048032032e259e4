//! Statements of a transaction that its caller runs, each in two stages.

use super::*;

/// What a handle's transaction fetches ahead its statement finds in memory; nothing else has happened.
#[test]
fn statements_of_a_handle_are_fetched_ahead() {
    for (name, work) in WORKS {
        let (db, table) = cold(TwoStage::Tste);
        db.transact(|tx| tx.get(&table, 0)).unwrap();
        let before = account(&db);
        let mut tx = db.begin().unwrap();
        tx.insert(&table, &row(ROWS + 1)).unwrap();
        let savepoint = tx.savepoint();
        tx.fetch_ahead(&[&table], |tx| work(tx, &table).unwrap());
        tx.rollback_to(&savepoint).unwrap();
        assert!(db.metrics().pages.kept > 0, "{name}");
        let (reads, keys) = (db.metrics().pages.reads, Scan::all());
        work(&mut tx, &table).unwrap();
        assert_eq!(db.metrics().pages.reads, reads, "{name}: all is there");
        tx.fetch_ahead(&[&table], |tx| {
            tx.delete(&table, ROWS - 2).unwrap();
            panic!("in a fetch stage");
        });
        assert!(tx.get(&table, ROWS - 2).unwrap().is_some(), "{name}: nothing of it was kept");
        tx.rollback_to(&savepoint).unwrap();
        assert_eq!(tx.rows(&table, &keys).unwrap().count(), ROWS as usize / 2 + 1, "{name}");
        tx.commit().unwrap();
        let met = account(&db);
        assert_eq!(met.executions, before.executions + 2, "{name}: {met:?}");
        assert_eq!(db.metrics().pages.kept, 0, "{name}");
        db.close().unwrap();
    }
}

/// A fetch stage amid a transaction waits for no lock, and leaves the transaction as it was, whatever the statement meets.
#[test]
fn a_fetch_stage_of_a_handle_takes_nothing_from_its_transaction() {
    let (db, table) = cold(TwoStage::Tste);
    db.transact(|tx| tx.get(&table, 0)).unwrap();
    let mut other = db.begin().unwrap();
    assert!(other.delete(&table, 4 * FAR).unwrap());
    let mut tx = db
        .begin_with(&TxOptions { lock_timeout: Some(Duration::from_millis(50)), ..TxOptions::default() })
        .unwrap();
    assert!(tx.delete(&table, 0).unwrap());
    let ended = Cell::new(false);
    tx.fetch_ahead(&[&table], |tx| {
        assert!(tx.get(&table, 4 * FAR).unwrap().is_some(), "without a lock");
        assert!(tx.get(&table, 0).unwrap().is_none(), "its own write is seen");
        tx.insert(&table, &row(0)).unwrap();
        let columns = vec![Column::new("n", ColumnType::Int4)];
        assert!(tx.create_table(&TableDef::new("new", columns)).is_err(), "it would need locks");
        while tx.get(&table, 2).is_ok() {}
        ended.set(true);
    });
    assert!(ended.get(), "a panic in there is dropped");
    let waited = tx.get(&table, 4 * FAR);
    assert!(matches!(waited, Err(Error::LockTimeout { .. })), "its lock policy is its own again: {waited:?}");
    assert!(tx.get(&table, 0).unwrap().is_none());
    other.abort().unwrap();
    assert!(tx.get(&table, 4 * FAR).unwrap().is_some());
    tx.commit().unwrap();
    assert!(db.read(|tx| tx.get(&table, 0)).unwrap().is_none());
    // Where there are stages already, and where there is nothing to fetch.
    let runs = Cell::new(0);
    db.transact(|tx| {
        tx.fetch_ahead(&[&table], |_| runs.set(runs.get() + 1));
        Ok(())
    })
    .unwrap();
    let few = TableDef::new("few", vec![Column::new("id", ColumnType::Int4)]).with_primary_key(&["id"]);
    let few = db.transact(|tx| tx.create_table(&few)).unwrap();
    let mut tx = db.begin().unwrap();
    tx.fetch_ahead(&[&few], |_| runs.set(runs.get() + 1));
    tx.commit().unwrap();
    assert_eq!(runs.get(), 0);
    db.close().unwrap();
}

/// A fetch stage rolls back to no savepoint of the transaction's own.
#[test]
fn savepoints_of_the_transaction_are_out_of_reach_of_a_fetch_stage() {
    let (db, table) = cold(TwoStage::Tste);
    db.transact(|tx| tx.get(&table, 0)).unwrap();
    let mut tx = db.begin().unwrap();
    let savepoint = tx.savepoint();
    assert!(tx.delete(&table, 0).unwrap());
    let ended = Cell::new(false);
    tx.fetch_ahead(&[&table], |tx| {
        assert!(matches!(tx.rollback_to(&savepoint), Err(Error::NoSuchSavepoint { .. })));
        let own = tx.savepoint();
        assert!(tx.delete(&table, 2).unwrap());
        tx.rollback_to(&own).unwrap();
        assert!(tx.get(&table, 2).unwrap().is_some());
        ended.set(true);
    });
    assert!(ended.get(), "a panic in there is dropped");
    assert!(tx.get(&table, 0).unwrap().is_none(), "its own write is still there");
    assert!(db.metrics().pages.kept > 0);
    tx.end_fetched();
    assert_eq!(db.metrics().pages.kept, 0);
    tx.rollback_to(&savepoint).unwrap();
    assert!(tx.get(&table, 0).unwrap().is_some());
    tx.commit().unwrap();
    db.close().unwrap();
}

/// What a statement does in its fetch stage to the transaction itself is dropped, too.
#[test]
fn a_statement_neither_ends_its_fetch_stage_nor_chooses_for_its_transaction() {
    let (db, table) = cold(TwoStage::Tste);
    db.transact(|tx| tx.get(&table, 0)).unwrap();
    let before = account(&db);
    let mut tx = db.begin().unwrap();
    let durability = tx.durability();
    let (nested, ended, inner) = (Cell::new(0), Cell::new(false), Cell::new(None));
    tx.fetch_ahead(&[&table], |tx| {
        assert!(tx.get(&table, 2 * FAR).unwrap().is_some());
        let kept = db.metrics().pages.kept;
        tx.end_fetched();
        assert_eq!(db.metrics().pages.kept, kept, "it goes on");
        tx.fetch_ahead(&[&table], |_| nested.set(1));
        assert!(tx.get(&table, 40 * FAR).unwrap().is_some());
        assert!(db.metrics().pages.kept > kept, "and keeps what it reads");
        assert!(tx.delete(&table, 0).unwrap());
        inner.set(Some(tx.savepoint()));
        tx.set_lock_policy(LockPolicy::Refuse);
        tx.set_durability(Durability::Memory);
        tx.choose(&TxOptions { read_only: true, ..TxOptions::default() }).unwrap();
        tx.canceller().cancel();
        tx.clear_cancellation();
        assert_eq!(tx.check(), Err(Error::Cancelled));
        ended.set(true);
    });
    assert!(ended.get(), "a panic in there is dropped");
    assert_eq!(nested.get(), 0, "there is one stage at a time");
    assert_eq!(tx.check(), Err(Error::Cancelled), "the cancel is not lost");
    tx.clear_cancellation();
    assert_eq!(tx.durability(), durability);
    let inner = inner.take().unwrap();
    assert!(matches!(tx.rollback_to(&inner), Err(Error::NoSuchSavepoint { .. })));
    let reads = db.metrics().pages.reads;
    for key in [0, 2 * FAR, 40 * FAR] {
        assert!(tx.get(&table, key).unwrap().is_some());
    }
    assert_eq!(db.metrics().pages.reads, reads, "all is in memory");
    assert!(tx.update(&table, 2 * FAR, &[(1, Value::Int4(1))]).unwrap(), "it may write");
    tx.commit().unwrap();
    let met = account(&db);
    assert_eq!((met.executions, met.conversions), (before.executions + 1, before.conversions + 1), "{met:?}");
    assert_eq!(met.lock_held_io_waits, before.lock_held_io_waits, "{met:?}");
    assert_eq!(db.metrics().pages.kept, 0);
    db.close().unwrap();
}
