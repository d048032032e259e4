//! Arithmetic on two numbers of one type, with overflow as SQLSTATE 22003.

use rialto::row::{Decimal, Value};

use super::mistyped;
use crate::error::{Result, SqlError, SqlState};

/// The least number of digits behind the point that a quotient of decimals has.
const QUOTIENT_SCALE: u8 = 16;

/// Arithmetic operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArithmeticOp {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Modulo,
}

impl ArithmeticOp {
    /// The operator as it is written.
    pub fn symbol(self) -> &'static str {
        match self {
            ArithmeticOp::Add => "+",
            ArithmeticOp::Subtract => "-",
            ArithmeticOp::Multiply => "*",
            ArithmeticOp::Divide => "/",
            ArithmeticOp::Modulo => "%",
        }
    }
}

fn out_of_range(type_name: &str) -> SqlError {
    SqlError::new(SqlState::NumberOutOfRange, format!("{type_name} out of range"))
}

fn division_by_zero() -> SqlError {
    SqlError::new(SqlState::DivisionByZero, "division by zero")
}

macro_rules! integers {
    ($op:expr, $left:expr, $right:expr, $variant:path, $name:literal) => {{
        let (left, right) = (*$left, *$right);
        let value = match $op {
            ArithmeticOp::Add => left.checked_add(right),
            ArithmeticOp::Subtract => left.checked_sub(right),
            ArithmeticOp::Multiply => left.checked_mul(right),
            ArithmeticOp::Divide | ArithmeticOp::Modulo if right == 0 => return Err(division_by_zero()),
            ArithmeticOp::Divide => left.checked_div(right),
            ArithmeticOp::Modulo => Some(left.wrapping_rem(right)),
        };
        $variant(value.ok_or_else(|| out_of_range($name))?)
    }};
}

/// The result; null if one side is.
pub(super) fn apply(op: ArithmeticOp, left: &Value, right: &Value) -> Result<Value> {
    Ok(match (left, right) {
        (Value::Int2(left), Value::Int2(right)) => integers!(op, left, right, Value::Int2, "smallint"),
        (Value::Int4(left), Value::Int4(right)) => integers!(op, left, right, Value::Int4, "integer"),
        (Value::Int8(left), Value::Int8(right)) => integers!(op, left, right, Value::Int8, "bigint"),
        (Value::Float8(left), Value::Float8(right)) => Value::Float8(floats(op, *left, *right)?),
        (Value::Decimal(left), Value::Decimal(right)) => Value::Decimal(decimals(op, *left, *right)?),
        (Value::Null, _) | (_, Value::Null) => Value::Null,
        _ => return Err(mistyped(op.symbol(), &[left, right])),
    })
}

fn floats(op: ArithmeticOp, left: f64, right: f64) -> Result<f64> {
    let value = match op {
        ArithmeticOp::Add => left + right,
        ArithmeticOp::Subtract => left - right,
        ArithmeticOp::Multiply => left * right,
        ArithmeticOp::Divide | ArithmeticOp::Modulo if right == 0.0 && !left.is_nan() => {
            return Err(division_by_zero());
        }
        ArithmeticOp::Divide => left / right,
        ArithmeticOp::Modulo => left % right,
    };
    if value.is_infinite() && left.is_finite() && right.is_finite() {
        return Err(float_out_of_range("overflow"));
    }
    // Underflow: a product of two non-zero numbers, or a quotient by a finite number, is zero.
    let vanishes = match op {
        ArithmeticOp::Multiply => right != 0.0,
        ArithmeticOp::Divide => right.is_finite(),
        _ => false,
    };
    if value == 0.0 && left != 0.0 && vanishes {
        return Err(float_out_of_range("underflow"));
    }
    Ok(value)
}

#[cold]
fn float_out_of_range(how: &str) -> SqlError {
    SqlError::new(SqlState::NumberOutOfRange, format!("value out of range: {how}"))
}

fn decimals(op: ArithmeticOp, left: Decimal, right: Decimal) -> Result<Decimal> {
    let value = match op {
        ArithmeticOp::Add => left.checked_add(right),
        ArithmeticOp::Subtract => left.checked_sub(right),
        ArithmeticOp::Multiply => {
            left.checked_mul(right).or_else(|| without_zeros(left)?.checked_mul(without_zeros(right)?))
        }
        ArithmeticOp::Divide | ArithmeticOp::Modulo if right.unscaled() == 0 => {
            return Err(division_by_zero());
        }
        ArithmeticOp::Divide => divide(left, right),
        ArithmeticOp::Modulo => {
            let scale = left.scale().max(right.scale());
            left.rescale(scale)
                .zip(right.rescale(scale))
                .and_then(|(left, right)| Decimal::new(left.unscaled() % right.unscaled(), scale))
        }
    };
    value.ok_or_else(|| out_of_range("numeric"))
}

/// The quotient, rounded half away from zero, with 16 digits behind the point or as many as an operand has; fewer if
/// they do not fit.
fn divide(left: Decimal, right: Decimal) -> Option<Decimal> {
    let wanted = QUOTIENT_SCALE.max(left.scale()).max(right.scale());
    let (left, right) = (without_zeros(left)?, without_zeros(right)?);
    (0..=wanted).rev().find_map(|scale| {
        // left / right = unscaled quotient * 10^-scale
        let power = i32::from(scale) + i32::from(right.scale()) - i32::from(left.scale());
        let (mut top, mut bottom) = (left.unscaled(), right.unscaled());
        let factor = 10i128.checked_pow(power.unsigned_abs())?;
        if power >= 0 {
            top = top.checked_mul(factor)?;
        } else {
            bottom = bottom.checked_mul(factor)?;
        }
        let (quotient, rest) = (top / bottom, top % bottom);
        let away = rest.unsigned_abs() >= bottom.unsigned_abs() - bottom.unsigned_abs() / 2;
        let sign = if (top < 0) == (bottom < 0) { 1 } else { -1 };
        Decimal::new(if away { quotient.checked_add(sign)? } else { quotient }, scale)
    })
}

/// The same number without trailing zeros behind the point, which take room that intermediate results need.
fn without_zeros(number: Decimal) -> Option<Decimal> {
    let (mut unscaled, mut scale) = (number.unscaled(), number.scale());
    while scale > 0 && unscaled % 10 == 0 {
        (unscaled, scale) = (unscaled / 10, scale - 1);
    }
    Decimal::new(unscaled, scale)
}

/// The number with its sign changed.
pub(super) fn negate(value: Value) -> Result<Value> {
    Ok(match value {
        Value::Int2(value) => Value::Int2(value.checked_neg().ok_or_else(|| out_of_range("smallint"))?),
        Value::Int4(value) => Value::Int4(value.checked_neg().ok_or_else(|| out_of_range("integer"))?),
        Value::Int8(value) => Value::Int8(value.checked_neg().ok_or_else(|| out_of_range("bigint"))?),
        Value::Float8(value) => Value::Float8(-value),
        Value::Decimal(value) => Value::Decimal(-value),
        Value::Null => Value::Null,
        other => return Err(mistyped("-", &[&other])),
    })
}
