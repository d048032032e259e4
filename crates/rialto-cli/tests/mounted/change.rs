//! A client's changes of its tables.

use rialto::io::Random;

use crate::client::{Answer, Client};
use crate::tables::{Index, Table, Tables, Value, text};

/// Keys lie below this.
const KEYS: i64 = 40;
/// The most rows of a COPY.
const COPIED: u64 = 20;

/// One change.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A table, with a primary key or without one.
    Create(String, bool),
    Drop(String),
    AddKey(String),
    Index(String, Index),
    DropIndex(String, Index),
    Insert(String, i64, Value),
    Update(String, i64, Value),
    Delete(String, i64),
    /// All rows.
    Truncate(String),
    Copy(String, Vec<(i64, Value)>),
    /// Counts a transaction of this client in the tables that all clients write to: the new number.
    Count(usize, i64),
}

impl Change {
    pub fn sql(&self) -> String {
        match self {
            Change::Create(table, keyed) => {
                let key = if *keyed { " PRIMARY KEY" } else { "" };
                format!("CREATE TABLE {table} (id bigint{key}, n bigint, t text)")
            }
            Change::Drop(table) => format!("DROP TABLE {table}"),
            Change::AddKey(table) => format!("ALTER TABLE {table} ADD PRIMARY KEY (id)"),
            Change::Index(table, index) => {
                let unique = if *index == Index::Unique { " UNIQUE" } else { "" };
                format!("CREATE{unique} INDEX {} ON {table} (n)", index.name(table))
            }
            Change::DropIndex(table, index) => format!("DROP INDEX {}", index.name(table)),
            Change::Insert(table, key, value) => {
                format!("INSERT INTO {table} VALUES ({key}, {}, '{}')", value.0, text(*value))
            }
            Change::Update(table, key, value) => {
                format!("UPDATE {table} SET n = {}, t = '{}' WHERE id = {key}", value.0, text(*value))
            }
            Change::Delete(table, key) => format!("DELETE FROM {table} WHERE id = {key}"),
            Change::Truncate(table) => format!("TRUNCATE {table}"),
            Change::Copy(table, _) => format!("COPY {table} FROM STDIN"),
            Change::Count(client, count) => format!(
                "INSERT INTO crowd VALUES ({client}, {count}); \
                 UPDATE counts SET count = {count} WHERE client = {client} AND count = {count} - 1"
            ),
        }
    }

    /// The tag of its completion.
    pub fn tag(&self) -> String {
        match self {
            Change::Create(..) => "CREATE TABLE".to_owned(),
            Change::Drop(_) => "DROP TABLE".to_owned(),
            Change::AddKey(_) => "ALTER TABLE".to_owned(),
            Change::Index(..) => "CREATE INDEX".to_owned(),
            Change::DropIndex(..) => "DROP INDEX".to_owned(),
            Change::Insert(..) => "INSERT 0 1".to_owned(),
            Change::Update(..) | Change::Count(..) => "UPDATE 1".to_owned(),
            Change::Delete(..) => "DELETE 1".to_owned(),
            Change::Truncate(_) => "TRUNCATE TABLE".to_owned(),
            Change::Copy(_, rows) => format!("COPY {}", rows.len()),
        }
    }

    /// Sends it to the server.
    pub fn send(&self, client: &mut Client) -> Answer {
        match self {
            Change::Copy(_, rows) => {
                let lines = rows.iter().map(|(key, value)| format!("{key}\t{}\t{}\n", value.0, text(*value)));
                client.copy(&self.sql(), &lines.collect::<String>())
            }
            _ => client.query(&self.sql()),
        }
    }

    /// A change that is valid for these tables; tables may have these names.
    pub fn any(random: &mut Random, names: &[String], tables: &Tables, texts: u32) -> Change {
        let name = names[random.below(names.len() as u64) as usize].clone();
        let Some(table) = tables.by_name.get(&name) else { return Change::Create(name, random.chance(2, 3)) };
        let key = random.below(KEYS as u64) as i64;
        let value = table.any_value(random, texts);
        match random.below(60) {
            0 => return Change::Drop(name),
            1 => return Change::Truncate(name),
            2 | 3 => {
                let index = if random.chance(1, 2) { Index::Unique } else { Index::Plain };
                return match table.index {
                    Some(index) => Change::DropIndex(name, index),
                    None if index == Index::Unique && !table.is_unique() => Change::Index(name, Index::Plain),
                    None => Change::Index(name, index),
                };
            }
            4..=6 if !table.keyed => return Change::AddKey(name),
            7 | 8 => return Change::any_copy(random, name, table, texts),
            _ => {}
        }
        match (table.rows.contains_key(&key), random.below(4)) {
            (false, _) => Change::Insert(name, key, value),
            (true, 0) => Change::Delete(name, key),
            (true, _) => Change::Update(name, key, value),
        }
    }

    /// A load of a table that its transaction has just made or emptied, if this change does that.
    pub fn load_behind(&self, random: &mut Random, tables: &Tables, texts: u32) -> Option<Change> {
        match self {
            Change::Create(name, _) | Change::Truncate(name) => {
                Some(Change::any_copy(random, name.clone(), &tables.by_name[name], texts))
            }
            _ => None,
        }
    }

    /// Some rows with keys, and numbers, that the table does not have.
    fn any_copy(random: &mut Random, name: String, table: &Table, texts: u32) -> Change {
        let mut more = table.clone();
        let mut rows = Vec::new();
        for _ in 0..random.below(COPIED) {
            let key = random.below(KEYS as u64) as i64;
            if !more.rows.contains_key(&key) {
                let value = more.any_value(random, 1 + texts / 8);
                more.rows.insert(key, value);
                rows.push((key, value));
            }
        }
        Change::Copy(name, rows)
    }

    /// An insert that a primary key or a unique index of these tables refuses, if there is one.
    pub fn any_refused(random: &mut Random, tables: &Tables) -> Option<Change> {
        let all = tables.by_name.iter().filter(|(_, table)| !table.rows.is_empty()).collect::<Vec<_>>();
        let (name, table) = all.get(random.below(all.len().max(1) as u64) as usize)?;
        let (key, value) = table.rows.iter().nth(random.below(table.rows.len() as u64) as usize)?;
        let other = table.any_value(random, 2);
        if table.keyed && random.chance(1, 2) {
            Some(Change::Insert((*name).clone(), *key, other))
        } else if table.index == Some(Index::Unique) {
            Some(Change::Insert((*name).clone(), KEYS, (value.0, 1)))
        } else {
            None
        }
    }
}
