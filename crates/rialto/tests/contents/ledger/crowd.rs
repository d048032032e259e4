//! A table that all writers write to, and definitions of it meanwhile.
//!
//! Each writer's transaction inserts its number there. A transaction that empties the table, or drops it and makes it
//! anew, notes the last number of each writer. So of each writer the table has the numbers after the noted one, up to
//! its count.

use rialto::io::Random;
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{Database, Result, Table, TableDef, Transaction};

use super::contents::{COUNT, WRITERS, count_of, rows_of, scan};

/// The table that all writers write to.
pub const CROWD: &str = "crowd";
/// Of each writer, its last number before the crowd was emptied, and the definer's transaction that emptied it.
const EMPTIED: &str = "emptied";
const BY_NUMBER: &str = "crowd_by_number";

/// The definition of the crowd, which follows from the definer's transactions.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Crowd {
    keyed: bool,
    /// Whether there is an index, and whether it is a unique one.
    by_number: Option<bool>,
    /// The number of the definer's transaction that emptied it last.
    emptied_by: i64,
}

fn create(tx: &mut Transaction, keyed: bool) -> Result<Table> {
    let columns = vec![Column::new("writer", ColumnType::Int4), Column::new("number", ColumnType::Int8)];
    let def = TableDef::new(CROWD, columns);
    tx.create_table(&if keyed { def.with_primary_key(&["writer", "number"]) } else { def })
}

/// Makes the tables.
pub fn prepare(tx: &mut Transaction) -> Result<()> {
    create(tx, false)?;
    let columns = ["number", "by"].map(|name| Column::new(name, ColumnType::Int8));
    let columns = [Column::new("writer", ColumnType::Int4)].into_iter().chain(columns).collect();
    let emptied = tx.create_table(&TableDef::new(EMPTIED, columns).with_primary_key(&["writer"]))?;
    let row = |writer: i32| [Value::Int4(writer), Value::Int8(0), Value::Int8(0)];
    (0..WRITERS as i32).try_for_each(|writer| tx.insert(&emptied, &row(writer)))
}

/// The writer's transaction with this number joins.
pub fn join(tx: &mut Transaction, crowd: &Table, writer: usize, number: i64) -> Result<()> {
    tx.insert(crowd, &[Value::Int4(writer as i32), Value::Int8(number)])
}

/// Notes how far each writer has come, while the crowd is empty.
fn note_emptied(tx: &mut Transaction, by: i64) -> Result<()> {
    let (count, emptied) = (tx.table(COUNT)?, tx.table(EMPTIED)?);
    for writer in 0..WRITERS {
        let last = count_of(tx, &count, writer)?;
        tx.update(&emptied, writer as i32, &[(1, Value::Int8(last)), (2, Value::Int8(by))])?;
    }
    Ok(())
}

/// The change that the definer's transaction with this number makes to the crowd, if any; on a model alone where there
/// is no database.
pub fn define(
    tx: Option<&mut Transaction>,
    model: &mut Crowd,
    number: i64,
    random: &mut Random,
) -> Result<()> {
    let before = model.clone();
    let what = random.below(16);
    let (keyed, unique) = (random.chance(1, 2), random.chance(1, 2));
    match what {
        0 | 1 => model.emptied_by = number,
        2 => *model = Crowd { keyed, by_number: None, emptied_by: number },
        3 | 4 => model.by_number = if before.by_number.is_some() { None } else { Some(unique) },
        5 => model.keyed = true,
        _ => {}
    }
    let Some(tx) = tx else { return Ok(()) };
    match what {
        0 | 1 => {
            let crowd = tx.table(CROWD)?;
            tx.truncate(&crowd)?;
            note_emptied(tx, number)
        }
        2 => {
            tx.drop_table(CROWD)?;
            create(tx, keyed)?;
            note_emptied(tx, number)
        }
        3 | 4 if before.by_number.is_some() => tx.drop_index(BY_NUMBER),
        3 | 4 => tx.create_index(CROWD, BY_NUMBER, &["number", "writer"], unique),
        5 if !before.keyed => tx.add_primary_key(CROWD, &["writer", "number"]),
        _ => Ok(()),
    }
}

/// The definition of the crowd. Checks, by each index, that its rows follow from the writers' counts.
pub fn read(tx: &mut Transaction, db: &Database, counts: &[i64], about: &str) -> Result<Crowd> {
    let crowd = db.table(CROWD)?;
    let mut found = Crowd { keyed: crowd.schema().primary_key().is_some(), ..Crowd::default() };
    if let Some(index) = crowd.schema().indexes().first() {
        found.by_number = Some(index.unique);
    }
    let mut expected = Vec::new();
    scan(tx, &db.table(EMPTIED)?, WhichIndex::Primary, |row| {
        let (writer, last) = (row.get_i32(0)?, row.get_i64(1)?);
        found.emptied_by = row.get_i64(2)?;
        expected.extend((last + 1..=counts[writer as usize]).map(|number| ((writer, number), ())));
        Ok(())
    })?;
    let rows = rows_of(tx, &crowd, about, |row| Ok(((row.get_i32(0)?, row.get_i64(1)?), ())))?;
    let there = rows.into_iter().collect::<Vec<_>>();
    assert!(there == expected, "{about}: the crowd is {there:?}, expected {expected:?}");
    Ok(found)
}
