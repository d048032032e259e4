//! ADD PRIMARY KEY as in PostgreSQL: on nullable columns, and in a transaction that made, filled or changed the table;
//! rolled back, committed, and recovered after crashes with checkpoints all the while.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use rialto::io::{FaultyDisk, MemoryDisk, Random};
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{Checkpointing, Database, Error, Options, Scan, Table, TableDef, Transaction};

type Rows = BTreeMap<i32, (i64, String)>;

fn options() -> Options {
    Options { memory_bytes: 128 << 20, checkpoint: Checkpointing::None, ..Options::default() }
}

fn definition(name: &str) -> TableDef {
    let columns = vec![
        Column::nullable("id", ColumnType::Int4),
        Column::nullable("n", ColumnType::Int8),
        Column::nullable("text", ColumnType::Text),
    ];
    TableDef::new(name, columns)
}

fn row(id: i32, n: i64, text: &str) -> [Value; 3] {
    [Value::Int4(id), Value::Int8(n), Value::Text(text.to_owned())]
}

fn insert(tx: &mut Transaction, name: &str, rows: &mut Rows, id: i32, n: i64, text: &str) {
    let table = tx.table(name).unwrap();
    tx.insert(&table, &row(id, n, text)).unwrap();
    rows.insert(id, (n, text.to_owned()));
}

