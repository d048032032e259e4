//! INSERT, UPDATE and DELETE.

use std::ops::ControlFlow;

use rialto::row::{RowView, Value};
use rialto::{Fields, ScanMode, fault_injection};
use smallvec::SmallVec;

use super::kept::{ALLOCATION_BYTES, bytes_of, list_bytes};
use super::matches::{Matches, Target};
use super::select::series;
use super::{Carried, Out, Run, holds};
use crate::bind::{BoundInsert, BoundUpdate, RowSource};
use crate::error::Result;
use crate::expr::{ArithmeticOp, Columns, Context, Expr, NoColumns};
use crate::plan::{Access, Found};
use crate::prepared::{DeletePlan, UpdatePlan};

/// The columns of a row that is changed in place.
struct InPlace<'a, 'f>(&'a Fields<'f>);

impl Columns for InPlace<'_, '_> {
    fn column(&self, index: usize) -> Value {
        self.0.row().get_ref(index).to_value()
    }
}

/// Runs an INSERT. Gives the number of rows.
pub fn insert(run: &mut Run<'_, '_>, plan: &BoundInsert) -> Result<u64> {
    let mut count = 0;
    match &plan.source {
        RowSource::Series(bounds, sql_type) => {
            let Run { tx, out } = run;
            let mut values = Vec::new();
            series(out, bounds, *sql_type, |out, row| {
                tx.check()?;
                if holds(&plan.filter, row, out.context)? {
                    evaluate(plan, &plan.rows[0], row, out.context, &mut values)?;
                    tx.insert(&plan.table, &values)?;
                    count += 1;
                    if !plan.returning.is_empty() {
                        out.send(&plan.returning, &values[..])?;
                    }
                }
                Ok(ControlFlow::Continue(()))
            })?;
        }
        _ => {
            let mut values = Vec::with_capacity(plan.schema.columns().len());
            for row in &plan.rows {
                if !holds(&plan.filter, &NoColumns, run.out.context)? {
                    continue;
                }
                evaluate(plan, row, &NoColumns, run.out.context, &mut values)?;
                run.tx.insert(&plan.table, &values)?;
                count += 1;
                if !plan.returning.is_empty() {
                    run.out.send(&plan.returning, &values[..])?;
                }
            }
        }
    }
    if count == 0 {
        run.tx.lock_for_writes(&plan.table, &plan.schema)?;
    }
    Ok(count)
}

/// The values of a new row: those of the expressions in the columns that are given, nulls elsewhere.
pub(crate) fn evaluate<C: Columns + ?Sized>(
    plan: &BoundInsert,
    exprs: &[Expr],
    row: &C,
    context: Context<'_>,
    values: &mut Vec<Value>,
) -> Result<()> {
    values.clear();
    values.resize(plan.schema.columns().len(), Value::Null);
    for (expr, position) in exprs.iter().zip(&plan.positions) {
        values[*position] = expr.eval(row, context)?;
    }
    Ok(())
}

type Changes = SmallVec<[(usize, Value); 4]>;

/// A row that an UPDATE has found: its identity, its changes, and for RETURNING the changed row.
type Changed = (Target, Box<[(usize, Value)]>, Vec<Value>);

/// The bytes of a row that is kept to be changed. Its key may be long.
fn changed_bytes((key, changes, new): &Changed) -> usize {
    let values = bytes_of(changes.iter().map(|(_, value)| value));
    let changes = size_of_val(&**changes) + ALLOCATION_BYTES;
    size_of::<Changed>() + key.allocated_bytes() + changes + values + list_bytes(new)
}

/// The bytes of a row that is kept to be deleted.
fn deleted_bytes(key: &Target) -> usize {
    size_of::<Target>() + key.allocated_bytes()
}

fn changes<C: Columns + ?Sized>(plan: &BoundUpdate, row: &C, context: Context<'_>) -> Result<Changes> {
    let mut changes = Changes::with_capacity(plan.assignments.len());
    for (column, expr) in &plan.assignments {
        changes.push((*column, expr.eval(row, context)?));
    }
    Ok(changes)
}

/// The row as it is after the changes.
fn changed<C: Columns + ?Sized>(plan: &BoundUpdate, row: &C, changes: &Changes) -> Vec<Value> {
    let mut values: Vec<Value> = (0..plan.schema.columns().len()).map(|column| row.column(column)).collect();
    for (column, value) in changes {
        values[*column] = value.clone();
    }
    values
}

