//! The statements of histories, and the meaning of their answers.

use std::ops::Bound;

use super::observed::{EXTRA, Found, GRAVES, Key, ROWS, Row, Values, Version, text_of, versions_in};
use super::scans::{By, RangeScan};
use super::space::Space;
use crate::common::{Client, Message, rows};

/// The value of a `?` in a statement.
#[derive(Debug, Clone)]
enum Value {
    Int(i32),
    Null,
    Text(String),
}

impl From<i32> for Value {
    fn from(value: i32) -> Value {
        Value::Int(value)
    }
}

/// A statement with its values.
#[derive(Debug, Clone)]
pub struct Statement {
    sql: String,
    values: Vec<Value>,
}

impl Statement {
    /// A statement without values.
    pub fn plain(sql: impl Into<String>) -> Statement {
        Statement { sql: sql.into(), values: Vec::new() }
    }

    fn new(sql: String, values: impl Into<Vec<Value>>) -> Statement {
        Statement { sql, values: values.into() }
    }

    /// The row of a key.
    pub fn get(key: Key, to_change: bool) -> Statement {
        let lock = lock(to_change);
        let sql = format!("select id, part, tag, versions from {} where id = ?{lock}", ROWS[key.table]);
        Statement::new(sql, [key.id.into()])
    }

    /// Graves of a table.
    pub fn graves(table: usize, low: i32, high: i32) -> Statement {
        let sql = format!("select id, versions from {} where id between ? and ?", GRAVES[table]);
        Statement::new(sql, [low.into(), high.into()])
    }

    /// The rows of a range.
    pub fn scan(scan: &RangeScan) -> Statement {
        let column = match scan.by {
            By::Id => "id",
            By::Part => "part",
            By::Tag => "tag",
        };
        let (mut conditions, mut values) = (Vec::new(), Vec::new());
        let mut condition = |comparison: &str, value: i32| {
            conditions.push(format!("{column} {comparison} ?"));
            values.push(Value::Int(value));
        };
        match (scan.value(), scan.lower, scan.upper) {
            (Some(value), ..) => condition("=", value),
            (None, Bound::Included(low), Bound::Included(high)) => {
                condition("between", low);
                conditions.push("?".to_owned());
                values.push(Value::Int(high));
            }
            (None, lower, upper) => {
                match lower {
                    Bound::Unbounded => {}
                    Bound::Included(low) => condition(">=", low),
                    Bound::Excluded(low) => condition(">", low),
                }
                match upper {
                    Bound::Unbounded => {}
                    Bound::Included(high) => condition("<=", high),
                    Bound::Excluded(high) => condition("<", high),
                }
            }
        }
        let mut sql = format!("select id, part, tag, versions from {}", ROWS[scan.table]);
        if !conditions.is_empty() {
            sql = format!("{sql} where {}", conditions.join(" and "));
        }
        let way = if scan.backward { " desc" } else { "" };
        match (scan.by, scan.limit) {
            (By::Id, _) => sql = format!("{sql} order by id{way}"),
            (_, Some(_)) => sql = format!("{sql} order by {column}{way}, id{way}"),
            (_, None) => {}
        }
        if let Some(limit) = scan.limit {
            sql = format!("{sql} limit {limit}");
        }
        Statement::new(sql + lock(scan.to_change), values)
    }

    pub fn insert(key: Key, row: &Row) -> Statement {
        let sql = format!("insert into {} (id, part, tag, versions) values (?, ?, ?, ?)", ROWS[key.table]);
        let versions = Value::Text(text_of(&row.versions));
        Statement::new(sql, [key.id.into(), row.values.part.into(), tag(row.values), versions])
    }

    pub fn update(key: Key, row: &Row) -> Statement {
        let sql = format!("update {} set part = ?, tag = ?, versions = ? where id = ?", ROWS[key.table]);
        let versions = Value::Text(text_of(&row.versions));
        Statement::new(sql, [row.values.part.into(), tag(row.values), versions, key.id.into()])
    }

    pub fn rename(from: Key, to: Key, row: &Row) -> Statement {
        let sql =
            format!("update {} set id = ?, part = ?, tag = ?, versions = ? where id = ?", ROWS[from.table]);
        let versions = Value::Text(text_of(&row.versions));
        Statement::new(sql, [to.id.into(), row.values.part.into(), tag(row.values), versions, from.id.into()])
    }

    /// Gives a row other values, and one more version, whatever versions it has; returns the row.
    pub fn append(key: Key, values: Values, version: Version) -> Statement {
        let sql = format!(
            "update {} set part = ?, tag = ?, versions = versions || ? where id = ? returning id, part, tag, versions",
            ROWS[key.table]
        );
        let version = Value::Text(format!(" {version}"));
        Statement::new(sql, [values.part.into(), tag(values), version, key.id.into()])
    }

    pub fn delete(key: Key) -> Statement {
        Statement::new(format!("delete from {} where id = ?", ROWS[key.table]), [key.id.into()])
    }

