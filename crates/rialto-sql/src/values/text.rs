//! Values as text.

use std::io::Write as _;

use rialto::fault_injection;
use rialto::row::{Date, Decimal, Timestamp, Value};

use super::{SqlType, array, binary};
use crate::error::{Result, SqlError, SqlState};

/// Appends a value's text; `None`, and nothing appended, for null.
pub fn write(value: &Value, sql_type: SqlType, out: &mut Vec<u8>) -> Option<()> {
    match value {
        Value::Null => return None,
        Value::Bool(value) => out.push(if *value { b't' } else { b'f' }),
        Value::Int2(value) => write_integer(i64::from(*value), out),
        Value::Int4(value) => write_integer(i64::from(*value), out),
        Value::Int8(value) => write_integer(*value, out),
        Value::Float8(value) => write_float(*value, out),
        Value::Text(text) => {
            out.extend_from_slice(text.as_bytes());
            if let SqlType::Char(Some(length)) = sql_type {
                let missing = usize::from(length).saturating_sub(text.chars().count());
                out.resize(out.len() + missing, b' ');
            }
        }
        Value::Timestamp(moment) if sql_type == SqlType::TimestampTz => {
            let text = Timestamp(*moment).to_string();
            match text.strip_suffix(" BC") {
                Some(text) => push_display(format_args!("{text}+00 BC"), out),
                None => push_display(format_args!("{text}+00"), out),
            }
        }
        other => push_display(format_args!("{other}"), out),
    }
    Some(())
}

fn push_display(text: std::fmt::Arguments<'_>, out: &mut Vec<u8>) {
    out.write_fmt(text).expect("a Vec takes all that is written");
}

