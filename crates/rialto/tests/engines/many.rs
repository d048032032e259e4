//! A table with two groups of rows that other actions change at the same time. One group is so large that a scan of it
//! by the secondary index locks the table instead of further rows; the other has few rows.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{Action, Database, Engine, Fields, Result, Scan, ScanMode, Table, TableDef, Transaction};

use super::generate::closure;

const NAME: &str = "many";
const BY_N: WhichIndex = WhichIndex::Secondary(0);
/// The groups of rows: the large one, and one of a few rows.
const LARGE: i32 = 0;
const SMALL: i32 = 1;
const ROWS_OF_SMALL: i32 = 8;
/// More than the number of rows with which a scan escalates.
pub const ROWS: i32 = 4_500;
const ESCALATES_AT: u64 = 4_096;

/// An action on this table.
#[derive(Debug, Clone, Copy)]
pub enum Many {
    /// Adds to the number of the row with the action's first argument in the second, small group. The row so moves in
    /// the index.
    Add,
    /// A closure that does the same with rows all over the large group.
    AddToSome,
    /// Counts the rows of the large group and adds up their numbers, by the index: in a closure, or in an action whose
    /// identifier is the group; to read or to change them.
    Sum { in_a_closure: bool, mode: ScanMode },
}

/// The number of each row, by its group and its own key.
pub type Numbers = BTreeMap<(i32, i32), i64>;

/// The amount that [`Many::Add`] adds.
pub const ADDED: i64 = 21;

/// The rows that [`Many::AddToSome`] adds to.
fn some(first: i32) -> impl Iterator<Item = i32> {
    (first..ROWS).step_by(151)
}

/// The first rows of the table: this many in the large group.
pub fn first_rows(rows: i32) -> Numbers {
    let large = (0..rows).map(|id| ((LARGE, id), i64::from(id % 64)));
    let small = (0..ROWS_OF_SMALL).map(|id| ((SMALL, id), 0));
    large.chain(small).collect()
}

/// Makes the table with this many rows.
pub fn define(db: &Database, rows: i32) {
    let columns = ["part", "id", "n"].map(|name| match name {
        "n" => Column::new(name, ColumnType::Int8),
        _ => Column::new(name, ColumnType::Int4),
    });
    db.transact(|tx| {
        let table =
            tx.create_table(&TableDef::new(NAME, columns.to_vec()).with_primary_key(&["part", "id"]))?;
        let rows = first_rows(rows);
        let mut rows = rows.into_iter();
        rows.try_for_each(|((part, id), n)| tx.insert(&table, &[part.into(), id.into(), Value::Int8(n)]))
    })
    .unwrap();
    // In a transaction of its own: the keys of an existing index would count as written by the transaction.
    db.transact(|tx| tx.create_index(NAME, "many_by_n", &["part", "n"], false)).unwrap();
}

/// The rows. Checks that the key and the index give the same.
pub fn numbers(db: &Database, about: &str) -> Numbers {
    let table = db.table(NAME).unwrap();
    let [by_key, by_index] = [WhichIndex::Primary, BY_N].map(|index| {
        db.transact(|tx| {
            let mut numbers = Numbers::new();
            tx.scan(&table, &Scan::prefix(index, vec![]), |_, row| {
                let key = (row.get_i32(0)?, row.get_i32(1)?);
                assert_eq!(numbers.insert(key, row.get_i64(2)?), None, "{about}: {key:?} by {index:?}");
                Ok(ControlFlow::Continue(()))
            })?;
            Ok(numbers)
        })
        .unwrap()
    });
    assert_eq!(by_key, by_index, "{about}: {NAME} by its key and by its index");
    by_key
}

