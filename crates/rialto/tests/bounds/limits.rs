//! What does not fit: rows, keys, write sets, memory, slots, records of another shape. Each has its exact message, and
//! the transaction can go on.

use std::ops::ControlFlow;
use std::time::Duration;

use crate::common::quiet::{count, level, open, options, put, thing, things};
use rialto::io::{FaultyDisk, MemoryDisk, Random};
use rialto::row::{Column, ColumnType, INDEXES_MAX, Record, Value, WhichIndex};
use rialto::{Database, Durability, Engine, Error, Options, Scan, ScanMode, TableDef, Transaction};

#[test]
fn a_database_that_does_not_fit_is_refused() {
    let disk = MemoryDisk::new();
    let db = open(disk.clone());
    things(&db);
    for round in 0..20 {
        put(&db, round * 1000..round * 1000 + 1000);
    }
    db.checkpoint().unwrap();
    db.close().unwrap();
    let small = Options { memory_bytes: 4 << 20, ..options() };
    let error = Database::open_on(disk.clone(), small).unwrap_err();
    assert_eq!(
        (error.to_string(), error.exit_code()),
        (
            "the database does not fit into Options::memory_bytes (4194304 bytes): open it with more"
                .to_owned(),
            3
        )
    );
    assert_eq!(count(&open(disk)), 20_000);
}

/// Rows that fitted into the memory fit again after a recovery, though several threads redo inserts before the deletes
/// that made room for them.
#[test]
fn a_database_at_its_memory_bound_opens_again() {
    let options = || Options { memory_bytes: 8 << 20, recovery_threads: 4, ..options() };
    let level_1 = level(Durability::Memory);
    for _ in 0..4 {
        let disk = MemoryDisk::new();
        let db = Database::open_on(disk.clone(), options()).unwrap();
        let stays = things(&db);
        let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
        let goes = TableDef::new("goes", columns).with_primary_key(&["id"]);
        let goes = db.transact(|tx| tx.create_table(&goes)).unwrap();
        for id in 0..224 {
            db.transact_with(&level_1, |tx| tx.insert(&stays, &thing(id, 30_000))).unwrap();
        }
        // In the remaining room rows of two lengths come and go.
        let mut inserted = 0;
        for id in 0..6_000 {
            let length = if id % 3 == 0 { 30_000 } else { 7_000 };
            match db.transact_with(&level_1, |tx| tx.insert(&goes, &thing(id, length))) {
                Ok(()) => inserted += 1,
                Err(Error::MemoryLimit { .. }) => {}
                Err(error) => panic!("row {id}: {error}"),
            }
            db.transact_with(&level_1, |tx| tx.delete(&goes, id - 3)).unwrap();
        }
        assert!(inserted > 2_000, "the test's own premise: {inserted}");
        let before = [count(&db), goes.rows_estimate()];
        db.close().unwrap();
        let db = Database::open_on(disk, options()).unwrap();
        assert_eq!([count(&db), db.table("goes").unwrap().rows_estimate()], before);
    }
}

