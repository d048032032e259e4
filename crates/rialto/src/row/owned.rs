//! [`Row`]: a row that owns its bytes.

use std::fmt;
use std::sync::Arc;

use super::encode::fixed_bytes;
use super::{ColumnRef, Field, RowView, Schema, Value, ValueRef, encode};
use crate::Result;

/// A row of a table, owned: what the by-name interface returns.
///
/// Invariant: if `checked`, the bytes are a row of the schema: encoded for it, or read from a table.
#[derive(Clone)]
pub struct Row {
    schema: Arc<Schema>,
    bytes: Vec<u8>,
    checked: bool,
}

impl Row {
    /// The row of these bytes, which the caller knows to be a row (see [`RowView`]): they are not checked before the
    /// row is inserted.
    pub fn new(schema: Arc<Schema>, bytes: Vec<u8>) -> Row {
        Row { schema, bytes, checked: false }
    }

    /// The row of these bytes, which were read from a table of this schema.
    #[inline]
    pub(crate) fn stored(schema: Arc<Schema>, bytes: Vec<u8>) -> Row {
        Row { schema, bytes, checked: true }
    }

    /// The row of these values.
    ///
    /// # Errors
    /// As [`encode()`].
    pub fn from_values(schema: Arc<Schema>, values: &[Value]) -> Result<Row> {
        let mut bytes = Vec::new();
        encode(&schema, values, &mut bytes)?;
        Ok(Row { schema, bytes, checked: true })
    }

    /// The row, borrowed.
    #[inline]
    pub fn view(&self) -> RowView<'_> {
        RowView::new(&self.schema, &self.bytes)
    }

    /// The schema.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Makes this the row of these bytes, which the caller knows to be a row of `schema`, as in [`Row::new`]. Keeps the
    /// memory.
    pub fn replace(&mut self, schema: &Arc<Schema>, bytes: &[u8]) {
        self.replace_by_stored(schema, bytes);
        self.checked = false;
    }

    /// Makes this the row of these bytes, which were read from a table of this schema. Keeps the memory.
    #[inline]
    pub(crate) fn replace_by_stored(&mut self, schema: &Arc<Schema>, bytes: &[u8]) {
        self.checked = true;
        if !Arc::ptr_eq(&self.schema, schema) {
            self.schema = schema.clone();
        }
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether the bytes are certainly a row of this schema.
    #[inline]
    pub(crate) fn is_row_of(&self, schema: &Arc<Schema>) -> bool {
        self.checked && Arc::ptr_eq(&self.schema, schema)
    }

    /// The row's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The row's bytes, without a copy.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// A column's value, the column given by position or by name; see [`RowView::get`].
    ///
    /// # Errors
    /// [`Error::NoSuchColumn`](crate::Error::NoSuchColumn).
    pub fn get(&self, column: impl ColumnRef) -> Result<Value> {
        Ok(self.view().get(column.position(&self.schema)?))
    }

    /// A column's value as a Rust value; see [`RowView::read`], also for the errors.
    pub fn read<T: Field>(&self, column: impl ColumnRef) -> Result<T> {
        self.view().read(column)
    }

    /// All values.
    pub fn values(&self) -> Vec<Value> {
        self.view().values()
    }

    /// Sets a column. A number, date or boolean is set in place; a row whose text changes is encoded anew.
    ///
    /// # Errors
    /// As [`encode()`]; then the row is unchanged. [`Error::NoSuchColumn`](crate::Error::NoSuchColumn).
    #[inline(always)]
    pub fn set(&mut self, column: impl ColumnRef, value: &impl Field) -> Result<()> {
        let column = column.position(&self.schema)?;
        let value = value.to_ref();
        if let Some(ty) = value.plain_type()
            && let Some(at) = self.schema.plain_field(column, ty)
        {
            let (bytes, length) = fixed_bytes(value);
            self.bytes[at..at + length].copy_from_slice(&bytes[..length]);
            return Ok(());
        }
        self.set_any(column, value)
    }

    #[inline(never)]
    fn set_any(&mut self, column: usize, value: ValueRef<'_>) -> Result<()> {
        if self.schema.fixed_field(column).is_some() {
            return self.schema.write_fixed(&mut self.bytes, column, &value.to_value());
        }
        let mut values = self.values();
        values[column] = value.to_value();
        let mut bytes = Vec::with_capacity(self.bytes.len());
        encode(&self.schema, &values, &mut bytes)?;
        self.bytes = bytes;
        Ok(())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

/// Equal if they are of one table and have the same bytes.
impl PartialEq for Row {
    fn eq(&self, other: &Row) -> bool {
        self.schema.table() == other.schema.table() && self.bytes == other.bytes
    }
}
