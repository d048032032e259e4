//! [`Rows`]: a scan as an iterator.

use std::iter::FusedIterator;
use std::ops::{Bound, ControlFlow};

use super::context::Context;
use super::scan::{ByteScan, Direction, ESCALATE_ROWS, Reads, Scan};
use super::transaction::Transaction;
use crate::error::Result;
use crate::row::{IndexRef, IntoKey, Key, Row, WhichIndex};
use crate::store::Table;

/// How many rows are read ahead at first, and at most; each time twice as many as the last time.
const AHEAD_MIN: u64 = 4;
const AHEAD_MAX: u64 = 128;

/// An iterator over copies of the rows of a scan, in the order of its index: [`Transaction::rows`] and
/// [`Transaction::rows_by`] return it. It borrows the transaction, which does nothing else meanwhile: to change rows,
/// collect them first.
///
/// It reads ahead, 4 rows at first and at most 128: the rows that were read ahead are locked, too, and so is the range
/// up to the last of them. It ends after its first error.
pub struct Rows<'t> {
    context: &'t mut Context,
    slot: u32,
    /// What was not read yet. None: there is nothing more.
    rest: Option<ByteScan>,
    /// How many rows of that are wanted.
    wanted: u64,
    ahead: u64,
    read: std::vec::IntoIter<Row>,
}

impl Transaction<'_> {
    /// The rows of a range in the order of an index, as the transaction sees them: [`Transaction::scan`] as an
    /// iterator. The range is locked against rows that come into it (I7) as far as it was read, and each row that was
    /// read. More is locked at once in two cases: a scan without bounds and limit locks the table, and executors lock
    /// the whole range.
    ///
    /// ```
    /// # use rialto::{Database, Result, Scan, Table};
    /// fn total(db: &Database, accounts: &Table) -> Result<i64> {
    ///     db.read(|tx| tx.rows(accounts, &Scan::all())?.map(|row| row?.read::<i64>("balance")).sum())
    /// }
    /// ```
    ///
    /// # Errors
    /// The error of bounds that do not fit the index; [`Error::NoSuchIndex`](crate::Error::NoSuchIndex) for an index
    /// that the table does not have; the errors of a lock request, for the lock on the table. The errors of the locks
    /// on the range and its rows are items of the iterator.
    pub fn rows(&mut self, table: &Table, scan: &Scan) -> Result<Rows<'_>> {
        let range = self.operate(|context| context.begin_scan(table, None, scan, Reads::Rows))?;
        Ok(Rows::new(self.context(), range))
    }

    /// The rows whose key in an index has these values in its first columns: all rows of the index if there are none.
    ///
    /// ```
    /// # use rialto::{Database, Result, Table, row::Row};
    /// fn of_branch(db: &Database, accounts: &Table, branch: i32) -> Result<Vec<Row>> {
    ///     db.read(|tx| tx.rows_by(accounts, "accounts_branch", branch)?.collect())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::rows`].
    pub fn rows_by(&mut self, table: &Table, index: impl IndexRef, prefix: impl IntoKey) -> Result<Rows<'_>> {
        let range = self.operate(|context| context.begin_scan_by(table, index, prefix))?;
        Ok(Rows::new(self.context(), Some(range)))
    }
}

impl<'t> Rows<'t> {
    fn new(context: &'t mut Context, range: Option<(u32, ByteScan)>) -> Rows<'t> {
        let (slot, rest) = range.map_or((0, None), |(slot, range)| (slot, Some(range)));
        let wanted = rest.as_ref().and_then(|range| range.limit).unwrap_or(u64::MAX);
        Rows { context, slot, rest, wanted, ahead: AHEAD_MIN, read: Vec::new().into_iter() }
    }

    /// Reads the next rows; none if there are none.
    fn read_ahead(&mut self) -> Result<()> {
        let Some(mut range) = self.rest.take().filter(|_| self.wanted > 0) else { return Ok(()) };
        let limit = self.ahead.min(self.wanted);
        range.limit = Some(limit);
        let Rows { context, slot, .. } = self;
        let schema = context.tables.at(*slot).schema.clone();
        let (mut rows, mut last) = (Vec::with_capacity(limit as usize), Key::new());
        let mut scratch = context.scan_scratch.take().unwrap_or_default();
        let outcome = context.scan_bytes(*slot, &range, &mut scratch, &mut |key, row| {
            if rows.len() as u64 + 1 == limit {
                match range.index {
                    WhichIndex::Primary => last.clone_from(&key.0),
                    WhichIndex::Secondary(position) => {
                        schema.index_key_of_row(position, row.bytes(), &key.0, &mut last);
                    }
                }
            }
            rows.push(Row::stored(schema.clone(), row.bytes().to_vec()));
            Ok(ControlFlow::Continue(()))
        });
        context.scan_scratch = Some(scratch);
        if let Err(error) = &outcome {
            context.note_error(error);
        } else if rows.len() as u64 == limit {
            // Nothing else runs in the transaction meanwhile: no entry of it comes behind the last one in the order,
            // nor goes.
            match range.direction {
                Direction::Forward => range.bounds.0 = Bound::Excluded(last),
                Direction::Backward => range.bounds.1 = Bound::Excluded(last),
            }
            // At the bound it has asked for the table just now.
            range.before = limit + if range.before < ESCALATE_ROWS { range.before } else { 0 };
            self.rest = Some(range);
            self.wanted -= limit;
            self.ahead = (2 * self.ahead).min(AHEAD_MAX);
        }
        self.read = rows.into_iter();
        outcome
    }
}

impl Iterator for Rows<'_> {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Result<Row>> {
        if self.read.len() == 0
            && let Err(error) = self.read_ahead()
        {
            self.read = Vec::new().into_iter();
            return Some(Err(error));
        }
        self.read.next().map(Ok)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let read = self.read.len();
        let rest = match self.rest {
            None => Some(0),
            Some(_) => usize::try_from(self.wanted).ok(),
        };
        (read, rest.and_then(|rest| rest.checked_add(read)))
    }
}

impl FusedIterator for Rows<'_> {}
