//! Chooses how a statement's rows are found: one key, a range of an index, or the whole table.
//!
//! Invariant: conditions that the access path implies are left out of the rest. If a value turns out at execution to be
//! one that no key can express, the statement falls back to the whole table with all conditions.

use rialto::row::{ColumnType, Key, Schema, Value, WhichIndex};
use rialto::{Direction, Error, KeyBound, Scan, ScanMode};

use smallvec::SmallVec;

use crate::bind::Order;
use crate::error::Result;
use crate::expr::cast::{Fit, fit};
use crate::expr::{CompareOp, Context, Expr, List, NoColumns, print};
use crate::keys::{Each, Keys};

/// One end of a range on a column.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// The end.
    pub expr: Expr,
    /// Whether the end itself is in the range.
    pub inclusive: bool,
}

/// How rows are found.
#[derive(Clone, Debug, PartialEq)]
pub enum Path {
    /// The row of one primary key.
    Point(Vec<Expr>),
    /// A range of an index.
    Range(Range),
    /// A row, or a range of an index, for each value of a list.
    Each(Each),
}

/// A range of an index: equal values for the first columns, then bounds on the next.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    /// The index.
    pub index: WhichIndex,
    /// Values of the first columns.
    pub equal: Vec<Expr>,
    /// Lower end on the next column.
    pub lower: Option<Bound>,
    /// Upper end on the next column.
    pub upper: Option<Bound>,
    /// Which way the index is read.
    pub direction: Direction,
}

/// How a statement finds its rows, and what it checks on them.
#[derive(Clone, Debug)]
pub struct Access {
    /// The access path.
    pub path: Path,
    /// What is checked on each row found.
    pub rest: Vec<Expr>,
    /// All conditions, for the whole table if keys cannot express a value.
    pub all: Vec<Expr>,
    /// Whether the order of the index is the order asked for.
    pub ordered: bool,
}

/// The result of an access path for given arguments.
pub enum Found<'p> {
    /// No row can fit.
    Nothing,
    /// The row of this primary key.
    Point(SmallVec<[Value; 2]>),
    /// Rows of this scan.
    Scan(Scan),
    /// The rows of these keys.
    Each(Keys<'p>),
    /// Keys cannot decide: the whole table, and all conditions.
    Everything,
}

/// A condition on one column that an index can use.
struct Usable<'a> {
    column: usize,
    op: CompareOp,
    value: Operand<'a>,
    /// Its place among the conditions.
    at: usize,
}

/// What a column is compared with.
#[derive(Clone, Copy)]
enum Operand<'a> {
    Value(&'a Expr),
    /// One of these values.
    OneOf(&'a List),
}

impl Operand<'_> {
    /// The expression of the value; a null in the place of a list's values.
    fn expr(self) -> Expr {
        match self {
            Operand::Value(expr) => expr.clone(),
            Operand::OneOf(_) => Expr::Const(Value::Null),
        }
    }
}

fn usable(filter: &[Expr]) -> Vec<Usable<'_>> {
    let mut found = Vec::new();
    for (at, condition) in filter.iter().enumerate() {
        if let Expr::Any(tested, CompareOp::Eq, list) = condition
            && let Expr::Column(column) = **tested
            && Each::can_use(list)
        {
            found.push(Usable { column, op: CompareOp::Eq, value: Operand::OneOf(list), at });
        }
        let Expr::Compare(op, left, right) = condition else { continue };
        let (column, op, expr) = match (&**left, &**right) {
            (Expr::Column(column), other) if !other.has_columns() => (*column, *op, other),
            (other, Expr::Column(column)) if !other.has_columns() => (*column, op.mirrored(), other),
            _ => continue,
        };
        if op != CompareOp::NotEq {
            found.push(Usable { column, op, value: Operand::Value(expr), at });
        }
    }
    found
}

