//! [`RowView`]: a row read field by field, and checked when its bytes come from outside (I9).

use std::fmt;

use super::decimal::Decimal;
use super::{Column, ColumnType, Date, Field, FieldSlot, ROW_BYTES_MAX, Schema, Value, ValueRef};
use crate::{Error, Result, fault_injection};

/// A row of a table, borrowed. Each field is read alone, without reading the rest of the row.
///
/// The bytes must be a row of the schema: what [`encode`](super::encode()) made, or what [`RowView::validate`] passed.
/// With other bytes the getters return errors or wrong values, or panic, and do nothing worse.
#[derive(Clone, Copy)]
pub struct RowView<'a> {
    schema: &'a Schema,
    bytes: &'a [u8],
}

impl<'a> RowView<'a> {
    /// Views bytes that the caller knows to be a row of this schema.
    #[inline]
    pub fn new(schema: &'a Schema, bytes: &'a [u8]) -> RowView<'a> {
        debug_assert!(
            bytes.len() >= schema.body_at,
            "{} bytes are no row of {}",
            bytes.len(),
            schema.table()
        );
        RowView { schema, bytes }
    }

    /// Checks bytes of any origin and views them. Never panics.
    ///
    /// # Errors
    /// [`Error::Corrupt`] with the offset in the row and what was expected there. Its `file` names the table; a caller
    /// that knows the file replaces it.
    pub fn validate(schema: &'a Schema, bytes: &'a [u8]) -> Result<RowView<'a>> {
        let view = RowView::of_layout(schema, bytes)?;
        schema.check_key_lengths(bytes).map_err(|error| corrupt(schema, 0, error.to_string()))?;
        Ok(view)
    }

    /// As [`RowView::validate`], but the lengths of its keys are not looked at.
    ///
    /// # Errors
    /// [`Error::Corrupt`], as there.
    pub(crate) fn of_layout(schema: &'a Schema, bytes: &'a [u8]) -> Result<RowView<'a>> {
        match damage(schema, bytes, Nulls::OverZeros) {
            None => Ok(RowView { schema, bytes }),
            Some((offset, what)) => Err(corrupt(schema, offset, what)),
        }
    }

    /// As [`RowView::validate`], for a row that was encoded for an earlier version of the table. A row that was valid
    /// then may violate a later definition: a new index may require shorter keys, and a new primary key may forbid a
    /// NULL.
    ///
    /// # Errors
    /// [`Error::NotNull`], [`Error::KeyTooLong`]; [`Error::Corrupt`] for bytes that are no row of the table in any
    /// version.
    pub(crate) fn validate_new(schema: &'a Schema, bytes: &'a [u8]) -> Result<RowView<'a>> {
        let null = |&&column: &&usize| bytes.len() >= schema.body_at && schema.slot(column).is_null(bytes);
        if let Some(&column) = schema.primary_key().unwrap_or_default().iter().find(null) {
            let column = schema.columns()[column].name.clone();
            return Err(Error::NotNull { table: schema.table().to_owned(), column });
        }
        let view = RowView::of_layout(schema, bytes)?;
        schema.check_key_lengths(bytes)?;
        Ok(view)
    }

    /// The schema.
    #[inline]
    pub fn schema(self) -> &'a Schema {
        self.schema
    }

    /// The row's bytes.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Whether a column is NULL.
    ///
    /// # Panics
    /// If there is no such column.
    #[inline]
    pub fn is_null(self, column: usize) -> bool {
        self.schema.slot(column).is_null(self.bytes)
    }

    /// A column's value, char(n) padded to n characters as SQL shows it.
    ///
    /// # Panics
    /// If there is no such column.
    pub fn get(self, column: usize) -> Value {
        let ty = self.schema.columns()[column].ty;
        match (ty, self.get_ref(column)) {
            (ColumnType::Char(length), ValueRef::Text(text)) => {
                Value::Text(format!("{text:<width$}", width = usize::from(length)))
            }
            (_, value) => value.to_value(),
        }
    }

    /// A column's value as it is stored: char(n) without trailing blanks.
    ///
    /// # Panics
    /// If there is no such column.
    #[inline]
    pub fn get_ref(self, column: usize) -> ValueRef<'a> {
        value_at(self.schema, self.bytes, column, self.schema.columns()[column].ty, self.schema.slot(column))
    }

    /// A column's value as a Rust value, the column given by position or by name; `Option` for one that may be NULL.
    ///
    /// # Errors
    /// [`Error::NoSuchColumn`]; [`Error::TypeMismatch`] for a column of another type, or for NULL.
    #[inline]
    pub fn read<T: Field>(self, column: impl ColumnRef) -> Result<T> {
        let position = column.position(self.schema)?;
        T::from_ref(self.get_ref(position)).ok_or_else(|| self.mismatch(position, T::RUST_TYPE))
    }

    #[inline]
    fn plain_bytes<const N: usize>(&self, column: usize, ty: ColumnType) -> Option<&'a [u8; N]> {
        self.bytes[self.schema.plain_field(column, ty)?..].first_chunk()
    }

    /// A bool column's value. Errors as [`RowView::read`]; so do all `get_` methods below.
    pub fn get_bool(self, column: usize) -> Result<bool> {
        self.read(column)
    }

    /// An int2 column's value.
    #[inline]
    pub fn get_i16(self, column: usize) -> Result<i16> {
        self.read(column)
    }

    /// The value of an int2 or int4 column.
    #[inline]
    pub fn get_i32(self, column: usize) -> Result<i32> {
        if let Some(bytes) = self.plain_bytes(column, ColumnType::Int4) {
            return Ok(i32::from_le_bytes(*bytes));
        }
        self.read(column)
    }

    /// The value of an int2, int4 or int8 column.
    #[inline]
    pub fn get_i64(self, column: usize) -> Result<i64> {
        if let Some(bytes) = self.plain_bytes(column, ColumnType::Int8) {
            return Ok(i64::from_le_bytes(*bytes));
        }
        self.read(column)
    }

    /// A float8 column's value.
    pub fn get_f64(self, column: usize) -> Result<f64> {
        self.read(column)
    }

    /// A date column's value.
    #[inline]
    pub fn get_date(self, column: usize) -> Result<Date> {
        if let Some(bytes) = self.plain_bytes(column, ColumnType::Date) {
            return Ok(Date(i32::from_le_bytes(*bytes)));
        }
        self.read(column)
    }

    /// A decimal column's value.
    pub fn get_decimal(self, column: usize) -> Result<Decimal> {
        self.read(column)
    }

    /// The value of a text column, or of a char(n) column without trailing blanks.
    pub fn get_str(self, column: usize) -> Result<&'a str> {
        match self.position_checked(column)? {
            ValueRef::Text(text) => Ok(text),
            _ => Err(self.mismatch(column, "&str")),
        }
    }

    /// The value of a bytes column.
    pub fn get_bytes(self, column: usize) -> Result<&'a [u8]> {
        match self.position_checked(column)? {
            ValueRef::Bytes(bytes) => Ok(bytes),
            _ => Err(self.mismatch(column, "&[u8]")),
        }
    }

    /// All values, as [`RowView::get`] returns them.
    pub fn values(self) -> Vec<Value> {
        (0..self.schema.columns().len()).map(|column| self.get(column)).collect()
    }

    fn position_checked(self, column: usize) -> Result<ValueRef<'a>> {
        Ok(self.get_ref(column.position(self.schema)?))
    }

    #[cold]
    fn mismatch(self, column: usize, wanted: &str) -> Error {
        let Column { name, ty, .. } = &self.schema.columns()[column];
        let found = if self.is_null(column) { "NULL, which an Option takes" } else { "asked for" };
        let found = if self.is_null(column) { found.to_owned() } else { format!("{found} as a {wanted}") };
        Error::TypeMismatch { column: name.clone(), expected: ty.to_string(), found }
    }

    /// The bytes of a variable column.
    #[inline]
    pub(super) fn variable(self, column: usize) -> &'a [u8] {
        variable_at(self.schema, self.bytes, self.schema.slot(column))
    }
}

