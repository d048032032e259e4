//! Inserts, changes and deletes: into the write set, with all that applying them will need (I10).

use std::sync::Arc;

use super::fields::{Edited, Fields};
use super::read::RowKey;
use super::redo;
use super::seek::Place;
use super::transaction::{Context, Transaction};
use super::write_set::{IndexAdd, Write, WriteKind};
use crate::catalog::Table;
use crate::error::{Error, Result};
use crate::ids::Lsn;
use crate::lock::{Admission, LockForm, LockMode, LockName, LockTarget, RecordMode};
use crate::row::{IntoKey, Key, Row, RowView, Schema, Value, WhichIndex, encode};
use crate::store::memory::RecordRef;
use crate::store::memory::index::{Admit, Insert};

/// Where a row is before an operation changes it.
struct Target {
    slot: u32,
    place: Place,
}

impl Target {
    fn previous(&self) -> Option<u32> {
        match self.place {
            Place::Own(position) => Some(position),
            Place::Stored(_) | Place::Absent => None,
        }
    }
}

impl Context {
    #[inline]
    fn use_for_write(&mut self, table: &Table) -> Result<u32> {
        self.check_write()?;
        if self.core.catalog.is_system(table.id()) {
            return Err(system_table(table));
        }
        self.use_table(table, LockMode::IntentExclusive)
    }

    /// Locks the row of the key in `self.key` exclusively. None if there is no such row.
    #[inline]
    fn target(&mut self, slot: u32) -> Result<Option<Target>> {
        let place = self.seek(slot, RecordMode::Exclusive)?;
        let there = match place {
            Place::Stored(_) => true,
            Place::Own(position) => self.writes.get(position).kind != WriteKind::Delete,
            Place::Absent => false,
        };
        Ok(there.then_some(Target { slot, place }))
    }

    /// Where the row of a target lies.
    #[inline]
    pub(super) fn record_of(&self, place: Place) -> RecordRef {
        match place {
            Place::Own(position) => self.writes.get(position).lands_in(),
            Place::Stored(record) => record,
            Place::Absent => unreachable!("a target is there"),
        }
    }

    pub(super) fn memory_limit(&self) -> Error {
        let budget = self.core.segments.budget();
        Error::MemoryLimit { used: budget.used(), limit: budget.limit() }
    }

    /// Runs an operation of several steps; takes its steps back if one fails.
    fn step<T>(&mut self, work: impl FnOnce(&mut Context) -> Result<T>) -> Result<T> {
        let mark = self.mark();
        let result = work(self).and_then(|done| self.check_length().map(|()| done));
        if result.is_err() {
            self.roll_back_to(&mark);
        }
        result
    }

    #[inline]
    fn check_length(&self) -> Result<()> {
        let (length, limit) = (self.packet_bytes().len(), self.core.options.write_set_bytes_max);
        if length > limit { Err(Error::WriteSetTooLarge { length, limit }) } else { Ok(()) }
    }

    // ---- insert

    /// Inserts a row.
    pub fn insert_row(&mut self, slot: u32, row: &[u8]) -> Result<()> {
        let mut row_number = 0;
        self.body.clear();
        if self.tables.at(slot).numbered {
            row_number = self.tables.next_row_number(slot);
            self.body.extend_from_slice(&row_number.to_le_bytes());
        }
        self.body.extend_from_slice(row);
        self.tables.at(slot).schema.primary_key_of_row(row, row_number, &mut self.key);
        self.step(|context| context.insert_body(slot))
    }

    /// Locks the key in `self.key`, which is to be inserted, and finds the row that has it already.
    fn seek_new(&mut self, slot: u32) -> Result<Place> {
        let table = self.tables.at(slot);
        if table.schema.primary_key().is_some() {
            return self.seek(slot, RecordMode::Exclusive);
        }
        // A hidden row number that nobody has had, nor can seek before a scan shows it to him.
        if self.core.locks.form() == LockForm::Central && !self.is_covered(slot, RecordMode::Exclusive) {
            self.lock_name(slot, RecordMode::Exclusive)?;
        }
        Ok(Place::Absent)
    }

