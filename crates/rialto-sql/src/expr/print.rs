//! Expressions as text, for EXPLAIN.

use std::fmt::Write;

use rialto::row::Value;

use super::{CompareOp, Expr, List};

/// The expression in SQL, with `names` for the columns.
pub fn print(expr: &Expr, names: &[&str]) -> String {
    let mut out = String::new();
    Printer { out: &mut out, names }.print(expr);
    out
}

struct Printer<'a> {
    out: &'a mut String,
    names: &'a [&'a str],
}

/// What is printed, in its order.
enum Part<'a> {
    Text(&'a str),
    Expr(&'a Expr),
    List(&'a [Expr], &'a str),
}

impl Printer<'_> {
    fn parts(&mut self, parts: &[Part<'_>]) {
        for part in parts {
            match part {
                Part::Text(text) => self.out.push_str(text),
                Part::Expr(expr) => self.print(expr),
                Part::List(items, between) => {
                    for (at, item) in items.iter().enumerate() {
                        self.out.push_str(if at > 0 { between } else { "" });
                        self.print(item);
                    }
                }
            }
        }
    }

    fn push(&mut self, text: impl std::fmt::Display) {
        write!(self.out, "{text}").expect("a String takes all that is written");
    }

    fn print(&mut self, expr: &Expr) {
        use Part::{Expr as E, Text as T};
        match expr {
            Expr::Const(Value::Text(text)) => self.push(format_args!("'{}'", text.replace('\'', "''"))),
            Expr::Const(value) => self.push(value),
            Expr::Param(index) => self.push(format_args!("${}", index + 1)),
            Expr::Column(index) => match self.names.get(*index) {
                Some(name) => self.push(name),
                None => self.push(format_args!("column {index}")),
            },
            Expr::Now => self.push("CURRENT_TIMESTAMP"),
            Expr::Count => self.push("count(*)"),
            Expr::Cast(inner, _, to) => self.parts(&[E(inner), T("::"), T(&to.name())]),
            Expr::Arithmetic(op, left, right) => self.operation(left, op.symbol(), right),
            Expr::Compare(op, left, right) => self.operation(left, op.symbol(), right),
            Expr::Like(text, pattern, _) => self.operation(text, "LIKE", pattern),
            Expr::Negate(inner) => self.parts(&[T("(- "), E(inner), T(")")]),
            Expr::And(items) => self.parts(&[T("("), Part::List(items, " AND "), T(")")]),
            Expr::Or(items) => self.parts(&[T("("), Part::List(items, " OR "), T(")")]),
            Expr::Concat(items) => self.parts(&[T("("), Part::List(items, " || "), T(")")]),
            Expr::Not(inner) => self.parts(&[T("(NOT "), E(inner), T(")")]),
            Expr::IsNull(inner) => self.parts(&[T("("), E(inner), T(" IS NULL)")]),
            Expr::Is(inner, true) => self.parts(&[T("("), E(inner), T(" IS TRUE)")]),
            Expr::Is(inner, false) => self.parts(&[T("("), E(inner), T(" IS FALSE)")]),
            Expr::Any(inner, CompareOp::Eq, List::Items(items)) => {
                self.parts(&[T("("), E(inner), T(" IN ("), Part::List(items, ", "), T("))")]);
            }
            Expr::Any(inner, op, List::Items(items)) => {
                let any = format!(" {} ANY (ARRAY[", op.symbol());
                self.parts(&[T("("), E(inner), T(&any), Part::List(items, ", "), T("]))")]);
            }
            Expr::Any(inner, op, List::Argument(index)) => {
                let any = format!(" {} ANY (${}))", op.symbol(), index + 1);
                self.parts(&[T("("), E(inner), T(&any)]);
            }
            Expr::Between(sides) => {
                let [tested, low, high] = &**sides;
                self.parts(&[T("("), E(tested), T(" BETWEEN "), E(low), T(" AND "), E(high), T(")")]);
            }
            Expr::Coalesce(items) => self.parts(&[T("coalesce("), Part::List(items, ", "), T(")")]),
            Expr::NullIf(left, right) => self.parts(&[T("nullif("), E(left), T(", "), E(right), T(")")]),
            Expr::Call(function, inner) => self.parts(&[T(function.name()), T("("), E(inner), T(")")]),
            Expr::Padded(inner, length) => {
                self.parts(&[E(inner), T("::character("), T(&length.to_string()), T(")")]);
            }
            Expr::Raise(error) => self.push(format_args!("(error: {})", error.message)),
        }
    }

    fn operation(&mut self, left: &Expr, symbol: &str, right: &Expr) {
        let between = format!(" {symbol} ");
        self.parts(&[
            Part::Text("("),
            Part::Expr(left),
            Part::Text(&between),
            Part::Expr(right),
            Part::Text(")"),
        ]);
    }
}
