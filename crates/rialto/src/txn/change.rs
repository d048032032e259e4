//! Changes of rows, and deletes.

use std::hint::cold_path;

use super::context::Context;
use super::fields::{Edited, Fields};
use super::scope::Touch;
use crate::commit::redo;
use crate::commit::write_set::{CurrentLocation, Effect, TargetRow, Write, WriteKind};
use crate::error::Result;
use crate::isolate::RecordMode;
use crate::row::{FieldPatch, Key, WhichIndex};
use crate::store::{ROW_NUMBER_BYTES, RowLocation};
use crate::unlikely::unlikely;

/// Whether a field was added to.
fn has_sum(patches: &[FieldPatch]) -> bool {
    patches.iter().any(|patch| patch.delta().is_some())
}

impl Context {
    /// Changes the row whose key is in `self.key` by `edit`.
    #[inline]
    pub(super) fn change(
        &mut self,
        slot: u32,
        edit: impl FnOnce(&mut Fields<'_>) -> Result<()>,
    ) -> Result<bool> {
        let Some((target, record, body_known)) = self.target_of(slot)? else { return Ok(false) };
        self.change_target(target, record, body_known, edit)
    }

    /// The row whose key is in `self.key`, locked: its location, and whether it is in `self.body` already.
    #[inline(never)]
    pub(super) fn target_of(&mut self, slot: u32) -> Result<Option<(TargetRow, RowLocation, bool)>> {
        self.stay_at_key(slot, Touch::Write)?;
        if unlikely(self.fetches()) {
            return self.fetch_target(slot);
        }
        if let Some(record) = self.seek_free(slot, RecordMode::Exclusive) {
            return Ok(Some((TargetRow { slot, location: CurrentLocation::Stored(record) }, record, false)));
        }
        let Some(target) = self.target(slot)? else { return Ok(None) };
        // A row in a page has no place where its fields could be read one by one.
        let is_read = matches!(target.location, CurrentLocation::Own(_)) || self.pages(slot).is_some();
        let body_known = is_read && self.read_at(slot, target.location)?;
        Ok(Some((target, self.record_of(target.location), body_known)))
    }

    /// Changes a locked row that lies in `record`, or that is in `self.body` in its present state.
    #[inline(always)]
    pub(super) fn change_target(
        &mut self,
        target: TargetRow,
        record: RowLocation,
        body_known: bool,
        edit: impl FnOnce(&mut Fields<'_>) -> Result<()>,
    ) -> Result<bool> {
        let Context { tables, body, patches, .. } = self;
        let mut fields = Fields::new(tables.at(target.slot), record, body, body_known, patches);
        edit(&mut fields)?;
        match fields.end() {
            Edited::Fields if unlikely(patches.is_empty()) => Ok(true),
            Edited::Fields if unlikely(record.is_in_pages()) => {
                self.change_any(target, Edited::Fields).map(|()| true)
            }
            Edited::Fields => {
                let previous = match target.location {
                    CurrentLocation::Own(_) if unlikely(self.is_patched_often(target.location)) => {
                        return self.change_any(target, Edited::Fields).map(|()| true);
                    }
                    CurrentLocation::Own(position) => Some(position),
                    CurrentLocation::Stored(_) | CurrentLocation::Absent(_) => None,
                };
                self.enter_patches(target.slot, previous, record).map(|()| true)
            }
            edited => {
                cold_path();
                self.change_any(target, edited).map(|()| true)
            }
        }
    }

    /// The end of the usual change, which needs only its redo record. The record has the fields in `self.patches`, for
    /// a row that lies in `record`; `previous` is the transaction's own earlier write of this row.
    #[inline(never)]
    fn enter_patches(&mut self, slot: u32, previous: Option<u32>, record: RowLocation) -> Result<()> {
        let location = previous.map_or(CurrentLocation::Stored(record), CurrentLocation::Own);
        let operations = self.logs_operations(location);
        let room = self.room;
        let Context { tables, packet: Some(packet), writes, key, patches, .. } = self else {
            unreachable!("borrowed by check_write")
        };
        let (table, packet) = (tables.at(slot), packet.bytes_mut());
        let before = packet.len();
        let (kind, record_at) = if unlikely(operations && has_sum(patches)) {
            (WriteKind::Operate, redo::write_operations(packet, table.id, key, patches))
        } else {
            (WriteKind::Patch, redo::write_usual_patch(packet, table.id, key, patches))
        };
        let length = packet.len();
        if unlikely(length > room) {
            packet.truncate(before);
            return Err(self.too_large(length));
        }
        writes.push(
            Write::new(table, TargetRow { slot, location }, Effect::of(kind, record), record_at),
            packet,
        );
        Ok(())
    }

    /// Whether increments of the row at this location are logged as such: in action logging, as the transaction's first
    /// write to a row. (Later ones are logged as values, so that redo may do them again. Beside DDL all are logged as
    /// values, since a row of a bulk load has the packet's own place before any operation on it is redone.)
    #[inline]
    fn logs_operations(&self, location: CurrentLocation) -> bool {
        self.choices.operations && matches!(location, CurrentLocation::Stored(_)) && self.ddl.is_none()
    }

    /// Whether the transaction has patched the row, which is in `self.body`, so often that it is now written whole.
    fn is_patched_often(&self, location: CurrentLocation) -> bool {
        match location {
            CurrentLocation::Own(position) => self.writes.is_patched_often(position, self.body.len()),
            CurrentLocation::Stored(_) | CurrentLocation::Absent(_) => false,
        }
    }

    /// A change that may move keys, or that is written whole.
    #[inline(never)]
    pub(super) fn change_any(&mut self, target: TargetRow, edited: Edited) -> Result<()> {
        if unlikely(self.fetches()) {
            return self.fetch_change(target, edited);
        }
        let mut old = std::mem::take(&mut self.other_body);
        // The keys in secondary indexes that the row gives up.
        if !self.tables.at(target.slot).schema.indexes().is_empty() {
            self.read_at_into(target.slot, target.location, &mut old)?;
        }
        let changed = self.step(|context| context.push_change(target, &old, edited));
        self.other_body = old;
        changed
    }

    fn push_change(&mut self, target: TargetRow, old: &[u8], edited: Edited) -> Result<()> {
        let slot = target.slot;
        if self.key_changes(slot, edited) {
            return self.move_key(target);
        }
        let record = self.record_of(target.location);
        let rekeys = self.secondary_keys_change(slot, old, edited);
        if rekeys {
            self.lock_given_up_keys(slot, old)?;
            self.check_unique(slot, Some(old))?;
        }
        let writes_whole = edited == Edited::Whole || self.is_patched_often(target.location);
        if unlikely(self.pages(slot).is_some()) {
            let kind = if writes_whole { WriteKind::Put } else { WriteKind::Patch };
            return self.push_in_pages(target, kind, Some(old));
        }
        if writes_whole {
            let moved_to = self.reserve_move(slot, record, self.body.len())?;
            self.push_put(target, Effect { moved_to, rekeys, ..Effect::of(WriteKind::Put, record) });
        } else if self.logs_operations(target.location) && has_sum(&self.patches) {
            let table = self.tables.at(slot).id;
            let packet = self.packet.as_mut().expect("borrowed by check_write").bytes_mut();
            let record_at = redo::write_operations(packet, table, &self.key, &self.patches);
            self.push_write(target, Effect { rekeys, ..Effect::of(WriteKind::Operate, record) }, record_at);
        } else {
            self.push_patch(target, Effect { rekeys, ..Effect::of(WriteKind::Patch, record) });
        }
        if rekeys { self.add_secondary_entries(slot, Some(old), record) } else { Ok(()) }
    }

    /// Whether one of `self.patches` changes a key of this index, or may.
    fn patches_touch(&self, slot: u32, which: WhichIndex) -> bool {
        let schema = &self.tables.at(slot).schema;
        self.patches.iter().any(|patch| schema.patch_touches_key(which, patch.offset(), patch.len()))
    }

    /// Whether the row in `self.body` has another primary key than `self.key`.
    fn key_changes(&self, slot: u32, edited: Edited) -> bool {
        let table = self.tables.at(slot);
        if table.schema.primary_key().is_none() {
            return false;
        }
        if edited != Edited::Whole && !self.patches_touch(slot, WhichIndex::Primary) {
            return false;
        }
        let mut key = Key::new();
        table.schema.primary_key_of_row(&self.body[table.row_at()..], 0, &mut key);
        key != self.key
    }

    fn secondary_keys_change(&self, slot: u32, old: &[u8], edited: Edited) -> bool {
        let table = self.tables.at(slot);
        let mut key = Key::new();
        (0..table.schema.indexes().len()).any(|position| {
            let which = WhichIndex::Secondary(position);
            (edited == Edited::Whole || self.patches_touch(slot, which))
                && self.secondary_key(slot, position, Some(old), &mut key)
        })
    }

    /// Locks the unique keys that the changed row gives up, so that no other transaction takes them before the commit.
    /// Where keys are locked by themselves it locks all keys that the row gives up, so that a transaction which reads
    /// an index alone never sees a key that is about to go.
    fn lock_given_up_keys(&mut self, slot: u32, old: &[u8]) -> Result<()> {
        let (by_key, mut key) = (self.locks_secondary_keys(slot), Key::new());
        for position in 0..self.tables.at(slot).schema.indexes().len() {
            if self.tables.at(slot).schema.indexes()[position].unique
                || by_key && self.secondary_key(slot, position, Some(old), &mut key)
            {
                self.lock_given_up_key(slot, position, old)?;
            }
        }
        Ok(())
    }

    /// The same for a row that is deleted.
    fn lock_keys_of_gone(&mut self, slot: u32, old: &[u8]) -> Result<()> {
        let by_key = self.locks_secondary_keys(slot);
        for position in 0..self.tables.at(slot).schema.indexes().len() {
            if by_key || self.tables.at(slot).schema.indexes()[position].unique {
                self.lock_given_up_key(slot, position, old)?;
            }
        }
        Ok(())
    }

    fn lock_given_up_key(&mut self, slot: u32, position: usize, old: &[u8]) -> Result<()> {
        let (table, mut key) = (self.tables.at(slot), Key::new());
        table.schema.index_key_of_row(position, &old[table.row_at()..], &self.key, &mut key);
        self.lock_secondary_key(slot, position, &key)
    }

    /// A change of the primary key is a delete and an insert.
    fn move_key(&mut self, target: TargetRow) -> Result<()> {
        let slot = target.slot;
        let body = std::mem::take(&mut self.body);
        let deleted = self.read_at(slot, target.location)?;
        debug_assert!(deleted, "the row was just read");
        self.push_delete(target)?;
        self.body = body;
        self.renumber_for_load(slot);
        let table = self.tables.at(slot);
        let row_number = table.row_number(&self.body);
        table.schema.primary_key_of_row(&self.body[table.row_at()..], row_number, &mut self.key);
        self.insert_body(slot)
    }

    /// Gives the row in `self.body` a new hidden number if it may go into the same load as the row that it replaces: a
    /// load that began before the table had a primary key is redone by these numbers.
    fn renumber_for_load(&mut self, slot: u32) {
        let Context { ddl: Some(_), tables, numbers, body, .. } = self else { return };
        if tables.at(slot).numbered {
            let number = numbers.take(|| tables.next_row_number(slot, None));
            body[..ROW_NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
        }
    }

    /// Pushes a delete of the row in `self.body`, whose key is in `self.key`.
    fn push_delete(&mut self, target: TargetRow) -> Result<()> {
        if !self.tables.at(target.slot).schema.indexes().is_empty() {
            let body = std::mem::take(&mut self.body);
            let locked = self.lock_keys_of_gone(target.slot, &body);
            self.body = body;
            locked?;
        }
        if unlikely(self.pages(target.slot).is_some()) {
            return self.push_delete_in_pages(target);
        }
        let record = self.record_of(target.location);
        let table = self.tables.at(target.slot);
        let packet = self.packet.as_mut().expect("borrowed by check_write").bytes_mut();
        let record_at = redo::write_delete(packet, table.id, &self.key);
        self.push_write(target, Effect { rekeys: true, ..Effect::of(WriteKind::Delete, record) }, record_at);
        Ok(())
    }

    pub(super) fn delete_key(&mut self, slot: u32) -> Result<bool> {
        self.stay_at_key(slot, Touch::Write)?;
        if unlikely(self.fetches()) {
            return self.fetch_delete(slot);
        }
        let Some(target) = self.target(slot)? else { return Ok(false) };
        if !self.tables.at(slot).schema.indexes().is_empty() {
            self.read_at(slot, target.location)?;
        }
        self.step(|context| context.push_delete(target))?;
        Ok(true)
    }
}