/// Appends the digits of an integer.
pub fn write_integer(value: i64, out: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// The shortest text that reads back as the same float, with an exponent where PostgreSQL has one.
fn write_float(value: f64, out: &mut Vec<u8>) {
    if value.is_nan() {
        return out.extend_from_slice(b"NaN");
    }
    if value.is_infinite() {
        return out.extend_from_slice(if value > 0.0 { b"Infinity" } else { b"-Infinity" });
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').expect("{:e} prints an exponent");
    let exponent: i32 = exponent.parse().expect("{:e} prints a number behind the e");
    if value != 0.0 && !(-4..15).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        push_display(format_args!("{mantissa}e{sign}{:02}", exponent.unsigned_abs()), out);
    } else {
        push_display(format_args!("{value}"), out);
    }
}

/// Reads a value of `sql_type` from a client's bytes, which have to be UTF-8.
#[inline]
pub fn parse_bytes(sql_type: SqlType, bytes: &[u8]) -> Result<Value> {
    match (sql_type, plain_integer(bytes)) {
        (SqlType::Int8, Some(number)) => Ok(Value::Int8(number)),
        _ => parse(sql_type, binary::utf8(bytes)?),
    }
}

/// An int4 in the form that programs print: digits, perhaps behind a minus. `None` for anything else, errors included.
#[inline]
pub fn plain_int4(bytes: &[u8]) -> Option<i32> {
    plain_integer(bytes).and_then(|number| i32::try_from(number).ok())
}

/// Digits, few enough for an int8, perhaps behind a minus.
pub(crate) fn plain_integer(bytes: &[u8]) -> Option<i64> {
    let (negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if !(1..=18).contains(&digits.len()) {
        return None;
    }
    let mut number = 0i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + i64::from(digit);
    }
    Some(if negative { -number } else { number })
}

/// Reads a value of `sql_type` from text.
pub fn parse(sql_type: SqlType, text: &str) -> Result<Value> {
    let bad = || bad_text(sql_type, text);
    let trimmed = text.trim_matches(|c: char| c.is_ascii_whitespace());
    Ok(match sql_type {
        SqlType::Unknown | SqlType::Text | SqlType::Void => Value::Text(text.to_string()),
        SqlType::Char(_) => Value::Text(text.trim_end_matches(' ').to_string()),
        SqlType::Bool => Value::Bool(parse_bool(trimmed).ok_or_else(bad)?),
        SqlType::Int2 => Value::Int2(parse_integer(sql_type, text, trimmed)?),
        SqlType::Int4 => Value::Int4(parse_integer(sql_type, text, trimmed)?),
        SqlType::Int8 => Value::Int8(parse_integer(sql_type, text, trimmed)?),
        SqlType::Float8 => Value::Float8(parse_float(trimmed).ok_or_else(bad)??),
        SqlType::Decimal(_) => {
            Value::Decimal(trimmed.parse::<Decimal>().map_err(|_| bad_decimal(sql_type, text, trimmed))?)
        }
        SqlType::Bytes => Value::Bytes(parse_bytea(text).ok_or_else(bad)?),
        SqlType::Date => {
            // A timestamp is read as its day, as in PostgreSQL.
            let day = trimmed
                .parse::<Date>()
                .map(|date| date.0)
                .ok()
                .or_else(|| i32::try_from(parse_moment(trimmed)?.0.div_euclid(MICROS_PER_DAY)).ok());
            let day = day.ok_or_else(|| bad_time(sql_type, text))?;
            Value::Date(Some(day).filter(|day| is_date(*day)).ok_or_else(|| far_time(sql_type, text))?)
        }
        SqlType::Timestamp | SqlType::TimestampTz => {
            let (moment, zone) = parse_moment(trimmed).ok_or_else(|| bad_time(sql_type, text))?;
            // Without time zone a zone that is written is ignored, as in PostgreSQL. Drivers write their machine's.
            let moment = if sql_type == SqlType::TimestampTz { moment - zone } else { moment };
            let moment = Some(moment).filter(|moment| is_moment(*moment));
            Value::Timestamp(moment.ok_or_else(|| far_time(sql_type, text))?)
        }
        // An array stays as it came. Its elements are read when its statement runs.
        SqlType::Array(element) => {
            array::read_text(*element, text, &mut |_| Ok(()))?;
            Value::Text(text.to_string())
        }
    })
}

/// PostgreSQL's first and last date, counted from 1970: 4714-11-24 BC and 5874897-12-31.
const DATES: std::ops::RangeInclusive<i32> = -2_440_588..=2_145_042_905;

/// Whether clients know this date.
pub(super) fn is_date(day: i32) -> bool {
    DATES.contains(&day)
}

/// Whether clients know this timestamp: it is not before their first date. The last one that they know is beyond what a
/// column holds.
pub(super) fn is_moment(moment: i64) -> bool {
    moment >= i64::from(*DATES.start()) * MICROS_PER_DAY
}

/// Microseconds in a day.
pub(crate) const MICROS_PER_DAY: i64 = 86_400_000_000;

/// A timestamp as it is written, and how far its zone is ahead of UTC, both in microseconds. The zone may be left out, or
/// written as `Z`, `UTC` or an offset.
fn parse_moment(text: &str) -> Option<(i64, i64)> {
    let (text, era) = match text.strip_suffix(" BC") {
        Some(text) => (text, " BC"),
        None => (text, ""),
    };
    let (plain, zone) = split_zone(text)?;
    let moment = format!("{}{era}", plain.trim_end()).parse::<Timestamp>().ok()?;
    Some((moment.0, zone * 1_000_000))
}

/// The text before a zone, and the zone's offset in seconds; `None` if what looks like a zone is none.
fn split_zone(text: &str) -> Option<(&str, i64)> {
    // The end of a date alone is no zone. After a blank it has one: JDBC writes dates so.
    let may_have_zone = |plain: &str| plain.contains(':') || plain.ends_with(' ');
    let utc = ["Z", "z", " UTC", " utc"].iter().find_map(|zone| text.strip_suffix(zone));
    if let Some(plain) = utc.filter(|plain| may_have_zone(plain)) {
        return Some((plain, 0));
    }
    let Some(sign) = text.rfind(['+', '-']).filter(|&sign| may_have_zone(&text[..sign])) else {
        return Some((text, 0));
    };
    let (plain, zone) = text.split_at(sign);
    let mut digits = zone[1..].replace(':', "");
    if digits.len() == 1 {
        digits.insert(0, '0');
    }
    let is_offset = matches!(digits.len(), 2 | 4 | 6) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let part = |at: usize| digits.get(at..at + 2).map_or(Ok(0), str::parse::<i64>).ok();
    let (hours, minutes, seconds) = (part(0)?, part(2)?, part(4)?);
    if !is_offset || hours > 15 || minutes > 59 || seconds > 59 {
        return None;
    }
    let offset = hours * 3_600 + minutes * 60 + seconds;
    Some((plain, if zone.starts_with('-') { -offset } else { offset }))
}

fn parse_bool(text: &str) -> Option<bool> {
    let text = text.to_ascii_lowercase();
    match text.as_str() {
        "" => None,
        "on" | "1" => Some(true),
        "of" | "off" | "0" => Some(false),
        text if "true".starts_with(text) || "yes".starts_with(text) => Some(true),
        text if "false".starts_with(text) || "no".starts_with(text) => Some(false),
        _ => None,
    }
}

fn parse_integer<T: TryFrom<i64>>(sql_type: SqlType, text: &str, trimmed: &str) -> Result<T> {
    let out_of_range = || {
        SqlError::new(
            SqlState::NumberOutOfRange,
            format!("value \"{trimmed}\" is out of range for type {}", sql_type.name()),
        )
    };
    match trimmed.parse::<i64>() {
        Ok(value) => T::try_from(value).map_err(|_| out_of_range()),
        Err(error) => match error.kind() {
            std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => Err(out_of_range()),
            _ => Err(bad_text(sql_type, text)),
        },
    }
}

/// `None` for text that is no number, an error for a number outside the type.
fn parse_float(text: &str) -> Option<Result<f64>> {
    let unsigned = text.trim_start_matches(['+', '-']);
    if text.len() - unsigned.len() > 1 {
        return None;
    }
    let value = match unsigned.to_ascii_lowercase().as_str() {
        "infinity" | "inf" if text.starts_with('-') => f64::NEG_INFINITY,
        "infinity" | "inf" => f64::INFINITY,
        "nan" => f64::NAN,
        _ => {
            let value = text.parse::<f64>().ok()?;
            let mantissa = unsigned.split(['e', 'E']).next().unwrap_or_default();
            let vanishes = value == 0.0 && mantissa.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
            let is_out = value.is_infinite() || vanishes;
            if is_out && !fault_injection::is_on("floats-overflow-to-infinity") {
                let shown: String = text.chars().take(40).collect();
                let message = format!("\"{shown}\" is out of range for type double precision");
                return Some(Err(SqlError::new(SqlState::NumberOutOfRange, message)));
            }
            value
        }
    };
    Some(Ok(value))
}

fn parse_bytea(text: &str) -> Option<Vec<u8>> {
    if let Some(digits) = text.strip_prefix("\\x") {
        let digits: Vec<u8> = digits.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        if !digits.len().is_multiple_of(2) {
            return None;
        }
        let nibble = |byte: u8| (byte as char).to_digit(16);
        return digits
            .chunks_exact(2)
            .map(|pair| Some((nibble(pair[0])? << 4 | nibble(pair[1])?) as u8))
            .collect();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            out.push(bytes[at]);
            at += 1;
        } else if bytes.get(at + 1) == Some(&b'\\') {
            out.push(b'\\');
            at += 2;
        } else {
            let octal = std::str::from_utf8(bytes.get(at + 1..at + 4)?).ok()?;
            if !octal.bytes().all(|digit| matches!(digit, b'0'..=b'7')) {
                return None;
            }
            out.push(u8::from_str_radix(octal, 8).ok()?);
            at += 4;
        }
    }
    Some(out)
}

