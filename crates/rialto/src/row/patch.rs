//! [`FieldPatch`]: a change of a fixed column, as bytes at an offset of the row, or as an addition.

use smallvec::SmallVec;

use super::encode::fixed_bytes;
use super::view::{corrupt, end_at, variable_at};
use super::{ROW_BYTES_MAX, Schema, Value, ValueRef};
use crate::{Error, Result};

/// Bytes to be put at an offset of a row. A change of one field is one patch, or two if the field becomes NULL or
/// ceases to be NULL. Applied to the row that it was made from, it gives the row that encoding the new values gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldPatch {
    offset: u16,
    len: u8,
    /// Whether an integer was added to; then the addend lies behind the new bytes, in the last eight.
    adds: bool,
    bytes: [u8; 16],
}

/// What an operation does to a field, as action logging logs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldChange<'a> {
    /// The field gets these bytes.
    Set(&'a [u8]),
    /// The field is an integer of `length` bytes, and grows by `delta`.
    Add { length: u8, delta: i64 },
}

impl FieldChange<'_> {
    /// Bytes of the field.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            FieldChange::Set(bytes) => bytes.len(),
            FieldChange::Add { length, .. } => usize::from(*length),
        }
    }

    /// Changes the field. An integer that passes its range (only in a forged log) wraps around.
    #[inline]
    pub fn apply(&self, field: &mut [u8]) {
        match self {
            FieldChange::Set(bytes) => field.copy_from_slice(bytes),
            FieldChange::Add { delta, .. } => {
                // Two's complement: the low bytes of a sum are those of the sum of the low bytes.
                let mut sum = [0; 8];
                sum[..field.len()].copy_from_slice(field);
                let sum = u64::from_le_bytes(sum).wrapping_add(*delta as u64).to_le_bytes();
                field.copy_from_slice(&sum[..field.len()]);
            }
        }
    }
}

/// The patches of a few fields.
pub type FieldPatches = SmallVec<[FieldPatch; 4]>;

impl FieldPatch {
    #[inline]
    pub(crate) fn new(offset: u16, bytes: &[u8]) -> FieldPatch {
        let mut all = [0; 16];
        all[..bytes.len()].copy_from_slice(bytes);
        FieldPatch { offset, len: bytes.len() as u8, adds: false, bytes: all }
    }

    /// The patch of an integer's new bytes, at most eight, and its addend.
    #[inline]
    pub(crate) fn of_sum(offset: u16, bytes: &[u8], delta: i64) -> FieldPatch {
        let mut all = [0; 16];
        all[..bytes.len()].copy_from_slice(bytes);
        all[8..].copy_from_slice(&delta.to_le_bytes());
        FieldPatch { offset, len: bytes.len() as u8, adds: true, bytes: all }
    }

    /// The addend, if the field came to its new bytes by an addition.
    #[inline]
    pub(crate) fn delta(&self) -> Option<i64> {
        self.adds.then(|| i64::from_le_bytes(*self.bytes.last_chunk().expect("sixteen bytes")))
    }

    /// This patch after an earlier one of the same bytes, as one patch.
    #[inline]
    pub(crate) fn after(self, earlier: &FieldPatch) -> FieldPatch {
        match (earlier.delta(), self.delta()) {
            (Some(first), Some(second)) => {
                FieldPatch::of_sum(self.offset, self.bytes(), first.wrapping_add(second))
            }
            _ => FieldPatch { adds: false, ..self },
        }
    }

    /// The patch as an operation.
    #[inline]
    pub(crate) fn change(&self) -> FieldChange<'_> {
        match self.delta() {
            Some(delta) => FieldChange::Add { length: self.len, delta },
            None => FieldChange::Set(self.bytes()),
        }
    }

    /// Where in the row.
    #[inline]
    pub fn offset(&self) -> u16 {
        self.offset
    }

    /// How many bytes, 1 to 16.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> u8 {
        self.len
    }

    /// The new bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The new bytes, padded to the most that there can be.
    #[inline]
    pub(crate) fn all_bytes(&self) -> &[u8; 16] {
        &self.bytes
    }

    /// Changes the row.
    ///
    /// # Panics
    /// If the row is shorter than the one that the patch was made for.
    #[inline]
    pub fn apply(&self, row: &mut [u8]) {
        let at = usize::from(self.offset);
        row[at..at + usize::from(self.len)].copy_from_slice(self.bytes());
    }
}

impl Schema {
    /// Sets a fixed column of a row in place.
    ///
    /// # Errors
    /// As [`Schema::patch_field`]; then the row is unchanged.
    pub fn write_fixed(&self, row: &mut [u8], column: usize, value: &Value) -> Result<()> {
        let mut patches = FieldPatches::new();
        self.patch_field(row, column, value.borrow(), &mut patches)?;
        patches.iter().for_each(|patch| patch.apply(row));
        Ok(())
    }

