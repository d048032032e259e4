//! A random workload that does whatever a log can have.

use crate::io::Random;
use crate::row::{Column, ColumnType, Value};
use crate::{Database, Error, Residence, Result, Table, TableDef, Transaction};

/// Keys of the tables with keys.
const KEYS: u64 = 60;
/// Enough rows for a bulk load, and for a move beside transactions.
const MANY: i32 = 1_100;

/// Columns: id, part, code (unique where it is indexed so), amount, note.
pub fn columns() -> Vec<Column> {
    vec![
        Column::new("id", ColumnType::Int4),
        Column::nullable("part", ColumnType::Int4),
        Column::nullable("code", ColumnType::Int4),
        Column::new("amount", ColumnType::Int8),
        Column::nullable("note", ColumnType::Text),
    ]
}

pub fn row(random: &mut Random, id: i32, code: i32) -> Vec<Value> {
    let part = if random.chance(1, 8) { Value::Null } else { Value::Int4(random.below(5) as i32) };
    let length = if random.chance(1, 12) { random.below(20_000) } else { random.below(40) };
    let note = if random.chance(1, 8) { Value::Null } else { Value::Text("n".repeat(length as usize)) };
    let code = if random.chance(1, 10) { Value::Null } else { Value::Int4(code) };
    vec![Value::Int4(id), part, code, Value::Int8(random.below(1000) as i64), note]
}

/// The fixed tables: in memory, on the disk, and each with keys or without.
pub fn create(db: &Database, random: &mut Random) {
    for (name, residence, is_keyed) in [
        ("m", Residence::Memory, true),
        ("d", Residence::Disk, true),
        ("nm", Residence::Memory, false),
        ("nd", Residence::Disk, false),
        ("moved", Residence::Memory, true),
    ] {
        db.transact(|tx| {
            let table = tx.create_table(&definition(name, residence, is_keyed))?;
            let rows = if name == "moved" { MANY } else { 20 };
            (0..rows).try_for_each(|id| tx.insert(&table, &row(random, id, id)))
        })
        .unwrap();
    }
}

fn definition(name: &str, residence: Residence, is_keyed: bool) -> TableDef {
    let def = TableDef::new(name, columns()).with_residence(residence);
    let def = def.with_index(format!("{name}_by_part"), &["part"], false);
    let def = def.with_index(format!("{name}_by_code"), &["code"], true);
    if is_keyed { def.with_primary_key(&["id"]) } else { def }
}

/// Passes over the errors that a statement may have; the transaction goes on.
fn allow<T>(outcome: Result<T>) -> Result<()> {
    match outcome {
        Ok(_)
        | Err(
            Error::DuplicateKey { .. }
            | Error::NameTaken { .. }
            | Error::NoSuchTable { .. }
            | Error::NoSuchIndex { .. }
            | Error::NotNull { .. }
            | Error::BadDefinition { .. },
        ) => Ok(()),
        Err(error) => Err(error),
    }
}

/// One transaction, or a move beside transactions.
pub fn step(db: &Database, random: &mut Random) {
    if random.chance(1, 12) {
        let residence = if random.chance(1, 2) { Residence::Memory } else { Residence::Disk };
        return db.set_residence("moved", residence).unwrap();
    }
    let mut tx = db.begin().unwrap();
    for _ in 0..1 + random.below(10) {
        let savepoint = random.chance(1, 6).then(|| tx.savepoint());
        let done = match random.chance(1, 5) {
            true => define(&mut tx, random),
            false => change_some(&mut tx, random),
        };
        done.unwrap();
        if let Some(savepoint) = savepoint.filter(|_| random.chance(1, 2)) {
            tx.rollback_to(&savepoint).unwrap();
        }
    }
    match random.chance(1, 10) {
        true => tx.abort().unwrap(),
        false => tx.commit().unwrap(),
    }
}

fn change_some(tx: &mut Transaction<'_>, random: &mut Random) -> Result<()> {
    let name = ["m", "d", "nm", "nd", "moved", "t0", "t1", "t2"][random.below(8) as usize];
    match tx.table(name) {
        Ok(table) => (0..1 + random.below(6)).try_for_each(|_| change(tx, &table, random)),
        Err(error) => allow::<()>(Err(error)),
    }
}

