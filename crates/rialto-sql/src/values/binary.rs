//! Values in PostgreSQL's binary forms.

use rialto::fault_injection;
use rialto::row::{Decimal, Value};

use super::{SqlType, array, text};
use crate::error::{Result, SqlError, SqlState};

/// Days from 1970-01-01 to 2000-01-01, from which PostgreSQL counts.
const DAYS_TO_2000: i32 = 10_957;
const MICROS_TO_2000: i64 = DAYS_TO_2000 as i64 * text::MICROS_PER_DAY;
const NUMERIC_NEGATIVE: u16 = 0x4000;

/// Appends a value's binary form; `None`, and nothing appended, for null.
pub fn write(value: &Value, sql_type: SqlType, out: &mut Vec<u8>) -> Option<()> {
    match value {
        Value::Null => return None,
        Value::Bool(value) => out.push(u8::from(*value)),
        Value::Int2(value) => out.extend_from_slice(&value.to_be_bytes()),
        Value::Int4(value) => out.extend_from_slice(&value.to_be_bytes()),
        Value::Int8(value) => out.extend_from_slice(&value.to_be_bytes()),
        Value::Float8(value) => out.extend_from_slice(&value.to_be_bytes()),
        Value::Decimal(value) => write_numeric(*value, out),
        Value::Text(_) => return text::write(value, sql_type, out),
        Value::Bytes(bytes) => out.extend_from_slice(bytes),
        Value::Date(day) => out.extend_from_slice(&day.saturating_sub(DAYS_TO_2000).to_be_bytes()),
        Value::Timestamp(moment) => {
            out.extend_from_slice(&moment.saturating_sub(MICROS_TO_2000).to_be_bytes())
        }
    }
    Some(())
}

/// Numeric: count of base-10000 digits, weight of the first, sign, digits behind the point, then the digits.
fn write_numeric(value: Decimal, out: &mut Vec<u8>) {
    let scale = u32::from(value.scale());
    let mut rest = value.unscaled().unsigned_abs();
    let mut digits = [0u16; 24];
    let mut count = 0;
    // Zeros behind the point fill the last group.
    let fill = (4 - scale % 4) % 4;
    let mut groups_behind = scale.div_ceil(4) as i32;
    let mut first = true;
    while rest > 0 {
        let power = if first { 10u128.pow(4 - fill) } else { 10_000 };
        let group = (rest % power) as u16 * if first { 10u16.pow(fill) } else { 1 };
        rest /= power;
        first = false;
        if count == 0 && group == 0 {
            groups_behind -= 1;
            continue;
        }
        digits[count] = group;
        count += 1;
    }
    let weight = if count == 0 { 0 } else { count as i32 - groups_behind - 1 };
    out.extend_from_slice(&(count as u16).to_be_bytes());
    out.extend_from_slice(&(weight as i16).to_be_bytes());
    let sign = if value.unscaled() < 0 { NUMERIC_NEGATIVE } else { 0 };
    out.extend_from_slice(&sign.to_be_bytes());
    out.extend_from_slice(&(scale as u16).to_be_bytes());
    for digit in digits[..count].iter().rev() {
        out.extend_from_slice(&digit.to_be_bytes());
    }
}

/// Reads a value of `sql_type` from its binary form.
pub fn parse(sql_type: SqlType, bytes: &[u8]) -> Result<Value> {
    let bad = || {
        let message =
            format!("{} bytes are no binary value of type {}", bytes.len(), sql_type.plain().name());
        SqlError::new(SqlState::InvalidBinary, message)
    };
    let out_of_range = || {
        let message = format!("{} out of range", sql_type.name());
        SqlError::new(SqlState::DatetimeOverflow, message)
    };
    Ok(match sql_type {
        SqlType::Unknown | SqlType::Text | SqlType::Void => Value::Text(utf8(bytes)?.to_string()),
        SqlType::Char(_) => Value::Text(utf8(bytes)?.trim_end_matches(' ').to_string()),
        SqlType::Bool => match bytes {
            [0] => Value::Bool(false),
            [1] => Value::Bool(true),
            _ => return Err(bad()),
        },
        SqlType::Int2 => Value::Int2(i16::from_be_bytes(bytes.try_into().map_err(|_| bad())?)),
        SqlType::Int4 => Value::Int4(i32::from_be_bytes(bytes.try_into().map_err(|_| bad())?)),
        SqlType::Int8 => Value::Int8(i64::from_be_bytes(bytes.try_into().map_err(|_| bad())?)),
        SqlType::Float8 => match bytes.len() {
            // float4 arguments are taken as float8.
            4 => Value::Float8(f32::from_be_bytes(bytes.try_into().map_err(|_| bad())?).into()),
            _ => Value::Float8(f64::from_be_bytes(bytes.try_into().map_err(|_| bad())?)),
        },
        SqlType::Decimal(_) => Value::Decimal(parse_numeric(bytes).ok_or_else(bad)?),
        SqlType::Bytes => Value::Bytes(bytes.to_vec()),
        SqlType::Date => {
            let day = i32::from_be_bytes(bytes.try_into().map_err(|_| bad())?);
            // The least and the largest are PostgreSQL's infinities, which no value here is.
            let day = day
                .checked_add(DAYS_TO_2000)
                .filter(|day| text::is_date(*day) || fault_injection::is_on("binary-dates-without-bounds"));
            Value::Date(day.ok_or_else(out_of_range)?)
        }
        SqlType::Timestamp | SqlType::TimestampTz => {
            let moment = i64::from_be_bytes(bytes.try_into().map_err(|_| bad())?);
            let moment = moment.checked_add(MICROS_TO_2000).filter(|moment| {
                text::is_moment(*moment) || fault_injection::is_on("binary-dates-without-bounds")
            });
            Value::Timestamp(moment.ok_or_else(out_of_range)?)
        }
        SqlType::Array(element) => {
            array::read_binary(*element, bytes, &mut |_| Ok(()))?;
            Value::Bytes(bytes.to_vec())
        }
    })
}

