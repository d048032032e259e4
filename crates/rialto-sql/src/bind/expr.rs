//! Binds expressions: names, literals, conditions, operators. Function calls are in [`function`](super::function).

use rialto::row::{Decimal, Value};
use sqlparser::ast::{self, BinaryOperator, Spanned, UnaryOperator};

use super::{Binder, Scope, Typed};
use crate::error::{Result, SqlError, SqlState};
use crate::expr::cast::{self, CastContext};
use crate::expr::{ArithmeticOp, CompareOp, Context, Expr, NoColumns};
use crate::parse::Name;
use crate::values::SqlType;

impl Binder<'_> {
    fn place(&self, node: &impl Spanned) -> Option<usize> {
        self.places.position(node.span().start)
    }

    /// Binds an expression.
    pub(super) fn expr(&mut self, scope: &Scope, node: &ast::Expr) -> Result<Typed> {
        let position = self.place(node);
        let typed = |expr, sql_type| Ok(Typed { expr, sql_type, position });
        let bound = match node {
            ast::Expr::Identifier(ident) => {
                let name = self.places.name(ident);
                // These are functions without parentheses.
                if ident.quote_style.is_none()
                    && scope.find(&name).is_err()
                    && let Some(found) = self.session_fact(&name.text)
                {
                    return typed(found.0, found.1);
                }
                let index = scope.find(&name)?;
                return typed(Expr::Column(index), scope.column_type(index));
            }
            ast::Expr::CompoundIdentifier(idents) => return self.qualified(scope, idents),
            ast::Expr::Value(value) => return self.literal(&value.value, position),
            ast::Expr::Nested(inner) => return self.expr(scope, inner),
            ast::Expr::TypedString(typed) if !typed.uses_odbc_syntax => {
                let to = self.type_name(&typed.data_type, position)?;
                let value = self.literal(&typed.value.value, position)?;
                return self.cast(value, to);
            }
            ast::Expr::UnaryOp { op, expr } => self.unary(scope, op, expr, position)?,
            ast::Expr::BinaryOp { left, op, right } => self.binary(scope, left, op, right, position)?,
            ast::Expr::IsNull(inner) => (Expr::IsNull(Box::new(self.any(scope, inner)?)), SqlType::Bool),
            ast::Expr::IsNotNull(inner) => {
                (not(Expr::IsNull(Box::new(self.any(scope, inner)?))), SqlType::Bool)
            }
            ast::Expr::IsTrue(inner) => (self.is(scope, inner, true)?, SqlType::Bool),
            ast::Expr::IsNotTrue(inner) => (not(self.is(scope, inner, true)?), SqlType::Bool),
            ast::Expr::IsFalse(inner) => (self.is(scope, inner, false)?, SqlType::Bool),
            ast::Expr::IsNotFalse(inner) => (not(self.is(scope, inner, false)?), SqlType::Bool),
            ast::Expr::IsUnknown(inner) => {
                (Expr::IsNull(Box::new(self.condition(scope, inner, "IS UNKNOWN")?)), SqlType::Bool)
            }
            ast::Expr::IsNotUnknown(inner) => {
                (not(Expr::IsNull(Box::new(self.condition(scope, inner, "IS UNKNOWN")?))), SqlType::Bool)
            }
            ast::Expr::InList { expr, list, negated } => {
                (negate_if(*negated, self.in_list(scope, expr, list)?), SqlType::Bool)
            }
            ast::Expr::Between { expr, negated, low, high } => {
                let low = self.compare(scope, expr, CompareOp::GreaterEq, low, position)?;
                let high = self.compare(scope, expr, CompareOp::LessEq, high, position)?;
                (negate_if(*negated, Expr::And(vec![low, high])), SqlType::Bool)
            }
            ast::Expr::Like { negated, any: false, expr, pattern, escape_char } => {
                let escape = self.escape(escape_char.as_deref())?;
                let text = self.text(scope, expr, "LIKE")?;
                let pattern = self.text(scope, pattern, "LIKE")?;
                let like = Expr::Like(Box::new(text), Box::new(pattern), escape);
                (negate_if(*negated, like), SqlType::Bool)
            }
            ast::Expr::Cast {
                kind: ast::CastKind::Cast | ast::CastKind::DoubleColon,
                expr,
                data_type,
                format: None,
            } => {
                let to = self.type_name(data_type, position)?;
                let inner = self.expr(scope, expr)?;
                return self.explicit_cast(inner, to, position);
            }
            ast::Expr::Function(function) => self.function(scope, function, position)?,
            other => return Err(SqlError::unsupported(construct(other)).at(position)),
        };
        typed(bound.0, bound.1)
    }

    fn qualified(&mut self, scope: &Scope, idents: &[ast::Ident]) -> Result<Typed> {
        let [qualifier, column] = idents else {
            return Err(SqlError::unsupported("a name with more than one dot")
                .at(self.places.name(&idents[0]).position));
        };
        let qualifier = self.places.name(qualifier);
        if qualifier.text != scope.qualifier() {
            let message = format!("missing FROM-clause entry for table \"{}\"", qualifier.text);
            return Err(SqlError::new(SqlState::UndefinedTable, message).at(qualifier.position));
        }
        let column = self.places.name(column);
        let name = Name { text: column.text, position: qualifier.position };
        let index = scope.find(&name)?;
        Ok(Typed {
            expr: Expr::Column(index),
            sql_type: scope.column_type(index),
            position: qualifier.position,
        })
    }

    fn literal(&mut self, value: &ast::Value, position: Option<usize>) -> Result<Typed> {
        if matches!(value, ast::Value::Number(_, false) | ast::Value::SingleQuotedString(_))
            && let Some(lifted) = self.lifted(position)
        {
            return Ok(lifted);
        }
        let (value, sql_type) = match value {
            ast::Value::Number(digits, false) => number(digits, position)?,
            ast::Value::SingleQuotedString(text) | ast::Value::EscapedStringLiteral(text) => {
                (Value::Text(text.clone()), SqlType::Unknown)
            }
            ast::Value::DollarQuotedString(text) => (Value::Text(text.value.clone()), SqlType::Unknown),
            ast::Value::Boolean(value) => (Value::Bool(*value), SqlType::Bool),
            ast::Value::Null => (Value::Null, SqlType::Unknown),
            ast::Value::Placeholder(name) => return self.parameter(name, position),
            other => return Err(SqlError::unsupported(format!("the literal {other}")).at(position)),
        };
        if let Value::Text(text) = &value
            && text.contains('\0')
        {
            let message = "a string literal cannot hold a zero byte";
            return Err(SqlError::new(SqlState::BadEncoding, message).at(position));
        }
        Ok(Typed { expr: Expr::Const(value), sql_type, position })
    }

    fn parameter(&mut self, name: &str, position: Option<usize>) -> Result<Typed> {
        let number =
            name.strip_prefix('$').and_then(|digits| digits.parse::<u16>().ok()).filter(|number| *number > 0);
        let Some(number) = number else {
            let message = format!("there is no parameter {name}");
            return Err(SqlError::new(SqlState::UndefinedParameter, message).at(position));
        };
        let index = usize::from(number) - 1;
        if index >= self.params.len() {
            self.params.resize(index + 1, SqlType::Unknown);
            self.declared.resize(index + 1, false);
        }
        Ok(Typed { expr: Expr::Param(index), sql_type: self.params[index], position })
    }

    fn type_name(&self, data_type: &ast::DataType, position: Option<usize>) -> Result<SqlType> {
        Ok(match data_type {
            ast::DataType::Numeric(ast::ExactNumberInfo::None)
            | ast::DataType::Decimal(ast::ExactNumberInfo::None) => SqlType::Decimal(None),
            ast::DataType::Timestamp(None, ast::TimezoneInfo::WithTimeZone | ast::TimezoneInfo::Tz) => {
                SqlType::TimestampTz
            }
            other => SqlType::of_column(crate::parse::column_type(other, position)?),
        })
    }

    fn explicit_cast(&mut self, inner: Typed, to: SqlType, position: Option<usize>) -> Result<Typed> {
        if !cast::exists(inner.sql_type, to, CastContext::Explicit) {
            let message = format!("cannot cast type {} to {}", inner.sql_type.plain().name(), to.name());
            return Err(SqlError::new(SqlState::CannotCoerce, message).at(position));
        }
        self.cast(inner, to)
    }

    /// Any value: what is open is text.
    fn any(&mut self, scope: &Scope, node: &ast::Expr) -> Result<Expr> {
        let typed = self.expr(scope, node)?;
        // A parameter whose type is settled elsewhere keeps it.
        Ok(typed.expr)
    }

    /// A condition: a boolean.
    pub(super) fn condition(&mut self, scope: &Scope, node: &ast::Expr, what: &str) -> Result<Expr> {
        let typed = self.expr(scope, node)?;
        let typed = self.settle(typed, SqlType::Bool)?;
        if typed.sql_type != SqlType::Bool {
            let message = format!(
                "argument of {what} must be type boolean, not type {}",
                typed.sql_type.plain().name()
            );
            return Err(SqlError::new(SqlState::TypeMismatch, message).at(typed.position));
        }
        Ok(typed.expr)
    }

    fn is(&mut self, scope: &Scope, node: &ast::Expr, wanted: bool) -> Result<Expr> {
        let what = if wanted { "IS TRUE" } else { "IS FALSE" };
        Ok(Expr::Is(Box::new(self.condition(scope, node, what)?), wanted))
    }

    pub(super) fn text(&mut self, scope: &Scope, node: &ast::Expr, what: &str) -> Result<Expr> {
        let typed = self.expr(scope, node)?;
        let typed = self.settle_text(typed)?;
        if !typed.sql_type.is_text() {
            let message = format!("{what} does not exist for type {}", typed.sql_type.plain().name());
            return Err(self.undefined(message, typed.position));
        }
        Ok(typed.expr)
    }

    fn escape(&self, node: Option<&ast::Expr>) -> Result<Option<char>> {
        let Some(node) = node else { return Ok(Some('\\')) };
        if let ast::Expr::Value(value) = node
            && let ast::Value::SingleQuotedString(text) = &value.value
        {
            let mut characters = text.chars();
            if let (escape, None) = (characters.next(), characters.next()) {
                return Ok(escape);
            }
        }
        let message = "an escape string has to be empty or one character in quotes";
        Err(SqlError::new(SqlState::InvalidParameterValue, message).at(self.place(node)))
    }

    fn unary(
        &mut self,
        scope: &Scope,
        op: &UnaryOperator,
        node: &ast::Expr,
        position: Option<usize>,
    ) -> Result<(Expr, SqlType)> {
        match op {
            UnaryOperator::Not => Ok((not(self.condition(scope, node, "NOT")?), SqlType::Bool)),
            UnaryOperator::Plus | UnaryOperator::Minus => {
                // The smallest integers are literals only with their sign.
                if let (UnaryOperator::Minus, ast::Expr::Value(value)) = (op, node)
                    && let ast::Value::Number(digits, false) = &value.value
                {
                    let digits_position = self.place(node);
                    if let Some(lifted) = self.lifted(digits_position) {
                        // The smallest int4 is an int8 without its sign.
                        if let (SqlType::Int8, Some(literals)) = (lifted.sql_type, &mut self.lifted) {
                            literals.sound = false;
                        }
                        return Ok((Expr::Negate(Box::new(lifted.expr)), lifted.sql_type));
                    }
                    let (value, sql_type) = number(&format!("-{digits}"), position)?;
                    return Ok((Expr::Const(value), sql_type));
                }
                let typed = self.expr(scope, node)?;
                let typed = self.settle(typed, SqlType::Float8)?;
                if typed.sql_type.number_rank().is_none() {
                    let message = format!("operator does not exist: {op} {}", typed.sql_type.plain().name());
                    return Err(self.undefined(message, position));
                }
                let expr = match op {
                    UnaryOperator::Minus => Expr::Negate(Box::new(typed.expr)),
                    _ => typed.expr,
                };
                if !expr.is_constant() {
                    self.lift_computed(&expr);
                }
                Ok((fold(expr, position)?, typed.sql_type.plain()))
            }
            other => Err(SqlError::unsupported(format!("operator {other}")).at(position)),
        }
    }

    fn binary(
        &mut self,
        scope: &Scope,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
        position: Option<usize>,
    ) -> Result<(Expr, SqlType)> {
        let arithmetic = match op {
            BinaryOperator::Plus => Some(ArithmeticOp::Add),
            BinaryOperator::Minus => Some(ArithmeticOp::Subtract),
            BinaryOperator::Multiply => Some(ArithmeticOp::Multiply),
            BinaryOperator::Divide => Some(ArithmeticOp::Divide),
            BinaryOperator::Modulo => Some(ArithmeticOp::Modulo),
            _ => None,
        };
        if let Some(arithmetic) = arithmetic {
            return self.arithmetic(scope, arithmetic, left, right, position);
        }
        let compare = match op {
            BinaryOperator::Eq => Some(CompareOp::Eq),
            BinaryOperator::NotEq => Some(CompareOp::NotEq),
            BinaryOperator::Lt => Some(CompareOp::Less),
            BinaryOperator::LtEq => Some(CompareOp::LessEq),
            BinaryOperator::Gt => Some(CompareOp::Greater),
            BinaryOperator::GtEq => Some(CompareOp::GreaterEq),
            _ => None,
        };
        if let Some(compare) = compare {
            return Ok((self.compare(scope, left, compare, right, position)?, SqlType::Bool));
        }
        match op {
            BinaryOperator::And | BinaryOperator::Or => {
                let and = *op == BinaryOperator::And;
                let what = if and { "AND" } else { "OR" };
                let left = self.condition(scope, left, what)?;
                let right = self.condition(scope, right, what)?;
                let mut items = Vec::new();
                for side in [left, right] {
                    match side {
                        Expr::And(inner) if and => items.extend(inner),
                        Expr::Or(inner) if !and => items.extend(inner),
                        other => items.push(other),
                    }
                }
                Ok((if and { Expr::And(items) } else { Expr::Or(items) }, SqlType::Bool))
            }
            BinaryOperator::StringConcat => {
                let sides = [self.expr(scope, left)?, self.expr(scope, right)?];
                if !sides.iter().any(|side| side.sql_type.is_text()) {
                    return Err(self.undefined(
                        format!(
                            "operator does not exist: {} || {}",
                            sides[0].sql_type.plain().name(),
                            sides[1].sql_type.plain().name()
                        ),
                        position,
                    ));
                }
                let [left, right] = sides;
                let left = self.cast(left, SqlType::Text)?.expr;
                let right = self.cast(right, SqlType::Text)?.expr;
                Ok((Expr::Concat(Box::new(left), Box::new(right)), SqlType::Text))
            }
            other => Err(SqlError::unsupported(format!("operator {other}")).at(position)),
        }
    }

    pub(super) fn arithmetic(
        &mut self,
        scope: &Scope,
        op: ArithmeticOp,
        left: &ast::Expr,
        right: &ast::Expr,
        position: Option<usize>,
    ) -> Result<(Expr, SqlType)> {
        let (left, right) = (self.expr(scope, left)?, self.expr(scope, right)?);
        let (left, right) = self.settle_both(left, right, SqlType::Int4)?;
        let (Some(left_rank), Some(right_rank)) = (left.sql_type.number_rank(), right.sql_type.number_rank())
        else {
            let what = if left.sql_type.is_time() || right.sql_type.is_time() {
                return Err(SqlError::unsupported("arithmetic on dates and timestamps").at(position));
            } else {
                self.no_operator(op.symbol(), &left, &right, position)
            };
            return Err(what);
        };
        let sql_type = if left_rank >= right_rank { left.sql_type.plain() } else { right.sql_type.plain() };
        let left = self.cast(left, sql_type)?.expr;
        let right = self.cast(right, sql_type)?.expr;
        let expr = Expr::Arithmetic(op, Box::new(left), Box::new(right));
        if !expr.is_constant() {
            self.lift_computed(&expr);
        }
        Ok((fold(expr, position)?, sql_type))
    }

    fn no_operator(&self, symbol: &str, left: &Typed, right: &Typed, position: Option<usize>) -> SqlError {
        let (left, right) = (left.sql_type.plain().name(), right.sql_type.plain().name());
        self.undefined(format!("operator does not exist: {left} {symbol} {right}"), position)
            .hint("No operator matches the given types. You might need to add explicit type casts.")
    }

    /// Gives an open side the other's type; two open ones get `default`.
    fn settle_both(&mut self, left: Typed, right: Typed, default: SqlType) -> Result<(Typed, Typed)> {
        let (left_type, right_type) = (left.sql_type.plain(), right.sql_type.plain());
        match (left_type, right_type) {
            (SqlType::Unknown, SqlType::Unknown) => {
                Ok((self.settle(left, default)?, self.settle(right, default)?))
            }
            (SqlType::Unknown, other) => Ok((self.settle(left, other)?, right)),
            (other, SqlType::Unknown) => Ok((left, self.settle(right, other)?)),
            _ => Ok((left, right)),
        }
    }

    fn compare(
        &mut self,
        scope: &Scope,
        left: &ast::Expr,
        op: CompareOp,
        right: &ast::Expr,
        position: Option<usize>,
    ) -> Result<Expr> {
        let (left, right) = (self.expr(scope, left)?, self.expr(scope, right)?);
        let (left, right) = self.comparable(left, right, op.symbol(), position)?;
        Ok(Expr::Compare(op, Box::new(left), Box::new(right)))
    }

    pub(super) fn comparable(
        &mut self,
        left: Typed,
        right: Typed,
        symbol: &str,
        position: Option<usize>,
    ) -> Result<(Expr, Expr)> {
        let (left, right) = self.settle_both(left, right, SqlType::Text)?;
        let (left_type, right_type) = (left.sql_type, right.sql_type);
        let comparable = left_type.plain() == right_type.plain()
            || left_type.number_rank().is_some() && right_type.number_rank().is_some()
            || left_type.is_text() && right_type.is_text()
            || left_type.is_time() && right_type.is_time();
        if !comparable {
            return Err(self.no_operator(symbol, &left, &right, position));
        }
        Ok((left.expr, right.expr))
    }

    fn in_list(&mut self, scope: &Scope, node: &ast::Expr, list: &[ast::Expr]) -> Result<Expr> {
        let mut tested = self.expr(scope, node)?;
        let mut items = Vec::with_capacity(list.len());
        for item in list {
            let item = self.expr(scope, item)?;
            let position = item.position;
            let typed = Typed { expr: tested.expr.clone(), ..tested };
            let sql_type = if tested.sql_type == SqlType::Unknown { item.sql_type } else { tested.sql_type };
            let (left, right) = self.comparable(typed, item, "=", position)?;
            if sql_type != SqlType::Unknown {
                tested = Typed { expr: left, sql_type, position: tested.position };
            }
            items.push(right);
        }
        Ok(Expr::In(Box::new(tested.expr), items))
    }
}

