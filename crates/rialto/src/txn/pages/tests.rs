//! One client on a table in pages, against a map: changes, savepoints, aborts, scans by each index.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use crate::io::{MemoryDisk, Random};
use crate::row::{Column, ColumnType, RowView, Value, WhichIndex};
use crate::{Checkpointing, Database, Direction, Error, Options, Scan, Table, TableDef, Transaction};

/// Key, group, unique code, text.
type Line = (i32, i32, i32, String);

/// The rows by their keys.
type Model = BTreeMap<i32, Line>;

fn values(line: &Line) -> [Value; 4] {
    [Value::Int4(line.0), Value::Int4(line.1), Value::Int4(line.2), Value::Text(line.3.clone())]
}

fn line_of(row: RowView<'_>) -> Line {
    let text = match row.get(3) {
        Value::Text(text) => text,
        other => panic!("a text, found {other:?}"),
    };
    (row.get_i32(0).unwrap(), row.get_i32(1).unwrap(), row.get_i32(2).unwrap(), text)
}

fn open(frames: u64) -> (Database, Table) {
    let options = Options { checkpoint: Checkpointing::None, ..Options::default() };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let table = db
        .transact(|tx| {
            let columns = vec![
                Column::new("id", ColumnType::Int4),
                Column::new("part", ColumnType::Int4),
                Column::new("code", ColumnType::Int4),
                Column::new("text", ColumnType::Text),
            ];
            let table = tx.create_table(&TableDef::new("lines", columns).with_primary_key(&["id"]))?;
            tx.create_index("lines", "by_part", &["part"], false)?;
            tx.create_index("lines", "by_code", &["code"], true)?;
            Ok(table)
        })
        .unwrap();
    table.move_to_pages(frames);
    (db, table)
}

