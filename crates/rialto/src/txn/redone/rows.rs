//! Records of rows in tables that others use: each is done as a live transaction does it.

use std::ops::Range;

use super::Redone;
use crate::commit::redo::{Change, Operations, Patches, RedoRecord};
use crate::commit::write_set::{CurrentLocation, TargetRow, WriteKind};
use crate::error::{Error, Result};
use crate::isolate::RecordMode;
use crate::row::{self, FieldChange, FieldPatch, Key, Nulls, WhichIndex};
use crate::store::ROW_NUMBER_BYTES;
use crate::txn::context::Context;
use crate::txn::ddl::check_keys;
use crate::txn::fields::Edited;

/// The most bytes of a patch of a field.
const PATCH_BYTES_MAX: usize = 16;

/// A hidden row number from here on makes no sense: they grow with the places of the log, from 1.
const ROW_NUMBERS_END: u64 = 1 << 63;

impl Context {
    /// Puts the body in `self.body` at the key in `self.key`, over a row that is there.
    fn put_body(&mut self, slot: u32) -> Result<()> {
        let absences = self.side.absences();
        let location = self.seek_key(slot, RecordMode::Exclusive)?;
        let is_there = match location {
            CurrentLocation::Stored(_) => true,
            CurrentLocation::Own(position) => self.writes.get(position).kind != WriteKind::Delete,
            CurrentLocation::Absent(_) => false,
        };
        match is_there {
            true => self.change_any(TargetRow { slot, location }, Edited::Whole),
            false => self.step(|context| context.insert_at(slot, location, absences)),
        }
    }
}

impl Redone<'_> {
    /// Redoes a record of a row in the table at this position.
    pub(super) fn change_row(&mut self, slot: u32, record: &RedoRecord<'_>) -> Result<()> {
        match record.change {
            Change::Put { row_number, row } => {
                self.compose(slot, record.key, (row_number, row))?;
                self.context.put_body(slot)
            }
            Change::Patch(_) | Change::Operate(_) => {
                self.context.key = Key::from(record.key);
                let Some(target) = self.context.target(slot)? else { return Err(self.missing(slot, record)) };
                self.context.read_at(slot, target.location)?;
                self.patch(slot, record)?;
                self.context.change_any(target, Edited::Keys)
            }
            Change::Delete => {
                self.context.key = Key::from(record.key);
                if self.context.delete_key(slot)? { Ok(()) } else { Err(self.missing(slot, record)) }
            }
            Change::Load { .. } => {
                Err(self.senseless(slot, "a bulk load, and the packet has not made the table's storage"))
            }
        }
    }

    /// The error for a record that changes a row which is not there.
    pub(super) fn missing(&self, slot: u32, record: &RedoRecord<'_>) -> Error {
        let key = self.context.tables.at(slot).schema.print_key(WhichIndex::Primary, record.key);
        self.senseless(slot, &format!("the row of the key {key}, which it changes, is not there"))
    }

    /// Makes the body of a row that a record puts at this key, and the key, in the context. The row is checked, and its
    /// number noted.
    pub(super) fn compose(&mut self, slot: u32, key: &[u8], (number, row): (u64, &[u8])) -> Result<()> {
        let table = self.context.tables.at(slot);
        if let Some((at, what)) = row::damage(&table.schema, row, Nulls::OverZeros) {
            return Err(self.no_row(slot, key, at, &what));
        }
        if table.numbered && number >= ROW_NUMBERS_END {
            return Err(self.no_row(slot, key, 0, &format!("its hidden number is {number}")));
        }
        check_keys(&table.schema, row)?;
        let Context { tables, body, key: own, .. } = &mut *self.context;
        let table = tables.at(slot);
        body.clear();
        if table.numbered {
            body.extend_from_slice(&number.to_le_bytes());
        }
        body.extend_from_slice(row);
        table.schema.primary_key_of_row(row, number, own);
        if own[..] != *key {
            return Err(self.no_row(slot, key, 0, "another key than the record's"));
        }
        if table.numbered {
            table.numbers.note(number);
        }
        Ok(())
    }

    /// As [`Redone::compose`], of a row as a load file has it: its number, if it has one, and its bytes.
    pub(super) fn compose_loaded(&mut self, slot: u32, body: &[u8]) -> Result<()> {
        let table = self.context.tables.at(slot);
        let number_bytes = if table.numbered { ROW_NUMBER_BYTES } else { 0 };
        let (number, row) = body.split_at_checked(number_bytes).unwrap_or((&[], &[]));
        let number = number.try_into().map_or(0, u64::from_le_bytes);
        if let Some((at, what)) = row::damage(&table.schema, row, Nulls::OverZeros) {
            return Err(self.senseless(slot, &format!("a row of its load file, at its byte {at}: {what}")));
        }
        let mut key = Key::new();
        table.schema.primary_key_of_row(row, number, &mut key);
        self.compose(slot, &key, (number, row))
    }

    /// Changes the row in the context's body as a record of fields says, and notes its patches there. The result is
    /// checked.
    pub(super) fn patch(&mut self, slot: u32, record: &RedoRecord<'_>) -> Result<()> {
        let Context { tables, body, other_body: old, patches, .. } = &mut *self.context;
        let table = tables.at(slot);
        let (schema, row) = (&table.schema, &mut body[table.row_at()..]);
        old.clear();
        old.extend_from_slice(row);
        patches.clear();
        let mut apply = |patch: FieldPatch| {
            schema.apply_patch(row, patch.offset(), patch.bytes()).map_err(|error| error.to_string())?;
            patches.push(patch);
            Ok(())
        };
        let applied = match record.change {
            Change::Patch(ranges) => patches_of(ranges, &mut apply),
            Change::Operate(operations) => sums_of(operations, old, &mut apply),
            _ => unreachable!("a change of fields"),
        };
        let changed = applied.map_err(|what: String| (0, what)).and_then(|()| {
            match row::damage(schema, row, Nulls::OverZeros) {
                Some(what) => Err(what),
                None if !schema.same_key_fields(old, row) => {
                    Err((0, "a change of the primary key".to_owned()))
                }
                None => Ok(()),
            }
        });
        if let Err((at, what)) = changed {
            return Err(self.no_row(slot, record.key, at, &what));
        }
        check_keys(schema, row)
    }

    fn no_row(&self, slot: u32, key: &[u8], at: usize, what: &str) -> Error {
        let key = self.context.tables.at(slot).schema.print_key(WhichIndex::Primary, key);
        self.senseless(slot, &format!("the row of the key {key}, at its byte {at}: {what}"))
    }
}

