//! Calls in the log (System M's TOPER): a transaction logged as the procedure, version and arguments that made it.
//!
//! ```text
//! call   name length: varint, name   version: varint   checksum: u32   row numbers: count varint, zigzag differences
//!        arguments: count varint, each  kind: u8, then by kind
//! ```
//!
//! The checksum covers the write set's bytes as [`Logging::Value`](crate::Logging::Value) would have logged them. If
//! the procedure is deterministic, these bytes follow from the arguments and the tables. The hidden row numbers that
//! the transaction was given, in tables without a primary key, do not; therefore the call carries them.

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

use crate::commit::redo::{put_varint, put_zigzag, take_bytes, take_varint, take_zigzag};
use crate::row::{Decimal, Value};

/// Hidden row numbers: few transactions insert more rows than this without a primary key.
pub(crate) type Numbers = SmallVec<[u64; 4]>;

/// A call, read back.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LoggedCall<'a> {
    pub name: &'a str,
    pub version: u32,
    /// Of the write set ([`checksum_of`]).
    pub checksum: u32,
    /// The hidden row numbers that its inserts were given, in their order.
    pub numbers: Numbers,
    pub arguments: Vec<Value>,
}

impl LoggedCall<'_> {
    /// About how many bytes it takes in memory.
    pub fn bytes(&self) -> usize {
        let of_value = |value: &Value| match value {
            Value::Text(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            _ => 0,
        };
        let values = size_of_val(&self.arguments[..]) + self.arguments.iter().map(of_value).sum::<usize>();
        values + size_of_val(&self.numbers[..])
    }
}

/// The checksum of a write set.
pub(crate) fn checksum_of(write_set: &[u8]) -> u32 {
    xxh3_64(write_set) as u32
}

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const INT2: u8 = 3;
const INT4: u8 = 4;
const INT8: u8 = 5;
const FLOAT8: u8 = 6;
const DECIMAL: u8 = 7;
const TEXT: u8 = 8;
const BYTES: u8 = 9;
const DATE: u8 = 10;
const TIMESTAMP: u8 = 11;

/// Appends a value, with its type.
pub(crate) fn write_value(out: &mut Vec<u8>, value: &Value) {
    let mut number = |kind: u8, value: i64| {
        out.push(kind);
        put_zigzag(out, value);
    };
    match value {
        Value::Null => out.push(NULL),
        Value::Bool(value) => out.push(if *value { TRUE } else { FALSE }),
        Value::Int2(value) => number(INT2, i64::from(*value)),
        Value::Int4(value) => number(INT4, i64::from(*value)),
        Value::Int8(value) => number(INT8, *value),
        Value::Date(value) => number(DATE, i64::from(*value)),
        Value::Timestamp(value) => number(TIMESTAMP, *value),
        Value::Float8(value) => {
            out.push(FLOAT8);
            out.extend_from_slice(&value.to_bits().to_le_bytes());
        }
        Value::Decimal(value) => {
            out.extend_from_slice(&[DECIMAL, value.scale()]);
            out.extend_from_slice(&value.unscaled().to_le_bytes());
        }
        Value::Text(text) => {
            out.push(TEXT);
            put_varint(out, text.len() as u64);
            out.extend_from_slice(text.as_bytes());
        }
        Value::Bytes(bytes) => {
            out.push(BYTES);
            put_varint(out, bytes.len() as u64);
            out.extend_from_slice(bytes);
        }
    }
}

fn take_value(bytes: &mut &[u8]) -> Option<Value> {
    let kind = *take_bytes(bytes, 1)?.first()?;
    Some(match kind {
        NULL => Value::Null,
        FALSE => Value::Bool(false),
        TRUE => Value::Bool(true),
        INT2 => Value::Int2(i16::try_from(take_zigzag(bytes)?).ok()?),
        INT4 => Value::Int4(i32::try_from(take_zigzag(bytes)?).ok()?),
        INT8 => Value::Int8(take_zigzag(bytes)?),
        DATE => Value::Date(i32::try_from(take_zigzag(bytes)?).ok()?),
        TIMESTAMP => Value::Timestamp(take_zigzag(bytes)?),
        FLOAT8 => Value::Float8(f64::from_bits(u64::from_le_bytes(take_bytes(bytes, 8)?.try_into().ok()?))),
        DECIMAL => {
            let scale = *take_bytes(bytes, 1)?.first()?;
            let unscaled = i128::from_le_bytes(take_bytes(bytes, 16)?.try_into().ok()?);
            Value::Decimal(Decimal::new(unscaled, scale)?)
        }
        TEXT => {
            let length = take_varint(bytes)?;
            Value::Text(str::from_utf8(take_bytes(bytes, length)?).ok()?.to_owned())
        }
        BYTES => {
            let length = take_varint(bytes)?;
            Value::Bytes(take_bytes(bytes, length)?.to_vec())
        }
        _ => return None,
    })
}