/// Rows of two lengths shared segments well, because two sessions made them, and share them badly when one thread
/// redoes them: the recovery takes more than the bound. It packs them again before it ends.
#[test]
fn a_database_that_was_packed_better_than_redo_packs_it_opens_again() {
    // Two in a segment, and three; the shorter rows fit into the slots of the longer.
    const LONG: usize = 24_800;
    const SHORT: usize = 20_200;
    const ROWS: i32 = 140;
    let options = || Options { memory_bytes: 8 << 20, recovery_threads: 1, ..options() };
    let level_1 = level(Durability::Memory);
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    let table = things(&db);
    let put = |ids: std::ops::Range<i32>, length| {
        for id in ids {
            db.transact_with(&level_1, |tx| tx.insert(&table, &thing(id, length))).unwrap();
        }
    };
    put(0..ROWS, LONG);
    for id in 0..ROWS {
        assert!(db.transact_with(&level_1, |tx| tx.delete(&table, id)).unwrap());
    }
    // The slots of another session are separate.
    let first = db.begin().unwrap();
    put(ROWS..2 * ROWS, SHORT);
    first.abort().unwrap();
    put(2 * ROWS..3 * ROWS, LONG);
    drop(table);
    db.close().unwrap();
    let db = Database::open_on(disk, options()).unwrap();
    assert_eq!(count(&db), 2 * ROWS as u64);
    let table = db.table("things").unwrap();
    let metrics = db.metrics();
    assert!(metrics.memory_used <= metrics.memory_limit, "{} bytes", metrics.memory_used);
    for id in ROWS..2 * ROWS {
        assert!(db.transact_with(&level_1, |tx| tx.delete(&table, id)).unwrap());
    }
    db.transact(|tx| tx.insert(&table, &thing(-1, LONG))).unwrap();
    assert_eq!(count(&db), ROWS as u64 + 1);
}

#[derive(Record, Debug)]
#[record(table = "things")]
#[allow(dead_code, reason = "only its columns matter")]
struct OtherType {
    #[record(key)]
    id: i64,
    text: String,
}

#[derive(Record, Debug)]
#[record(table = "things")]
#[allow(dead_code, reason = "only its columns matter")]
struct OtherKey {
    id: i32,
    #[record(key)]
    text: String,
}

#[derive(Record, Debug)]
#[record(table = "things")]
#[allow(dead_code, reason = "only its columns matter")]
struct OneMore {
    #[record(key)]
    id: i32,
    text: String,
    note: Option<String>,
}

#[derive(Record, Debug)]
#[record(table = "things")]
#[allow(dead_code, reason = "only its columns matter")]
struct Indexed {
    #[record(key)]
    id: i32,
    #[record(unique)]
    text: String,
}

#[test]
fn a_record_that_does_not_fit_its_table_is_refused() {
    let db = open(MemoryDisk::new());
    things(&db);
    let of = |found: Result<(), Error>| found.expect_err("it does not fit").to_string();
    assert_eq!(
        of(db.records::<OtherType>().map(drop)),
        "record \"OtherType\" does not fit table \"things\": column 1 of the table is \"id\" int4 NOT NULL, but that \
         field of the record is \"id\" int8 NOT NULL"
    );
    assert_eq!(
        of(db.records::<OtherKey>().map(drop)),
        "record \"OtherKey\" does not fit table \"things\": the primary key of the table is (id), but that of the \
         record is (text)"
    );
    assert_eq!(
        of(db.records::<OneMore>().map(drop)),
        "record \"OneMore\" does not fit table \"things\": column 3 of the table is none, but that field of the record \
         is \"note\" text"
    );
    let text = of(db.records::<Indexed>().map(drop));
    assert!(
        text.starts_with("record \"Indexed\" does not fit table \"things\": the record has index \"")
            && text.ends_with(
                "on (text) unique, but that of the table is none: create it with Transaction::create_index"
            ),
        "{text}"
    );
}