fn bad_text(sql_type: SqlType, text: &str) -> SqlError {
    let message = format!("invalid input syntax for type {}: \"{text}\"", sql_type.plain().name());
    SqlError::new(SqlState::InvalidText, message)
}

/// The error for text that is no decimal of at most 38 digits: no number, or one that is too long.
fn bad_decimal(sql_type: SqlType, text: &str, trimmed: &str) -> SqlError {
    if trimmed.bytes().any(|byte| byte.is_ascii_digit()) && parse_float(trimmed).is_some() {
        let shown: String = trimmed.chars().take(40).collect();
        let message = format!("value \"{shown}\" overflows numeric format: 38 digits are allowed");
        return SqlError::new(SqlState::NumberOutOfRange, message);
    }
    bad_text(sql_type, text)
}

/// The error for a date or a timestamp that PostgreSQL does not have.
fn far_time(sql_type: SqlType, text: &str) -> SqlError {
    SqlError::new(SqlState::DatetimeOverflow, format!("{} out of range: \"{text}\"", sql_type.name()))
}

fn bad_time(sql_type: SqlType, text: &str) -> SqlError {
    let message = format!("invalid input syntax for type {}: \"{text}\"", sql_type.name());
    SqlError::new(SqlState::InvalidDatetime, message).hint("Write YYYY-MM-DD HH:MM:SS[.ffffff], in UTC.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(value: Value, sql_type: SqlType) -> String {
        let mut out = Vec::new();
        write(&value, sql_type, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_print_as_postgresql_prints_them() {
        assert_eq!(print(Value::Bool(true), SqlType::Bool), "t");
        assert_eq!(print(Value::Int8(i64::MIN), SqlType::Int8), "-9223372036854775808");
        assert_eq!(print(Value::Int4(0), SqlType::Int4), "0");
        assert_eq!(print(Value::Float8(1e15), SqlType::Float8), "1e+15");
        assert_eq!(print(Value::Float8(1e14), SqlType::Float8), "100000000000000");
        assert_eq!(print(Value::Float8(0.00001), SqlType::Float8), "1e-05");
        assert_eq!(print(Value::Float8(0.1), SqlType::Float8), "0.1");
        assert_eq!(print(Value::Text("ab".into()), SqlType::Char(Some(4))), "ab  ");
        assert_eq!(print(Value::Bytes(vec![0, 255]), SqlType::Bytes), "\\x00ff");
        assert_eq!(print(Value::Timestamp(0), SqlType::TimestampTz), "1970-01-01 00:00:00+00");
        assert_eq!(print(Value::Timestamp(1_500_000), SqlType::Timestamp), "1970-01-01 00:00:01.5");
    }

    #[test]
    fn bytes_are_read_as_text_is() {
        let texts = [
            "0",
            "-0",
            "7",
            "-7",
            "+7",
            "",
            "-",
            "--1",
            " 1",
            "1 ",
            "1.5",
            "1e3",
            "x",
            "007",
            "2147483647",
            "2147483648",
            "-2147483648",
            "-2147483649",
            "999999999999999999",
            "9223372036854775807",
            "9223372036854775808",
            "-9223372036854775808",
            "-9223372036854775809",
            "00000000000000000000001",
            "1_000",
            "\u{661}",
        ];
        for sql_type in [SqlType::Int2, SqlType::Int4, SqlType::Int8, SqlType::Decimal(None), SqlType::Text] {
            for text in texts {
                assert_eq!(
                    parse_bytes(sql_type, text.as_bytes()),
                    parse(sql_type, text),
                    "{sql_type:?} {text:?}"
                );
            }
        }
        for text in texts {
            if let Some(number) = plain_int4(text.as_bytes()) {
                assert_eq!(parse(SqlType::Int4, text), Ok(Value::Int4(number)), "{text:?}");
            }
        }
        assert_eq!(plain_int4(b"-2147483648"), Some(i32::MIN));
        assert_eq!(plain_int4(b"2147483648"), None);
        assert_eq!(parse_bytes(SqlType::Int4, &[0xff]).unwrap_err().sqlstate.code(), "22021");
    }

    #[test]
    fn text_reads_back() {
        assert_eq!(parse(SqlType::Bool, " YES ").unwrap(), Value::Bool(true));
        assert_eq!(parse(SqlType::Int4, " -7 ").unwrap(), Value::Int4(-7));
        assert_eq!(parse(SqlType::Float8, "-Infinity").unwrap(), Value::Float8(f64::NEG_INFINITY));
        assert_eq!(parse(SqlType::Bytes, "\\x00FF").unwrap(), Value::Bytes(vec![0, 255]));
        assert_eq!(parse(SqlType::Bytes, "a\\\\\\000").unwrap(), Value::Bytes(vec![b'a', b'\\', 0]));
        assert_eq!(
            parse(SqlType::TimestampTz, "1970-01-01 00:00:01+00").unwrap(),
            Value::Timestamp(1_000_000)
        );
        assert_eq!(parse(SqlType::Date, "1970-01-02").unwrap(), Value::Date(1));
        assert_eq!(parse(SqlType::Date, "1970-01-02 23:00:00").unwrap(), Value::Date(1));
        assert_eq!(parse(SqlType::Date, "1970-01-02 +00").unwrap(), Value::Date(1));
        assert_eq!(parse(SqlType::Timestamp, "1970-01-01 +00").unwrap(), Value::Timestamp(0));
        assert_eq!(parse(SqlType::Date, "0001-12-31 +00 BC").unwrap(), Value::Date(-719_163));
        assert_eq!(parse(SqlType::Date, "1970-01-02 +01").unwrap(), Value::Date(1));
        for (text, here, in_utc) in [
            ("1970-01-01 02:00:00.5+01", 7_200_500_000, 3_600_500_000),
            ("1970-01-01 02:00:00-03:30", 7_200_000_000, 19_800_000_000),
            ("1970-01-01 02:00:00+0100", 7_200_000_000, 3_600_000_000),
            ("1970-01-01 02:00:00+1", 7_200_000_000, 3_600_000_000),
            ("1970-01-01 02:00:00Z", 7_200_000_000, 7_200_000_000),
        ] {
            assert_eq!(parse(SqlType::Timestamp, text).unwrap(), Value::Timestamp(here), "{text}");
            assert_eq!(parse(SqlType::TimestampTz, text).unwrap(), Value::Timestamp(in_utc), "{text}");
        }
    }

    #[test]
    fn bad_text_names_the_type_and_the_kind_of_error() {
        let code = |sql_type, text| parse(sql_type, text).unwrap_err().sqlstate.code();
        assert_eq!(code(SqlType::Int2, "40000"), "22003");
        assert_eq!(code(SqlType::Int8, "99999999999999999999"), "22003");
        assert_eq!(code(SqlType::Int4, "1.5"), "22P02");
        assert_eq!(code(SqlType::Bool, "maybe"), "22P02");
        assert_eq!(code(SqlType::Timestamp, "yesterday"), "22007");
        for zone in ["+16", "+01:60", "+a1", "-", "+010203.5"] {
            let text = format!("1970-01-01 00:00:00{zone}");
            assert_eq!(parse(SqlType::TimestampTz, &text).unwrap_err().sqlstate.code(), "22007", "{zone}");
        }
        assert_eq!(code(SqlType::Bytes, "\\x0"), "22P02");
    }
}