/// One index, with the conditions and the order that it can serve. It borrows its conditions: only the best candidate
/// copies them.
struct Candidate<'a> {
    index: WhichIndex,
    /// The conditions of equality on the first columns.
    equal: Vec<&'a Usable<'a>>,
    /// The one of them that is a list, and its place among them.
    list: Option<(usize, &'a List)>,
    lower: Option<&'a Usable<'a>>,
    upper: Option<&'a Usable<'a>>,
    direction: Direction,
    ordered: bool,
    point: bool,
}

impl<'a> Candidate<'a> {
    /// The conditions that the index implies.
    fn used(&self) -> impl Iterator<Item = &'a Usable<'a>> {
        self.equal.iter().copied().chain(self.lower).chain(self.upper)
    }

    fn path(&self) -> Path {
        let path = self.path_of_one();
        match self.list {
            Some((at, list)) => Path::Each(Each { at, list: list.clone(), one: Box::new(path) }),
            None => path,
        }
    }

    /// The path for one value of a list, if there is a list.
    fn path_of_one(&self) -> Path {
        let equal = self.equal.iter().map(|condition| condition.value.expr()).collect();
        if self.point && self.index == WhichIndex::Primary {
            return Path::Point(equal);
        }
        let bound = |condition: &Usable<'_>| Bound {
            expr: condition.value.expr(),
            inclusive: matches!(condition.op, CompareOp::GreaterEq | CompareOp::LessEq),
        };
        let (lower, upper) = (self.lower.map(bound), self.upper.map(bound));
        Path::Range(Range { index: self.index, equal, lower, upper, direction: self.direction })
    }
}

fn candidate<'a>(
    index: WhichIndex,
    columns: &[usize],
    unique: bool,
    usable: &'a [Usable<'a>],
    order: &[Order],
    schema: &Schema,
) -> Candidate<'a> {
    let on = |column: usize| usable.iter().filter(move |condition| condition.column == column);
    let mut list = None;
    let mut equal: Vec<&Usable<'_>> = Vec::new();
    for column in columns {
        let mut same = on(*column).filter(|condition| condition.op == CompareOp::Eq);
        let one = same.clone().find(|condition| matches!(condition.value, Operand::Value(_)));
        let Some(condition) = one.or_else(|| same.next().filter(|_| list.is_none())) else { break };
        if let Operand::OneOf(values) = condition.value {
            list = Some((equal.len(), values));
        }
        equal.push(condition);
    }
    let (mut lower, mut upper) = (None, None);
    // Each value of a list has all rows of its keys.
    if let Some(next) = columns.get(equal.len())
        && list.is_none()
    {
        for condition in on(*next) {
            let end = match condition.op {
                CompareOp::Greater | CompareOp::GreaterEq => &mut lower,
                CompareOp::Less | CompareOp::LessEq => &mut upper,
                CompareOp::Eq | CompareOp::NotEq => continue,
            };
            end.get_or_insert(condition);
        }
    }
    let point = equal.len() == columns.len() && unique;
    let direction = match list {
        None => reads_in_order(columns, equal.len(), order, schema),
        Some(_) => None,
    };
    let ordered = list.is_none() && (point || direction.is_some());
    Candidate {
        index,
        equal,
        list,
        lower,
        upper,
        direction: direction.unwrap_or(Direction::Forward),
        ordered,
        point,
    }
}

/// The direction in which the index gives the order asked for, if it does. Keys have nulls last.
fn reads_in_order(columns: &[usize], equal: usize, order: &[Order], schema: &Schema) -> Option<Direction> {
    let mut rest = columns[equal..].iter();
    let mut direction = None;
    for item in order {
        let Expr::Column(column) = item.expr else {
            return None;
        };
        if columns[..equal].contains(&column) {
            continue;
        }
        if rest.next() != Some(&column) {
            return None;
        }
        if schema.columns()[column].nullable && item.nulls_first != item.descending {
            return None;
        }
        let wanted = if item.descending { Direction::Backward } else { Direction::Forward };
        if *direction.get_or_insert(wanted) != wanted {
            return None;
        }
    }
    Some(direction.unwrap_or(Direction::Forward))
}

