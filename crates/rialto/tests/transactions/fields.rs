//! Fields and rows that are set in place, against plain values: every type, NULL or not, keys among them, once and
//! repeatedly in one transaction, committed and rolled back, and read back from the log, which has the values or what
//! was added to them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use rialto::io::{FaultyDisk, MemoryDisk, Random};
use rialto::row::{Column, ColumnType, Decimal, Row, Timestamp, Value, WhichIndex};
use rialto::{Checkpointing, Database, Error, Fields, Logging, Options, Scan, Table, TableDef, Transaction};

const ID: usize = 1;
const N: usize = 2;
const M: usize = 3;
const K: usize = 8;
/// The integers that are added to, beside `k`.
const SUMS: [usize; 5] = [N, M, 4, 10, 11];
/// The numbers that support no addition.
const NO_SUMS: [usize; 2] = [5, 6];

fn columns() -> Vec<Column> {
    vec![
        Column::new("flag", ColumnType::Bool),
        Column::new("id", ColumnType::Int4),
        Column::new("n", ColumnType::Int8),
        Column::nullable("m", ColumnType::Int8),
        Column::new("small", ColumnType::Int2),
        Column::new("f", ColumnType::Float8),
        Column::nullable("d", ColumnType::Decimal { precision: 20, scale: 2 }),
        Column::nullable("t", ColumnType::Text),
        Column::new("k", ColumnType::Int4),
        Column::new("at", ColumnType::Timestamp),
        Column::new("i", ColumnType::Int4),
        Column::nullable("tiny", ColumnType::Int2),
    ]
}

/// The least and the largest integer of a type.
fn range(ty: ColumnType) -> (i64, i64) {
    match ty {
        ColumnType::Int2 => (i16::MIN.into(), i16::MAX.into()),
        ColumnType::Int4 => (i32::MIN.into(), i32::MAX.into()),
        ColumnType::Int8 => (i64::MIN, i64::MAX),
        other => panic!("{other:?} is no type of integers"),
    }
}

/// An integer of a type, often one at which a sum carries or borrows.
fn integer(ty: ColumnType, random: &mut Random) -> i64 {
    let (least, largest) = range(ty);
    match random.below(8) {
        0 => least,
        1 => largest,
        2 => random.below(5) as i64 - 2,
        _ => (random.next() as i64 >> random.below(60)).clamp(least, largest),
    }
}

fn of_integer(ty: ColumnType, number: i64) -> Value {
    match ty {
        ColumnType::Int2 => Value::Int2(number as i16),
        ColumnType::Int4 => Value::Int4(number as i32),
        _ => Value::Int8(number),
    }
}

fn value(column: usize, random: &mut Random) -> Value {
    if columns()[column].nullable && random.chance(1, 4) {
        return Value::Null;
    }
    let number = random.next() as i64 >> random.below(60);
    match columns()[column].ty {
        ColumnType::Bool => Value::Bool(number % 2 == 0),
        ColumnType::Int4 if column == K => Value::Int4((number % 3) as i32),
        ty @ (ColumnType::Int2 | ColumnType::Int4 | ColumnType::Int8) => of_integer(ty, integer(ty, random)),
        ColumnType::Float8 => Value::Float8(number as f64),
        ColumnType::Decimal { .. } => Value::Decimal(Decimal::new((number % 1_000_000).into(), 2).unwrap()),
        ColumnType::Timestamp => Value::Timestamp(number),
        _ => Value::Text("t".repeat(random.below(40) as usize)),
    }
}

fn row(id: i32, random: &mut Random) -> Vec<Value> {
    let mut row: Vec<_> = (0..columns().len()).map(|column| value(column, random)).collect();
    row[ID] = Value::Int4(id);
    row
}

fn int8(value: &Value) -> i64 {
    let Value::Int8(number) = value else { panic!("{value:?} is no int8") };
    *number
}

/// Adds to an integer, by the method of its type or by the general one.
fn add(fields: &mut Fields<'_>, row: &mut [Value], random: &mut Random) -> Result<(), Error> {
    let column = SUMS[random.below(SUMS.len() as u64) as usize];
    let ty = columns()[column].ty;
    let delta = if random.chance(1, 2) { random.below(7) as i64 - 3 } else { integer(ty, random) };
    let found = match ty {
        ColumnType::Int8 if random.chance(1, 2) => fields.add_i64(column, delta),
        ColumnType::Int4 if random.chance(1, 2) => fields.add_i32(column, delta as i32).map(i64::from),
        _ => fields.add(column, delta),
    };
    let before = match row[column] {
        Value::Int2(number) => i64::from(number),
        Value::Int4(number) => i64::from(number),
        Value::Int8(number) => number,
        _ => {
            assert!(found.is_err(), "a sum of NULL");
            return Ok(());
        }
    };
    let (sum, (least, largest)) = (i128::from(before) + i128::from(delta), range(ty));
    if (i128::from(least)..=i128::from(largest)).contains(&sum) {
        assert_eq!(i128::from(found?), sum, "{before} + {delta}");
        row[column] = of_integer(ty, sum as i64);
    } else {
        assert!(matches!(found, Err(Error::OutOfRange { .. })), "{before} + {delta}: {found:?}");
    }
    Ok(())
}

