//! Bound expressions and how they are evaluated, with SQL's three-valued logic.
//!
//! Invariant: the binder has settled all types, so evaluation looks only at values. Text of char(n) columns comes
//! without its trailing blanks, as tables store it, and is compared in that form.

mod arithmetic;
pub mod cast;
mod like;
mod print;

use std::cell::Cell;
use std::cmp::Ordering;

use rialto::row::{RowView, Value};

pub use arithmetic::ArithmeticOp;
pub use print::print;

use crate::cancel::Cancel;
use crate::error::{Result, SqlError, SqlState};
use crate::values::SqlType;

/// The columns of the row that an expression is evaluated on.
pub trait Columns {
    /// The value of column `index`, char(n) without trailing blanks.
    fn column(&self, index: usize) -> Value;
}

impl Columns for [Value] {
    fn column(&self, index: usize) -> Value {
        self[index].clone()
    }
}

impl Columns for RowView<'_> {
    fn column(&self, index: usize) -> Value {
        self.get_ref(index).to_value()
    }
}

/// No columns at all.
pub struct NoColumns;

impl Columns for NoColumns {
    fn column(&self, index: usize) -> Value {
        unreachable!("column {index} of an expression that the binder found to have none")
    }
}

/// What an expression sees beside its row.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The statement's arguments.
    pub params: &'a [Value],
    /// The elements of those that are arrays ([`Arrays`](crate::values::array::Arrays)).
    pub arrays: &'a [Option<Vec<Value>>],
    /// When the transaction began: microseconds since 1970, UTC.
    pub now: i64,
    /// The value of count(*), once it is known.
    pub count: i64,
    /// The text that the row's expressions have produced so far.
    pub texts: &'a RowTexts,
    /// Ends the computation of a value that takes long.
    pub cancel: &'a Cancel,
}

impl<'a> Context<'a> {
    /// The elements of an argument that is an array; `None` for a null.
    pub fn elements(&self, index: usize) -> Option<&'a [Value]> {
        self.arrays.get(index)?.as_deref()
    }
}

/// The most bytes of text that the expressions of one row produce, those of their parts included.
pub const ROW_TEXT_BYTES_MAX: usize = 1 << 30;

/// How much text the expressions of one row have produced.
///
/// Invariant: it is bounded. A bound on each text alone is not enough: a row has hundreds of values, and an expression
/// keeps a text for each of its levels while it computes the next.
#[derive(Debug, Default)]
pub struct RowTexts(Cell<usize>);

impl RowTexts {
    /// The next row begins.
    #[inline]
    pub fn begin_row(&self) {
        self.0.set(0);
    }

    /// Counts one more text of this number of bytes.
    fn take(&self, bytes: usize) -> Result<()> {
        self.0.set(self.0.get().saturating_add(bytes));
        if self.0.get() <= ROW_TEXT_BYTES_MAX { Ok(()) } else { Err(too_much_text()) }
    }
}

#[cold]
fn too_much_text() -> SqlError {
    let message = format!("the expressions of one row come to more than {ROW_TEXT_BYTES_MAX} bytes of text");
    SqlError::new(SqlState::LimitExceeded, message).hint("Give shorter values, or fewer of them.")
}

/// Comparison operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompareOp {
    /// `=`
    Eq,
    /// `<>`
    NotEq,
    /// `<`
    Less,
    /// `<=`
    LessEq,
    /// `>`
    Greater,
    /// `>=`
    GreaterEq,
}

impl CompareOp {
    /// The operator as it is written.
    pub fn symbol(self) -> &'static str {
        match self {
            CompareOp::Eq => "=",
            CompareOp::NotEq => "<>",
            CompareOp::Less => "<",
            CompareOp::LessEq => "<=",
            CompareOp::Greater => ">",
            CompareOp::GreaterEq => ">=",
        }
    }

    /// The operator with its sides exchanged.
    pub fn mirrored(self) -> CompareOp {
        match self {
            CompareOp::Less => CompareOp::Greater,
            CompareOp::LessEq => CompareOp::GreaterEq,
            CompareOp::Greater => CompareOp::Less,
            CompareOp::GreaterEq => CompareOp::LessEq,
            other => other,
        }
    }

    /// The operator that holds where this one does not.
    pub fn negated(self) -> CompareOp {
        match self {
            CompareOp::Eq => CompareOp::NotEq,
            CompareOp::NotEq => CompareOp::Eq,
            CompareOp::Less => CompareOp::GreaterEq,
            CompareOp::LessEq => CompareOp::Greater,
            CompareOp::Greater => CompareOp::LessEq,
            CompareOp::GreaterEq => CompareOp::Less,
        }
    }

    fn holds(self, ordering: Ordering) -> bool {
        match self {
            CompareOp::Eq => ordering.is_eq(),
            CompareOp::NotEq => ordering.is_ne(),
            CompareOp::Less => ordering.is_lt(),
            CompareOp::LessEq => ordering.is_le(),
            CompareOp::Greater => ordering.is_gt(),
            CompareOp::GreaterEq => ordering.is_ge(),
        }
    }
}

