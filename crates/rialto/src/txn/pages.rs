//! Operations on disk-resident tables.
//!
//! A row in a page has no place that stays, so it is locked by the name of its primary key, and an operation reads it by
//! that key under the lock. An operation *claims* what its commit will change (`store/paged/paged_table.rs`), and notes each
//! claim in the write set behind its write, so that an abort takes it back.

use super::context::Context;
use super::insert::admission;
use crate::commit::redo;
use crate::commit::write_set::{CurrentLocation, Effect, EntryInPages, IndexAdd, TargetRow, WriteKind};
use crate::error::Result;
use crate::isolate::LockTarget;
use crate::row::{Key, WhichIndex};
use crate::store::paged::{ClaimedRow, EnteredInPages, PagedTable};
use crate::store::{InsertRow, RowLocation, TableVersion};
use crate::unlikely::unlikely;

/// The trees of a table that is known to be disk-resident.
fn pages_of(table: &TableVersion) -> &PagedTable {
    table.store.pages().expect("the caller has looked")
}

impl Context {
    /// The trees of a table, if it is disk-resident.
    #[inline(always)]
    pub(super) fn pages(&self, slot: u32) -> Option<&PagedTable> {
        self.tables.at(slot).store.pages()
    }

    /// Whether a table is disk-resident. Then a transaction that has read without locks goes on with them, since pages tell
    /// nothing of a row's version.
    pub(super) fn reads_pages(&mut self, slot: u32) -> Result<bool> {
        if self.pages(slot).is_none() {
            return Ok(false);
        }
        self.read_locked().map(|()| true)
    }

    /// Where the row of the key in `self.key` is, which is locked. Notes what the answer depends on.
    pub(super) fn find_in_pages(&mut self, slot: u32) -> Result<CurrentLocation> {
        let table = self.tables.at(slot);
        let (found, floor) = (pages_of(table).find(&self.page_access, &self.key)?, table.floor());
        self.depend(found.lsn.max(floor));
        Ok(match found.location {
            Some(location) if !found.is_absent => CurrentLocation::Stored(location),
            // A placeholder of this transaction is in its write set.
            _ => CurrentLocation::Absent(None),
        })
    }

    /// Inserts the row in `self.body`, whose key in `self.key` is locked and absent.
    #[inline(never)]
    pub(super) fn insert_new_in_pages(&mut self, slot: u32) -> Result<()> {
        let indexed = !self.tables.at(slot).schema.indexes().is_empty();
        if indexed {
            self.check_unique(slot, None)?;
        }
        let length = self.body.len();
        let record = pages_of(self.tables.at(slot)).reserve(&self.page_access, &self.key, length)?;
        let effect = Effect { fresh: true, rekeys: true, ..Effect::of(WriteKind::Put, record) };
        self.push_put(TargetRow { slot, location: CurrentLocation::Absent(None) }, effect);
        self.enter_row(slot, record, length)?;
        if indexed { self.add_secondary_entries(slot, None, record) } else { Ok(()) }
    }

    /// Puts the row in `self.body`, whose absent key is in `self.key`, straight into a table that no other transaction sees.
    pub(super) fn load_in_pages(&mut self, slot: u32) -> Result<()> {
        let table = self.tables.at(slot);
        let entry = |position| {
            let mut entry = Key::new();
            self.secondary_key(slot, position, None, &mut entry);
            entry
        };
        let entries: Vec<Key> = (0..table.schema.indexes().len()).map(entry).collect();
        match pages_of(table).load(&self.page_access, &self.key, &self.body, &entries)? {
            Ok(()) => Ok(()),
            Err(position) if self.is_taken(slot, position, &entries[position])? => {
                Err(self.duplicate(slot, WhichIndex::Secondary(position), &entries[position]))
            }
            // Another row of this transaction gives the key up, at the commit.
            Err(_) => self.insert_new_in_pages(slot),
        }
    }

    /// Puts a placeholder for the row of the last write into the primary tree. Waits while another transaction has read an
    /// interval that its key falls into.
    fn enter_row(&mut self, slot: u32, record: RowLocation, length: usize) -> Result<()> {
        let mut since = None;
        loop {
            let Context { core, owner, tables, key, page_access, .. } = self;
            let (table, index) = (tables.at(slot), tables.at(slot).primary_id);
            let admit = || admission(&core.locks, owner, index, key);
            match pages_of(table).enter_row(page_access, key, (record, length), admit)? {
                InsertRow::Done => {
                    self.writes.note_entered();
                    return Ok(());
                }
                InsertRow::Exists(marks) => unreachable!("a key that is locked and absent has {marks:?}"),
                InsertRow::Refused => self.lock_since(
                    &mut since,
                    |core, owner, _, key, wait| core.locks.wait_interval(owner, index, key, wait),
                    |_, key| LockTarget::Interval { index, key: key.to_vec() },
                )?,
            }
        }
    }

    /// Adds an entry of the row whose primary key is in `self.key` to a secondary index, before the commit.
    #[inline(never)]
    pub(super) fn add_entry_in_pages(&mut self, slot: u32, position: usize, entry: &Key) -> Result<()> {
        let mut since = None;
        let which = WhichIndex::Secondary(position);
        loop {
            let table = self.tables.at(slot);
            let (pages, index) = (pages_of(table), table.index_id(which));
            let admit = || admission(&self.core.locks, &self.owner, index, entry);
            match pages.enter(&self.page_access, position, entry, &self.key, admit)? {
                EnteredInPages::Done => {
                    return self.note_in_pages(slot, which, entry, EntryInPages::Made, &[]);
                }
                EnteredInPages::Own => return Ok(()),
                // The other row is this transaction's, and gives the key up: uniqueness has been checked.
                EnteredInPages::Other => {
                    let (before, is_again) =
                        pages.take_over(&self.page_access, position, entry, &self.key)?;
                    let done = EntryInPages::TakenOver { before_bytes: before.len() as u16, is_again };
                    return self.note_in_pages(slot, which, entry, done, &before);
                }
                EnteredInPages::Refused => self.lock_since(
                    &mut since,
                    |core, owner, _, _, wait| core.locks.wait_interval(owner, index, entry, wait),
                    |_, _| LockTarget::Interval { index, key: entry.to_vec() },
                )?,
            }
        }
    }

