//! Reads of an index alone: which rows have a key, without the rest of the rows.
//!
//! With local locks, the keys of secondary indexes are locked by themselves, and an entry is protected by the lock on
//! its key: a transaction that gives a row a key, or takes it away, holds the key exclusively to its end. So while a
//! span of keys is locked, all entries in it belong to committed rows with these keys (I1), however else those rows are
//! changed; and rows need no locks. With the other forms a row that has a key is locked itself, as a scan does.

use std::ops::ControlFlow;

use super::context::Context;
use super::read::{RowKey, view};
use super::scan::{Reads, Scan, ScanMode};
use super::transaction::Transaction;
use crate::commit::write_set::CurrentLocation;
use crate::error::{Error, Result};
use crate::row::{ColumnRef, Field, IntoKey, RowView, Value, WhichIndex};
use crate::store::{Followed, Table};
use crate::unlikely::unlikely;

/// A row's entry in an index: the columns of its key there, and the row's identity.
#[derive(Debug, Clone, Copy)]
pub struct IndexEntry<'a> {
    row: RowView<'a>,
    which: WhichIndex,
}

impl<'a> IndexEntry<'a> {
    pub(super) fn new(row: RowView<'a>, which: WhichIndex) -> IndexEntry<'a> {
        IndexEntry { row, which }
    }

    /// The value of a column of the index or of the primary key.
    ///
    /// # Errors
    /// [`Error::NoSuchColumn`]; [`Error::Unsupported`] for a column that the entry does not carry.
    pub fn get(&self, column: impl ColumnRef) -> Result<Value> {
        self.carried(column).map(|position| self.row.get(position))
    }

    /// The same as a Rust value, `Option` for one that may be NULL.
    ///
    /// # Errors
    /// As [`IndexEntry::get`]; [`Error::TypeMismatch`].
    pub fn read<T: Field>(&self, column: impl ColumnRef) -> Result<T> {
        self.carried(column).and_then(|position| self.row.read(position))
    }

    /// The value of an int2 column of the entry. Errors as [`IndexEntry::read`]; so do all `get_` methods below.
    #[inline]
    pub fn get_i16(&self, column: usize) -> Result<i16> {
        self.carried(column).and_then(|position| self.row.get_i16(position))
    }

    /// The value of an int4 column.
    #[inline]
    pub fn get_i32(&self, column: usize) -> Result<i32> {
        self.carried(column).and_then(|position| self.row.get_i32(position))
    }

    /// The value of an int8 column.
    #[inline]
    pub fn get_i64(&self, column: usize) -> Result<i64> {
        self.carried(column).and_then(|position| self.row.get_i64(position))
    }

    #[inline]
    fn carried(&self, column: impl ColumnRef) -> Result<usize> {
        let (schema, position) = (self.row.schema(), column.position(self.row.schema())?);
        let of_index = || match self.which {
            WhichIndex::Primary => false,
            WhichIndex::Secondary(nth) => schema.indexes()[nth].columns.contains(&position),
        };
        if schema.primary_key().is_some_and(|key| key.contains(&position)) || of_index() {
            return Ok(position);
        }
        self.not_carried(position)
    }

    #[cold]
    fn not_carried<T>(&self, position: usize) -> Result<T> {
        let schema = self.row.schema();
        let what = format!(
            "reading column \"{}\" of table \"{}\" from an entry of \"{}\", which has the index's columns and those of the \
             primary key: read the row by these",
            schema.columns()[position].name,
            schema.table(),
            schema.key_shape(self.which).name()
        );
        Err(Error::Unsupported { what })
    }
}

impl Transaction<'_> {
    /// Calls `look` with the entry of the row that has this key in a unique index. With [`ScanMode::Update`] the row is
    /// locked exclusively at once, for a change by its primary key, where the form of locks locks rows with it. Absence
    /// is locked, too.
    ///
    /// # Errors
    /// As [`Transaction::look_by`].
    pub fn probe<T>(
        &mut self,
        table: &Table,
        index: WhichIndex,
        key: impl IntoKey,
        mode: ScanMode,
        look: impl FnOnce(IndexEntry<'_>) -> T,
    ) -> Result<Option<T>> {
        let look = |row: RowView<'_>| look(IndexEntry::new(row, index));
        self.operate(|context| context.find_by_unique(table, index, key, (mode, Reads::Entries), look))
    }

    /// Visits the entries in a range of an index, in its order, as the transaction sees them. This is the part of
    /// [`Transaction::scan`] that an action on an index may use. The range is locked against entries that come into it
    /// or go (I7).
    ///
    /// # Errors
    /// As [`Transaction::scan`].
    pub fn entries(
        &mut self,
        table: &Table,
        scan: &Scan,
        mut visit: impl FnMut(&RowKey, IndexEntry<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let index = scan.index;
        let mut visit = |key: &RowKey, row: RowView<'_>| visit(key, IndexEntry::new(row, index));
        self.operate(|context| context.scan_with_scratch(table, None, scan, Reads::Entries, &mut visit))
    }
}

impl Context {
    /// Reads the row of an entry, whose key is locked and whose row is not, into `body`, as far as the entry is
    /// concerned; its primary key into `self.key`. False if there is none.
    pub(super) fn row_of_locked_entry(
        &mut self,
        slot: u32,
        which: WhichIndex,
        entry: &[u8],
        body: &mut Vec<u8>,
    ) -> Result<bool> {
        let Followed { record, lsn, removal, there } =
            self.tables.at(slot).read_by_entry(&self.page_access, which, entry, body)?;
        let Some(record) = record else {
            self.depend_on_removal(removal);
            return Ok(false);
        };
        match there {
            true => {
                self.depend(lsn);
                if self.side.noted {
                    self.side.note_record(record);
                }
            }
            false => self.side.note_anything_absent(),
        }
        self.key_of_body(slot, there, body);
        match self.find_own(slot) {
            // If this transaction writes the row, the entry may have a key that the row no longer has, or does not have
            // yet.
            Some(own) => Ok(self.read_at_into(slot, CurrentLocation::Own(own), body)?
                && self.row_has_key(slot, which, entry, body)),
            // In the fetch stage the entry is not locked: it may be another transaction's, which has not committed.
            None if unlikely(self.fetches()) => Ok(there && self.row_has_key(slot, which, entry, body)),
            None => Ok(there),
        }
    }

    /// The result of `look` on a row.
    #[inline]
    pub(super) fn look_at<T>(&self, slot: u32, body: &[u8], look: impl FnOnce(RowView<'_>) -> T) -> T {
        look(view(self.tables.at(slot), body))
    }
}
