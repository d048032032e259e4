//! [`ColumnType`], [`Value`] and its borrowed form [`ValueRef`], and the conversion of a value to its column's type.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use super::{Column, DECIMAL_DIGITS_MAX, Date, Decimal, Timestamp};
use crate::{Error, Result};

/// The type of a column. Prints as its SQL name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// False or true.
    Bool,
    /// A signed integer of 2 bytes.
    Int2,
    /// A signed integer of 4 bytes.
    Int4,
    /// A signed integer of 8 bytes.
    Int8,
    /// A float of 8 bytes. In keys -0 equals 0, and NaN equals NaN and comes after everything else.
    Float8,
    /// An exact number.
    Decimal {
        /// Digits in all, 1 to 38.
        precision: u8,
        /// Digits behind the point, at most `precision`.
        scale: u8,
    },
    /// UTF-8 text.
    Text,
    /// UTF-8 text of at most so many characters. Trailing blanks do not count: they are not stored and not compared,
    /// and [`RowView::get`](super::RowView::get) adds them again.
    Char(u16),
    /// Bytes.
    Bytes,
    /// A day: `i32` days since 1970-01-01.
    Date,
    /// A moment: `i64` microseconds since 1970-01-01 00:00 UTC.
    Timestamp,
}

impl ColumnType {
    /// The bytes that a value takes in a row's fixed part; `None` for text, char(n) and bytes, which lie behind it.
    pub const fn fixed_bytes(self) -> Option<u8> {
        match self {
            ColumnType::Bool => Some(1),
            ColumnType::Int2 => Some(2),
            ColumnType::Int4 | ColumnType::Date => Some(4),
            ColumnType::Int8 | ColumnType::Float8 | ColumnType::Timestamp => Some(8),
            ColumnType::Decimal { .. } => Some(16),
            ColumnType::Text | ColumnType::Char(_) | ColumnType::Bytes => None,
        }
    }

    /// The error in the type's parameters, if there is one.
    pub(super) fn problem(self) -> Option<String> {
        match self {
            ColumnType::Char(0) => Some("char(0) holds nothing: give a length of at least 1".into()),
            ColumnType::Decimal { precision, .. } if !(1..=DECIMAL_DIGITS_MAX).contains(&precision) => {
                Some(format!("{self} has {precision} digits: give 1 to {DECIMAL_DIGITS_MAX}"))
            }
            ColumnType::Decimal { precision, scale } if scale > precision => {
                Some(format!("{self} has more digits behind the point ({scale}) than in all ({precision})"))
            }
            _ => None,
        }
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ColumnType::Bool => f.write_str("bool"),
            ColumnType::Int2 => f.write_str("int2"),
            ColumnType::Int4 => f.write_str("int4"),
            ColumnType::Int8 => f.write_str("int8"),
            ColumnType::Float8 => f.write_str("float8"),
            ColumnType::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            ColumnType::Text => f.write_str("text"),
            ColumnType::Char(length) => write!(f, "char({length})"),
            ColumnType::Bytes => f.write_str("bytea"),
            ColumnType::Date => f.write_str("date"),
            ColumnType::Timestamp => f.write_str("timestamp"),
        }
    }
}

impl FromStr for ColumnType {
    type Err = Error;

    /// The inverse of `Display`, so that a catalog can keep types as text.
    fn from_str(name: &str) -> Result<ColumnType> {
        let numbers = |prefix: &str| name.strip_prefix(prefix)?.strip_suffix(')');
        let ty = match name {
            "bool" => Some(ColumnType::Bool),
            "int2" => Some(ColumnType::Int2),
            "int4" => Some(ColumnType::Int4),
            "int8" => Some(ColumnType::Int8),
            "float8" => Some(ColumnType::Float8),
            "text" => Some(ColumnType::Text),
            "bytea" => Some(ColumnType::Bytes),
            "date" => Some(ColumnType::Date),
            "timestamp" => Some(ColumnType::Timestamp),
            _ => {
                numbers("char(").and_then(|length| length.parse().ok()).map(ColumnType::Char).or_else(|| {
                    let (precision, scale) = numbers("decimal(")?.split_once(',')?;
                    Some(ColumnType::Decimal {
                        precision: precision.parse().ok()?,
                        scale: scale.parse().ok()?,
                    })
                })
            }
        };
        ty.filter(|ty| ty.problem().is_none()).ok_or_else(|| Error::BadDefinition {
            name: name.to_owned(),
            reason: "no such column type".into(),
        })
    }
}

