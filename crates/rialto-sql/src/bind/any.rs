//! Binds ANY and ALL, and the arrays that they compare with.
//!
//! Invariant: no bound expression has an array for its value. An array is a list of expressions, or an argument.

use rialto::row::Value;

use super::function::common_type;
use super::{Binder, Scope, Typed};
use crate::error::{Result, SqlError, SqlState};
use crate::expr::{CompareOp, Expr, List};
use crate::parse::{Node, NodeKind};
use crate::values::{SqlType, array};

/// What ANY or ALL compares with.
enum Array {
    /// These elements, and the type that all of them have; unknown if there are none.
    Items(Vec<Typed>, SqlType),
    /// The argument of this number, whose elements have this type.
    Argument(usize, SqlType),
    Null,
}

impl Binder<'_> {
    /// A comparison with the elements of an array. `x < ALL (a)` is `NOT x >= ANY (a)`, in three-valued logic too.
    #[inline(never)]
    pub(super) fn any(
        &mut self,
        scope: &Scope,
        tested: &Node,
        (op, all): (CompareOp, bool),
        array: &Node,
        position: Option<usize>,
    ) -> Result<Expr> {
        let op = if all { op.negated() } else { op };
        let tested = self.expr(scope, tested)?;
        let any = match self.array(scope, array, tested.sql_type.plain())? {
            Array::Null => Expr::Const(Value::Null),
            Array::Argument(index, sql_type) => {
                let elements = Typed { expr: Expr::Param(index), sql_type, position };
                let (tested, _) = self.comparable(tested, elements, op.symbol(), position)?;
                Expr::Any(Box::new(tested), op, List::Argument(index))
            }
            Array::Items(_, SqlType::Unknown) => {
                let message = "cannot determine type of empty array";
                return Err(SqlError::new(SqlState::IndeterminateType, message)
                    .at(position)
                    .hint("Explicitly cast to the desired type, for example ARRAY[]::integer[]."));
            }
            Array::Items(items, element) => {
                let mut left = self.settle(tested, element)?;
                let mut right = Vec::with_capacity(items.len());
                for item in items {
                    let sql_type = left.sql_type;
                    let (tested, item) = self.comparable(left, item, op.symbol(), position)?;
                    left = Typed { expr: tested, sql_type, position };
                    right.push(item);
                }
                one_of(left.expr, op, right)
            }
        };
        Ok(if all { Expr::Not(Box::new(any)) } else { any })
    }

    /// Whether an array is null; `None` if the node is no array.
    pub(super) fn array_is_null(&mut self, scope: &Scope, node: &Node) -> Result<Option<Expr>> {
        let is_array = match &node.kind {
            NodeKind::Array(_) | NodeKind::Cast(_, SqlType::Array(_), _) => true,
            NodeKind::Parameter(name) => {
                let index = self.parameter(name, node.position)?;
                matches!(self.params[index], SqlType::Array(_))
            }
            _ => false,
        };
        if !is_array {
            return Ok(None);
        }
        Ok(Some(match self.array(scope, node, SqlType::Unknown)? {
            Array::Null => Expr::Const(Value::Bool(true)),
            Array::Items(..) => Expr::Const(Value::Bool(false)),
            Array::Argument(index, _) => Expr::IsNull(Box::new(Expr::Param(index))),
        }))
    }

    /// An array beside a value of type `beside`, which the elements of an open literal or parameter take.
    fn array(&mut self, scope: &Scope, node: &Node, beside: SqlType) -> Result<Array> {
        match &node.kind {
            NodeKind::Array(items) => self.elements(scope, items, node.position),
            NodeKind::Cast(inner, SqlType::Array(element), _) => {
                match self.array(scope, inner, **element)? {
                    Array::Items(items, _) => {
                        let cast = |item: Typed| {
                            let position = item.position;
                            self.explicit_cast(item, **element, position)
                        };
                        Ok(Array::Items(items.into_iter().map(cast).collect::<Result<_>>()?, **element))
                    }
                    Array::Argument(_, found) if found != **element => {
                        let message = format!("cannot cast type {}[] to {}[]", found.name(), element.name());
                        Err(SqlError::new(SqlState::CannotCoerce, message).at(node.position))
                    }
                    same => Ok(same),
                }
            }
            NodeKind::Null => Ok(Array::Null),
            NodeKind::Text(text) | NodeKind::OtherText(text) => {
                let SqlType::Array(element) = beside.array() else { unreachable!("it is an array's type") };
                let mut items = Vec::new();
                array::read_text(*element, text, &mut |value| {
                    let text = if let Value::Text(text) = &value { text.len() } else { 0 };
                    self.take(2 * size_of::<Expr>() + text)?;
                    items.push(Typed { expr: Expr::Const(value), sql_type: *element, position: None });
                    Ok(())
                })
                .map_err(|error| error.at(node.position))?;
                Ok(Array::Items(items, *element))
            }
            NodeKind::Parameter(name) => {
                let index = self.parameter(name, node.position)?;
                if self.params[index] == SqlType::Unknown {
                    self.settle_param(index, beside.array(), node.position)?;
                }
                match self.params[index] {
                    SqlType::Array(element) => Ok(Array::Argument(index, *element)),
                    _ => Err(no_array(node)),
                }
            }
            _ => Err(no_array(node)),
        }
    }

    /// The elements of ARRAY, converted to one type.
    fn elements(&mut self, scope: &Scope, items: &[Node], position: Option<usize>) -> Result<Array> {
        if items.is_empty() {
            return Ok(Array::Items(Vec::new(), SqlType::Unknown));
        }
        if items.iter().any(|item| matches!(item.kind, NodeKind::Array(_))) {
            return Err(array::multi_dimensional().at(position));
        }
        let items = items.iter().map(|item| self.expr(scope, item)).collect::<Result<Vec<_>>>()?;
        let element = common_type(&items).map_err(|(left, right, position)| {
            let message = format!("ARRAY types {} and {} cannot be matched", left.name(), right.name());
            SqlError::new(SqlState::TypeMismatch, message).at(position)
        })?;
        let items = items.into_iter().map(|item| self.cast(item, element)).collect::<Result<_>>()?;
        Ok(Array::Items(items, element))
    }
}

/// A comparison with several values. With one value it is a comparison of two, which finds its row by a key.
pub(super) fn one_of(tested: Expr, op: CompareOp, mut items: Vec<Expr>) -> Expr {
    match items.pop() {
        Some(item) if items.is_empty() => Expr::Compare(op, Box::new(tested), Box::new(item)),
        last => {
            items.extend(last);
            Expr::Any(Box::new(tested), op, List::Items(items))
        }
    }
}

fn no_array(node: &Node) -> SqlError {
    let message = "op ANY/ALL (array) requires array on right side";
    SqlError::new(SqlState::WrongObjectType, message).at(node.position)
}