/// After each of these errors the transaction is as before, and goes on.
#[test]
fn rows_and_keys_that_are_too_long_are_refused() {
    let db = open(MemoryDisk::new());
    let table = things(&db);
    let named = db
        .transact(|tx| {
            let columns = vec![Column::new("name", ColumnType::Text), Column::new("n", ColumnType::Int4)];
            tx.create_table(&TableDef::new("named", columns).with_primary_key(&["name"]))
        })
        .unwrap();
    let mut tx = db.begin().unwrap();
    tx.insert(&table, &thing(1, 10)).unwrap();
    tx.insert(&named, &[Value::Text("a".into()), Value::Int4(1)]).unwrap();
    let long_row = "row of 40010 bytes for table \"things\" is longer than the limit of 32000 bytes";
    let found = tx.insert(&table, &thing(2, 40_000)).unwrap_err();
    let length = match found {
        Error::RowTooLong { length, limit: 32_000, .. } => length,
        ref other => panic!("{other}"),
    };
    assert!((40_000..40_020).contains(&length));
    assert_eq!(found.to_string(), long_row.replace("40010", &length.to_string()));
    let found = tx.update(&table, 1, &[(1, Value::Text("y".repeat(40_000)))]).unwrap_err();
    assert_eq!(found.to_string(), long_row.replace("40010", &length.to_string()));

    let long = || "k".repeat(2_000);
    let keys = [
        tx.insert(&named, &[Value::Text(long()), Value::Int4(1)]).unwrap_err(),
        tx.update(&named, "a", &[(0, Value::Text(long()))]).unwrap_err(),
        tx.get(&named, long().as_str()).unwrap_err(),
        tx.delete(&named, long().as_str()).unwrap_err(),
    ];
    for found in keys {
        let Error::KeyTooLong { length, limit: 1024, .. } = found else { panic!("{found}") };
        assert!(length > 2_000);
        assert_eq!(
            found.to_string(),
            format!("key of {length} bytes for index \"named_pkey\" is longer than the limit of 1024 bytes")
        );
    }
    let found = tx.insert(&table, &thing(1, 10)).unwrap_err();
    assert_eq!(
        found.to_string(),
        "duplicate key (id)=(1) in unique index \"things_pkey\" of table \"things\""
    );
    tx.insert(&table, &thing(2, 10)).unwrap();
    tx.commit().unwrap();
    assert_eq!(count(&db), 2);
    // The keys of existing rows, in a new index and a new primary key.
    db.transact(|tx| tx.insert(&table, &thing(3, 5_000))).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
    let keyless = db.transact(|tx| tx.create_table(&TableDef::new("keyless", columns.clone()))).unwrap();
    db.transact(|tx| tx.insert(&keyless, &thing(3, 5_000))).unwrap();
    let indexed = db.transact(|tx| tx.create_index("things", "by_text", &["text"], false)).unwrap_err();
    let keyed = db.transact(|tx| tx.add_primary_key("keyless", &["text"])).unwrap_err();
    for (found, index) in [(indexed, "by_text"), (keyed, "keyless_pkey")] {
        let Error::KeyTooLong { length, .. } = found else { panic!("{found}") };
        assert!(length > 5_000);
        assert_eq!(
            found.to_string(),
            format!("key of {length} bytes for index \"{index}\" is longer than the limit of 1024 bytes")
        );
    }
    db.transact(|tx| tx.add_primary_key("keyless", &["id"])).unwrap();
    assert_eq!(count(&db), 3);
}