    /// Writes the list to the grave.
    pub fn bury(key: Key, versions: &[Version]) -> Statement {
        let sql = format!("update {} set versions = ? where id = ?", GRAVES[key.table]);
        Statement::new(sql, [Value::Text(text_of(versions)), key.id.into()])
    }

    /// The statement as one text.
    pub fn text(&self) -> String {
        self.render(|value| match value {
            Value::Int(value) => value.to_string(),
            Value::Text(value) => format!("'{value}'"),
            Value::Null => "null".to_owned(),
        })
    }

    /// The statement as a text with parameters, and their arguments. A NULL stays a literal.
    pub fn parts(&self) -> (String, Vec<String>) {
        let mut arguments = Vec::new();
        let text = self.render(|value| {
            arguments.push(match value {
                Value::Int(value) => value.to_string(),
                Value::Text(value) => value.clone(),
                Value::Null => return "null".to_owned(),
            });
            format!("${}", arguments.len())
        });
        (text, arguments)
    }

    fn render(&self, mut value: impl FnMut(&Value) -> String) -> String {
        let (mut text, mut values) = (String::new(), self.values.iter());
        for (nth, part) in self.sql.split('?').enumerate() {
            if nth > 0 {
                text.push_str(&value(values.next().expect("each ? has its value")));
            }
            text.push_str(part);
        }
        text
    }
}

fn lock(to_change: bool) -> &'static str {
    if to_change { " for update" } else { "" }
}

fn tag(values: Values) -> Value {
    values.tag.map_or(Value::Null, Value::Int)
}

/// The completion of a statement.
pub fn completion(answer: &[Message]) -> String {
    let (_, body) = answer.iter().rfind(|(tag, _)| *tag == b'C').expect("a statement that ended");
    String::from_utf8_lossy(body).trim_end_matches('\0').to_owned()
}

/// The number of rows in the completion.
pub fn count(answer: &[Message]) -> u64 {
    let text = completion(answer);
    text.rsplit(' ').next().and_then(|word| word.parse().ok()).expect("a count")
}

fn number(text: &Option<String>) -> i32 {
    text.as_ref().and_then(|text| text.parse().ok()).expect("a number")
}

fn versions(text: &Option<String>) -> Vec<Version> {
    text.as_deref().and_then(versions_in).expect("a list of versions")
}

/// The rows of an answer, with their identifiers.
pub fn rows_of(answer: &[Message]) -> Vec<(i32, Row)> {
    let row = |row: Vec<Option<String>>| {
        let tag = row[2].as_ref().map(|_| number(&row[2]));
        let values = Values { part: number(&row[1]), tag };
        (number(&row[0]), Row { values, versions: versions(&row[3]) })
    };
    rows(answer).into_iter().map(row).collect()
}

/// The graves of an answer, with their identifiers.
pub fn graves_of(answer: &[Message]) -> Vec<(i32, Vec<Version>)> {
    rows(answer).iter().map(|row| (number(&row[0]), versions(&row[1]))).collect()
}

/// Makes the tables, with graves and the first rows.
pub fn create(client: &mut Client, space: Space) {
    let first = space.first();
    for (table, (rows, graves)) in ROWS.iter().zip(GRAVES).enumerate() {
        let unique = unique(rows);
        client.run(&format!(
            "create table {rows} (id int primary key, part int not null, tag int, versions text not null)"
        ));
        client.run(&format!("create index {rows}_by_part on {rows} (part)"));
        client.run(&format!("create {unique}index {rows}_by_tag on {rows} (tag)"));
        client.run(&format!("create table {graves} (id int primary key, versions text not null)"));
        client.run(&format!(
            "insert into {graves} select n, '' from generate_series(0, {}) n",
            space.end() - 1
        ));
        let row = |(key, found): (&Key, &Found)| {
            let (values, versions) = (found.values?, found.versions.clone());
            let inserted = Statement::insert(*key, &Row { values, versions }).text();
            (key.table == table).then_some(inserted)
        };
        let inserts: Vec<String> = first.iter().filter_map(row).collect();
        for inserts in inserts.chunks(64) {
            client.run(&inserts.join("; "));
        }
    }
}

fn unique(rows: &str) -> &'static str {
    if rows == ROWS[0] { "unique " } else { "" }
}

/// Definitions that change plans, but no answer of a statement. Each list is one transaction.
pub fn changes(table: usize) -> Vec<Vec<String>> {
    let (rows, extra) = (ROWS[table], EXTRA[table]);
    let unique = unique(rows);
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut lists = vec![
        vec![format!("create index {extra} on {rows} (part, id)")],
        vec![format!("drop index if exists {extra}")],
        vec![
            format!("drop index {rows}_by_tag"),
            format!("create {unique}index {rows}_by_tag on {rows} (tag)"),
        ],
        vec![
            format!("drop index {rows}_by_part"),
            format!("create index {rows}_by_part on {rows} (part, tag)"),
        ],
        words(&["create table scratch (id int primary key)", "drop table scratch"]),
    ];
    for list in &mut lists {
        list.insert(0, "begin".to_owned());
        list.push("commit".to_owned());
    }
    lists
}
