//! Transactions that draw their operations: definitions, rows, scans that change what they find, savepoints. Each notes
//! which of its operations were done.

use std::ops::ControlFlow;
use std::sync::Arc;

use rialto::io::Random;
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Action, Database, Error, Flow, Procedure, Result, Savepoint, Scan, Table, TableDef, Ticket, Transaction,
    TxOptions,
};

use super::model::{Effect, Index, Records, Row};

/// Tables that are made and dropped; the last one stays.
const NAMES: [&str; 5] = ["a", "b", "c", "d", "sums"];
/// The numbers of the transactions that have committed.
pub const DONE: &str = "done";
/// The columns of the other tables, by position.
pub const COLUMNS: [&str; 4] = ["k", "v", "t", "serial"];
pub const K: usize = 0;
pub const V: usize = 1;
const T: usize = 2;
/// A row's number, which no other row has ever had.
pub const SERIAL: usize = 3;
/// The most rows of one transaction.
const ROWS_EACH: i64 = 1_000_000;

/// Errors after which a transaction goes on: those that say something about its rows or definitions.
fn tolerated<T>(outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(
            Error::DuplicateKey { .. }
            | Error::NameTaken { .. }
            | Error::NoSuchTable { .. }
            | Error::NoSuchIndex { .. }
            | Error::BadDefinition { .. }
            | Error::NotNull { .. }
            | Error::KeyTooLong { .. }
            | Error::MemoryLimit { .. }
            | Error::WriteSetTooLarge { .. }
            | Error::Unsupported { .. },
        ) => Ok(None),
        Err(error) => Err(error),
    }
}

fn columns(has_key: bool) -> Vec<Column> {
    let key = if has_key { Column::new } else { Column::nullable };
    vec![
        key(COLUMNS[K], ColumnType::Int4),
        Column::nullable(COLUMNS[V], ColumnType::Int8),
        Column::nullable(COLUMNS[T], ColumnType::Text),
        Column::new(COLUMNS[SERIAL], ColumnType::Int8),
    ]
}

/// Makes the two tables that stay. Gives the effects.
pub fn prepare(db: &Database) -> [Effect; 1] {
    db.transact(|tx| {
        tx.create_table(
            &TableDef::new(DONE, vec![Column::new("n", ColumnType::Int8)]).with_primary_key(&["n"]),
        )?;
        tx.create_table(&TableDef::new(NAMES[4], columns(true)).with_primary_key(&["k"]))
    })
    .unwrap();
    [Effect::Make { table: NAMES[4], is_keyed: true, index: None }]
}

/// The source of a transaction's operations.
struct Drawn {
    random: Random,
    n: i64,
    /// Rows of one load; a few thousand where memory is scarce, to reach its bound.
    load: i32,
    /// The savepoints, each with the number of operations before it.
    savepoints: Vec<(Savepoint, usize)>,
    table: &'static str,
    /// Rows that were drawn.
    rows: i64,
    done: Vec<Effect>,
}

impl Drawn {
    fn text(&mut self) -> Value {
        if self.random.chance(1, 15) {
            return Value::Null;
        }
        let length = match self.random.below(20) {
            0 => 900,
            1 => 3_000,
            _ => self.random.below(60),
        };
        Value::Text(format!("{} {}", self.n, "x".repeat(length as usize)))
    }

    fn number(&mut self) -> Value {
        Value::Int8(self.random.below(400) as i64)
    }

    fn index(&mut self) -> String {
        format!("{}_{}", self.table, self.random.below(3))
    }

    /// Notes an operation, if it was done.
    fn note<T>(&mut self, outcome: Result<T>, effect: impl FnOnce() -> Effect) -> Result<()> {
        if tolerated(outcome)?.is_some() {
            self.done.push(effect());
        }
        Ok(())
    }

    /// Inserts a row with a number of its own.
    fn insert_row(&mut self, tx: &mut Transaction, table: &Table, [k, v, t]: Row) -> Result<()> {
        let serial = self.n * ROWS_EACH + self.rows;
        self.rows += 1;
        let inserted = tx.insert(table, &[k.clone(), v.clone(), t.clone(), Value::Int8(serial)]);
        let name = self.table;
        self.note(inserted, || Effect::Insert(name, serial, [k, v, t]))
    }