/// The contents of a table, read by each of its indexes.
fn contents(tx: &mut Transaction, table: &Table) -> Rows {
    let schema = table.schema();
    let mut indexes = vec![WhichIndex::Primary];
    indexes.extend((0..schema.indexes().len()).map(WhichIndex::Secondary));
    let mut all: Option<Rows> = None;
    for which in indexes {
        let (mut rows, mut seen) = (Rows::new(), 0);
        tx.scan(table, &Scan { index: which, ..Scan::all() }, |_, row| {
            seen += 1;
            rows.insert(row.get_i32(0)?, (row.get_i64(1)?, row.get_str(2)?.to_owned()));
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        assert_eq!(seen, rows.len(), "{} by {which:?} has a row twice", table.name());
        if let Some(all) = &all {
            assert!(rows == *all, "{} by {which:?} and by its primary key", table.name());
        }
        all = Some(rows);
    }
    all.expect("by the primary key at least")
}

fn check(db: &Database, name: &str, expected: &Rows) {
    db.transact(|tx| {
        let table = tx.table(name)?;
        assert!(table.schema().primary_key().is_some(), "{name} has its key");
        assert!(contents(tx, &table) == *expected, "the rows of {name}");
        for (&id, row) in expected {
            let found = tx.get(&table, id)?.unwrap_or_else(|| panic!("row {id} of {name} is found"));
            assert_eq!(found.get("n")?, Value::Int8(row.0));
        }
        let null = tx.insert(&table, &[Value::Null, Value::Int8(0), Value::Text(String::new())]);
        assert!(matches!(null, Err(Error::NotNull { ref column, .. }) if column == "id"), "{null:?}");
        Ok(())
    })
    .unwrap();
    assert_eq!(db.table(name).unwrap().rows_estimate(), expected.len() as u64, "the count of {name}");
}

/// Changes rows by the identity that the table has.
fn change(tx: &mut Transaction, name: &str, rows: &mut Rows, id: i32, to: Option<(i64, &str)>) {
    let table = tx.table(name).unwrap();
    let changes = to.map(|(n, text)| [(1, Value::Int8(n)), (2, Value::Text(text.to_owned()))]);
    let done = if table.schema().primary_key().is_some() {
        match &changes {
            Some(changes) => tx.update(&table, id, changes),
            None => tx.delete(&table, id),
        }
    } else {
        let mut key = None;
        tx.scan(&table, &Scan::all(), |at, row| {
            if row.get_i32(0)? == id {
                key = Some(at.clone());
                return Ok(ControlFlow::Break(()));
            }
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        let key = key.unwrap_or_else(|| panic!("row {id} of {name} is there"));
        match &changes {
            Some(changes) => tx.update_at(&table, &key, changes),
            None => tx.delete_at(&table, &key),
        }
    };
    assert!(done.unwrap(), "row {id} of {name} is there");
    match to {
        Some((n, text)) => drop(rows.insert(id, (n, text.to_owned()))),
        None => drop(rows.remove(&id)),
    }
}

/// Gives a row another key, and a text.
fn rekey(tx: &mut Transaction, name: &str, rows: &mut Rows, id: i32, to: i32, text: &str) {
    let table = tx.table(name).unwrap();
    let changes = [(0, Value::Int4(to)), (2, Value::Text(text.to_owned()))];
    assert!(tx.update(&table, id, &changes).unwrap(), "row {id} of {name} is there");
    let (n, _) = rows.remove(&id).expect("it is there");
    rows.insert(to, (n, text.to_owned()));
}

/// Some of each kind of write.
fn changes(tx: &mut Transaction, name: &str, rows: &mut Rows, first: i32) {
    let long = "long".repeat(150);
    for id in first..first + 8 {
        insert(tx, name, rows, id, i64::from(id % 3), "short");
    }
    change(tx, name, rows, first, Some((7, "changed")));
    change(tx, name, rows, first + 1, Some((8, &long)));
    change(tx, name, rows, first + 1, Some((9, &long)));
    change(tx, name, rows, first + 2, None);
    change(tx, name, rows, first + 3, None);
    insert(tx, name, rows, first + 3, 5, &long);
}

#[test]
fn nullable_columns_become_not_null_unless_there_is_a_null() {
    let db = Database::open_on(MemoryDisk::new(), options()).unwrap();
    let mut rows = Rows::new();
    db.transact(|tx| {
        tx.create_table(&definition("t"))?;
        tx.create_index("t", "t_n", &["n", "id"], false)?;
        rows.clear();
        changes(tx, "t", &mut rows, 0);
        let table = tx.table("t")?;
        tx.insert(&table, &[Value::Null, Value::Int8(1), Value::Text("null".into())])
    })
    .unwrap();
    let refused = db.transact(|tx| tx.add_primary_key("t", &["n", "id"]));
    assert!(
        matches!(refused, Err(Error::NotNull { ref table, ref column }) if table == "t" && column == "id"),
        "{refused:?}"
    );
    db.transact(|tx| {
        let table = tx.table("t")?;
        let mut key = None;
        tx.scan(&table, &Scan::all(), |at, row| {
            key = row.is_null(0).then(|| at.clone()).or(key.take());
            Ok(ControlFlow::Continue(()))
        })?;
        assert!(tx.delete_at(&table, &key.expect("the null is found"))?);
        // In the transaction that made it possible.
        tx.add_primary_key("t", &["id"])
    })
    .unwrap();
    let schema = db.table("t").unwrap().schema();
    let nullable: Vec<bool> = schema.columns().iter().map(|column| column.nullable).collect();
    assert_eq!(nullable, [false, true, true]);
    check(&db, "t", &rows);
    let table = db.table("t").unwrap();
    let twice = db.transact(|tx| tx.insert(&table, &row(0, 0, "")));
    assert!(matches!(twice, Err(Error::DuplicateKey { .. })), "{twice:?}");
}

#[test]
fn keys_that_are_too_long_are_refused_before_anything_changes() {
    let db = Database::open_on(MemoryDisk::new(), options()).unwrap();
    let table = db.transact(|tx| tx.create_table(&definition("t"))).unwrap();
    db.transact(|tx| tx.insert(&table, &row(1, 1, &"x".repeat(5_000)))).unwrap();
    let refused = db.transact(|tx| tx.add_primary_key("t", &["text"]));
    assert!(matches!(refused, Err(Error::KeyTooLong { .. })), "{refused:?}");
    let refused = db.transact(|tx| tx.create_index("t", "t_text", &["text"], false));
    assert!(matches!(refused, Err(Error::KeyTooLong { .. })), "{refused:?}");
    db.transact(|tx| tx.add_primary_key("t", &["id"])).unwrap();
}

/// Fills a table, changes it, gives it a key and changes it again, in one transaction. With `many`, more rows before
/// and after than start a bulk load.
fn make(tx: &mut Transaction, name: &str, rows: &mut Rows, many: bool) {
    if tx.table(name).is_err() {
        tx.create_table(&definition(name)).unwrap();
        tx.create_index(name, &format!("{name}_n"), &["n"], false).unwrap();
        tx.create_index(name, &format!("{name}_id"), &["id", "text"], true).unwrap();
    }
    changes(tx, name, rows, 100);
    if many {
        (1000..1600).for_each(|id| insert(tx, name, rows, id, 1, "loaded"));
        change(tx, name, rows, 1001, Some((2, "a loaded row, changed")));
        change(tx, name, rows, 1590, Some((2, &"longer".repeat(100))));
        change(tx, name, rows, 1591, None);
    }
    tx.add_primary_key(name, &["id"]).unwrap();
    let table = tx.table(name).unwrap();
    assert!(contents(tx, &table) == *rows, "its own rows are seen by the new key");
    let id = *rows.keys().next().unwrap();
    let again = tx.insert(&table, &row(id, 0, ""));
    assert!(matches!(again, Err(Error::DuplicateKey { .. })), "{again:?}");
    change(tx, name, rows, 100, Some((70, "changed by key")));
    change(tx, name, rows, 101, None);
    changes(tx, name, rows, 200);
    if many {
        (2000..2300).for_each(|id| insert(tx, name, rows, id, 1, "loaded later"));
        change(tx, name, rows, 1002, Some((3, "by key")));
        change(tx, name, rows, 1003, None);
        change(tx, name, rows, 2299, None);
        rekey(tx, name, rows, 1004, 1704, "loaded by number, keyed anew");
        rekey(tx, name, rows, 2004, 1004, "loaded by key, keyed anew");
        rekey(tx, name, rows, 204, 1705, "no row of the load's");
    }
    assert!(contents(tx, &table) == *rows, "and those of after");
}

#[test]
fn a_transaction_that_filled_or_changed_the_table_can_give_it_a_key() {
    for (exists, many) in [(false, false), (false, true), (true, false)] {
        let disk = FaultyDisk::new(7);
        let db = Database::open_on(disk.clone(), options()).unwrap();
        let mut before = Rows::new();
        if exists {
            db.transact(|tx| {
                tx.create_table(&definition("t"))?;
                tx.create_index("t", "t_n", &["n"], false)?;
                before.clear();
                changes(tx, "t", &mut before, 0);
                Ok(())
            })
            .unwrap();
        }

        // Rolled back whole, and to a savepoint before the key and before everything.
        let mut rows = before.clone();
        let mut tx = db.begin().unwrap();
        make(&mut tx, "t", &mut rows, many);
        tx.abort().unwrap();
        assert_eq!(db.table("t").is_ok(), exists);

        let mut rows = before.clone();
        let mut tx = db.begin().unwrap();
        let start = tx.savepoint();
        make(&mut tx, "t", &mut rows, many);
        tx.rollback_to(&start).unwrap();
        rows.clone_from(&before);
        if !exists {
            tx.create_table(&definition("t")).unwrap();
        }
        changes(&mut tx, "t", &mut rows, 300);
        let keyless = (tx.savepoint(), rows.clone());
        tx.add_primary_key("t", &["id"]).unwrap();
        changes(&mut tx, "t", &mut rows, 400);
        tx.rollback_to(&keyless.0).unwrap();
        rows = keyless.1;
        let table = tx.table("t").unwrap();
        assert!(table.schema().primary_key().is_none());
        assert!(contents(&mut tx, &table) == rows, "what was before the savepoint");
        change(&mut tx, "t", &mut rows, 300, Some((1, "by number again")));
        make(&mut tx, "t", &mut rows, many);
        tx.commit().unwrap();
        check(&db, "t", &rows);

        disk.crash();
        let db = Database::open_on(disk.restart(), options()).unwrap();
        check(&db, "t", &rows);
        let mut more = rows.clone();
        db.transact(|tx| {
            more.clone_from(&rows);
            changes(tx, "t", &mut more, 500);
            Ok(())
        })
        .unwrap();
        check(&db, "t", &more);
    }
}

/// The load has the row twice, by its old key and by its new one, and is redone by hidden numbers.
#[test]
fn a_loaded_row_that_gets_another_key_is_recovered_with_it() {
    // A large free slot lies before the row; the row with the new key goes there, or after all others.
    for length in [10, 4_000] {
        let disk = MemoryDisk::new();
        let db = Database::open_on(disk.clone(), options()).unwrap();
        let (mut tx, mut rows) = (db.begin().unwrap(), Rows::new());
        tx.create_table(&definition("t")).unwrap();
        (0..300).for_each(|id| insert(&mut tx, "t", &mut rows, id, 1, "loaded"));
        let savepoint = tx.savepoint();
        let table = tx.table("t").unwrap();
        tx.insert(&table, &row(5_000, 1, &"large".repeat(800))).unwrap();
        tx.rollback_to(&savepoint).unwrap();
        insert(&mut tx, "t", &mut rows, 1_000, 1, "loaded");
        tx.add_primary_key("t", &["id"]).unwrap();
        rekey(&mut tx, "t", &mut rows, 1_000, 2_000, &"y".repeat(length));
        tx.commit().unwrap();
        check(&db, "t", &rows);
        db.close().unwrap();
        check(&Database::open_on(disk, options()).unwrap(), "t", &rows);
    }
}

/// Whether an error says that the disk has ended, and the database with it.
fn is_end(error: &Error) -> bool {
    matches!(error, Error::Stopped { .. } | Error::Io { .. })
}

/// Transactions that give tables keys, under sweeps that copy the catalog and the rows at different times, with a
/// crash at a random step.
fn crashes(seed: u64) {
    println!("RIALTO_SEED={seed}");
    let mut random = Random::new(seed);
    let disk = FaultyDisk::new(random.next());
    let options = Options {
        checkpoint: Checkpointing::Fuzzy,
        checkpoint_interval: Duration::from_millis(1),
        sweep_bytes_per_s: Some(1_000_000 << random.below(7)),
        ..options()
    };
    let db = Database::open_on(disk.clone(), options.clone()).unwrap();
    let mut tables: Vec<(String, Rows, bool)> = Vec::new();
    disk.crash_at(disk.steps() + 50 + random.below(1500));
    // The last transaction's tables may exist or not.
    let mut unsure = Vec::new();
    for round in 0.. {
        let mut next = tables.clone();
        let mut tx = match db.begin() {
            Ok(tx) => tx,
            Err(error) if is_end(&error) => break,
            Err(error) => panic!("RIALTO_SEED={seed}: {error}"),
        };
        let mut work = || -> Result<(), Error> {
            // Its rows in the system tables come before the writes to the others.
            tx.create_table(&definition(&format!("other{round}")))?;
            if round % 2 == 0 {
                let name = format!("t{round}");
                tx.create_table(&definition(&name))?;
                next.push((name, Rows::new(), false));
            }
            for (name, rows, keyed) in &mut next {
                if *keyed && random.chance(3, 4) {
                    continue;
                }
                let first = (rows.len() as i32 + 10) * 10;
                changes(&mut tx, name, rows, first);
                if !*keyed && random.chance(1, 2) {
                    tx.add_primary_key(name, &["id"])?;
                    *keyed = true;
                    changes(&mut tx, name, rows, first + 20);
                }
            }
            tx.drop_table(&format!("other{round}"))
        };
        match work().and_then(|()| tx.commit()) {
            Ok(()) => tables = next,
            Err(Error::OutcomeUnknown { .. }) => {
                unsure = next;
                break;
            }
            Err(error) if is_end(&error) => break,
            Err(error) => panic!("RIALTO_SEED={seed}: {error}"),
        }
        if random.chance(1, 2) {
            std::thread::sleep(Duration::from_micros(random.below(3000)));
        }
    }
    drop(db);
    if !disk.is_down() {
        disk.crash();
    }
    let db = Database::open_on(disk.restart(), options)
        .unwrap_or_else(|error| panic!("RIALTO_SEED={seed}: {error}"));
    let matches = |tables: &[(String, Rows, bool)]| {
        let names: BTreeSet<String> = tables.iter().map(|(name, ..)| name.clone()).collect();
        let there = db.tables().into_iter().map(|table| table.name());
        let there: BTreeSet<String> = there.filter(|name| !name.starts_with("rialto_")).collect();
        let mut tx = db.begin().unwrap();
        there == names
            && tables.iter().all(|(name, rows, keyed)| {
                tx.table(name).is_ok_and(|table| {
                    table.schema().primary_key().is_some() == *keyed && contents(&mut tx, &table) == *rows
                })
            })
    };
    let unknown = !unsure.is_empty() && matches(&unsure);
    assert!(unknown || matches(&tables), "RIALTO_SEED={seed}: what was acknowledged is not what is found");
}

/// A row that the transaction has inserted is found by the key that it is given, and no longer by its row number. The
/// eight bytes of the number may be those of another key: of seven texts of which one has a character, or of eight
/// booleans.
#[test]
fn a_key_that_looks_like_a_row_number() {
    let texts = |n: u8| -> Vec<Value> {
        (0..7)
            .map(|at| if at == 5 { char::from(n).to_string() } else { String::new() })
            .map(Value::Text)
            .collect()
    };
    let flags = |n: u8| -> Vec<Value> { (0..8).map(|bit| Value::Bool(n >> bit & 1 == 1)).collect() };
    let keys: [&dyn Fn(u8) -> Vec<Value>; 2] = [&texts, &flags];
    for (ty, key) in [ColumnType::Text, ColumnType::Bool].into_iter().zip(keys) {
        let names: Vec<String> = (0..key(1).len()).map(|at| format!("c{at}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        // With few writes and with many, which are found in another way.
        for rows in [1, 20_u8] {
            let db = Database::open_on(MemoryDisk::new(), options()).unwrap();
            let columns: Vec<Column> = names.iter().map(|name| Column::new(*name, ty)).collect();
            db.transact(|tx| {
                let table = tx.create_table(&TableDef::new("t", columns.clone()))?;
                (100..100 + rows).try_for_each(|n| tx.insert(&table, &key(n)))?;
                tx.add_primary_key("t", &names)?;
                let table = tx.table("t")?;
                for n in 1..=127 {
                    let is_there = (100..100 + rows).contains(&n);
                    assert_eq!(tx.get(&table, &key(n)[..])?.is_some(), is_there, "{ty:?} {n}");
                }
                (1..100).try_for_each(|n| tx.insert(&table, &key(n)))
            })
            .unwrap();
            let table = db.table("t").unwrap();
            assert_eq!(table.rows_estimate(), 99 + u64::from(rows));
        }
    }
}

#[test]
fn keys_given_under_sweeps_survive_crashes() {
    let base = Random::seed_from_environment();
    let until = Instant::now() + Random::test_time_from_environment();
    let mut seed = base;
    while seed == base || Instant::now() < until {
        crashes(seed);
        seed = seed.wrapping_add(1);
    }
    let rounds = seed.wrapping_sub(base);
    println!(
        "tally: keys under sweeps and crashes, {rounds} seeds, {rounds} losses of power, RIALTO_SEED={base}"
    );
}
