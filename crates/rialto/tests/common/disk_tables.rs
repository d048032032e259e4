//! Tables of both kinds with random changes, and a model of their rows.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use rialto::io::Random;
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Checkpointing, Database, Error, Logging, Options, Residence, Scan, Table, TableDef, Transaction, TwoStage,
};

use super::engines;

const KEYS: u64 = 60;

/// The rows of a table by their keys: group, unique code, text.
pub type TableModel = BTreeMap<i32, (i32, i32, String)>;

/// All tables by their names.
pub type Model = BTreeMap<&'static str, TableModel>;

pub const NAMES: [&str; 3] = ["on_disk", "on_disk_too", "in_memory"];

pub fn options(random: &mut Random) -> Options {
    let checkpoints = [
        Checkpointing::Fuzzy,
        Checkpointing::ActionCopyOnUpdate,
        Checkpointing::TransactionCopyOnUpdate,
        Checkpointing::ActionBlackWhite,
        Checkpointing::TransactionBlackWhite,
        Checkpointing::None,
    ];
    Options {
        memory_bytes: 32 << 20,
        cache_bytes: 4 << 20,
        page_bytes: [4_096, 16_384, 65_536][random.below(3) as usize],
        checkpoint: checkpoints[random.below(6) as usize],
        checkpoint_interval: std::time::Duration::from_millis([1, 20, 200][random.below(3) as usize]),
        logging: if random.chance(1, 2) { Logging::Value } else { Logging::Action },
        backup_copies: 2 + random.below(2) as u32,
        recovery_threads: 1 + random.below(3) as usize,
        engine: engines::any(random, 3, 0),
        two_stage: TwoStage::ALL[random.below(5) as usize].0,
        ..Options::default()
    }
}

pub fn definition(name: &str) -> TableDef {
    let columns = vec![
        Column::new("id", ColumnType::Int4),
        Column::new("part", ColumnType::Int4),
        Column::new("code", ColumnType::Int4),
        Column::new("text", ColumnType::Text),
    ];
    let residence = if name.starts_with("on_disk") { Residence::Disk } else { Residence::Memory };
    TableDef::new(name, columns)
        .with_primary_key(&["id"])
        .with_index(format!("{name}_by_part"), &["part"], false)
        .with_index(format!("{name}_by_code"), &["code"], true)
        .with_residence(residence)
}

/// One change of a table, and of the model. A code goes from one row to another, which takes it over.
pub fn change(
    tx: &mut Transaction<'_>,
    table: &Table,
    random: &mut Random,
    rows: &mut TableModel,
) -> Result<(), Error> {
    let (key, part, code) =
        (random.below(KEYS) as i32, random.below(5) as i32, random.below(3 * KEYS / 2) as i32);
    let length = if random.chance(1, 8) { random.below(30_000) } else { random.below(200) };
    let text = "x".repeat(length as usize);
    let values = [Value::Int4(key), Value::Int4(part), Value::Int4(code), Value::Text(text.clone())];
    let taken = rows.iter().find(|(other, row)| **other != key && row.1 == code).map(|(other, _)| *other);
    match (random.below(6), rows.contains_key(&key)) {
        (0, true) => {
            assert!(tx.delete(table, key)?);
            rows.remove(&key);
        }
        (1, true) => {
            assert!(tx.update(table, key, &[(1, Value::Int4(part))])?);
            rows.get_mut(&key).unwrap().0 = part;
        }
        (2, true) => {
            assert!(tx.update(table, key, &[(3, Value::Text(text.clone()))])?);
            rows.get_mut(&key).unwrap().2 = text;
        }
        // The two rows swap their codes, by way of another one.
        (3, true) if taken.is_some() => {
            let other = taken.unwrap();
            let own = rows[&key].1;
            for (key, code) in [(key, -1), (other, own), (key, code)] {
                assert!(tx.update(table, key, &[(2, Value::Int4(code))])?);
                rows.get_mut(&key).unwrap().1 = code;
            }
        }
        (_, is_there) => {
            if let Some(other) = taken {
                assert!(tx.delete(table, other)?);
                rows.remove(&other);
            }
            match is_there {
                true => {
                    let changes =
                        [(1, Value::Int4(part)), (2, Value::Int4(code)), (3, Value::Text(text.clone()))];
                    assert!(tx.update(table, key, &changes)?);
                }
                false => tx.insert(table, &values)?,
            }
            rows.insert(key, (part, code, text));
        }
    }
    Ok(())
}

pub fn contents(db: &Database) -> Model {
    let mut model = Model::new();
    for name in NAMES {
        let Ok(table) = db.table(name) else { continue };
        let (mut rows, mut entries) = (BTreeMap::new(), 0);
        db.transact(|tx| {
            rows.clear();
            entries = 0;
            tx.scan(&table, &Scan::all(), |_, row| {
                let Value::Text(text) = row.get(3) else { panic!("a text") };
                rows.insert(row.get_i32(0)?, (row.get_i32(1)?, row.get_i32(2)?, text));
                Ok(ControlFlow::Continue(()))
            })?;
            for index in 0..2 {
                let scan = Scan { index: WhichIndex::Secondary(index), ..Scan::all() };
                tx.scan(&table, &scan, |_, row| {
                    let found = (row.get_i32(1)?, row.get_i32(2)?);
                    let row = rows.get(&row.get_i32(0)?).map(|row| (row.0, row.1));
                    assert_eq!(row, Some(found), "{name}: the index and the rows");
                    entries += 1;
                    Ok(ControlFlow::Continue(()))
                })?;
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(entries, 2 * rows.len(), "{name}: entries of the indexes");
        assert_eq!(table.rows_estimate(), rows.len() as u64, "{name}: the count of rows");
        model.insert(name, rows);
    }
    model
}

pub fn assert_same(found: &Model, expected: &Model, about: &str) {
    for name in NAMES {
        let keys = |model: &Model| model.get(name).map(|rows| rows.keys().copied().collect::<Vec<_>>());
        assert_eq!(keys(found), keys(expected), "{about}: keys of {name}");
        assert!(found.get(name) == expected.get(name), "{about}: rows of {name}");
    }
}

/// A transaction of a history: changes of tables and of rows, and of the model.
pub fn change_some(tx: &mut Transaction<'_>, random: &mut Random, now: &mut Model) -> Result<(), Error> {
    for _ in 0..1 + random.below(6) {
        let name = NAMES[random.below(3) as usize];
        match (now.contains_key(name), random.below(150)) {
            (false, _) => {
                tx.create_table(&definition(name))?;
                now.insert(name, BTreeMap::new());
            }
            (true, 0) => {
                tx.drop_table(name)?;
                now.remove(name);
            }
            (true, 1) => {
                let table = tx.table(name)?;
                tx.truncate(&table)?;
                now.insert(name, BTreeMap::new());
            }
            (true, _) => {
                let table = tx.table(name)?;
                change(tx, &table, random, now.get_mut(name).unwrap())?;
            }
        }
    }
    Ok(())
}
