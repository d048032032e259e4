//! Conditions on plain rows: their text, and their value by SQL's three-valued logic, where `None` is unknown.

use std::cmp::Ordering;
use std::fmt::{self, Display, Formatter};

use rialto::io::Random;

use super::Row;

/// A column of the tables.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Column {
    K,
    V,
    C,
}

/// A value that is not NULL.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub enum Plain {
    Int(i32),
    Text(String),
}

/// The operand of a comparison with a column.
#[derive(Debug, Clone)]
pub enum Operand {
    Literal(Option<Plain>),
    Column(Column),
}

/// An operator, and when it holds.
pub type Operator = (&'static str, fn(Ordering) -> bool);

pub const OPERATORS: [Operator; 6] = [
    ("=", Ordering::is_eq),
    ("<>", Ordering::is_ne),
    ("<", Ordering::is_lt),
    ("<=", Ordering::is_le),
    (">", Ordering::is_gt),
    (">=", Ordering::is_ge),
];

/// A condition of a WHERE.
#[derive(Debug, Clone)]
pub enum Condition {
    Compare(Column, Operator, Operand),
    Between(Column, Operand, Operand),
    In(Column, Vec<Operand>),
    IsNull(Column),
    /// `k` has this remainder when it is divided by the first number.
    HasRest(i32, i32),
    Not(Box<Condition>),
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
}

use Condition::{And, Between, Compare, HasRest, In, IsNull, Not, Or};

impl Column {
    fn of(self, (k, v, c): &Row) -> Option<Plain> {
        match self {
            Column::K => Some(Plain::Int(*k)),
            Column::V => v.map(Plain::Int),
            Column::C => Some(Plain::Text(c.clone())),
        }
    }
}

impl Operand {
    fn of(&self, row: &Row) -> Option<Plain> {
        match self {
            Operand::Literal(value) => value.clone(),
            Operand::Column(column) => column.of(row),
        }
    }
}

fn and(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

fn or(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    not(and(not(one), not(other)))
}

fn not(one: Option<bool>) -> Option<bool> {
    one.map(|truth| !truth)
}

/// Whether a value compares in this way with another; unknown if one of them is NULL.
fn compares(one: &Option<Plain>, holds: fn(Ordering) -> bool, other: Option<Plain>) -> Option<bool> {
    let (one, other) = (one.as_ref()?, other?);
    Some(holds(one.partial_cmp(&other).expect("columns are compared with values of their types")))
}

impl Condition {
    /// One to five comparisons, often with one of a key. Most of their values are taken from `rows`, half of these from
    /// the same row.
    pub fn any(random: &mut Random, rows: &[Row]) -> Condition {
        let near = rows.get(random.below(rows.len().max(1) as u64) as usize);
        let mut condition = Condition::leaf(random, rows, near);
        if let Some(near) = near
            && random.chance(1, 3)
        {
            let column = if random.chance(2, 3) { Column::K } else { Column::V };
            let key = Compare(column, OPERATORS[0], Operand::Literal(column.of(near)));
            condition = And(Box::new(key), Box::new(condition));
        }
        for _ in 0..random.below(3) {
            let mut other = Condition::leaf(random, rows, near);
            if random.chance(1, 5) {
                let third = Condition::leaf(random, rows, near);
                other = join(random, other, third);
            }
            condition = join(random, condition, other);
            if random.chance(1, 8) {
                condition = Not(Box::new(condition));
            }
        }
        condition
    }

    fn leaf(random: &mut Random, rows: &[Row], near: Option<&Row>) -> Condition {
        let column = [Column::K, Column::V, Column::C][random.below(3) as usize];
        let value = |random: &mut Random| value(random, column, rows, near);
        let leaf = match random.below(10) {
            0..3 => Compare(column, OPERATORS[0], value(random)),
            3..5 => Compare(column, OPERATORS[random.below(6) as usize], value(random)),
            5 if column != Column::C => {
                let other = if column == Column::K { Column::V } else { Column::K };
                Compare(column, OPERATORS[random.below(6) as usize], Operand::Column(other))
            }
            5 | 6 => Between(column, value(random), value(random)),
            7 => In(column, (0..2 + random.below(3)).map(|_| value(random)).collect()),
            8 => IsNull(Column::V),
            _ => {
                let divisor = 2 + random.below(6) as i32;
                HasRest(divisor, random.below(divisor as u64) as i32)
            }
        };
        if random.chance(1, 5) { Not(Box::new(leaf)) } else { leaf }
    }

    /// Whether it is true for a row.
    pub fn holds(&self, row: &Row) -> bool {
        self.truth(row) == Some(true)
    }

    fn truth(&self, row: &Row) -> Option<bool> {
        match self {
            Compare(column, (_, holds), operand) => compares(&column.of(row), *holds, operand.of(row)),
            Between(column, least, largest) => {
                let value = column.of(row);
                let is_above = compares(&value, Ordering::is_ge, least.of(row));
                and(is_above, compares(&value, Ordering::is_le, largest.of(row)))
            }
            In(column, items) => {
                let value = column.of(row);
                let equal = items.iter().map(|item| compares(&value, Ordering::is_eq, item.of(row)));
                equal.fold(Some(false), or)
            }
            IsNull(column) => Some(column.of(row).is_none()),
            HasRest(divisor, rest) => Some(row.0 % divisor == *rest),
            Not(inner) => not(inner.truth(row)),
            And(one, other) => and(one.truth(row), other.truth(row)),
            Or(one, other) => or(one.truth(row), other.truth(row)),
        }
    }
}

fn join(random: &mut Random, one: Condition, other: Condition) -> Condition {
    let (one, other) = (Box::new(one), Box::new(other));
    if random.chance(2, 3) { And(one, other) } else { Or(one, other) }
}

/// An operand for a comparison with a column: its value in a row, or a near one.
fn value(random: &mut Random, column: Column, rows: &[Row], near: Option<&Row>) -> Operand {
    let row = match random.chance(1, 2) {
        true => near,
        false => rows.get(random.below(rows.len().max(1) as u64) as usize),
    };
    Operand::Literal(match (random.below(8), row) {
        (0, _) if random.chance(1, 3) => None,
        (1 | 2, _) | (_, None) if column == Column::C => {
            Some(Plain::Text("x".repeat(random.below(20) as usize)))
        }
        (1 | 2, _) | (_, None) => Some(Plain::Int(random.below(400) as i32)),
        (_, Some(row)) => column.of(row),
    })
}

impl Display for Column {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Column::K => "k",
            Column::V => "v",
            Column::C => "c",
        })
    }
}