/// `accounts(id: 7, owner: NULL)`.
impl fmt::Display for RowView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.schema.table())?;
        for (position, column) in self.schema.columns().iter().enumerate() {
            let separator = if position == 0 { "" } else { ", " };
            write!(f, "{separator}{}: {}", column.name, self.get_ref(position))?;
        }
        f.write_str(")")
    }
}

impl fmt::Debug for RowView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A column, by position or by name.
pub trait ColumnRef {
    /// The column's position in the schema.
    ///
    /// # Errors
    /// [`Error::NoSuchColumn`].
    fn position(&self, schema: &Schema) -> Result<usize>;
}

impl ColumnRef for usize {
    #[inline]
    fn position(&self, schema: &Schema) -> Result<usize> {
        if *self < schema.columns().len() {
            return Ok(*self);
        }
        Err(Error::NoSuchColumn { table: schema.table().to_owned(), column: format!("number {self}") })
    }
}

impl ColumnRef for &str {
    fn position(&self, schema: &Schema) -> Result<usize> {
        schema.position_of(self)
    }
}

impl ColumnRef for &String {
    fn position(&self, schema: &Schema) -> Result<usize> {
        schema.position_of(self)
    }
}

#[inline]
pub(super) fn end_at(row: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([row[at], row[at + 1]]))
}

