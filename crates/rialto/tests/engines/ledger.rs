//! [`Ledger`]: transfers between rows that count themselves, and the answers to them. A transfer that commits leaves a
//! mark with its number. So the marks say which transfers have committed, and the rows have to be the result of these,
//! and of no others.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicI32, Ordering};

use parking_lot::Mutex;
use rialto::io::Random;
use rialto::row::{Column, ColumnType, Value};
use rialto::{Action, Database, Flow, Result, Scan, Table, TableDef, Transaction};

use super::MARKS;
use super::generate::{ARGUMENTS, Plan};

/// Transfers between the rows of this table add up to zero.
pub const SUMS: &str = "sums";
pub const ROWS: i32 = 8;

/// One is taken from a row, which counts that, and added to another row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transfer {
    pub number: i32,
    pub from: i32,
    pub to: i32,
}

/// The answer to a transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Answer {
    Committed,
    Failed,
    /// The answer was not waited for.
    None,
}

#[derive(Default)]
pub struct Ledger {
    numbers: AtomicI32,
    answers: Mutex<Vec<(Transfer, Answer)>>,
}

/// Makes the tables of transfers and of marks.
pub fn define(db: &Database) {
    let columns = ["id", "amount", "transfers"].map(|name| match name {
        "id" => Column::new(name, ColumnType::Int4),
        _ => Column::new(name, ColumnType::Int8),
    });
    db.transact(|tx| {
        let table = tx.create_table(&TableDef::new(SUMS, columns.to_vec()).with_primary_key(&["id"]))?;
        (0..ROWS).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int8(0), Value::Int8(0)]))?;
        define_marks(tx)
    })
    .unwrap();
}

pub fn define_marks(tx: &mut Transaction) -> Result<()> {
    let number = vec![Column::new("number", ColumnType::Int4)];
    tx.create_table(&TableDef::new(MARKS, number).with_primary_key(&["number"])).map(drop)
}

/// An action that marks its call.
pub fn mark() -> Action {
    let mark = Action::exclusive(MARKS, |tx, arguments, _| {
        tx.insert(arguments.table()?, &[Value::Int4(arguments.get(ARGUMENTS)?)])
    });
    mark.by_argument(ARGUMENTS)
}

/// The plan's flow with a transfer: from the row of its first argument, in a phase before all others, with a look at
/// the transaction, to the row of the third argument, in the plan's last phase or in a further one. The mark is in the
/// first phase or the last.
pub fn flow(
    plan: &Plan,
    (marks_first, gives_amid): (bool, bool),
    look: impl Fn(&mut Transaction, &rialto::Arguments<'_>) -> Result<()> + Send + Sync + 'static,
) -> Flow {
    let from = Action::exclusive(SUMS, move |tx, arguments, _| {
        take(tx, arguments.table()?, arguments.get(0)?)?;
        look(tx, arguments)
    });
    let to = Action::exclusive(SUMS, |tx, arguments, _| give(tx, arguments.table()?, arguments.get(2)?));
    let first = [from.by_argument(0)].into_iter().chain(marks_first.then(mark));
    let mut phases = plan.flow().phases().to_vec();
    let mut last = Vec::from_iter((!marks_first).then(mark));
    let with_to = match phases.last_mut() {
        Some(amid) if gives_amid => amid,
        _ => &mut last,
    };
    with_to.push(to.by_argument(2));
    phases.push(last);
    let phases = phases.into_iter().filter(|phase| !phase.is_empty());
    phases.fold(Flow::new().phase(first), Flow::phase)
}

fn take(tx: &mut Transaction, table: &Table, id: i32) -> Result<()> {
    let found = tx.modify(table, id, |row| {
        row.add_i64(1, -1)?;
        row.add_i64(2, 1).map(drop)
    })?;
    assert!(found, "row {id} is there");
    Ok(())
}

fn give(tx: &mut Transaction, table: &Table, id: i32) -> Result<()> {
    let found = tx.modify(table, id, |row| row.add_i64(1, 1).map(drop))?;
    assert!(found, "row {id} is there");
    Ok(())
}

impl Transfer {
    /// The first half of it, and its mark.
    pub fn begin(&self, tx: &mut Transaction) -> Result<()> {
        let marks = tx.table(MARKS)?;
        tx.insert(&marks, &[Value::Int4(self.number)])?;
        let table = tx.table(SUMS)?;
        take(tx, &table, self.from)
    }

    /// The other half.
    pub fn end(&self, tx: &mut Transaction) -> Result<()> {
        // The table's indexes may have changed since.
        let table = tx.table(SUMS)?;
        give(tx, &table, self.to)
    }
}

impl Ledger {
    pub fn transfer(&self, from: i32, to: i32) -> Transfer {
        Transfer { number: self.numbers.fetch_add(1, Ordering::Relaxed), from, to }
    }

    pub fn any_transfer(&self, random: &mut Random) -> Transfer {
        let [from, to] = [0; 2].map(|_| random.below(ROWS as u64) as i32);
        self.transfer(from, to)
    }

    pub fn note(&self, transfer: Transfer, answer: Answer) {
        self.answers.lock().push((transfer, answer));
    }

    /// The rows are the result of what has committed. Every transfer that was answered so has committed, and none that
    /// was answered otherwise.
    pub fn agrees(&self, db: &Database, about: &str) {
        let marks: BTreeSet<i32> = rows(db, MARKS, |row| row.get_i32(0)).into_iter().collect();
        let answers = self.answers.lock();
        let mut sums: BTreeMap<i32, (i64, i64)> = (0..ROWS).map(|id| (id, (0, 0))).collect();
        for (transfer, answer) in answers.iter() {
            let is_there = marks.contains(&transfer.number);
            let is_possible = match answer {
                Answer::Committed => is_there,
                Answer::Failed => !is_there,
                Answer::None => true,
            };
            assert!(is_possible, "{about}: {transfer:?}, {answer:?}: its mark is there: {is_there}");
            if is_there {
                let Transfer { from, to, .. } = transfer;
                sums.entry(*from).and_modify(|sum| *sum = (sum.0 - 1, sum.1 + 1));
                sums.entry(*to).and_modify(|sum| sum.0 += 1);
            }
        }
        let numbers: BTreeSet<i32> = answers.iter().map(|(transfer, _)| transfer.number).collect();
        assert!(marks.is_subset(&numbers), "{about}: marks of no transfer: {:?}", marks.difference(&numbers));
        let found = rows(db, SUMS, |row| Ok((row.get_i32(0)?, (row.get_i64(1)?, row.get_i64(2)?))));
        assert_eq!(
            found.into_iter().collect::<BTreeMap<_, _>>(),
            sums,
            "{about}: sums of the transfers with marks"
        );
    }
}

fn rows<T>(db: &Database, table: &str, read: impl Fn(rialto::row::RowView<'_>) -> Result<T>) -> Vec<T> {
    let table = db.table(table).unwrap();
    db.transact(|tx| {
        let mut rows = Vec::new();
        tx.scan(&table, &Scan::all(), |_, row| {
            rows.push(read(row)?);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(rows)
    })
    .unwrap()
}
