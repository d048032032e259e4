//! Redo of disk-resident tables.
//!
//! The pages of a checkpoint are the tables at a place: they have each packet up to it, whole, and nothing of a later one.
//! So redo leaves out the records up to there, and redoes the others one by one, in their order, with the steps of an
//! operation and its commit. One thread redoes all records of a table, since two rows may have a unique key in turn.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::catalog::senseless;
use super::table::{At, Builder, RedoTable, Scratch, row_at};
use crate::catalog::RowNumbers;
use crate::commit::redo::{Change, RedoRecord};
use crate::error::Result;
use crate::ids::Lsn;
use crate::row::{self, Key, Nulls, WhichIndex};
use crate::store::paged::{EnteredInPages, PageAccess, PagedTable};
use crate::store::tree::{Admit, Batch, Direction, Guard, MAX_KEY_BYTES, More, ScanRange};
use crate::store::{RowLocation, TableParts, TableStore, TableVersion};

/// The pages of a table during redo.
pub(super) struct RedoPages {
    pub table: PagedTable,
    /// They have everything up to this place.
    pub place: Lsn,
}

impl RedoTable {
    /// As [`RedoTable::redo`], of a disk-resident table.
    pub(super) fn redo_in_pages(
        &self,
        pages: &RedoPages,
        at: At,
        record: &RedoRecord<'_>,
        scratch: &mut Scratch,
    ) -> Result<bool> {
        let (lsn, key, pages, place) = (at.lsn, record.key, &pages.table, pages.place);
        let by = &PageAccess::plain();
        if lsn <= place {
            return Ok(false);
        }
        if key.len() > MAX_KEY_BYTES {
            return Err(senseless(self, lsn, "its key is too long"));
        }
        let found = pages.find(by, key)?.location;
        let mut old = Vec::new();
        if found.is_some() {
            pages.read(by, key, &mut old)?;
        }
        let missing = || {
            let key = self.schema.print_key(WhichIndex::Primary, key);
            let what = format!("the row of the key {key}, which it changes, is not in the pages");
            Err(senseless(self, lsn, &what))
        };
        match (&record.change, found) {
            (Change::Put { row_number, row }, found) => {
                if let Some(what) = row::damage(&self.schema, row, Nulls::OverZeros) {
                    return Err(self.no_row(lsn, key, what));
                }
                self.schema.primary_key_of_row(row, *row_number, &mut scratch.key);
                if scratch.key[..] != *key {
                    return Err(self.no_row(lsn, key, (0, "another key than the record's".to_owned())));
                }
                scratch.body.clear();
                if self.description.numbered {
                    scratch.body.extend_from_slice(&row_number.to_le_bytes());
                }
                scratch.body.extend_from_slice(row);
                self.put_in_pages(pages, (lsn, key), found.map(|found| (found, &old[..])), &scratch.body)?;
            }
            (Change::Patch(_) | Change::Operate(_), Some(found)) => {
                scratch.body.clone_from(&old);
                self.patch_body(lsn, record, scratch)?;
                self.put_in_pages(pages, (lsn, key), Some((found, &old)), &scratch.body)?;
            }
            (Change::Delete, Some(found)) => {
                pages.claim_row(by, key)?;
                for position in 0..self.schema.indexes().len() {
                    self.give_up_entry(pages, (lsn, key), position, &self.entry_of(position, key, &old))?;
                }
                pages.remove_row(key, lsn);
                pages.release(found);
                pages.count_rows(-1);
            }
            (Change::Patch(_) | Change::Operate(_) | Change::Delete, None) => return missing(),
            (Change::Load { .. }, _) => unreachable!("a load is redone as puts"),
        }
        Ok(true)
    }

    /// The key of a row in a secondary index.
    fn entry_of(&self, position: usize, primary: &[u8], body: &[u8]) -> Key {
        let mut entry = Key::new();
        let row = &body[row_at(self.description.numbered)..];
        self.schema.index_key_of_row(position, row, primary, &mut entry);
        entry
    }

