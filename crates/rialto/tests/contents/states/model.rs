//! [`Contents`]: the tables that transactions leave, by the outcomes of their operations; and the contents of a
//! database.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;

use parking_lot::Mutex;
use rialto::row::{Value, WhichIndex};
use rialto::{Database, Scan};

use super::drawn::{COLUMNS, DONE, K, SERIAL, V};

/// An operation that was done.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Made a table, with this index or none.
    Make {
        table: &'static str,
        is_keyed: bool,
        index: Option<Index>,
    },
    Drop(&'static str),
    Truncate(&'static str),
    Index(&'static str, Index),
    DropIndex(String),
    AddKey(&'static str),
    /// The row of this number.
    Insert(&'static str, i64, Row),
    /// Sets columns of the row of this number.
    Set(&'static str, i64, Vec<(usize, Value)>),
    Delete(&'static str, i64),
    /// Adds 1 to the sum of this key.
    Add(&'static str, i32),
    /// The transaction of this number is listed as done.
    Done(i64),
}

impl Effect {
    /// The table of the operation, if that has a key that the operation could violate.
    fn table(&self) -> Option<&'static str> {
        match self {
            Effect::Insert(table, ..) | Effect::Set(table, ..) => Some(table),
            Effect::Index(table, _) | Effect::AddKey(table) => Some(table),
            _ => None,
        }
    }
}

/// A row's values in the order of the columns, without its number.
pub type Row = [Value; SERIAL];

#[derive(Debug, Clone, PartialEq)]
pub struct Index {
    pub name: String,
    pub column: usize,
    pub is_unique: bool,
}

#[derive(Debug, Clone, PartialEq, Default)]
struct Table {
    is_keyed: bool,
    indexes: Vec<Index>,
    /// By number, which is unique.
    rows: BTreeMap<i64, Row>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Contents {
    /// Transactions that have committed.
    pub done: BTreeSet<i64>,
    tables: BTreeMap<String, Table>,
}

impl Table {
    /// The columns of each of its indexes, the primary one first; and whether it is unique.
    fn columns(&self) -> impl Iterator<Item = (Option<usize>, bool)> {
        let primary = (self.is_keyed.then_some(K), self.is_keyed);
        [primary].into_iter().chain(self.indexes.iter().map(|it| (Some(it.column), it.is_unique)))
    }

    fn assert_unique(&self, about: &str) {
        for column in self.columns().filter_map(|(column, is_unique)| column.filter(|_| is_unique)) {
            let keys = self.rows.values().map(|row| &row[column]);
            let mut keys: Vec<_> = keys.filter(|value| !value.is_null()).collect();
            keys.sort_by(|one, other| one.compare(other).expect("they are of one type"));
            let twice = keys.windows(2).find(|pair| pair[0] == pair[1]);
            assert_eq!(twice, None, "{about}: rows with the same key were let in");
        }
    }

    fn row(&mut self, serial: i64, about: &str) -> &mut Row {
        let row = self.rows.get_mut(&serial);
        row.unwrap_or_else(|| panic!("{about}: a row of number {serial} was found, which is not there"))
    }
}

impl Contents {
    /// A transaction has done this, and has committed.
    pub fn apply(&mut self, effects: &[Effect], about: &str) {
        let mut touched = BTreeSet::new();
        for effect in effects {
            touched.extend(effect.table());
            self.take(effect, about);
        }
        let touched = touched.into_iter().filter_map(|name| self.tables.get(name));
        touched.for_each(|table| table.assert_unique(about));
    }

    fn table(&mut self, name: &str, about: &str) -> &mut Table {
        self.tables.get_mut(name).unwrap_or_else(|| panic!("{about}: table {name} is not there"))
    }

    fn take(&mut self, effect: &Effect, about: &str) {
        match effect {
            Effect::Make { table, is_keyed, index } => {
                let indexes = index.iter().cloned().collect();
                let made = Table { is_keyed: *is_keyed, indexes, rows: BTreeMap::new() };
                let before = self.tables.insert((*table).to_owned(), made);
                assert!(before.is_none(), "{about}: {effect:?}: the table was there");
            }
            Effect::Drop(table) => {
                assert!(self.tables.remove(*table).is_some(), "{about}: {effect:?}: the table is not there");
            }
            Effect::Truncate(table) => self.table(table, about).rows.clear(),
            Effect::Index(table, index) => self.table(table, about).indexes.push(index.clone()),
            Effect::DropIndex(name) => {
                let mut all = self.tables.values_mut();
                let at = all.find_map(|table| {
                    let at = table.indexes.iter().position(|it| it.name == *name)?;
                    Some(table.indexes.remove(at))
                });
                assert!(at.is_some(), "{about}: {effect:?}: the index is not there");
            }
            Effect::AddKey(table) => self.table(table, about).is_keyed = true,
            Effect::Insert(table, serial, row) => {
                let before = self.table(table, about).rows.insert(*serial, row.clone());
                assert!(before.is_none(), "{about}: {effect:?}: it was there");
            }
            Effect::Set(table, serial, changes) => {
                let row = self.table(table, about).row(*serial, about);
                changes.iter().for_each(|(column, value)| row[*column] = value.clone());
            }
            Effect::Delete(table, serial) => {
                let before = self.table(table, about).rows.remove(serial);
                assert!(before.is_some(), "{about}: {effect:?}: the row is not there");
            }
            Effect::Add(table, key) => {
                let mut rows = self.table(table, about).rows.values_mut();
                let row = rows.find(|row| row[K] == Value::Int4(*key));
                match &mut row.unwrap_or_else(|| panic!("{about}: {effect:?}: the row is not there"))[V] {
                    Value::Int8(sum) => *sum += 1,
                    // A sum that is null stays null.
                    other => assert!(other.is_null(), "{about}: {effect:?}: {other:?}"),
                }
            }
            Effect::Done(n) => assert!(self.done.insert(*n), "{about}: it has committed twice"),
        }
    }

    /// The contents of the database. Checks that each index gives the same, in its order.
    pub fn of(db: &Database, about: &str) -> Contents {
        let mut contents = Contents::default();
        let mut tx = db.begin().unwrap();
        for handle in db.tables().into_iter().filter(|table| !table.name().starts_with("rialto_")) {
            let (name, schema) = (handle.name(), handle.schema());
            let about = &format!("{about}: {name}");
            let mut count = handle.rows_estimate();
            if name == DONE {
                tx.scan(&handle, &Scan::all(), |_, row| {
                    assert!(contents.done.insert(row.get_i64(0)?), "{about}: a row is there twice");
                    count -= 1;
                    Ok(ControlFlow::Continue(()))
                })
                .unwrap();
                assert_eq!(count, 0, "{about}: its rows are counted wrong");
                continue;
            }
            let indexes = schema.indexes().iter().map(|it| Index {
                name: it.name.clone(),
                column: it.columns[0],
                is_unique: it.unique,
            });
            let is_keyed = schema.primary_key().is_some();
            let mut table = Table { is_keyed, indexes: indexes.collect(), rows: BTreeMap::new() };
            let columns: Vec<_> = table.columns().map(|(column, _)| column).collect();
            for (position, column) in columns.into_iter().enumerate() {
                let index = match position {
                    0 => WhichIndex::Primary,
                    _ => WhichIndex::Secondary(position - 1),
                };
                let (mut rows, mut last) = (BTreeMap::new(), None);
                tx.scan(&handle, &Scan { index, ..Scan::all() }, |_, row| {
                    let Value::Int8(serial) = row.get(SERIAL) else {
                        panic!("{about}: a row without a number")
                    };
                    let values: Row = std::array::from_fn(|at| row.get(at));
                    if let Some(key) =
                        column.map(|column| values[column].clone()).filter(|key| !key.is_null())
                    {
                        let is_behind = |last: &Value| last.compare(&key).is_none_or(|order| order.is_le());
                        assert!(last.as_ref().is_none_or(is_behind), "{about}: out of order by {index:?}");
                        last = Some(key);
                    }
                    assert!(
                        rows.insert(serial, values).is_none(),
                        "{about}: a row is there twice by {index:?}"
                    );
                    Ok(ControlFlow::Continue(()))
                })
                .unwrap();
                assert_eq!(rows.len() as u64, count, "{about}: rows by {index:?} are counted wrong");
                match position {
                    0 => table.rows = rows,
                    _ => assert_eq!(first_difference(&rows, &table.rows), None, "{about} by {index:?}"),
                }
            }
            contents.tables.insert(name.to_owned(), table);
        }
        // The machine may have ended: then whether what was read is durable is unknown.
        let _ = tx.abort();
        contents
    }

    /// Fails unless this is what is expected.
    pub fn assert_is(&self, expected: &Contents, about: &str) {
        assert_eq!(self.done, expected.done, "{about}: transactions that are there");
        let names = |of: &Contents| of.tables.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(self), names(expected), "{about}: tables");
        for (name, table) in &self.tables {
            let expected = &expected.tables[name];
            assert_eq!(table.is_keyed, expected.is_keyed, "{about}: the key of {name}");
            assert_eq!(table.indexes, expected.indexes, "{about}: the indexes of {name}");
            let difference = first_difference(&table.rows, &expected.rows);
            assert_eq!(difference, None, "{about}: a row of {name}, as found and as expected");
        }
    }
}

/// The number of a row that differs, and its contents in both.
#[allow(clippy::type_complexity, reason = "it is shown, and taken apart nowhere")]
fn first_difference<'a>(
    found: &'a BTreeMap<i64, Row>,
    expected: &'a BTreeMap<i64, Row>,
) -> Option<(i64, Option<&'a Row>, Option<&'a Row>)> {
    if found == expected {
        return None;
    }
    let all = found.keys().chain(expected.keys());
    let both = all.map(|serial| (*serial, found.get(serial), expected.get(serial)));
    both.into_iter().find(|(_, found, expected)| found != expected)
}

/// The operations of the transactions' bodies, by their numbers. A body may run again: its last run counts.
#[derive(Default)]
pub struct Records(Mutex<HashMap<i64, Vec<Effect>>>);

impl Records {
    /// A body has come to its end.
    pub fn put(&self, n: i64, effects: Vec<Effect>) {
        self.0.lock().insert(n, effects);
    }

    /// The operations of the last run of transaction `n` that came to its end, if there is one.
    pub fn take(&self, n: i64) -> Option<Vec<Effect>> {
        self.0.lock().remove(&n)
    }
}

/// The columns of every table but that of transactions: the last one is the row's number.
const _: () = assert!(COLUMNS.len() == SERIAL + 1);
