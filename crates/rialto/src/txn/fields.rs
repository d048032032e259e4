//! [`Fields`]: a row that is being changed.

use crate::catalog::TableVersion;
use crate::error::Result;
use crate::row::{ColumnType, FieldPatches, RowView, Schema, Value, ValueRef, encode};

/// The row that [`Transaction::modify`](super::Transaction::modify) changes: columns are read and set by their
/// position. Setting fixed columns (numbers, dates, booleans) costs a few bytes of log; setting a variable one (text,
/// bytes) logs the whole row.
pub struct Fields<'a> {
    table: &'a TableVersion,
    /// The body as it will be.
    body: &'a mut Vec<u8>,
    /// Changed ranges of the row, offset and length, while the row keeps its shape.
    ranges: &'a mut Vec<(u16, u16)>,
    whole: bool,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(
        table: &'a TableVersion,
        body: &'a mut Vec<u8>,
        ranges: &'a mut Vec<(u16, u16)>,
    ) -> Fields<'a> {
        ranges.clear();
        Fields { table, body, ranges, whole: false }
    }

    /// Whether the row has to be written whole.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    fn schema(&self) -> &'a Schema {
        &self.table.schema
    }

    /// The row as it is now, changes included.
    pub fn row(&self) -> RowView<'_> {
        RowView::new(&self.table.schema, &self.body[self.table.row_at()..])
    }

    /// A column's value.
    pub fn get(&self, column: usize) -> Value {
        self.row().get(column)
    }

    /// An int4 column's value.
    ///
    /// # Errors
    /// If the column is of another type, or NULL.
    pub fn get_i32(&self, column: usize) -> Result<i32> {
        self.row().get_i32(column)
    }

    /// An int8 column's value.
    ///
    /// # Errors
    /// If the column is of another type, or NULL.
    #[inline]
    pub fn get_i64(&self, column: usize) -> Result<i64> {
        self.row().get_i64(column)
    }

    /// A float8 column's value.
    ///
    /// # Errors
    /// If the column is of another type, or NULL.
    pub fn get_f64(&self, column: usize) -> Result<f64> {
        self.row().get_f64(column)
    }

    /// Sets a column.
    ///
    /// # Errors
    /// A value that the column does not take.
    pub fn set(&mut self, column: usize, value: &Value) -> Result<()> {
        self.set_ref(column, value.borrow())
    }

    /// Sets an int4 column.
    ///
    /// # Errors
    /// If the column does not take it.
    #[inline]
    pub fn set_i32(&mut self, column: usize, value: i32) -> Result<()> {
        if let Some(at) = self.table.schema.plain_field(column, ColumnType::Int4) {
            self.put(at, &value.to_le_bytes());
            return Ok(());
        }
        self.set_ref(column, ValueRef::Int4(value))
    }

    /// Sets an int8 column.
    ///
    /// # Errors
    /// If the column does not take it.
    #[inline]
    pub fn set_i64(&mut self, column: usize, value: i64) -> Result<()> {
        if let Some(at) = self.table.schema.plain_field(column, ColumnType::Int8) {
            self.put(at, &value.to_le_bytes());
            return Ok(());
        }
        self.set_ref(column, ValueRef::Int8(value))
    }

    /// Sets a float8 column.
    ///
    /// # Errors
    /// If the column does not take it.
    pub fn set_f64(&mut self, column: usize, value: f64) -> Result<()> {
        self.set_ref(column, ValueRef::Float8(value))
    }

    /// Adds to an int8 column and gives the sum.
    ///
    /// # Errors
    /// If the column is of another type or NULL, or the sum is out of range.
    pub fn add_i64(&mut self, column: usize, delta: i64) -> Result<i64> {
        let sum = i128::from(self.get_i64(column)?) + i128::from(delta);
        let sum = i64::try_from(sum).map_err(|_| self.out_of_range(column, sum))?;
        self.set_i64(column, sum)?;
        Ok(sum)
    }

    /// Adds to an int4 column and gives the sum.
    ///
    /// # Errors
    /// If the column is of another type or NULL, or the sum is out of range.
    pub fn add_i32(&mut self, column: usize, delta: i32) -> Result<i32> {
        let sum = i64::from(self.get_i32(column)?) + i64::from(delta);
        let sum = i32::try_from(sum).map_err(|_| self.out_of_range(column, sum.into()))?;
        self.set_i32(column, sum)?;
        Ok(sum)
    }

    #[cold]
    fn out_of_range(&self, column: usize, value: i128) -> crate::Error {
        let column = &self.schema().columns()[column];
        crate::Error::OutOfRange {
            column: column.name.clone(),
            value: value.to_string(),
            type_name: column.ty.to_string(),
        }
    }

    /// Puts the bytes of a fixed field.
    #[inline]
    fn put<const N: usize>(&mut self, at: usize, bytes: &[u8; N]) {
        let field = self.body[self.table.row_at() + at..].first_chunk_mut();
        *field.expect("a row holds its fixed fields") = *bytes;
        let range = (at as u16, N as u16);
        if !self.ranges.contains(&range) {
            self.ranges.push(range);
        }
    }

    fn set_ref(&mut self, column: usize, value: ValueRef<'_>) -> Result<()> {
        let row_at = self.table.row_at();
        if self.schema().fixed_field(column).is_some() {
            let mut patches = FieldPatches::new();
            self.schema().patch_field(&self.body[row_at..], column, value, &mut patches)?;
            self.apply(&patches);
            return Ok(());
        }
        let mut values = self.row().values();
        values[column] = value.to_value();
        let mut row = Vec::new();
        encode(self.schema(), &values, &mut row)?;
        if row != self.body[row_at..] {
            self.put_whole(&row);
        }
        Ok(())
    }

    /// Sets all columns to those of an encoded row of the table; logs those that differ.
    pub(crate) fn replace(&mut self, row: &[u8]) {
        let mut patches = FieldPatches::new();
        match self.schema().diff(&self.body[self.table.row_at()..], row, &mut patches) {
            true => self.apply(&patches),
            false => self.put_whole(row),
        }
    }

    fn apply(&mut self, patches: &FieldPatches) {
        let row_at = self.table.row_at();
        for patch in patches {
            patch.apply(&mut self.body[row_at..]);
            self.ranges.push((patch.offset(), u16::from(patch.len())));
        }
    }

    fn put_whole(&mut self, row: &[u8]) {
        self.body.truncate(self.table.row_at());
        self.body.extend_from_slice(row);
        self.whole = true;
    }
}