impl Display for Operand {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Literal(None) => f.write_str("null"),
            Operand::Literal(Some(Plain::Int(number))) => number.fmt(f),
            Operand::Literal(Some(Plain::Text(text))) => write!(f, "'{text}'"),
            Operand::Column(column) => column.fmt(f),
        }
    }
}

/// With parentheses only where their absence would change the meaning.
impl Display for Condition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let list = |items: &[Operand]| items.iter().map(Operand::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Compare(column, (operator, _), operand) => write!(f, "{column} {operator} {operand}"),
            Between(column, least, largest) => write!(f, "{column} between {least} and {largest}"),
            In(column, items) => write!(f, "{column} in ({})", list(items)),
            IsNull(column) => write!(f, "{column} is null"),
            HasRest(divisor, rest) => write!(f, "k % {divisor} = {rest}"),
            Not(inner) => match &**inner {
                Between(column, least, largest) => write!(f, "{column} not between {least} and {largest}"),
                In(column, items) => write!(f, "{column} not in ({})", list(items)),
                IsNull(column) => write!(f, "{column} is not null"),
                And(..) | Or(..) | Not(..) => write!(f, "not ({inner})"),
                Compare(..) | HasRest(..) => write!(f, "not {inner}"),
            },
            And(one, other) => {
                let side = |side: &Condition| match side {
                    Or(..) => format!("({side})"),
                    _ => side.to_string(),
                };
                write!(f, "{} and {}", side(one), side(other))
            }
            Or(one, other) => write!(f, "{one} or {other}"),
        }
    }
}