/// Text from a client, which has to be UTF-8.
pub fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        let message = format!("invalid byte sequence for encoding \"UTF8\": 0x{:02x}", bytes[at]);
        SqlError::new(SqlState::BadEncoding, message)
    })
}

fn parse_numeric(bytes: &[u8]) -> Option<Decimal> {
    let word = |index: usize| Some(u16::from_be_bytes(bytes.get(index * 2..index * 2 + 2)?.try_into().ok()?));
    let count = usize::from(word(0)?);
    let weight = i32::from(word(1)? as i16);
    let sign = word(2)?;
    let scale = u32::from(word(3)?);
    if bytes.len() != 8 + count * 2 || scale > 38 || (sign != 0 && sign != NUMERIC_NEGATIVE) {
        return None;
    }
    // The value in units of 10^-scale, group by group.
    let mut unscaled = 0i128;
    for index in 0..count {
        let group = i128::from(word(4 + index)?);
        if group > 9_999 {
            return None;
        }
        let exponent = (weight - index as i32) * 4 + scale as i32;
        let part = if exponent >= 0 {
            group.checked_mul(10i128.checked_pow(exponent as u32)?)?
        } else {
            // Digits behind the scale are zeros that fill the last group.
            group / 10i128.checked_pow(exponent.unsigned_abs()).unwrap_or(i128::MAX)
        };
        unscaled = unscaled.checked_add(part)?;
    }
    Decimal::new(if sign == 0 { unscaled } else { -unscaled }, scale as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_reads_back() {
        let decimal = |text: &str| Value::Decimal(text.parse().unwrap());
        let cases = [
            (Value::Bool(true), SqlType::Bool),
            (Value::Int2(-3), SqlType::Int2),
            (Value::Int4(i32::MIN), SqlType::Int4),
            (Value::Int8(i64::MAX), SqlType::Int8),
            (Value::Float8(-0.5), SqlType::Float8),
            (Value::Text("größe".into()), SqlType::Text),
            (Value::Bytes(vec![0, 1, 255]), SqlType::Bytes),
            (Value::Date(20_000), SqlType::Date),
            (Value::Timestamp(-1), SqlType::Timestamp),
            (decimal("0"), SqlType::Decimal(None)),
            (decimal("0.00"), SqlType::Decimal(None)),
            (decimal("12345678.9"), SqlType::Decimal(None)),
            (decimal("-0.00012"), SqlType::Decimal(None)),
            (decimal("10000"), SqlType::Decimal(None)),
            (decimal("123456789012345678901234567890.12345678"), SqlType::Decimal(None)),
        ];
        for (value, sql_type) in cases {
            let mut out = Vec::new();
            write(&value, sql_type, &mut out).unwrap();
            assert_eq!(parse(sql_type, &out).unwrap(), value, "{value}");
        }
    }

    #[test]
    fn numeric_has_postgresqls_bytes() {
        let mut out = Vec::new();
        write(&Value::Decimal("12345.678".parse().unwrap()), SqlType::Decimal(None), &mut out);
        // Digits 1, 2345, 6780; weight 1; plus; three digits behind the point.
        assert_eq!(out, [0, 3, 0, 1, 0, 0, 0, 3, 0, 1, 9, 41, 26, 124]);
    }

    /// A client takes the least and the largest dates and timestamps for infinities. A day or timestamp that a client
    /// does not know is refused.
    #[test]
    fn dates_and_moments_are_those_of_clients() {
        let code = |sql_type, bytes: &[u8]| parse(sql_type, bytes).map_err(|error| error.sqlstate.code());
        for day in [i32::MIN, i32::MAX, -2_451_546, 2_145_031_949] {
            assert_eq!(code(SqlType::Date, &day.to_be_bytes()), Err("22008"), "{day}");
        }
        for day in [-2_451_545, 2_145_031_948] {
            assert_eq!(code(SqlType::Date, &i32::to_be_bytes(day)), Ok(Value::Date(day + DAYS_TO_2000)));
        }
        for moment in [i64::MIN, i64::MAX, -211_813_488_000_000_001] {
            assert_eq!(code(SqlType::Timestamp, &moment.to_be_bytes()), Err("22008"), "{moment}");
        }
        assert!(code(SqlType::Timestamp, &i64::to_be_bytes(-211_813_488_000_000_000)).is_ok());
    }

    #[test]
    fn wrong_lengths_are_errors() {
        assert_eq!(parse(SqlType::Int4, &[0; 3]).unwrap_err().sqlstate.code(), "22P03");
        assert_eq!(parse(SqlType::Decimal(None), &[0; 7]).unwrap_err().sqlstate.code(), "22P03");
        assert_eq!(parse(SqlType::Text, &[0xff]).unwrap_err().sqlstate.code(), "22021");
    }
}