    /// Inserts the body in `self.body` under the key in `self.key`.
    fn insert_body(&mut self, slot: u32) -> Result<()> {
        let place = self.seek_new(slot)?;
        let previous = match place {
            Place::Stored(_) => return Err(self.duplicate(slot, WhichIndex::Primary, &self.key)),
            Place::Own(position) if self.writes.get(position).kind == WriteKind::Delete => Some(position),
            Place::Own(_) => return Err(self.duplicate(slot, WhichIndex::Primary, &self.key)),
            Place::Absent => None,
        };
        if previous.is_none() && self.inserts_directly(slot) {
            return self.insert_direct(slot);
        }
        self.check_unique(slot, None)?;
        let length = self.body.len();
        let (record, moved_to) = match previous {
            Some(position) => {
                let record = self.writes.get(position).lands_in();
                (record, self.reserve_move(slot, record, length)?)
            }
            None => {
                let room = length.max(self.key.len());
                let record = self
                    .with_claims(slot, |heap, number, claims| heap.allocate(number, room, claims))
                    .ok_or_else(|| self.memory_limit())?;
                self.core.segments.write_placeholder(record, &self.key);
                (record, None)
            }
        };
        self.push_put(Target { slot, place }, record, moved_to, previous.is_none(), previous.is_some());
        if previous.is_none() {
            let key = self.key.clone();
            self.add_entry(slot, WhichIndex::Primary, &key, record)?;
        }
        self.add_secondary_entries(slot, None, record)
    }

