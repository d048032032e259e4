//! SQL types, and the form of their values for a client.
//!
//! [`SqlType`] is the type of an expression or a column; [`text`] and [`binary`] are the two forms on the wire (COPY
//! uses text as well). Invariant: the printed form of a value reads back as that value, in both forms.

pub mod array;
pub mod binary;
pub mod text;

use rialto::row::ColumnType;

/// The type of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SqlType {
    /// A literal or parameter whose type its context decides.
    Unknown,
    /// `boolean`.
    Bool,
    /// `smallint`.
    Int2,
    /// `integer`.
    Int4,
    /// `bigint`.
    Int8,
    /// `double precision`.
    Float8,
    /// `numeric`, with precision and scale if it is a column's.
    Decimal(Option<(u8, u8)>),
    /// `text`.
    Text,
    /// `character(n)`, with its length if it is a column's.
    Char(Option<u16>),
    /// `bytea`.
    Bytes,
    /// `date`.
    Date,
    /// `timestamp without time zone`.
    Timestamp,
    /// `timestamp with time zone`; the time zone is always UTC.
    TimestampTz,
    /// An array of this plain type: of an argument only.
    Array(&'static SqlType),
    /// `void`: the empty text of a function that is called for its effect.
    Void,
}

impl SqlType {
    /// The type of an array of values of this type.
    pub fn array(self) -> SqlType {
        SqlType::Array(match self {
            SqlType::Unknown | SqlType::Text | SqlType::Void => &SqlType::Text,
            SqlType::Bool => &SqlType::Bool,
            SqlType::Int2 => &SqlType::Int2,
            SqlType::Int4 => &SqlType::Int4,
            SqlType::Int8 => &SqlType::Int8,
            SqlType::Float8 => &SqlType::Float8,
            SqlType::Decimal(_) => &SqlType::Decimal(None),
            SqlType::Char(_) => &SqlType::Char(None),
            SqlType::Bytes => &SqlType::Bytes,
            SqlType::Date => &SqlType::Date,
            SqlType::Timestamp => &SqlType::Timestamp,
            SqlType::TimestampTz => &SqlType::TimestampTz,
            SqlType::Array(element) => element,
        })
    }

    /// The type of a column.
    pub fn of_column(column: ColumnType) -> SqlType {
        match column {
            ColumnType::Bool => SqlType::Bool,
            ColumnType::Int2 => SqlType::Int2,
            ColumnType::Int4 => SqlType::Int4,
            ColumnType::Int8 => SqlType::Int8,
            ColumnType::Float8 => SqlType::Float8,
            ColumnType::Decimal { precision, scale } => SqlType::Decimal(Some((precision, scale))),
            ColumnType::Text => SqlType::Text,
            ColumnType::Char(length) => SqlType::Char(Some(length)),
            ColumnType::Bytes => SqlType::Bytes,
            ColumnType::Date => SqlType::Date,
            ColumnType::Timestamp => SqlType::Timestamp,
        }
    }

    /// The name for messages, as in PostgreSQL.
    pub fn name(self) -> String {
        match self {
            SqlType::Unknown => "unknown".into(),
            SqlType::Bool => "boolean".into(),
            SqlType::Int2 => "smallint".into(),
            SqlType::Int4 => "integer".into(),
            SqlType::Int8 => "bigint".into(),
            SqlType::Float8 => "double precision".into(),
            SqlType::Decimal(None) => "numeric".into(),
            SqlType::Decimal(Some((precision, scale))) => format!("numeric({precision},{scale})"),
            SqlType::Text => "text".into(),
            SqlType::Char(None) => "character".into(),
            SqlType::Char(Some(length)) => format!("character({length})"),
            SqlType::Bytes => "bytea".into(),
            SqlType::Date => "date".into(),
            SqlType::Timestamp => "timestamp without time zone".into(),
            SqlType::TimestampTz => "timestamp with time zone".into(),
            SqlType::Array(element) => format!("{}[]", element.name()),
            SqlType::Void => "void".into(),
        }
    }

