//! [`IntoKey`]: Rust values as keys, checked against the columns of the index.

use super::key::{self, Key};
use super::key_shape::KeyShape;
use super::{ColumnType, Date, Decimal, Timestamp, Value, ValueRef};
use crate::{Error, Result};

/// A type that can be a key: one value, or a tuple or slice of values in the order of the key's columns.
///
/// A `u64` is the row number of a table without a primary key, and an int8 elsewhere; `()` is the prefix of all keys.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no key",
    note = "keys are bool, i16, i32, i64, u64, f64, &str, String, &[u8], Vec<u8>, Decimal, Date, Timestamp, Value, \
            Option of one of them, tuples of up to 6 of them, and &[Value]"
)]
pub trait IntoKey {
    /// The number of columns that the key has values for.
    fn parts(&self) -> usize;

    /// Appends the bytes of all parts. There are at most as many as `shape` has columns, unless `shape` is a row
    /// number's.
    ///
    /// # Errors
    /// As [`IntoKey::encode_into`].
    fn append_parts(&self, shape: &KeyShape, out: &mut Key) -> Result<()>;

    /// Replaces `out` by the key, which must have a value for each column.
    ///
    /// # Errors
    /// [`Error::KeyColumns`] for too few or too many values, [`Error::KeyTooLong`], and as [`encode`](super::encode())
    /// for a value that its column does not take.
    #[inline(always)]
    fn encode_into(&self, shape: &KeyShape, out: &mut Key) -> Result<()> {
        let columns = if shape.is_row_number() { 1 } else { shape.columns.len() };
        if self.parts() != columns {
            return Err(shape.wrong_columns(self.parts()));
        }
        out.clear();
        self.append_parts(shape, out)?;
        shape.check_length(out)
    }

    /// Replaces `out` by the common prefix of all keys whose first columns have these values.
    ///
    /// # Errors
    /// As [`IntoKey::encode_into`], except that fewer values are not an error.
    #[inline]
    fn encode_prefix_into(&self, shape: &KeyShape, out: &mut Key) -> Result<()> {
        let columns = if shape.is_row_number() { 1 } else { shape.columns.len() };
        if self.parts() > columns {
            return Err(shape.wrong_columns(self.parts()));
        }
        out.clear();
        self.append_parts(shape, out)?;
        shape.check_length(out)
    }
}

/// A value of one column of a key.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no key",
    note = "keys are bool, i16, i32, i64, u64, f64, &str, String, &[u8], Vec<u8>, Decimal, Date, Timestamp, Value, \
            Option of one of them, tuples of up to 6 of them, and &[Value]"
)]
pub trait KeyPart {
    /// The value, borrowed.
    fn part_ref(&self) -> ValueRef<'_>;

    /// Appends the value's bytes, checked against the key's `nth` column (or row number).
    ///
    /// # Errors
    /// As [`encode`](super::encode()) for a value that the column does not take.
    #[inline]
    fn append_part(&self, shape: &KeyShape, nth: usize, out: &mut Key) -> Result<()> {
        if shape.is_row_number() {
            return row_number(shape, self.part_ref(), out);
        }
        shape.append_value(nth, self.part_ref(), out)
    }
}

/// As a value a row number is an integer that is not negative.
#[cold]
fn row_number(shape: &KeyShape, value: ValueRef<'_>, out: &mut Key) -> Result<()> {
    let number = match value {
        ValueRef::Int2(number) => i64::from(number),
        ValueRef::Int4(number) => i64::from(number),
        ValueRef::Int8(number) => number,
        _ => {
            return Err(Error::TypeMismatch {
                column: shape.name().to_owned(),
                expected: "int8".to_owned(),
                found: value.type_name().to_owned(),
            });
        }
    };
    let number = u64::try_from(number).map_err(|_| Error::OutOfRange {
        column: shape.name().to_owned(),
        value: number.to_string(),
        type_name: "row number".to_owned(),
    })?;
    out.extend_from_slice(&number.to_be_bytes());
    Ok(())
}

/// The shorter way for integers: no check is left when the column has exactly this type.
macro_rules! integer_key_part {
    ($type:ty, $variant:ident, $bytes:path) => {
        impl KeyPart for $type {
            #[inline]
            fn part_ref(&self) -> ValueRef<'_> {
                ValueRef::$variant(*self)
            }

            #[inline(always)]
            fn append_part(&self, shape: &KeyShape, nth: usize, out: &mut Key) -> Result<()> {
                match shape.columns.get(nth) {
                    Some(column) if column.column.ty == ColumnType::$variant && !column.column.nullable => {
                        out.extend_from_slice(&$bytes(*self));
                        Ok(())
                    }
                    Some(_) => shape.append_value(nth, self.part_ref(), out),
                    None => row_number(shape, self.part_ref(), out),
                }
            }
        }
    };
}

integer_key_part!(i16, Int2, key::int2);
integer_key_part!(i32, Int4, key::int4);
integer_key_part!(i64, Int8, key::int8);