/// Appends a call.
pub(crate) fn write_call(
    out: &mut Vec<u8>,
    name: &str,
    version: u32,
    checksum: u32,
    numbers: &[u64],
    arguments: &[Value],
) {
    put_varint(out, name.len() as u64);
    out.extend_from_slice(name.as_bytes());
    put_varint(out, u64::from(version));
    out.extend_from_slice(&checksum.to_le_bytes());
    put_varint(out, numbers.len() as u64);
    let mut last = 0;
    for &number in numbers {
        put_zigzag(out, number.wrapping_sub(last) as i64);
        last = number;
    }
    put_varint(out, arguments.len() as u64);
    arguments.iter().for_each(|argument| write_value(out, argument));
}

/// Reads a call that fills these bytes exactly.
pub(crate) fn read_call(mut bytes: &[u8]) -> Option<LoggedCall<'_>> {
    let rest = &mut bytes;
    let length = take_varint(rest)?;
    let name = str::from_utf8(take_bytes(rest, length)?).ok()?;
    let version = u32::try_from(take_varint(rest)?).ok()?;
    let checksum = u32::from_le_bytes(take_bytes(rest, 4)?.try_into().ok()?);
    let count = take_varint(rest)?;
    let (mut numbers, mut last) = (Numbers::new(), 0u64);
    for _ in 0..count {
        last = last.wrapping_add(take_zigzag(rest)? as u64);
        numbers.push(last);
    }
    let count = take_varint(rest)?;
    let mut arguments = Vec::new();
    for _ in 0..count {
        arguments.push(take_value(rest)?);
    }
    rest.is_empty().then_some(LoggedCall { name, version, checksum, numbers, arguments })
}

/// The source of a transaction's hidden row numbers.
#[derive(Debug, Default)]
pub(crate) enum NumberSource {
    /// The table's next numbers.
    #[default]
    Next,
    /// The same, and they are noted, because the transaction may be logged as a call.
    Noted(Numbers),
    /// These, from the position on, because the transaction runs again. When they are used up, the table's next ones.
    Given(Numbers, usize),
}

impl NumberSource {
    /// The next row number; `next` gives the table's next one.
    #[inline]
    pub fn take(&mut self, next: impl FnOnce() -> u64) -> u64 {
        match self {
            NumberSource::Next => next(),
            other => other.take_slowly(next),
        }
    }

    #[inline(never)]
    fn take_slowly(&mut self, next: impl FnOnce() -> u64) -> u64 {
        match self {
            NumberSource::Next => next(),
            NumberSource::Noted(numbers) => {
                numbers.push(next());
                numbers[numbers.len() - 1]
            }
            NumberSource::Given(numbers, at) => {
                let given = numbers.get(*at).copied();
                *at += 1;
                given.unwrap_or_else(next)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments() -> Vec<Value> {
        vec![
            Value::Null,
            Value::Bool(true),
            Value::Bool(false),
            Value::Int2(-3),
            Value::Int4(i32::MIN),
            Value::Int8(i64::MAX),
            Value::Float8(-0.5),
            Value::Decimal("-12.345".parse().unwrap()),
            Value::Text("straße".to_owned()),
            Value::Bytes(vec![0, 255]),
            Value::Date(-1),
            Value::Timestamp(1 << 50),
        ]
    }

    #[test]
    fn a_call_is_read_as_it_was_written() {
        let mut out = Vec::new();
        write_call(&mut out, "debit", 300, 0xdead_beef, &[u64::MAX, 5, 6, 1 << 40], &arguments());
        let call = read_call(&out).unwrap();
        let numbers = Numbers::from_slice(&[u64::MAX, 5, 6, 1 << 40]);
        let expected = LoggedCall {
            name: "debit",
            version: 300,
            checksum: 0xdead_beef,
            numbers,
            arguments: arguments(),
        };
        assert_eq!(call, expected);
    }

    #[test]
    fn any_cut_or_flip_is_a_call_or_none_never_a_panic() {
        let mut out = Vec::new();
        write_call(&mut out, "pay", 1, 7, &[70_000], &arguments());
        assert!((0..out.len()).all(|cut| read_call(&out[..cut]).is_none()));
        for at in 0..out.len() {
            for bit in 0..8 {
                let mut bad = out.clone();
                bad[at] ^= 1 << bit;
                read_call(&bad);
            }
        }
    }
}