/// Chooses the access path for the conditions and the order.
pub fn choose(schema: &Schema, filter: &[Expr], order: &[Order], limited: bool) -> Access {
    let usable = usable(filter);
    let primary: &[usize] = schema.primary_key().unwrap_or(&[]);
    let by_primary = candidate(WhichIndex::Primary, primary, !primary.is_empty(), &usable, order, schema);
    let by_secondaries = schema.indexes().iter().enumerate().map(|(position, index)| {
        candidate(WhichIndex::Secondary(position), &index.columns, index.unique, &usable, order, schema)
    });
    let score = |candidate: &Candidate<'_>| {
        let ends = usize::from(candidate.lower.is_some()) + usize::from(candidate.upper.is_some());
        let secondary = candidate.index != WhichIndex::Primary;
        let useful = !candidate.equal.is_empty() || ends > 0;
        // A secondary index that is read only for its order costs a hop for each row. It pays when a limit ends it
        // early.
        let order = candidate.ordered && !order.is_empty() && (useful || !secondary || limited);
        let one = candidate.list.is_none();
        (candidate.point && one, candidate.point, candidate.equal.len(), one, ends, order, !secondary)
    };
    let candidates = std::iter::once(by_primary).chain(by_secondaries);
    let best = candidates.max_by_key(score).expect("the primary index is always there");
    let ordered = best.ordered || order.is_empty();
    let rest = filter
        .iter()
        .enumerate()
        .filter(|(at, _)| best.used().all(|used| used.at != *at))
        .map(|(_, condition)| condition.clone());
    let rest = rest.collect();
    Access { path: best.path(), rest, all: filter.to_vec(), ordered }
}

pub(crate) enum KeyValue {
    Exact(Value),
    After(Value),
    Below,
    Above,
    Null,
    /// None of the column's values.
    Nowhere,
    CannotTell,
}

fn key_value(expr: &Expr, column: usize, schema: &Schema, context: Context<'_>) -> Result<KeyValue> {
    Ok(key_of(expr.eval(&NoColumns, context)?, schema.columns()[column].ty))
}

/// Where a value lies among the keys of a column.
#[inline]
pub(crate) fn key_of(value: Value, ty: ColumnType) -> KeyValue {
    match (&value, ty) {
        (Value::Int4(_), ColumnType::Int4) | (Value::Int8(_), ColumnType::Int8) => {
            return KeyValue::Exact(value);
        }
        (Value::Null, _) => return KeyValue::Null,
        _ => {}
    }
    match fit(&value, ty) {
        Some(Fit::Exact(value)) => KeyValue::Exact(value),
        Some(Fit::After(value)) => KeyValue::After(value),
        Some(Fit::Below) => KeyValue::Below,
        Some(Fit::Above) => KeyValue::Above,
        Some(Fit::Nowhere) => KeyValue::Nowhere,
        None => KeyValue::CannotTell,
    }
}

/// Whether a key can hold these values. Keys are bounded, so no row's key begins with values that are longer.
pub(crate) fn fits_key(values: &[Value], index: WhichIndex, schema: &Schema) -> bool {
    /// No bytes of this length, escaped, come near the bound.
    const SURELY_FITS: usize = 256;
    let bytes = |value: &Value| match value {
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        _ => 0,
    };
    if values.iter().map(bytes).sum::<usize>() <= SURELY_FITS {
        return true;
    }
    let mut key = Key::new();
    let encoded = match index {
        WhichIndex::Primary => schema.encode_primary_prefix(values, &mut key),
        WhichIndex::Secondary(position) => schema.encode_index_prefix(position, values, &mut key),
    };
    !matches!(encoded, Err(Error::KeyTooLong { .. }))
}

