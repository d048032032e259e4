//! Casts between types, and values as the values of a column.

use rialto::fault_injection;
use rialto::row::{ColumnType, Decimal, Value};

use crate::error::{Result, SqlError, SqlState};
use crate::values::{SqlType, text};

/// The context of a cast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CastContext {
    /// An assignment to a column.
    Assignment,
    /// An explicit cast.
    Explicit,
}

/// Whether there is a cast.
pub fn exists(from: SqlType, to: SqlType, context: CastContext) -> bool {
    let explicit = context == CastContext::Explicit;
    if from.plain() == to.plain() || from == SqlType::Unknown {
        return true;
    }
    match (from, to) {
        (from, to) if from.number_rank().is_some() && to.number_rank().is_some() => true,
        (_, SqlType::Text | SqlType::Char(_)) => true,
        (SqlType::Text | SqlType::Char(_), _) => explicit,
        (SqlType::Bool, SqlType::Int4) | (SqlType::Int4, SqlType::Bool) => explicit,
        (from, to) => from.is_time() && to.is_time(),
    }
}

/// The value as one of type `to`.
pub fn cast(value: Value, from: SqlType, to: SqlType) -> Result<Value> {
    let value = match (value, to) {
        (Value::Null, _) => return Ok(Value::Null),
        (Value::Text(text), to) if !to.is_text() => text::parse(to, &text)?,
        (Value::Text(text), SqlType::Char(length)) => return Ok(cut(text, length)),
        (Value::Text(text), _) => Value::Text(text),
        (value, SqlType::Text | SqlType::Char(_) | SqlType::Unknown) => {
            let text = match value {
                // The text is "t" or "f" only where a client reads a bool.
                Value::Bool(value) => value.to_string(),
                value => {
                    let mut out = Vec::new();
                    text::write(&value, from, &mut out);
                    String::from_utf8(out).expect("values print as UTF-8")
                }
            };
            match to {
                SqlType::Char(length) => return Ok(cut(text, length)),
                _ => Value::Text(text),
            }
        }
        (Value::Bool(value), SqlType::Int4) => Value::Int4(value.into()),
        (Value::Int4(value), SqlType::Bool) => Value::Bool(value != 0),
        (Value::Date(day), SqlType::Timestamp | SqlType::TimestampTz) => {
            let moment = midnight(day).ok_or_else(|| {
                SqlError::new(SqlState::DatetimeOverflow, "date out of range for timestamp")
            })?;
            Value::Timestamp(moment)
        }
        (Value::Timestamp(moment), SqlType::Date) => {
            Value::Date(moment.div_euclid(text::MICROS_PER_DAY) as i32)
        }
        (value, SqlType::Int2) => Value::Int2(integer(&value, to)?.try_into().map_err(|_| out_of_range(to))?),
        (value, SqlType::Int4) => Value::Int4(integer(&value, to)?.try_into().map_err(|_| out_of_range(to))?),
        (value, SqlType::Int8) => Value::Int8(integer(&value, to)?),
        (value, SqlType::Float8) => Value::Float8(float(&value)),
        (value, SqlType::Decimal(_)) => Value::Decimal(decimal(&value)?),
        (value, _) => value,
    };
    match (value, to) {
        (Value::Decimal(value), SqlType::Decimal(Some((precision, scale)))) => {
            let fits = |value: &Decimal| value.unscaled().unsigned_abs() < 10u128.pow(u32::from(precision));
            let rounded = value.round_to(scale).and_then(|value| value.rescale(scale)).filter(fits);
            rounded.map(Value::Decimal).ok_or_else(|| {
                SqlError::new(SqlState::NumberOutOfRange, "numeric field overflow").detail(format!(
                    "{value} does not fit {}.",
                    SqlType::Decimal(Some((precision, scale))).name()
                ))
            })
        }
        (value, _) => Ok(value),
    }
}