/// Runs an UPDATE. Gives the number of rows.
pub fn update(run: &mut Run<'_, '_>, plan: &UpdatePlan) -> Result<u64> {
    let bound = &plan.bound;
    if plan.in_place
        && let Some(key) = plan.access.path.integer_key(&bound.schema, run.out.context)
    {
        return update_in_place(run, bound, &[key]);
    }
    let found = plan.access.path.find(&bound.schema, run.out.context, ScanMode::Update)?;
    match &found {
        Found::Nothing => {
            // It is the table's definition that says that no key is so.
            run.tx.lock_for_writes(&bound.table, &bound.schema)?;
            return Ok(0);
        }
        Found::Point(key) if plan.in_place => return update_in_place(run, bound, key),
        Found::Point(key) => {
            let Some(row) = run.tx.get_for_update(&bound.table, &key[..])? else { return Ok(0) };
            let is_hit = holds(&plan.access.rest, &row.view(), run.out.context)?;
            if !is_hit && !fault_injection::is_on("update-by-its-key-alone") {
                return Ok(0);
            }
            let changes = changes(bound, &row.view(), run.out.context)?;
            run.tx.update(&bound.table, &key[..], &changes)?;
            if !bound.returning.is_empty() {
                run.out.send(&bound.returning, &changed(bound, &row.view(), &changes)[..])?;
            }
            return Ok(1);
        }
        Found::Scan(_) | Found::Everything | Found::Each(_) => {}
    }
    let keep = |row: &RowView<'_>, target: Target, out: &mut Out<'_>| -> Result<Changed> {
        let changes = changes(bound, row, out.context)?;
        let new = if bound.returning.is_empty() { Vec::new() } else { changed(bound, row, &changes) };
        Ok((target, changes.into_boxed_slice(), new))
    };
    let conditions = conditions(&plan.access, fault_injection::is_on("update-by-its-range-alone"));
    let rows =
        Matches::new((&bound.table, &bound.schema), conditions, changed_bytes, keep).find(run, found)?;
    for (target, changes, new) in rows.iter() {
        match target {
            Target::Row(key) => run.tx.update_at(&bound.table, key, changes)?,
            Target::Key(key) => run.tx.update(&bound.table, &key[..], changes)?,
        };
        if !bound.returning.is_empty() {
            run.out.send(&bound.returning, &new[..])?;
        }
    }
    Ok(rows.len() as u64)
}

/// The conditions on the rows that an access path finds, and on all rows of the table.
fn conditions(access: &Access, by_path_alone: bool) -> (&[Expr], &[Expr]) {
    (if by_path_alone { &[] } else { &access.rest }, &access.all)
}

/// Changes fixed columns of one row where they lie.
fn update_in_place(run: &mut Run<'_, '_>, plan: &BoundUpdate, key: &[Value]) -> Result<u64> {
    let context = run.out.context;
    let mut carried = Carried::new();
    let modified = run.tx.modify(&plan.table, key, |fields| {
        // All new values come from the old row.
        if let [(column, expr)] = &plan.assignments[..] {
            let value = carried.keep(expr.eval(&InPlace(fields), context))?;
            return change(fields, *column, expr, &value);
        }
        let changes = carried.keep(changes(plan, &InPlace(fields), context))?;
        let mut each = changes.iter().zip(&plan.assignments);
        each.try_for_each(|((column, value), (_, expr))| change(fields, *column, expr, value))
    });
    Ok(u64::from(carried.give(modified)?))
}

/// Gives a column the value of this expression. `x = x + 1` is an increment, which action logging logs as one.
fn change(fields: &mut Fields<'_>, column: usize, expr: &Expr, value: &Value) -> rialto::Result<()> {
    let Expr::Arithmetic(ArithmeticOp::Add | ArithmeticOp::Subtract, left, right) = expr else {
        return set(fields, column, value);
    };
    let is_column = |side: &Expr| *side == Expr::Column(column);
    let (Value::Int4(_) | Value::Int8(_), true) = (value, is_column(left) || is_column(right)) else {
        return set(fields, column, value);
    };
    let delta = match *value {
        Value::Int4(sum) => Some(i64::from(sum) - i64::from(fields.get_i32(column)?)),
        Value::Int8(sum) => sum.checked_sub(fields.get_i64(column)?),
        _ => None,
    };
    match delta {
        Some(delta) => fields.add(column, delta).map(drop),
        None => set(fields, column, value),
    }
}

