//! The begin and the end of operations that write, and the operations themselves, as methods of [`Transaction`].
//! Inserts go on in `insert`, changes and deletes in `change`: into the write set, with everything that applying them
//! will need (I10).

use std::hint::cold_path;
use std::sync::Arc;

use super::context::Context;
use super::fields::Fields;
use super::read::RowKey;
use super::scope::Touch;
use super::transaction::Transaction;
use crate::commit::redo;
use crate::commit::write_set::{CurrentLocation, Effect, Mark, TargetRow, Write, WriteKind};
use crate::error::{Error, Result};
use crate::isolate::{LockMode, RecordMode};
use crate::row::{IntoKey, Row, RowView, Schema, Value, ValueRef, WhichIndex, encode, encode_borrowed};
use crate::store::{RowLocation, Table};
use crate::unlikely::unlikely;

impl Context {
    /// Locks the table for writes and returns its position in the list of tables.
    #[inline(always)]
    fn use_for_write(&mut self, table: &Table) -> Result<u32> {
        if !self.writing || self.is_hindered() {
            self.check_write()?;
        }
        if !self.core.storage.catalog.is_system(table.id())
            && let Some(slot) = self.use_again(table.key(), LockMode::IntentExclusive)
        {
            return Ok(slot);
        }
        self.use_for_write_slowly(table)
    }

    #[inline(never)]
    fn use_for_write_slowly(&mut self, table: &Table) -> Result<u32> {
        if self.core.storage.catalog.is_system(table.id()) {
            return Err(system_table(table));
        }
        self.use_table(table, LockMode::IntentExclusive)
    }

    /// Locks the row of the key in `self.key` exclusively. `None` if there is no row of this key.
    #[inline]
    pub(super) fn target(&mut self, slot: u32) -> Result<Option<TargetRow>> {
        let location = self.seek(slot, RecordMode::Exclusive)?;
        let there = match location {
            CurrentLocation::Stored(_) => true,
            CurrentLocation::Own(position) => self.writes.get(position).kind != WriteKind::Delete,
            CurrentLocation::Absent(_) => false,
        };
        Ok(there.then_some(TargetRow { slot, location }))
    }

    /// Where the row of a target lies.
    #[inline]
    pub(super) fn record_of(&self, location: CurrentLocation) -> RowLocation {
        match location {
            CurrentLocation::Own(position) => self.writes.get(position).final_location(),
            CurrentLocation::Stored(record) => record,
            CurrentLocation::Absent(_) => unreachable!("a target is there"),
        }
    }

    pub(super) fn memory_limit(&self) -> Error {
        self.core.storage.memory_limit()
    }

    /// Runs an operation of several steps; takes its steps back if one fails.
    #[inline]
    pub(super) fn step(&mut self, work: impl FnOnce(&mut Context) -> Result<()>) -> Result<()> {
        let mark = self.mark();
        match work(self) {
            Ok(()) if self.packet_bytes().len() <= self.room => Ok(()),
            outcome => self.take_step_back(&mark, outcome),
        }
    }

    /// Takes back an operation that failed, or that made the write set too large.
    #[cold]
    fn take_step_back(&mut self, mark: &Mark, outcome: Result<()>) -> Result<()> {
        let length = self.packet_bytes().len();
        self.roll_back_to(mark);
        self.side.note_anything_absent();
        outcome?;
        Err(self.too_large(length))
    }

    /// Enters a write, whose redo record is in the packet.
    #[inline]
    pub(super) fn push_write(&mut self, target: TargetRow, effect: Effect, record_at: redo::RecordAt) {
        let write = Write::new(self.tables.at(target.slot), target, effect, record_at);
        self.writes.push(write, self.packet.as_ref().map_or(&[], |packet| packet.bytes()));
    }

    /// Pushes a write of the whole body in `self.body`.
    pub(super) fn push_put(&mut self, target: TargetRow, effect: Effect) {
        let table = self.tables.at(target.slot);
        let packet = self.packet.as_mut().expect("borrowed by check_write").bytes_mut();
        let record_at = redo::write_put(packet, table.id, &self.key, table.numbered, &self.body);
        self.push_write(target, effect, record_at);
    }

    /// Pushes a write of the fields in `self.patches`.
    #[inline]
    pub(super) fn push_patch(&mut self, target: TargetRow, effect: Effect) {
        let table = self.tables.at(target.slot).id;
        let packet = self.packet.as_mut().expect("borrowed by check_write").bytes_mut();
        let record_at = redo::write_patch(packet, table, &self.key, &self.patches);
        self.push_write(target, effect, record_at);
    }

    /// The long way to a row that is about to be changed; as [`Context::target_of`].
    #[inline(never)]
    fn find_target(
        &mut self,
        table: &Table,
        key: &impl IntoKey,
    ) -> Result<Option<(TargetRow, RowLocation, bool)>> {
        let slot = self.use_for_write(table)?;
        self.encode_key(slot, key)?;
        self.target_of(slot)
    }

    #[inline(always)]
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

impl Transaction<'_> {
    /// Inserts a row of these values, one for each column.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`]; the errors of values that their columns do not take, and of rows and keys that are too
    /// long; [`Error::MemoryLimit`]; [`Error::WriteSetTooLarge`]; the errors of a lock request. [`Error`] says after
    /// which of them the transaction can go on.
    pub fn insert(&mut self, table: &Table, values: &[Value]) -> Result<()> {
        self.insert_with(table, |schema, row| encode(schema, values, row))
    }