/// The keys of an index that is not unique end in the row's number, if there is no primary key: 8 of the bytes that a
/// key may have.
#[test]
fn the_row_number_behind_a_key_counts_wherever_keys_are_made() {
    const FITS: usize = 1024 - 8 - 1;
    let disk = FaultyDisk::new(Random::seed_from_environment());
    let db = Database::open_on(disk.clone(), options()).unwrap();
    let columns = || vec![Column::new("id", ColumnType::Int4), Column::new("line", ColumnType::Text)];
    let line = |length| Value::Text("k".repeat(length));
    let indexed = |tx: &mut Transaction, name: &str| {
        let table = tx.create_table(&TableDef::new(name, columns()))?;
        tx.create_index(name, &format!("{name}_line"), &["line"], false)?;
        Ok(table)
    };
    let refused = |found: Result<(), Error>, by: &str, bytes: usize| match found {
        Err(Error::KeyTooLong { index, length, limit: 1024 }) => assert_eq!((&*index, length), (by, bytes)),
        other => panic!("{by}: {other:?}"),
    };
    // Inserts.
    let log = db.transact(|tx| indexed(tx, "log")).unwrap();
    let insert = |text: Value| db.transact(|tx| tx.insert(&log, &[Value::Int4(1), text.clone()]));
    insert(line(FITS)).unwrap();
    refused(insert(line(FITS + 1)), "log_line", 1025);
    // A byte of 1 takes two.
    insert(Value::Text("k".to_owned() + &"\u{1}".repeat(FITS / 2))).unwrap();
    refused(insert(Value::Text("kk".to_owned() + &"\u{1}".repeat(FITS / 2))), "log_line", 1025);
    // Updates.
    insert(line(10)).unwrap();
    let update = |length: usize| {
        db.transact(|tx| {
            let mut last = None;
            tx.scan(&log, &Scan::all(), |key, _| {
                last = Some(key.clone());
                Ok(ControlFlow::Continue(()))
            })?;
            tx.update_at(&log, &last.expect("there are rows"), &[(1, line(length))]).map(drop)
        })
    };
    refused(update(FITS + 1), "log_line", 1025);
    update(FITS).unwrap();
    // Loads.
    let load = |name: &str, length: usize| {
        db.transact(|tx| {
            let table = indexed(tx, name)?;
            (0..10).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), line(length)]))
        })
    };
    refused(load("loaded", FITS + 1), "loaded_line", 1025);
    load("loaded", FITS).unwrap();
    // An index over existing rows.
    for (name, length) in [("fits", FITS), ("long", FITS + 1)] {
        db.transact(|tx| tx.create_table(&TableDef::new(name, columns())).map(drop)).unwrap();
        let table = db.table(name).unwrap();
        db.transact(|tx| tx.insert(&table, &[Value::Int4(1), line(length)])).unwrap();
        let made = db.transact(|tx| tx.create_index(name, &format!("{name}_line"), &["line"], false));
        if name == "fits" { made.unwrap() } else { refused(made, "long_line", 1025) }
    }
    // A primary key takes the place of the number.
    refused(db.transact(|tx| tx.add_primary_key("fits", &["line"])), "fits_line", 2 * (FITS + 1));
    db.transact(|tx| tx.add_primary_key("fits", &["id"])).unwrap();
    let fits = db.table("fits").unwrap();
    let shorter = |id: i32, length| db.transact(|tx| tx.insert(&fits, &[Value::Int4(id), line(length)]));
    shorter(2, FITS + 4).unwrap();
    refused(shorter(3, FITS + 5), "fits_line", 1025);
    // Redo makes the same keys.
    disk.crash();
    drop((log, fits, db));
    let db = Database::open_on(disk.restart(), options()).unwrap();
    for (name, rows) in [("log", 3), ("loaded", 10), ("fits", 2)] {
        let table = db.table(name).unwrap();
        let mut found = 0;
        db.read(|tx| {
            found = 0;
            tx.scan(&table, &Scan { index: WhichIndex::Secondary(0), ..Scan::all() }, |_, _| {
                found += 1;
                Ok(ControlFlow::Continue(()))
            })
        })
        .unwrap();
        assert_eq!(found, rows, "{name}");
    }
}

#[test]
fn at_the_memory_limit_a_transaction_can_be_aborted_and_the_database_goes_on() {
    let disk = FaultyDisk::new(Random::seed_from_environment());
    let limit = 4 << 20;
    let small = || Options { memory_bytes: limit, ..options() };
    let db = Database::open_on(disk.clone(), small()).unwrap();
    let table = things(&db);
    put(&db, 0..100);
    let mut tx = db.begin().unwrap();
    let mut id = 1000;
    let error = loop {
        match tx.insert(&table, &thing(id, 20_000)) {
            Ok(()) => id += 1,
            Err(error) => break error,
        }
        assert!(id < 2000, "4 MiB hold fewer rows");
    };
    let Error::MemoryLimit { used, limit: found } = error else { panic!("{error}") };
    assert_eq!(found, limit);
    assert_eq!(
        error.to_string(),
        format!(
            "out of memory: {used} of 4194304 bytes are in use (Options::memory_bytes); delete rows, truncate or drop a \
             table, or reopen with a higher limit"
        )
    );
    // The transaction sees its rows, can change them in place, and can be aborted; the others go on meanwhile.
    assert!(tx.get(&table, id - 1).unwrap().is_some());
    assert!(tx.delete(&table, 1000).unwrap());
    db.transact(|tx| tx.update(&table, 5, &[(1, Value::Text("short".into()))])).unwrap();
    tx.abort().unwrap();
    put(&db, 2000..2100);
    assert_eq!(count(&db), 200);
    db.checkpoint().unwrap();
    disk.crash();
    drop(db);
    let db = Database::open_on(disk.restart(), small()).unwrap();
    assert_eq!(count(&db), 200);
}

