//! [`Each`]: the access path of a column that is compared with a list, by IN or ANY: one look-up, or one range, for each
//! value.

use rialto::row::{Schema, Value, WhichIndex};
use rialto::{KeyBound, Scan, ScanMode};
use smallvec::SmallVec;

use crate::error::Result;
use crate::expr::{Context, Expr, List, NoColumns};
use crate::plan::{Found, KeyValue, Path, equal_values, fits_key, key_of};

/// One look-up, or one range, for each value of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Each {
    /// The list's place among the equal values of the path.
    pub at: usize,
    /// The list.
    pub list: List,
    /// The path for one value, with a null in the list's place: a row, or a range without ends.
    pub one: Box<Path>,
}

impl Each {
    /// Whether the values of a list can be computed before a row is read.
    pub(crate) fn can_use(list: &List) -> bool {
        !list.items().iter().any(Expr::has_columns)
    }

    /// The keys of the list's values, for these arguments.
    pub(crate) fn find<'p>(
        &'p self,
        schema: &'p Schema,
        context: Context<'p>,
        mode: ScanMode,
    ) -> Result<Found<'p>> {
        let (index, equal) = match &*self.one {
            Path::Point(equal) => (WhichIndex::Primary, equal),
            Path::Range(range) => (range.index, &range.equal),
            Path::Each(_) => return Ok(Found::Everything),
        };
        let columns = match &*self.one {
            Path::Range(range) => range.columns(schema),
            _ => schema.primary_key().unwrap_or(&[]),
        };
        let (before, behind) = (&equal[..self.at], &equal[self.at + 1..]);
        let mut key = match equal_values(before, columns, schema, context)? {
            Ok(values) => values,
            Err(found) => return Ok(found),
        };
        key.push(Value::Null);
        match equal_values(behind, &columns[self.at + 1..], schema, context)? {
            Ok(values) => key.extend(values),
            Err(found) => return Ok(found),
        }
        let Some(mut values) = self.values(columns[self.at], schema, context)? else {
            return Ok(Found::Everything);
        };
        // In the order of keys, so that transactions take their locks in one order; each value once.
        let order = |one: &Value, other: &Value| one.compare(other).unwrap_or(std::cmp::Ordering::Equal);
        values.sort_unstable_by(order);
        values.dedup_by(|one, other| order(one, other).is_eq());
        let mut fitting = Vec::with_capacity(values.len());
        for value in values {
            key[self.at] = value;
            // No row has a key that is too long.
            if fits_key(&key, index, schema) {
                fitting.push(std::mem::replace(&mut key[self.at], Value::Null));
            }
        }
        if fitting.is_empty() {
            return Ok(Found::Nothing);
        }
        let values = fitting.into_iter();
        Ok(Found::Each(Keys { each: self, index, context, mode, key, values }))
    }

    /// The values of the list that the column can have; `None` if keys cannot decide.
    fn values(&self, column: usize, schema: &Schema, context: Context<'_>) -> Result<Option<Vec<Value>>> {
        let ty = schema.columns()[column].ty;
        let mut values = Vec::new();
        let mut keep = |value: Value| match key_of(value, ty) {
            KeyValue::Exact(value) => {
                values.push(value);
                true
            }
            KeyValue::CannotTell => false,
            _ => true,
        };
        match &self.list {
            List::Items(items) => {
                for item in items {
                    // An error is that of a row that needs the value. There may be none.
                    let Ok(value) = item.eval(&NoColumns, context) else { return Ok(None) };
                    if !keep(value) {
                        return Ok(None);
                    }
                }
            }
            List::Argument(index) => {
                for element in context.elements(*index).unwrap_or_default() {
                    if !keep(element.clone()) {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(Some(values))
    }
}

/// The keys of a list's values, at least one, one after the other. Invariant: no two of them have a row in common.
pub struct Keys<'p> {
    each: &'p Each,
    index: WhichIndex,
    context: Context<'p>,
    mode: ScanMode,
    /// The equal values, with the last value of the list.
    key: SmallVec<[Value; 2]>,
    values: std::vec::IntoIter<Value>,
}

/// The rows of one key.
pub enum One {
    /// The row of this primary key.
    Point(SmallVec<[Value; 2]>),
    /// The rows of this scan.
    Scan(Scan),
}

impl Iterator for Keys<'_> {
    type Item = Result<One>;

    fn next(&mut self) -> Option<Result<One>> {
        self.key[self.each.at] = self.values.next()?;
        if let Err(cancelled) = self.context.cancel.check() {
            return Some(Err(cancelled));
        }
        let Path::Range(range) = &*self.each.one else { return Some(Ok(One::Point(self.key.clone()))) };
        let bound = KeyBound::Included(self.key.to_vec());
        let (index, direction, mode) = (self.index, range.direction, self.mode);
        Some(Ok(One::Scan(Scan { index, lower: bound.clone(), upper: bound, direction, mode, limit: None })))
    }
}
