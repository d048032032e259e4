//! SELECT, and COPY to a client.

use std::ops::ControlFlow;
use std::sync::Arc;

use rialto::row::{RowView, Schema, Value};
use rialto::{Scan, ScanMode, Table, Transaction};

use super::kept::Sorted;
use super::{Carried, Out, Run, holds};
use crate::bind::{BoundSelect, RowSource};
use crate::error::{Result, SqlError, SqlState};
use crate::expr::cast::cast;
use crate::expr::{Columns, Context, Expr, NoColumns};
use crate::keys::One;
use crate::plan::{self, Found};
use crate::prepared::{CopyPlan, SelectPlan};
use crate::values::SqlType;

/// The first and last row wanted.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    /// OFFSET.
    pub(crate) skip: u64,
    /// LIMIT.
    pub(crate) take: u64,
}

/// The rows that OFFSET and LIMIT ask for.
pub(crate) fn window(context: Context<'_>, bound: &BoundSelect) -> Result<Window> {
    let count = |expr: &Option<Expr>, what: &str| -> Result<Option<u64>> {
        let Some(expr) = expr else { return Ok(None) };
        match expr.eval(&NoColumns, context)? {
            Value::Int8(count) => match u64::try_from(count) {
                Ok(count) => Ok(Some(count)),
                Err(_) => {
                    let message = format!("{what} must not be negative");
                    Err(SqlError::new(SqlState::InvalidParameterValue, message))
                }
            },
            _ => Ok(None),
        }
    };
    Ok(Window {
        skip: count(&bound.offset, "OFFSET")?.unwrap_or(0),
        take: count(&bound.limit, "LIMIT")?.unwrap_or(u64::MAX),
    })
}

/// The way of rows to the client: they are filtered already, then counted, or sorted, or cut to the window.
struct Pipeline<'p> {
    bound: &'p BoundSelect,
    window: Window,
    /// Whether rows come in the wanted order.
    ordered: bool,
    counted: i64,
    passed: u64,
    sent: u64,
    sorted: Sorted<'p>,
}