#[test]
fn a_write_set_has_a_bound() {
    let db =
        Database::open_on(MemoryDisk::new(), Options { write_set_bytes_max: 10_000, ..options() }).unwrap();
    let table = things(&db);
    let mut tx = db.begin().unwrap();
    tx.insert(&table, &thing(1, 4_000)).unwrap();
    tx.insert(&table, &thing(2, 4_000)).unwrap();
    let error = tx.insert(&table, &thing(3, 4_000)).unwrap_err();
    let Error::WriteSetTooLarge { length, limit: 10_000 } = error else { panic!("{error}") };
    assert!((12_000..12_200).contains(&length), "{length}");
    assert_eq!(
        error.to_string(),
        format!(
            "write set of {length} bytes passes the limit of 10000 bytes (Options::write_set_bytes_max); split the \
             transaction"
        )
    );
    tx.insert(&table, &thing(4, 100)).unwrap();
    tx.commit().unwrap();
    db.read(|tx| {
        assert_eq!(tx.get(&table, 3)?, None);
        assert!(tx.get(&table, 2)?.is_some() && tx.get(&table, 4)?.is_some());
        Ok(())
    })
    .unwrap();
    db.transact(|tx| tx.insert(&table, &thing(3, 4_000))).unwrap();
    // Rows that a load puts straight into segments do not count.
    let db =
        Database::open_on(MemoryDisk::new(), Options { write_set_bytes_max: 200_000, ..options() }).unwrap();
    db.transact(|tx| {
        let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
        let loaded = tx.create_table(&TableDef::new("loaded", columns).with_primary_key(&["id"]))?;
        (0..2_000).try_for_each(|id| tx.insert(&loaded, &thing(id, 400)))
    })
    .unwrap();
}

/// The versions of tables that one transaction makes may take four times the bound of its write set. Versions that a
/// savepoint takes back give their room back. However small the bound is, a transaction can change one table.
#[test]
fn definitions_of_a_transaction_have_a_bound() {
    const LIMIT: usize = 10_000;
    let db =
        Database::open_on(MemoryDisk::new(), Options { write_set_bytes_max: LIMIT, ..options() }).unwrap();
    let columns: Vec<_> =
        (0..45).map(|nth| Column::new(format!("column_number_{nth}"), ColumnType::Int4)).collect();
    let table = db.transact(|tx| tx.create_table(&TableDef::new("t", columns.clone()))).unwrap();
    let define = |tx: &mut Transaction, nth: usize| match nth % 3 {
        0 => tx.create_index("t", "i", &["column_number_7"], false),
        1 => tx.truncate(&table),
        _ => tx.drop_index("i"),
    };
    let mut tx = db.begin().unwrap();
    let savepoint = tx.savepoint();
    for _ in 0..3 {
        let (within, error) =
            (0..).find_map(|nth| define(&mut tx, nth).err().map(|error| (nth, error))).unwrap();
        let Error::WriteSetTooLarge { length, limit } = error else { panic!("{error}") };
        assert!(limit == 4 * LIMIT && length > limit && length < limit + 12_000, "{error}");
        assert!((3..8).contains(&within), "{within} definitions were within the bound");
        let row = vec![Value::Int4(1); 45];
        tx.insert(&table, &row).unwrap();
        tx.rollback_to(&savepoint).unwrap();
    }
    (0..2).for_each(|nth| define(&mut tx, nth).unwrap());
    tx.commit().unwrap();
    db.transact(|tx| define(tx, 2)).unwrap();
}

