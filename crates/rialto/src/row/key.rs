//! [`Key`]: bytes whose order is the order of the values in them; and the bytes of each type.
//!
//! | type                       | bytes                                                                          |
//! |----------------------------|--------------------------------------------------------------------------------|
//! | bool                       | 0 or 1                                                                         |
//! | int2, int4, int8, date, timestamp | big endian, sign bit flipped                                            |
//! | float8                     | big endian; negative: all bits flipped, else: sign bit flipped; -0 as 0, one NaN |
//! | decimal(p,s)               | the digits at scale s as an integer of 8 (p <= 18) or 16 bytes, as above       |
//! | text, char(n), bytes       | 0 as 1 1, 1 as 1 2, then a 0 at the end; char(n) without trailing blanks       |
//! | nullable                   | 1 before a value, 2 for NULL: NULLs last                                       |
//!
//! No value's bytes are a prefix of another's, so values can be concatenated.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use super::{Column, ColumnType, Decimal, Value, ValueRef};

/// Precedes the bytes of a nullable column's value.
const PRESENT: u8 = 1;
/// Stands in their place for NULL.
pub(super) const NULL: u8 = 2;
/// Ends text and bytes.
pub(super) const END: u8 = 0;
/// Followed by the byte plus one, stands for a byte 0 or 1.
const ESCAPE: u8 = 1;
/// Up to this precision a decimal fits 8 bytes.
const SHORT_DECIMAL_DIGITS: u8 = 18;

/// The bytes of a key that lie in place.
const INLINE_BYTES: usize = 44;

/// An index key: bytes in the order of the index's columns. Up to 44 bytes lie in place, without an allocation.
///
/// Invariant: the bytes are `inline[..len]` if `len` is at most 44, else the whole of `spill`.
// With a general small vector an int8 key was measured at 140 instructions; with this it takes 20.
pub struct Key {
    len: u32,
    inline: [u8; INLINE_BYTES],
    #[allow(clippy::box_collection, reason = "one word in the key, since few keys need it")]
    spill: Option<Box<Vec<u8>>>,
}

impl Key {
    /// The empty key: before all others, and a prefix of all.
    #[inline]
    pub const fn new() -> Key {
        Key { len: 0, inline: [0; INLINE_BYTES], spill: None }
    }

    /// The bytes that it takes on the heap.
    #[inline]
    pub fn allocated_bytes(&self) -> usize {
        self.spill.as_ref().map_or(0, |spill| size_of::<Vec<u8>>() + spill.capacity())
    }

    /// Empties the key and keeps its allocation.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends bytes.
    ///
    /// # Panics
    /// If the key would have 4 GiB; indexes refuse keys of more than [`KEY_BYTES_MAX`](super::KEY_BYTES_MAX).
    #[inline]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        let len = self.len as usize;
        match self.inline.get_mut(len..len + bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.len += bytes.len() as u32;
            }
            None => self.extend_spilled(bytes),
        }
    }

    #[cold]
    fn extend_spilled(&mut self, bytes: &[u8]) {
        let spill = self.spill.get_or_insert_default();
        if self.len as usize <= INLINE_BYTES {
            spill.clear();
            spill.extend_from_slice(&self.inline[..self.len as usize]);
        }
        spill.extend_from_slice(bytes);
        self.len = u32::try_from(spill.len()).expect("a key has less than 4 GiB");
    }

    /// Appends a byte.
    #[inline]
    pub(super) fn push(&mut self, byte: u8) {
        self.extend_from_slice(&[byte]);
    }

    /// Turns this key into the least key that is above every key that it is a prefix of. If there is none, returns
    /// `false` and leaves the key empty: then the range has no upper end.
    pub fn turn_into_prefix_end(&mut self) -> bool {
        let Some(last) = self.iter().rposition(|byte| *byte < u8::MAX) else {
            self.clear();
            return false;
        };
        let mut end = Key::from(&self[..last]);
        end.push(self[last] + 1);
        *self = end;
        true
    }
}

impl Deref for Key {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        match (self.inline.get(..self.len as usize), &self.spill) {
            (Some(inline), _) => inline,
            (None, Some(spill)) => spill,
            (None, None) => unreachable!("a key of {} bytes has spilled", self.len),
        }
    }
}

impl Default for Key {
    fn default() -> Key {
        Key::new()
    }
}

impl Clone for Key {
    fn clone(&self) -> Key {
        Key::from(&**self)
    }

    #[inline]
    fn clone_from(&mut self, other: &Key) {
        self.clear();
        self.extend_from_slice(other);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        **self == **other
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        (**self).cmp(&**other)
    }
}

