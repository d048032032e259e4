//! Fields and rows that are set in place, against plain values: every type, NULL or not, keys among them, once and again
//! in one transaction, kept and given up, and read back from the log.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Instant;

use rialto::io::{MemoryDisk, Random};
use rialto::row::{Column, ColumnType, Decimal, Row, Timestamp, Value, WhichIndex};
use rialto::{Checkpointing, Database, Error, Fields, Options, Scan, Table, TableDef, Transaction};

const ID: usize = 1;
const N: usize = 2;
const M: usize = 3;
const K: usize = 8;

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
    ]
}

fn value(column: usize, random: &mut Random) -> Value {
    if columns()[column].nullable && random.chance(1, 4) {
        return Value::Null;
    }
    let number = random.next() as i64 >> random.below(60);
    match columns()[column].ty {
        ColumnType::Bool => Value::Bool(number % 2 == 0),
        ColumnType::Int2 => Value::Int2(number as i16),
        ColumnType::Int4 if column == K => Value::Int4((number % 3) as i32),
        ColumnType::Int4 => Value::Int4((number % 50) as i32),
        ColumnType::Int8 => Value::Int8(number),
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

/// Some looks and changes, the same to the fields and to the values.
fn edit(fields: &mut Fields<'_>, row: &mut [Value], random: &mut Random) -> Result<(), Error> {
    for _ in 0..random.below(6) {
        let column = random.below(row.len() as u64) as usize;
        match random.below(8) {
            0 => assert_eq!(fields.get_i64(N)?, int8(&row[N])),
            1 => assert_eq!(fields.get(column), row[column]),
            2 => assert_eq!(fields.row().values(), row),
            3 => {
                let (delta, before) = (random.next() as i64, int8(&row[N]));
                match before.checked_add(delta) {
                    Some(sum) => {
                        assert_eq!(fields.add_i64(N, delta)?, sum);
                        row[N] = Value::Int8(sum);
                    }
                    None => assert!(matches!(fields.add_i64(N, delta), Err(Error::OutOfRange { .. }))),
                }
            }
            4 => {
                let k = random.below(3) as i32;
                fields.set_i32(K, k)?;
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
                    // A row that is set column by column is the one that its values encode to.
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
    let disk = MemoryDisk::new();
    let open = || {
        let options =
            Options { memory_bytes: 64 << 20, checkpoint: Checkpointing::None, ..Options::default() };
        Database::open_on(disk.clone(), options).unwrap()
    };
    let mut db = open();
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
        db.close().unwrap();
        db = open();
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
