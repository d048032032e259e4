//! Redo of disk-resident tables.
//!
//! The pages of a checkpoint are the tables at a place: they have each packet up to it, whole, and nothing of a later one.
//! So redo leaves out the records up to there, and redoes the others one by one, in their order, with the steps of an
//! operation and its commit. One thread redoes all records of a table, since two rows may have a unique key in turn. An index that
//! the checkpoint does not have is built at the end.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::catalog::senseless;
use super::table::{At, Builder, RedoTable, Scratch, damaged, row_at};
use crate::catalog::{Description, RowNumbers};
use crate::commit::redo::{Change, RedoRecord};
use crate::error::Result;
use crate::ids::Lsn;
use crate::row::{self, Key, Nulls, WhichIndex};
use crate::store::paged::{EnteredInPages, IndexBuild, PageAccess, PagedIndex, PagedTable};
use crate::store::tree::{Admit, Batch, Direction, Guard, MAX_KEY_BYTES, More, ScanRange};
use crate::store::{RowLocation, TableParts, TableStore, TableVersion};

/// The pages of a table during redo.
pub(super) struct RedoPages {
    /// With the indexes that redo keeps in step with the rows: those that the checkpoint has. The others are built when the log is
    /// redone.
    pub table: PagedTable,
    /// The positions of these indexes in the table's description.
    positions: Vec<usize>,
    /// They have everything up to this place.
    pub place: Lsn,
}

impl RedoPages {
    /// The pages of a table of this description.
    pub fn new(table: &PagedTable, description: &Description, place: Lsn) -> RedoPages {
        let position =
            |index: &PagedIndex| description.indexes.iter().position(|known| known.id == index.id());
        let (indexes, positions) = table
            .secondaries()
            .iter()
            .filter_map(|index| position(index).map(|position| (index.clone(), position)))
            .unzip();
        RedoPages { table: table.with_secondaries(indexes), positions, place }
    }

    /// The positions of each index that redo keeps in step: in the pages, and in the description.
    fn in_step(&self) -> impl Iterator<Item = (usize, usize)> {
        self.positions.iter().copied().enumerate()
    }
}

