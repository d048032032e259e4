//! Reads of one row by a unique index.
//!
//! A present row needs no lock on an interval: while it is locked no other transaction takes its key away or gives the
//! key to another row. So the usual way is one probe of the index and one lock, as by the primary key. If the row is
//! absent, or if the probe does not decide, a scan follows, which locks the interval (I7).

use std::ops::{Bound, ControlFlow};

use super::context::Context;
use super::scan::{ByteScan, Direction, Reads, ScanMode};
use super::scope::Touch;
use super::seek::{Probe, RowLocking};
use super::transaction::Transaction;
use crate::commit::write_set::CurrentLocation;
use crate::error::{Error, Result};
use crate::isolate::{RecordMode, SpanRef};
use crate::row::{IndexRef, IntoKey, Key, KeyShape, Row, RowView, WhichIndex};
use crate::store::Table;

impl Transaction<'_> {
    /// Calls `look` with the row that has this key in a unique index, in place. With [`ScanMode::Update`] the row is
    /// locked exclusively at once, for a change by its primary key. Its absence is locked as [`Transaction::scan`]
    /// does.
    ///
    /// # Errors
    /// The error of a key that does not fit the index; [`Error::NoSuchIndex`] for an index that the table does not
    /// have; [`Error::Unsupported`] for an index that is not unique; the errors of a lock request. A position may be
    /// that of another index after indexes were dropped: give the index's name, or compare [`Table::schema`] after this
    /// call, if definitions may come in between.
    pub fn look_by<T>(
        &mut self,
        table: &Table,
        index: impl IndexRef,
        key: impl IntoKey,
        mode: ScanMode,
        look: impl FnOnce(RowView<'_>) -> T,
    ) -> Result<Option<T>> {
        self.operate(|context| context.find_by_unique(table, index, key, (mode, Reads::Rows), look))
    }

    /// A copy of the row that has this key in a unique index: [`Transaction::get`] by another key than the primary one.
    ///
    /// ```
    /// # use rialto::{Database, Result, Table, row::Row};
    /// fn by_email(db: &Database, accounts: &Table, email: &str) -> Result<Option<Row>> {
    ///     db.read(|tx| tx.get_by(accounts, "accounts_email", email))
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::look_by`]. By an index that is not unique [`Transaction::rows_by`] finds rows.
    pub fn get_by(&mut self, table: &Table, index: impl IndexRef, key: impl IntoKey) -> Result<Option<Row>> {
        let how = (ScanMode::Share, Reads::Rows);
        self.operate(|context| {
            let found = context.find_by_unique(table, index, key, how, |row| row.bytes().to_vec())?;
            let Some(bytes) = found else { return Ok(None) };
            let slot = context.use_for(table, RecordMode::Shared)?;
            Ok(Some(Row::stored(context.tables.at(slot).schema.clone(), bytes)))
        })
    }
}

#[cold]
fn not_unique(shape: &KeyShape) -> Error {
    let what = format!(
        "looking for one row by \"{}\", an index that is not unique: use Transaction::rows_by",
        shape.name()
    );
    Error::Unsupported { what }
}

impl Context {
    /// Calls `look` with the row, or what its entry has of it, that has this key in a unique index.
    pub(super) fn find_by_unique<T>(
        &mut self,
        table: &Table,
        index: impl IndexRef,
        key: impl IntoKey,
        (mode, reads): (ScanMode, Reads),
        look: impl FnOnce(RowView<'_>) -> T,
    ) -> Result<Option<T>> {
        let mode = mode.record_mode();
        if self.scope.is_on() {
            self.stay_in_table(table, Touch::Read)?;
        }
        let slot = self.use_for(table, mode)?;
        let mut entry = Key::new();
        let schema = &self.tables.at(slot).schema;
        let index = index.find(schema)?;
        let shape = schema.key_shape(index);
        key.encode_into(shape, &mut entry)?;
        if !shape.is_unique() {
            return Err(not_unique(shape));
        }
        let is_key = shape.is_whole_key(key.parts());
        if self.scope.is_on() {
            let only = Bound::Included(entry.clone());
            self.stay_in_range(slot, index, (&only, &only), reads == Reads::Entries)?;
        }
        if is_key && self.read_by_unique(slot, index, &entry, (mode, reads))? {
            return Ok(Some(self.look_at(slot, &self.body, look)));
        }
        let upper = match is_key {
            true => Bound::Included(entry.clone()),
            // A key with a NULL is followed by the primary key.
            false => {
                let mut end = entry.clone();
                if end.turn_into_prefix_end() { Bound::Excluded(end) } else { Bound::Unbounded }
            }
        };
        let bounds = (Bound::Included(entry), upper);
        let scan =
            ByteScan { index, bounds, direction: Direction::Forward, mode, reads, limit: Some(1), before: 0 };
        let (mut look, mut found) = (Some(look), None);
        let mut scratch = self.scan_scratch.take().unwrap_or_default();
        let outcome = self.scan_bytes(slot, &scan, &mut scratch, &mut |_, row| {
            found = look.take().map(|look| look(row));
            Ok(ControlFlow::Break(()))
        });
        self.scan_scratch = Some(scratch);
        outcome.map(|()| found)
    }

    /// Locks the row that the index leads to from `entry` and reads it into `self.body`. False if there is none, or if
    /// this does not decide: where locks are kept elsewhere, or where this transaction may have changed the row itself.
    fn read_by_unique(
        &mut self,
        slot: u32,
        which: WhichIndex,
        entry: &[u8],
        (mode, reads): (RecordMode, Reads),
    ) -> Result<bool> {
        if reads == Reads::Entries
            && self.scope.has_locked_span(slot, which, SpanRef::point(entry), RecordMode::Shared)
        {
            let mut body = std::mem::take(&mut self.body);
            let there = self.row_of_locked_entry(slot, which, entry, &mut body);
            self.body = body;
            return there;
        }
        if self.row_locking(slot, mode) != RowLocking::InPlace || !self.writes.is_empty() || self.fetches() {
            return Ok(false);
        }
        let mut body = std::mem::take(&mut self.body);
        let there = match self.reads.is_active() {
            true => self.read_row_unlocked(slot, which, Some(entry), None, &mut body),
            false => self.lock_entry(slot, which, entry, mode).and_then(|probe| match probe {
                Some(Probe::Present(record)) => {
                    let location = self.stored(slot, record);
                    Ok(!matches!(location, CurrentLocation::Absent(_))
                        && self.read_at_into(slot, location, &mut body)?)
                }
                Some(Probe::Absent { .. }) | None => Ok(false),
            }),
        };
        self.body = body;
        there
    }

    /// Locks the row that the index leads to from `entry`. `None` if it leads nowhere.
    fn lock_entry(
        &mut self,
        slot: u32,
        which: WhichIndex,
        entry: &[u8],
        mode: RecordMode,
    ) -> Result<Option<Probe>> {
        let found = self.look_up(slot, which, Some(entry));
        let Some(record) = found.location() else { return Ok(None) };
        self.lock_present(slot, which, Some(entry), Some((record, found.leaf)), mode).map(Some)
    }
}