    /// Pushes a write of the whole body in `self.body`.
    fn push_put(
        &mut self,
        target: Target,
        record: RecordRef,
        moved_to: Option<RecordRef>,
        fresh: bool,
        rekeys: bool,
    ) {
        let table = self.tables.at(target.slot);
        let packet = self.packet.as_mut().expect("borrowed by check_write").bytes_mut();
        let placed = redo::write_put(packet, table.id, &self.key, table.numbered, &self.body);
        let kind = WriteKind::Put;
        self.push_write(&target, kind, fresh, rekeys, record, moved_to, placed);
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of a write, in one place")]
    #[inline]
    fn push_write(
        &mut self,
        target: &Target,
        kind: WriteKind,
        fresh: bool,
        rekeys: bool,
        record: RecordRef,
        moved_to: Option<RecordRef>,
        placed: redo::Placed,
    ) {
        let table = self.tables.at(target.slot);
        let write = Write {
            table: table.id,
            heap: table.heap.id(),
            slot: target.slot,
            kind,
            fresh,
            rekeys,
            record,
            moved_to,
            previous: target.previous(),
            superseded: false,
            placed,
        };
        self.writes.push(write, self.packet.as_ref().map_or(&[], |packet| packet.bytes()));
    }

    /// A slot for a body that does not fit where the row lies.
    fn reserve_move(&mut self, slot: u32, record: RecordRef, length: usize) -> Result<Option<RecordRef>> {
        if length <= self.core.segments.room(record) {
            return Ok(None);
        }
        let room = length.max(self.key.len());
        let moved = self
            .with_claims(slot, |heap, number, claims| heap.allocate_near(number, room, record, claims))
            .ok_or_else(|| self.memory_limit())?;
        self.core.segments.write_placeholder(moved, &self.key);
        Ok(Some(moved))
    }

    pub(super) fn duplicate(&self, slot: u32, which: WhichIndex, key: &[u8]) -> Error {
        let table = self.tables.at(slot);
        Error::DuplicateKey {
            table: table.name().to_owned(),
            index: table.schema.key_shape(which).name().to_owned(),
            key: table.schema.print_key(which, key),
        }
    }

    /// Puts an entry into an index before the commit. Waits while another transaction has read an interval that the
    /// key falls into.
    fn add_entry(&mut self, slot: u32, which: WhichIndex, key: &Key, record: RecordRef) -> Result<()> {
        loop {
            let table = self.tables.at(slot);
            let index_id = table.index_id(which);
            let owner = self.owner.as_ref().expect("the transaction is open");
            let locks = &self.core.locks;
            let admit = || match locks.admits(owner, index_id, key) {
                Admission::Go => Admit::Go,
                Admission::GoAndUnguard => Admit::GoAndUnguard,
                Admission::Refuse => Admit::Refuse,
            };
            let mut replaced = None;
            let inserted = match table.index(which).insert(key, record.0, admit) {
                Ok(inserted) => inserted,
                // Memory that the table's own free segments hold may do for an index node.
                Err(_) => {
                    let given_back = self.with_claims(slot, |heap, _, claims| heap.give_back_empty(claims));
                    if given_back == 0 {
                        return Err(self.memory_limit());
                    }
                    continue;
                }
            };
            match inserted {
                Insert::Done => {}
                // Of the same row, or of one of ours that gives the key up: uniqueness has been checked.
                Insert::Exists(there) if there == record.0 => return Ok(()),
                Insert::Exists(there) => {
                    table.index(which).replace(key, there, record.0);
                    replaced = Some(RecordRef(there));
                }
                Insert::Refused => {
                    self.lock(
                        |core, owner, _, _, wait| core.locks.wait_interval(owner, index_id, key, wait),
                        |_, _| LockTarget::Interval { index: index_id, key: key.to_vec() },
                    )?;
                    continue;
                }
            }
            self.writes.add(IndexAdd { slot, index: which, key: key.clone(), record, replaced });
            return Ok(());
        }
    }

    /// Adds the entries of the row in `self.body` to the secondary indexes, but for keys that `old` has too.
    fn add_secondary_entries(&mut self, slot: u32, old: Option<&[u8]>, record: RecordRef) -> Result<()> {
        let mut key = Key::new();
        for position in 0..self.tables.at(slot).secondaries.len() {
            if self.secondary_key(slot, position, old, &mut key) {
                self.add_entry(slot, WhichIndex::Secondary(position), &key, record)?;
            }
        }
        Ok(())
    }

    /// The key of the row in `self.body` in a secondary index. False if the row in `old` has it too.
    fn secondary_key(&self, slot: u32, position: usize, old: Option<&[u8]>, key: &mut Key) -> bool {
        let table = self.tables.at(slot);
        table.schema.index_key_of_row(position, &self.body[table.row_at()..], &self.key, key);
        let Some(old) = old else { return true };
        let mut old_key = Key::new();
        table.schema.index_key_of_row(position, &old[table.row_at()..], &self.key, &mut old_key);
        old_key != *key
    }

    /// Locks the unique keys that the row in `self.body` comes to have, and checks that no other row has them.
    fn check_unique(&mut self, slot: u32, old: Option<&[u8]>) -> Result<()> {
        let mut key = Key::new();
        for position in 0..self.tables.at(slot).secondaries.len() {
            if !self.tables.at(slot).schema.indexes()[position].unique
                || !self.secondary_key(slot, position, old, &mut key)
            {
                continue;
            }
            self.lock_unique(slot, position, &key)?;
            if self.is_taken(slot, position, &key) {
                return Err(self.duplicate(slot, WhichIndex::Secondary(position), &key));
            }
        }
        Ok(())
    }

    fn lock_unique(&mut self, slot: u32, position: usize, key: &Key) -> Result<()> {
        let index = self.tables.at(slot).schema.indexes()[position].id;
        let name = LockName::new(index, key);
        self.lock(
            |core, owner, _, _, wait| {
                core.locks.record(owner, name, key, RecordMode::Exclusive, wait).map(drop)
            },
            |_, _| LockTarget::Record { index, key: key.to_vec() },
        )
    }

    /// Whether a row other than the one in `self.key` has this key, which is locked, in a unique index.
    fn is_taken(&mut self, slot: u32, position: usize, key: &Key) -> bool {
        let table = self.tables.at(slot);
        let mut body = Vec::new();
        let (record, removal, mut there) =
            table.read_by_entry(WhichIndex::Secondary(position), key, &mut body);
        let own = self.writes.writes().iter().rposition(|write| {
            write.heap == table.heap.id()
                && record.is_some_and(|at| write.record == at || write.lands_in() == at)
        });
        let mut lsn = record.map_or(Lsn::ZERO, |record| table.segments().lsn(record)).max(table.floor());
        if let Some(own) = own {
            lsn = Lsn::ZERO;
            there = self.read_place_into(slot, Place::Own(own as u32), &mut body);
        }
        let mut taken = false;
        if there {
            let row = &body[table.row_at()..];
            let (mut primary, mut has) = (Key::new(), Key::new());
            table.schema.primary_key_of_row(row, table.row_number(&body), &mut primary);
            table.schema.index_key_of_row(position, row, &primary, &mut has);
            taken = has == *key && primary != self.key;
        }
        self.depend(if taken { lsn } else { removal });
        taken
    }

    // ---- change

    /// Changes the row whose key is in `self.key` by `edit`.
    #[inline]
    fn change(&mut self, slot: u32, edit: impl FnOnce(&mut Fields<'_>) -> Result<()>) -> Result<bool> {
        let Some(target) = self.target(slot)? else { return Ok(false) };
        if matches!(target.place, Place::Own(_)) {
            self.read_place(slot, target.place);
        }
        let spare = std::mem::take(&mut self.body);
        let record = self.record_of(target.place);
        let table = self.tables.at(slot);
        let mut fields = match target.place {
            Place::Stored(_) => Fields::stored(table, record, spare, &mut self.patches),
            _ => Fields::of_body(table, record, spare, &mut self.patches),
        };
        let outcome = edit(&mut fields);
        let (edited, body) = fields.end();
        self.body = body;
        outcome?;
        if edited.whole || edited.keys {
            return self.change_any(target, edited);
        }
        if self.patches.is_empty() {
            return Ok(true);
        }
        let mark = self.mark();
        self.push_patch(&target, record, false);
        match self.check_length() {
            Ok(()) => Ok(true),
            Err(error) => {
                self.roll_back_to(&mark);
                Err(error)
            }
        }
    }

    /// A change that may move keys.
    fn change_any(&mut self, target: Target, edited: Edited) -> Result<bool> {
        let mut old = std::mem::take(&mut self.other_body);
        self.read_place_into(target.slot, target.place, &mut old);
        let changed = self.step(|context| context.push_change(target, &old, edited)).map(|()| true);
        self.other_body = old;
        changed
    }

    fn push_change(&mut self, target: Target, old: &[u8], edited: Edited) -> Result<()> {
        let slot = target.slot;
        if self.key_changes(slot, edited) {
            return self.move_key(target);
        }
        let record = self.record_of(target.place);
        let rekeys = self.secondary_keys_change(slot, old, edited);
        if rekeys {
            self.lock_given_up_keys(slot, old)?;
            self.check_unique(slot, Some(old))?;
        }
        if edited.whole {
            let moved_to = self.reserve_move(slot, record, self.body.len())?;
            self.push_put(target, record, moved_to, false, rekeys);
        } else {
            self.push_patch(&target, record, rekeys);
        }
        if rekeys { self.add_secondary_entries(slot, Some(old), record) } else { Ok(()) }
    }

    /// Pushes a write of the fields in `self.patches`.
    #[inline]
    fn push_patch(&mut self, target: &Target, record: RecordRef, rekeys: bool) {
        let table = self.tables.at(target.slot).id;
        let packet = self.packet.as_mut().expect("borrowed by check_write").bytes_mut();
        let placed = redo::write_patch(packet, table, &self.key, &self.patches);
        self.push_write(target, WriteKind::Patch, false, rekeys, record, None, placed);
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
        if !edited.whole && !self.patches_touch(slot, WhichIndex::Primary) {
            return false;
        }
        let mut key = Key::new();
        table.schema.primary_key_of_row(&self.body[table.row_at()..], 0, &mut key);
        key != self.key
    }

    fn secondary_keys_change(&self, slot: u32, old: &[u8], edited: Edited) -> bool {
        let table = self.tables.at(slot);
        let mut key = Key::new();
        (0..table.secondaries.len()).any(|position| {
            let which = WhichIndex::Secondary(position);
            (edited.whole || self.patches_touch(slot, which))
                && self.secondary_key(slot, position, Some(old), &mut key)
        })
    }

    /// Locks the unique keys that the row gives up, so that nobody takes them before the commit.
    fn lock_given_up_keys(&mut self, slot: u32, old: &[u8]) -> Result<()> {
        let mut key = Key::new();
        for position in 0..self.tables.at(slot).secondaries.len() {
            let table = self.tables.at(slot);
            if table.schema.indexes()[position].unique {
                table.schema.index_key_of_row(position, &old[table.row_at()..], &self.key, &mut key);
                self.lock_unique(slot, position, &key)?;
            }
        }
        Ok(())
    }

    /// A change of the primary key is a delete and an insert.
    fn move_key(&mut self, target: Target) -> Result<()> {
        let slot = target.slot;
        let body = std::mem::take(&mut self.body);
        let deleted = self.read_place(slot, target.place);
        debug_assert!(deleted, "the row was just read");
        self.push_delete(target)?;
        self.body = body;
        let table = self.tables.at(slot);
        let row_number = table.row_number(&self.body);
        table.schema.primary_key_of_row(&self.body[table.row_at()..], row_number, &mut self.key);
        self.insert_body(slot)
    }

    // ---- delete

    /// Pushes a delete of the row in `self.body`, whose key is in `self.key`.
    fn push_delete(&mut self, target: Target) -> Result<()> {
        if !self.tables.at(target.slot).secondaries.is_empty() {
            let body = std::mem::take(&mut self.body);
            let locked = self.lock_given_up_keys(target.slot, &body);
            self.body = body;
            locked?;
        }
        let record = self.record_of(target.place);
        let table = self.tables.at(target.slot);
        let packet = self.packet.as_mut().expect("borrowed by check_write").bytes_mut();
        let placed = redo::write_delete(packet, table.id, &self.key);
        self.push_write(&target, WriteKind::Delete, false, true, record, None, placed);
        Ok(())
    }

    pub(super) fn delete_key(&mut self, slot: u32) -> Result<bool> {
        let Some(target) = self.target(slot)? else { return Ok(false) };
        if !self.tables.at(slot).secondaries.is_empty() {
            self.read_place(slot, target.place);
        }
        self.step(|context| context.push_delete(target))?;
        Ok(true)
    }

    fn encode_key(&mut self, slot: u32, key: &impl IntoKey) -> Result<()> {
        key.encode_into(self.tables.at(slot).schema.key_shape(WhichIndex::Primary), &mut self.key)
    }
}

#[cold]
fn system_table(table: &Table) -> Error {
    Error::Unsupported { what: format!("writing to the system table \"{}\": use DDL", table.name()) }
}

fn set_all(fields: &mut Fields<'_>, changes: &[(usize, Value)]) -> Result<()> {
    changes.iter().try_for_each(|(column, value)| fields.set(*column, value))
}

impl Transaction {
    /// Inserts a row of these values, one for each column.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`]; values that their columns do not take; rows and keys that are too long;
    /// [`Error::MemoryLimit`]; [`Error::WriteSetTooLarge`]; what a lock can meet. The transaction can go on, except
    /// after those of locks.
    pub fn insert(&mut self, table: &Table, values: &[Value]) -> Result<()> {
        self.insert_with(table, |schema, row| encode(schema, values, row))
    }

    /// Inserts the row that `encode` appends.
    pub(crate) fn insert_with(
        &mut self,
        table: &Table,
        encode: impl FnOnce(&Schema, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let context = self.context();
        let slot = context.use_for_write(table)?;
        let mut row = std::mem::take(&mut context.other_body);
        row.clear();
        let inserted =
            encode(&context.tables.at(slot).schema, &mut row).and_then(|()| context.insert_row(slot, &row));
        context.other_body = row;
        inserted
    }

    /// Replaces the row that has the primary key of the row that `encode` appends by that. False if there is none.
    pub(crate) fn replace_with(
        &mut self,
        table: &Table,
        encode: impl FnOnce(&Schema, &mut Vec<u8>) -> Result<()>,
    ) -> Result<bool> {
        let context = self.context();
        let slot = context.use_for_write(table)?;
        let version = context.tables.at(slot);
        if version.schema.primary_key().is_none() {
            let what = format!(
                "updating a row of table \"{}\" by its key, since the table has no primary key: scan it with \
                 Transaction::scan and use Transaction::update_at",
                version.name()
            );
            return Err(Error::Unsupported { what });
        }
        let mut row = std::mem::take(&mut context.other_body);
        row.clear();
        let replaced = match encode(&version.schema, &mut row) {
            Ok(()) => {
                version.schema.primary_key_of_row(&row, 0, &mut context.key);
                context.change(slot, |fields| {
                    fields.replace(&row);
                    Ok(())
                })
            }
            Err(error) => Err(error),
        };
        if context.other_body.capacity() < row.capacity() {
            context.other_body = row;
        }
        replaced
    }

    /// Inserts a row of the table: one that was read from it, or made by [`Row::from_values`] with its
    /// [schema](Table::schema). One row can be [set](Row::set) and inserted again and again, without an allocation.
    ///
    /// # Errors
    /// As [`Transaction::insert`]; [`Error::Corrupt`] for a row of another table that is none of this one.
    #[inline]
    pub fn insert_row(&mut self, table: &Table, row: &Row) -> Result<()> {
        let context = self.context();
        let slot = context.use_for_write(table)?;
        let schema = &context.tables.at(slot).schema;
        if !Arc::ptr_eq(schema, row.schema()) {
            RowView::validate(schema, row.bytes())?;
        }
        context.insert_row(slot, row.bytes())
    }

    /// Inserts an encoded row ([`rialto::row::encode`](crate::row::encode)).
    ///
    /// # Errors
    /// As [`Transaction::insert`]; [`Error::Corrupt`] for bytes that are no row of the table.
    pub fn insert_encoded(&mut self, table: &Table, row: &[u8]) -> Result<()> {
        let context = self.context();
        let slot = context.use_for_write(table)?;
        RowView::validate(&context.tables.at(slot).schema, row)?;
        context.insert_row(slot, row)
    }

    /// Sets columns of the row with this primary key. False if there is none.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub fn update(&mut self, table: &Table, key: impl IntoKey, changes: &[(usize, Value)]) -> Result<bool> {
        self.modify(table, key, |fields| set_all(fields, changes))
    }

    /// Changes the row with this primary key in place; locks it exclusively at once. False if there is none. If `edit`
    /// fails, nothing is changed.
    ///
    /// # Errors
    /// As [`Transaction::insert`], and what `edit` gives.
    pub fn modify(
        &mut self,
        table: &Table,
        key: impl IntoKey,
        edit: impl FnOnce(&mut Fields<'_>) -> Result<()>,
    ) -> Result<bool> {
        let context = self.context();
        let slot = context.use_for_write(table)?;
        context.encode_key(slot, &key)?;
        context.change(slot, edit)
    }

    /// Deletes the row with this primary key. False if there is none.
    ///
    /// # Errors
    /// What a lock can meet; [`Error::WriteSetTooLarge`].
    pub fn delete(&mut self, table: &Table, key: impl IntoKey) -> Result<bool> {
        let context = self.context();
        let slot = context.use_for_write(table)?;
        context.encode_key(slot, &key)?;
        context.delete_key(slot)
    }

    /// As [`Transaction::update`], by identity.
    ///
    /// # Errors
    /// As [`Transaction::update`].
    pub fn update_at(&mut self, table: &Table, key: &RowKey, changes: &[(usize, Value)]) -> Result<bool> {
        self.modify_at(table, key, |fields| set_all(fields, changes))
    }

    /// As [`Transaction::modify`], by identity.
    ///
    /// # Errors
    /// As [`Transaction::modify`].
    pub fn modify_at(
        &mut self,
        table: &Table,
        key: &RowKey,
        edit: impl FnOnce(&mut Fields<'_>) -> Result<()>,
    ) -> Result<bool> {
        let context = self.context();
        let slot = context.use_for_write(table)?;
        context.key.clone_from(&key.0);
        context.change(slot, edit)
    }

    /// As [`Transaction::delete`], by identity.
    ///
    /// # Errors
    /// As [`Transaction::delete`].
    pub fn delete_at(&mut self, table: &Table, key: &RowKey) -> Result<bool> {
        let context = self.context();
        let slot = context.use_for_write(table)?;
        context.key.clone_from(&key.0);
        context.delete_key(slot)
    }
}