/// Some reads and changes, the same of the fields and of the values.
fn edit(fields: &mut Fields<'_>, row: &mut [Value], random: &mut Random) -> Result<(), Error> {
    for _ in 0..random.below(6) {
        let column = random.below(row.len() as u64) as usize;
        match random.below(10) {
            0 => assert_eq!(fields.get_i64(N)?, int8(&row[N])),
            1 => assert_eq!(fields.get(column), row[column]),
            2 => assert_eq!(fields.row().values(), row),
            3 | 8 => add(fields, row, random)?,
            9 => {
                let column = NO_SUMS[random.below(2) as usize];
                assert!(fields.add(column, 1).is_err(), "a sum in the column {column}");
            }
            4 => {
                let k = random.below(3) as i32;
                if random.chance(1, 2) {
                    fields.set_i32(K, k)?;
                } else {
                    let before = fields.get_i32(K)?;
                    assert_eq!(fields.add(K, i64::from(k - before))?, i64::from(k));
                }
                row[K] = Value::Int4(k);
                assert_eq!(fields.get_i32(K)?, k);
            }
            5 => {
                let m = random.next() as i64;
                assert_eq!(fields.get_i64(M).ok(), (row[M] != Value::Null).then(|| int8(&row[M])));
                fields.set_i64(M, m)?;
                row[M] = Value::Int8(m);
            }
            _ if column != ID => {
                let value = value(column, random);
                fields.set(column, &value)?;
                row[column] = value;
            }
            _ => {}
        }
    }
    Ok(())
}

type Model = BTreeMap<i32, Vec<Value>>;