/// The first moment of a day, if timestamps have it.
fn midnight(day: i32) -> Option<i64> {
    if fault_injection::is_on("dates-wrap") {
        return Some(i64::from(day).wrapping_mul(text::MICROS_PER_DAY));
    }
    i64::from(day).checked_mul(text::MICROS_PER_DAY)
}

/// Text as a char: truncated to the length, without trailing blanks.
fn cut(text: String, length: Option<u16>) -> Value {
    let end =
        length.and_then(|length| text.char_indices().nth(length.into())).map_or(text.len(), |(at, _)| at);
    Value::Text(text[..end].trim_end_matches(' ').to_string())
}

fn out_of_range(to: SqlType) -> SqlError {
    SqlError::new(SqlState::NumberOutOfRange, format!("{} out of range", to.name()))
}

fn integer(value: &Value, to: SqlType) -> Result<i64> {
    match value {
        Value::Int2(value) => Ok(i64::from(*value)),
        Value::Int4(value) => Ok(i64::from(*value)),
        Value::Int8(value) => Ok(*value),
        Value::Float8(value) => {
            let rounded = value.round_ties_even();
            let limit = 9_223_372_036_854_775_808.0;
            if (-limit..limit).contains(&rounded) { Ok(rounded as i64) } else { Err(out_of_range(to)) }
        }
        Value::Decimal(value) => value
            .round_to(0)
            .and_then(|value| i64::try_from(value.rescale(0)?.unscaled()).ok())
            .ok_or_else(|| out_of_range(to)),
        other => Err(no_cast(other, to)),
    }
}

fn float(value: &Value) -> f64 {
    match value {
        Value::Int2(value) => f64::from(*value),
        Value::Int4(value) => f64::from(*value),
        Value::Int8(value) => *value as f64,
        Value::Decimal(value) => value.to_f64(),
        Value::Float8(value) => *value,
        _ => f64::NAN,
    }
}

fn decimal(value: &Value) -> Result<Decimal> {
    match value {
        Value::Int2(value) => Ok(Decimal::from(i32::from(*value))),
        Value::Int4(value) => Ok(Decimal::from(*value)),
        Value::Int8(value) => Ok(Decimal::from(*value)),
        Value::Decimal(value) => Ok(*value),
        Value::Float8(value) => {
            // A float8 surely has 15 digits, but for zeros at their end.
            let mut text = format!("{value:.14e}");
            if let Some((digits, exponent)) = text.split_once('e') {
                text = format!("{}e{exponent}", digits.trim_end_matches('0').trim_end_matches('.'));
            }
            text.parse().map_err(|_| out_of_range(SqlType::Decimal(None)))
        }
        other => Err(no_cast(other, SqlType::Decimal(None))),
    }
}

fn no_cast(value: &Value, to: SqlType) -> SqlError {
    let message = format!("cannot cast {} to {}", value.type_name(), to.name());
    SqlError::new(SqlState::CannotCoerce, message)
}

/// Where a value lies among those that a column can hold.
#[derive(Debug, PartialEq)]
pub enum Fit {
    /// The column can hold it.
    Exact(Value),
    /// It lies below all of them.
    Below,
    /// It lies above all of them.
    Above,
    /// It lies between this one and the next.
    After(Value),
    /// It is none of them, and keys cannot decide where it lies.
    Nowhere,
}

