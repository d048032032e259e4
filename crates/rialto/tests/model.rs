//! Tables and indexes against ordered maps: random definitions, changes, scans in both directions, savepoints, aborts,
//! and the database opened again on the same disk now and then.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Instant;

use rialto::io::{MemoryDisk, Random};
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Checkpointing, Database, Direction, Error, KeyBound, LockForm, Options, Scan, TableDef, Transaction,
};

const KEYS: u64 = 60;

#[derive(Debug, Clone, PartialEq, Default)]
struct ModelTable {
    /// The names of the indexes on `n`, in the order of their making.
    indexes: Vec<String>,
    rows: BTreeMap<i32, (i64, String)>,
}

type Model = BTreeMap<String, ModelTable>;

fn open(disk: &std::sync::Arc<MemoryDisk>, random: &mut Random) -> Database {
    let locks = LockForm::ALL[random.below(3) as usize];
    let options =
        Options { memory_bytes: 128 << 20, checkpoint: Checkpointing::None, locks, ..Options::default() };
    Database::open_on(disk.clone(), options).unwrap()
}

fn text(random: &mut Random) -> String {
    let length = if random.chance(1, 20) { random.below(3000) } else { random.below(30) };
    char::from(b'a' + random.below(26) as u8).to_string().repeat(length as usize)
}

fn pick(model: &Model, random: &mut Random) -> Option<String> {
    (!model.is_empty())
        .then(|| model.keys().nth(random.below(model.len() as u64) as usize).expect("below").clone())
}

fn define(tx: &mut Transaction, model: &mut Model, random: &mut Random) -> Result<(), Error> {
    let name = format!("t{}", random.below(5));
    let Some(entry) = model.get_mut(&name) else {
        let columns = vec![
            Column::new("id", ColumnType::Int4),
            Column::new("n", ColumnType::Int8),
            Column::nullable("text", ColumnType::Text),
        ];
        tx.create_table(&TableDef::new(name.clone(), columns).with_primary_key(&["id"]))?;
        model.insert(name, ModelTable::default());
        return Ok(());
    };
    match random.below(8) {
        0 => {
            tx.drop_table(&name)?;
            model.remove(&name);
        }
        1..3 => {
            if let Some(index) = entry.indexes.pop() {
                tx.drop_index(&index)?;
            }
        }
        _ if entry.indexes.len() < 2 => {
            let index = format!("{name}_{}", random.next());
            tx.create_index(&name, &index, &["n"], false)?;
            entry.indexes.push(index);
        }
        _ => {}
    }
    Ok(())
}

fn change(tx: &mut Transaction, model: &mut Model, random: &mut Random) -> Result<(), Error> {
    let Some(name) = pick(model, random) else { return Ok(()) };
    let table = tx.table(&name)?;
    let rows = &mut model.get_mut(&name).expect("picked").rows;
    let id = random.below(KEYS) as i32;
    match random.below(10) {
        0..4 => {
            let (n, text) = (random.below(8) as i64, text(random));
            let row = [Value::Int4(id), Value::Int8(n), Value::Text(text.clone())];
            match tx.insert(&table, &row) {
                Ok(()) => assert!(rows.insert(id, (n, text)).is_none(), "{name} took key {id} twice"),
                Err(Error::DuplicateKey { .. }) => assert!(rows.contains_key(&id), "{name} has no key {id}"),
                Err(error) => return Err(error),
            }
        }
        4..6 => {
            let n = random.below(8) as i64;
            assert_eq!(tx.update(&table, id, &[(1, Value::Int8(n))])?, rows.contains_key(&id));
            rows.entry(id).and_modify(|row| row.0 = n);
        }
        6 => {
            let text = text(random);
            assert_eq!(tx.update(&table, id, &[(2, Value::Text(text.clone()))])?, rows.contains_key(&id));
            rows.entry(id).and_modify(|row| row.1 = text);
        }
        7 => {
            let to = random.below(KEYS) as i32;
            match tx.update(&table, id, &[(0, Value::Int4(to))]) {
                Ok(there) => {
                    assert_eq!(there, rows.contains_key(&id), "{name}: {id} to {to}");
                    if let Some(row) = rows.remove(&id) {
                        assert!(rows.insert(to, row).is_none(), "{name} took key {to} twice");
                    }
                }
                Err(Error::DuplicateKey { .. }) => assert!(rows.contains_key(&to) && to != id),
                Err(error) => return Err(error),
            }
        }
        _ => assert_eq!(tx.delete(&table, id)?, rows.remove(&id).is_some()),
    }
    Ok(())
}

fn bound(random: &mut Random, value: Value) -> KeyBound {
    match random.below(3) {
        0 => KeyBound::Unbounded,
        1 => KeyBound::Included(vec![value]),
        _ => KeyBound::Excluded(vec![value]),
    }
}

fn within(key: i64, lower: &KeyBound, upper: &KeyBound) -> bool {
    let number = |values: &[Value]| match values[0] {
        Value::Int4(number) => i64::from(number),
        Value::Int8(number) => number,
        ref other => panic!("no bound of this test: {other:?}"),
    };
    let above = match lower {
        KeyBound::Unbounded => true,
        KeyBound::Included(values) => key >= number(values),
        KeyBound::Excluded(values) => key > number(values),
    };
    above
        && match upper {
            KeyBound::Unbounded => true,
            KeyBound::Included(values) => key <= number(values),
            KeyBound::Excluded(values) => key < number(values),
        }
}

