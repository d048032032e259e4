//! [`KeyShape`]: which columns make an index's key, and how the key is made from a row, from values, and read back.

use super::key::{self, Key};
use super::view::{self, RowView};
use super::{Column, FieldSlot, IndexDef, IntoKey, KEY_BYTES_MAX, Schema, Value, ValueRef, WhichIndex};
use crate::{Error, Result};

/// The kinds of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShapeKind {
    /// The hidden row number of a table without a primary key: 8 bytes, big endian.
    RowNumber,
    /// The columns, none of them NULL.
    Primary,
    /// The columns; if one of them is NULL, also the primary key behind them, since NULLs are distinct.
    Unique,
    /// The columns and the primary key behind them.
    NonUnique,
}

/// A column of a key.
#[derive(Clone, Debug)]
pub(super) struct KeyColumn {
    pub(super) column: Column,
    pub(super) position: usize,
    slot: FieldSlot,
}

/// The columns of an index's key. Get it from [`Schema::key_shape`]; encode to it with [`IntoKey`](super::IntoKey).
#[derive(Clone, Debug)]
pub struct KeyShape {
    table: String,
    name: String,
    kind: ShapeKind,
    pub(super) columns: Box<[KeyColumn]>,
    bytes_min: usize,
    bytes_max: Option<usize>,
}

impl KeyShape {
    /// Where, in a row's fixed part, the last of the key's fields and null bits ends.
    pub(super) fn fixed_end(&self) -> u16 {
        let end = |column: &KeyColumn| {
            let null_end = column.slot.null_bit.map_or(0, |bit| bit / 8 + 1);
            null_end.max(column.slot.offset + u16::from(column.slot.len))
        };
        self.columns.iter().map(end).max().unwrap_or(0)
    }

    pub(super) fn of_row_number(table: &str) -> KeyShape {
        let name = format!("{table} (row number)");
        let (table, columns) = (table.to_owned(), Box::default());
        KeyShape { table, name, kind: ShapeKind::RowNumber, columns, bytes_min: 8, bytes_max: Some(8) }
    }

    pub(super) fn of_primary_key(
        table: &str,
        name: String,
        key: &[usize],
        columns: &[Column],
        slots: &[FieldSlot],
    ) -> KeyShape {
        KeyShape::of_columns(table, name, ShapeKind::Primary, key, columns, slots)
    }

    pub(super) fn of_index(
        table: &str,
        index: &IndexDef,
        columns: &[Column],
        slots: &[FieldSlot],
    ) -> KeyShape {
        let kind = if index.unique { ShapeKind::Unique } else { ShapeKind::NonUnique };
        KeyShape::of_columns(table, index.name.clone(), kind, &index.columns, columns, slots)
    }

    fn of_columns(
        table: &str,
        name: String,
        kind: ShapeKind,
        key: &[usize],
        columns: &[Column],
        slots: &[FieldSlot],
    ) -> KeyShape {
        let columns: Box<[KeyColumn]> = key
            .iter()
            .map(|&position| KeyColumn { column: columns[position].clone(), position, slot: slots[position] })
            .collect();
        let bytes = columns.iter().map(|column| key::bytes_of_column(&column.column));
        let bytes_min = bytes.clone().map(|(least, _)| least).sum();
        let bytes_max = bytes.map(|(_, most)| most).sum();
        KeyShape { table: table.to_owned(), name, kind, columns, bytes_min, bytes_max }
    }

