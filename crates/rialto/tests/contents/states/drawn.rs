//! Transactions that draw what they do: definitions, rows, scans that change what they find, savepoints.

use std::ops::ControlFlow;

use rialto::io::Random;
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Action, Database, Error, Flow, Procedure, Result, Savepoint, Scan, Table, TableDef, Transaction,
    TxOptions,
};

/// Of tables that come and go; the last one stays.
const NAMES: [&str; 5] = ["a", "b", "c", "d", "sums"];
/// The numbers of the transactions that have committed.
pub const DONE: &str = "done";

/// What a transaction goes on behind: errors that say something about its rows or definitions.
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
        key("k", ColumnType::Int4),
        Column::nullable("v", ColumnType::Int8),
        Column::nullable("t", ColumnType::Text),
    ]
}

/// The two tables that stay.
pub fn prepare(db: &Database) {
    db.transact(|tx| {
        tx.create_table(
            &TableDef::new(DONE, vec![Column::new("n", ColumnType::Int8)]).with_primary_key(&["n"]),
        )?;
        tx.create_table(&TableDef::new(NAMES[4], columns(true)).with_primary_key(&["k"]))
    })
    .unwrap();
}

/// What a transaction's work is drawn from.
struct Drawn<'a> {
    random: Random,
    n: i64,
    /// Rows of one load; a few thousand where memory is scarce, to come to its bound.
    load: i32,
    savepoints: Vec<Savepoint>,
    table: &'a str,
}

impl Drawn<'_> {
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

    fn define(&mut self, tx: &mut Transaction) -> Result<()> {
        let table = self.table;
        match self.random.below(8) {
            0 | 1 => {
                let has_key = self.random.chance(1, 2);
                let mut definition = TableDef::new(table, columns(has_key));
                if has_key {
                    definition = definition.with_primary_key(&["k"]);
                }
                if self.random.chance(1, 2) {
                    definition = definition.with_index(self.index(), &["v"], self.random.chance(1, 4));
                }
                tolerated(tx.create_table(&definition)).map(drop)
            }
            2 if table != NAMES[4] => tolerated(tx.drop_table(table)).map(drop),
            3 => match tolerated(tx.table(table))? {
                Some(table) => tx.truncate(&table),
                None => Ok(()),
            },
            4 | 5 => {
                let column = if self.random.chance(1, 2) { "v" } else { "t" };
                let unique = self.random.chance(1, 3);
                tolerated(tx.create_index(table, &self.index(), &[column], unique)).map(drop)
            }
            6 => tolerated(tx.drop_index(&self.index())).map(drop),
            _ => tolerated(tx.add_primary_key(table, &["k"])).map(drop),
        }
    }

    fn insert(&mut self, tx: &mut Transaction, table: &Table) -> Result<()> {
        for _ in 0..1 + self.random.below(12) {
            let key = match self.random.chance(1, 60) {
                true => Value::Null,
                false => Value::Int4(self.random.below(80) as i32),
            };
            let row = [key, self.number(), self.text()];
            tolerated(tx.insert(table, &row))?;
        }
        Ok(())
    }

    fn load(&mut self, tx: &mut Transaction, table: &Table) -> Result<()> {
        let rows = if self.random.chance(1, 3) { self.load } else { 40 };
        for k in 0..rows + self.random.below(200) as i32 {
            let (n, text) = (self.n, Value::Text(format!("{} {k}", self.n)));
            let row =
                [Value::Int4(1_000 + n as i32 * 1_000 + k), Value::Int8(n * 1_000 + i64::from(k)), text];
            tolerated(tx.insert(table, &row))?;
        }
        Ok(())
    }

    fn change(&mut self, tx: &mut Transaction, table: &Table) -> Result<()> {
        let mut keys = Vec::new();
        tx.scan(table, &Scan::all(), |key, _| {
            keys.push(key.clone());
            Ok(if keys.len() < 100 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        for _ in 0..(1 + self.random.below(10)).min(keys.len() as u64) {
            let key = &keys[self.random.below(keys.len() as u64) as usize];
            if self.random.chance(1, 3) {
                tolerated(tx.delete_at(table, key))?;
                continue;
            }
            let mut changes = Vec::new();
            if self.random.chance(1, 2) {
                changes.push((1, self.number()));
            }
            if self.random.chance(1, 2) {
                changes.push((2, self.text()));
            }
            if self.random.chance(1, 6) && table.schema().primary_key().is_none() {
                changes.push((0, Value::Int4(self.random.below(100) as i32)));
            }
            tolerated(tx.update_at(table, key, &changes))?;
        }
        Ok(())
    }

    fn step(&mut self, tx: &mut Transaction, defines: bool) -> Result<()> {
        self.table = NAMES[self.random.below(5) as usize];
        let what = self.random.below(26);
        match what {
            0..8 if defines => return self.define(tx),
            23 | 24 => self.savepoints.push(tx.savepoint()),
            25 if !self.savepoints.is_empty() => {
                let at = self.random.below(self.savepoints.len() as u64) as usize;
                tx.rollback_to(&self.savepoints[at])?;
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

/// What transaction `n` does, drawn from a seed; and its number.
fn body(tx: &mut Transaction, n: i64, seed: u64, load: i32, defines: bool) -> Result<()> {
    let mut drawn = Drawn { random: Random::new(seed), n, load, savepoints: Vec::new(), table: NAMES[0] };
    for _ in 0..1 + drawn.random.below(9) {
        drawn.step(tx, defines)?;
    }
    let done = tx.table(DONE)?;
    tx.insert(&done, &[Value::Int8(n)])
}

/// The deterministic procedures: two that draw what they do, and one of two actions on tables of their own.
pub fn procedures() -> Vec<Procedure> {
    let drawing = |name: &str, defines: bool| {
        let flow = Flow::of(move |tx, arguments, _| {
            let (n, seed) = (arguments.get::<i64>(0)?, arguments.get::<i64>(1)? as u64);
            body(tx, n, seed, arguments.get::<i32>(2)?, defines)
        });
        let types = [ColumnType::Int8, ColumnType::Int8, ColumnType::Int4];
        Procedure::new(name, types, flow).deterministic(1)
    };
    let sum = Action::exclusive(NAMES[4], |tx, arguments, _| {
        let (table, values) = (arguments.table()?, arguments.values());
        let key = arguments.get::<i32>(1)?;
        // A sum that is null stays so.
        let added = tolerated(tx.modify(table, key, |fields| fields.add(1, 1).map(drop)))?;
        if added == Some(false) {
            tolerated(tx.insert(table, &[values[1].clone(), values[0].clone(), Value::Null]))?;
        }
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
}

impl Client<'_> {
    /// Transaction `n`, as a closure or a call.
    pub fn transact(&mut self, n: i64, options: &TxOptions) -> Result<()> {
        let Client { db, random, defines, load } = self;
        let (seed, load) = (random.next(), *load);
        let arguments = [Value::Int8(n), Value::Int8(seed as i64), Value::Int4(load)];
        let defines = *defines && random.chance(2, 5);
        match random.below(10) {
            0..4 => db.transact_with(options, |tx| body(tx, n, seed, load, defines)),
            4..7 if defines => db.call_with(options, "define", &arguments).map(drop),
            4..7 => db.call_with(options, "draw", &arguments).map(drop),
            _ => {
                let key = Value::Int4(random.below(30) as i32);
                db.call_with(options, "add", &[Value::Int8(n), key]).map(drop)
            }
        }
    }
}
