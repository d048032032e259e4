//! [`concerned`]: the partitions that a statement concerns, from its conditions and arguments.
//!
//! Invariant: a row for which the conditions hold lies in one of these partitions.

use rialto::row::{Schema, Value};

use super::message::PartitionNumber;
use super::placement::{Placement, partition_of};
use crate::expr::{CompareOp, Context, Expr, List, NoColumns};
use crate::plan::{KeyValue, key_of};

/// More combinations of values than this concern all partitions.
const COMBINATIONS_MAX: usize = 10_000;

/// The partitions that a statement concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Concerned {
    /// One: all rows for which the conditions hold lie there, if there are any.
    One(PartitionNumber),
    /// These, in order, at least two; possibly all.
    Several(Vec<PartitionNumber>),
    /// Any one of them: all have the same rows.
    Any,
}

impl Concerned {
    fn of(mut partitions: Vec<PartitionNumber>, nearest: PartitionNumber) -> Concerned {
        partitions.sort_unstable();
        partitions.dedup();
        match partitions[..] {
            // No row can fit. One partition has to look all the same, so that the answer depends on the definition.
            [] => Concerned::One(nearest),
            [one] => Concerned::One(one),
            _ => Concerned::Several(partitions),
        }
    }

    /// All partitions.
    pub(crate) fn all(count: u32) -> Concerned {
        Concerned::of((0..count).map(PartitionNumber).collect(), PartitionNumber::FIRST)
    }
}

/// The values that a column can have where the conditions hold; `None` if they say nothing about it.
fn values(column: usize, filter: &[Expr], schema: &Schema, context: Context<'_>) -> Option<Vec<Value>> {
    let ty = schema.columns()[column].ty;
    // An error in a value is raised where the statement runs. A value that is none of the column's fits no row.
    let exact = |value: Value| match key_of(value, ty) {
        KeyValue::Exact(value) => Some(Some(value)),
        KeyValue::CannotTell => None,
        _ => Some(None),
    };
    let of_exprs = |exprs: &mut dyn Iterator<Item = &Expr>| -> Option<Vec<Value>> {
        let mut values = Vec::new();
        for expr in exprs {
            if expr.has_columns() {
                return None;
            }
            values.extend(exact(expr.eval(&NoColumns, context).ok()?)?);
        }
        Some(values)
    };
    filter.iter().find_map(|condition| match condition {
        Expr::Compare(CompareOp::Eq, left, right) => match (&**left, &**right) {
            (Expr::Column(found), other) | (other, Expr::Column(found)) if *found == column => {
                of_exprs(&mut std::iter::once(other))
            }
            _ => None,
        },
        Expr::Any(tested, CompareOp::Eq, list) if **tested == Expr::Column(column) => match list {
            List::Items(items) => of_exprs(&mut items.iter()),
            List::Argument(index) => {
                let elements = context.elements(*index).unwrap_or_default();
                Some(
                    elements
                        .iter()
                        .cloned()
                        .map(exact)
                        .collect::<Option<Vec<_>>>()?
                        .into_iter()
                        .flatten()
                        .collect(),
                )
            }
        },
        _ => None,
    })
}

/// The partitions of the rows for which these conditions hold.
pub(crate) fn concerned(
    placement: &Placement,
    schema: &Schema,
    filter: &[Expr],
    context: Context<'_>,
    (count, nearest): (u32, PartitionNumber),
) -> Concerned {
    let columns = match placement {
        Placement::Replicated => return Concerned::Any,
        Placement::Anywhere => return Concerned::all(count),
        Placement::By(columns) => columns,
    };
    let lists: Option<Vec<Vec<Value>>> =
        columns.iter().map(|column| values(*column as usize, filter, schema, context)).collect();
    let Some(lists) = lists else { return Concerned::all(count) };
    let combinations = lists.iter().try_fold(1usize, |all, list| all.checked_mul(list.len()));
    if combinations.is_none_or(|all| all > COMBINATIONS_MAX) {
        return Concerned::all(count);
    }
    let mut rows: Vec<Vec<&Value>> = vec![Vec::new()];
    for list in &lists {
        let mut longer = Vec::with_capacity(rows.len() * list.len());
        for row in &rows {
            longer.extend(list.iter().map(|value| row.iter().copied().chain([value]).collect::<Vec<_>>()));
        }
        rows = longer;
    }
    let partitions = rows.into_iter().map(|row| partition_of(row.into_iter().map(Value::borrow), count));
    Concerned::of(partitions.collect(), nearest)
}
