//! [`Fields`]: a row that is being changed.

use std::cell::{Cell, OnceCell};
use std::hint::cold_path;

use crate::error::Result;
use crate::row::{ColumnType, FieldPatch, FieldPatches, RowEncoder, RowView, Schema, Value, ValueRef};
use crate::store::{BodyWords, RowLocation, TableVersion};
use crate::unlikely::unlikely;

/// The row that [`Transaction::modify`](super::Transaction::modify) changes: columns are read and set by their
/// position. Setting fixed columns (numbers, dates, booleans) costs a few bytes of log; setting a variable one (text,
/// bytes) logs the whole row. With [`Logging::Action`](crate::Logging::Action), adding to a column costs fewer bytes
/// than setting it.
///
/// Numbers are read where the row lies; the row is copied only for what needs all of it.
pub struct Fields<'a> {
    table: &'a TableVersion,
    /// The row as it was before the changes, locked.
    record: RowLocation,
    words: BodyWords<'a>,
    /// The body with all changes, once something has asked for all of it.
    body: OnceCell<&'a mut Vec<u8>>,
    /// Memory for the body, until then.
    spare: Cell<Option<&'a mut Vec<u8>>>,
    /// The changes, while the row keeps its shape.
    patches: &'a mut Vec<FieldPatch>,
    /// The range of the row in which all changes lie.
    changed: Changed,
    whole: bool,
}

/// A range of bytes of the row's fixed part.
#[derive(Clone, Copy)]
struct Changed {
    start: usize,
    end: usize,
}

impl Changed {
    const NOTHING: Changed = Changed { start: usize::MAX, end: 0 };
}

/// The result of the changes to [`Fields`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edited {
    /// The patches; there may be none.
    Fields,
    /// The patches, one of which is in a key, or may be.
    Keys,
    /// The row has to be written whole.
    Whole,
}