    fn give_up_entry(
        &self,
        pages: &PagedTable,
        (lsn, key): (Lsn, &[u8]),
        position: usize,
        entry: &[u8],
    ) -> Result<()> {
        pages.claim_entry(&PageAccess::plain(), position, entry, key)?;
        pages.remove_entry(position, entry, key, lsn);
        Ok(())
    }

    /// Puts a body at a key, over the one that is there.
    fn put_in_pages(
        &self,
        pages: &PagedTable,
        (lsn, key): (Lsn, &[u8]),
        before: Option<(RowLocation, &[u8])>,
        body: &[u8],
    ) -> Result<()> {
        let by = &PageAccess::plain();
        match before {
            None => {
                let location = pages.reserve(by, key, body.len())?;
                pages.enter_row(by, key, (location, body.len()), || Admit::GoAndUnguard)?;
                pages.put(key, location, body, lsn);
                pages.count_rows(1);
            }
            Some((found, _)) => {
                pages.claim_row(by, key)?;
                let moved = pages.reserve_again(by, key, found, body.len())?;
                pages.put(key, moved.unwrap_or(found), body, lsn);
                if moved.is_some() {
                    pages.release(found);
                }
            }
        }
        for position in 0..self.schema.indexes().len() {
            let entry = self.entry_of(position, key, body);
            if let Some((_, old)) = before {
                let given_up = self.entry_of(position, key, old);
                if given_up == entry {
                    continue;
                }
                self.give_up_entry(pages, (lsn, key), position, &given_up)?;
            }
            if entry.len() > MAX_KEY_BYTES {
                return Err(senseless(self, lsn, "its key in a secondary index is too long"));
            }
            if pages.enter(by, position, &entry, key, || Admit::GoAndUnguard)? == EnteredInPages::Other {
                let index = &self.schema.indexes()[position].name;
                let what = format!(
                    "two rows have the key {} of the unique index \"{index}\"",
                    self.schema.print_key(WhichIndex::Secondary(position), &entry)
                );
                return Err(senseless(self, lsn, &what));
            }
            pages.claim_entry(by, position, &entry, key)?;
            pages.settle(position, &entry, key, lsn);
        }
        Ok(())
    }
}

impl Builder<'_> {
    /// As [`Builder::finish`], of a disk-resident table.
    pub(super) fn finish_in_pages(
        &self,
        table: &RedoTable,
        pages: &RedoPages,
        first_row_number: u64,
    ) -> Result<TableVersion> {
        let RedoTable { description, schema, .. } = table;
        // The row number is the key: a disk-resident table with a number for each row has no other key.
        let highest = if description.numbered { last_row_number(&pages.table)? } else { 0 };
        Ok(TableVersion::new(TableParts {
            id: description.id,
            schema: Arc::new(schema.clone()),
            primary_id: description.primary_id,
            numbered: description.numbered,
            fill_percent: description.fill_percent,
            store: TableStore::in_pages(pages.table.clone()),
            numbers: Arc::new(RowNumbers::new(first_row_number.max(highest + 1))),
            floor: Arc::new(AtomicU64::new(0)),
            lineage: Arc::default(),
        }))
    }
}

/// The highest key of a table of row numbers; 0 if it is empty.
fn last_row_number(pages: &PagedTable) -> Result<u64> {
    let (which, direction, mut batch) = (WhichIndex::Primary, Direction::Backward, Batch::new());
    loop {
        let more = pages.read_leaf(
            &PageAccess::plain(),
            which,
            &ScanRange::ALL,
            direction,
            Guard::Leave,
            &mut batch,
        )?;
        match (batch.iter().map(|(key, _)| key.try_into().map_or(0, u64::from_be_bytes)).max(), more) {
            (Some(highest), _) => return Ok(highest),
            (None, More::No) => return Ok(0),
            (None, More::Yes) => {}
        }
    }
}