    /// PostgreSQL's number for the type.
    pub fn oid(self) -> u32 {
        match self {
            SqlType::Bool => 16,
            SqlType::Bytes => 17,
            SqlType::Int8 => 20,
            SqlType::Int2 => 21,
            SqlType::Int4 => 23,
            SqlType::Unknown | SqlType::Text => 25,
            SqlType::Float8 => 701,
            SqlType::Char(_) => 1042,
            SqlType::Date => 1082,
            SqlType::Timestamp => 1114,
            SqlType::TimestampTz => 1184,
            SqlType::Decimal(_) => 1700,
            SqlType::Array(element) => match element {
                SqlType::Bool => 1000,
                SqlType::Bytes => 1001,
                SqlType::Int2 => 1005,
                SqlType::Int4 => 1007,
                SqlType::Char(_) => 1014,
                SqlType::Int8 => 1016,
                SqlType::Float8 => 1022,
                SqlType::Timestamp => 1115,
                SqlType::Date => 1182,
                SqlType::TimestampTz => 1185,
                SqlType::Decimal(_) => 1231,
                SqlType::Unknown | SqlType::Text | SqlType::Void | SqlType::Array(_) => 1009,
            },
            SqlType::Void => 2278,
        }
    }

    /// The type with PostgreSQL's number `oid`; zero and `unknown` leave it open. `None` if it is not built.
    pub fn from_oid(oid: u32) -> Option<SqlType> {
        Some(match oid {
            0 | 705 => SqlType::Unknown,
            16 => SqlType::Bool,
            17 => SqlType::Bytes,
            20 => SqlType::Int8,
            21 => SqlType::Int2,
            23 => SqlType::Int4,
            25 | 1043 => SqlType::Text,
            700 | 701 => SqlType::Float8,
            1042 => SqlType::Char(None),
            1082 => SqlType::Date,
            1114 => SqlType::Timestamp,
            1184 => SqlType::TimestampTz,
            1700 => SqlType::Decimal(None),
            1000 => SqlType::Bool.array(),
            1001 => SqlType::Bytes.array(),
            1005 => SqlType::Int2.array(),
            1007 => SqlType::Int4.array(),
            1009 | 1015 => SqlType::Text.array(),
            1014 => SqlType::Char(None).array(),
            1016 => SqlType::Int8.array(),
            1021 | 1022 => SqlType::Float8.array(),
            1115 => SqlType::Timestamp.array(),
            1182 => SqlType::Date.array(),
            1185 => SqlType::TimestampTz.array(),
            1231 => SqlType::Decimal(None).array(),
            _ => return None,
        })
    }

    /// The size in RowDescription: bytes, or -1 for a variable one.
    pub fn wire_size(self) -> i16 {
        match self {
            SqlType::Bool => 1,
            SqlType::Int2 => 2,
            SqlType::Int4 | SqlType::Date | SqlType::Void => 4,
            SqlType::Int8 | SqlType::Float8 | SqlType::Timestamp | SqlType::TimestampTz => 8,
            _ => -1,
        }
    }

    /// The type modifier in RowDescription, or -1.
    pub fn wire_modifier(self) -> i32 {
        match self {
            SqlType::Char(Some(length)) => i32::from(length) + 4,
            SqlType::Decimal(Some((precision, scale))) => (i32::from(precision) << 16 | i32::from(scale)) + 4,
            _ => -1,
        }
    }

    /// The type without precision or length.
    pub fn plain(self) -> SqlType {
        match self {
            SqlType::Decimal(_) => SqlType::Decimal(None),
            SqlType::Char(_) => SqlType::Char(None),
            other => other,
        }
    }

    /// The rank among numbers: arithmetic has the type of the higher one. `None` for a type that is no number.
    pub fn number_rank(self) -> Option<u8> {
        match self {
            SqlType::Int2 => Some(0),
            SqlType::Int4 => Some(1),
            SqlType::Int8 => Some(2),
            SqlType::Decimal(_) => Some(3),
            SqlType::Float8 => Some(4),
            _ => None,
        }
    }

    /// Whether this is text, of any kind.
    pub fn is_text(self) -> bool {
        matches!(self, SqlType::Text | SqlType::Char(_) | SqlType::Unknown)
    }

    /// Whether this is a date or a timestamp.
    pub fn is_time(self) -> bool {
        matches!(self, SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz)
    }
}