/// The number of rows in the large group, and the sum of their numbers.
fn sum(tx: &mut Transaction, table: &Table, index: WhichIndex, mode: ScanMode) -> Result<(i32, i64)> {
    let scan = Scan { mode, ..Scan::prefix(index, vec![LARGE.into()]) };
    let mut sum = (0, 0);
    tx.scan(table, &scan, |_, row| {
        sum = (sum.0 + 1, sum.1 + row.get_i64(2)?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(sum)
}

/// Within one transaction the rows add up to the same by the index and by the key.
pub fn adds_up_twice(tx: &mut Transaction, mode: ScanMode, about: &str) -> Result<()> {
    let table = tx.table(NAME)?;
    let by_index = sum(tx, &table, BY_N, mode)?;
    let by_key = sum(tx, &table, WhichIndex::Primary, ScanMode::Share)?;
    assert_eq!(by_index, by_key, "{about}: {NAME} by its index and by its key in one transaction");
    Ok(())
}

/// A scan of all rows, while they are not used otherwise, locks no more rows one by one than the limit for escalation.
pub fn scan_escalates(db: &Database, engine: Engine, about: &str) {
    let table = db.table(NAME).unwrap();
    let locked = |db: &Database| {
        let locks = db.metrics().locks;
        locks.row + locks.local
    };
    let before = locked(db);
    let (rows, _) = db.transact(|tx| sum(tx, &table, BY_N, ScanMode::Share)).unwrap();
    assert_eq!(rows, ROWS, "{about}");
    let locked = locked(db) - before;
    // Some rows more: the scan checks between two leaves of the index, and there are locks on intervals and tables.
    let possible = ESCALATES_AT..ROWS as u64;
    assert!(possible.contains(&locked), "{about}, {engine}: the scan has taken {locked} locks");
}

fn add_to(row: &mut Fields<'_>) -> Result<()> {
    row.add_i64(2, ADDED).map(drop)
}

/// Divides the two groups among different executors, where there are several.
pub fn route(db: &Database) -> Result<()> {
    if db.executors() < 2 {
        return Ok(());
    }
    [WhichIndex::Primary, BY_N]
        .into_iter()
        .try_for_each(|which| db.set_routing(NAME, which, &[vec![SMALL.into()]]))
}

impl Many {
    pub fn action(self, first: usize) -> Action {
        match self {
            Many::Add => {
                let action = Action::exclusive(NAME, move |tx, arguments, outputs| {
                    let id: i32 = arguments.get(first)?;
                    let found = tx.modify(arguments.table()?, (SMALL, id), add_to)?;
                    outputs.push(i32::from(found));
                    Ok(())
                });
                action.by(|_| Value::Int4(SMALL)).by_argument(first)
            }
            Many::AddToSome => closure(move |tx, arguments, outputs| {
                let table = tx.table(NAME)?;
                for id in some(arguments.get(first)?) {
                    let found = tx.modify(&table, (LARGE, id), add_to)?;
                    outputs.push(i32::from(found));
                }
                Ok(())
            }),
            Many::Sum { in_a_closure: true, mode } => closure(move |tx, _, outputs| {
                let table = tx.table(NAME)?;
                let (rows, sum) = sum(tx, &table, BY_N, mode)?;
                outputs.push(rows);
                outputs.push(sum);
                Ok(())
            }),
            Many::Sum { mode, .. } => {
                let body = move |tx: &mut Transaction,
                                 arguments: &rialto::Arguments<'_>,
                                 outputs: &mut rialto::Outputs| {
                    let (rows, sum) = sum(tx, arguments.table()?, BY_N, mode)?;
                    outputs.push(rows);
                    outputs.push(sum);
                    Ok(())
                };
                let action = match mode {
                    ScanMode::Share => Action::shared(NAME, body),
                    ScanMode::Update => Action::exclusive(NAME, body),
                };
                action.by(|_| Value::Int4(LARGE))
            }
        }
    }

    /// The result of the action.
    pub fn follow(self, numbers: &mut Numbers, first: i32, outputs: &mut Vec<Value>) {
        match self {
            Many::Add => add(numbers, (SMALL, first), outputs),
            Many::AddToSome => some(first).for_each(|id| add(numbers, (LARGE, id), outputs)),
            Many::Sum { .. } => {
                let large = || numbers.range((LARGE, 0)..(SMALL, 0)).map(|(_, n)| *n);
                outputs.push(Value::Int4(large().count() as i32));
                outputs.push(Value::Int8(large().sum()));
            }
        }
    }
}

fn add(numbers: &mut Numbers, key: (i32, i32), outputs: &mut Vec<Value>) {
    let number = numbers.get_mut(&key);
    outputs.push(Value::Int4(i32::from(number.is_some())));
    if let Some(number) = number {
        *number += ADDED;
    }
}