/// Up to here each integer has a float of its own.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Finds the position of a comparison's value among the values of a column. `None` if keys cannot decide.
pub fn fit(value: &Value, column: ColumnType) -> Option<Fit> {
    let whole = |low: i64, high: i64, make: &dyn Fn(i64) -> Value| {
        let place = |floor: i128, exact: bool| match floor {
            floor if floor < i128::from(low) => Fit::Below,
            floor if floor > i128::from(high) => Fit::Above,
            floor if exact => Fit::Exact(make(floor as i64)),
            floor => Fit::After(make(floor as i64)),
        };
        Some(match value {
            Value::Int2(value) => place((*value).into(), true),
            Value::Int4(value) => place((*value).into(), true),
            Value::Int8(value) => place((*value).into(), true),
            Value::Decimal(value) => {
                let unit = 10i128.pow(value.scale().into());
                place(value.unscaled().div_euclid(unit), value.unscaled().rem_euclid(unit) == 0)
            }
            Value::Float8(value) if value.is_nan() || *value >= 1e19 => Fit::Above,
            Value::Float8(value) if *value <= -1e19 => Fit::Below,
            // An integer is compared with a float as a float. From here on several integers are one float.
            Value::Float8(value) if value.abs() >= EXACT_MAX => return None,
            Value::Float8(value) => place(value.floor() as i128, value.floor() == *value),
            _ => return None,
        })
    };
    match column {
        ColumnType::Int2 => whole(i16::MIN.into(), i16::MAX.into(), &|value| Value::Int2(value as i16)),
        ColumnType::Int4 => whole(i32::MIN.into(), i32::MAX.into(), &|value| Value::Int4(value as i32)),
        ColumnType::Int8 => whole(i64::MIN, i64::MAX, &Value::Int8),
        ColumnType::Float8 => match value {
            Value::Int2(_) | Value::Int4(_) | Value::Int8(_) | Value::Decimal(_) | Value::Float8(_) => {
                Some(Fit::Exact(Value::Float8(float(value))))
            }
            _ => None,
        },
        ColumnType::Decimal { precision, scale } => {
            if matches!(value, Value::Float8(_)) {
                return None;
            }
            let value = decimal(value).ok()?;
            let limit = 10i128.pow(precision.into());
            let (floor, exact) = match value.rescale(scale) {
                Some(exact) => (exact.unscaled(), true),
                None if value.scale() > scale => {
                    let unit = 10i128.pow((value.scale() - scale).into());
                    (value.unscaled().div_euclid(unit), false)
                }
                None => (if value.unscaled() < 0 { -limit } else { limit }, false),
            };
            Some(match floor {
                floor if floor <= -limit => Fit::Below,
                floor if floor >= limit => Fit::Above,
                floor => {
                    let value = Value::Decimal(Decimal::new(floor, scale)?);
                    if exact { Fit::Exact(value) } else { Fit::After(value) }
                }
            })
        }
        ColumnType::Text => match value {
            Value::Text(_) => Some(Fit::Exact(value.clone())),
            _ => None,
        },
        // A value of type char(n) comes without trailing blanks. Text with trailing blanks, or longer than the column,
        // is no value of the column, and lies between two values that are not known here.
        ColumnType::Char(length) => match value {
            Value::Text(text) if text.chars().count() > usize::from(length) => Some(Fit::Nowhere),
            Value::Text(text) if fault_injection::is_on("char-by-index-as-text") => {
                Some(Fit::Exact(cut(text.clone(), None)))
            }
            Value::Text(text) if text.ends_with(' ') => Some(Fit::Nowhere),
            Value::Text(_) => Some(Fit::Exact(value.clone())),
            _ => None,
        },
        ColumnType::Bool if matches!(value, Value::Bool(_)) => Some(Fit::Exact(value.clone())),
        ColumnType::Bytes if matches!(value, Value::Bytes(_)) => Some(Fit::Exact(value.clone())),
        ColumnType::Date if matches!(value, Value::Date(_)) => Some(Fit::Exact(value.clone())),
        ColumnType::Date => match value {
            Value::Timestamp(moment) => {
                let day = moment.div_euclid(text::MICROS_PER_DAY);
                let exact = moment.rem_euclid(text::MICROS_PER_DAY) == 0;
                let day = Value::Date(i32::try_from(day).ok()?);
                Some(if exact { Fit::Exact(day) } else { Fit::After(day) })
            }
            _ => None,
        },
        ColumnType::Timestamp => match value {
            Value::Timestamp(_) => Some(Fit::Exact(value.clone())),
            Value::Date(day) => Some(match midnight(*day) {
                Some(moment) => Fit::Exact(Value::Timestamp(moment)),
                None if *day < 0 => Fit::Below,
                None => Fit::Above,
            }),
            _ => None,
        },
        _ => None,
    }
}
