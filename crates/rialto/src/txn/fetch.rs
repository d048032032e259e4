//! The fetch stage of a transaction: its body runs so that the pages that it needs come into memory.
//!
//! Invariants:
//!
//! - **The fetch stage changes nothing that others see.** What the body writes goes into the write set, as whole rows. The stage
//!   makes no placeholder in an index, reserves no space and marks no entry; it ends with an abort.
//! - **It waits for no lock and holds none but intentions to read** (I6). These keep the definitions of the tables that
//!   it reads as they are. They conflict only with a lock on a whole table, for a definition or for changes. Any other
//!   lock request is refused, and so ends the stage: the next stage makes it.
//! - What it reads is committed (I1), and never torn. Two reads may be of two moments. So the body may meet what no transaction
//!   ever sees; its result, its errors and its panics are dropped, and it has a budget.
//! - It sees its own writes by key, and in scans those of rows that were there before.
//!
//! The stage also looks up the index entries that the operate stage will insert or remove, so that their pages come into memory.

use std::cell::Cell;

use super::context::Context;
use super::fields::Edited;
use crate::commit::redo;
use crate::commit::write_set::{CurrentLocation, Effect, TargetRow, WriteKind};
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::isolate::LockPolicy;
use crate::row::{Key, WhichIndex};
use crate::store::{Followed, RowLocation};

/// How many operations and rows of scans the stage may take.
const BUDGET: u32 = 1_000_000;

/// Whether a transaction is in the fetch stage, and what is left of its budget.
#[derive(Debug, Default)]
pub(crate) struct FetchStage {
    is_on: bool,
    left: Cell<u32>,
    /// The savepoints of the transaction whose statement it is.
    savepoints_before: usize,
}

impl FetchStage {
    /// How many savepoints are not its own.
    pub fn savepoints_before(&self) -> usize {
        self.savepoints_before
    }

    /// Counts a step.
    ///
    /// # Errors
    /// If the budget is used up.
    pub fn step(&self) -> Result<()> {
        match self.left.get().checked_sub(1) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(fetched("its budget of steps is used up")),
        }
    }
}

/// The error by which the stage ends before the end of its body.
#[cold]
fn fetched(why: &str) -> Error {
    Error::Deadlock { waiting_for: format!("nothing: in the fetch stage of the transaction {why}") }
}

impl Context {
    /// Whether the transaction is in its fetch stage.
    #[inline(always)]
    pub fn fetches(&self) -> bool {
        self.fetch_stage.is_on
    }

    /// Begins the fetch stage, in a transaction that has just begun.
    pub fn begin_fetch_stage(&mut self) {
        let savepoints_before = self.savepoints.len();
        self.fetch_stage = FetchStage { is_on: true, left: Cell::new(BUDGET), savepoints_before };
        // A lock on a table by intention is refused at once.
        self.choices.lock_wait = LockPolicy::Refuse;
        self.hinder();
    }

    /// Ends it.
    pub fn end_fetch_stage(&mut self) {
        self.fetch_stage = FetchStage::default();
    }

    /// Whether the run that ends is followed by the transaction's next stage, and so is no abort.
    pub(super) fn ends_a_stage(&self) -> bool {
        self.fetches() || self.page_access.takes_miss()
    }

    /// The error of a lock request in the fetch stage.
    #[cold]
    pub(super) fn refuse_lock(&self) -> Error {
        fetched("no lock is taken")
    }

    /// The error of a write for which no packet is free.
    #[cold]
    pub(super) fn refuse_packet(&self) -> Error {
        fetched("no packet is waited for")
    }

    /// Reads the row of the key in `self.key` into `self.body`. False if there is none.
    pub(super) fn fetch_row(&mut self, slot: u32) -> Result<bool> {
        let mut body = std::mem::take(&mut self.body);
        let there = self.fetch_row_into(slot, &mut body);
        self.body = body;
        there
    }

    fn fetch_row_into(&self, slot: u32, body: &mut Vec<u8>) -> Result<bool> {
        if let Some(own) = self.find_own(slot) {
            return self.read_at_into(slot, CurrentLocation::Own(own), body);
        }
        let Followed { there, .. } = self.fetch_entry(slot, WhichIndex::Primary, &self.key, body)?;
        Ok(there)
    }