/// Functions of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// `abs`
    Abs,
    /// `length`, `char_length`, `character_length`
    Length,
    /// `lower`
    Lower,
    /// `upper`
    Upper,
}

impl Function {
    /// The function's name.
    pub fn name(self) -> &'static str {
        match self {
            Function::Abs => "abs",
            Function::Length => "length",
            Function::Lower => "lower",
            Function::Upper => "upper",
        }
    }
}

/// The values of which one is asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum List {
    /// These.
    Items(Vec<Expr>),
    /// The elements of an argument, by its number from 0. A null has no elements, and then the answer is unknown.
    Argument(usize),
}

impl List {
    /// The expressions in it.
    pub fn items(&self) -> &[Expr] {
        match self {
            List::Items(items) => items,
            List::Argument(_) => &[],
        }
    }
}

/// A bound expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// A value that is known.
    Const(Value),
    /// Argument number, from 0.
    Param(usize),
    /// Column of the row, from 0.
    Column(usize),
    /// CURRENT_TIMESTAMP.
    Now,
    /// count(*).
    Count,
    /// A value of another type.
    Cast(Box<Expr>, SqlType, SqlType),
    /// Arithmetic on two numbers of one type.
    Arithmetic(ArithmeticOp, Box<Expr>, Box<Expr>),
    /// The number with its sign changed.
    Negate(Box<Expr>),
    /// A comparison.
    Compare(CompareOp, Box<Expr>, Box<Expr>),
    /// AND of all.
    And(Vec<Expr>),
    /// OR of all.
    Or(Vec<Expr>),
    /// NOT.
    Not(Box<Expr>),
    /// IS NULL.
    IsNull(Box<Expr>),
    /// IS TRUE, IS FALSE.
    Is(Box<Expr>, bool),
    /// A comparison that holds for one of several values: IN, and ANY.
    Any(Box<Expr>, CompareOp, List),
    /// BETWEEN: the tested value, and the ends.
    Between(Box<[Expr; 3]>),
    /// LIKE, with its escape character.
    Like(Box<Expr>, Box<Expr>, Option<char>),
    /// `||` of all: text, or bytes.
    Concat(Vec<Expr>),
    /// Text of a char(n), with the blanks behind it.
    Padded(Box<Expr>, u16),
    /// An error that was found before the value is needed.
    Raise(Box<SqlError>),
    /// coalesce
    Coalesce(Vec<Expr>),
    /// nullif
    NullIf(Box<Expr>, Box<Expr>),
    /// A function of one value.
    Call(Function, Box<Expr>),
}

impl Expr {
    /// The value on a row. Errors: what arithmetic and casts give.
    #[inline]
    pub fn eval<C: Columns + ?Sized>(&self, row: &C, context: Context<'_>) -> Result<Value> {
        match self {
            Expr::Param(index) => argument(*index, context),
            Expr::Column(index) => Ok(row.column(*index)),
            _ => self.compute(row, context),
        }
    }