/// A value of any column, owned.
///
/// Two values are equal if they have the same variant and are equal as keys: NaN equals NaN, 0 equals -0, 1.5 equals
/// 1.50, NULL equals NULL. [`Value::compare`] is SQL's comparison.
#[derive(Clone, Debug)]
pub enum Value {
    /// NULL.
    Null,
    /// A value of a bool column.
    Bool(bool),
    /// A value of an int2 column.
    Int2(i16),
    /// A value of an int4 column.
    Int4(i32),
    /// A value of an int8 column.
    Int8(i64),
    /// A value of a float8 column.
    Float8(f64),
    /// A value of a decimal column.
    Decimal(Decimal),
    /// A value of a text or a char(n) column.
    Text(String),
    /// A value of a bytes column.
    Bytes(Vec<u8>),
    /// A value of a date column: days since 1970-01-01.
    Date(i32),
    /// A value of a timestamp column: microseconds since 1970-01-01 00:00 UTC.
    Timestamp(i64),
}

/// A [`Value`] that borrows its text or bytes.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the variants are those of Value")]
pub enum ValueRef<'a> {
    Null,
    Bool(bool),
    Int2(i16),
    Int4(i32),
    Int8(i64),
    Float8(f64),
    Decimal(Decimal),
    Text(&'a str),
    Bytes(&'a [u8]),
    Date(i32),
    Timestamp(i64),
}

impl Value {
    /// The same value, borrowed.
    pub fn borrow(&self) -> ValueRef<'_> {
        match self {
            Value::Null => ValueRef::Null,
            Value::Bool(value) => ValueRef::Bool(*value),
            Value::Int2(value) => ValueRef::Int2(*value),
            Value::Int4(value) => ValueRef::Int4(*value),
            Value::Int8(value) => ValueRef::Int8(*value),
            Value::Float8(value) => ValueRef::Float8(*value),
            Value::Decimal(value) => ValueRef::Decimal(*value),
            Value::Text(value) => ValueRef::Text(value),
            Value::Bytes(value) => ValueRef::Bytes(value),
            Value::Date(value) => ValueRef::Date(*value),
            Value::Timestamp(value) => ValueRef::Timestamp(*value),
        }
    }

    /// Whether this is NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The name of the value's type, for messages.
    pub fn type_name(&self) -> &'static str {
        self.borrow().type_name()
    }

    /// SQL's comparison: `None` if one is NULL or if values of these types have no order. Numbers compare by value
    /// across their types (through float8 if one is a float, as in PostgreSQL), a date as its first moment.
    pub fn compare(&self, other: &Value) -> Option<Ordering> {
        self.borrow().compare(other.borrow())
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (left, right) if std::mem::discriminant(left) == std::mem::discriminant(right) => {
                left.compare(right) == Some(Ordering::Equal)
            }
            _ => false,
        }
    }
}

impl Eq for Value {}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.borrow().fmt(f)
    }
}

/// The order of float keys: -0 equals 0, NaN equals NaN and is the largest.
pub(super) fn compare_floats(left: f64, right: f64) -> Ordering {
    left.partial_cmp(&right).unwrap_or_else(|| left.is_nan().cmp(&right.is_nan()))
}

impl<'a> ValueRef<'a> {
    /// The same value, owned.
    pub fn to_value(self) -> Value {
        match self {
            ValueRef::Null => Value::Null,
            ValueRef::Bool(value) => Value::Bool(value),
            ValueRef::Int2(value) => Value::Int2(value),
            ValueRef::Int4(value) => Value::Int4(value),
            ValueRef::Int8(value) => Value::Int8(value),
            ValueRef::Float8(value) => Value::Float8(value),
            ValueRef::Decimal(value) => Value::Decimal(value),
            ValueRef::Text(value) => Value::Text(value.to_owned()),
            ValueRef::Bytes(value) => Value::Bytes(value.to_owned()),
            ValueRef::Date(value) => Value::Date(value),
            ValueRef::Timestamp(value) => Value::Timestamp(value),
        }
    }

