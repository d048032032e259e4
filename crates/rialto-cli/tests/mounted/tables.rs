//! What a client does to its tables, as SQL and in a model.

use std::collections::BTreeMap;

use rialto::io::Random;

use crate::client::{Answer, Client};

/// Keys lie below this.
const KEYS: i64 = 40;

/// A row beside its key: a number, and how often the text says it.
pub type Value = (i64, u32);

/// The text of a row.
fn text((number, times): Value) -> String {
    format!("{number} ").repeat(times as usize)
}

/// One table.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    pub rows: BTreeMap<i64, Value>,
    /// Whether there is an index on the number.
    pub indexed: bool,
}

/// Tables by their names.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tables(pub BTreeMap<String, Table>);

/// One change.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    Create(String),
    Drop(String),
    Index(String),
    DropIndex(String),
    Insert(String, i64, Value),
    Update(String, i64, Value),
    Delete(String, i64),
    /// All rows.
    Truncate(String),
}

impl Change {
    pub fn sql(&self) -> String {
        match self {
            Change::Create(table) => {
                format!("CREATE TABLE {table} (id bigint PRIMARY KEY, n bigint, t text)")
            }
            Change::Drop(table) => format!("DROP TABLE {table}"),
            Change::Index(table) => format!("CREATE INDEX {table}_n ON {table} (n)"),
            Change::DropIndex(table) => format!("DROP INDEX {table}_n"),
            Change::Insert(table, key, value) => {
                format!("INSERT INTO {table} VALUES ({key}, {}, '{}')", value.0, text(*value))
            }
            Change::Update(table, key, value) => {
                format!("UPDATE {table} SET n = {}, t = '{}' WHERE id = {key}", value.0, text(*value))
            }
            Change::Delete(table, key) => format!("DELETE FROM {table} WHERE id = {key}"),
            Change::Truncate(table) => format!("TRUNCATE {table}"),
        }
    }

    /// The tag of its answer.
    pub fn tag(&self) -> &'static str {
        match self {
            Change::Create(_) => "CREATE TABLE",
            Change::Drop(_) => "DROP TABLE",
            Change::Index(_) => "CREATE INDEX",
            Change::DropIndex(_) => "DROP INDEX",
            Change::Insert(..) => "INSERT 0 1",
            Change::Update(..) => "UPDATE 1",
            Change::Delete(..) => "DELETE 1",
            Change::Truncate(_) => "TRUNCATE TABLE",
        }
    }

    /// A change that these tables, of which there may be those of these names, can take.
    pub fn any(random: &mut Random, names: &[String], tables: &Tables, texts: u32) -> Change {
        let name = names[random.below(names.len() as u64) as usize].clone();
        let Some(table) = tables.0.get(&name) else { return Change::Create(name) };
        let key = random.below(KEYS as u64) as i64;
        let value = (random.below(1_000_000) as i64, random.below(u64::from(texts)) as u32);
        match random.below(60) {
            0 => return Change::Drop(name),
            1 => return Change::Truncate(name),
            2 | 3 => return if table.indexed { Change::DropIndex(name) } else { Change::Index(name) },
            _ => {}
        }
        match (table.rows.contains_key(&key), random.below(4)) {
            (false, _) => Change::Insert(name, key, value),
            (true, 0) => Change::Delete(name, key),
            (true, _) => Change::Update(name, key, value),
        }
    }
}

impl Tables {
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Create(name) => drop(self.0.insert(name.clone(), Table::default())),
            Change::Drop(name) => drop(self.0.remove(name)),
            Change::Index(name) => self.table(name).indexed = true,
            Change::DropIndex(name) => self.table(name).indexed = false,
            Change::Insert(name, key, value) | Change::Update(name, key, value) => {
                self.table(name).rows.insert(*key, *value);
            }
            Change::Delete(name, key) => drop(self.table(name).rows.remove(key)),
            Change::Truncate(name) => self.table(name).rows.clear(),
        }
    }

    fn table(&mut self, name: &str) -> &mut Table {
        self.0.get_mut(name).expect("changes are made for tables that are there")
    }

    /// What the server has of the tables of these names. Each row's text is that of its number, and an index gives the same rows.
    pub fn read(client: &mut Client, names: &[String], about: &str) -> Tables {
        let mut tables = Tables::default();
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
            let plan = client.query(&format!("EXPLAIN SELECT id FROM {name} WHERE n = 1")).rows(about);
            table.indexed = format!("{plan:?}").contains(&format!("{name}_n"));
            for (key, value) in &table.rows {
                let found = client
                    .query(&format!("SELECT id FROM {name} WHERE n = {} AND id = {key}", value.0))
                    .rows(about);
                assert_eq!(found, [[Some(key.to_string())]], "{about}, {name}: row {key} by its number");
            }
            tables.0.insert(name.clone(), table);
        }
        tables
    }
}