/// The values of the columns with an equality; `Err` with the result if a value is none of its
/// column's, or keys cannot decide.
pub(crate) fn equal_values<'p>(
    exprs: &[Expr],
    columns: &[usize],
    schema: &Schema,
    context: Context<'_>,
) -> Result<std::result::Result<SmallVec<[Value; 2]>, Found<'p>>> {
    let mut values = SmallVec::with_capacity(exprs.len());
    for (expr, column) in exprs.iter().zip(columns) {
        match key_value(expr, *column, schema, context)? {
            KeyValue::Exact(value) => values.push(value),
            KeyValue::CannotTell => return Ok(Err(Found::Everything)),
            _ => return Ok(Err(Found::Nothing)),
        }
    }
    Ok(Ok(values))
}

impl Path {
    /// The value of a primary key of one integer column, if the path is that row and the argument has the column's own
    /// type: a shorter way than [`Path::find`], which handles all cases.
    #[inline]
    pub fn integer_key(&self, schema: &Schema, context: Context<'_>) -> Option<Value> {
        let Path::Point(exprs) = self else { return None };
        let ([expr], Some([column])) = (&exprs[..], schema.primary_key()) else { return None };
        let value = match expr {
            Expr::Param(index) => &context.params[*index],
            Expr::Const(value) => value,
            _ => return None,
        };
        match (value, schema.columns()[*column].ty) {
            (Value::Int4(value), ColumnType::Int4) => Some(Value::Int4(*value)),
            (Value::Int8(value), ColumnType::Int8) => Some(Value::Int8(*value)),
            _ => None,
        }
    }

    /// The result of the path for these arguments.
    pub fn find<'p>(&'p self, schema: &'p Schema, context: Context<'p>, mode: ScanMode) -> Result<Found<'p>> {
        let range = match self {
            Path::Point(exprs) => {
                let columns = schema.primary_key().unwrap_or(&[]);
                return Ok(match equal_values(exprs, columns, schema, context)? {
                    Ok(values) if !fits_key(&values, WhichIndex::Primary, schema) => Found::Nothing,
                    Ok(values) => Found::Point(values),
                    Err(found) => found,
                });
            }
            Path::Range(range) => range,
            Path::Each(each) => return each.find(schema, context, mode),
        };
        let columns = range.columns(schema);
        let prefix = match equal_values(&range.equal, columns, schema, context)? {
            Ok(values) => values.into_vec(),
            Err(found) => return Ok(found),
        };
        let whole = match prefix.is_empty() {
            true => KeyBound::Unbounded,
            false => KeyBound::Included(prefix.clone()),
        };
        let (mut lower, mut upper) = (whole.clone(), whole);
        let with = |value: Value| {
            let mut values = prefix.clone();
            values.push(value);
            values
        };
        if let Some(next) = columns.get(range.equal.len()) {
            let bounded = range.lower.is_some() || range.upper.is_some();
            if bounded && range.upper.is_none() && schema.columns()[*next].nullable {
                // Nulls are last in an index, and no comparison holds for them.
                upper = KeyBound::Excluded(with(Value::Null));
            }
            if let Some(bound) = &range.lower {
                lower = match key_value(&bound.expr, *next, schema, context)? {
                    KeyValue::Exact(value) if bound.inclusive => KeyBound::Included(with(value)),
                    KeyValue::Exact(value) | KeyValue::After(value) => KeyBound::Excluded(with(value)),
                    KeyValue::Below => lower,
                    KeyValue::Above | KeyValue::Null => return Ok(Found::Nothing),
                    KeyValue::Nowhere | KeyValue::CannotTell => return Ok(Found::Everything),
                };
            }
            if let Some(bound) = &range.upper {
                upper = match key_value(&bound.expr, *next, schema, context)? {
                    KeyValue::Exact(value) if !bound.inclusive => KeyBound::Excluded(with(value)),
                    KeyValue::Exact(value) | KeyValue::After(value) => KeyBound::Included(with(value)),
                    KeyValue::Above if schema.columns()[*next].nullable => {
                        KeyBound::Excluded(with(Value::Null))
                    }
                    KeyValue::Above => upper,
                    KeyValue::Below | KeyValue::Null => return Ok(Found::Nothing),
                    KeyValue::Nowhere | KeyValue::CannotTell => return Ok(Found::Everything),
                };
            }
        }
        for end in [&lower, &upper] {
            if let KeyBound::Included(values) | KeyBound::Excluded(values) = end
                && !fits_key(values, range.index, schema)
            {
                return Ok(Found::Everything);
            }
        }
        let (index, direction) = (range.index, range.direction);
        Ok(Found::Scan(Scan { index, lower, upper, direction, mode, limit: None }))
    }
}