    /// Notes what was done with an entry for the last write. It is an error if the transaction's entries take too much
    /// memory; then it is taken back with the operation.
    fn note_in_pages(
        &mut self,
        slot: u32,
        which: WhichIndex,
        entry: &Key,
        done: EntryInPages,
        before: &[u8],
    ) -> Result<()> {
        let record = self.writes.writes().last().map_or(RowLocation::from_number(0), |write| write.record);
        self.writes.add_in_pages((slot, which), entry, record, done, before);
        let bytes = self.writes.entry_bytes();
        if unlikely(bytes > self.room_for_entries) { Err(self.too_many_entries(bytes)) } else { Ok(()) }
    }

    /// Pushes a write of the row in `self.body`, whole or by the fields in `self.patches`. `old` is the row before it, which
    /// was deleted if there is none; it may be empty in a table without secondary indexes.
    #[inline(never)]
    pub(super) fn push_in_pages(
        &mut self,
        target: TargetRow,
        kind: WriteKind,
        old: Option<&[u8]>,
    ) -> Result<()> {
        let slot = target.slot;
        let record = self.record_of(target.location);
        let pages = pages_of(self.tables.at(slot));
        let claimed = pages.claim_row(&self.page_access, &self.key)?;
        let body = (record, claimed);
        let moved_to = match pages.reserve_again(&self.page_access, &self.key, body, self.body.len()) {
            Ok(moved_to) => moved_to,
            Err(error) => {
                if claimed.is_new {
                    pages.unclaim_row(&self.key);
                }
                return Err(error);
            }
        };
        let effect = Effect { moved_to, rekeys: true, ..Effect::of(kind, record) };
        match kind {
            WriteKind::Patch => self.push_patch(target, effect),
            _ => self.push_put(target, effect),
        }
        self.note_row_claimed(slot, claimed)?;
        if self.tables.at(slot).schema.indexes().is_empty() {
            return Ok(());
        }
        if let Some(old) = old {
            let mut key = Key::new();
            for position in 0..self.tables.at(slot).schema.indexes().len() {
                if self.secondary_key(slot, position, Some(old), &mut key) {
                    self.claim_given_up(slot, position, old)?;
                }
            }
        }
        self.add_secondary_entries(slot, old, record)
    }

    /// Pushes a delete of the row in `self.body`, whose key is in `self.key`.
    pub(super) fn push_delete_in_pages(&mut self, target: TargetRow) -> Result<()> {
        let slot = target.slot;
        let record = self.record_of(target.location);
        let claimed = pages_of(self.tables.at(slot)).claim_row(&self.page_access, &self.key)?;
        let table = self.tables.at(slot);
        let packet = self.packet.as_mut().expect("borrowed by check_write").bytes_mut();
        let record_at = redo::write_delete(packet, table.id, &self.key);
        self.push_write(target, Effect { rekeys: true, ..Effect::of(WriteKind::Delete, record) }, record_at);
        self.note_row_claimed(slot, claimed)?;
        let body = std::mem::take(&mut self.body);
        let mut positions = 0..self.tables.at(slot).schema.indexes().len();
        let claimed = positions.try_for_each(|position| self.claim_given_up(slot, position, &body));
        self.body = body;
        claimed
    }

    fn note_row_claimed(&mut self, slot: u32, claimed: ClaimedRow) -> Result<()> {
        if !claimed.is_new {
            return Ok(());
        }
        let key = self.key.clone();
        self.note_in_pages(slot, WhichIndex::Primary, &key, EntryInPages::Claimed, &[])
    }

    /// Claims the entry of the row in `old`, whose primary key is in `self.key`, in a secondary index.
    fn claim_given_up(&mut self, slot: u32, position: usize, old: &[u8]) -> Result<()> {
        let (table, mut entry) = (self.tables.at(slot), Key::new());
        table.schema.index_key_of_row(position, &old[table.row_at()..], &self.key, &mut entry);
        if pages_of(table).claim_entry(&self.page_access, position, &entry, &self.key)? {
            self.note_in_pages(slot, WhichIndex::Secondary(position), &entry, EntryInPages::Claimed, &[])?;
        }
        Ok(())
    }

    /// Takes back what an operation has done with an entry.
    #[cold]
    pub(super) fn take_back_in_pages(&self, add: &IndexAdd, done: EntryInPages) {
        let (pages, key) = (pages_of(self.tables.at(add.slot)), self.writes.key_of_add(add));
        match (done, add.index) {
            (EntryInPages::Made, which) => pages.take_back(which, key),
            (EntryInPages::Claimed, WhichIndex::Primary) => pages.unclaim_row(key),
            (EntryInPages::Claimed, WhichIndex::Secondary(position)) => pages.unclaim_entry(position, key),
            (EntryInPages::TakenOver { before_bytes, is_again }, WhichIndex::Secondary(position)) => {
                pages.give_back(position, key, (self.writes.key_before(add, before_bytes), is_again));
            }
            (EntryInPages::TakenOver { .. }, WhichIndex::Primary) => unreachable!("a row is not taken over"),
        }
    }
}

#[cfg(test)]
mod tests;