    /// The type of the columns that take the value without a conversion, at its own fixed length.
    #[inline]
    pub(super) fn plain_type(self) -> Option<ColumnType> {
        match self {
            ValueRef::Bool(_) => Some(ColumnType::Bool),
            ValueRef::Int2(_) => Some(ColumnType::Int2),
            ValueRef::Int4(_) => Some(ColumnType::Int4),
            ValueRef::Int8(_) => Some(ColumnType::Int8),
            ValueRef::Float8(_) => Some(ColumnType::Float8),
            ValueRef::Date(_) => Some(ColumnType::Date),
            ValueRef::Timestamp(_) => Some(ColumnType::Timestamp),
            ValueRef::Null | ValueRef::Decimal(_) | ValueRef::Text(_) | ValueRef::Bytes(_) => None,
        }
    }

    /// The name of the value's type, for messages.
    pub fn type_name(self) -> &'static str {
        match self {
            ValueRef::Null => "NULL",
            ValueRef::Bool(_) => "bool",
            ValueRef::Int2(_) => "int2",
            ValueRef::Int4(_) => "int4",
            ValueRef::Int8(_) => "int8",
            ValueRef::Float8(_) => "float8",
            ValueRef::Decimal(_) => "decimal",
            ValueRef::Text(_) => "text",
            ValueRef::Bytes(_) => "bytea",
            ValueRef::Date(_) => "date",
            ValueRef::Timestamp(_) => "timestamp",
        }
    }

    /// See [`Value::compare`].
    pub fn compare(self, other: ValueRef<'_>) -> Option<Ordering> {
        use ValueRef::{Bool, Bytes, Date, Float8, Text, Timestamp};
        const MICROS_PER_DAY: i128 = 86_400_000_000;
        Some(match (self, other) {
            (Bool(left), Bool(right)) => left.cmp(&right),
            (Text(left), Text(right)) => left.cmp(right),
            (Bytes(left), Bytes(right)) => left.cmp(right),
            (Date(left), Date(right)) => left.cmp(&right),
            (Timestamp(left), Timestamp(right)) => left.cmp(&right),
            (Date(left), Timestamp(right)) => (i128::from(left) * MICROS_PER_DAY).cmp(&right.into()),
            (Timestamp(left), Date(right)) => i128::from(left).cmp(&(i128::from(right) * MICROS_PER_DAY)),
            (Float8(left), Float8(right)) => compare_floats(left, right),
            (Float8(left), right) => compare_floats(left, right.as_f64()?),
            (left, Float8(right)) => compare_floats(left.as_f64()?, right),
            (left, right) => match (left.as_integer(), right.as_integer()) {
                (Some(left), Some(right)) => left.cmp(&right),
                _ => left.as_decimal()?.cmp(&right.as_decimal()?),
            },
        })
    }

    /// The bytes of text or bytes.
    #[inline]
    pub(super) fn variable_bytes(self) -> Option<&'a [u8]> {
        match self {
            ValueRef::Text(text) => Some(text.as_bytes()),
            ValueRef::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    fn as_integer(self) -> Option<i64> {
        match self {
            ValueRef::Int2(value) => Some(value.into()),
            ValueRef::Int4(value) => Some(value.into()),
            ValueRef::Int8(value) => Some(value),
            _ => None,
        }
    }

    fn as_decimal(self) -> Option<Decimal> {
        match self {
            ValueRef::Decimal(value) => Some(value),
            value => value.as_integer().map(Decimal::from),
        }
    }

    fn as_f64(self) -> Option<f64> {
        match self {
            ValueRef::Float8(value) => Some(value),
            ValueRef::Decimal(value) => Some(value.to_f64()),
            value => value.as_integer().map(|value| value as f64),
        }
    }

    /// Whether the value has exactly this type, and the type has a single form for each value.
    #[inline]
    pub(crate) fn is_plainly(self, ty: ColumnType) -> bool {
        matches!(
            (ty, self),
            (ColumnType::Int8, ValueRef::Int8(_))
                | (ColumnType::Int4, ValueRef::Int4(_))
                | (ColumnType::Int2, ValueRef::Int2(_))
                | (ColumnType::Text, ValueRef::Text(_))
                | (ColumnType::Bytes, ValueRef::Bytes(_))
                | (ColumnType::Bool, ValueRef::Bool(_))
                | (ColumnType::Float8, ValueRef::Float8(_))
                | (ColumnType::Date, ValueRef::Date(_))
                | (ColumnType::Timestamp, ValueRef::Timestamp(_))
        )
    }

    /// The value converted to `column`'s type: integers at its width, decimals at its scale, char(n) without trailing
    /// blanks. An integer also becomes a decimal or a float. Nothing is ever rounded or cut.
    ///
    /// # Errors
    /// [`Error::NotNull`], [`Error::OutOfRange`], [`Error::StringTooLong`], [`Error::TypeMismatch`].
    #[inline]
    pub(crate) fn coerce(self, table: &str, column: &Column) -> Result<ValueRef<'a>> {
        if self.is_plainly(column.ty) { Ok(self) } else { self.coerce_slow(table, column) }
    }

    fn coerce_slow(self, table: &str, column: &Column) -> Result<ValueRef<'a>> {
        let out_of_range = || Error::OutOfRange {
            column: column.name.clone(),
            value: self.to_string(),
            type_name: column.ty.to_string(),
        };
        let coerced = match (column.ty, self) {
            (_, ValueRef::Null) => {
                if !column.nullable {
                    return Err(Error::NotNull { table: table.to_owned(), column: column.name.clone() });
                }
                Some(ValueRef::Null)
            }
            (ColumnType::Char(limit), ValueRef::Text(text)) => {
                let (text, limit) = (text.trim_end_matches(' '), usize::from(limit));
                if text.len() > limit {
                    let length = text.chars().count();
                    if length > limit {
                        return Err(Error::StringTooLong { column: column.name.clone(), length, limit });
                    }
                }
                Some(ValueRef::Text(text))
            }
            (ColumnType::Decimal { precision, scale }, value) => match value.as_decimal() {
                Some(value) => {
                    let value = value.rescale(scale).filter(|value| value.fits_precision(precision));
                    Some(ValueRef::Decimal(value.ok_or_else(out_of_range)?))
                }
                None => None,
            },
            (ty, value) => match (ty, value.as_integer()) {
                (ColumnType::Int2, Some(value)) => {
                    Some(ValueRef::Int2(value.try_into().map_err(|_| out_of_range())?))
                }
                (ColumnType::Int4, Some(value)) => {
                    Some(ValueRef::Int4(value.try_into().map_err(|_| out_of_range())?))
                }
                (ColumnType::Int8, Some(value)) => Some(ValueRef::Int8(value)),
                (ColumnType::Float8, Some(value)) => Some(ValueRef::Float8(value as f64)),
                _ => None,
            },
        };
        coerced.ok_or_else(|| Error::TypeMismatch {
            column: column.name.clone(),
            expected: column.ty.to_string(),
            found: self.type_name().to_owned(),
        })
    }
}

