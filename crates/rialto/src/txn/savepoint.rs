//! [`Savepoint`]: a point in a transaction to which it can be rolled back.

use super::context::Context;
use super::transaction::Transaction;
use crate::commit::write_set::{Mark, key_of};
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::opening::Opening;
use crate::row::WhichIndex;
use crate::store::{LoadMark, LoadedRows};

#[derive(Debug, Clone, Copy)]
pub(crate) struct SavepointState {
    pub id: u64,
    pub mark: Mark,
    /// The length of the list of tables.
    pub tables: usize,
    pub ddl_changes: usize,
    pub loaded_rows: LoadMark,
}

/// A point in a transaction to which it can be rolled back. It is valid until the transaction ends, or until the
/// savepoint or an earlier one is released or rolled back. A savepoint that an action of a flow makes is valid in that
/// action only, and no earlier one is valid there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Savepoint {
    opening: Opening,
    id: u64,
}

impl Context {
    /// Takes back writes, their index entries and their slots, down to `mark`.
    pub fn roll_back_to(&mut self, mark: &Mark) {
        while let Some(add) = self.writes.last_add(mark) {
            let (store, key) = (&self.tables.at(add.slot).store, self.writes.key_of_add(add));
            match (add.in_pages, add.replaced) {
                (Some(done), _) => self.take_back_in_pages(add, done),
                (None, Some(before)) => {
                    store.repoint(add.index, key, add.record, before);
                }
                (None, None) => store.take_back(add.index, key),
            }
            self.writes.pop_add();
        }
        let packet = self.packet.as_ref().map_or(&[][..], |packet| packet.bytes());
        while let Some(write) = self.writes.pop_write(mark, packet) {
            if let Some(ddl) = &mut self.ddl {
                ddl.write_counts.take_back(write.heap, self.writes.len());
            }
            let store = &self.tables.at(write.slot).store;
            if write.entered && !fault_injection::is_on("abort-leaves-placeholder") {
                store.take_back(WhichIndex::Primary, key_of(&write, packet));
            }
            if let Some(moved_to) = write.moved_to {
                store.release(self.number, moved_to);
            }
            if write.fresh {
                store.release(self.number, write.record);
            }
        }
        if let Some(packet) = &mut self.packet {
            packet.bytes_mut().truncate(mark.packet);
        }
        if let Some(ddl) = &mut self.ddl {
            ddl.forget_loads(mark.packet);
        }
    }

    /// Forgets the savepoints from this position on. Without a savepoint no loaded row has to be taken back by itself.
    pub fn forget_savepoints(&mut self, position: usize) {
        self.savepoints.truncate(position);
        if let Some(ddl) = &mut self.ddl
            && self.savepoints.is_empty()
        {
            ddl.loaded_rows = LoadedRows::default();
        }
    }
}

impl Transaction<'_> {
    /// A point to roll back to.
    pub fn savepoint(&mut self) -> Savepoint {
        let context = self.context();
        context.savepoint_counter += 1;
        let state = SavepointState {
            // No other context has it, not even a part's.
            id: context.savepoint_counter << 16 | u64::from(context.owner.id()),
            mark: context.mark(),
            tables: context.tables.len(),
            ddl_changes: context.ddl.as_ref().map_or(0, |ddl| ddl.changes()),
            loaded_rows: context.ddl.as_mut().map_or_else(LoadMark::default, |ddl| ddl.loaded_rows.mark()),
        };
        context.savepoints.push(state);
        Savepoint { opening: context.tables.opening(), id: state.id }
    }

    fn find_savepoint(&mut self, savepoint: &Savepoint) -> Result<usize> {
        let context = self.context();
        let missing = || Error::NoSuchSavepoint { name: format!("number {}", savepoint.id) };
        if savepoint.opening != context.tables.opening() {
            return Err(missing());
        }
        let found = context.savepoints.iter().rposition(|state| state.id == savepoint.id);
        let before = context.scope.savepoints_before().max(context.fetch_stage.savepoints_before());
        found.filter(|&position| position >= before).ok_or_else(missing)
    }

    /// Takes back everything since the savepoint, which stays. Locks are kept.
    ///
    /// # Errors
    /// [`Error::NoSuchSavepoint`] if it was released, or rolled back over.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        let position = self.find_savepoint(savepoint)?;
        let context = self.context();
        let state = context.savepoints[position];
        context.savepoints.truncate(position + 1);
        if !fault_injection::is_on("savepoint-keeps-writes") {
            context.roll_back_to(&state.mark);
        }
        context.side.note_anything_absent();
        context.roll_back_ddl(&state);
        Ok(())
    }

    /// Forgets a savepoint and those after it; their changes stay.
    ///
    /// # Errors
    /// [`Error::NoSuchSavepoint`] if it was released before, or rolled back over.
    pub fn release_savepoint(&mut self, savepoint: Savepoint) -> Result<()> {
        let position = self.find_savepoint(&savepoint)?;
        self.context().forget_savepoints(position);
        Ok(())
    }
}
