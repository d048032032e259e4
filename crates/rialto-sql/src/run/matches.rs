//! [`Matches`]: the rows that an UPDATE or a DELETE is about. All of them are found before the first is changed.

use std::ops::ControlFlow;
use std::sync::Arc;

use rialto::row::{RowView, Schema, Value};
use rialto::{RowKey, Scan, ScanMode, Table};

use super::kept::{ALLOCATION_BYTES, Budget, KeptRows, bytes_of};
use super::{Carried, Out, Run, holds};
use crate::error::Result;
use crate::expr::Expr;
use crate::keys::One;
use crate::plan::{self, Found};

/// How a row that was found is found again.
pub(super) enum Target {
    /// By its identity.
    Row(RowKey),
    /// By its primary key.
    Key(Box<[Value]>),
}

impl Target {
    pub(super) fn allocated_bytes(&self) -> usize {
        match self {
            Target::Row(key) => key.allocated_bytes(),
            Target::Key(key) => size_of_val(&**key) + ALLOCATION_BYTES + bytes_of(key),
        }
    }
}

/// Where rows are looked for, and what is kept of each.
pub(super) struct Matches<'a, R, K> {
    table: &'a Table,
    schema: &'a Arc<Schema>,
    /// What is checked on each row that the access path finds.
    rest: &'a [Expr],
    /// What is checked on each row of the whole table.
    all: &'a [Expr],
    keep: K,
    /// The bytes that a kept row takes.
    bytes: fn(&R) -> usize,
    rows: KeptRows<R>,
    taken: Budget,
}

impl<'a, R, K> Matches<'a, R, K>
where
    K: FnMut(&RowView<'_>, Target, &mut Out<'_>) -> Result<R>,
{
    /// Of rows in a table for which the conditions `rest` hold, or `all` where keys cannot express a value.
    pub(super) fn new(
        (table, schema): (&'a Table, &'a Arc<Schema>),
        (rest, all): (&'a [Expr], &'a [Expr]),
        bytes: fn(&R) -> usize,
        keep: K,
    ) -> Matches<'a, R, K> {
        Matches { table, schema, rest, all, keep, bytes, rows: KeptRows::new(), taken: Budget::default() }
    }

    /// Finds the rows of an access path.
    pub(super) fn find(mut self, run: &mut Run<'_, '_>, found: Found<'_>) -> Result<KeptRows<R>> {
        let (rest, all) = (self.rest, self.all);
        match found {
            Found::Nothing => {}
            Found::Point(key) => self.point(run, &key)?,
            Found::Scan(scan) => self.scan(run, &scan, rest)?,
            Found::Everything => self.scan(run, &plan::everything(ScanMode::Update), all)?,
            Found::Each(keys) => {
                for key in keys {
                    match key? {
                        One::Point(key) => self.point(run, &key)?,
                        One::Scan(scan) => self.scan(run, &scan, rest)?,
                    }
                }
            }
        }
        Ok(self.rows)
    }

    /// Keeps a row if the conditions hold for it.
    fn take(
        &mut self,
        row: &RowView<'_>,
        conditions: &[Expr],
        out: &mut Out<'_>,
        target: impl FnOnce() -> Target,
    ) -> Result<()> {
        if holds(conditions, row, out.context)? {
            let kept = (self.keep)(row, target(), out)?;
            self.taken.take((self.bytes)(&kept))?;
            self.rows.push(kept);
        }
        Ok(())
    }

    fn scan(&mut self, run: &mut Run<'_, '_>, scan: &Scan, conditions: &[Expr]) -> Result<()> {
        let mut carried = Carried::new();
        let Run { tx, out } = run;
        let scanned = tx.scan_planned(self.table, self.schema, scan, |key, row| {
            let taken = self.take(&row, conditions, out, || Target::Row(key.clone()));
            carried.keep(taken.map(|()| ControlFlow::Continue(())))
        });
        carried.give(scanned)
    }

    fn point(&mut self, run: &mut Run<'_, '_>, key: &[Value]) -> Result<()> {
        match run.tx.get_for_update(self.table, key)? {
            Some(row) => self.take(&row.view(), self.rest, &mut run.out, || Target::Key(key.into())),
            None => Ok(()),
        }
    }
}