impl RedoTable {
    /// As [`RedoTable::redo`], of a disk-resident table.
    pub(super) fn redo_in_pages(
        &self,
        redone: &RedoPages,
        at: At,
        record: &RedoRecord<'_>,
        scratch: &mut Scratch,
    ) -> Result<bool> {
        let (lsn, key, pages, place) = (at.lsn, record.key, &redone.table, redone.place);
        if lsn <= place {
            return Ok(false);
        }
        if key.len() > MAX_KEY_BYTES {
            return Err(senseless(self, lsn, "its key is too long"));
        }
        let found = pages.find(&scratch.by, key)?.location;
        let mut old = Vec::new();
        if found.is_some() {
            pages.read(&scratch.by, key, &mut old)?;
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
                self.put_in_pages(redone, (lsn, key), found.map(|found| (found, &old[..])), scratch)?;
            }
            (Change::Patch(_) | Change::Operate(_), Some(found)) => {
                scratch.body.clone_from(&old);
                self.patch_body(lsn, record, scratch)?;
                self.put_in_pages(redone, (lsn, key), Some((found, &old)), scratch)?;
            }
            (Change::Delete, Some(found)) => {
                pages.claim_row(&scratch.by, key)?;
                for (tree, position) in redone.in_step() {
                    self.give_up_entry(pages, (lsn, key), tree, &self.entry_of(position, key, &old))?;
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
        tree: usize,
        entry: &[u8],
    ) -> Result<()> {
        pages.claim_entry(&PageAccess::plain(), tree, entry, key)?;
        pages.remove_entry(tree, entry, key, lsn);
        Ok(())
    }

    /// Puts the body in `scratch` at a key, over the one that is there.
    fn put_in_pages(
        &self,
        redone: &RedoPages,
        (lsn, key): (Lsn, &[u8]),
        before: Option<(RowLocation, &[u8])>,
        scratch: &Scratch,
    ) -> Result<()> {
        let Scratch { by, body, .. } = scratch;
        let pages = &redone.table;
        match before {
            None => {
                let location = pages.reserve(by, key, body.len())?;
                pages.enter_row(by, key, (location, body.len()), || Admit::GoAndUnguard)?;
                pages.put(by.fingers(), key, location, body, lsn);
                pages.count_rows(1);
            }
            Some((found, _)) => {
                let claimed = pages.claim_row(by, key)?;
                let moved = pages.reserve_again(by, key, (found, claimed), body.len())?;
                pages.put(by.fingers(), key, moved.unwrap_or(found), body, lsn);
                if moved.is_some() {
                    pages.release(found);
                }
            }
        }
        for (tree, position) in redone.in_step() {
            let entry = self.entry_of(position, key, body);
            if let Some((_, old)) = before {
                let given_up = self.entry_of(position, key, old);
                if given_up == entry {
                    continue;
                }
                self.give_up_entry(pages, (lsn, key), tree, &given_up)?;
            }
            if entry.len() > MAX_KEY_BYTES {
                return Err(senseless(self, lsn, "its key in a secondary index is too long"));
            }
            if pages.enter(by, tree, &entry, key, || Admit::GoAndUnguard)? == EnteredInPages::Other {
                return Err(senseless(self, lsn, &self.twice_in_pages(position, &entry)));
            }
            pages.claim_entry(by, tree, &entry, key)?;
            pages.settle(tree, &entry, key, lsn);
        }
        Ok(())
    }
}

impl RedoTable {
    fn twice_in_pages(&self, position: usize, entry: &[u8]) -> String {
        let key = self.schema.print_key(WhichIndex::Secondary(position), entry);
        format!(
            "two rows have the key {key} of the unique index \"{}\"",
            self.schema.indexes()[position].name
        )
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
        let RedoTable { description, .. } = table;
        let (mut known, mut secondaries) = (Vec::new(), Vec::new());
        for (position, index) in table.schema.indexes().iter().enumerate() {
            secondaries.push(match pages.table.secondaries().iter().find(|there| there.id() == index.id) {
                Some(there) => there.clone(),
                // What is only looked at is as of the checkpoint.
                None if self.disk_tables.is_read_only() => continue,
                None => self.build_in_pages(table, pages, position)?,
            });
            known.push(index.clone());
        }
        let schema = table.schema.with_indexes(known)?;
        let in_pages = pages.table.with_secondaries(secondaries);
        in_pages.discard_other_indexes();
        // The hidden row number is the key only where the table has no other.
        let is_keyed = table.schema.primary_key().is_some();
        let highest = if description.numbered && !is_keyed { last_row_number(&pages.table)? } else { 0 };
        Ok(TableVersion::new(TableParts {
            id: description.id,
            schema: Arc::new(schema),
            primary_id: description.primary_id,
            numbered: description.numbered,
            fill_percent: description.fill_percent,
            store: TableStore::in_pages(in_pages),
            numbers: Arc::new(RowNumbers::new(first_row_number.max(highest + 1))),
            floor: Arc::new(AtomicU64::new(0)),
            lineage: Arc::default(),
        }))
    }
}

impl Builder<'_> {
    /// Builds an index that the checkpoint does not have.
    fn build_in_pages(&self, table: &RedoTable, pages: &RedoPages, position: usize) -> Result<PagedIndex> {
        let (by, rows) = (&PageAccess::plain(), &pages.table);
        let index = self.disk_tables.make_index(rows, table.schema.indexes()[position].id)?;
        let mut build = IndexBuild::new(index, self.segments.budget().clone());
        let (which, range, direction, mut batch) =
            (WhichIndex::Primary, ScanRange::ALL, Direction::Forward, Batch::new());
        let (mut body, go_on) = (Vec::new(), &|| Ok(()));
        let twice = |entry: Key| damaged(&table.schema, table.twice_in_pages(position, &entry));
        loop {
            let more = rows.read_leaf(by, which, &range, direction, Guard::Leave, &mut batch)?;
            for (key, _) in batch.iter() {
                if rows.read(by, key, &mut body)? {
                    let entry = table.entry_of(position, key, &body);
                    build.push(&entry, key, go_on)?.map_err(twice)?;
                }
            }
            if more == More::No {
                return build.finish(go_on)?.map_err(twice);
            }
        }
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
