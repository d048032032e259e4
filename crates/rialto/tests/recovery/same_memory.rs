//! A database opens again with the memory that it was used with, whatever its recovery has to redo, and with less when
//! it has less in it; `check` and `inspect` have the same result.

use std::sync::Arc;
use std::time::Duration;

use crate::common::gated::disk;
use rialto::checkpoint::home::HomeError;
use rialto::io::{Disk, MemoryDisk};
use rialto::recovery::check::check;
use rialto::recovery::inspect::inspect;
use rialto::row::{Column, ColumnType, Value};
use rialto::{Checkpointing, Database, Durability, Error, Options, Result, TableDef, Transaction, TxOptions};

const MEMORY: u64 = 8 << 20;

fn options() -> Options {
    Options {
        memory_bytes: MEMORY,
        checkpoint: Checkpointing::None,
        checkpoint_interval: Duration::from_secs(3600),
        recovery_threads: 2,
        ..Options::default()
    }
}

fn create(tx: &mut Transaction, name: &str) -> Result<rialto::Table> {
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
    tx.create_table(&TableDef::new(name, columns).with_primary_key(&["id"]))
}

/// A row of about 1 KB.
fn row(id: i32) -> [Value; 2] {
    [Value::Int4(id), Value::Text("x".repeat(1000))]
}

fn at_level_1<T>(db: &Database, body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
    db.transact_with(&TxOptions { durability: Some(Durability::Memory), ..TxOptions::default() }, body)
}

/// Each transaction inserts a row and deletes the oldest one, so the number of rows is constant. During a fuzzy sweep
/// all of them are replaced twice: its copy has old ones and new ones.
fn a_queue_beside_a_sweep(rows: i32) -> Arc<dyn Disk> {
    let disk = disk();
    let db = Database::open_on(disk.disk.clone(), options()).unwrap();
    let table = db.transact(|tx| create(tx, "queue")).unwrap();
    (0..rows).for_each(|id| at_level_1(&db, |tx| tx.insert(&table, &row(id))).unwrap());
    disk.gate.set(0);
    std::thread::scope(|scope| {
        let sweep = scope.spawn(|| db.checkpoint());
        disk.gate.wait_until_reached();
        for id in rows..3 * rows {
            at_level_1(&db, |tx| {
                assert!(tx.delete(&table, id - rows)?);
                tx.insert(&table, &row(id))
            })
            .unwrap();
        }
        disk.gate.set(u64::MAX);
        sweep.join().unwrap().unwrap();
    });
    db.close().unwrap();
    disk.disk
}

#[test]
fn a_queue_opens_again_and_is_sound() {
    for rows in [4_300, 6_000] {
        let disk = a_queue_beside_a_sweep(rows);
        let report = check(&disk, MEMORY, 2).unwrap();
        assert!(report.is_sound(), "{rows} rows: {report}");
        let text = inspect(&disk, MEMORY, 2).unwrap();
        assert!(text.contains("queue (table ") && text.contains(&format!("): {rows} rows in ")), "{text}");
        let db = Database::open_on(disk, options()).unwrap_or_else(|error| panic!("{rows} rows: {error}"));
        assert_eq!(db.table("queue").unwrap().rows_estimate(), rows as u64);
    }
}

/// The memory that a recovery takes only meanwhile is given back.
#[test]
fn other_tables_have_the_room_after_a_recovery_that_they_had_before() {
    for rows in [3_600, 4_300] {
        let db = Database::open_on(a_queue_beside_a_sweep(rows), options()).unwrap();
        let made = db.transact(|tx| {
            let table = create(tx, "other")?;
            (0..1000).try_for_each(|id| tx.insert(&table, &row(id)))
        });
        assert_eq!(made, Ok(()), "{rows} rows, and 1 MB in another table: {:?}", db.metrics().memory_used);
    }
}

/// The next copies and backups know what recovery has given back.
#[test]
fn copies_after_a_recovery_that_has_given_segments_back_are_whole() {
    let rows = 4_300;
    let disk = a_queue_beside_a_sweep(rows);
    for round in 0..3 {
        let db = Database::open_on(disk.clone(), options()).unwrap();
        let table = db.table("queue").unwrap();
        assert_eq!(table.rows_estimate(), rows as u64, "round {round}");
        let first = 2 * rows + round;
        at_level_1(&db, |tx| {
            assert!(tx.delete(&table, first)?);
            tx.insert(&table, &row(first + rows))
        })
        .unwrap();
        assert!(!db.checkpoint().unwrap().skipped);
        db.close().unwrap();
        let report = check(&disk, MEMORY, 2).unwrap();
        assert!(report.is_sound(), "round {round}: {report}");
    }
}

