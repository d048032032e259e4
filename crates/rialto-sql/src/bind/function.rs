//! Binds function calls, and the words that ask for a fact of the session.

use rialto::row::Value;
use sqlparser::ast;

use super::{Binder, Scope};
use crate::error::{Result, SqlError, SqlState};
use crate::expr::{ArithmeticOp, Expr, Function};
use crate::values::SqlType;

impl Binder<'_> {
    /// What a word without parentheses, or a function without arguments, says of the session.
    pub(super) fn session_fact(&self, name: &str) -> Option<(Expr, SqlType)> {
        let text = |text: &str| Some((Expr::Const(Value::Text(text.to_string())), SqlType::Text));
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

    pub(super) fn function(
        &mut self,
        scope: &Scope,
        function: &ast::Function,
        position: Option<usize>,
    ) -> Result<(Expr, SqlType)> {
        let name = function.name.to_string().to_lowercase();
        let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
        let refused = [
            (function.over.is_some(), "a window function"),
            (function.filter.is_some(), "FILTER"),
            (!function.within_group.is_empty(), "WITHIN GROUP"),
            (function.null_treatment.is_some(), "IGNORE or RESPECT NULLS"),
            (
                function.parameters != ast::FunctionArguments::None || function.uses_odbc_syntax,
                "this form of function call",
            ),
        ];
        if let Some((_, what)) = refused.into_iter().find(|(found, _)| *found) {
            return Err(SqlError::unsupported(what).at(position));
        }
        let unsupported = || SqlError::unsupported(format!("function {name}()")).at(position);
        let mut arguments = Vec::new();
        let mut star = false;
        match &function.args {
            ast::FunctionArguments::None => {
                return self.session_fact(name).ok_or_else(unsupported);
            }
            ast::FunctionArguments::List(list) => {
                if list.duplicate_treatment == Some(ast::DuplicateTreatment::Distinct) {
                    return Err(SqlError::unsupported(format!("{name}(DISTINCT)")).at(position));
                }
                if !list.clauses.is_empty() {
                    return Err(unsupported());
                }
                for argument in &list.args {
                    match argument {
                        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => arguments.push(expr),
                        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Wildcard) => star = true,
                        _ => return Err(unsupported()),
                    }
                }
            }
            ast::FunctionArguments::Subquery(_) => {
                return Err(SqlError::unsupported("a subquery").at(position));
            }
        }
        if star {
            return if name == "count" && arguments.is_empty() {
                Ok((Expr::Count, SqlType::Int8))
            } else {
                Err(unsupported())
            };
        }
        let text_function = |function| move |inner| Expr::Call(function, Box::new(inner));
        match (name, &arguments[..]) {
            ("now" | "transaction_timestamp", []) => Ok((Expr::Now, SqlType::TimestampTz)),
            ("version", []) => {
                let version = format!("PostgreSQL {} on Rialto", crate::SERVER_VERSION);
                Ok((Expr::Const(Value::Text(version)), SqlType::Text))
            }
            ("current_database", []) => {
                Ok((Expr::Const(Value::Text(self.facts.database.clone())), SqlType::Text))
            }
            ("current_schema", []) => Ok((Expr::Const(Value::Text("public".to_string())), SqlType::Text)),
            ("coalesce", [_, ..]) => {
                let (items, sql_type) = self.common(scope, &arguments, "COALESCE")?;
                Ok((Expr::Coalesce(items), sql_type))
            }
            ("nullif", [left, right]) => {
                let (left, right) = (self.expr(scope, left)?, self.expr(scope, right)?);
                let sql_type = if left.sql_type == SqlType::Unknown { right.sql_type } else { left.sql_type };
                let (left, right) = self.comparable(left, right, "=", position)?;
                let sql_type = if sql_type == SqlType::Unknown { SqlType::Text } else { sql_type };
                Ok((Expr::NullIf(Box::new(left), Box::new(right)), sql_type))
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

    /// The common type of several expressions, and them as such.
    fn common(&mut self, scope: &Scope, nodes: &[&ast::Expr], what: &str) -> Result<(Vec<Expr>, SqlType)> {
        let items = nodes.iter().map(|node| self.expr(scope, node)).collect::<Result<Vec<_>>>()?;
        let mut common = SqlType::Unknown;
        for item in &items {
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
                    _ if common.is_text() && next.is_text() => SqlType::Text,
                    _ if common.is_time() && next.is_time() => SqlType::Timestamp,
                    _ => {
                        let message =
                            format!("{what} types {} and {} cannot be matched", common.name(), next.name());
                        return Err(SqlError::new(SqlState::TypeMismatch, message).at(item.position));
                    }
                },
            };
        }
        let common = if common == SqlType::Unknown { SqlType::Text } else { common };
        let items = items.into_iter().map(|item| Ok(self.cast(item, common)?.expr)).collect::<Result<_>>()?;
        Ok((items, common))
    }
}
