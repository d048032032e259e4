//! Values, errors and definitions as plain data.

use rialto::row::{Decimal, Value};
use rialto::{Error, Lsn};
use serde::de::{self, Deserializer, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use crate::error::{About, SqlError, SqlState};

/// The values of a row, or of a statement's arguments.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cells(pub Vec<Value>);

/// A value that is written. The variants are those of [`Cell`], in the same order.
#[derive(Serialize)]
enum CellRef<'a> {
    Null,
    Bool(bool),
    Int2(i16),
    Int4(i32),
    Int8(i64),
    Float8(f64),
    Decimal(i128, u8),
    Text(&'a str),
    Bytes(BytesRef<'a>),
    Date(i32),
    Timestamp(i64),
}

/// A value that is read.
#[derive(Deserialize)]
enum Cell {
    Null,
    Bool(bool),
    Int2(i16),
    Int4(i32),
    Int8(i64),
    Float8(f64),
    Decimal(i128, u8),
    Text(String),
    Bytes(Bytes),
    Date(i32),
    Timestamp(i64),
}

impl Serialize for Cells {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|value| match value {
            Value::Null => CellRef::Null,
            Value::Bool(value) => CellRef::Bool(*value),
            Value::Int2(value) => CellRef::Int2(*value),
            Value::Int4(value) => CellRef::Int4(*value),
            Value::Int8(value) => CellRef::Int8(*value),
            Value::Float8(value) => CellRef::Float8(*value),
            Value::Decimal(value) => CellRef::Decimal(value.unscaled(), value.scale()),
            Value::Text(value) => CellRef::Text(value),
            Value::Bytes(value) => CellRef::Bytes(BytesRef(value)),
            Value::Date(value) => CellRef::Date(*value),
            Value::Timestamp(value) => CellRef::Timestamp(*value),
        }))
    }
}

impl<'de> Deserialize<'de> for Cells {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cells, D::Error> {
        let cells: Vec<Cell> = Vec::deserialize(deserializer)?;
        let value = |cell| {
            Ok(match cell {
                Cell::Null => Value::Null,
                Cell::Bool(value) => Value::Bool(value),
                Cell::Int2(value) => Value::Int2(value),
                Cell::Int4(value) => Value::Int4(value),
                Cell::Int8(value) => Value::Int8(value),
                Cell::Float8(value) => Value::Float8(value),
                Cell::Decimal(unscaled, scale) => {
                    let decimal = Decimal::new(unscaled, scale);
                    Value::Decimal(
                        decimal.ok_or_else(|| de::Error::custom("a decimal of more than 38 digits"))?,
                    )
                }
                Cell::Text(value) => Value::Text(value),
                Cell::Bytes(value) => Value::Bytes(value.0),
                Cell::Date(value) => Value::Date(value),
                Cell::Timestamp(value) => Value::Timestamp(value),
            })
        };
        Ok(Cells(cells.into_iter().map(value).collect::<Result<_, D::Error>>()?))
    }
}

/// Bytes that are written in one piece.
struct BytesRef<'a>(&'a [u8]);

impl Serialize for BytesRef<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

/// Bytes that are written and read in one piece.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        struct Whole;
        impl Visitor<'_> for Whole {
            type Value = Vec<u8>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
                Ok(bytes.to_vec())
            }

            fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
                Ok(bytes)
            }
        }
        deserializer.deserialize_byte_buf(Whole).map(Bytes)
    }
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnDefinition {
    /// Its name.
    pub name: String,
    /// Its type, as [`ColumnType`](rialto::row::ColumnType) prints it.
    pub column_type: String,
    /// Whether it takes NULL.
    pub nullable: bool,
}

/// A secondary index of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexDefinition {
    /// Its name.
    pub name: String,
    /// The names of its columns.
    pub columns: Vec<String>,
    /// Whether its keys are unique.
    pub unique: bool,
}

/// What a session has to do about an error, beside telling it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// Nothing.
    None,
    /// The definition of the table is another one than the request expects. Nothing was done.
    Stale,
    /// The transaction is a victim: of a deadlock, or of a wait over partitions that was ended. If the statement is the
    /// only one of its transaction, the session runs it again.
    Deadlock,
    /// The branch is over: its time-out, or the node's end.
    Ended,
    /// The log of the partition has failed.
    LogFailed,
    /// The transaction's outcome is unknown.
    OutcomeUnknown,
}

/// An error, a warning or a notice: [`SqlError`] as plain data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// The five characters of the SQLSTATE.
    pub sqlstate: String,
    /// What is wrong.
    pub message: String,
    /// More about it.
    pub detail: Option<String>,
    /// What to do.
    pub hint: Option<String>,
    /// Where in the text of the statement: characters, from 1.
    pub position: Option<u64>,
    /// The table that it is about.
    pub table: Option<String>,
    /// The column that it is about.
    pub column: Option<String>,
    /// The constraint that it is about.
    pub constraint: Option<String>,
    /// Where it was met.
    pub context: Option<String>,
    /// Of an [`Insert`](super::Insert), the number of the row, from 0.
    pub row: Option<u64>,
    /// What the session has to do about it.
    pub cause: Cause,
}

impl From<&SqlError> for Told {
    fn from(error: &SqlError) -> Told {
        let cause = match error.cause.as_deref() {
            Some(Error::TableChanged { .. }) => Cause::Stale,
            Some(Error::Deadlock { .. }) => Cause::Deadlock,
            Some(Error::Timeout { .. } | Error::Closed) => Cause::Ended,
            Some(Error::Stopped { .. }) => Cause::LogFailed,
            Some(Error::OutcomeUnknown { .. }) => Cause::OutcomeUnknown,
            _ => Cause::None,
        };
        let about = error.about.as_deref().cloned().unwrap_or_default();
        Told {
            sqlstate: error.sqlstate.code().to_owned(),
            message: error.message.clone(),
            detail: error.detail.clone(),
            hint: error.hint.clone(),
            position: error.position.map(|position| position as u64),
            table: about.table,
            column: about.column,
            constraint: about.constraint,
            context: about.context,
            row: None,
            cause,
        }
    }
}

impl From<Told> for SqlError {
    fn from(told: Told) -> SqlError {
        let cause = match told.cause {
            Cause::None => None,
            Cause::Stale => Some(Error::TableChanged { table: told.table.clone().unwrap_or_default() }),
            Cause::Deadlock => {
                Some(Error::Deadlock { waiting_for: "a lock of another partition".to_owned() })
            }
            Cause::Ended => Some(Error::Closed),
            Cause::LogFailed => Some(Error::Stopped { cause: told.message.clone(), disk_full: false }),
            Cause::OutcomeUnknown => {
                Some(Error::OutcomeUnknown { lsn: Lsn::default(), cause: told.message.clone() })
            }
        };
        let Told { table, column, constraint, context, .. } = told;
        let about = About { table, column, constraint, context };
        SqlError {
            sqlstate: SqlState::of_code(&told.sqlstate).unwrap_or(SqlState::Internal),
            message: told.message,
            detail: told.detail,
            hint: told.hint,
            position: told.position.map(|position| position as usize),
            about: (about != About::default()).then(|| Box::new(about)),
            cause: cause.map(Box::new),
        }
    }
}
