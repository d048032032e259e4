//! Bound expressions and how they are evaluated, with SQL's three-valued logic.
//!
//! Kept here: the binder has settled all types, so evaluation looks at values only; text of char(n) columns comes
//! without its trailing blanks, as tables store it, and is compared so.

mod arithmetic;
pub mod cast;
mod print;

use std::cmp::Ordering;

use rialto::row::{RowView, Value};

pub use arithmetic::ArithmeticOp;
pub use print::print;

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

/// What an expression sees besides its row.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The statement's arguments.
    pub params: &'a [Value],
    /// When the transaction began: microseconds since 1970, UTC.
    pub now: i64,
    /// The value of count(*), once it is known.
    pub count: i64,
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
    /// IN a list.
    In(Box<Expr>, Vec<Expr>),
    /// LIKE, with its escape character.
    Like(Box<Expr>, Box<Expr>, Option<char>),
    /// `||`
    Concat(Box<Expr>, Box<Expr>),
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
            Expr::Param(index) => Ok(context.params[*index].clone()),
            Expr::Column(index) => Ok(row.column(*index)),
            _ => self.compute(row, context),
        }
    }

    fn compute<C: Columns + ?Sized>(&self, row: &C, context: Context<'_>) -> Result<Value> {
        Ok(match self {
            Expr::Const(value) => value.clone(),
            Expr::Param(index) => context.params[*index].clone(),
            Expr::Column(index) => row.column(*index),
            Expr::Now => Value::Timestamp(context.now),
            Expr::Count => Value::Int8(context.count),
            Expr::Cast(inner, from, to) => cast::cast(inner.eval(row, context)?, *from, *to)?,
            Expr::Arithmetic(op, left, right) => {
                arithmetic::apply(*op, &left.eval(row, context)?, &right.eval(row, context)?)?
            }
            Expr::Negate(inner) => arithmetic::negate(inner.eval(row, context)?)?,
            Expr::Call(function, inner) => call(*function, inner.eval(row, context)?)?,
            Expr::Concat(left, right) => match (left.eval(row, context)?, right.eval(row, context)?) {
                (Value::Text(left), Value::Text(right)) => Value::Text(left + &right),
                _ => Value::Null,
            },
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
                match compare(&value, &right.eval(row, context)?) {
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
            Expr::Compare(op, left, right) => compare(&left.eval(row, context)?, &right.eval(row, context)?)
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
            Expr::In(inner, items) => {
                let value = inner.eval(row, context)?;
                let mut answer = Some(false);
                for item in items {
                    match compare(&value, &item.eval(row, context)?) {
                        Some(Ordering::Equal) => return Ok(Some(true)),
                        None => answer = None,
                        Some(_) => {}
                    }
                }
                answer
            }
            Expr::Like(text, pattern, escape) => {
                match (text.eval(row, context)?, pattern.eval(row, context)?) {
                    (Value::Text(text), Value::Text(pattern)) => Some(like(&text, &pattern, *escape)?),
                    _ => None,
                }
            }
            other => match other.eval(row, context)? {
                Value::Bool(truth) => Some(truth),
                _ => None,
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

    fn any(&self, found: &mut impl FnMut(&Expr) -> bool) -> bool {
        if found(self) {
            return true;
        }
        match self {
            Expr::Const(_) | Expr::Param(_) | Expr::Column(_) | Expr::Now | Expr::Count => false,
            Expr::Cast(inner, ..) | Expr::Negate(inner) | Expr::Not(inner) | Expr::IsNull(inner) => {
                inner.any(found)
            }
            Expr::Is(inner, _) | Expr::Call(_, inner) => inner.any(found),
            Expr::Arithmetic(_, left, right) | Expr::Compare(_, left, right) => {
                left.any(found) || right.any(found)
            }
            Expr::Concat(left, right) | Expr::NullIf(left, right) | Expr::Like(left, right, _) => {
                left.any(found) || right.any(found)
            }
            Expr::And(items) | Expr::Or(items) | Expr::Coalesce(items) => {
                items.iter().any(|item| item.any(found))
            }
            Expr::In(inner, items) => inner.any(found) || items.iter().any(|item| item.any(found)),
        }
    }
}

/// SQL's comparison. Text is compared by its code points.
pub fn compare(left: &Value, right: &Value) -> Option<Ordering> {
    left.compare(right)
}

fn call(function: Function, value: Value) -> Result<Value> {
    Ok(match (function, value) {
        (Function::Abs, value) => match compare(&value, &Value::Int2(0)) {
            Some(Ordering::Less) => arithmetic::negate(value)?,
            _ => value,
        },
        (Function::Length, Value::Text(text)) => Value::Int4(text.chars().count() as i32),
        (Function::Lower, Value::Text(text)) => Value::Text(text.to_lowercase()),
        (Function::Upper, Value::Text(text)) => Value::Text(text.to_uppercase()),
        _ => Value::Null,
    })
}

/// Whether `text` is as `pattern` says: `%` for any characters, `_` for one.
fn like(text: &str, pattern: &str, escape: Option<char>) -> Result<bool> {
    enum Part {
        Any,
        One,
        Exactly(char),
    }
    let mut parts = Vec::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        parts.push(match character {
            character if Some(character) == escape => match characters.next() {
                Some(next) => Part::Exactly(next),
                None => {
                    let message = "LIKE pattern must not end with its escape character";
                    return Err(SqlError::new(SqlState::InvalidParameterValue, message));
                }
            },
            '%' => Part::Any,
            '_' => Part::One,
            other => Part::Exactly(other),
        });
    }
    let text: Vec<char> = text.chars().collect();
    // Greedy, with one place to go back to: the last `%`.
    let (mut at, mut part, mut back) = (0, 0, None);
    while at < text.len() {
        match parts.get(part) {
            Some(Part::Any) => {
                back = Some((part + 1, at));
                part += 1;
            }
            Some(Part::One) => {
                at += 1;
                part += 1;
            }
            Some(Part::Exactly(wanted)) if *wanted == text[at] => {
                at += 1;
                part += 1;
            }
            _ => match back {
                Some((after, from)) => {
                    back = Some((after, from + 1));
                    part = after;
                    at = from + 1;
                }
                None => return Ok(false),
            },
        }
    }
    Ok(parts[part..].iter().all(|part| matches!(part, Part::Any)))
}