impl<'p> Pipeline<'p> {
    /// One row.
    fn push<C: Columns + ?Sized>(&mut self, out: &mut Out<'_>, row: &C) -> Result<ControlFlow<()>> {
        if self.bound.counts {
            self.counted += 1;
            return Ok(ControlFlow::Continue(()));
        }
        if !self.ordered {
            let eval = |exprs: &mut dyn ExactSizeIterator<Item = &Expr>| {
                let mut values = Vec::with_capacity(exprs.len());
                for expr in exprs {
                    values.push(expr.eval(row, out.context)?);
                }
                Ok::<_, SqlError>(values)
            };
            let keys = eval(&mut self.bound.order.iter().map(|order| &order.expr))?;
            let values = eval(&mut self.bound.items.iter())?;
            self.sorted.push(keys, values)?;
            return Ok(ControlFlow::Continue(()));
        }
        self.passed += 1;
        if self.passed > self.window.skip {
            out.send(&self.bound.items, row)?;
            self.sent += 1;
            if self.sent >= self.window.take {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The row of a primary key, if it is there and fits the conditions.
    fn push_point(
        &mut self,
        run: &mut Run<'_, '_>,
        table: &Table,
        key: &[Value],
        (mode, rest): (ScanMode, &[Expr]),
    ) -> Result<ControlFlow<()>> {
        let out = &mut run.out;
        let mut show = |row: RowView<'_>| match holds(rest, &row, out.context)? {
            true => self.push(out, &row),
            false => Ok(ControlFlow::Continue(())),
        };
        let flow = match mode {
            // Read in place in the kernel, without a copy of the row.
            ScanMode::Share => run.tx.look(table, key, &mut show)?.transpose()?,
            ScanMode::Update => run.tx.get_for_update(table, key)?.map(|row| show(row.view())).transpose()?,
        };
        Ok(flow.unwrap_or(ControlFlow::Continue(())))
    }

    /// The rows of a scan that fit the conditions.
    fn push_scan(
        &mut self,
        run: &mut Run<'_, '_>,
        (table, schema): (&Table, &Arc<Schema>),
        scan: &Scan,
        rest: &[Expr],
    ) -> Result<ControlFlow<()>> {
        let out = &mut run.out;
        let mut carried = Carried::new();
        let mut flow = ControlFlow::Continue(());
        let scanned = run.tx.scan_planned(table, schema, scan, |_, row| {
            carried.keep(match holds(rest, &row, out.context) {
                Ok(true) => self.push(out, &row).inspect(|pushed| flow = *pushed),
                Ok(false) => Ok(ControlFlow::Continue(())),
                Err(error) => Err(error),
            })
        });
        carried.give(scanned)?;
        Ok(flow)
    }

    /// After the last row. Gives the number of rows sent.
    fn finish(mut self, run: &mut Run<'_, '_>) -> Result<u64> {
        let Run { tx, out } = run;
        if self.bound.counts {
            out.context.count = self.counted;
            if self.window.skip == 0 && self.window.take > 0 {
                out.send(&self.bound.items, &NoColumns)?;
                self.sent = 1;
            }
            return Ok(self.sent);
        }
        let skip = usize::try_from(self.window.skip).unwrap_or(usize::MAX);
        let take = usize::try_from(self.window.take).unwrap_or(usize::MAX);
        for values in self.sorted.finish().skip(skip).take(take) {
            tx.check()?;
            out.sink.row(out.plan, &values)?;
            self.sent += 1;
        }
        Ok(self.sent)
    }
}

/// Runs a SELECT. Gives the number of rows sent.
pub fn select(run: &mut Run<'_, '_>, plan: &SelectPlan) -> Result<u64> {
    let bound = &plan.bound;
    if plan.plain
        && let (RowSource::Table(table, schema), Some(access)) = (&bound.source, &plan.access)
        && let Some(key) = access.path.integer_key(schema, run.out.context)
    {
        return look(run, bound, table, &[key], &access.rest);
    }
    let window = window(run.out.context, bound)?;
    let ordered = match &plan.access {
        Some(access) => access.ordered,
        None => bound.order.is_empty(),
    };
    let wanted = usize::try_from(window.skip.saturating_add(window.take)).unwrap_or(usize::MAX);
    let sorted = Sorted::new(&bound.order, wanted);
    let mut pipeline = Pipeline { bound, window, ordered, counted: 0, passed: 0, sent: 0, sorted };
    if window.take == 0 {
        stay_with_source(run, bound)?;
        return Ok(0);
    }
    match &bound.source {
        RowSource::Nothing => {
            if holds(&bound.filter, &NoColumns, run.out.context)? {
                let _ = pipeline.push(&mut run.out, &NoColumns)?;
            }
        }
        RowSource::Series(bounds, sql_type) => {
            let Run { tx, out } = run;
            series(out, bounds, *sql_type, |out, row| {
                tx.check()?;
                if !holds(&bound.filter, row, out.context)? {
                    return Ok(ControlFlow::Continue(()));
                }
                pipeline.push(out, row)
            })?;
        }
        RowSource::Table(table, schema) => {
            let access = plan.access.as_ref().expect("a SELECT from a table has an access path");
            let mode = if bound.for_update { ScanMode::Update } else { ScanMode::Share };
            let source = (table, schema);
            match access.path.find(schema, run.out.context, mode)? {
                Found::Nothing => stay_with_source(run, bound)?,
                Found::Point(key) => {
                    let _ = pipeline.push_point(run, table, &key, (mode, &access.rest))?;
                }
                Found::Each(keys) => {
                    for key in keys {
                        let flow = match key? {
                            One::Point(key) => pipeline.push_point(run, table, &key, (mode, &access.rest))?,
                            One::Scan(scan) => pipeline.push_scan(run, source, &scan, &access.rest)?,
                        };
                        if flow.is_break() {
                            break;
                        }
                    }
                }
                Found::Scan(mut scan) => {
                    if access.rest.is_empty() && access.ordered && !bound.counts {
                        scan.limit =
                            Some(window.skip.saturating_add(window.take)).filter(|limit| *limit < u64::MAX);
                    }
                    let _ = pipeline.push_scan(run, source, &scan, &access.rest)?;
                }
                Found::Everything => {
                    // The whole table has no order but its own.
                    pipeline.ordered = bound.order.is_empty();
                    let _ = pipeline.push_scan(run, source, &plan::everything(mode), &access.all)?;
                }
            }
        }
    }
    pipeline.finish(run)
}

/// Locks the table of a SELECT that reads no row.
fn stay_with_source(run: &mut Run<'_, '_>, bound: &BoundSelect) -> Result<()> {
    let RowSource::Table(table, schema) = &bound.source else { return Ok(()) };
    let mode = if bound.for_update { ScanMode::Update } else { ScanMode::Share };
    stay_with_definition(run.tx, (table, schema), mode)
}

/// Locks a table as a scan does, for an answer that depends on no row but on the table's definition. Fails with
/// [`rialto::Error::TableChanged`] if the table has another schema by now.
pub fn stay_with_definition(
    tx: &mut Transaction<'_>,
    (table, schema): (&Table, &Arc<Schema>),
    mode: ScanMode,
) -> Result<()> {
    let nothing = Scan { mode, limit: Some(0), ..Scan::all() };
    Ok(tx.scan_planned(table, schema, &nothing, |_, _| Ok(ControlFlow::Break(())))?)
}

/// Sends the row of a key, if it exists and the conditions hold. It is read in place in the kernel, without a copy.
fn look(
    run: &mut Run<'_, '_>,
    bound: &BoundSelect,
    table: &Table,
    key: &[Value],
    rest: &[Expr],
) -> Result<u64> {
    let out = &mut run.out;
    let sent = run.tx.look(table, key, |row| -> Result<u64> {
        if !holds(rest, &row, out.context)? {
            return Ok(0);
        }
        out.send(&bound.items, &row)?;
        Ok(1)
    });
    sent?.unwrap_or(Ok(0))
}

/// Counts through generate_series; `visit` gets each value as a row of one column.
pub(crate) fn series(
    out: &mut Out<'_>,
    bounds: &[Expr; 3],
    sql_type: SqlType,
    mut visit: impl FnMut(&mut Out<'_>, &[Value]) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let mut values = [0i64; 3];
    for (value, bound) in values.iter_mut().zip(bounds) {
        match bound.eval(&NoColumns, out.context)? {
            Value::Int8(number) => *value = number,
            _ => return Ok(()),
        }
    }
    let [mut at, stop, step] = values;
    if step == 0 {
        let message = "step size cannot equal zero";
        return Err(SqlError::new(SqlState::InvalidParameterValue, message));
    }
    while if step > 0 { at <= stop } else { at >= stop } {
        let value = match sql_type {
            SqlType::Int4 => cast(Value::Int8(at), SqlType::Int8, SqlType::Int4)?,
            _ => Value::Int8(at),
        };
        if visit(out, &[value])?.is_break() {
            break;
        }
        match at.checked_add(step) {
            Some(next) => at = next,
            None => break,
        }
    }
    Ok(())
}

/// Sends a table's rows to the client. Gives their number.
pub fn copy_out(run: &mut Run<'_, '_>, plan: &CopyPlan) -> Result<u64> {
    let items: Vec<Expr> = plan.columns.iter().map(|column| Expr::Column(*column)).collect();
    let mut sent = 0;
    let out = &mut run.out;
    let mut carried = Carried::new();
    let scanned =
        run.tx.scan_planned(&plan.table, &plan.schema, &plan::everything(ScanMode::Share), |_, row| {
            sent += 1;
            carried.keep(out.send(&items, &row).map(|()| ControlFlow::Continue(())))
        });
    carried.give(scanned)?;
    run.out.sink.end(run.out.plan)?;
    Ok(sent)
}