impl Range {
    /// The columns of the index.
    pub fn columns<'a>(&self, schema: &'a Schema) -> &'a [usize] {
        match self.index {
            WhichIndex::Primary => schema.primary_key().unwrap_or(&[]),
            WhichIndex::Secondary(position) => &schema.indexes()[position].columns,
        }
    }
}

/// The whole table, in the order of its primary index.
pub fn everything(mode: ScanMode) -> Scan {
    Scan { mode, ..Scan::all() }
}

impl Access {
    /// Lines that say how rows are found, for EXPLAIN.
    pub fn explain(&self, schema: &Schema) -> Vec<String> {
        let names: Vec<&str> = schema.columns().iter().map(|column| column.name.as_str()).collect();
        let table = schema.table();
        let mut lines = Vec::new();
        let mut conditions = Vec::new();
        // For a list the line says so, and the condition has the list.
        let (path, list, each) = match &self.path {
            Path::Each(each) => (&*each.one, Some((each.at, &each.list)), "s"),
            path => (path, None, ""),
        };
        let mut equal = |columns: &[usize], exprs: &[Expr]| {
            for (at, (column, expr)) in columns.iter().zip(exprs).enumerate() {
                conditions.push(match list {
                    Some((place, list)) if place == at => {
                        let column = Box::new(Expr::Column(*column));
                        print(&Expr::Any(column, CompareOp::Eq, list.clone()), &names)
                    }
                    _ => format!("{} = {}", names[*column], print(expr, &names)),
                });
            }
        };
        match path {
            Path::Each(_) => {}
            Path::Point(exprs) => {
                lines.push(format!("Key lookup{each} on {table} using {table}_pkey"));
                equal(schema.primary_key().unwrap_or(&[]), exprs);
            }
            Path::Range(range) => {
                let columns = range.columns(schema);
                equal(columns, &range.equal);
                if let Some(next) = columns.get(range.equal.len()) {
                    for (bound, symbol) in [(&range.lower, ">"), (&range.upper, "<")] {
                        if let Some(bound) = bound {
                            let or_equal = if bound.inclusive { "=" } else { "" };
                            let end = print(&bound.expr, &names);
                            conditions.push(format!("{} {symbol}{or_equal} {end}", names[*next]));
                        }
                    }
                }
                let backward = if range.direction == Direction::Backward { " backward" } else { "" };
                let index = match range.index {
                    WhichIndex::Primary => format!("{table}_pkey"),
                    WhichIndex::Secondary(position) => schema.indexes()[position].name.clone(),
                };
                let whole = conditions.is_empty();
                lines.push(match range.index {
                    WhichIndex::Primary if whole && schema.primary_key().is_none() => {
                        format!("Table scan on {table}")
                    }
                    WhichIndex::Primary if whole => format!("Table scan{backward} on {table} using {index}"),
                    _ => format!("Index scan{each}{backward} on {table} using {index}"),
                });
            }
        }
        if !conditions.is_empty() {
            lines.push(format!("  Key: {}", conditions.join(" AND ")));
        }
        if !self.rest.is_empty() {
            let rest: Vec<String> = self.rest.iter().map(|condition| print(condition, &names)).collect();
            lines.push(format!("  Filter: {}", rest.join(" AND ")));
        }
        lines
    }
}