#[inline]
pub(super) fn variable_at<'r>(schema: &Schema, row: &'r [u8], slot: FieldSlot) -> &'r [u8] {
    let at = usize::from(slot.offset);
    let from = if at == schema.ends_at { schema.body_at } else { end_at(row, at - 2) };
    &row[from..end_at(row, at)]
}

/// The value in a row of the column that has this type and slot.
#[inline]
pub(super) fn value_at<'r>(
    schema: &Schema,
    row: &'r [u8],
    column: usize,
    ty: ColumnType,
    slot: FieldSlot,
) -> ValueRef<'r> {
    if slot.is_null(row) {
        return ValueRef::Null;
    }
    match ty {
        ColumnType::Bool => ValueRef::Bool(slot.fixed::<1>(row)[0] != 0),
        ColumnType::Int2 => ValueRef::Int2(i16::from_le_bytes(*slot.fixed(row))),
        ColumnType::Int4 => ValueRef::Int4(i32::from_le_bytes(*slot.fixed(row))),
        ColumnType::Int8 => ValueRef::Int8(i64::from_le_bytes(*slot.fixed(row))),
        ColumnType::Float8 => ValueRef::Float8(f64::from_le_bytes(*slot.fixed(row))),
        ColumnType::Decimal { scale, .. } => {
            let value = Decimal::new(i128::from_le_bytes(*slot.fixed(row)), scale);
            ValueRef::Decimal(value.unwrap_or_else(|| not_a_row(schema, column)))
        }
        ColumnType::Text | ColumnType::Char(_) => {
            let text = std::str::from_utf8(variable_at(schema, row, slot));
            ValueRef::Text(text.unwrap_or_else(|_| not_a_row(schema, column)))
        }
        ColumnType::Bytes => ValueRef::Bytes(variable_at(schema, row, slot)),
        ColumnType::Date => ValueRef::Date(i32::from_le_bytes(*slot.fixed(row))),
        ColumnType::Timestamp => ValueRef::Timestamp(i64::from_le_bytes(*slot.fixed(row))),
    }
}

#[cold]
fn not_a_row(schema: &Schema, column: usize) -> ! {
    let name = &schema.columns()[column].name;
    panic!(
        "bytes that are no row of \"{}\" (column \"{name}\") were read without RowView::validate",
        schema.table()
    )
}

#[cold]
pub(super) fn corrupt(schema: &Schema, offset: usize, what: String) -> Error {
    Error::Corrupt { file: format!("row of table {}", schema.table()), offset: offset as u64, what }
}

/// Which bytes may lie under a NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nulls {
    /// Zeros in a fixed column, and no bytes in a variable one.
    OverZeros,
    /// Any bytes: redo of one record may leave old bytes here, which a later record of the same packet overwrites.
    OverAnything,
}