/// The entries of one transaction in secondary indexes may take four times the bound of its write set. A refused
/// operation is taken back, and so are operations behind a savepoint: their room is free again.
#[test]
fn index_entries_of_a_write_set_have_a_bound() {
    const LIMIT: usize = 10_000;
    let db =
        Database::open_on(MemoryDisk::new(), Options { write_set_bytes_max: LIMIT, ..options() }).unwrap();
    let table = db
        .transact(|tx| {
            let columns = vec![
                Column::new("id", ColumnType::Int4),
                Column::new("pad", ColumnType::Text),
                Column::new("n", ColumnType::Int4),
            ];
            let table = tx.create_table(&TableDef::new("t", columns).with_primary_key(&["id"]))?;
            for name in ["a", "b", "c", "d"] {
                tx.create_index("t", name, &["pad", "n"], false)?;
            }
            tx.insert(&table, &[Value::Int4(1), Value::Text("x".repeat(900)), Value::Int4(0)])?;
            Ok(table)
        })
        .unwrap();
    let set = |tx: &mut Transaction, n: i32| tx.update(&table, 1, &[(2, Value::Int4(n))]);
    let mut tx = db.begin().unwrap();
    assert_eq!(set(&mut tx, 1), Ok(true));
    let savepoint = tx.savepoint();
    for _ in 0..3 {
        let mut within = 0;
        let error = loop {
            match set(&mut tx, 2 + within) {
                Ok(there) => assert!(there),
                Err(error) => break error,
            }
            within += 1;
        };
        let Error::WriteSetTooLarge { length, limit } = error else { panic!("{error}") };
        assert!(limit == 4 * LIMIT && length > limit && length < limit + 2_000, "{error}");
        // A change adds four entries of some 950 bytes.
        assert!((7..11).contains(&within), "{within} changes were within the bound");
        tx.rollback_to(&savepoint).unwrap();
    }
    assert_eq!(set(&mut tx, 50), Ok(true));
    tx.commit().unwrap();
    let found = |index: usize| {
        let mut found = Vec::new();
        db.transact(|tx| {
            found.clear();
            let by_index = Scan { index: WhichIndex::Secondary(index), ..Scan::all() };
            tx.scan(&table, &by_index, |_, row| {
                found.push(row.get_i32(2)?);
                Ok(ControlFlow::Continue(()))
            })
        })
        .unwrap();
        found
    };
    assert!((0..4).all(|index| found(index) == [50]));
    // An ordinary transaction reaches the bound by its rows.
    db.transact(|tx| {
        let rows = (2..10).try_for_each(|id| {
            tx.insert(&table, &[Value::Int4(id), Value::Text("y".repeat(900)), Value::Int4(id)])
        });
        assert_eq!(rows, Ok(()));
        Ok(())
    })
    .unwrap();
}

#[test]
fn each_transaction_that_can_be_open_can_write_and_no_more_can_be() {
    let few =
        Options { packets_max: 1, transactions_max: 4, log_wait_max: Duration::from_secs(1), ..options() };
    let db = Database::open_on(MemoryDisk::new(), few).unwrap();
    let table = things(&db);
    let mut writers: Vec<_> = (0..4).map(|_| db.begin().unwrap()).collect();
    for (writer, id) in writers.iter_mut().zip(1..) {
        writer.insert(&table, &thing(id, 10)).unwrap();
    }
    let error = db.begin().err().expect("all are open");
    assert_eq!(
        error.to_string(),
        "all 4 transaction slots are in use (Options::transactions_max); finish some transactions first"
    );
    writers.pop().unwrap().abort().unwrap();
    writers.into_iter().for_each(|writer| writer.commit().unwrap());
    assert_eq!(count(&db), 3);
}

