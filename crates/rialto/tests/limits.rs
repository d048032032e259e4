//! What does not fit: rows, keys, write sets, memory, slots, records of another shape; each with its exact message, and a
//! transaction that goes on.

#[path = "common/quiet.rs"]
mod quiet;

use std::time::Duration;

use quiet::{count, open, options, put, thing, things};
use rialto::io::{FaultyDisk, MemoryDisk, Random};
use rialto::row::{Column, ColumnType, Record, Value};
use rialto::{Database, Error, Options, TableDef};

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

/// After each of these the transaction is as before, and goes on.
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
    // The keys of rows that are there, in an index and a primary key that come.
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
            "out of memory: {used} of 4194304 bytes are in use (Options::memory_bytes); delete rows, or reopen with a \
             higher limit"
        )
    );
    // It sees its rows, can change them in place, and can be aborted; the others go on meanwhile.
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
    // What a load puts straight into segments does not count.
    let db =
        Database::open_on(MemoryDisk::new(), Options { write_set_bytes_max: 200_000, ..options() }).unwrap();
    db.transact(|tx| {
        let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
        let loaded = tx.create_table(&TableDef::new("loaded", columns).with_primary_key(&["id"]))?;
        (0..2_000).try_for_each(|id| tx.insert(&loaded, &thing(id, 400)))
    })
    .unwrap();
}

#[test]
fn slots_that_run_out_are_told_apart() {
    let few =
        Options { packets_max: 2, transactions_max: 4, log_wait_max: Duration::from_secs(1), ..options() };
    let db = Database::open_on(MemoryDisk::new(), few).unwrap();
    let table = things(&db);
    let mut writers: Vec<_> = (0..2).map(|_| db.begin().unwrap()).collect();
    for (writer, id) in writers.iter_mut().zip(1..) {
        writer.insert(&table, &thing(id, 10)).unwrap();
    }
    let mut third = db.begin().unwrap();
    let error = third.insert(&table, &thing(3, 10)).unwrap_err();
    assert_eq!(error, Error::TooManyPackets { limit: 2 });
    assert_eq!(
        error.to_string(),
        "all 2 packet slots hold commits that are not written yet (Options::packets_max); wait for some of them, or \
         reopen with more"
    );
    let fourth = db.begin().unwrap();
    let error = db.begin().err().expect("all are open");
    assert_eq!(
        error.to_string(),
        "all 4 transaction slots are in use (Options::transactions_max); finish some transactions first"
    );
    drop(fourth);
    writers.pop().unwrap().commit().unwrap();
    third.insert(&table, &thing(3, 10)).unwrap();
    third.commit().unwrap();
    writers.pop().unwrap().abort().unwrap();
    assert_eq!(count(&db), 2);
}