    fn define(&mut self, tx: &mut Transaction) -> Result<()> {
        let table = self.table;
        match self.random.below(8) {
            0 | 1 => {
                let is_keyed = self.random.chance(1, 2);
                let mut definition = TableDef::new(table, columns(is_keyed));
                if is_keyed {
                    definition = definition.with_primary_key(&[COLUMNS[K]]);
                }
                let mut index = None;
                if self.random.chance(1, 2) {
                    let made = Index { name: self.index(), column: V, is_unique: self.random.chance(1, 4) };
                    definition = definition.with_index(made.name.clone(), &[COLUMNS[V]], made.is_unique);
                    index = Some(made);
                }
                self.note(tx.create_table(&definition), || Effect::Make { table, is_keyed, index })
            }
            2 if table != NAMES[4] => self.note(tx.drop_table(table), || Effect::Drop(table)),
            3 => match tolerated(tx.table(table))? {
                Some(handle) => {
                    tx.truncate(&handle)?;
                    self.note(Ok(()), || Effect::Truncate(table))
                }
                None => Ok(()),
            },
            4 | 5 => {
                let column = if self.random.chance(1, 2) { V } else { T };
                let is_unique = self.random.chance(1, 3);
                let index = Index { name: self.index(), column, is_unique };
                let made = tx.create_index(table, &index.name, &[COLUMNS[column]], is_unique);
                self.note(made, || Effect::Index(table, index))
            }
            6 => {
                let index = self.index();
                self.note(tx.drop_index(&index), || Effect::DropIndex(index))
            }
            _ => self.note(tx.add_primary_key(table, &[COLUMNS[K]]), || Effect::AddKey(table)),
        }
    }

    fn insert(&mut self, tx: &mut Transaction, table: &Table) -> Result<()> {
        for _ in 0..1 + self.random.below(12) {
            let key = match self.random.chance(1, 60) {
                true => Value::Null,
                false => Value::Int4(self.random.below(80) as i32),
            };
            let row = [key, self.number(), self.text()];
            self.insert_row(tx, table, row)?;
        }
        Ok(())
    }

    fn load(&mut self, tx: &mut Transaction, table: &Table) -> Result<()> {
        let rows = if self.random.chance(1, 3) { self.load } else { 40 };
        for k in 0..rows + self.random.below(200) as i32 {
            let (n, text) = (self.n, Value::Text(format!("{} {k}", self.n)));
            let row =
                [Value::Int4(1_000 + n as i32 * 1_000 + k), Value::Int8(n * 1_000 + i64::from(k)), text];
            self.insert_row(tx, table, row)?;
        }
        Ok(())
    }