/// Gives the byte ranges of a record as patches.
fn patches_of(
    ranges: Patches<'_>,
    apply: &mut dyn FnMut(FieldPatch) -> Result<(), String>,
) -> Result<(), String> {
    for (offset, bytes) in ranges.ranges() {
        apply(patch_of(offset, bytes)?)?;
    }
    Ok(())
}

/// Gives the operations of a record on this row as patches.
fn sums_of(
    operations: Operations<'_>,
    row: &[u8],
    apply: &mut dyn FnMut(FieldPatch) -> Result<(), String>,
) -> Result<(), String> {
    let mut changed: Vec<Range<usize>> = Vec::new();
    for (offset, change) in operations.changes() {
        let length = match change {
            FieldChange::Set(bytes) => bytes.len(),
            FieldChange::Add { length, .. } => usize::from(length),
        };
        if changed.iter().any(|other| other.start < offset + length && offset < other.end) {
            // They are applied one after the other, and each is looked at here beside the row before them.
            return Err("two operations on one field".to_owned());
        }
        changed.push(offset..offset + length);
        apply(match change {
            FieldChange::Set(bytes) => patch_of(offset, bytes)?,
            FieldChange::Add { length, delta } => {
                let mut sum = [0; 8];
                let sum = &mut sum[..usize::from(length)];
                let field = row.get(offset..offset + sum.len()).ok_or("an addition behind its end")?;
                sum.copy_from_slice(field);
                change.apply(sum);
                FieldPatch::of_sum(offset as u16, sum, delta)
            }
        })?;
    }
    Ok(())
}

fn patch_of(offset: usize, bytes: &[u8]) -> Result<FieldPatch, String> {
    match bytes.len() {
        ..=PATCH_BYTES_MAX => Ok(FieldPatch::new(offset as u16, bytes)),
        length => Err(format!(
            "a patch of {length} bytes at {offset}, and no field takes more than {PATCH_BYTES_MAX}"
        )),
    }
}
