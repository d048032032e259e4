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

/// Rows of loads have keys from here on, which other rows do not have.
const LOADED: i32 = 2_000;

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

/// Fills a table with more rows than go by the packet, where its storage is the transaction's own.
fn load(
    tx: &mut Transaction<'_>,
    table: &Table,
    random: &mut Random,
    rows: &mut TableModel,
) -> Result<(), Error> {
    let first = rows.keys().max().map_or(LOADED, |last| LOADED.max(last + 1));
    for key in first..first + 200 + random.below(300) as i32 {
        let (part, length) = (random.below(5) as i32, if random.chance(1, 50) { 30_000 } else { 20 });
        let text = "y".repeat(random.below(length) as usize);
        tx.insert(
            table,
            &[Value::Int4(key), Value::Int4(part), Value::Int4(key), Value::Text(text.clone())],
        )?;
        rows.insert(key, (part, key, text));
        if random.chance(1, 50) {
            let key = *rows.keys().nth(random.below(rows.len() as u64) as usize).unwrap();
            assert!(tx.delete(table, key)?);
            rows.remove(&key);
        }
    }
    Ok(())
}

/// Changes the definition of a table, or its storage; sometimes it takes that back.
pub fn redefine(
    tx: &mut Transaction<'_>,
    name: &str,
    random: &mut Random,
    rows: &mut TableModel,
) -> Result<(), Error> {
    let (savepoint, before) = (random.chance(1, 3).then(|| tx.savepoint()), rows.clone());
    let table = tx.table(name)?;
    match random.below(6) {
        0 | 1 => {
            let column = ["part", "code"][random.below(2) as usize];
            let index = format!("{name}_by_{column}");
            match table.schema().indexes().iter().any(|known| known.name == index) {
                true => tx.drop_index(&index)?,
                false => tx.create_index(name, &index, &[column], column == "code")?,
            }
        }
        2 | 3 => {
            tx.set_residence(name, [Residence::Disk, Residence::Memory][random.below(2) as usize])?;
        }
        4 => {
            tx.truncate(&table)?;
            rows.clear();
            let table = tx.table(name)?;
            load(tx, &table, random, rows)?;
        }
        _ => {
            tx.drop_table(name)?;
            rows.clear();
            let without_key = TableDef { primary_key: None, ..definition(name) };
            let table = tx.create_table(&without_key)?;
            if random.chance(1, 2) {
                load_without_key(tx, &table, random, rows)?;
            }
            tx.add_primary_key(name, &["id"])?;
            let table = tx.table(name)?;
            for _ in 0..random.below(5) {
                change(tx, &table, random, rows)?;
            }
        }
    }
    if let Some(savepoint) = savepoint {
        match random.chance(1, 2) {
            true => {
                tx.rollback_to(&savepoint)?;
                *rows = before;
            }
            false => tx.release_savepoint(savepoint)?,
        }
    }
    Ok(())
}

/// Rows of a table that has no key yet.
fn load_without_key(
    tx: &mut Transaction<'_>,
    table: &Table,
    random: &mut Random,
    rows: &mut TableModel,
) -> Result<(), Error> {
    for key in LOADED..LOADED + random.below(600) as i32 {
        let text = "z".repeat(random.below(60) as usize);
        tx.insert(table, &[Value::Int4(key), Value::Int4(1), Value::Int4(key), Value::Text(text.clone())])?;
        rows.insert(key, (1, key, text));
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
            for index in 0..table.schema().indexes().len() {
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
        let indexes = table.schema().indexes().len();
        assert_eq!(entries, indexes * rows.len(), "{name}: entries of {indexes} indexes");
        assert_eq!(table.rows_estimate(), rows.len() as u64, "{name}: the count of rows");
        model.insert(name, rows);
    }
    model
}

pub fn assert_same(found: &Model, expected: &Model, about: &str) {
    for name in NAMES {
        let keys = |model: &Model| model.get(name).map(|rows| rows.keys().copied().collect::<Vec<_>>());
        assert_eq!(keys(found), keys(expected), "{about}: keys of {name}");
        let rows = |model: &Model| model.get(name).cloned().unwrap_or_default();
        for ((key, found), expected) in rows(found).iter().zip(rows(expected).values()) {
            let short = |(part, code, text): &(i32, i32, String)| {
                (*part, *code, text.len(), text.get(..1).map(str::to_owned))
            };
            assert!(
                found == expected,
                "{about}: row {key} of {name}: {:?}, expected {:?} (part, code, length of the text, its first letter)",
                short(found),
                short(expected)
            );
        }
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
            (true, 2..12) => redefine(tx, name, random, now.get_mut(name).unwrap())?,
            (true, _) => {
                let table = tx.table(name)?;
                change(tx, &table, random, now.get_mut(name).unwrap())?;
            }
        }
    }
    Ok(())
}