/// The first place where the bytes are not a row of the schema, and what is wrong there. From such bytes no key can be
/// made and no value read.
pub(crate) fn damage(schema: &Schema, row: &[u8], nulls: Nulls) -> Option<(usize, String)> {
    if row.len() < schema.body_at {
        return Some((row.len(), format!("{} bytes, expected at least {}", row.len(), schema.body_at)));
    }
    if row.len() > ROW_BYTES_MAX {
        return Some((ROW_BYTES_MAX, format!("{} bytes, expected at most {ROW_BYTES_MAX}", row.len())));
    }
    let mut start = schema.body_at;
    let mut look = |position: usize| {
        let (column, slot) = (&schema.columns()[position], schema.slot(position));
        let at = usize::from(slot.offset);
        let (at, bytes) = if slot.len > 0 {
            (at, &row[at..at + usize::from(slot.len)])
        } else {
            let end = end_at(row, at);
            if end < start || end > row.len() {
                let what =
                    format!("column \"{}\" ends at {end}, expected {start} to {}", column.name, row.len());
                return Some((at, what));
            }
            let bytes = &row[start..end];
            (std::mem::replace(&mut start, end), bytes)
        };
        let what = match slot.is_null(row) {
            true => null_damage(column, bytes, nulls),
            false => value_damage(column, bytes),
        };
        what.map(|what| (at, format!("column \"{}\": {what}", column.name)))
    };
    let nulls_end = schema.null_bits.div_ceil(8);
    let found = if row[..nulls_end].iter().all(|byte| *byte == 0) {
        // The case of most rows: without a NULL any bytes are a number.
        schema.picky.iter().find_map(|position| look(usize::from(*position)))
    } else if !schema.null_bits.is_multiple_of(8) && row[nulls_end - 1] >> (schema.null_bits % 8) != 0 {
        let what = format!("null bits beyond the {} nullable columns", schema.null_bits);
        return Some((nulls_end - 1, what));
    } else {
        (0..schema.columns().len()).find_map(look)
    };
    found.or_else(|| ends_elsewhere(start, row.len()))
}

fn ends_elsewhere(expected: usize, found: usize) -> Option<(usize, String)> {
    (expected != found)
        .then(|| (expected, format!("the last column ends at {expected}, and the row at {found}")))
}

fn null_damage(column: &Column, bytes: &[u8], nulls: Nulls) -> Option<String> {
    if !column.nullable {
        return Some("a NULL in a column that takes none".to_owned());
    }
    let may_be = nulls == Nulls::OverAnything;
    if column.ty.fixed_bytes().is_none() {
        let may_be = may_be && !fault_injection::is_on("half-done-rows-are-damage");
        return (!may_be && !bytes.is_empty()).then(|| format!("{} bytes under a NULL", bytes.len()));
    }
    let has_other = bytes.iter().any(|byte| *byte != 0);
    (!may_be && has_other).then(|| "bytes that are not zero under a NULL".to_owned())
}

fn value_damage(column: &Column, bytes: &[u8]) -> Option<String> {
    match column.ty {
        ColumnType::Bool if bytes[0] > 1 => Some(format!("a bool of {}, expected 0 or 1", bytes[0])),
        ColumnType::Decimal { precision, scale } => {
            let unscaled = i128::from_le_bytes(bytes.try_into().expect("a decimal has 16 bytes"));
            let fits = Decimal::new(unscaled, scale).is_some_and(|value| value.fits_precision(precision));
            (!fits).then(|| format!("{unscaled} has more than {precision} digits"))
        }
        ColumnType::Text => std::str::from_utf8(bytes).err().map(|error| error.to_string()),
        ColumnType::Char(limit) => match std::str::from_utf8(bytes) {
            Err(error) => Some(error.to_string()),
            Ok(text) if text.ends_with(' ') => Some("trailing blanks in a char(n)".to_owned()),
            // There are no more characters than bytes.
            Ok(text) if text.len() > usize::from(limit) => {
                let length = text.chars().count();
                (length > usize::from(limit))
                    .then(|| format!("{length} characters, expected at most {limit}"))
            }
            Ok(_) => None,
        },
        _ => None,
    }
}