fn look(tx: &mut Transaction, model: &Model, random: &mut Random) -> Result<(), Error> {
    let Some(name) = pick(model, random) else { return Ok(()) };
    let (table, entry) = (tx.table(&name)?, &model[&name]);
    let id = random.below(KEYS) as i32;
    let found = tx.get(&table, id)?.map(|row| row.values());
    let row =
        |id: i32, row: &(i64, String)| vec![Value::Int4(id), Value::Int8(row.0), Value::Text(row.1.clone())];
    assert_eq!(found, entry.rows.get(&id).map(|found| row(id, found)), "{name}, key {id}");

    let at = random.below(entry.indexes.len() as u64 + 1) as usize;
    let primary = at == 0;
    let index = if primary { WhichIndex::Primary } else { WhichIndex::Secondary(at - 1) };
    let mut end = || {
        let value = if primary {
            Value::Int4(random.below(KEYS) as i32)
        } else {
            Value::Int8(random.below(8) as i64)
        };
        bound(random, value)
    };
    let (lower, upper) = (end(), end());
    let direction = if random.chance(1, 2) { Direction::Forward } else { Direction::Backward };
    let limit = random.chance(1, 3).then(|| random.below(6));
    let key = |id: i32, n: i64| if primary { i64::from(id) } else { n };
    let mut expected: Vec<_> =
        entry.rows.iter().filter(|(id, row)| within(key(**id, row.0), &lower, &upper)).collect();
    expected.sort_by_key(|(id, row)| (key(**id, row.0), **id));
    if direction == Direction::Backward {
        expected.reverse();
    }
    expected.truncate(limit.unwrap_or(u64::MAX) as usize);
    let expected: Vec<_> = expected.into_iter().map(|(id, found)| row(*id, found)).collect();
    let scan = Scan { index, lower, upper, direction, limit, ..Scan::all() };
    let mut found = Vec::new();
    tx.scan(&table, &scan, |_, row| {
        found.push(row.values());
        Ok(ControlFlow::Continue(()))
    })?;
    assert_eq!(found, expected, "{name}, {scan:?}");
    Ok(())
}

/// One transaction. Gives whether it committed.
fn transaction(
    db: &Database,
    model: &mut Model,
    random: &mut Random,
    operations: &mut u64,
) -> Result<bool, Error> {
    let mut tx = db.begin()?;
    let mut savepoints = Vec::new();
    for _ in 0..1 + random.below(12) {
        *operations += 1;
        match random.below(24) {
            0 => define(&mut tx, model, random)?,
            1..3 => savepoints.push((tx.savepoint(), model.clone())),
            3 if !savepoints.is_empty() => {
                savepoints.truncate(random.below(savepoints.len() as u64) as usize + 1);
                let (savepoint, then) = savepoints.last().expect("one is left");
                tx.rollback_to(savepoint)?;
                model.clone_from(then);
            }
            4 => {
                if let Some((savepoint, _)) = savepoints.pop() {
                    tx.release_savepoint(savepoint)?;
                }
            }
            5..10 => look(&mut tx, model, random)?,
            _ => change(&mut tx, model, random)?,
        }
    }
    if random.chance(1, 5) { tx.abort().map(|()| false) } else { tx.commit().map(|()| true) }
}

/// Gives the transactions, the operations in them, and how often it was opened again.
fn run(seed: u64, until: impl Fn() -> bool) -> (u64, u64, u64) {
    let mut random = Random::new(seed);
    let disk = MemoryDisk::new();
    let mut db = open(&disk, &mut random);
    let mut model = Model::new();
    let (mut transactions, mut operations, mut reopened) = (0, 0, 0);
    while transactions < 300 || !until() {
        transactions += 1;
        let mut next = model.clone();
        match transaction(&db, &mut next, &mut random, &mut operations) {
            Ok(true) => model = next,
            Ok(false) => {}
            Err(error) => panic!("transaction {transactions}: {error}"),
        }
        if random.chance(1, 100) {
            if random.chance(1, 2) {
                db.checkpoint().unwrap();
            }
            db.close().unwrap();
            db = open(&disk, &mut random);
            reopened += 1;
            let tables: Vec<_> = db.tables().iter().map(|table| table.name().to_owned()).collect();
            let tables: Vec<_> = tables.into_iter().filter(|name| !name.starts_with("rialto_")).collect();
            assert_eq!(tables, model.keys().cloned().collect::<Vec<_>>());
            for (name, entry) in &mut model {
                let schema = db.table(name).unwrap().schema();
                let mut names: Vec<_> = schema.indexes().iter().map(|index| index.name.clone()).collect();
                names.sort();
                entry.indexes.sort();
                assert_eq!(names, entry.indexes, "the indexes of {name}");
            }
        }
    }
    (transactions, operations, reopened)
}

#[test]
fn the_database_does_what_ordered_maps_do() {
    let seed = Random::seed_from_environment();
    let (began, time) = (Instant::now(), Random::test_time_from_environment());
    println!("RIALTO_SEED={seed}");
    let (transactions, operations, reopened) = run(seed, || began.elapsed() >= time);
    println!(
        "tally: databases against maps, {transactions} transactions, {operations} operations, {reopened} recoveries, \
         RIALTO_SEED={seed}"
    );
}
