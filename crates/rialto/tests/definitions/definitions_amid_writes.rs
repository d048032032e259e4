//! Definitions that change between a transaction's own writes: rows that it has inserted, changed and deleted before
//! are found by the identity that the table then has, and in the indexes that it has. The result is a model's when it
//! is read in the transaction, when it is committed, and when it is recovered.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Instant;

use rialto::io::{MemoryDisk, Random};
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{Checkpointing, Database, Error, Options, RowKey, Scan, Table, TableDef, Transaction};

type Rows = BTreeMap<i64, i32>;

/// The bytes of these keys are those of the first hidden row numbers of a new database.
const LIKE_NUMBERS: i64 = i64::MIN + (1 << 16);
const KEYS: u64 = 60;

fn options() -> Options {
    Options { memory_bytes: 64 << 20, checkpoint: Checkpointing::None, ..Options::default() }
}

fn row(id: i64, n: i32) -> [Value; 2] {
    [Value::Int8(id), Value::Int4(n)]
}

fn scan(tx: &mut Transaction, table: &Table, which: WhichIndex) -> Vec<(RowKey, i64, i32)> {
    let mut rows = Vec::new();
    tx.scan(table, &Scan { index: which, ..Scan::all() }, |at, row| {
        rows.push((at.clone(), row.get_i64(0)?, row.get_i32(1)?));
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    rows
}

fn check(tx: &mut Transaction, rows: &Rows, about: &str) {
    let table = tx.table("t").unwrap();
    let expected: Vec<(i64, i32)> = rows.iter().map(|(&id, &n)| (id, n)).collect();
    let secondaries = (0..table.schema().indexes().len()).map(WhichIndex::Secondary);
    for which in secondaries.chain([WhichIndex::Primary]) {
        let mut found: Vec<(i64, i32)> =
            scan(tx, &table, which).into_iter().map(|(_, id, n)| (id, n)).collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{about}: by {which:?}");
    }
}

/// One operation by row number or by key, whichever the table has.
fn operate(tx: &mut Transaction, random: &mut Random, rows: &mut Rows, about: &str) {
    let table = tx.table("t").unwrap();
    let keyed = table.schema().primary_key().is_some();
    let id = match random.chance(1, 2) {
        true => LIKE_NUMBERS + random.below(KEYS) as i64,
        false => random.below(KEYS) as i64,
    };
    let n = random.below(1_000_000) as i32;
    let at = |tx: &mut Transaction| {
        scan(tx, &table, WhichIndex::Primary)
            .into_iter()
            .find(|(_, found, _)| *found == id)
            .map(|(at, ..)| at)
    };
    match random.below(6) {
        0..=2 => match (tx.insert(&table, &row(id, n)), rows.contains_key(&id)) {
            (Ok(()), false) => drop(rows.insert(id, n)),
            (Err(Error::DuplicateKey { .. }), true) => {}
            (inserted, is_there) => panic!("{about}: insert {id}, there: {is_there}: {inserted:?}"),
        },
        3 => {
            let deleted = match (keyed, rows.contains_key(&id)) {
                (true, _) => tx.delete(&table, id).unwrap(),
                (false, true) => {
                    let at = at(tx).unwrap_or_else(|| panic!("{about}: {id} is found"));
                    tx.delete_at(&table, &at).unwrap()
                }
                (false, false) => false,
            };
            assert_eq!(deleted, rows.remove(&id).is_some(), "{about}: delete {id}");
        }
        4 if keyed => {
            let found = tx.get(&table, id).unwrap().map(|row| row.get("n").unwrap());
            assert_eq!(found, rows.get(&id).map(|&n| Value::Int4(n)), "{about}: get {id}");
        }
        _ => {
            let changes = [(1, Value::Int4(n))];
            let updated = match (keyed, rows.contains_key(&id)) {
                (true, _) => tx.update(&table, id, &changes).unwrap(),
                (false, true) => {
                    let at = at(tx).unwrap_or_else(|| panic!("{about}: {id} is found"));
                    tx.update_at(&table, &at, &changes).unwrap()
                }
                (false, false) => false,
            };
            assert_eq!(updated, rows.contains_key(&id), "{about}: update {id}");
            rows.entry(id).and_modify(|was| *was = n);
        }
    }
}

/// Changes the table's definition, if the drawn one differs.
fn define(tx: &mut Transaction, random: &mut Random, rows: &mut Rows) {
    let schema = tx.table("t").unwrap().schema();
    let has = |name: &str| schema.indexes().iter().any(|index| index.name == name);
    match random.below(8) {
        0..=2 if schema.primary_key().is_none() => tx.add_primary_key("t", &["id"]).unwrap(),
        3 | 4 if has("by_n") => tx.drop_index("by_n").unwrap(),
        3 | 4 => tx.create_index("t", "by_n", &["n"], false).unwrap(),
        5 | 6 if has("by_both") => tx.drop_index("by_both").unwrap(),
        5 | 6 => tx.create_index("t", "by_both", &["n", "id"], true).unwrap(),
        7 if random.chance(1, 4) => {
            let table = tx.table("t").unwrap();
            tx.truncate(&table).unwrap();
            rows.clear();
        }
        _ => {}
    }
}

/// This keeps a table without a key from rows of the same `id`.
fn create(tx: &mut Transaction) {
    let columns = vec![Column::nullable("id", ColumnType::Int8), Column::new("n", ColumnType::Int4)];
    tx.create_table(&TableDef::new("t", columns)).unwrap();
    tx.create_index("t", "by_id", &["id"], true).unwrap();
}

fn history(seed: u64) {
    let mut random = Random::new(seed);
    let disk = MemoryDisk::new();
    let about = &format!("RIALTO_SEED={seed}");
    let db = Database::open_on(disk.clone(), options()).unwrap();
    let mut rows = Rows::new();
    let mut tx = db.begin().unwrap();
    create(&mut tx);
    for _ in 0..random.below(40) {
        operate(&mut tx, &mut random, &mut rows, about);
    }
    tx.commit().unwrap();
    for _ in 0..1 + random.below(2) {
        let mut tx = db.begin().unwrap();
        let mut savepoints = Vec::new();
        // Few writes are found one by one, many by a hash.
        let most = if random.chance(1, 2) { 5 } else { 40 };
        let mut mine = rows.clone();
        for _ in 0..1 + random.below(6) {
            for _ in 0..random.below(most) {
                operate(&mut tx, &mut random, &mut mine, about);
            }
            match random.below(8) {
                0 => savepoints.push((tx.savepoint(), mine.clone())),
                1 if !savepoints.is_empty() => {
                    savepoints.truncate(1 + random.below(savepoints.len() as u64) as usize);
                    let (savepoint, then) = savepoints.last().expect("one is left");
                    tx.rollback_to(savepoint).unwrap();
                    mine.clone_from(then);
                }
                _ => define(&mut tx, &mut random, &mut mine),
            }
            check(&mut tx, &mine, about);
        }
        if random.chance(4, 5) {
            tx.commit().unwrap();
            rows = mine;
        } else {
            tx.abort().unwrap();
        }
        db.transact(|tx| {
            check(tx, &rows, about);
            Ok(())
        })
        .unwrap();
    }
    assert_eq!(db.table("t").unwrap().rows_estimate(), rows.len() as u64, "{about}");
    db.close().unwrap();
    let db = Database::open_on(disk, options()).unwrap_or_else(|error| panic!("{about}: {error}"));
    db.transact(|tx| {
        check(tx, &rows, about);
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_model_of_definitions_amid_writes() {
    let base = Random::seed_from_environment();
    let until = Instant::now() + Random::test_time_from_environment();
    let mut seed = base;
    while seed.wrapping_sub(base) < 50 || Instant::now() < until {
        history(seed);
        seed = seed.wrapping_add(1);
    }
    println!("tally: definitions amid writes, {} seeds, RIALTO_SEED={base}", seed.wrapping_sub(base));
}

/// Rows are deleted by their numbers, with few writes and with many. Then the table gets a key, and rows whose keys
/// have the bytes of these numbers are inserted.
#[test]
fn rows_deleted_by_their_numbers_are_none_of_those_that_come_by_key() {
    for many in [3, 40] {
        let disk = MemoryDisk::new();
        let db = Database::open_on(disk.clone(), options()).unwrap();
        let mut tx = db.begin().unwrap();
        create(&mut tx);
        let table = tx.table("t").unwrap();
        (0..many).for_each(|id| tx.insert(&table, &row(id, 1)).unwrap());
        let there = scan(&mut tx, &table, WhichIndex::Primary);
        assert!(there.iter().all(|(at, ..)| tx.delete_at(&table, at).unwrap()));
        tx.add_primary_key("t", &["id"]).unwrap();
        let mut rows = Rows::new();
        for id in (0..many).chain(LIKE_NUMBERS..LIKE_NUMBERS + many) {
            assert!(tx.get(&table, id).unwrap().is_none() && !tx.delete(&table, id).unwrap());
            tx.insert(&table, &row(id, 2)).unwrap();
            rows.insert(id, 2);
        }
        check(&mut tx, &rows, "in the transaction");
        let keys = scan(&mut tx, &table, WhichIndex::Primary);
        let is_alike = |at: &RowKey| there.iter().any(|(number, ..)| number == at);
        assert!(keys.iter().any(|(at, ..)| is_alike(at)), "the test's own premise");
        tx.commit().unwrap();
        drop(table);
        let found = |db: &Database| {
            db.transact(|tx| {
                check(tx, &rows, "behind the commit");
                let table = tx.table("t")?;
                assert!(rows.keys().all(|&id| tx.get(&table, id).unwrap().is_some()));
                Ok(())
            })
            .unwrap();
        };
        found(&db);
        db.close().unwrap();
        found(&Database::open_on(disk, options()).unwrap());
    }
}