fn check(tx: &mut Transaction, table: &Table, model: &Model) {
    let mut rows = Vec::new();
    tx.scan(table, &Scan::all(), |_, row| {
        rows.push(row.values());
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    assert_eq!(rows, model.values().cloned().collect::<Vec<_>>());
    for k in -2..3 {
        let mut ids = Vec::new();
        tx.scan(table, &Scan::prefix(WhichIndex::Secondary(0), vec![Value::Int4(k)]), |_, row| {
            ids.push(row.get_i32(ID)?);
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        let of_k = model.iter().filter(|(_, row)| row[K] == Value::Int4(k));
        assert_eq!(ids, of_k.map(|(id, _)| *id).collect::<Vec<_>>(), "k = {k}");
    }
}

fn transaction(db: &Database, table: &Table, model: &mut Model, random: &mut Random) {
    let mut tx = db.begin().unwrap();
    let (mut now, mut saved) = (model.clone(), None);
    for _ in 0..1 + random.below(8) {
        let id = random.below(12) as i32;
        match random.below(10) {
            0 => {
                let point = tx.savepoint();
                saved = Some((point, now.clone()));
            }
            1 => {
                if let Some((point, then)) = saved.take() {
                    tx.rollback_to(&point).unwrap();
                    now = then;
                }
            }
            2 => assert_eq!(tx.delete(table, id).unwrap(), now.remove(&id).is_some()),
            3 => {
                let failed = tx.modify(table, id, |fields| {
                    edit(fields, &mut now.get(&id).expect("called for a row").clone(), random)?;
                    Err(Error::aborted("changed its mind"))
                });
                assert_eq!(failed.is_err(), now.contains_key(&id));
            }
            4..7 => match now.get_mut(&id) {
                Some(values) => {
                    assert!(tx.modify(table, id, |fields| edit(fields, values, random)).unwrap());
                }
                None => {
                    // A row that is set column by column equals the encoding of its values.
                    let values = row(id, random);
                    let mut made = Row::from_values(table.schema(), &row(id, random)).unwrap();
                    for (column, value) in values.iter().enumerate() {
                        match value {
                            Value::Int8(number) => made.set(column, number).unwrap(),
                            Value::Int4(number) => made.set(column, number).unwrap(),
                            Value::Timestamp(at) => made.set(column, &Timestamp(*at)).unwrap(),
                            Value::Text(text) => made.set(column, text).unwrap(),
                            Value::Bool(flag) => made.set(column, flag).unwrap(),
                            Value::Int2(number) => made.set(column, number).unwrap(),
                            Value::Float8(number) => made.set(column, number).unwrap(),
                            Value::Decimal(number) => made.set(column, &Some(*number)).unwrap(),
                            _ => made.set(column, &None::<i64>).unwrap(),
                        }
                    }
                    assert_eq!(made, Row::from_values(table.schema(), &values).unwrap());
                    tx.insert_row(table, &made).unwrap();
                    now.insert(id, values);
                }
            },
            _ => match now.get_mut(&id) {
                Some(values) => {
                    assert!(tx.modify(table, id, |fields| edit(fields, values, random)).unwrap());
                }
                None => assert!(!tx.modify(table, id, |_| panic!("there is no such row")).unwrap()),
            },
        }
    }
    check(&mut tx, table, &now);
    if random.chance(3, 4) {
        tx.commit().unwrap();
        *model = now;
    } else {
        tx.abort().unwrap();
    }
}

fn life(seed: u64) {
    let mut random = Random::new(seed);
    let mut disk = FaultyDisk::new(random.next());
    let logging = if random.chance(2, 3) { Logging::Action } else { Logging::Value };
    let open = |disk: &Arc<FaultyDisk>| {
        let options = Options {
            memory_bytes: 64 << 20,
            checkpoint: Checkpointing::None,
            logging,
            ..Options::default()
        };
        Database::open_on(disk.clone(), options).unwrap()
    };
    let mut db = open(&disk);
    db.transact(|tx| {
        tx.create_table(&TableDef::new("t", columns()).with_primary_key(&["id"]))?;
        tx.create_index("t", "by_k", &["k"], false)
    })
    .unwrap();
    let mut model = Model::new();
    for _ in 0..3 {
        let table = db.table("t").unwrap();
        for _ in 0..10 {
            transaction(&db, &table, &mut model, &mut random);
            check(&mut db.begin().unwrap(), &table, &model);
        }
        // Each commit has waited for the disk.
        match random.below(3) {
            0 => disk.kill(),
            1 => disk.crash(),
            _ => db.clone().close().unwrap(),
        }
        drop((table, db));
        if !disk.is_down() {
            disk.kill();
        }
        disk = disk.restart();
        db = open(&disk);
        check(&mut db.begin().unwrap(), &db.table("t").unwrap(), &model);
    }
}

#[test]
fn fields_set_in_place_are_what_setting_values_gives() {
    let base = Random::seed_from_environment();
    let until = Instant::now() + Random::test_time_from_environment();
    let mut rounds = 0;
    while rounds == 0 || Instant::now() < until {
        let seed = base.wrapping_add(rounds);
        rounds += 1;
        if let Err(panic) = std::panic::catch_unwind(|| life(seed)) {
            eprintln!("RIALTO_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
    println!("tally: fields in place, {rounds} seeds, {} transactions, RIALTO_SEED={base}", 30 * rounds);
}

#[test]
fn a_row_of_another_table_is_checked_before_it_is_inserted() {
    let db = Database::open_on(MemoryDisk::new(), Options { memory_bytes: 64 << 20, ..Options::default() })
        .unwrap();
    let (first, second) = db
        .transact(|tx| {
            let wide = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
            let narrow = vec![Column::new("id", ColumnType::Int4)];
            Ok((
                tx.create_table(&TableDef::new("wide", wide).with_primary_key(&["id"]))?,
                tx.create_table(&TableDef::new("narrow", narrow).with_primary_key(&["id"]))?,
            ))
        })
        .unwrap();
    let row = Row::from_values(first.schema(), &[Value::Int4(1), Value::Text("text".to_owned())]).unwrap();
    let refused = db.transact(|tx| tx.insert_row(&second, &row));
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
    db.transact(|tx| tx.insert_row(&first, &row)).unwrap();
    assert_eq!(db.transact(|tx| tx.get(&first, 1)).unwrap(), Some(row));
}

#[test]
fn a_row_made_of_bytes_is_checked_before_it_is_inserted() {
    let disk = MemoryDisk::new();
    let options = || Options { memory_bytes: 64 << 20, ..Options::default() };
    let db = Database::open_on(disk.clone(), options()).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("flag", ColumnType::Bool)];
    let definition = TableDef::new("t", columns).with_primary_key(&["id"]);
    let table = db.transact(|tx| tx.create_table(&definition)).unwrap();
    let insert = |row: &Row| db.transact(|tx| tx.insert_row(&table, row));
    let refused = |row: &Row| matches!(insert(row), Err(Error::Corrupt { .. }));
    let good = Row::from_values(table.schema(), &[Value::Int4(1), Value::Bool(true)]).unwrap();
    let mut bad = good.bytes().to_vec();
    *bad.last_mut().unwrap() = 7;
    assert!(refused(&Row::new(table.schema(), bad.clone())));
    assert!(refused(&Row::new(table.schema(), vec![1, 2])));
    let mut row = good.clone();
    row.replace(&table.schema(), &bad);
    assert!(refused(&row), "a row that was good and is replaced");
    row.replace(&table.schema(), good.bytes());
    insert(&row).unwrap();
    assert_eq!(db.transact(|tx| tx.get(&table, 1)).unwrap(), Some(good));
    db.close().unwrap();
    Database::open_on(disk, options()).unwrap();
}