/// Changes one row.
fn change(tx: &mut Transaction<'_>, table: &Table, random: &mut Random) -> Result<()> {
    let (id, code) = (random.below(KEYS) as i32, random.below(KEYS) as i32);
    let values = row(random, id, code);
    if table.schema().primary_key().is_none() {
        let nth = random.below(30);
        let (mut key, mut at) = (None, 0);
        tx.scan(table, &crate::Scan::all(), |found, _| {
            key = Some(found.clone());
            at += 1;
            Ok(if at > nth { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) })
        })?;
        return match (random.below(4), key) {
            (0, _) | (_, None) => allow(tx.insert(table, &values)),
            (1, Some(key)) => allow(tx.delete_at(table, &key)),
            (2, Some(key)) => allow(tx.modify_at(table, &key, |fields| fields.add(3, 5).map(drop))),
            (_, Some(key)) => {
                allow(tx.update_at(table, &key, &[(1, values[1].clone()), (2, values[2].clone())]))
            }
        };
    }
    match random.below(10) {
        0 | 1 => allow(tx.insert(table, &values)),
        2 => allow(tx.delete(table, id)),
        3 => allow(tx.update(table, id, &[(4, values[4].clone())])),
        4 => allow(tx.update(table, id, &[(1, values[1].clone()), (2, values[2].clone())])),
        // To another key.
        5 => allow(tx.update(table, id, &[(0, Value::Int4(random.below(KEYS) as i32))])),
        6 => {
            // Two rows exchange their codes.
            let other = (id + 1) % KEYS as i32;
            let (Some(one), Some(two)) = (tx.get(table, id)?, tx.get(table, other)?) else { return Ok(()) };
            tx.update(table, id, &[(2, Value::Null)])?;
            tx.update(table, other, &[(2, one.get(2)?)])?;
            tx.update(table, id, &[(2, two.get(2)?)]).map(drop)
        }
        7 => allow(tx.delete(table, id)).and_then(|()| allow(tx.insert(table, &values))),
        _ => (0..1 + random.below(3)).try_for_each(|_| {
            allow(tx.modify(table, id, |fields| {
                fields.add(3, random.below(9) as i64 - 4)?;
                if random.chance(1, 3) { fields.set(1, &values[1]) } else { Ok(()) }
            }))
        }),
    }
}

/// Changes definitions.
fn define(tx: &mut Transaction<'_>, random: &mut Random) -> Result<()> {
    let name = ["t0", "t1", "t2"][random.below(3) as usize];
    let residence = if random.chance(1, 2) { Residence::Memory } else { Residence::Disk };
    let any = ["m", "d", "nm", "nd", name][random.below(5) as usize];
    match random.below(10) {
        0 | 1 => allow(tx.create_table(&definition(name, residence, random.chance(1, 2)))),
        2 => match tx.table(name) {
            Ok(table) => load(tx, &table, random),
            Err(error) => allow::<()>(Err(error)),
        },
        3 => {
            allow(tx.drop_table(name))?;
            allow(tx.create_table(&definition(name, residence, random.chance(1, 3))))?;
            change_some(tx, random)?;
            let table = tx.table(name)?;
            load(tx, &table, random)
        }
        4 => allow(tx.drop_table(name)),
        5 => {
            let table = tx.table(if random.chance(1, 6) { any } else { name });
            allow(table.and_then(|table| tx.truncate(&table)))
        }
        6 => allow(tx.create_index(any, &format!("{any}_more"), &["amount", "part"], false)),
        7 => match random.chance(1, 2) {
            true => allow(tx.drop_index(&format!("{any}_more"))),
            false => {
                // The same index under another number.
                allow(tx.drop_index(&format!("{any}_by_part")))?;
                allow(tx.create_index(any, &format!("{any}_by_part"), &["part", "id"], false))
            }
        },
        8 => {
            if random.chance(1, 2) {
                change_some(tx, random)?;
            }
            allow(tx.add_primary_key(if random.chance(1, 4) { any } else { name }, &["id"]))
        }
        _ => allow(tx.set_residence(any, residence)),
    }
}

/// Loads many rows, some of which give up their codes to later ones, or are changed amid the load.
fn load(tx: &mut Transaction<'_>, table: &Table, random: &mut Random) -> Result<()> {
    if random.chance(1, 2) {
        tx.truncate(table)?;
    }
    let (is_keyed, first) = (table.schema().primary_key().is_some(), random.below(40) as i32);
    for id in first..first + 300 + random.below(200) as i32 {
        allow(tx.insert(table, &row(random, id, id)))?;
        let earlier = first + random.below(1 + (id - first) as u64) as i32;
        if !is_keyed || !random.chance(1, 10) {
            continue;
        }
        match random.below(4) {
            0 => allow(tx.update(table, earlier, &[(2, Value::Int4(10_000 + earlier))]))?,
            1 => allow(tx.delete(table, earlier))?,
            2 => allow(tx.update(table, earlier, &[(0, Value::Int4(20_000 + id))]))?,
            _ => allow(tx.modify(table, earlier, |fields| fields.add(3, 1).map(drop)))?,
        }
        // The code that it may have given up.
        let code = [earlier, 10_000 + earlier][random.below(2) as usize];
        allow(tx.insert(table, &row(random, 30_000 + id, code)))?;
    }
    Ok(())
}