fn scanned(tx: &mut Transaction<'_>, table: &Table, scan: &Scan) -> Vec<Line> {
    let mut lines = Vec::new();
    tx.scan(table, scan, |_, row| {
        lines.push(line_of(row));
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    lines
}

/// The transaction sees exactly these rows, by each index in both directions.
fn check(tx: &mut Transaction<'_>, table: &Table, model: &Model, context: &str) {
    let sorted = |key: fn(&Line) -> (i32, i32)| {
        let mut lines: Vec<Line> = model.values().cloned().collect();
        lines.sort_by_key(key);
        lines
    };
    let orders = [
        (WhichIndex::Primary, sorted(|line| (line.0, 0))),
        (WhichIndex::Secondary(0), sorted(|line| (line.1, line.0))),
        (WhichIndex::Secondary(1), sorted(|line| (line.2, 0))),
    ];
    for (index, mut lines) in orders {
        let scan = Scan { index, ..Scan::all() };
        assert_eq!(scanned(tx, table, &scan), lines, "{context}: by {index:?}");
        lines.reverse();
        let scan = Scan { direction: Direction::Backward, ..scan };
        assert_eq!(scanned(tx, table, &scan), lines, "{context}: by {index:?} backward");
    }
    for key in 0..KEYS {
        let found = tx.get(table, key).unwrap().map(|row| line_of(row.view()));
        assert_eq!(found.as_ref(), model.get(&key), "{context}: key {key}");
    }
}

const KEYS: i32 = 900;
const CODES: u64 = 2_000;

fn draw(random: &mut Random, key: i32) -> Line {
    let length = if random.chance(1, 6) { random.below(4_000) } else { random.below(400) };
    (key, random.below(4) as i32, random.below(CODES) as i32, "t".repeat(length as usize))
}

/// One change of a row; what it does to the model.
fn change(tx: &mut Transaction<'_>, table: &Table, random: &mut Random, model: &mut Model) {
    let key = random.below(KEYS as u64) as i32;
    let line = draw(random, key);
    let has_code = model.values().find(|row| row.2 == line.2 && row.0 != key).map(|row| row.0);
    match random.below(5) {
        0 => assert_eq!(tx.delete(table, key).unwrap(), model.remove(&key).is_some()),
        1 | 2 => match tx.insert(table, &values(&line)) {
            Ok(()) => {
                assert!(has_code.is_none() && !model.contains_key(&key), "a duplicate is refused");
                model.insert(key, line);
            }
            Err(Error::DuplicateKey { .. }) => assert!(has_code.is_some() || model.contains_key(&key)),
            Err(error) => panic!("{error}"),
        },
        3 => {
            let changes = [(1, Value::Int4(line.1)), (3, Value::Text(line.3.clone()))];
            let is_there = tx.update(table, key, &changes).unwrap();
            assert_eq!(is_there, model.contains_key(&key));
            if let Some(row) = model.get_mut(&key) {
                (row.1, row.3) = (line.1, line.3);
            }
        }
        _ => {
            // Another row gives its code up first.
            if let Some(other) = has_code.filter(|_| model.contains_key(&key)) {
                assert!(tx.delete(table, other).unwrap());
                model.remove(&other);
            }
            match tx.update(table, key, &[(2, Value::Int4(line.2))]) {
                Ok(is_there) => {
                    assert_eq!(is_there, model.contains_key(&key));
                    if let Some(row) = model.get_mut(&key) {
                        row.2 = line.2;
                    }
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn a_table_in_pages_does_what_a_map_does() {
    let seed = Random::seed_from_environment();
    let mut random = Random::new(seed);
    let (db, table) = open(96);
    let mut model = Model::new();
    for keys in (0..700).collect::<Vec<_>>().chunks(7) {
        let lines: Vec<Line> = keys
            .iter()
            .map(|&key| {
                let (_, part, _, text) = draw(&mut random, key);
                (key, part, 10_000 + key, text)
            })
            .collect();
        db.transact(|tx| lines.iter().try_for_each(|line| tx.insert(&table, &values(line)))).unwrap();
        model.extend(lines.into_iter().map(|line| (line.0, line)));
    }
    for round in 0..60 {
        let context = format!("RIALTO_SEED={seed}, round {round}");
        let mut tx = db.begin().unwrap();
        let mut now = model.clone();
        for _ in 0..1 + random.below(6) {
            if random.chance(1, 4) {
                let (savepoint, before) = (tx.savepoint(), now.clone());
                for _ in 0..random.below(4) {
                    change(&mut tx, &table, &mut random, &mut now);
                }
                if random.chance(1, 2) {
                    tx.rollback_to(&savepoint).unwrap();
                    now = before;
                }
            } else {
                change(&mut tx, &table, &mut random, &mut now);
            }
        }
        check(&mut tx, &table, &now, &format!("{context}, in the transaction"));
        match random.chance(2, 3) {
            true => {
                tx.commit().unwrap();
                model = now;
            }
            false => tx.abort().unwrap(),
        }
        check(&mut db.begin().unwrap(), &table, &model, &context);
        assert_eq!(table.rows_estimate(), model.len() as u64, "{context}");
        assert_eq!(table.version().store.pages().unwrap().unsettled(), [""; 0], "{context}");
    }
    assert!(model.len() > 100, "{} rows", model.len());
    db.close().unwrap();
}

/// Rows without a primary key are found by their hidden numbers.
#[test]
fn rows_without_a_key_are_in_pages_too() {
    let options = Options { checkpoint: Checkpointing::None, ..Options::default() };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let columns = vec![Column::new("n", ColumnType::Int4)];
    let table = db.transact(|tx| tx.create_table(&TableDef::new("bare", columns.clone()))).unwrap();
    table.move_to_pages(20);
    db.transact(|tx| (0..1_000).try_for_each(|n| tx.insert(&table, &[Value::Int4(n)]))).unwrap();
    let sum = |db: &Database| {
        let mut sum = 0;
        db.transact(|tx| {
            sum = 0;
            tx.scan(&table, &Scan::all(), |_, row| {
                sum += row.get_i32(0)?;
                Ok(ControlFlow::Continue(()))
            })
        })
        .unwrap();
        sum
    };
    assert_eq!(sum(&db), 499_500);
    // Rows are found again by their numbers.
    let mut keys = Vec::new();
    let mut tx = db.begin().unwrap();
    tx.scan(&table, &Scan::all(), |key, row| {
        keys.push((key.clone(), row.get_i32(0)?));
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    for (key, n) in &keys {
        match n % 3 {
            0 => assert!(tx.delete_at(&table, key).unwrap()),
            1 => assert!(tx.update_at(&table, key, &[(0, Value::Int4(0))]).unwrap()),
            _ => assert_eq!(tx.get_at(&table, key).unwrap().unwrap().view().get_i32(0), Ok(*n)),
        }
    }
    tx.commit().unwrap();
    assert_eq!(sum(&db), (0..1_000).filter(|n| n % 3 == 2).sum::<i32>());
    assert_eq!(table.version().store.pages().unwrap().unsettled(), [""; 0]);
    db.close().unwrap();
}

/// A unique key goes to and fro between two rows of one transaction, by moves of a primary key and by swaps.
#[test]
fn a_unique_key_that_goes_to_and_fro_can_be_rolled_back() {
    let (db, table) = open(100);
    let mut model = Model::new();
    for key in [1, 2] {
        let line = (key, 0, 10 * key, "t".to_owned());
        db.transact(|tx| tx.insert(&table, &values(&line))).unwrap();
        model.insert(key, line);
    }
    let move_to = |tx: &mut Transaction<'_>, from: i32, to: i32| {
        assert!(tx.update(&table, from, &[(0, Value::Int4(to))]).unwrap());
    };
    for moves in 1..6 {
        let mut tx = db.begin().unwrap();
        let savepoint = tx.savepoint();
        let at = |number: i32| if number % 2 == 0 { 1 } else { 7 };
        (0..moves).for_each(|number| move_to(&mut tx, at(number), at(number + 1)));
        tx.rollback_to(&savepoint).unwrap();
        check(&mut tx, &table, &model, &format!("{moves} moves, rolled back to a savepoint"));
        (0..moves).for_each(|number| move_to(&mut tx, at(number), at(number + 1)));
        tx.abort().unwrap();
        check(&mut db.begin().unwrap(), &table, &model, &format!("{moves} moves, aborted"));
        // By way of a third code the two rows swap theirs.
        let mut tx = db.begin().unwrap();
        let set = |tx: &mut Transaction<'_>, key: i32, code: i32| {
            assert!(tx.update(&table, key, &[(2, Value::Int4(code))]).unwrap());
        };
        let mut codes = [10, 20];
        for _ in 0..moves {
            set(&mut tx, 1, 99);
            set(&mut tx, 2, codes[0]);
            set(&mut tx, 1, codes[1]);
            codes.swap(0, 1);
        }
        match moves % 2 {
            0 => tx.abort().unwrap(),
            _ => {
                tx.commit().unwrap();
                for (key, code) in [(1, codes[0]), (2, codes[1])] {
                    model.get_mut(&key).unwrap().2 = code;
                }
            }
        }
        check(&mut db.begin().unwrap(), &table, &model, &format!("{moves} swaps"));
        let mut tx = db.begin().unwrap();
        for (key, code) in [(1, 99), (2, 20), (1, 10)] {
            set(&mut tx, key, code);
        }
        tx.commit().unwrap();
        for (key, code) in [(1, 10), (2, 20)] {
            model.get_mut(&key).unwrap().2 = code;
        }
        check(&mut db.begin().unwrap(), &table, &model, &format!("{moves} swaps, and back"));
    }
    db.close().unwrap();
}