    /// About how many bytes it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        let columns = self.columns.iter().map(|column| size_of::<KeyColumn>() + column.column.name.len());
        size_of::<KeyShape>() + self.table.len() + self.name.len() + columns.sum::<usize>()
    }

    /// The index's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The table's name.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// The columns, the most significant first; none if the key is a row number.
    pub fn columns(&self) -> impl ExactSizeIterator<Item = &Column> {
        self.columns.iter().map(|column| &column.column)
    }

    /// Whether the key is the hidden row number of a table without a primary key.
    #[inline]
    pub fn is_row_number(&self) -> bool {
        self.kind == ShapeKind::RowNumber
    }

    /// Whether no two rows have the same values in the columns, unless one of them is NULL.
    pub fn is_unique(&self) -> bool {
        self.kind != ShapeKind::NonUnique
    }

    /// The fewest bytes that the columns take.
    pub(super) fn bytes_min(&self) -> usize {
        self.bytes_min
    }

    /// The most bytes that the columns take, if there is a bound.
    pub(super) fn bytes_max(&self) -> Option<usize> {
        self.bytes_max
    }

    /// Whether some of the index's keys end in the primary key.
    pub(super) fn may_append_primary_key(&self) -> bool {
        match self.kind {
            ShapeKind::RowNumber | ShapeKind::Primary => false,
            ShapeKind::Unique => self.columns.iter().any(|column| column.column.nullable),
            ShapeKind::NonUnique => true,
        }
    }

    /// Appends a value of the key's `nth` column, checked against its type.
    #[inline(never)]
    pub(super) fn append_value(&self, nth: usize, value: ValueRef<'_>, out: &mut Key) -> Result<()> {
        let column = &self.columns[nth].column;
        let value = value.coerce(&self.table, column)?;
        if let Some(bytes) = value.variable_bytes()
            && bytes.len() > KEY_BYTES_MAX
        {
            return Err(self.too_long(out.len() + key::escaped_len(bytes)));
        }
        key::append(column, value, out);
        Ok(())
    }

    /// An error if `found` values are not what the key takes.
    #[cold]
    pub(crate) fn wrong_columns(&self, found: usize) -> Error {
        let columns: Vec<String> =
            self.columns().map(|column| format!("{} {}", column.name, column.ty)).collect();
        let expected = if self.is_row_number() { "row number".to_owned() } else { columns.join(", ") };
        Error::KeyColumns { index: self.name.clone(), expected, found }
    }

    #[inline]
    pub(crate) fn check_length(&self, key: &[u8]) -> Result<()> {
        if key.len() > KEY_BYTES_MAX { Err(self.too_long(key.len())) } else { Ok(()) }
    }

    #[cold]
    fn too_long(&self, length: usize) -> Error {
        Error::KeyTooLong { index: self.name.clone(), length, limit: KEY_BYTES_MAX }
    }

    fn append_row(&self, row: &[u8], schema: &Schema, out: &mut Key) -> bool {
        let mut any_null = false;
        for KeyColumn { column, position, slot } in &self.columns {
            let value = view::value_at(schema, row, *position, column.ty, *slot);
            any_null |= matches!(value, ValueRef::Null);
            key::append(column, value, out);
        }
        any_null
    }

    /// The most bytes that the columns can come to take in this row's key by changes to its fixed columns.
    fn bytes_with(&self, view: RowView<'_>) -> usize {
        if self.is_row_number() {
            return self.bytes_min;
        }
        let bytes = |column: &KeyColumn| match key::bytes_of_column(&column.column) {
            (_, Some(most)) if column.slot.len > 0 => most,
            (least, _) => least - 1 + key::escaped_len(view.variable(column.position)),
        };
        self.columns.iter().map(bytes).sum()
    }

    fn decode(&self, mut bytes: &[u8]) -> Option<Vec<Value>> {
        if self.is_row_number() {
            let number = u64::from_be_bytes(bytes.try_into().ok()?);
            return Some(vec![Value::Int8(i64::try_from(number).ok()?)]);
        }
        let mut values = Vec::with_capacity(self.columns.len());
        for column in self.columns() {
            if bytes.is_empty() {
                break;
            }
            values.push(key::take(column, &mut bytes)?);
        }
        Some(values)
    }
}

/// Keys. Each method replaces the contents of `out`; `row` is a row of this schema.
impl Schema {
    /// The primary key of a row; for a table without one, `row_number`, which is ignored otherwise.
    #[inline]
    pub fn primary_key_of_row(&self, row: &[u8], row_number: u64, out: &mut Key) {
        out.clear();
        match self.primary_shape.kind {
            ShapeKind::RowNumber => out.extend_from_slice(&row_number.to_be_bytes()),
            _ => {
                self.primary_shape.append_row(row, self, out);
            }
        }
    }

    /// The primary key of these values, one for each of its columns.
    ///
    /// # Errors
    /// [`Error::KeyColumns`] for another number of values, [`Error::KeyTooLong`], and as [`encode`](super::encode())
    /// for a value that its column does not take.
    pub fn encode_primary_key(&self, values: &[Value], out: &mut Key) -> Result<()> {
        values.encode_into(&self.primary_shape, out)
    }

    /// The common prefix of all primary keys whose first columns have these values.
    ///
    /// # Errors
    /// As [`Schema::encode_primary_key`], except that fewer values are not an error.
    pub fn encode_primary_prefix(&self, values: &[Value], out: &mut Key) -> Result<()> {
        values.encode_prefix_into(&self.primary_shape, out)
    }

    /// The key of a row in the secondary index at this position in [`Schema::indexes`]: the index's columns; then
    /// `primary_key`, the row's own, if the index is not unique or one of its columns is NULL.
    pub fn index_key_of_row(&self, index: usize, row: &[u8], primary_key: &[u8], out: &mut Key) {
        out.clear();
        let shape = &self.index_shapes[index];
        let any_null = shape.append_row(row, self, out);
        if any_null || shape.kind == ShapeKind::NonUnique {
            out.extend_from_slice(primary_key);
        }
    }

