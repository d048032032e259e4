//! The contents of a client's tables.

use std::collections::{BTreeMap, BTreeSet};

use rialto::io::Random;

use crate::change::Change;
use crate::client::{Answer, Client};

/// A row without its key: a number, and how often the text repeats it.
pub type Value = (i64, u32);

/// The text of a row.
pub fn text((number, times): Value) -> String {
    format!("{number} ").repeat(times as usize)
}

/// An index on the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Index {
    Plain,
    Unique,
}

impl Index {
    /// Its name, on this table.
    pub fn name(self, table: &str) -> String {
        match self {
            Index::Plain => format!("{table}_plain"),
            Index::Unique => format!("{table}_unique"),
        }
    }
}

/// One table.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    pub rows: BTreeMap<i64, Value>,
    /// Whether it has a primary key.
    pub keyed: bool,
    pub index: Option<Index>,
}

impl Table {
    /// Whether no two rows have the same number.
    pub fn is_unique(&self) -> bool {
        self.rows.values().map(|value| value.0).collect::<BTreeSet<_>>().len() == self.rows.len()
    }

    /// A value with a number that no row has.
    pub fn any_value(&self, random: &mut Random, texts: u32) -> Value {
        loop {
            let value = (random.below(1_000_000) as i64, random.below(u64::from(texts)) as u32);
            if self.rows.values().all(|other| other.0 != value.0) {
                return value;
            }
        }
    }
}

/// The changes of one client: its tables by name, and how many of its transactions are counted where all clients count.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tables {
    pub by_name: BTreeMap<String, Table>,
    pub count: i64,
}

impl Tables {
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Create(name, keyed) => {
                let table = Table { keyed: *keyed, ..Table::default() };
                self.by_name.insert(name.clone(), table);
            }
            Change::Drop(name) => drop(self.by_name.remove(name)),
            Change::AddKey(name) => self.table(name).keyed = true,
            Change::Index(name, index) => self.table(name).index = Some(*index),
            Change::DropIndex(name, _) => self.table(name).index = None,
            Change::Insert(name, key, value) | Change::Update(name, key, value) => {
                self.table(name).rows.insert(*key, *value);
            }
            Change::Delete(name, key) => drop(self.table(name).rows.remove(key)),
            Change::Truncate(name) => self.table(name).rows.clear(),
            Change::Copy(name, rows) => self.table(name).rows.extend(rows.iter().copied()),
            Change::Count(_, count) => self.count = *count,
        }
    }

    fn table(&mut self, name: &str) -> &mut Table {
        self.by_name.get_mut(name).expect("changes are made for tables that are there")
    }

    /// The server's contents of these tables, and of this client's count. Each row's text is that of its number, and an
    /// index gives the same rows.
    pub fn read(client: &mut Client, of: usize, names: &[String], about: &str) -> Tables {
        let mut tables = Tables::default();
        let count = client.query(&format!("SELECT count FROM counts WHERE client = {of}")).rows(about);
        tables.count = count[0][0].as_deref().and_then(|text| text.parse().ok()).expect("a number");
        for name in names {
            let rows = match client.query(&format!("SELECT id, n, t FROM {name} ORDER BY id")) {
                Answer::Refused { code, .. } if code == "42P01" => continue,
                answer => answer.rows(&format!("{about}, {name}")),
            };
            let mut table = Table::default();
            for row in &rows {
                let number = |at: usize| row[at].as_deref().and_then(|text| text.parse::<i64>().ok());
                let (Some(key), Some(n), Some(found)) = (number(0), number(1), &row[2]) else {
                    panic!("{about}, {name}: a row has nulls: {row:?}")
                };
                let value = (n, found.split_whitespace().count() as u32);
                assert_eq!(*found, text(value), "{about}, {name}: the text of row {key}");
                table.rows.insert(key, value);
            }
            assert_eq!(table.rows.len(), rows.len(), "{about}, {name}: a key is there twice");
            let mut plan = |by: &str| {
                let plan = client.query(&format!("EXPLAIN SELECT t FROM {name} WHERE {by} = 1")).rows(about);
                format!("{plan:?}")
            };
            table.keyed = plan("id").contains(&format!("{name}_pkey"));
            let by_number = plan("n");
            let is_there = |index: &Index| by_number.contains(&index.name(name));
            table.index = [Index::Plain, Index::Unique].into_iter().find(is_there);
            for (key, value) in &table.rows {
                for by in [format!("n = {} AND id = {key}", value.0), format!("id = {key}")] {
                    let found = client.query(&format!("SELECT id FROM {name} WHERE {by}")).rows(about);
                    assert_eq!(found, [[Some(key.to_string())]], "{about}, {name}: {by}");
                }
            }
            tables.by_name.insert(name.clone(), table);
        }
        tables
    }
}