/// Hashes as a byte slice does, which [`Borrow`] requires.
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl AsRef<[u8]> for Key {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for Key {
    #[inline]
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Key {
        let mut key = Key::new();
        key.extend_from_slice(bytes);
        key
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(")?;
        print_bytes(self, f)?;
        f.write_str(")")
    }
}

pub(super) fn print_bytes(bytes: &[u8], f: &mut impl fmt::Write) -> fmt::Result {
    f.write_str("\\x")?;
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

#[inline]
pub(super) const fn int2(value: i16) -> [u8; 2] {
    (value ^ i16::MIN).to_be_bytes()
}

#[inline]
pub(super) const fn int4(value: i32) -> [u8; 4] {
    (value ^ i32::MIN).to_be_bytes()
}

#[inline]
pub(super) const fn int8(value: i64) -> [u8; 8] {
    (value ^ i64::MIN).to_be_bytes()
}

const fn int16(value: i128) -> [u8; 16] {
    (value ^ i128::MIN).to_be_bytes()
}

fn float8(value: f64) -> [u8; 8] {
    let value = if value.is_nan() { f64::NAN.abs() } else { value + 0.0 };
    let bits = value.to_bits() as i64;
    // A negative float's bits grow with its distance from zero; flipping all of them reverses their order.
    let ordered = if bits < 0 { !bits } else { bits ^ i64::MIN };
    ordered.to_be_bytes()
}

fn float8_back(bytes: [u8; 8]) -> f64 {
    let ordered = i64::from_be_bytes(bytes);
    f64::from_bits((if ordered < 0 { ordered ^ i64::MIN } else { !ordered }) as u64)
}

fn append_escaped(bytes: &[u8], out: &mut Key) {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte <= ESCAPE) {
        out.extend_from_slice(&rest[..at]);
        out.push(ESCAPE);
        out.push(rest[at] + 1);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(END);
}

/// The bytes that text or bytes take in a key.
pub(super) fn escaped_len(bytes: &[u8]) -> usize {
    bytes.len() + bytes.iter().filter(|byte| **byte <= ESCAPE).count() + 1
}

/// Appends a value that is of exactly the column's type, as [`ValueRef::coerce`] makes it.
#[inline]
pub(super) fn append(column: &Column, value: ValueRef<'_>, out: &mut Key) {
    if column.nullable {
        out.push(if matches!(value, ValueRef::Null) { NULL } else { PRESENT });
    }
    match value {
        ValueRef::Null => {}
        ValueRef::Bool(value) => out.push(u8::from(value)),
        ValueRef::Int2(value) => out.extend_from_slice(&int2(value)),
        ValueRef::Int4(value) | ValueRef::Date(value) => out.extend_from_slice(&int4(value)),
        ValueRef::Int8(value) | ValueRef::Timestamp(value) => out.extend_from_slice(&int8(value)),
        ValueRef::Float8(value) => out.extend_from_slice(&float8(value)),
        ValueRef::Decimal(value) => match decimal_bytes(column.ty) {
            8 => out.extend_from_slice(&int8(value.unscaled() as i64)),
            _ => out.extend_from_slice(&int16(value.unscaled())),
        },
        ValueRef::Text(value) => append_escaped(value.as_bytes(), out),
        ValueRef::Bytes(value) => append_escaped(value, out),
    }
}

fn decimal_bytes(ty: ColumnType) -> usize {
    match ty {
        ColumnType::Decimal { precision, .. } if precision <= SHORT_DECIMAL_DIGITS => 8,
        _ => 16,
    }
}

/// The fewest and the most bytes that a value of the column takes in a key, with the prefix of a nullable column.
pub(super) fn bytes_of_column(column: &Column) -> (usize, Option<usize>) {
    let prefix = usize::from(column.nullable);
    match (column.ty, column.ty.fixed_bytes()) {
        (ColumnType::Decimal { .. }, _) => {
            (prefix + decimal_bytes(column.ty), Some(prefix + decimal_bytes(column.ty)))
        }
        (_, Some(bytes)) => (prefix + usize::from(bytes), Some(prefix + usize::from(bytes))),
        (ColumnType::Char(length), None) => (prefix + 1, Some(prefix + 4 * usize::from(length) + 1)),
        _ => (prefix + 1, None),
    }
}

/// Takes the column's value from the front of `bytes`; `None` if they are not the bytes of one.
pub(super) fn take(column: &Column, bytes: &mut &[u8]) -> Option<Value> {
    fn array<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
        let (taken, rest) = bytes.split_first_chunk::<N>()?;
        *bytes = rest;
        Some(*taken)
    }
    let four = |bytes: &mut &[u8]| array(bytes).map(|bytes| i32::from_be_bytes(bytes) ^ i32::MIN);
    let eight = |bytes: &mut &[u8]| array(bytes).map(|bytes| i64::from_be_bytes(bytes) ^ i64::MIN);
    if column.nullable {
        match array::<1>(bytes)? {
            [PRESENT] => {}
            [NULL] => return Some(Value::Null),
            _ => return None,
        }
    }
    Some(match column.ty {
        ColumnType::Bool => match array::<1>(bytes)? {
            [0] => Value::Bool(false),
            [1] => Value::Bool(true),
            _ => return None,
        },
        ColumnType::Int2 => Value::Int2(i16::from_be_bytes(array(bytes)?) ^ i16::MIN),
        ColumnType::Int4 => Value::Int4(four(bytes)?),
        ColumnType::Int8 => Value::Int8(eight(bytes)?),
        ColumnType::Float8 => Value::Float8(float8_back(array(bytes)?)),
        ColumnType::Decimal { scale, .. } => {
            let unscaled = match decimal_bytes(column.ty) {
                8 => eight(bytes)?.into(),
                _ => i128::from_be_bytes(array(bytes)?) ^ i128::MIN,
            };
            Value::Decimal(Decimal::new(unscaled, scale)?)
        }
        ColumnType::Text | ColumnType::Char(_) => Value::Text(String::from_utf8(take_escaped(bytes)?).ok()?),
        ColumnType::Bytes => Value::Bytes(take_escaped(bytes)?),
        ColumnType::Date => Value::Date(four(bytes)?),
        ColumnType::Timestamp => Value::Timestamp(eight(bytes)?),
    })
}

fn take_escaped(bytes: &mut &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    let mut rest = bytes.iter();
    loop {
        match *rest.next()? {
            END => break,
            ESCAPE => plain.push(*rest.next().filter(|byte| (1..=2).contains(*byte))? - 1),
            byte => plain.push(byte),
        }
    }
    *bytes = rest.as_slice();
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_in_order_with_nan_last() {
        let ordered =
            [f64::NEG_INFINITY, f64::MIN, -1.5, -1.0, -f64::MIN_POSITIVE, -5e-324, 0.0, 5e-324, 1.0, 1e300];
        let ordered = ordered.into_iter().chain([f64::MAX, f64::INFINITY, f64::NAN]);
        assert!(ordered.clone().map(float8).is_sorted());
        for value in ordered {
            assert_eq!(
                float8_back(float8(value)).to_bits(),
                if value.is_nan() { f64::NAN.abs() } else { value }.to_bits()
            );
        }
        assert_eq!(float8(-0.0), float8(0.0));
        assert_eq!(float8(-f64::NAN), float8(f64::NAN));
    }

    #[test]
    fn escapes_keep_order_and_come_back() {
        let texts: [&[u8]; 9] = [b"", b"\0", b"\0\0", b"\0\x01", b"\x01", b"\x01\0", b"\x02", b"a", b"a\0b"];
        let keys = texts.map(|text| {
            let mut key = Key::new();
            append_escaped(text, &mut key);
            assert_eq!(key.len(), escaped_len(text));
            assert_eq!(take_escaped(&mut &*key).unwrap(), text);
            key
        });
        assert!(keys.is_sorted());
    }

    #[test]
    fn the_end_of_a_prefix_is_above_all_that_begin_with_it() {
        let mut key = Key::from(&[1, 255, 255][..]);
        assert!(key.turn_into_prefix_end());
        assert_eq!(*key, [2]);
        assert!(!Key::from(&[255, 255][..]).turn_into_prefix_end());
        assert!(!Key::new().turn_into_prefix_end());
    }

    #[test]
    fn common_keys_lie_in_place() {
        assert_eq!(std::mem::size_of::<Key>(), 56);
        assert!(Key::from(&[7; INLINE_BYTES][..]).spill.is_none());
    }

    #[test]
    fn a_key_holds_what_a_vector_holds() {
        let (mut key, mut model) = (Key::new(), Vec::new());
        for round in 0..5_000usize {
            if round % 97 == 96 {
                key.clear();
                model.clear();
            } else {
                let bytes = [round as u8; 7];
                key.extend_from_slice(&bytes[..round % 8]);
                model.extend_from_slice(&bytes[..round % 8]);
            }
            assert_eq!(*key, model);
            assert_eq!(key.clone(), key);
        }
    }
}