    /// As [`Transaction::insert`], with borrowed values: no allocation for a text.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub fn insert_borrowed(&mut self, table: &Table, values: &[ValueRef<'_>]) -> Result<()> {
        self.insert_with(table, |schema, row| encode_borrowed(schema, values, row))
    }

    /// Inserts the row that `encode` appends.
    pub(crate) fn insert_with(
        &mut self,
        table: &Table,
        encode: impl FnOnce(&Schema, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        self.operate(|context| {
            let slot = context.use_for_write(table)?;
            let mut row = std::mem::take(&mut context.other_body);
            row.clear();
            let schema = &context.tables.at(slot).schema;
            let inserted = encode(schema, &mut row).and_then(|()| context.insert_row(slot, &row));
            context.other_body = row;
            inserted
        })
    }

    /// Replaces the row that has the same primary key as the row that `encode` appends. False if there is none.
    pub(crate) fn replace_with(
        &mut self,
        table: &Table,
        encode: impl FnOnce(&Schema, &mut Vec<u8>) -> Result<()>,
    ) -> Result<bool> {
        self.operate(|context| {
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
        })
    }

    /// Inserts a row of the table: one that was read from it, or made by [`Row::from_values`] with its
    /// [schema](Table::schema). One row can be [set](Row::set) and inserted again and again, without an allocation. A
    /// row of another table, or made from bytes by [`Row::new`] or [`Row::replace`], is checked first.
    ///
    /// # Errors
    /// As [`Transaction::insert`]; [`Error::Corrupt`] for bytes that are no row of the table.
    #[inline]
    pub fn insert_row(&mut self, table: &Table, row: &Row) -> Result<()> {
        self.operate(|context| {
            let slot = context.use_for_write(table)?;
            let schema = &context.tables.at(slot).schema;
            if !row.is_row_of(schema) {
                RowView::validate_new(schema, row.bytes())?;
            }
            context.insert_row(slot, row.bytes())
        })
    }

    /// Takes the intention lock on a table, as its first write does, before there is anything to write. The coming
    /// writes were planned for this schema, as [`Table::schema`] returned it: from now on no definition of another
    /// transaction changes it.
    ///
    /// # Errors
    /// As [`Transaction::insert`]; [`Error::TableChanged`] if the table has another schema by now.
    pub fn lock_for_writes(&mut self, table: &Table, schema: &Arc<Schema>) -> Result<()> {
        self.operate(|context| {
            context.stay_in_table(table, Touch::Write)?;
            let slot = context.use_for_write(table)?;
            // I3: the answer rests on the definition.
            let floor = context.tables.at(slot).floor();
            context.depend(floor);
            match Arc::ptr_eq(schema, &context.tables.at(slot).schema) {
                true => Ok(()),
                false => Err(Error::TableChanged { table: table.name() }),
            }
        })
    }

    /// Inserts an encoded row ([`rialto::row::encode`](crate::row::encode)).
    ///
    /// # Errors
    /// As [`Transaction::insert`]; [`Error::Corrupt`] for bytes that are no row of the table.
    pub fn insert_encoded(&mut self, table: &Table, row: &[u8]) -> Result<()> {
        self.operate(|context| {
            let slot = context.use_for_write(table)?;
            RowView::validate_new(&context.tables.at(slot).schema, row)?;
            context.insert_row(slot, row)
        })
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
    /// As [`Transaction::insert`]; the error of `edit`.
    pub fn modify(
        &mut self,
        table: &Table,
        key: impl IntoKey,
        edit: impl FnOnce(&mut Fields<'_>) -> Result<()>,
    ) -> Result<bool> {
        self.operate(|context| {
            if !context.writing {
                context.check_write()?;
            }
            let reached = match unlikely(context.core.storage.catalog.is_system(table.id())) {
                false => context.reach_to_change(table.key(), &key),
                true => None,
            };
            // The edit is named once, so that it is compiled into this function.
            let (target, record, body_known) = match reached {
                Some((slot, record)) => {
                    (TargetRow { slot, location: CurrentLocation::Stored(record) }, record, false)
                }
                None => {
                    cold_path();
                    match context.find_target(table, &key)? {
                        Some(found) => found,
                        None => return Ok(false),
                    }
                }
            };
            context.change_target(target, record, body_known, edit)
        })
    }

    /// Deletes the row with this primary key. False if there is none.
    ///
    /// # Errors
    /// The errors of a lock request; [`Error::WriteSetTooLarge`].
    pub fn delete(&mut self, table: &Table, key: impl IntoKey) -> Result<bool> {
        self.operate(|context| {
            let slot = context.use_for_write(table)?;
            context.encode_key(slot, &key)?;
            context.delete_key(slot)
        })
    }

    /// As [`Transaction::update`], by the row's identity.
    ///
    /// # Errors
    /// As [`Transaction::update`].
    pub fn update_at(&mut self, table: &Table, key: &RowKey, changes: &[(usize, Value)]) -> Result<bool> {
        self.modify_at(table, key, |fields| set_all(fields, changes))
    }

    /// As [`Transaction::modify`], by the row's identity.
    ///
    /// # Errors
    /// As [`Transaction::modify`].
    pub fn modify_at(
        &mut self,
        table: &Table,
        key: &RowKey,
        edit: impl FnOnce(&mut Fields<'_>) -> Result<()>,
    ) -> Result<bool> {
        self.operate(|context| {
            let slot = context.use_for_write(table)?;
            context.key.clone_from(&key.0);
            context.change(slot, edit)
        })
    }

    /// As [`Transaction::delete`], by the row's identity.
    ///
    /// # Errors
    /// As [`Transaction::delete`].
    pub fn delete_at(&mut self, table: &Table, key: &RowKey) -> Result<bool> {
        self.operate(|context| {
            let slot = context.use_for_write(table)?;
            context.key.clone_from(&key.0);
            context.delete_key(slot)
        })
    }
}