    /// Reads the row that an entry of an index leads to.
    fn fetch_entry(
        &self,
        slot: u32,
        which: WhichIndex,
        entry: &[u8],
        body: &mut Vec<u8>,
    ) -> Result<Followed> {
        self.tables.at(slot).read_by_entry(&self.page_access, which, entry, body)
    }

    /// The row of the key in `self.key`, which is about to be changed, with its body in `self.body`.
    pub(super) fn fetch_target(&mut self, slot: u32) -> Result<Option<(TargetRow, RowLocation, bool)>> {
        if !self.fetch_row(slot)? {
            return Ok(None);
        }
        let target = TargetRow { slot, location: self.own_or_stored(slot) };
        // The body is all that is known of the row, in whatever store it is.
        Ok(Some((target, RowLocation::IN_LINE, true)))
    }

    fn own_or_stored(&self, slot: u32) -> CurrentLocation {
        match self.find_own(slot) {
            Some(own) => CurrentLocation::Own(own),
            None => CurrentLocation::Stored(RowLocation::IN_LINE),
        }
    }

    /// Changes the row of the key in `self.key` to the body in `self.body`.
    pub(super) fn fetch_change(&mut self, target: TargetRow, edited: Edited) -> Result<()> {
        let slot = target.slot;
        if edited != Edited::Fields {
            let (mut old, mut found, mut key) = (Vec::new(), Vec::new(), Key::new());
            if !self.fetch_row_into(slot, &mut old)? {
                // Another transaction has just deleted it.
                return Ok(());
            }
            let table = self.tables.at(slot);
            table.schema.primary_key_of_row(
                &self.body[table.row_at()..],
                table.row_number(&self.body),
                &mut key,
            );
            if key != self.key {
                self.fetch_entry(slot, WhichIndex::Primary, &key, &mut found)?;
            }
            self.fetch_entries(slot, &self.key, &old)?;
            self.fetch_entries(slot, &key, &self.body)?;
        }
        self.fetch_put(target)
    }

    /// Looks up the entries that a row with this primary key has in secondary indexes.
    fn fetch_entries(&self, slot: u32, key: &Key, body: &[u8]) -> Result<()> {
        let (table, mut entry, mut found) = (self.tables.at(slot), Key::new(), Vec::new());
        if fault_injection::is_on("fetch-forgets-entries") {
            return Ok(());
        }
        for position in 0..table.schema.indexes().len() {
            table.schema.index_key_of_row(position, &body[table.row_at()..], key, &mut entry);
            self.fetch_entry(slot, WhichIndex::Secondary(position), &entry, &mut found)?;
        }
        Ok(())
    }

    /// Inserts the row in `self.body`, whose key is in `self.key`.
    pub(super) fn fetch_insert(&mut self, slot: u32) -> Result<()> {
        let mut found = Vec::new();
        if self.fetch_row_into(slot, &mut found)? {
            return Err(self.duplicate(slot, WhichIndex::Primary, &self.key));
        }
        self.fetch_entries(slot, &self.key, &self.body)?;
        let location = match self.find_own(slot) {
            Some(own) => CurrentLocation::Own(own),
            None => CurrentLocation::Absent(None),
        };
        self.fetch_put(TargetRow { slot, location })
    }

    fn fetch_put(&mut self, target: TargetRow) -> Result<()> {
        if let Some(pages) = self.tables.at(target.slot).store.pages() {
            pages.fetch_room(&self.page_access, &self.key, self.body.len())?;
        }
        self.step(|context| {
            context.push_put(
                target,
                Effect { rekeys: true, ..Effect::of(WriteKind::Put, RowLocation::IN_LINE) },
            );
            Ok(())
        })
    }

    /// Deletes the row of the key in `self.key`. False if there is none.
    pub(super) fn fetch_delete(&mut self, slot: u32) -> Result<bool> {
        if !self.fetch_row(slot)? {
            return Ok(false);
        }
        self.fetch_entries(slot, &self.key, &self.body)?;
        let target = TargetRow { slot, location: self.own_or_stored(slot) };
        self.step(|context| {
            let table = context.tables.at(slot).id;
            let packet = context.packet.as_mut().expect("borrowed by check_write").bytes_mut();
            let record_at = redo::write_delete(packet, table, &context.key);
            let effect = Effect { rekeys: true, ..Effect::of(WriteKind::Delete, RowLocation::IN_LINE) };
            context.push_write(target, effect, record_at);
            Ok(())
        })?;
        Ok(true)
    }
}