/// One table's rows are deleted, and another table gets their room: in the log, too.
#[test]
fn a_table_that_came_after_another_ones_rows_opens_again() {
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    for name in ["first", "second"] {
        let table = db.transact(|tx| create(tx, name)).unwrap();
        let put = |id| at_level_1(&db, |tx| tx.insert(&table, &row(id)));
        if name == "second" {
            (0..5_000).for_each(|id| put(id).unwrap());
            continue;
        }
        let filled = (0..).find(|&id| put(id).is_err()).unwrap();
        (0..filled).for_each(|id| assert!(at_level_1(&db, |tx| tx.delete(&table, id)).unwrap()));
        // It finds no room, and gives the empty segments back for it.
        let long = [Value::Int4(0), Value::Text("x".repeat(30_000))];
        at_level_1(&db, |tx| tx.insert(&table, &long)).unwrap();
        assert!(at_level_1(&db, |tx| tx.delete(&table, 0)).unwrap());
    }
    db.close().unwrap();
    let db = Database::open_on(disk, options()).unwrap();
    assert_eq!(["first", "second"].map(|name| db.table(name).unwrap().rows_estimate()), [0, 5_000]);
}

/// A database that has shrunk opens with less memory: its segments' numbers are high, and few are in use.
#[test]
fn what_is_left_of_a_larger_database_opens_with_less_memory() {
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    for (name, rows) in [("goes", 5_000), ("stays", 100)] {
        db.transact(|tx| {
            let table = create(tx, name)?;
            (0..rows).try_for_each(|id| tx.insert(&table, &row(id)))
        })
        .unwrap();
    }
    db.transact(|tx| tx.drop_table("goes")).unwrap();
    db.checkpoint().unwrap();
    db.close().unwrap();
    let less = || Options { memory_bytes: 4 << 20, ..options() };
    for round in 0..2 {
        let db = Database::open_on(disk.clone(), less()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(db.table("stays").unwrap().rows_estimate(), 100);
        let name = format!("new{round}");
        db.transact(|tx| {
            let table = create(tx, &name)?;
            (0..200).try_for_each(|id| tx.insert(&table, &row(id)))
        })
        .unwrap();
        db.checkpoint().unwrap();
        db.close().unwrap();
    }
    // With too little memory it is called neither damaged nor sound.
    let shared: Arc<dyn Disk> = disk;
    let refused = check(&shared, 256 << 10, 1);
    assert!(matches!(refused, Err(HomeError::Failed(Error::MemoryLimit { .. }))), "{refused:?}");
    let text = inspect(&shared, 256 << 10, 1).unwrap();
    assert!(text.contains("do not fit into 262144 bytes") && !text.contains("not recoverable"), "{text}");
}

/// Four transactions that are open at the same time insert rows in turn: the rows of each lie in segments of its own.
/// The rows of three of them are deleted, and another table gets their segments. Redo puts the rows of all four into
/// the same segments, so that none becomes empty.
#[test]
fn what_transactions_side_by_side_had_room_for_opens_again() {
    const ROUNDS: i32 = 200;
    const ROWS: i32 = 8;
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    let [table, other] = ["t", "other"].map(|name| db.transact(|tx| create(tx, name)).unwrap());
    let id = |client: i32, round: i32, nth: i32| client * 1_000_000 + round * ROWS + nth;
    for round in 0..ROUNDS {
        let mut open: Vec<_> = (0..4).map(|_| db.begin().unwrap()).collect();
        for (client, tx) in (0..).zip(&mut open) {
            (0..ROWS).for_each(|nth| tx.insert(&table, &row(id(client, round, nth))).unwrap());
        }
        // The last one first: so each client has the same context the next time.
        while let Some(tx) = open.pop() {
            tx.commit().unwrap();
        }
    }
    for (client, round) in (1..4).flat_map(|client| (0..ROUNDS).map(move |round| (client, round))) {
        at_level_1(&db, |tx| {
            (0..ROWS).try_for_each(|nth| {
                assert!(tx.delete(&table, id(client, round, nth))?);
                Ok(())
            })
        })
        .unwrap();
    }
    let others = (0..).take_while(|&id| at_level_1(&db, |tx| tx.insert(&other, &row(id))).is_ok()).count();
    assert!(others > 4_000, "{others}");
    db.close().unwrap();
    for recovery_threads in [1, 2, 4] {
        let options = Options { recovery_threads, ..options() };
        let db = Database::open_on(disk.clone(), options).unwrap();
        let rows = ["t", "other"].map(|name| db.table(name).unwrap().rows_estimate());
        assert_eq!(rows, [(ROUNDS * ROWS) as u64, others as u64], "{recovery_threads} threads");
        let (table, other) = (db.table("t").unwrap(), db.table("other").unwrap());
        db.transact(|tx| {
            for id in 0..ROUNDS * ROWS {
                assert!(tx.get(&table, id)?.is_some(), "{id}");
            }
            for id in 0..others as i32 {
                assert!(tx.get(&other, id)?.is_some(), "{id}");
            }
            Ok(())
        })
        .unwrap();
        db.close().unwrap();
    }
}

/// One transaction inserts a long row and one beside it many short ones: in segments of their own. The short ones are
/// deleted, and another table gets their segments. Redo puts a long row into each segment, and the free room between
/// them is too small for a long one.
#[test]
fn long_rows_beside_short_ones_that_went_open_again() {
    const ROUNDS: i32 = 100;
    const SHORT: i32 = 35;
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    let [table, other] = ["t", "other"].map(|name| db.transact(|tx| create(tx, name)).unwrap());
    let long = |id: i32| [Value::Int4(id), Value::Text("x".repeat(30_000))];
    let short = |round: i32, nth: i32| 1_000_000 + round * SHORT + nth;
    // Two further rounds have short rows only: so the last segment has no long one.
    for round in 0..ROUNDS + 2 {
        let (mut a, mut b) = (db.begin().unwrap(), db.begin().unwrap());
        if round < ROUNDS {
            b.insert(&table, &long(round)).unwrap();
        }
        (0..SHORT).for_each(|nth| a.insert(&table, &row(short(round, nth))).unwrap());
        // b first: each has the same context the next time, and the long row comes before the short ones in the log.
        b.commit().unwrap();
        a.commit().unwrap();
    }
    for round in 0..ROUNDS + 2 {
        at_level_1(&db, |tx| {
            (0..SHORT).try_for_each(|nth| {
                assert!(tx.delete(&table, short(round, nth))?);
                Ok(())
            })
        })
        .unwrap();
    }
    let others = (0..).take_while(|&id| at_level_1(&db, |tx| tx.insert(&other, &row(id))).is_ok()).count();
    assert!(others > 3_600, "the test's own premise: {others}");
    db.close().unwrap();
    for recovery_threads in [1, 2] {
        let db = Database::open_on(disk.clone(), Options { recovery_threads, ..options() })
            .unwrap_or_else(|error| panic!("{error}"));
        let rows = ["t", "other"].map(|name| db.table(name).unwrap().rows_estimate());
        assert_eq!(rows, [ROUNDS as u64, others as u64]);
        db.close().unwrap();
    }
}

/// As `what_transactions_side_by_side_had_room_for_opens_again`, where more than half of each segment stays.
#[test]
fn what_three_of_five_side_by_side_keep_opens_again() {
    const ROUNDS: i32 = 1_350;
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    let [table, other] = ["t", "other"].map(|name| db.transact(|tx| create(tx, name)).unwrap());
    let id = |client: i32, round: i32| client * 1_000_000 + round;
    for round in 0..ROUNDS {
        let mut open: Vec<_> = (0..5).map(|_| db.begin().unwrap()).collect();
        for (client, tx) in (0..).zip(&mut open) {
            tx.insert(&table, &row(id(client, round))).unwrap();
        }
        while let Some(tx) = open.pop() {
            tx.commit().unwrap();
        }
    }
    for (client, round) in (3..5).flat_map(|client| (0..ROUNDS).map(move |round| (client, round))) {
        at_level_1(&db, |tx| {
            assert!(tx.delete(&table, id(client, round))?);
            Ok(())
        })
        .unwrap();
    }
    let others = (0..).take_while(|&id| at_level_1(&db, |tx| tx.insert(&other, &row(id))).is_ok()).count();
    assert!(others > 3_050, "the test's own premise: {others}");
    db.close().unwrap();
    let db = Database::open_on(disk, options()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        ["t", "other"].map(|name| db.table(name).unwrap().rows_estimate()),
        [3 * ROUNDS as u64, others as u64]
    );
}

/// Redo spreads rows over more segments than they had, within the bound; the secondary index that comes last needs that
/// room.
#[test]
fn an_index_has_the_room_that_redo_has_spread_rows_over() {
    const ROUNDS: i32 = 140;
    const ROWS: i32 = 8;
    const OTHERS: i32 = 4_960;
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    let [table, other] = ["t", "other"].map(|name| db.transact(|tx| create(tx, name)).unwrap());
    db.transact(|tx| tx.create_index("other", "by_text", &["text"], false)).unwrap();
    let id = |client: i32, round: i32, nth: i32| client * 1_000_000 + round * ROWS + nth;
    for round in 0..ROUNDS {
        let mut open: Vec<_> = (0..4).map(|_| db.begin().unwrap()).collect();
        for (client, tx) in (0..).zip(&mut open) {
            (0..ROWS).for_each(|nth| tx.insert(&table, &row(id(client, round, nth))).unwrap());
        }
        while let Some(tx) = open.pop() {
            tx.commit().unwrap();
        }
    }
    for (client, round) in (1..4).flat_map(|client| (0..ROUNDS).map(move |round| (client, round))) {
        at_level_1(&db, |tx| {
            (0..ROWS).try_for_each(|nth| {
                assert!(tx.delete(&table, id(client, round, nth))?);
                Ok(())
            })
        })
        .unwrap();
    }
    let text = |id: i32| [Value::Int4(id), Value::Text(format!("{id:08}{}", "x".repeat(492)))];
    (0..OTHERS).for_each(|id| at_level_1(&db, |tx| tx.insert(&other, &text(id))).unwrap());
    db.close().unwrap();
    let db = Database::open_on(disk, options()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        ["t", "other"].map(|name| db.table(name).unwrap().rows_estimate()),
        [(ROUNDS * ROWS) as u64, OTHERS as u64]
    );
}
