//! A client's transaction as a script's session: statements in the simple or the extended protocol.

use std::fmt::Write as _;

use super::observed::{Key, Predicate, Row, TABLES, Values, Version, text_of, versions_in};
use super::script::{Put, Session};
use crate::common::{Client, Message, bind, error_code, error_text, execute, parse, query, rows, sync};

/// Tables of rows. The first one's index on the tags is unique.
pub const ROWS: [&str; TABLES] = ["things", "others"];
/// Their graves.
const GRAVES: [&str; TABLES] = ["things_graves", "others_graves"];

/// Why a statement gave no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// With this SQLSTATE.
    Error { code: String, text: String },
    /// The server has closed the connection.
    Gone,
}

/// What stands for a `?` in a statement.
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

/// A client in a transaction block.
pub struct Block<'a> {
    pub client: &'a mut Client,
    pub extended: bool,
    savepoints: usize,
}

type Answer = Result<Vec<Message>, Refused>;

impl<'a> Block<'a> {
    pub fn new(client: &'a mut Client, extended: bool) -> Block<'a> {
        Block { client, extended, savepoints: 0 }
    }

    /// Runs a statement without values, by the simple protocol.
    pub fn run(&mut self, sql: &str) -> Answer {
        self.client.send(&query(sql));
        self.answer()
    }

    fn answer(&mut self) -> Answer {
        let answer = self.client.answer();
        match (error_code(&answer), answer.last()) {
            (Some(code), _) => Err(Refused::Error { code, text: error_text(&answer) }),
            (None, Some((b'Z', _))) => Ok(answer),
            _ => Err(Refused::Gone),
        }
    }

    fn statement(&mut self, sql: &str, values: &[Value]) -> Answer {
        let (mut text, mut arguments) = (String::new(), Vec::new());
        for (nth, part) in sql.split('?').enumerate() {
            if nth > 0 {
                match &values[nth - 1] {
                    Value::Null => text.push_str("null"),
                    Value::Int(value) if !self.extended => _ = write!(text, "{value}"),
                    Value::Text(value) if !self.extended => _ = write!(text, "'{value}'"),
                    value => {
                        arguments.push(match value {
                            Value::Text(value) => value.clone(),
                            Value::Int(value) => value.to_string(),
                            Value::Null => unreachable!("it is written as a literal"),
                        });
                        _ = write!(text, "${}", arguments.len());
                    }
                }
            }
            text.push_str(part);
        }
        if !self.extended {
            return self.run(&text);
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let messages = [parse("", &text), bind("", "", &arguments), execute("", 0), sync()];
        self.client.send(&messages.concat());
        self.answer()
    }

    /// A statement that may find a key taken: behind a savepoint, so that the block goes on.
    fn put(&mut self, sql: &str, values: &[Value]) -> Result<Put, Refused> {
        self.run("savepoint try")?;
        match self.statement(sql, values) {
            Ok(answer) => {
                self.run("release savepoint try")?;
                Ok(if count(&answer) == 1 { Put::Done } else { Put::Missing })
            }
            Err(Refused::Error { code, text }) if code == "23505" => {
                self.run("rollback to savepoint try")?;
                self.run("release savepoint try")?;
                Ok(if text.contains("by_tag") { Put::TagTaken } else { Put::KeyTaken })
            }
            Err(refused) => Err(refused),
        }
    }
}

/// How many rows a statement was about.
fn count(answer: &[Message]) -> u64 {
    let tag = answer.iter().rfind(|(tag, _)| *tag == b'C').expect("a statement that ended");
    let text = String::from_utf8_lossy(&tag.1);
    text.trim_end_matches('\0').rsplit(' ').next().and_then(|word| word.parse().ok()).expect("a count")
}

fn number(text: &Option<String>) -> i32 {
    text.as_ref().and_then(|text| text.parse().ok()).expect("a number")
}

fn versions(text: &Option<String>) -> Vec<Version> {
    text.as_deref().and_then(versions_in).expect("a list of versions")
}

fn rows_of(answer: &[Message]) -> Vec<(i32, Row)> {
    let row = |row: Vec<Option<String>>| {
        let tag = row[2].as_ref().map(|_| number(&row[2]));
        let values = Values { part: number(&row[1]), tag };
        (number(&row[0]), Row { values, versions: versions(&row[3]) })
    };
    rows(answer).into_iter().map(row).collect()
}

impl Session for Block<'_> {
    type Error = Refused;

    fn get(&mut self, key: Key, to_change: bool) -> Result<Option<Row>, Refused> {
        let lock = if to_change { " for update" } else { "" };
        let sql = format!("select id, part, tag, versions from {} where id = ?{lock}", ROWS[key.table]);
        let answer = self.statement(&sql, &[key.id.into()])?;
        Ok(rows_of(&answer).pop().map(|(_, row)| row))
    }

    fn grave(&mut self, key: Key) -> Result<Vec<Version>, Refused> {
        let mut graves = self.graves(key.table, key.id, key.id)?;
        Ok(graves.pop().expect("each key has a grave").1)
    }

    fn graves(&mut self, table: usize, low: i32, high: i32) -> Result<Vec<(i32, Vec<Version>)>, Refused> {
        let sql = format!("select id, versions from {} where id between ? and ?", GRAVES[table]);
        let answer = self.statement(&sql, &[low.into(), high.into()])?;
        Ok(rows(&answer).iter().map(|row| (number(&row[0]), versions(&row[1]))).collect())
    }

    fn scan(
        &mut self,
        table: usize,
        predicate: Predicate,
        backward: bool,
        to_change: bool,
    ) -> Result<Vec<(i32, Row)>, Refused> {
        let (condition, values) = match predicate {
            Predicate::Keys(low, high) => ("id between ? and ?", vec![low.into(), high.into()]),
            Predicate::Part(part) => ("part = ?", vec![part.into()]),
            Predicate::Tag(tag) => ("tag = ?", vec![tag.into()]),
        };
        let order = match (predicate, backward) {
            (Predicate::Keys(..), true) => " order by id desc",
            (Predicate::Keys(..), false) => " order by id",
            _ => "",
        };
        let lock = if to_change { " for update" } else { "" };
        let sql =
            format!("select id, part, tag, versions from {} where {condition}{order}{lock}", ROWS[table]);
        Ok(rows_of(&self.statement(&sql, &values)?))
    }

    fn insert(&mut self, key: Key, row: &Row) -> Result<Put, Refused> {
        let sql = format!("insert into {} (id, part, tag, versions) values (?, ?, ?, ?)", ROWS[key.table]);
        let tag = row.values.tag.map_or(Value::Null, Value::Int);
        let values = [key.id.into(), row.values.part.into(), tag, Value::Text(text_of(&row.versions))];
        self.put(&sql, &values)
    }

    fn update(&mut self, key: Key, row: &Row) -> Result<Put, Refused> {
        let sql = format!("update {} set part = ?, tag = ?, versions = ? where id = ?", ROWS[key.table]);
        let tag = row.values.tag.map_or(Value::Null, Value::Int);
        let values = [row.values.part.into(), tag, Value::Text(text_of(&row.versions)), key.id.into()];
        self.put(&sql, &values)
    }

    fn delete(&mut self, key: Key) -> Result<bool, Refused> {
        let sql = format!("delete from {} where id = ?", ROWS[key.table]);
        Ok(count(&self.statement(&sql, &[key.id.into()])?) == 1)
    }

    fn bury(&mut self, key: Key, versions: &[Version]) -> Result<(), Refused> {
        let sql = format!("update {} set versions = ? where id = ?", GRAVES[key.table]);
        let answer = self.statement(&sql, &[Value::Text(text_of(versions)), key.id.into()])?;
        assert_eq!(count(&answer), 1, "{key:?} has a grave");
        Ok(())
    }

    fn truncate(&mut self, table: usize) -> Result<(), Refused> {
        self.run(&format!("truncate {}", ROWS[table])).map(drop)
    }

    fn savepoint(&mut self) -> Result<(), Refused> {
        self.savepoints += 1;
        self.run(&format!("savepoint s{}", self.savepoints)).map(drop)
    }

    fn roll_back(&mut self) -> Result<(), Refused> {
        self.run(&format!("rollback to savepoint s{}", self.savepoints))?;
        self.release()
    }

    fn release(&mut self) -> Result<(), Refused> {
        self.savepoints -= 1;
        self.run(&format!("release savepoint s{}", self.savepoints + 1)).map(drop)
    }

    fn may_go_on(&self, refused: &Refused) -> bool {
        // No lock within the time, or cancelled.
        matches!(refused, Refused::Error { code, .. } if code == "55P03" || code == "57014")
    }
}

/// Makes the tables, with graves and no rows.
pub fn create(client: &mut Client) {
    for (rows, graves) in ROWS.iter().zip(GRAVES) {
        let unique = if *rows == ROWS[0] { "unique " } else { "" };
        client.run(&format!(
            "create table {rows} (id int primary key, part int not null, tag int, versions text not null)"
        ));
        client.run(&format!("create index {rows}_by_part on {rows} (part)"));
        client.run(&format!("create {unique}index {rows}_by_tag on {rows} (tag)"));
        client.run(&format!("create table {graves} (id int primary key, versions text not null)"));
        let last = super::observed::KEYS - 1;
        client.run(&format!("insert into {graves} select n, '' from generate_series(0, {last}) n"));
    }
}