/// One transaction has written and waits for a lock of another, which then writes for the first time: it has its
/// packet, however few there are.
#[test]
fn transactions_that_wait_for_locks_keep_no_packet_from_the_holders() {
    for engine in Engine::ALL {
        let lock_timeout = Duration::from_secs(60);
        let db = Database::open_on(
            MemoryDisk::new(),
            Options { packets_max: 1, engine, lock_timeout, ..options() },
        )
        .unwrap();
        let table = things(&db);
        let mut holder = db.begin().unwrap();
        holder.get(&table, 1).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                db.transact(|tx| {
                    tx.insert(&table, &thing(2, 10))?;
                    tx.insert(&table, &thing(1, 10))
                })
            });
            while db.lock_waits().is_empty() {
                std::thread::yield_now();
            }
            let written = holder.insert(&table, &thing(3, 10)).and_then(|()| holder.commit());
            assert_eq!((written, waiter.join().unwrap()), (Ok(()), Ok(())), "{engine}");
        });
        assert_eq!(count(&db), 3, "{engine}");
    }
}

/// A table is made with its indexes, which are there again after a restart, or not at all.
#[test]
fn a_table_is_made_with_its_indexes() {
    let disk = MemoryDisk::new();
    let db = open(disk.clone());
    let columns = || vec![Column::new("a", ColumnType::Int4), Column::new("b", ColumnType::Int4)];
    let def = |name: &str| TableDef::new(name, columns()).with_primary_key(&["a"]);
    let create = |def: TableDef| db.transact(|tx| tx.create_table(&def));
    let table =
        create(def("t").with_index("t_b", &["b"], true).with_index("t_b_a", &["b", "a"], false)).unwrap();
    db.transact(|tx| tx.insert(&table, &[Value::Int4(1), Value::Int4(7)])).unwrap();
    for (taken, def) in [
        ("u", def("u").with_index("u", &["b"], false)),
        ("u_pkey", def("u").with_index("u_pkey", &["b"], false)),
        ("u_b", def("u").with_index("u_b", &["b"], false).with_index("u_b", &["a"], false)),
        ("t_b", def("u").with_index("u_b", &["b"], false).with_index("t_b", &["b"], false)),
        ("t", def("u").with_index("t", &["b"], false)),
    ] {
        let error = create(def).unwrap_err();
        assert!(matches!(&error, Error::NameTaken { name } if name == taken), "{error}");
    }
    let error = create(def("u").with_index("u_x", &["x"], false)).unwrap_err();
    assert!(matches!(error, Error::NoSuchColumn { .. }), "{error}");
    let many = |count: usize| {
        (0..count).fold(def("u"), |def, number| def.with_index(format!("u_{number}"), &["b"], false))
    };
    let error = create(many(INDEXES_MAX + 1)).unwrap_err();
    assert_eq!(error.to_string(), "bad definition of \"u\": 1001 secondary indexes, and the limit is 1000");
    create(many(INDEXES_MAX)).unwrap();
    let error = db.transact(|tx| tx.create_index("u", "u_more", &["b"], false)).unwrap_err();
    assert!(matches!(error, Error::BadDefinition { .. }), "{error}");
    db.close().unwrap();
    let db = open(disk);
    let (table, many) = (db.table("t").unwrap(), db.table("u").unwrap());
    assert_eq!(many.schema().indexes().len(), INDEXES_MAX);
    let names: Vec<String> = table.schema().indexes().iter().map(|index| index.name.clone()).collect();
    assert_eq!(names, ["t_b", "t_b_a"]);
    let error = db.transact(|tx| tx.insert(&table, &[Value::Int4(2), Value::Int4(7)])).unwrap_err();
    assert!(matches!(&error, Error::DuplicateKey { index, .. } if index == "t_b"), "{error}");
    let found = db.transact(|tx| {
        tx.look_by(&table, WhichIndex::Secondary(0), 7, ScanMode::Share, |row| row.get_i32(0))
    });
    assert_eq!(found.unwrap().transpose().unwrap(), Some(1));
}