    /// The common prefix of all keys of a secondary index whose first columns have these values. With values for all
    /// columns of a unique index, none of them NULL, it is the key.
    ///
    /// # Errors
    /// As [`Schema::encode_primary_prefix`].
    pub fn encode_index_prefix(&self, index: usize, values: &[Value], out: &mut Key) -> Result<()> {
        values.encode_prefix_into(&self.index_shapes[index], out)
    }

    /// The values of the index's own columns in a key or in a prefix of one; a row number as an int8.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the bytes are not a key of the index.
    pub fn decode_key(&self, index: WhichIndex, key: &[u8]) -> Result<Vec<Value>> {
        let shape = self.key_shape(index);
        shape.decode(key).ok_or_else(|| Error::Corrupt {
            file: format!("key of index {}", shape.name),
            offset: 0,
            what: format!("expected the columns ({}), found {:?}", self.print_columns(index), Key::from(key)),
        })
    }

    /// A key or a prefix of one in text, by column, for messages: `(branch, id)=(3, 7)`. Bytes that are no key are
    /// printed as bytes.
    pub fn print_key(&self, index: WhichIndex, key: &[u8]) -> String {
        let mut text = format!("({})=(", self.print_columns(index));
        match self.key_shape(index).decode(key) {
            Some(values) => {
                let values: Vec<String> = values.iter().map(Value::to_string).collect();
                text.push_str(&values.join(", "));
            }
            None => key::print_bytes(key, &mut text).expect("a string takes all that is written to it"),
        }
        text.push(')');
        text
    }

    fn print_columns(&self, index: WhichIndex) -> String {
        let shape = self.key_shape(index);
        if shape.is_row_number() {
            return "row number".to_owned();
        }
        shape.columns().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Whether a change of `len` bytes at `offset` of a row's fixed part can change the row's key in an index. It may
    /// say yes for a key that stays the same (null bits share bytes), but never no for one that changes.
    pub fn patch_touches_key(&self, index: WhichIndex, offset: u16, len: u8) -> bool {
        let patch = usize::from(offset)..usize::from(offset) + usize::from(len);
        let overlaps = |from: usize, len: usize| from < patch.end && patch.start < from + len;
        self.key_shape(index).columns.iter().any(|KeyColumn { slot, .. }| {
            overlaps(slot.offset.into(), slot.len.into())
                || slot.null_bit.is_some_and(|bit| overlaps(usize::from(bit / 8), 1))
        })
    }

    /// Whether two rows have the same primary key as far as its fixed columns tell, without a NULL there. Different
    /// bytes can be one key: 0 and -0, and all NaNs.
    pub(crate) fn same_key_fields(&self, row: &[u8], other: &[u8]) -> bool {
        let encoded = |KeyColumn { column, position, slot }: &KeyColumn, row: &[u8]| {
            let mut out = Key::new();
            key::append(column, view::value_at(self, row, *position, column.ty, *slot), &mut out);
            out
        };
        self.primary_shape.columns.iter().all(|column| {
            let slot = column.slot;
            let field = usize::from(slot.offset)..usize::from(slot.offset) + usize::from(slot.len);
            let same = row[field.clone()] == other[field] || encoded(column, row) == encoded(column, other);
            same && !slot.is_null(row) && !slot.is_null(other)
        })
    }

    /// Whether a byte at this offset of a row's fixed part, or a later one, can belong to a key.
    #[inline]
    pub(crate) fn may_be_of_keys(&self, offset: usize) -> bool {
        offset < usize::from(self.keys_end)
    }

    /// The same for the keys of all indexes, the primary one among them.
    pub fn patch_touches_keys(&self, offset: u16, len: u8) -> bool {
        self.may_be_of_keys(usize::from(offset))
            && (self.patch_touches_key(WhichIndex::Primary, offset, len)
                || (0..self.index_shapes.len())
                    .any(|position| self.patch_touches_key(WhichIndex::Secondary(position), offset, len)))
    }

    /// An error if a key of this row is too long, or could become so by changes to its fixed columns alone. So such a
    /// change cannot fail later.
    pub(crate) fn check_key_lengths(&self, row: &[u8]) -> Result<()> {
        if !self.keys_can_be_too_long {
            return Ok(());
        }
        let view = RowView::new(self, row);
        let primary = self.primary_shape.bytes_with(view);
        if primary > KEY_BYTES_MAX {
            return Err(self.primary_shape.too_long(primary));
        }
        for shape in &self.index_shapes {
            let bytes = shape.bytes_with(view) + if shape.may_append_primary_key() { primary } else { 0 };
            if bytes > KEY_BYTES_MAX {
                return Err(shape.too_long(bytes));
            }
        }
        Ok(())
    }
}
