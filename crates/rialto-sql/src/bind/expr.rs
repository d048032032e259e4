//! Binds expressions: names, literals, conditions, operators. Function calls are in [`function`](super::function).

use rialto::fault_injection;
use rialto::row::{Decimal, Value};

use super::any::one_of;
use super::function::common_type;
use super::{Binder, PARAM_BYTES, Scope, Typed};
use crate::error::{Result, SqlError, SqlState};
use crate::expr::cast::{self, CastContext};
use crate::expr::{ArithmeticOp, CompareOp, Expr};
use crate::parse::{Name, Node, NodeKind, Truth};
use crate::values::SqlType;

impl Binder<'_> {
    /// Binds an expression.
    pub(super) fn expr(&mut self, scope: &Scope, node: &Node) -> Result<Typed> {
        self.cancel.check()?;
        // The value's place among others, twice for the room into which the list may grow, and its text.
        let text = match &node.kind {
            NodeKind::Text(text) | NodeKind::OtherText(text) => text.len(),
            _ => 0,
        };
        self.take(2 * size_of::<Expr>() + text)?;
        let position = node.position;
        let bound = match &node.kind {
            NodeKind::Column(name, quoted) => return self.column(scope, name, *quoted, position),
            NodeKind::Qualified(qualifier, column) => return self.qualified(scope, qualifier, column),
            NodeKind::Number(_)
            | NodeKind::Text(_)
            | NodeKind::OtherText(_)
            | NodeKind::Bool(_)
            | NodeKind::Null
            | NodeKind::Parameter(_) => return self.literal(node),
            NodeKind::Typed(to, value, _) => {
                let value = self.literal(value)?;
                return self.cast(value, *to);
            }
            NodeKind::Cast(_, SqlType::Array(_), _) => return Err(array_alone().at(position)),
            NodeKind::Cast(inner, to, _) => {
                let inner = self.expr(scope, inner)?;
                return self.explicit_cast(inner, *to, position);
            }
            NodeKind::Not(inner) => (not(self.condition(scope, inner, "NOT")?), SqlType::Bool),
            NodeKind::Plus(inner) => self.signed(scope, inner, false, position)?,
            NodeKind::Minus(inner) => self.negated(scope, inner, position)?,
            NodeKind::Arithmetic(op, left, right) => self.arithmetic(scope, *op, left, right, position)?,
            NodeKind::Compare(op, left, right) => {
                (self.compare(scope, left, *op, right, position)?, SqlType::Bool)
            }
            NodeKind::And(items) => (self.all(scope, items)?, SqlType::Bool),
            NodeKind::Or(items) => (self.one_of(scope, items)?, SqlType::Bool),
            NodeKind::Concat(items) => self.concat(scope, items)?,
            NodeKind::IsNull(inner, negated) => {
                // A parameter whose type was settled elsewhere keeps it.
                let is_null = match self.array_is_null(scope, inner)? {
                    Some(is_null) => is_null,
                    None => Expr::IsNull(Box::new(self.expr(scope, inner)?.expr)),
                };
                (negate_if(*negated, is_null), SqlType::Bool)
            }
            NodeKind::Is(inner, truth, negated) => {
                (negate_if(*negated, self.is(scope, inner, *truth)?), SqlType::Bool)
            }
            NodeKind::In(tested, items, negated) => {
                (negate_if(*negated, self.in_list(scope, tested, items)?), SqlType::Bool)
            }
            NodeKind::Any(tested, op, all, array) => {
                (self.any(scope, tested, (*op, *all), array, position)?, SqlType::Bool)
            }
            NodeKind::Array(_) => return Err(array_alone().at(position)),
            NodeKind::Between(tested, low, high, negated) => {
                (negate_if(*negated, self.between(scope, tested, low, high, position)?), SqlType::Bool)
            }
            NodeKind::Like(text, pattern, escape, negated) => {
                let text = self.padded_text(scope, text, "LIKE")?;
                let pattern = self.text(scope, pattern, "LIKE")?;
                let like = Expr::Like(Box::new(text), Box::new(pattern), *escape);
                (negate_if(*negated, like), SqlType::Bool)
            }
            NodeKind::Call(call) => self.function(scope, call, position)?,
        };
        Ok(Typed { expr: bound.0, sql_type: bound.1, position })
    }

    #[inline(never)]
    fn column(&mut self, scope: &Scope, name: &Name, quoted: bool, position: Option<usize>) -> Result<Typed> {
        match scope.find(name) {
            Ok(index) => {
                Ok(Typed { expr: Expr::Column(index), sql_type: scope.column_type(index), position })
            }
            // These are functions without parentheses.
            Err(error) => match self.session_fact(&name.text).filter(|_| !quoted) {
                Some((expr, sql_type)) => Ok(Typed { expr, sql_type, position }),
                None => Err(error),
            },
        }
    }

    #[inline(never)]
    fn qualified(&mut self, scope: &Scope, qualifier: &Name, column: &Name) -> Result<Typed> {
        if qualifier.text != scope.qualifier() {
            let message = format!("missing FROM-clause entry for table \"{}\"", qualifier.text);
            return Err(SqlError::new(SqlState::UndefinedTable, message).at(qualifier.position));
        }
        let index = scope.find(column)?;
        Ok(Typed {
            expr: Expr::Column(index),
            sql_type: scope.column_type(index),
            position: qualifier.position,
        })
    }

    #[inline(never)]
    fn literal(&mut self, node: &Node) -> Result<Typed> {
        let position = node.position;
        let (value, sql_type) = match &node.kind {
            NodeKind::Number(digits) => match self.lifted(position) {
                Some(lifted) => return Ok(lifted),
                None => number(digits, position)?,
            },
            NodeKind::Text(text) => match self.lifted(position) {
                Some(lifted) => return Ok(lifted),
                None => (Value::Text(text.clone()), SqlType::Unknown),
            },
            NodeKind::OtherText(text) => (Value::Text(text.clone()), SqlType::Unknown),
            NodeKind::Bool(value) => (Value::Bool(*value), SqlType::Bool),
            NodeKind::Parameter(name) => {
                let index = self.parameter(name, position)?;
                match self.params[index] {
                    SqlType::Array(_) => return Err(array_alone().at(position)),
                    sql_type => return Ok(Typed { expr: Expr::Param(index), sql_type, position }),
                }
            }
            _ => (Value::Null, SqlType::Unknown),
        };
        Ok(Typed { expr: Expr::Const(value), sql_type, position })
    }

    /// The number of a parameter, from 0.
    pub(super) fn parameter(&mut self, name: &str, position: Option<usize>) -> Result<usize> {
        let number =
            name.strip_prefix('$').and_then(|digits| digits.parse::<u16>().ok()).filter(|number| *number > 0);
        let Some(number) = number.filter(|_| self.takes_params) else {
            let message = format!("there is no parameter {name}");
            return Err(SqlError::new(SqlState::UndefinedParameter, message).at(position));
        };
        let index = usize::from(number) - 1;
        if index >= self.params.len() {
            self.take((index + 1 - self.params.len()) * PARAM_BYTES)?;
            self.params.resize(index + 1, SqlType::Unknown);
            self.found.resize(index + 1, false);
        }
        self.found[index] = true;
        Ok(index)
    }

    pub(super) fn explicit_cast(
        &mut self,
        inner: Typed,
        to: SqlType,
        position: Option<usize>,
    ) -> Result<Typed> {
        if !cast::exists(inner.sql_type, to, CastContext::Explicit) {
            let message = format!("cannot cast type {} to {}", inner.sql_type.plain().name(), to.name());
            return Err(SqlError::new(SqlState::CannotCoerce, message).at(position));
        }
        self.cast(inner, to)
    }

    /// A condition: a boolean.
    pub(super) fn condition(&mut self, scope: &Scope, node: &Node, what: &str) -> Result<Expr> {
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

    /// AND. Conditions behind a constant false are dropped.
    #[inline(never)]
    fn all(&mut self, scope: &Scope, items: &[Node]) -> Result<Expr> {
        let mut bound = self.conditions(scope, items, "AND")?;
        if let Some(at) = bound.iter().position(|item| *item == Expr::Const(Value::Bool(false))) {
            bound.truncate(at + 1);
        }
        Ok(Expr::And(bound))
    }

    /// OR. Conditions behind a constant true are dropped.
    #[inline(never)]
    fn one_of(&mut self, scope: &Scope, items: &[Node]) -> Result<Expr> {
        let mut bound = self.conditions(scope, items, "OR")?;
        if let Some(at) = bound.iter().position(|item| *item == Expr::Const(Value::Bool(true))) {
            bound.truncate(at + 1);
        }
        Ok(Expr::Or(bound))
    }

    fn conditions(&mut self, scope: &Scope, items: &[Node], what: &str) -> Result<Vec<Expr>> {
        let mut bound = Vec::with_capacity(items.len());
        for item in items {
            match self.condition(scope, item, what)? {
                Expr::And(inner) if what == "AND" => bound.extend(inner),
                Expr::Or(inner) if what == "OR" => bound.extend(inner),
                other => bound.push(other),
            }
        }
        Ok(bound)
    }

    /// `||`: text with any other value, or bytes. It is bound from the left, since each result is an operand of the
    /// next.
    #[inline(never)]
    fn concat(&mut self, scope: &Scope, items: &[Node]) -> Result<(Expr, SqlType)> {
        let mut left = self.expr(scope, &items[0])?;
        // The values that `left` consists of so far, if there are several.
        let mut joined: Vec<Expr> = Vec::new();
        for item in &items[1..] {
            let right = self.expr(scope, item)?;
            let is_bytes = |typed: &Typed| matches!(typed.sql_type, SqlType::Bytes | SqlType::Unknown);
            let is_known = |typed: &Typed| typed.sql_type != SqlType::Unknown;
            let to = if is_bytes(&left) && is_bytes(&right) && (is_known(&left) || is_known(&right)) {
                SqlType::Bytes
            } else if left.sql_type.is_text() || right.sql_type.is_text() {
                SqlType::Text
            } else {
                let (left, right) = (left.sql_type.plain().name(), right.sql_type.plain().name());
                let message = format!("operator does not exist: {left} || {right}");
                return Err(self.undefined(message, items[0].position));
            };
            if joined.is_empty() || left.sql_type != to {
                if !joined.is_empty() {
                    left.expr = Expr::Concat(std::mem::take(&mut joined));
                }
                joined.push(self.cast(left, to)?.expr);
            }
            joined.push(self.cast(right, to)?.expr);
            left = Typed { expr: Expr::Const(Value::Null), sql_type: to, position: items[0].position };
        }
        Ok((Expr::Concat(joined), left.sql_type))
    }

    fn is(&mut self, scope: &Scope, node: &Node, truth: Truth) -> Result<Expr> {
        let (what, wanted) = match truth {
            Truth::True => ("IS TRUE", Some(true)),
            Truth::False => ("IS FALSE", Some(false)),
            Truth::Unknown => ("IS UNKNOWN", None),
        };
        let inner = Box::new(self.condition(scope, node, what)?);
        Ok(match wanted {
            Some(wanted) => Expr::Is(inner, wanted),
            None => Expr::IsNull(inner),
        })
    }

    fn typed_text(&mut self, scope: &Scope, node: &Node, what: &str) -> Result<Typed> {
        let typed = self.expr(scope, node)?;
        let typed = self.settle_text(typed)?;
        if !typed.sql_type.is_text() {
            let message = format!("{what} does not exist for type {}", typed.sql_type.plain().name());
            return Err(self.undefined(message, typed.position));
        }
        Ok(typed)
    }

    pub(super) fn text(&mut self, scope: &Scope, node: &Node, what: &str) -> Result<Expr> {
        Ok(self.typed_text(scope, node, what)?.expr)
    }

    /// Text; that of a char(n) with its blanks.
    fn padded_text(&mut self, scope: &Scope, node: &Node, what: &str) -> Result<Expr> {
        let typed = self.typed_text(scope, node, what)?;
        Ok(match typed.sql_type {
            SqlType::Char(Some(length)) if !fault_injection::is_on("like-of-trimmed-chars") => {
                Expr::Padded(Box::new(typed.expr), length)
            }
            SqlType::Char(None) => each_padded(scope, typed.expr),
            _ => typed.expr,
        })
    }

    /// A number with its sign changed.
    #[inline(never)]
    fn negated(&mut self, scope: &Scope, node: &Node, position: Option<usize>) -> Result<(Expr, SqlType)> {
        // The smallest integers are literals only with their sign.
        if let NodeKind::Number(digits) = &node.kind {
            if let Some(lifted) = self.lifted(node.position) {
                // The smallest int4 without its sign is an int8.
                if let (SqlType::Int8, Some(literals)) = (lifted.sql_type, &mut self.lifted) {
                    literals.sound = false;
                }
                return Ok((Expr::Negate(Box::new(lifted.expr)), lifted.sql_type));
            }
            let (value, sql_type) = number(&format!("-{digits}"), position)?;
            return Ok((Expr::Const(value), sql_type));
        }
        self.signed(scope, node, true, position)
    }

    #[inline(never)]
    fn signed(
        &mut self,
        scope: &Scope,
        node: &Node,
        minus: bool,
        position: Option<usize>,
    ) -> Result<(Expr, SqlType)> {
        let typed = self.expr(scope, node)?;
        let typed = self.settle(typed, SqlType::Float8)?;
        if typed.sql_type.number_rank().is_none() {
            let sign = if minus { '-' } else { '+' };
            let message = format!("operator does not exist: {sign} {}", typed.sql_type.plain().name());
            return Err(self.undefined(message, position));
        }
        let expr = if minus { Expr::Negate(Box::new(typed.expr)) } else { typed.expr };
        if !expr.is_constant() {
            self.lift_computed(&expr);
        }
        Ok((self.fold(expr, position), typed.sql_type.plain()))
    }

    #[inline(never)]
    pub(super) fn arithmetic(
        &mut self,
        scope: &Scope,
        op: ArithmeticOp,
        left: &Node,
        right: &Node,
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
        Ok((self.fold(expr, position), sql_type))
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

    #[inline(never)]
    fn compare(
        &mut self,
        scope: &Scope,
        left: &Node,
        op: CompareOp,
        right: &Node,
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
        let (left, right) = self.comparable_typed(left, right, symbol, position)?;
        Ok((left.expr, right.expr))
    }

    /// Two sides of a comparison, each with the type that it is compared as.
    pub(super) fn comparable_typed(
        &mut self,
        left: Typed,
        right: Typed,
        symbol: &str,
        position: Option<usize>,
    ) -> Result<(Typed, Typed)> {
        let (beside_left, beside_right) = (right.sql_type, left.sql_type);
        let (left, right) = (wide_beside(left, beside_left), wide_beside(right, beside_right));
        let (left, right) = self.settle_both(left, right, SqlType::Text)?;
        let (left_type, right_type) = (left.sql_type, right.sql_type);
        let comparable = left_type.plain() == right_type.plain()
            || left_type.number_rank().is_some() && right_type.number_rank().is_some()
            || left_type.is_text() && right_type.is_text()
            || left_type.is_time() && right_type.is_time();
        if !comparable {
            return Err(self.no_operator(symbol, &left, &right, position));
        }
        Ok((left, right))
    }

    /// IN. As in PostgreSQL, several items without columns have one type together with the tested value. Each item with
    /// a column is a comparison of its own.
    #[inline(never)]
    fn in_list(&mut self, scope: &Scope, tested: &Node, list: &[Node]) -> Result<Expr> {
        let tested = self.expr(scope, tested)?;
        let mut items = list.iter().map(|item| self.expr(scope, item)).collect::<Result<Vec<_>>>()?;
        let is_alone = |item: &Typed| item.expr.has_columns() || is_wide(item);
        let together = items.iter().filter(|item| !is_alone(item)).count();
        let common = match together {
            0 | 1 => None,
            _ if is_wide(&tested) => None,
            // If there is no common type, the error names the comparison that has no operator.
            _ => {
                let shared = items.iter().filter(|item| !is_alone(item));
                common_type(std::iter::once(&tested).chain(shared)).ok()
            }
        };
        // A tested literal or parameter takes a type in each comparison.
        if tested.sql_type == SqlType::Unknown && (together < items.len() || common.is_none()) {
            let mut parts = Vec::with_capacity(2);
            if let Some(common) = common {
                let (shared, alone) = items.into_iter().partition(|item| !is_alone(item));
                items = alone;
                let copy = self.copy(&tested)?;
                let tested = self.settle(copy, common)?;
                parts.push(self.in_items(tested, shared, Some(common))?);
            }
            let settled = !parts.is_empty();
            for item in items {
                let mut again = self.again(&tested)?;
                if !settled && self.lifted.is_none() {
                    // As in PostgreSQL, a parameter has no type yet in any of these comparisons: it takes one in each,
                    // and these have to agree.
                    again.sql_type = SqlType::Unknown;
                }
                parts.push(self.in_items(again, vec![item], None)?);
            }
            return Ok(if parts.len() == 1 { parts.swap_remove(0) } else { Expr::Or(parts) });
        }
        let tested = self.settle(tested, common.unwrap_or(SqlType::Unknown))?;
        self.in_items(tested, items, common)
    }

    /// IN a list whose items without columns have this type.
    fn in_items(&mut self, tested: Typed, items: Vec<Typed>, common: Option<SqlType>) -> Result<Expr> {
        let (sql_type, position) = (tested.sql_type, tested.position);
        let mut left = tested;
        let mut right = Vec::with_capacity(items.len());
        for mut item in items {
            let at = item.position;
            if let Some(common) = common
                && !item.expr.has_columns()
                && !is_wide(&item)
            {
                // A number changes its value only beside a float, and a text loses its last blanks only as a char:
                // values of other types compare as they are.
                item = match common {
                    SqlType::Float8 => self.cast(item, common)?,
                    SqlType::Char(_) if item.sql_type == SqlType::Text => self.cast(item, common)?,
                    _ => self.settle(item, common)?,
                };
            }
            let (tested, item) = self.comparable(left, item, "=", at)?;
            left = Typed { expr: tested, sql_type, position };
            right.push(item);
        }
        Ok(one_of(left.expr, CompareOp::Eq, right))
    }

    /// A literal or parameter that is used in one more comparison.
    fn again(&mut self, typed: &Typed) -> Result<Typed> {
        let mut again = self.copy(typed)?;
        if let Expr::Param(index) = again.expr {
            match &mut self.lifted {
                // One literal that stands for two expressions may take two types.
                Some(lifted) => lifted.sound &= again.sql_type != SqlType::Unknown,
                None => again.sql_type = self.params[index],
            }
        }
        Ok(again)
    }

    /// A copy of an expression without children, which counts as another one.
    fn copy(&mut self, typed: &Typed) -> Result<Typed> {
        let text = match &typed.expr {
            Expr::Const(Value::Text(text)) => text.len(),
            Expr::Const(Value::Bytes(bytes)) => bytes.len(),
            _ => 0,
        };
        self.take(2 * size_of::<Expr>() + text)?;
        Ok(typed.clone())
    }

    /// BETWEEN is two comparisons. The tested value is bound once: if it were bound for each of them, chains of BETWEEN
    /// would double with each link.
    #[inline(never)]
    fn between(
        &mut self,
        scope: &Scope,
        tested: &Node,
        low: &Node,
        high: &Node,
        position: Option<usize>,
    ) -> Result<Expr> {
        let tested = self.expr(scope, tested)?;
        let low = self.expr(scope, low)?;
        if matches!(tested.expr, Expr::Column(_) | Expr::Param(_) | Expr::Const(_) | Expr::Now) {
            // Separate comparisons show the ends of an index's range. A literal takes a type in each of them.
            let first = self.copy(&tested)?;
            let (left, right) = self.comparable(first, low, CompareOp::GreaterEq.symbol(), position)?;
            let low = Expr::Compare(CompareOp::GreaterEq, Box::new(left), Box::new(right));
            let again = self.again(&tested)?;
            let high = self.expr(scope, high)?;
            let (left, right) = self.comparable(again, high, CompareOp::LessEq.symbol(), position)?;
            let high = Expr::Compare(CompareOp::LessEq, Box::new(left), Box::new(right));
            return Ok(Expr::And(vec![low, high]));
        }
        let sql_type = tested.sql_type;
        let (tested, low) = self.comparable(tested, low, CompareOp::GreaterEq.symbol(), position)?;
        let tested = Typed { expr: tested, sql_type, position };
        let high = self.expr(scope, high)?;
        let (tested, high) = self.comparable(tested, high, CompareOp::LessEq.symbol(), position)?;
        Ok(Expr::Between(Box::new([tested, low, high])))
    }
}

/// A value that is one of several chars, each with the blanks of its own length; a text among them keeps its own
/// blanks.
pub(super) fn each_padded(scope: &Scope, expr: Expr) -> Expr {
    let length = match &expr {
        Expr::Column(index) => scope.column_type(*index),
        Expr::Cast(_, _, to) => *to,
        _ => SqlType::Unknown,
    };
    match (expr, length) {
        (Expr::Coalesce(items), _) => {
            Expr::Coalesce(items.into_iter().map(|item| each_padded(scope, item)).collect())
        }
        (Expr::Cast(text, SqlType::Text, SqlType::Char(None)), _) => *text,
        (expr, SqlType::Char(Some(length))) => Expr::Padded(Box::new(expr), length),
        (expr, _) => expr,
    }
}

/// The error for an array where ANY, ALL or IS NULL does not take it.
fn array_alone() -> SqlError {
    SqlError::unsupported("an array outside of ANY, ALL and IS NULL")
}

fn not(expr: Expr) -> Expr {
    Expr::Not(Box::new(expr))
}

fn negate_if(negated: bool, expr: Expr) -> Expr {
    if negated { not(expr) } else { expr }
}

/// The value and type of a number as it is written. A number of more digits than a decimal has is a float whose type is
/// open. It may stand where a `double precision` is wanted, and is refused elsewhere (in `Binder::settle`), because it
/// is not exact.
fn number(digits: &str, position: Option<usize>) -> Result<(Value, SqlType)> {
    if let Ok(value) = digits.parse::<i32>() {
        return Ok((Value::Int4(value), SqlType::Int4));
    }
    if let Ok(value) = digits.parse::<i64>() {
        return Ok((Value::Int8(value), SqlType::Int8));
    }
    if let Ok(value) = digits.parse::<Decimal>() {
        return Ok((Value::Decimal(value), SqlType::Decimal(None)));
    }
    match crate::values::text::parse(SqlType::Float8, digits) {
        Ok(value) => Ok((value, SqlType::Unknown)),
        Err(error) => Err(error.at(position)),
    }
}

/// Whether this is a number of more digits than a decimal has.
fn is_wide(typed: &Typed) -> bool {
    typed.sql_type == SqlType::Unknown && matches!(typed.expr, Expr::Const(Value::Float8(_)))
}

/// A number of too many digits beside a value of this type. If it is larger than every exact number, it compares with
/// them as the float that it is.
fn wide_beside(typed: Typed, other: SqlType) -> Typed {
    let is_beyond = |value: f64| value.abs() >= 1e38;
    match typed.expr {
        Expr::Const(Value::Float8(value))
            if typed.sql_type == SqlType::Unknown && other.number_rank().is_some() && is_beyond(value) =>
        {
            Typed { sql_type: SqlType::Float8, ..typed }
        }
        _ => typed,
    }
}