    fn change(&mut self, tx: &mut Transaction, table: &Table) -> Result<()> {
        let mut keys = Vec::new();
        tx.scan(table, &Scan::all(), |key, row| {
            keys.push((key.clone(), row.get_i64(SERIAL)?));
            Ok(if keys.len() < 100 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        for _ in 0..(1 + self.random.below(10)).min(keys.len() as u64) {
            let (key, serial) = &keys[self.random.below(keys.len() as u64) as usize];
            let name = self.table;
            if self.random.chance(1, 3) {
                // It may have been deleted just before.
                if tolerated(tx.delete_at(table, key))? == Some(true) {
                    self.done.push(Effect::Delete(name, *serial));
                }
                continue;
            }
            let mut changes = Vec::new();
            if self.random.chance(1, 2) {
                changes.push((V, self.number()));
            }
            if self.random.chance(1, 2) {
                changes.push((T, self.text()));
            }
            if self.random.chance(1, 6) && table.schema().primary_key().is_none() {
                changes.push((K, Value::Int4(self.random.below(100) as i32)));
            }
            if tolerated(tx.update_at(table, key, &changes))? == Some(true) {
                self.done.push(Effect::Set(name, *serial, changes));
            }
        }
        Ok(())
    }

    fn step(&mut self, tx: &mut Transaction, defines: bool) -> Result<()> {
        self.table = NAMES[self.random.below(5) as usize];
        let what = self.random.below(26);
        match what {
            0..8 if defines => return self.define(tx),
            23 | 24 => self.savepoints.push((tx.savepoint(), self.done.len())),
            25 if !self.savepoints.is_empty() => {
                let at = self.random.below(self.savepoints.len() as u64) as usize;
                let (savepoint, done) = &self.savepoints[at];
                tx.rollback_to(savepoint)?;
                self.done.truncate(*done);
                self.savepoints.truncate(at + 1);
            }
            8..23 => {
                if let Some(table) = tolerated(tx.table(self.table))? {
                    return match what {
                        8..14 => self.insert(tx, &table),
                        14 | 15 => self.load(tx, &table),
                        _ => self.change(tx, &table),
                    };
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The operations of transaction `n`, drawn from a seed; and its number.
fn body(
    tx: &mut Transaction,
    (n, seed): (i64, u64),
    load: i32,
    defines: bool,
    records: &Records,
) -> Result<()> {
    let (random, savepoints, done) = (Random::new(seed), Vec::new(), Vec::new());
    let mut drawn = Drawn { random, n, load, savepoints, table: NAMES[0], rows: 0, done };
    for _ in 0..1 + drawn.random.below(9) {
        drawn.step(tx, defines)?;
    }
    let done = tx.table(DONE)?;
    tx.insert(&done, &[Value::Int8(n)])?;
    drawn.done.push(Effect::Done(n));
    records.put(n, drawn.done);
    Ok(())
}

/// The deterministic procedures: two that draw their operations, and one of two actions on tables of their own.
pub fn procedures(records: &Arc<Records>) -> Vec<Procedure> {
    let drawing = |name: &str, defines: bool| {
        let records = records.clone();
        let flow = Flow::of(move |tx, arguments, _| {
            let (n, seed) = (arguments.get::<i64>(0)?, arguments.get::<i64>(1)? as u64);
            body(tx, (n, seed), arguments.get::<i32>(2)?, defines, &records)
        });
        let types = [ColumnType::Int8, ColumnType::Int8, ColumnType::Int4];
        Procedure::new(name, types, flow).deterministic(1)
    };
    let records = records.clone();
    let sum = Action::exclusive(NAMES[4], move |tx, arguments, _| {
        let table = arguments.table()?;
        let (n, key) = (arguments.get::<i64>(0)?, arguments.get::<i32>(1)?);
        let mut effects = vec![Effect::Done(n)];
        match tolerated(tx.modify(table, key, |fields| fields.add(V, 1).map(drop)))? {
            Some(true) => effects.push(Effect::Add(NAMES[4], key)),
            // There is no room.
            None => {}
            Some(false) => {
                let (serial, row) = (n * ROWS_EACH, [Value::Int4(key), Value::Int8(n), Value::Null]);
                let [k, v, t] = row.clone();
                if tolerated(tx.insert(table, &[k, v, t, Value::Int8(serial)]))?.is_some() {
                    effects.push(Effect::Insert(NAMES[4], serial, row));
                }
            }
        }
        records.put(n, effects);
        Ok(())
    });
    let done =
        Action::exclusive(DONE, |tx, arguments, _| tx.insert(arguments.table()?, &arguments.values()[..1]));
    let flow = Flow::new().phase([sum.by_argument(1), done.by_argument(0)]);
    let add = Procedure::new("add", [ColumnType::Int8, ColumnType::Int4], flow).deterministic(1);
    vec![drawing("draw", false), drawing("define", true), add]
}

/// A client.
pub struct Client<'a> {
    pub db: &'a Database,
    pub random: Random,
    /// Whether it makes definitions, too.
    pub defines: bool,
    pub load: i32,
    pub records: &'a Records,
}

impl Client<'_> {
    /// Transaction `n`, as a closure or a call, up to its place.
    pub fn transact(&mut self, n: i64, options: &TxOptions) -> Result<Ticket> {
        let Client { db, random, defines, load, records } = self;
        let (seed, load) = (random.next(), *load);
        let arguments = [Value::Int8(n), Value::Int8(seed as i64), Value::Int4(load)];
        let defines = *defines && random.chance(2, 5);
        let call = |name: &str, arguments: &[Value]| {
            db.submit_call_with(options, name, arguments).map(|(_, ticket)| ticket)
        };
        match random.below(10) {
            0..4 => {
                let body = |tx: &mut Transaction| body(tx, (n, seed), load, defines, records);
                db.submit_with(options, body).map(|((), ticket)| ticket)
            }
            4..7 if defines => call("define", &arguments),
            4..7 => call("draw", &arguments),
            _ => {
                let key = Value::Int4(random.below(30) as i32);
                call("add", &[Value::Int8(n), key])
            }
        }
    }
}