fn not(expr: Expr) -> Expr {
    Expr::Not(Box::new(expr))
}

fn negate_if(negated: bool, expr: Expr) -> Expr {
    if negated { not(expr) } else { expr }
}

/// Computes what is constant, so that it is computed once.
fn fold(expr: Expr, position: Option<usize>) -> Result<Expr> {
    if !expr.is_constant() {
        return Ok(expr);
    }
    let context = Context { params: &[], now: 0, count: 0 };
    Ok(Expr::Const(expr.eval(&NoColumns, context).map_err(|error| error.at(position))?))
}

/// The value and type of a number as it is written.
fn number(digits: &str, position: Option<usize>) -> Result<(Value, SqlType)> {
    if let Ok(value) = digits.parse::<i32>() {
        return Ok((Value::Int4(value), SqlType::Int4));
    }
    if let Ok(value) = digits.parse::<i64>() {
        return Ok((Value::Int8(value), SqlType::Int8));
    }
    match digits.parse::<Decimal>() {
        Ok(value) => Ok((Value::Decimal(value), SqlType::Decimal(None))),
        Err(_) => {
            let message = format!("number {digits} has more than 38 digits");
            Err(SqlError::new(SqlState::NumberOutOfRange, message).at(position))
        }
    }
}

/// What an expression that is not accepted is called.
fn construct(node: &ast::Expr) -> String {
    match node {
        ast::Expr::Case { .. } => "CASE".to_string(),
        ast::Expr::Exists { .. } => "EXISTS".to_string(),
        ast::Expr::Subquery(_) | ast::Expr::InSubquery { .. } => "a subquery".to_string(),
        ast::Expr::AnyOp { .. } => "ANY".to_string(),
        ast::Expr::AllOp { .. } => "ALL".to_string(),
        ast::Expr::Array(_) => "ARRAY".to_string(),
        ast::Expr::Interval(_) => "INTERVAL".to_string(),
        ast::Expr::Extract { .. } => "EXTRACT".to_string(),
        ast::Expr::Substring { .. } => "SUBSTRING".to_string(),
        ast::Expr::Trim { .. } => "TRIM".to_string(),
        ast::Expr::Position { .. } => "POSITION".to_string(),
        ast::Expr::Overlay { .. } => "OVERLAY".to_string(),
        ast::Expr::Ceil { .. } => "CEIL".to_string(),
        ast::Expr::Floor { .. } => "FLOOR".to_string(),
        ast::Expr::AtTimeZone { .. } => "AT TIME ZONE".to_string(),
        ast::Expr::Collate { .. } => "COLLATE".to_string(),
        ast::Expr::ILike { .. } => "ILIKE".to_string(),
        ast::Expr::SimilarTo { .. } => "SIMILAR TO".to_string(),
        ast::Expr::IsDistinctFrom(..) | ast::Expr::IsNotDistinctFrom(..) => "IS DISTINCT FROM".to_string(),
        ast::Expr::Tuple(_) => "a row of several values".to_string(),
        ast::Expr::CompoundFieldAccess { .. } => "a subscript or field".to_string(),
        other => format!("the expression {other}"),
    }
}