impl KeyPart for u64 {
    /// A number above `i64::MAX` is a decimal, which no int8 column takes.
    fn part_ref(&self) -> ValueRef<'_> {
        match i64::try_from(*self) {
            Ok(value) => ValueRef::Int8(value),
            Err(_) => {
                ValueRef::Decimal(Decimal::new((*self).into(), 0).expect("a u64 has at most 20 digits"))
            }
        }
    }

    #[inline]
    fn append_part(&self, shape: &KeyShape, nth: usize, out: &mut Key) -> Result<()> {
        if shape.is_row_number() {
            out.extend_from_slice(&self.to_be_bytes());
            return Ok(());
        }
        let column = &shape.columns[nth].column;
        if *self > i64::MAX as u64 && !matches!(column.ty, ColumnType::Decimal { .. }) {
            return Err(Error::OutOfRange {
                column: column.name.clone(),
                value: self.to_string(),
                type_name: column.ty.to_string(),
            });
        }
        shape.append_value(nth, self.part_ref(), out)
    }
}

macro_rules! key_part {
    ($($type:ty: $value:ident => $borrowed:expr),+ $(,)?) => {
        $(impl KeyPart for $type {
            #[inline]
            fn part_ref(&self) -> ValueRef<'_> {
                let $value = self;
                $borrowed
            }
        })+
    };
}

key_part! {
    bool: value => ValueRef::Bool(*value),
    f64: value => ValueRef::Float8(*value),
    str: value => ValueRef::Text(value),
    String: value => ValueRef::Text(value),
    [u8]: value => ValueRef::Bytes(value),
    Vec<u8>: value => ValueRef::Bytes(value),
    Decimal: value => ValueRef::Decimal(*value),
    Date: value => ValueRef::Date(value.0),
    Timestamp: value => ValueRef::Timestamp(value.0),
    ValueRef<'_>: value => *value,
}

impl KeyPart for Value {
    #[inline]
    fn part_ref(&self) -> ValueRef<'_> {
        self.borrow()
    }

    #[inline]
    fn append_part(&self, shape: &KeyShape, nth: usize, out: &mut Key) -> Result<()> {
        match self {
            Value::Int2(value) => value.append_part(shape, nth, out),
            Value::Int4(value) => value.append_part(shape, nth, out),
            Value::Int8(value) => value.append_part(shape, nth, out),
            _ if shape.is_row_number() => row_number(shape, self.borrow(), out),
            _ => shape.append_value(nth, self.borrow(), out),
        }
    }
}

impl<const N: usize> KeyPart for [u8; N] {
    fn part_ref(&self) -> ValueRef<'_> {
        ValueRef::Bytes(self)
    }
}

impl<T: KeyPart + ?Sized> KeyPart for &T {
    #[inline]
    fn part_ref(&self) -> ValueRef<'_> {
        (**self).part_ref()
    }

    #[inline]
    fn append_part(&self, shape: &KeyShape, nth: usize, out: &mut Key) -> Result<()> {
        (**self).append_part(shape, nth, out)
    }
}

impl<T: KeyPart> KeyPart for Option<T> {
    fn part_ref(&self) -> ValueRef<'_> {
        self.as_ref().map_or(ValueRef::Null, KeyPart::part_ref)
    }
}

impl<T: KeyPart + ?Sized> IntoKey for T {
    #[inline]
    fn parts(&self) -> usize {
        1
    }

    #[inline(always)]
    fn append_parts(&self, shape: &KeyShape, out: &mut Key) -> Result<()> {
        self.append_part(shape, 0, out)
    }
}

impl IntoKey for () {
    fn parts(&self) -> usize {
        0
    }

    fn append_parts(&self, _shape: &KeyShape, _out: &mut Key) -> Result<()> {
        Ok(())
    }
}

impl IntoKey for [Value] {
    fn parts(&self) -> usize {
        self.len()
    }

    fn append_parts(&self, shape: &KeyShape, out: &mut Key) -> Result<()> {
        self.iter().enumerate().try_for_each(|(nth, value)| value.append_part(shape, nth, out))
    }
}

macro_rules! forward_to_values {
    ($([$($generic:tt)*] $type:ty),+) => {
        $(impl<$($generic)*> IntoKey for $type {
            fn parts(&self) -> usize {
                self.len()
            }

            fn append_parts(&self, shape: &KeyShape, out: &mut Key) -> Result<()> {
                let values: &[Value] = self;
                values.append_parts(shape, out)
            }
        })+
    };
}

forward_to_values!([] &[Value], [] Vec<Value>, [const N: usize] [Value; N]);

macro_rules! tuple_key {
    ($count:literal: $($part:ident $nth:tt),+) => {
        impl<$($part: KeyPart),+> IntoKey for ($($part,)+) {
            #[inline]
            fn parts(&self) -> usize {
                $count
            }

            #[inline(always)]
            fn append_parts(&self, shape: &KeyShape, out: &mut Key) -> Result<()> {
                $(self.$nth.append_part(shape, $nth, out)?;)+
                Ok(())
            }
        }
    };
}

tuple_key!(1: A 0);
tuple_key!(2: A 0, B 1);
tuple_key!(3: A 0, B 1, C 2);
tuple_key!(4: A 0, B 1, C 2, D 3);
tuple_key!(5: A 0, B 1, C 2, D 3, E 4);
tuple_key!(6: A 0, B 1, C 2, D 3, E 4, F 5);