impl fmt::Display for ValueRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ValueRef::Null => f.write_str("NULL"),
            ValueRef::Bool(value) => value.fmt(f),
            ValueRef::Int2(value) => value.fmt(f),
            ValueRef::Int4(value) => value.fmt(f),
            ValueRef::Int8(value) => value.fmt(f),
            ValueRef::Float8(value) if value.is_nan() => f.write_str("NaN"),
            ValueRef::Float8(value) if value.is_infinite() => {
                f.write_str(if value > 0.0 { "Infinity" } else { "-Infinity" })
            }
            ValueRef::Float8(value) => value.fmt(f),
            ValueRef::Decimal(value) => value.fmt(f),
            ValueRef::Text(value) => f.write_str(value),
            ValueRef::Bytes(value) => {
                f.write_str("\\x")?;
                value.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            ValueRef::Date(value) => Date(value).fmt(f),
            ValueRef::Timestamp(value) => Timestamp(value).fmt(f),
        }
    }
}

macro_rules! value_from {
    ($($type:ty => $from:expr),+ $(,)?) => {
        $(impl From<$type> for Value {
            fn from(value: $type) -> Value {
                $from(value)
            }
        })+
    };
}

value_from! {
    bool => Value::Bool,
    i16 => Value::Int2,
    i32 => Value::Int4,
    i64 => Value::Int8,
    f64 => Value::Float8,
    Decimal => Value::Decimal,
    String => Value::Text,
    &str => |value: &str| Value::Text(value.to_owned()),
    Vec<u8> => Value::Bytes,
    &[u8] => |value: &[u8]| Value::Bytes(value.to_owned()),
    Date => |value: Date| Value::Date(value.0),
    Timestamp => |value: Timestamp| Value::Timestamp(value.0),
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}