    /// Sets a variable column in place, in the row that fills `body` from `row_at` on. False if the column has this
    /// value already. Not for a schema whose keys [can be too long](Schema::check_key_lengths).
    ///
    /// # Errors
    /// As [`encode`](super::encode()) for the value, and for a row that is too long; then the row is unchanged.
    pub(crate) fn write_variable(
        &self,
        body: &mut Vec<u8>,
        row_at: usize,
        column: usize,
        value: ValueRef<'_>,
    ) -> Result<bool> {
        debug_assert!(!self.keys_can_be_too_long && self.fixed_field(column).is_none());
        let (row, slot) = (&body[row_at..], self.slot(column));
        let value = value.coerce(self.table(), &self.columns()[column])?;
        let new = match value {
            ValueRef::Text(text) => text.as_bytes(),
            ValueRef::Bytes(bytes) => bytes,
            _ => &[],
        };
        let is_null = matches!(value, ValueRef::Null);
        let old = variable_at(self, row, slot);
        if old == new && is_null == slot.is_null(row) {
            return Ok(false);
        }
        let ends_at = usize::from(slot.offset);
        let (to, length) = (end_at(row, ends_at), row.len() - old.len() + new.len());
        if length > ROW_BYTES_MAX {
            let (table, limit) = (self.table().to_owned(), ROW_BYTES_MAX);
            return Err(Error::RowTooLong { table, length, limit });
        }
        let (from, behind) = (to - old.len(), row.len() - to);
        body.resize(body.len().max(row_at + length), 0);
        let row = &mut body[row_at..];
        row.copy_within(to..to + behind, from + new.len());
        row[from..from + new.len()].copy_from_slice(new);
        for at in (ends_at..self.body_at).step_by(2) {
            let end = (end_at(row, at) + from + new.len() - to) as u16;
            row[at..at + 2].copy_from_slice(&end.to_le_bytes());
        }
        if let Some(bit) = slot.null_bit {
            let (byte, mask) = (&mut row[usize::from(bit / 8)], 1 << (bit % 8));
            *byte = if is_null { *byte | mask } else { *byte & !mask };
        }
        body.truncate(row_at + length);
        Ok(true)
    }

    /// Appends to `out` the patches that set a fixed column of `row` to a value. No patch is appended for the null bits
    /// if they stay the same, nor for the value if it stays NULL.
    ///
    /// # Errors
    /// As [`encode`](super::encode()) for the value; [`Error::Unsupported`] for a variable column.
    pub fn patch_field(
        &self,
        row: &[u8],
        column: usize,
        value: ValueRef<'_>,
        out: &mut FieldPatches,
    ) -> Result<()> {
        let definition = &self.columns()[column];
        let Some(slot) = self.fixed_field(column) else {
            let what = format!(
                "changing column \"{}\" of type {} in place: its length varies, encode the whole row",
                definition.name, definition.ty
            );
            return Err(Error::Unsupported { what });
        };
        let value = value.coerce(self.table(), definition)?;
        let (is_null, was_null) = (matches!(value, ValueRef::Null), slot.is_null(row));
        if let (Some(bit), true) = (slot.null_bit, is_null != was_null) {
            let at = bit / 8;
            // An earlier patch of this change may contain the byte already.
            let earlier = out.iter_mut().find(|patch| patch.offset == at && patch.len == 1);
            match earlier {
                Some(patch) => patch.bytes[0] ^= 1 << (bit % 8),
                None => out.push(FieldPatch::new(at, &[row[usize::from(at)] ^ (1 << (bit % 8))])),
            }
        }
        if !(is_null && was_null) {
            let (bytes, _) = fixed_bytes(value);
            out.push(FieldPatch::new(slot.offset, &bytes[..usize::from(slot.len)]));
        }
        Ok(())
    }

    /// Replaces `out` by the patches that make `new` of `old`, both rows of this schema. If a variable column differs
    /// it returns `false` and no patches: the whole row has to be written.
    pub fn diff(&self, old: &[u8], new: &[u8], out: &mut FieldPatches) -> bool {
        out.clear();
        if old.len() != new.len() || old[self.ends_at..] != new[self.ends_at..] {
            return false;
        }
        for at in 0..self.null_bits.div_ceil(8) {
            if old[at] != new[at] {
                out.push(FieldPatch::new(at as u16, &new[at..=at]));
            }
        }
        for column in 0..self.columns().len() {
            let Some(slot) = self.fixed_field(column) else { continue };
            let range = usize::from(slot.offset)..usize::from(slot.offset) + usize::from(slot.len);
            if old[range.clone()] != new[range.clone()] {
                out.push(FieldPatch::new(slot.offset, &new[range]));
            }
        }
        true
    }

    /// Changes a row by a patch that was read back from a log.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the patch does not lie in the fixed part of the row.
    /// ([`RowView::validate`](super::RowView::validate) checks that the values make sense.)
    pub fn apply_patch(&self, row: &mut [u8], offset: u16, bytes: &[u8]) -> Result<()> {
        let end = usize::from(offset) + bytes.len();
        if end > self.ends_at || row.len() < self.body_at {
            let what = format!(
                "a patch of bytes {offset} to {end} of a row of {}, expected to end by {}",
                row.len(),
                self.ends_at
            );
            return Err(corrupt(self, offset.into(), what));
        }
        row[usize::from(offset)..end].copy_from_slice(bytes);
        Ok(())
    }

    /// A cheap check of a row's length: whether its bytes end where its last variable column does.
    pub fn has_row_length(&self, row: &[u8]) -> bool {
        row.len() >= self.body_at
            && row.len()
                == if self.body_at == self.ends_at { self.body_at } else { end_at(row, self.body_at - 2) }
    }
}
