//! The changes of a transaction to one row, redone over the row as the transaction left it: a backup copy that was
//! taken beside the commit has the last state, and redo begins before the first one.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::seeds;
use rialto::io::{Disk, MemoryDisk, Random};
use rialto::row::{Column, ColumnType, Value};
use rialto::{Checkpointing, Database, Durability, Logging, Options, Scan, Table, TableDef, Transaction};

type Row = Vec<Value>;

/// So much lies before the rows that a sweep reaches them late, after most transactions.
const FILLER_ROWS: i32 = 300;
const ROWS: i32 = 2_000;

/// Each kind of copy with each logging, by successive seeds.
fn options(seed: u64, random: &mut Random) -> Options {
    let copies = Checkpointing::ALL.len() as u64;
    Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::ALL[(seed % copies) as usize],
        checkpoint_interval: Duration::from_millis(1),
        sweep_bytes_per_s: Some(4 << 20),
        durability: Durability::Memory,
        logging: [Logging::Value, Logging::Action][(seed / copies % 2) as usize],
        recovery_threads: 1 + random.below(2) as usize,
        ..Options::default()
    }
}

fn definition() -> TableDef {
    let columns = vec![
        Column::new("id", ColumnType::Int4),
        Column::nullable("a", ColumnType::Int4),
        Column::nullable("s", ColumnType::Text),
        Column::nullable("b", ColumnType::Int8),
        Column::nullable("c", ColumnType::Char(5)),
        Column::nullable("d", ColumnType::Bytes),
        Column::new("e", ColumnType::Int8),
    ];
    TableDef::new("t", columns).with_primary_key(&["id"])
}

/// A value of a column, often NULL.
fn value(random: &mut Random, column: usize) -> Value {
    let text = |random: &mut Random| "abcde"[..random.below(6) as usize].to_owned();
    match column {
        6 => Value::Int8(random.below(1000) as i64),
        _ if random.chance(1, 2) => Value::Null,
        1 => Value::Int4(random.below(1000) as i32),
        2 => Value::Text(text(random).repeat(1 + random.below(20) as usize)),
        3 => Value::Int8(random.below(1000) as i64),
        // In the form in which it is read.
        4 => Value::Text(format!("{:<5}", text(random))),
        _ => Value::Bytes(text(random).into_bytes()),
    }
}

fn row(random: &mut Random, id: i32) -> Row {
    let values = (1..7).map(|column| value(random, column));
    std::iter::once(Value::Int4(id)).chain(values).collect()
}

/// Changes a row a few times, one or two columns at a time.
fn change(tx: &mut Transaction, table: &Table, random: &mut Random, row: &mut Row) -> rialto::Result<()> {
    let Value::Int4(id) = row[0] else { unreachable!("the key") };
    for _ in 0..2 + random.below(3) {
        match random.below(8) {
            0 => {
                assert!(tx.modify(table, id, |row| row.add_i64(6, 3).map(drop))?);
                let Value::Int8(sum) = &mut row[6] else { unreachable!("not NULL") };
                *sum += 3;
            }
            1 if random.chance(1, 4) => {
                assert!(tx.delete(table, id)?);
                tx.insert(table, row)?;
            }
            _ => {
                let columns = [0; 2].map(|_| 1 + random.below(6) as usize);
                let columns = &columns[..1 + random.below(2) as usize];
                let changes: Vec<_> = columns.iter().map(|&column| (column, value(random, column))).collect();
                assert!(tx.update(table, id, &changes)?);
                changes.into_iter().for_each(|(column, value)| row[column] = value);
            }
        }
    }
    Ok(())
}

fn rows(db: &Database) -> BTreeMap<i32, Row> {
    let (table, mut rows) = (db.table("t").unwrap(), BTreeMap::new());
    db.transact(|tx| {
        tx.scan(&table, &Scan::all(), |_, row| {
            rows.insert(row.get_i32(0)?, row.values());
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
    rows
}

fn one_life(seed: u64) {
    let mut random = Random::new(seed);
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let options = options(seed, &mut random);
    println!("{:?}, {:?}", options.checkpoint, options.logging);
    let db = Database::open_on(disk.clone(), options.clone()).unwrap();
    let filler = TableDef::new("filler", vec![Column::new("text", ColumnType::Text)]);
    let filler = db.transact(|tx| tx.create_table(&filler)).unwrap();
    let text = Value::Text("x".repeat(6_000));
    db.transact(|tx| (0..FILLER_ROWS).try_for_each(|_| tx.insert(&filler, std::slice::from_ref(&text))))
        .unwrap();
    let table = db
        .transact(|tx| {
            let table = tx.create_table(&definition())?;
            tx.create_index("t", "by_s", &["s"], false)?;
            Ok(table)
        })
        .unwrap();
    let mut model: BTreeMap<i32, Row> = (0..ROWS).map(|id| (id, row(&mut random, id))).collect();
    db.transact(|tx| model.values().try_for_each(|row| tx.insert(&table, row))).unwrap();
    // Sweeps run beside these, and the last one that has ended began during them.
    let completed = || db.metrics().checkpoints.completed;
    let before = completed();
    let (mut ids, end) = (0..ROWS, Instant::now() + Duration::from_secs(100));
    while completed() < before + 2 {
        assert!(Instant::now() < end, "waited in vain for two sweeps");
        let Some(id) = ids.next() else {
            ids = 0..ROWS;
            continue;
        };
        let row = model.get_mut(&id).unwrap();
        // A run that is not the last one leaves no trace.
        let (start, seed) = (row.clone(), random.next());
        db.transact(|tx| {
            row.clone_from(&start);
            change(tx, &table, &mut Random::new(seed), row)
        })
        .unwrap();
        if id % 16 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    db.close().unwrap();
    let db = Database::open_on(disk, options).unwrap();
    let found = rows(&db);
    for (id, row) in &model {
        assert_eq!(found.get(id), Some(row), "the row {id}, seed {seed}");
    }
    assert_eq!(found.len(), model.len());
    let table = db.table("t").unwrap();
    let by_index = Scan::prefix(table.schema().index_named("by_s").unwrap(), Vec::new());
    let mut entries = BTreeMap::new();
    db.transact(|tx| {
        tx.scan(&table, &by_index, |_, row| {
            entries.insert(row.get_i32(0)?, row.values());
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
    assert_eq!(entries, found, "by the index, seed {seed}");
    db.close().unwrap();
}

#[test]
fn a_row_is_redone_over_what_its_transaction_left() {
    seeds::for_a_while(one_life);
}