impl<'a> Fields<'a> {
    /// The fields of a row. The row lies unchanged in `record`; if `body_known`, as of every row in a page, `body` already
    /// has its body, otherwise `body` is only memory.
    #[inline]
    pub(crate) fn new(
        table: &'a TableVersion,
        record: RowLocation,
        body: &'a mut Vec<u8>,
        body_known: bool,
        patches: &'a mut Vec<FieldPatch>,
    ) -> Fields<'a> {
        patches.clear();
        let (body, spare) = match body_known {
            true => (OnceCell::from(body), None),
            false => (OnceCell::new(), Some(body)),
        };
        let words = table.store.words(record);
        Fields {
            table,
            record,
            words,
            body,
            spare: Cell::new(spare),
            patches,
            changed: Changed::NOTHING,
            whole: false,
        }
    }

    /// What has changed, beside the patches. Unless only fields have changed, the body is complete.
    #[inline]
    pub(crate) fn end(&self) -> Edited {
        let edited = match self.whole {
            false if !unlikely(self.touches_keys()) => return Edited::Fields,
            false => Edited::Keys,
            true => Edited::Whole,
        };
        cold_path();
        self.body();
        edited
    }

    #[inline]
    fn touches_keys(&self) -> bool {
        unlikely(self.schema().may_be_of_keys(self.changed.start)) && self.patches_touch_keys()
    }

    #[inline(never)]
    fn patches_touch_keys(&self) -> bool {
        self.patches.iter().any(|patch| self.schema().patch_touches_keys(patch.offset(), patch.len()))
    }

    fn schema(&self) -> &'a Schema {
        &self.table.schema
    }

    #[inline(never)]
    fn body(&self) -> &Vec<u8> {
        self.body.get_or_init(|| {
            let body = self.spare.take().expect("the memory for a body that is not there yet");
            self.table.store.read(self.record, body);
            let row = &mut body[self.table.row_at()..];
            self.patches.iter().for_each(|patch| patch.apply(row));
            body
        })
    }

    /// The row with its changes.
    pub fn row(&self) -> RowView<'_> {
        RowView::new(&self.table.schema, &self.body()[self.table.row_at()..])
    }

    /// Bytes of the row's fixed part, with its changes.
    #[inline(always)]
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        if unlikely(self.has_changed(at, N)) {
            return *self.row().bytes()[at..].first_chunk().expect("a row holds its fixed fields");
        }
        self.stored(at)
    }

    /// The same bytes before the changes.
    #[inline(always)]
    fn stored<const N: usize>(&self, at: usize) -> [u8; N] {
        self.words.field(self.table.row_at() + at)
    }

    /// Whether any of `len` bytes of the row at `at` may have changed, or the body has been made.
    #[inline(always)]
    fn has_changed(&self, at: usize, len: usize) -> bool {
        self.body.get().is_some() || at < self.changed.end && self.changed.start < at + len
    }

    /// Where a column's value lies, if the column is of this type and is not NULL.
    #[inline(always)]
    fn plain_at(&self, column: usize, ty: ColumnType) -> Option<usize> {
        let Some(slot) = self.table.schema.slot_of(column, ty) else {
            cold_path();
            return None;
        };
        if let Some(bit) = slot.null_bit {
            let [nulls] = self.bytes(usize::from(bit / 8));
            if unlikely(nulls & (1 << (bit % 8)) != 0) {
                return None;
            }
        }
        Some(usize::from(slot.offset))
    }

    /// The bytes of such a value.
    #[inline(always)]
    fn plain<const N: usize>(&self, column: usize, ty: ColumnType) -> Option<[u8; N]> {
        self.plain_at(column, ty).map(|at| self.bytes(at))
    }

    /// A column's value.
    pub fn get(&self, column: usize) -> Value {
        self.row().get(column)
    }

    /// An int4 column's value.
    ///
    /// # Errors
    /// If the column is of another type, or NULL.
    #[inline(always)]
    pub fn get_i32(&self, column: usize) -> Result<i32> {
        if let Some(bytes) = self.plain(column, ColumnType::Int4) {
            return Ok(i32::from_le_bytes(bytes));
        }
        cold_path();
        self.row().get_i32(column)
    }

    /// An int8 column's value.
    ///
    /// # Errors
    /// If the column is of another type, or NULL.
    #[inline(always)]
    pub fn get_i64(&self, column: usize) -> Result<i64> {
        if let Some(bytes) = self.plain(column, ColumnType::Int8) {
            return Ok(i64::from_le_bytes(bytes));
        }
        cold_path();
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
    #[inline(always)]
    pub fn set_i32(&mut self, column: usize, value: i32) -> Result<()> {
        if let Some(at) = self.plain_at(column, ColumnType::Int4) {
            self.put(at, &value.to_le_bytes());
            return Ok(());
        }
        cold_path();
        self.set_ref(column, ValueRef::Int4(value))
    }

    /// Sets an int8 column.
    ///
    /// # Errors
    /// If the column does not take it.
    #[inline(always)]
    pub fn set_i64(&mut self, column: usize, value: i64) -> Result<()> {
        if let Some(at) = self.plain_at(column, ColumnType::Int8) {
            self.put(at, &value.to_le_bytes());
            return Ok(());
        }
        cold_path();
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
    #[inline(always)]
    pub fn add_i64(&mut self, column: usize, delta: i64) -> Result<i64> {
        if let Some(at) = self.plain_at(column, ColumnType::Int8)
            && !unlikely(self.has_changed(at, 8))
            && let Some(sum) = i64::from_le_bytes(self.stored(at)).checked_add(delta)
        {
            self.push_patch(FieldPatch::of_sum(at as u16, &sum.to_le_bytes(), delta));
            return Ok(sum);
        }
        cold_path();
        self.add_i64_again(column, delta)
    }

    /// The same for a column that may have changed.
    #[inline(never)]
    fn add_i64_again(&mut self, column: usize, delta: i64) -> Result<i64> {
        if let Some(at) = self.plain_at(column, ColumnType::Int8)
            && let Some(sum) = i64::from_le_bytes(self.bytes(at)).checked_add(delta)
        {
            self.put_patch(FieldPatch::of_sum(at as u16, &sum.to_le_bytes(), delta));
            return Ok(sum);
        }
        self.add_any(column, delta)
    }

    /// Adds to an int4 column and gives the sum.
    ///
    /// # Errors
    /// If the column is of another type or NULL, or the sum is out of range.
    #[inline(always)]
    pub fn add_i32(&mut self, column: usize, delta: i32) -> Result<i32> {
        if let Some(at) = self.plain_at(column, ColumnType::Int4)
            && !unlikely(self.has_changed(at, 4))
            && let Some(sum) = i32::from_le_bytes(self.stored(at)).checked_add(delta)
        {
            self.push_patch(FieldPatch::of_sum(at as u16, &sum.to_le_bytes(), i64::from(delta)));
            return Ok(sum);
        }
        cold_path();
        self.add_i32_again(column, delta)
    }

    /// The same for a column that may have changed.
    #[inline(never)]
    fn add_i32_again(&mut self, column: usize, delta: i32) -> Result<i32> {
        if let Some(at) = self.plain_at(column, ColumnType::Int4)
            && let Some(sum) = i32::from_le_bytes(self.bytes(at)).checked_add(delta)
        {
            self.put_patch(FieldPatch::of_sum(at as u16, &sum.to_le_bytes(), i64::from(delta)));
            return Ok(sum);
        }
        let sum = i64::from(self.get_i32(column)?) + i64::from(delta);
        let sum = i32::try_from(sum).map_err(|_| self.out_of_range(column, sum.into()))?;
        self.set_i32(column, sum)?;
        Ok(sum)
    }

    /// Adds to a column of any integer type (int2, int4, int8) and returns the sum. With
    /// [`Logging::Action`](crate::Logging::Action) the increment is logged, here as in [`add_i64`](Fields::add_i64) and
    /// [`add_i32`](Fields::add_i32): fewer bytes than the sum.
    ///
    /// # Errors
    /// If the column is of another type or NULL, or the sum is out of range.
    #[inline]
    pub fn add(&mut self, column: usize, delta: i64) -> Result<i64> {
        match self.schema().columns().get(column).map(|column| column.ty) {
            Some(ColumnType::Int4) if i32::try_from(delta).is_ok() => {
                self.add_i32(column, delta as i32).map(i64::from)
            }
            Some(ColumnType::Int2) => self.add_i16(column, delta),
            _ => self.add_i64(column, delta),
        }
    }

    #[inline(never)]
    fn add_i16(&mut self, column: usize, delta: i64) -> Result<i64> {
        let Some(at) = self.plain_at(column, ColumnType::Int2) else { return self.add_any(column, delta) };
        let before = i16::from_le_bytes(self.bytes(at));
        let sum = i128::from(before) + i128::from(delta);
        let short = i16::try_from(sum).map_err(|_| self.out_of_range(column, sum))?;
        self.put_patch(FieldPatch::of_sum(at as u16, &short.to_le_bytes(), delta));
        Ok(i64::from(short))
    }

    /// Adds to a column of any integer type.
    #[inline(never)]
    fn add_any(&mut self, column: usize, delta: i64) -> Result<i64> {
        let before = self.row().get_i64(column)?;
        let Some(sum) = before.checked_add(delta) else {
            return Err(self.out_of_range(column, i128::from(before) + i128::from(delta)));
        };
        self.set_ref(column, ValueRef::Int8(sum))?;
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
    #[inline(always)]
    fn put<const N: usize>(&mut self, at: usize, bytes: &[u8; N]) {
        self.put_patch(FieldPatch::new(at as u16, bytes));
    }

    #[inline(always)]
    fn put_patch(&mut self, patch: FieldPatch) {
        match unlikely(self.has_changed(usize::from(patch.offset()), usize::from(patch.len()))) {
            true => self.put_patch_again(patch),
            false => self.push_patch(patch),
        }
    }

    /// Adds a patch of bytes that have not changed.
    #[inline(always)]
    fn push_patch(&mut self, patch: FieldPatch) {
        let (at, len) = (usize::from(patch.offset()), usize::from(patch.len()));
        self.patches.push(patch);
        let Changed { start, end } = self.changed;
        self.changed = Changed { start: start.min(at), end: end.max(at + len) };
    }

    /// The same where there may be an earlier patch of the same bytes, or the body has been made.
    #[inline(never)]
    fn put_patch_again(&mut self, patch: FieldPatch) {
        self.note(patch);
        if let Some(body) = self.body.get_mut() {
            patch.apply(&mut body[self.table.row_at()..]);
        }
    }

    /// Adds a patch, or replaces an earlier patch of the same bytes.
    fn note(&mut self, patch: FieldPatch) {
        let same = |other: &&mut FieldPatch| other.offset() == patch.offset() && other.len() == patch.len();
        match self.patches.iter_mut().find(same) {
            Some(earlier) => *earlier = patch.after(earlier),
            None => self.push_patch(patch),
        }
    }

    fn body_mut(&mut self) -> &mut Vec<u8> {
        self.body();
        self.body.get_mut().expect("just made")
    }

    #[inline(never)]
    fn set_ref(&mut self, column: usize, value: ValueRef<'_>) -> Result<()> {
        if self.schema().fixed_field(column).is_some() {
            let mut patches = FieldPatches::new();
            self.schema().patch_field(self.row().bytes(), column, value, &mut patches)?;
            self.apply(&patches);
            return Ok(());
        }
        if !self.schema().keys_can_be_too_long {
            let (schema, row_at) = (self.schema(), self.table.row_at());
            self.whole |= schema.write_variable(self.body_mut(), row_at, column, value)?;
            return Ok(());
        }
        let old = self.row();
        let mut row = Vec::with_capacity(2 * old.bytes().len());
        let mut encoder = RowEncoder::new(self.schema(), &mut row);
        for position in 0..self.schema().columns().len() {
            encoder.put(if position == column { value } else { old.get_ref(position) })?;
        }
        encoder.finish()?;
        if row != self.row().bytes() {
            self.put_whole(&row);
        }
        Ok(())
    }

    /// Sets all columns to those of an encoded row of the table, and logs those that differ.
    pub(crate) fn replace(&mut self, row: &[u8]) {
        let mut patches = FieldPatches::new();
        match self.schema().diff(self.row().bytes(), row, &mut patches) {
            true => self.apply(&patches),
            false => self.put_whole(row),
        }
    }

    fn apply(&mut self, patches: &FieldPatches) {
        let row_at = self.table.row_at();
        for patch in patches {
            patch.apply(&mut self.body_mut()[row_at..]);
            self.note(*patch);
        }
    }

    fn put_whole(&mut self, row: &[u8]) {
        let row_at = self.table.row_at();
        let body = self.body_mut();
        body.truncate(row_at);
        body.extend_from_slice(row);
        self.whole = true;
    }
}
