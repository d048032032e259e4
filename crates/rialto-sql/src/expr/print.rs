//! Expressions as text, for EXPLAIN.

use rialto::row::Value;

use super::Expr;

/// The expression in SQL's words, `names` being the columns.
pub fn print(expr: &Expr, names: &[&str]) -> String {
    let sub = |inner: &Expr| print(inner, names);
    let list = |items: &[Expr], between: &str| {
        items.iter().map(|item| print(item, names)).collect::<Vec<_>>().join(between)
    };
    match expr {
        Expr::Const(Value::Text(text)) => format!("'{}'", text.replace('\'', "''")),
        Expr::Const(value) => value.to_string(),
        Expr::Param(index) => format!("${}", index + 1),
        Expr::Column(index) => {
            names.get(*index).map_or_else(|| format!("column {index}"), |name| name.to_string())
        }
        Expr::Now => "CURRENT_TIMESTAMP".to_string(),
        Expr::Count => "count(*)".to_string(),
        Expr::Cast(inner, _, to) => format!("{}::{}", sub(inner), to.name()),
        Expr::Arithmetic(op, left, right) => format!("({} {} {})", sub(left), op.symbol(), sub(right)),
        Expr::Negate(inner) => format!("(- {})", sub(inner)),
        Expr::Compare(op, left, right) => format!("({} {} {})", sub(left), op.symbol(), sub(right)),
        Expr::And(items) => format!("({})", list(items, " AND ")),
        Expr::Or(items) => format!("({})", list(items, " OR ")),
        Expr::Not(inner) => format!("(NOT {})", sub(inner)),
        Expr::IsNull(inner) => format!("({} IS NULL)", sub(inner)),
        Expr::Is(inner, true) => format!("({} IS TRUE)", sub(inner)),
        Expr::Is(inner, false) => format!("({} IS FALSE)", sub(inner)),
        Expr::In(inner, items) => format!("({} IN ({}))", sub(inner), list(items, ", ")),
        Expr::Like(text, pattern, _) => format!("({} LIKE {})", sub(text), sub(pattern)),
        Expr::Concat(left, right) => format!("({} || {})", sub(left), sub(right)),
        Expr::Coalesce(items) => format!("coalesce({})", list(items, ", ")),
        Expr::NullIf(left, right) => format!("nullif({}, {})", sub(left), sub(right)),
        Expr::Call(function, inner) => format!("{}({})", function.name(), sub(inner)),
    }
}