/// Sets a column; integers take a shorter way.
fn set(fields: &mut Fields<'_>, column: usize, value: &Value) -> rialto::Result<()> {
    match value {
        Value::Int4(value) => fields.set_i32(column, *value),
        Value::Int8(value) => fields.set_i64(column, *value),
        value => fields.set(column, value),
    }
}

/// Runs a DELETE. Gives the number of rows.
pub fn delete(run: &mut Run<'_, '_>, plan: &DeletePlan) -> Result<u64> {
    let bound = &plan.bound;
    let found = plan.access.path.find(&bound.schema, run.out.context, ScanMode::Update)?;
    match &found {
        Found::Nothing => {
            // It is the table's definition that says that no key is so.
            run.tx.lock_for_writes(&bound.table, &bound.schema)?;
            return Ok(0);
        }
        Found::Point(key) => {
            if plan.access.rest.is_empty() && bound.returning.is_empty() {
                return Ok(u64::from(run.tx.delete(&bound.table, &key[..])?));
            }
            let Some(row) = run.tx.get_for_update(&bound.table, &key[..])? else { return Ok(0) };
            let is_hit = holds(&plan.access.rest, &row.view(), run.out.context)?;
            if !is_hit && !fault_injection::is_on("delete-by-its-key-alone") {
                return Ok(0);
            }
            run.tx.delete(&bound.table, &key[..])?;
            if !bound.returning.is_empty() {
                run.out.send(&bound.returning, &row.view())?;
            }
            return Ok(1);
        }
        Found::Scan(_) | Found::Everything | Found::Each(_) => {}
    }
    let keep = |row: &RowView<'_>, target: Target, out: &mut Out<'_>| -> Result<Target> {
        if !bound.returning.is_empty() {
            out.send(&bound.returning, row)?;
        }
        Ok(target)
    };
    let conditions = conditions(&plan.access, fault_injection::is_on("delete-by-its-range-alone"));
    let rows =
        Matches::new((&bound.table, &bound.schema), conditions, deleted_bytes, keep).find(run, found)?;
    for target in rows.iter() {
        match target {
            Target::Row(key) => run.tx.delete_at(&bound.table, key)?,
            Target::Key(key) => run.tx.delete(&bound.table, &key[..])?,
        };
    }
    Ok(rows.len() as u64)
}

#[cfg(test)]
mod tests {
    use rialto::io::MemoryDisk;
    use rialto::row::{Column, ColumnType};
    use rialto::{Database, Options, Scan, TableDef};

    use super::*;

    /// One statement changes some millions of rows.
    #[test]
    fn a_row_that_is_changed_takes_little() {
        let options = Options { memory_bytes: 64 << 20, ..Options::default() };
        let database = Database::open_on(MemoryDisk::new(), options).unwrap();
        let mut tx = database.begin().unwrap();
        let columns = vec![Column::new("k", ColumnType::Int4)];
        let table = tx.create_table(&TableDef::new("t", columns).with_primary_key(&["k"])).unwrap();
        tx.insert(&table, &[Value::Int4(1)]).unwrap();
        let mut key = None;
        tx.scan(&table, &Scan::all(), |found, _| {
            key = Some(found.clone());
            Ok(ControlFlow::Break(()))
        })
        .unwrap();
        let row: Changed = (Target::Row(key.unwrap()), Box::new([(0, Value::Int4(2))]), Vec::new());
        let bytes = changed_bytes(&row);
        assert!(bytes <= 200, "{bytes}");
    }

    #[test]
    fn a_long_key_counts() {
        let options = Options { memory_bytes: 64 << 20, ..Options::default() };
        let database = Database::open_on(MemoryDisk::new(), options).unwrap();
        let mut counted = Vec::new();
        let columns = vec![Column::new("k", ColumnType::Text)];
        let table = TableDef::new("t", columns).with_primary_key(&["k"]);
        let mut tx = database.begin().unwrap();
        let table = tx.create_table(&table).unwrap();
        for length in [1, 1_000] {
            tx.insert(&table, &[Value::Text("k".repeat(length))]).unwrap();
        }
        tx.scan(&table, &Scan::all(), |key, _| {
            counted.push(deleted_bytes(&Target::Row(key.clone())));
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        assert!(counted[1] >= counted[0] + 1_000, "{counted:?}");
    }
}
