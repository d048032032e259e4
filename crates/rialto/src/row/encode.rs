//! [`encode`] and [`RowEncoder`]: values to a row, each checked against its column.

use super::{ColumnType, FieldSlot, ROW_BYTES_MAX, Schema, Value, ValueRef};
use crate::{Error, Result};

/// Appends the row of these values, one for each column in order, to `out`.
///
/// An integer may have any width that its value fits, and may stand for a decimal or a float. A decimal may have
/// another scale if no digit is lost. Trailing blanks of a char(n) do not count.
///
/// # Errors
/// [`Error::ColumnCount`], [`Error::NotNull`], [`Error::OutOfRange`], [`Error::StringTooLong`],
/// [`Error::TypeMismatch`], [`Error::RowTooLong`], and [`Error::KeyTooLong`] if a key of the row is too long, or could
/// become so by changes to the row's fixed columns alone. After an error `out` is unchanged.
pub fn encode(schema: &Schema, values: &[Value], out: &mut Vec<u8>) -> Result<()> {
    if values.len() != schema.columns().len() {
        return Err(wrong_count(schema, values.len()));
    }
    let mut row = RowEncoder::new(schema, out);
    values.iter().try_for_each(|value| row.put_here(value.borrow()))?;
    row.finish()
}

/// As [`encode`], of borrowed values.
///
/// # Errors
/// As [`encode`].
pub(crate) fn encode_borrowed(schema: &Schema, values: &[ValueRef<'_>], out: &mut Vec<u8>) -> Result<()> {
    if values.len() != schema.columns().len() {
        return Err(wrong_count(schema, values.len()));
    }
    let mut row = RowEncoder::new(schema, out);
    values.iter().try_for_each(|value| row.put_here(*value))?;
    row.finish()
}

#[cold]
fn wrong_count(schema: &Schema, found: usize) -> Error {
    Error::ColumnCount { table: schema.table().to_owned(), expected: schema.columns().len(), found }
}

/// Makes a row column by column, without a [`Value`] for each. If it is dropped unfinished, `out` is unchanged.
pub struct RowEncoder<'a> {
    schema: &'a Schema,
    out: &'a mut Vec<u8>,
    start: usize,
    next: usize,
    /// The row's length. It also counts bytes beyond the limit, where nothing more is written.
    length: usize,
    finished: bool,
}

impl<'a> RowEncoder<'a> {
    /// Begins a row behind the present contents of `out`.
    #[inline]
    pub fn new(schema: &'a Schema, out: &'a mut Vec<u8>) -> RowEncoder<'a> {
        let start = out.len();
        out.resize(start + schema.body_at, 0);
        RowEncoder { schema, out, start, next: 0, length: schema.body_at, finished: false }
    }

    /// Appends the next column's value.
    ///
    /// # Errors
    /// As [`encode`].
    #[inline]
    pub fn put(&mut self, value: ValueRef<'_>) -> Result<()> {
        self.put_here(value)
    }

    /// As [`put`](RowEncoder::put), inlined, for callers to which a call for each column would cost much.
    #[inline(always)]
    fn put_here(&mut self, value: ValueRef<'_>) -> Result<()> {
        let schema = self.schema;
        let Some(column) = schema.columns().get(self.next) else {
            return Err(wrong_count(schema, self.next + 1));
        };
        let slot = schema.slot(self.next);
        self.next += 1;
        // Integers of exactly their columns' types, which most columns are, need no check.
        match (column.ty, value) {
            (ColumnType::Int4, ValueRef::Int4(value)) => return self.put_plain(slot, value.to_le_bytes()),
            (ColumnType::Int2, ValueRef::Int2(value)) => return self.put_plain(slot, value.to_le_bytes()),
            (ColumnType::Int8, ValueRef::Int8(value))
            | (ColumnType::Timestamp, ValueRef::Timestamp(value)) => {
                return self.put_plain(slot, value.to_le_bytes());
            }
            _ => {}
        }
        let variable = match value.coerce(schema.table(), column)? {
            ValueRef::Text(text) => text.as_bytes(),
            ValueRef::Bytes(bytes) => bytes,
            value => {
                write_fixed_or_null(&mut self.out[self.start..], slot, value);
                &[]
            }
        };
        if slot.len == 0 {
            self.length += variable.len();
            if self.length <= ROW_BYTES_MAX {
                self.out.extend_from_slice(variable);
                let at = self.start + usize::from(slot.offset);
                self.out[at..at + 2].copy_from_slice(&(self.length as u16).to_le_bytes());
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn put_plain<const N: usize>(&mut self, slot: FieldSlot, bytes: [u8; N]) -> Result<()> {
        let at = self.start + usize::from(slot.offset);
        self.out[at..at + N].copy_from_slice(&bytes);
        Ok(())
    }

    /// Ends the row.
    ///
    /// # Errors
    /// As [`encode`].
    pub fn finish(mut self) -> Result<()> {
        if self.next != self.schema.columns().len() {
            return Err(wrong_count(self.schema, self.next));
        }
        if self.length > ROW_BYTES_MAX {
            let (length, limit) = (self.length, ROW_BYTES_MAX);
            return Err(Error::RowTooLong { table: self.schema.table().to_owned(), length, limit });
        }
        self.schema.check_key_lengths(&self.out[self.start..])?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for RowEncoder<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.out.truncate(self.start);
        }
    }
}

const _: () = assert!(ROW_BYTES_MAX <= u16::MAX as usize, "end offsets are u16");

/// Writes a fixed column's value, of just its type, or any column's NULL, over zero bytes.
#[inline(always)]
fn write_fixed_or_null(row: &mut [u8], slot: FieldSlot, value: ValueRef<'_>) {
    match (value, slot.null_bit) {
        (ValueRef::Null, Some(bit)) => row[usize::from(bit / 8)] |= 1 << (bit % 8),
        _ => {
            let (bytes, len) = fixed_bytes(value);
            let at = usize::from(slot.offset);
            row[at..at + len].copy_from_slice(&bytes[..len]);
        }
    }
}

/// The stored bytes of a fixed value; none for a variable one.
#[inline]
pub(super) fn fixed_bytes(value: ValueRef<'_>) -> ([u8; 16], usize) {
    fn padded<const N: usize>(bytes: [u8; N]) -> ([u8; 16], usize) {
        let mut all = [0; 16];
        all[..N].copy_from_slice(&bytes);
        (all, N)
    }
    match value {
        ValueRef::Bool(value) => padded([u8::from(value)]),
        ValueRef::Int2(value) => padded(value.to_le_bytes()),
        ValueRef::Int4(value) | ValueRef::Date(value) => padded(value.to_le_bytes()),
        ValueRef::Int8(value) | ValueRef::Timestamp(value) => padded(value.to_le_bytes()),
        ValueRef::Float8(value) => padded(value.to_le_bytes()),
        ValueRef::Decimal(value) => padded(value.unscaled().to_le_bytes()),
        ValueRef::Null | ValueRef::Text(_) | ValueRef::Bytes(_) => padded([]),
    }
}

const _: () = assert!(matches!(ColumnType::Decimal { precision: 38, scale: 0 }.fixed_bytes(), Some(16)));
