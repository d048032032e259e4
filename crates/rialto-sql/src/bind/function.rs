//! Binds function calls, and the words that stand for a fact of the session.

use rialto::row::Value;

use super::{Binder, Scope, Typed};
use crate::error::{Result, SqlError, SqlState};
use crate::expr::{ArithmeticOp, Expr, Function};
use crate::parse::{Arguments, Call, Node};
use crate::values::SqlType;

impl Binder<'_> {
    /// The fact of the session that a word without parentheses, or a function without arguments, stands for.
    pub(super) fn session_fact(&mut self, name: &str) -> Option<(Expr, SqlType)> {
        let bytes = &mut self.bytes;
        let mut text = |text: &str| {
            // If this is too much, the next allocation is refused.
            *bytes += text.len();
            Some((Expr::Const(Value::Text(text.to_string())), SqlType::Text))
        };
        match name {
            "current_timestamp" => Some((Expr::Now, SqlType::TimestampTz)),
            "localtimestamp" => Some((Expr::Now, SqlType::Timestamp)),
            "current_date" => {
                Some((Expr::Cast(Box::new(Expr::Now), SqlType::Timestamp, SqlType::Date), SqlType::Date))
            }
            "current_user" | "session_user" | "user" | "current_role" => text(&self.facts.user),
            "current_catalog" => text(&self.facts.database),
            "current_schema" => text("public"),
            _ => None,
        }
    }

    #[inline(never)]
    pub(super) fn function(
        &mut self,
        scope: &Scope,
        call: &Call,
        position: Option<usize>,
    ) -> Result<(Expr, SqlType)> {
        let name = call.name.as_str();
        let unsupported = || SqlError::unsupported(format!("function {name}()")).at(position);
        let arguments = match &call.arguments {
            Arguments::Absent => return self.session_fact(name).ok_or_else(unsupported),
            Arguments::Star if name == "count" => return Ok((Expr::Count, SqlType::Int8)),
            Arguments::Star => return Err(unsupported()),
            Arguments::List(arguments) => &arguments[..],
        };
        let text_function = |function| move |inner| Expr::Call(function, Box::new(inner));
        match (name, arguments) {
            ("now" | "transaction_timestamp", []) => Ok((Expr::Now, SqlType::TimestampTz)),
            ("version", []) => {
                let version = format!("PostgreSQL {} on Rialto", crate::SERVER_VERSION);
                Ok((Expr::Const(Value::Text(version)), SqlType::Text))
            }
            ("current_database", []) => self.session_fact("current_catalog").ok_or_else(unsupported),
            ("current_schema", []) => Ok((Expr::Const(Value::Text("public".to_string())), SqlType::Text)),
            // There are no advisory locks, so none are held.
            ("pg_advisory_unlock_all", []) => Ok((Expr::Const(Value::Text(String::new())), SqlType::Void)),
            ("coalesce", [_, ..]) => {
                let (items, sql_type) = self.common(scope, arguments, "COALESCE")?;
                Ok((Expr::Coalesce(items), sql_type))
            }
            ("nullif", [left, right]) => {
                let (left, right) = (self.expr(scope, left)?, self.expr(scope, right)?);
                let (left, right) = self.comparable_typed(left, right, "=", position)?;
                let left = self.compared(left, right.sql_type)?;
                Ok((Expr::NullIf(Box::new(left.expr), Box::new(right.expr)), left.sql_type))
            }
            ("mod", [left, right]) => self.arithmetic(scope, ArithmeticOp::Modulo, left, right, position),
            ("abs", [inner]) => {
                let typed = self.expr(scope, inner)?;
                let typed = self.settle(typed, SqlType::Float8)?;
                if typed.sql_type.number_rank().is_none() {
                    let message = format!("function abs({}) does not exist", typed.sql_type.plain().name());
                    return Err(self.undefined(message, position));
                }
                Ok((Expr::Call(Function::Abs, Box::new(typed.expr)), typed.sql_type.plain()))
            }
            ("length" | "char_length" | "character_length", [inner]) => {
                Ok((text_function(Function::Length)(self.text(scope, inner, name)?), SqlType::Int4))
            }
            ("lower", [inner]) => {
                Ok((text_function(Function::Lower)(self.text(scope, inner, name)?), SqlType::Text))
            }
            ("upper", [inner]) => {
                Ok((text_function(Function::Upper)(self.text(scope, inner, name)?), SqlType::Text))
            }
            ("count", _) => Err(SqlError::unsupported("count of an expression (count(*) is)").at(position)),
            _ => Err(unsupported()),
        }
    }

    /// The left side of a comparison, converted for it: a number beside a float becomes a float, and an integer beside
    /// a decimal a decimal. (Integers of two lengths are compared as they are, and so are moments and days.)
    fn compared(&mut self, left: Typed, right: SqlType) -> Result<Typed> {
        let is_less = left.sql_type.number_rank() < right.number_rank();
        match right.plain() {
            to @ (SqlType::Float8 | SqlType::Decimal(_)) if is_less => self.cast(left, to),
            to @ SqlType::Text if left.sql_type.is_text() => self.cast(left, to),
            _ => Ok(left),
        }
    }

    /// The common type of several expressions, and the expressions converted to it.
    fn common(&mut self, scope: &Scope, nodes: &[Node], what: &str) -> Result<(Vec<Expr>, SqlType)> {
        let items = nodes.iter().map(|node| self.expr(scope, node)).collect::<Result<Vec<_>>>()?;
        let common = common_type(&items).map_err(|(left, right, position)| {
            let message = format!("{what} types {} and {} cannot be matched", left.name(), right.name());
            SqlError::new(SqlState::TypeMismatch, message).at(position)
        })?;
        let common = match common {
            // Values of one length keep the length, and with it the blanks that they are shown with.
            SqlType::Char(_) => {
                let first = items[0].sql_type;
                let same = items.iter().all(|item| item.sql_type == first);
                if same { first } else { common }
            }
            common => common,
        };
        let items = items.into_iter().map(|item| {
            let is_literal = match item.expr {
                Expr::Const(Value::Text(_)) => true,
                Expr::Param(_) => self.lifted.is_some(),
                _ => false,
            };
            // A literal is a text here, which keeps its last blanks when it is shown.
            let item = match common == SqlType::Char(None) && is_literal {
                true => self.settle(item, SqlType::Text)?,
                false => item,
            };
            let before = item.sql_type;
            if common == SqlType::Char(None) && before == SqlType::Text {
                // Not computed here: as a char it would lose its last blanks, with which it is shown.
                self.lift_computed(&item.expr);
                return Ok(Expr::Cast(Box::new(item.expr), before, common));
            }
            Ok(match self.cast(item, common)?.expr {
                // A literal has to be recognised as a char of its own length.
                value @ Expr::Const(Value::Text(_))
                    if common == SqlType::Char(None) && matches!(before, SqlType::Char(Some(_))) =>
                {
                    Expr::Cast(Box::new(value), before, before)
                }
                expr => expr,
            })
        });
        Ok((items.collect::<Result<_>>()?, common))
    }
}

/// The common type of expressions of several types: text if all of them are open. The error has two types that have
/// none, and the place of the second.
pub(super) fn common_type<'t>(
    items: impl IntoIterator<Item = &'t Typed>,
) -> Result<SqlType, (SqlType, SqlType, Option<usize>)> {
    let mut common = SqlType::Unknown;
    for item in items {
        let next = item.sql_type.plain();
        common = match (common, next) {
            (SqlType::Unknown, next) => next,
            (common, SqlType::Unknown) => common,
            (common, next) if common == next => common,
            (common, next) => match (common.number_rank(), next.number_rank()) {
                (Some(left), Some(right)) => {
                    if left >= right {
                        common
                    } else {
                        next
                    }
                }
                // As in PostgreSQL, text and char(n) are cast to each other alike, so the first one stays.
                _ if common.is_text() && next.is_text() => common,
                _ if common.is_time() && next.is_time() => SqlType::Timestamp,
                _ => return Err((common, next, item.position)),
            },
        };
    }
    Ok(if common == SqlType::Unknown { SqlType::Text } else { common })
}