    fn compute<C: Columns + ?Sized>(&self, row: &C, context: Context<'_>) -> Result<Value> {
        Ok(match self {
            Expr::Const(value) => value.clone(),
            Expr::Param(index) => argument(*index, context)?,
            Expr::Column(index) => row.column(*index),
            Expr::Now => Value::Timestamp(context.now),
            Expr::Count => Value::Int8(context.count),
            Expr::Cast(inner, from, to) => {
                counted(cast::cast(inner.eval(row, context)?, *from, *to)?, context)?
            }
            Expr::Arithmetic(op, left, right) => {
                arithmetic::apply(*op, &left.eval(row, context)?, &right.eval(row, context)?)?
            }
            Expr::Negate(inner) => arithmetic::negate(inner.eval(row, context)?)?,
            Expr::Call(function, inner) => counted(call(*function, inner.eval(row, context)?)?, context)?,
            Expr::Concat(items) => concat(items, row, context)?,
            Expr::Padded(inner, length) => match inner.eval(row, context)? {
                Value::Text(text) => Value::Text(padded(text, *length)),
                other => other,
            },
            Expr::Raise(error) => return Err((**error).clone()),
            Expr::Coalesce(items) => {
                for item in items {
                    let value = item.eval(row, context)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                Value::Null
            }
            Expr::NullIf(left, right) => {
                let value = left.eval(row, context)?;
                match compare(&value, &right.eval(row, context)?)? {
                    Some(Ordering::Equal) => Value::Null,
                    _ => value,
                }
            }
            _ => self.truth(row, context)?.map_or(Value::Null, Value::Bool),
        })
    }

    /// The truth of a condition on a row; `None` for unknown.
    pub fn truth<C: Columns + ?Sized>(&self, row: &C, context: Context<'_>) -> Result<Option<bool>> {
        Ok(match self {
            Expr::Compare(op, left, right) => compare(&left.eval(row, context)?, &right.eval(row, context)?)?
                .map(|ordering| op.holds(ordering)),
            Expr::And(items) => {
                let mut answer = Some(true);
                for item in items {
                    match item.truth(row, context)? {
                        Some(false) => return Ok(Some(false)),
                        None => answer = None,
                        Some(true) => {}
                    }
                }
                answer
            }
            Expr::Or(items) => {
                let mut answer = Some(false);
                for item in items {
                    match item.truth(row, context)? {
                        Some(true) => return Ok(Some(true)),
                        None => answer = None,
                        Some(false) => {}
                    }
                }
                answer
            }
            Expr::Not(inner) => inner.truth(row, context)?.map(|truth| !truth),
            Expr::IsNull(inner) => Some(inner.eval(row, context)?.is_null()),
            Expr::Is(inner, wanted) => Some(inner.truth(row, context)? == Some(*wanted)),
            Expr::Any(inner, op, list) => {
                let value = inner.eval(row, context)?;
                let mut answer = Some(false);
                let mut holds = |item: &Value| -> Result<bool> {
                    let ordering = compare(&value, item)?;
                    answer = answer.filter(|_| ordering.is_some());
                    Ok(ordering.is_some_and(|ordering| op.holds(ordering)))
                };
                match list {
                    List::Items(items) => {
                        for item in items {
                            if holds(&item.eval(row, context)?)? {
                                return Ok(Some(true));
                            }
                        }
                    }
                    List::Argument(index) => {
                        let Some(elements) = context.elements(*index) else { return Ok(None) };
                        for element in elements {
                            if holds(element)? {
                                return Ok(Some(true));
                            }
                        }
                    }
                }
                answer
            }
            Expr::Between(sides) => {
                let [tested, low, high] = &**sides;
                let tested = tested.eval(row, context)?;
                let low = compare(&tested, &low.eval(row, context)?)?.map(Ordering::is_ge);
                if low == Some(false) {
                    return Ok(low);
                }
                match compare(&tested, &high.eval(row, context)?)?.map(Ordering::is_le) {
                    Some(true) => low,
                    other => other,
                }
            }
            Expr::Like(text, pattern, escape) => {
                match (text.eval(row, context)?, pattern.eval(row, context)?) {
                    (Value::Text(text), Value::Text(pattern)) => {
                        Some(like::like(&text, &pattern, *escape, context.cancel)?)
                    }
                    (Value::Null, _) | (_, Value::Null) => None,
                    (text, pattern) => return Err(mistyped("LIKE", &[&text, &pattern])),
                }
            }
            other => match other.eval(row, context)? {
                Value::Bool(truth) => Some(truth),
                Value::Null => None,
                other => return Err(mistyped("the truth", &[&other])),
            },
        })
    }

    /// Whether the expression's value depends on a row's columns.
    pub fn has_columns(&self) -> bool {
        self.any(&mut |expr| matches!(expr, Expr::Column(_)))
    }

    /// Whether count(*) is in it.
    pub fn has_count(&self) -> bool {
        self.any(&mut |expr| matches!(expr, Expr::Count))
    }

    /// Whether the value is the same at every execution.
    pub fn is_constant(&self) -> bool {
        !self.any(&mut |expr| matches!(expr, Expr::Column(_) | Expr::Param(_) | Expr::Now | Expr::Count))
    }

    /// Whether the value depends on more than literals and parameters.
    pub fn depends_on_run(&self) -> bool {
        self.any(&mut |expr| matches!(expr, Expr::Column(_) | Expr::Now | Expr::Count))
    }

    /// The error that each evaluation gives, whatever the row: one outside all branches that may be skipped.
    pub fn certain_error(&self) -> Option<&SqlError> {
        match self {
            Expr::Raise(error) => Some(error),
            Expr::Const(_) | Expr::Param(_) | Expr::Column(_) | Expr::Now | Expr::Count => None,
            Expr::Cast(inner, ..) | Expr::Negate(inner) | Expr::Not(inner) | Expr::IsNull(inner) => {
                inner.certain_error()
            }
            Expr::Is(inner, _) | Expr::Call(_, inner) | Expr::Padded(inner, _) => inner.certain_error(),
            Expr::Arithmetic(_, left, right)
            | Expr::Compare(_, left, right)
            | Expr::NullIf(left, right)
            | Expr::Like(left, right, _) => left.certain_error().or_else(|| right.certain_error()),
            Expr::Concat(items) => items.iter().find_map(Expr::certain_error),
            Expr::Between(sides) => sides[..2].iter().find_map(Expr::certain_error),
            Expr::And(items) | Expr::Or(items) | Expr::Coalesce(items) => {
                items.first().and_then(Expr::certain_error)
            }
            Expr::Any(inner, _, list) => {
                inner.certain_error().or_else(|| list.items().first().and_then(Expr::certain_error))
            }
        }
    }

    /// The bytes that a copy of it takes.
    pub(crate) fn bytes(&self) -> usize {
        let mut bytes = 0;
        self.any(&mut |expr| {
            bytes += size_of::<Expr>();
            bytes += match expr {
                Expr::Const(Value::Text(text)) => text.len(),
                Expr::Const(Value::Bytes(value)) => value.len(),
                Expr::Raise(error) => size_of::<SqlError>() + error.message.len(),
                _ => 0,
            };
            false
        });
        bytes
    }

    fn any(&self, found: &mut impl FnMut(&Expr) -> bool) -> bool {
        if found(self) {
            return true;
        }
        match self {
            Expr::Const(_) | Expr::Param(_) | Expr::Column(_) => false,
            Expr::Now | Expr::Count | Expr::Raise(_) => false,
            Expr::Cast(inner, ..) | Expr::Negate(inner) | Expr::Not(inner) | Expr::IsNull(inner) => {
                inner.any(found)
            }
            Expr::Is(inner, _) | Expr::Call(_, inner) | Expr::Padded(inner, _) => inner.any(found),
            Expr::Arithmetic(_, left, right) | Expr::Compare(_, left, right) => {
                left.any(found) || right.any(found)
            }
            Expr::NullIf(left, right) | Expr::Like(left, right, _) => left.any(found) || right.any(found),
            Expr::Between(sides) => sides.iter().any(|side| side.any(found)),
            Expr::And(items) | Expr::Or(items) | Expr::Coalesce(items) | Expr::Concat(items) => {
                items.iter().any(|item| item.any(found))
            }
            Expr::Any(inner, _, List::Argument(index)) => inner.any(found) || found(&Expr::Param(*index)),
            Expr::Any(inner, _, List::Items(items)) => {
                inner.any(found) || items.iter().any(|item| item.any(found))
            }
        }
    }
}

/// An argument of the statement.
#[inline]
fn argument(index: usize, context: Context<'_>) -> Result<Value> {
    match &context.params[index] {
        value @ (Value::Text(_) | Value::Bytes(_)) => counted(value.clone(), context),
        value => Ok(value.clone()),
    }
}

/// A computed value, if the row's text stays within its bound.
#[inline]
fn counted(value: Value, context: Context<'_>) -> Result<Value> {
    match &value {
        Value::Text(text) => context.texts.take(text.len())?,
        Value::Bytes(bytes) => context.texts.take(bytes.len())?,
        _ => {}
    }
    Ok(value)
}

/// SQL's comparison; `None` if a side is null. Text is compared by its code points.
#[inline]
fn compare(left: &Value, right: &Value) -> Result<Option<Ordering>> {
    match left.compare(right) {
        None if !left.is_null() && !right.is_null() => Err(mistyped("a comparison", &[left, right])),
        ordering => Ok(ordering),
    }
}

/// Values that the binder should not have combined: a bug in Rialto, which must not pass for a null.
#[cold]
fn mistyped(what: &str, values: &[&Value]) -> SqlError {
    let types: Vec<&str> = values.iter().map(|value| value.type_name()).collect();
    SqlError::new(SqlState::Internal, format!("{what} of {} was bound", types.join(" and ")))
}

/// The longest text that is computed, in bytes.
pub const TEXT_BYTES_MAX: usize = 256 << 20;

/// `||` of all; null if one of them is.
#[inline(never)]
fn concat<C: Columns + ?Sized>(items: &[Expr], row: &C, context: Context<'_>) -> Result<Value> {
    let mut joined = Value::Null;
    let mut null = false;
    for item in items {
        match (&mut joined, item.eval(row, context)?) {
            (_, Value::Null) => null = true,
            (Value::Null, first @ (Value::Text(_) | Value::Bytes(_))) => joined = first,
            (Value::Text(joined), Value::Text(text)) => {
                context.texts.take(text.len())?;
                joined.push_str(&text);
            }
            (Value::Bytes(joined), Value::Bytes(bytes)) => {
                context.texts.take(bytes.len())?;
                joined.extend_from_slice(&bytes);
            }
            (joined, other) => return Err(mistyped("||", &[joined, &other])),
        }
        let bytes = match &joined {
            Value::Text(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            _ => 0,
        };
        if bytes > TEXT_BYTES_MAX {
            let message = format!("text of more than {TEXT_BYTES_MAX} bytes");
            return Err(SqlError::new(SqlState::LimitExceeded, message));
        }
    }
    Ok(if null { Value::Null } else { joined })
}

/// The text padded with blanks to this number of characters.
fn padded(mut text: String, length: u16) -> String {
    let missing = usize::from(length).saturating_sub(text.chars().count());
    text.extend(std::iter::repeat_n(' ', missing));
    text
}

fn call(function: Function, value: Value) -> Result<Value> {
    Ok(match (function, value) {
        (_, Value::Null) => Value::Null,
        (Function::Abs, Value::Float8(value)) => Value::Float8(value.abs()),
        (Function::Abs, value) => match compare(&value, &Value::Int2(0))? {
            Some(Ordering::Less) => arithmetic::negate(value)?,
            _ => value,
        },
        (Function::Length, Value::Text(text)) => Value::Int4(text.chars().count() as i32),
        (Function::Lower, Value::Text(text)) => Value::Text(text.to_lowercase()),
        (Function::Upper, Value::Text(text)) => Value::Text(text.to_uppercase()),
        (function, other) => return Err(mistyped(function.name(), &[&other])),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_types_that_the_binder_keeps_apart_are_a_bug_and_no_null() {
        let number = |value| Expr::Const(Value::Int4(value));
        let text = || Expr::Const(Value::Text("5".to_string()));
        let boxed = |left, right| (Box::new(left), Box::new(right));
        let texts = RowTexts::default();
        let cancel = Cancel::default();
        let context = Context { params: &[], arrays: &[], now: 0, count: 0, texts: &texts, cancel: &cancel };
        let (left, right) = boxed(number(5), Expr::Const(Value::Int8(1)));
        let sum = Expr::Arithmetic(ArithmeticOp::Add, left, right);
        let (left, right) = boxed(text(), number(5));
        let comparison = Expr::Compare(CompareOp::Eq, left, right);
        let list = Expr::Any(Box::new(number(5)), CompareOp::Eq, List::Items(vec![text()]));
        let (left, right) = boxed(number(5), text());
        let like = Expr::Like(left, right, None);
        let joined = Expr::Concat(vec![text(), number(5)]);
        let call = Expr::Call(Function::Length, Box::new(number(5)));
        let not = Expr::Not(Box::new(text()));
        for expr in [sum, comparison, list, like, joined, call, not, Expr::Negate(Box::new(text()))] {
            let error = expr.eval(&NoColumns, context).unwrap_err();
            assert_eq!(error.sqlstate, SqlState::Internal, "{expr:?}: {error}");
        }
        for null in [
            Expr::Arithmetic(ArithmeticOp::Add, Box::new(Expr::Const(Value::Null)), Box::new(text())),
            Expr::Concat(vec![text(), Expr::Const(Value::Null)]),
            Expr::Negate(Box::new(Expr::Const(Value::Null))),
        ] {
            assert_eq!(null.eval(&NoColumns, context), Ok(Value::Null));
        }
    }
}
