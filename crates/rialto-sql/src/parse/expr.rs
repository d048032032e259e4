//! [`Node`]: an expression as it is accepted, taken out of sqlparser's tree.
//!
//! Invariant: a node's tree is at most [`HEIGHT_MAX`] high, however long a chain of operators is: a chain of AND, OR or
//! `||` is one node, and a higher tree is refused. Places are computed here, once for each node.

use rialto::fault_injection;
use sqlparser::ast::{self, BinaryOperator, Spanned, UnaryOperator};

use super::limits::{HEIGHT_MAX, too_complex};
use super::{Name, Places};
use crate::error::{Result, SqlError, SqlState};
use crate::expr::{ArithmeticOp, CompareOp};
use crate::values::SqlType;

/// An expression that is accepted.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its kind.
    pub kind: NodeKind,
    /// Where it begins: characters, from 1.
    pub position: Option<usize>,
    /// The height of its tree.
    height: u16,
}

/// The condition of IS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// IS TRUE.
    True,
    /// IS FALSE.
    False,
    /// IS UNKNOWN.
    Unknown,
}

/// The kind of a [`Node`]. A `bool` says whether NOT is part of it.
#[derive(Debug, Clone)]
pub enum NodeKind {
    /// A name; and whether it was quoted.
    Column(Name, bool),
    /// A name behind another: of a table and of its column.
    Qualified(Name, Name),
    /// A number, as it is written.
    Number(String),
    /// A string in plain quotes.
    Text(String),
    /// A string in another notation.
    OtherText(String),
    /// true, false.
    Bool(bool),
    /// null.
    Null,
    /// A parameter, as it is written.
    Parameter(String),
    /// A string behind the name of its type; and the name of a column made of it.
    Typed(SqlType, Box<Node>, String),
    /// NOT.
    Not(Box<Node>),
    /// A minus.
    Minus(Box<Node>),
    /// A plus.
    Plus(Box<Node>),
    /// Arithmetic.
    Arithmetic(ArithmeticOp, Box<Node>, Box<Node>),
    /// A comparison.
    Compare(CompareOp, Box<Node>, Box<Node>),
    /// AND of all.
    And(Vec<Node>),
    /// OR of all.
    Or(Vec<Node>),
    /// `||` of all.
    Concat(Vec<Node>),
    /// IS NULL.
    IsNull(Box<Node>, bool),
    /// IS TRUE and the like.
    Is(Box<Node>, Truth, bool),
    /// IN a list.
    In(Box<Node>, Vec<Node>, bool),
    /// A comparison with ANY, or with ALL if the `bool` says so, of an array.
    Any(Box<Node>, CompareOp, bool, Box<Node>),
    /// ARRAY with its elements.
    Array(Vec<Node>),
    /// BETWEEN: the tested value, the lower end, the upper end.
    Between(Box<Node>, Box<Node>, Box<Node>, bool),
    /// LIKE: the text, the pattern, its escape character.
    Like(Box<Node>, Box<Node>, Option<char>, bool),
    /// A cast; and the name of a column made of it, if it has no other name.
    Cast(Box<Node>, SqlType, String),
    /// A function call.
    Call(Call),
}

/// A function call.
#[derive(Debug, Clone)]
pub struct Call {
    /// The function's name, in lower case.
    pub name: String,
    /// What is between the parentheses.
    pub arguments: Arguments,
}

/// What is between a function call's parentheses.
#[derive(Debug, Clone)]
pub enum Arguments {
    /// There are no parentheses: a word that stands for a fact of the session.
    Absent,
    /// `*`.
    Star,
    /// Expressions.
    List(Vec<Node>),
}

/// An item of a select list.
#[derive(Debug, Clone)]
pub enum Item {
    /// An expression, and the name that it is given.
    Expr(Node, Option<String>),
    /// `*`, or `table.*`.
    All(Option<Name>),
}

impl NodeKind {
    fn height(&self) -> u16 {
        let highest = |nodes: &[Node]| nodes.iter().map(|node| node.height).max().unwrap_or(0);
        match self {
            NodeKind::Column(..)
            | NodeKind::Qualified(..)
            | NodeKind::Number(_)
            | NodeKind::Text(_)
            | NodeKind::OtherText(_)
            | NodeKind::Bool(_)
            | NodeKind::Null
            | NodeKind::Parameter(_) => 0,
            NodeKind::Typed(_, inner, _)
            | NodeKind::Not(inner)
            | NodeKind::Minus(inner)
            | NodeKind::Plus(inner)
            | NodeKind::IsNull(inner, _)
            | NodeKind::Is(inner, ..)
            | NodeKind::Cast(inner, ..) => inner.height,
            NodeKind::Arithmetic(_, left, right)
            | NodeKind::Compare(_, left, right)
            | NodeKind::Any(left, _, _, right)
            | NodeKind::Like(left, right, ..) => left.height.max(right.height),
            NodeKind::And(items) | NodeKind::Or(items) | NodeKind::Concat(items) | NodeKind::Array(items) => {
                highest(items)
            }
            NodeKind::In(tested, items, _) => tested.height.max(highest(items)),
            NodeKind::Between(tested, low, high, _) => tested.height.max(low.height).max(high.height),
            NodeKind::Call(Call { arguments: Arguments::List(items), .. }) => highest(items),
            NodeKind::Call(_) => 0,
        }
    }
}

impl Node {
    fn new(kind: NodeKind, position: Option<usize>) -> Result<Node> {
        let height = kind.height() + 1;
        if height > HEIGHT_MAX {
            return Err(too_high().at(position));
        }
        Ok(Node { kind, position, height })
    }
}

fn too_high() -> SqlError {
    too_complex(&format!("an expression of more than {HEIGHT_MAX} levels"))
}

/// Takes an expression out of sqlparser's tree.
pub(super) fn expr(places: &Places<'_>, node: ast::Expr) -> Result<Node> {
    lower(places, node, 0)
}

/// The same for several.
pub(super) fn exprs(places: &Places<'_>, nodes: Vec<ast::Expr>) -> Result<Vec<Node>> {
    nodes.into_iter().map(|node| expr(places, node)).collect()
}

/// Takes a select list out of sqlparser's tree.
pub(super) fn items(places: &Places<'_>, items: Vec<ast::SelectItem>) -> Result<Vec<Item>> {
    let plain = ast::WildcardAdditionalOptions::default();
    let item = |item| match item {
        ast::SelectItem::UnnamedExpr(node) => Ok(Item::Expr(expr(places, node)?, None)),
        ast::SelectItem::ExprWithAlias { expr: node, alias } => {
            Ok(Item::Expr(expr(places, node)?, Some(places.alias(&alias)?.text)))
        }
        ast::SelectItem::Wildcard(options) if options == plain => Ok(Item::All(None)),
        ast::SelectItem::Wildcard(_) => Err(SqlError::unsupported("* with options")),
        ast::SelectItem::QualifiedWildcard(
            ast::SelectItemQualifiedWildcardKind::ObjectName(name),
            options,
        ) if options == plain => Ok(Item::All(Some(places.object(&name)?))),
        _ => Err(SqlError::unsupported("this form of select list")),
    };
    items.into_iter().map(item).collect()
}

/// `level` counts the levels of recursion: those of sqlparser's tree other than chains of operators.
fn lower(places: &Places<'_>, node: ast::Expr, level: u16) -> Result<Node> {
    if level >= HEIGHT_MAX {
        return Err(too_high());
    }
    match node {
        ast::Expr::BinaryOp { .. } => chain(places, node, level + 1),
        ast::Expr::Nested(inner) => lower(places, *inner, level + 1),
        ast::Expr::Identifier(ident) => {
            let name = places.name(&ident);
            let position = name.position;
            Node::new(NodeKind::Column(name, ident.quote_style.is_some()), position)
        }
        ast::Expr::CompoundIdentifier(idents) => qualified(places, &idents),
        ast::Expr::Value(value) => literal(places, value),
        ast::Expr::Function(function) => call(places, function, level + 1),
        ast::Expr::UnaryOp { op, expr } => unary(places, op, *expr, level + 1),
        ast::Expr::Cast { .. } | ast::Expr::TypedString(_) => typed(places, node, level + 1),
        ast::Expr::InList { .. } | ast::Expr::Between { .. } | ast::Expr::Like { .. } => {
            tested(places, node, level + 1)
        }
        ast::Expr::AnyOp { .. } | ast::Expr::AllOp { .. } | ast::Expr::Array(_) => {
            any(places, node, level + 1)
        }
        node => is(places, node, level + 1),
    }
}

fn boxed(places: &Places<'_>, node: ast::Expr, level: u16) -> Result<Box<Node>> {
    lower(places, node, level).map(Box::new)
}

/// A chain of binary operators, from its leftmost operand on. The tree leans to the left, and is as high as the chain
/// is long.
#[inline(never)]
fn chain(places: &Places<'_>, node: ast::Expr, level: u16) -> Result<Node> {
    let mut rest = Vec::new();
    let mut first = node;
    while let ast::Expr::BinaryOp { left, op, right } = first {
        rest.push((op, *right));
        first = *left;
    }
    let mut built = lower(places, first, level)?;
    let mut compared = false;
    while let Some((op, right)) = rest.pop() {
        let compares = comparison(&op).is_some();
        if compared && compares {
            let message = format!("syntax error at or near \"{op}\"");
            let error =
                SqlError::new(SqlState::SyntaxError, message).at(lower(places, right, level)?.position);
            return Err(error.hint("What a comparison comes to is compared in parentheses."));
        }
        built = operation(places, built, &op, right, level)?;
        compared = compares;
    }
    Ok(built)
}

/// The comparison that an operator is.
fn comparison(op: &BinaryOperator) -> Option<CompareOp> {
    Some(match op {
        BinaryOperator::Eq => CompareOp::Eq,
        BinaryOperator::NotEq => CompareOp::NotEq,
        BinaryOperator::Lt => CompareOp::Less,
        BinaryOperator::LtEq => CompareOp::LessEq,
        BinaryOperator::Gt => CompareOp::Greater,
        BinaryOperator::GtEq => CompareOp::GreaterEq,
        _ => return None,
    })
}

/// An operation on operands that are lowered already.
fn operation(
    places: &Places<'_>,
    left: Node,
    op: &BinaryOperator,
    right: ast::Expr,
    level: u16,
) -> Result<Node> {
    let kind: fn(Box<Node>, Box<Node>) -> NodeKind = match op {
        BinaryOperator::Plus => |left, right| NodeKind::Arithmetic(ArithmeticOp::Add, left, right),
        BinaryOperator::Minus => |left, right| NodeKind::Arithmetic(ArithmeticOp::Subtract, left, right),
        BinaryOperator::Multiply => |left, right| NodeKind::Arithmetic(ArithmeticOp::Multiply, left, right),
        BinaryOperator::Divide => |left, right| NodeKind::Arithmetic(ArithmeticOp::Divide, left, right),
        BinaryOperator::Modulo => |left, right| NodeKind::Arithmetic(ArithmeticOp::Modulo, left, right),
        BinaryOperator::Eq => |left, right| NodeKind::Compare(CompareOp::Eq, left, right),
        BinaryOperator::NotEq => |left, right| NodeKind::Compare(CompareOp::NotEq, left, right),
        BinaryOperator::Lt => |left, right| NodeKind::Compare(CompareOp::Less, left, right),
        BinaryOperator::LtEq => |left, right| NodeKind::Compare(CompareOp::LessEq, left, right),
        BinaryOperator::Gt => |left, right| NodeKind::Compare(CompareOp::Greater, left, right),
        BinaryOperator::GtEq => |left, right| NodeKind::Compare(CompareOp::GreaterEq, left, right),
        BinaryOperator::And | BinaryOperator::Or | BinaryOperator::StringConcat => {
            return joined(left, op, lower(places, right, level)?);
        }
        other => return Err(SqlError::unsupported(format!("operator {other}")).at(left.position)),
    };
    let right = boxed(places, right, level)?;
    let position = left.position.or(right.position);
    Node::new(kind(Box::new(left), right), position)
}

/// Makes one node of AND, OR or `||` of more than two operands.
fn joined(mut left: Node, op: &BinaryOperator, right: Node) -> Result<Node> {
    let position = left.position.or(right.position);
    if let (NodeKind::And(items), BinaryOperator::And)
    | (NodeKind::Or(items), BinaryOperator::Or)
    | (NodeKind::Concat(items), BinaryOperator::StringConcat) = (&mut left.kind, op)
    {
        let height = left.height.max(right.height + 1);
        items.push(right);
        if height > HEIGHT_MAX {
            return Err(too_high().at(position));
        }
        return Ok(Node { kind: left.kind, position, height });
    }
    let items = vec![left, right];
    let kind = match op {
        BinaryOperator::And => NodeKind::And(items),
        BinaryOperator::Or => NodeKind::Or(items),
        _ => NodeKind::Concat(items),
    };
    Node::new(kind, position)
}

fn qualified(places: &Places<'_>, idents: &[ast::Ident]) -> Result<Node> {
    let [qualifier, column] = idents else {
        let position = idents.first().and_then(|ident| places.name(ident).position);
        return Err(SqlError::unsupported("a name with more than one dot").at(position));
    };
    let qualifier = places.name(qualifier);
    let position = qualifier.position;
    let column = Name { text: places.name(column).text, position };
    Node::new(NodeKind::Qualified(qualifier, column), position)
}

fn literal(places: &Places<'_>, value: ast::ValueWithSpan) -> Result<Node> {
    let position = places.position(value.span.start);
    let kind = match value.value {
        ast::Value::Number(digits, false) => NodeKind::Number(digits),
        ast::Value::SingleQuotedString(text) => NodeKind::Text(text),
        ast::Value::EscapedStringLiteral(text) => NodeKind::OtherText(text),
        ast::Value::DollarQuotedString(text) => NodeKind::OtherText(text.value),
        ast::Value::Boolean(value) => NodeKind::Bool(value),
        ast::Value::Null => NodeKind::Null,
        ast::Value::Placeholder(name) => NodeKind::Parameter(name),
        other => return Err(SqlError::unsupported(format!("the literal {other}")).at(position)),
    };
    if let NodeKind::Text(text) | NodeKind::OtherText(text) = &kind
        && text.contains('\0')
    {
        let message = "a string literal cannot hold a zero byte";
        return Err(SqlError::new(SqlState::BadEncoding, message).at(position));
    }
    Node::new(kind, position)
}

#[inline(never)]
fn unary(places: &Places<'_>, op: UnaryOperator, inner: ast::Expr, level: u16) -> Result<Node> {
    let inner = boxed(places, inner, level)?;
    let position = inner.position;
    let kind = match op {
        UnaryOperator::Not => NodeKind::Not(inner),
        UnaryOperator::Minus => NodeKind::Minus(inner),
        UnaryOperator::Plus => NodeKind::Plus(inner),
        other => return Err(SqlError::unsupported(format!("operator {other}")).at(position)),
    };
    Node::new(kind, position)
}

/// Casts, in their three forms.
#[inline(never)]
fn typed(places: &Places<'_>, node: ast::Expr, level: u16) -> Result<Node> {
    match node {
        ast::Expr::Cast {
            kind: ast::CastKind::Cast | ast::CastKind::DoubleColon,
            expr,
            data_type,
            format: None,
        } => {
            let inner = boxed(places, *expr, level)?;
            let position = inner.position;
            let to = type_name(&data_type, position)?;
            Node::new(NodeKind::Cast(inner, to, column_name_of(&data_type)), position)
        }
        ast::Expr::TypedString(typed) if !typed.uses_odbc_syntax => {
            let value = literal(places, typed.value)?;
            let position = value.position;
            let is_text = matches!(value.kind, NodeKind::Text(_) | NodeKind::OtherText(_));
            if !is_text && !fault_injection::is_on("typed-numbers-are-not-cast") {
                let message = format!("syntax error: {} needs a string in quotes after it", typed.data_type);
                return Err(SqlError::new(SqlState::SyntaxError, message).at(position));
            }
            let to = type_name(&typed.data_type, position)?;
            let name = column_name_of(&typed.data_type);
            Node::new(NodeKind::Typed(to, Box::new(value), name), position)
        }
        other => Err(refused(places, &other)),
    }
}

/// The name of a column that is only a cast of a value.
fn column_name_of(data_type: &ast::DataType) -> String {
    match super::column_type(data_type, None) {
        Ok(rialto::row::ColumnType::Char(_)) => "bpchar".to_string(),
        Ok(rialto::row::ColumnType::Decimal { .. }) => "numeric".to_string(),
        Ok(column) => column.to_string(),
        Err(_) if matches!(data_type, ast::DataType::Timestamp(..)) => "timestamptz".to_string(),
        Err(_) => data_type.to_string().to_lowercase(),
    }
}

/// ANY, ALL and ARRAY.
#[inline(never)]
fn any(places: &Places<'_>, node: ast::Expr, level: u16) -> Result<Node> {
    let (left, op, right, all) = match node {
        ast::Expr::AnyOp { left, compare_op, right, .. } => (left, compare_op, right, false),
        ast::Expr::AllOp { left, compare_op, right } => (left, compare_op, right, true),
        ast::Expr::Array(array) if array.named => {
            // An ARRAY has no place of its own if it has no elements.
            let items =
                array.elem.into_iter().map(|item| lower(places, item, level)).collect::<Result<Vec<_>>>()?;
            let position = items.first().and_then(|item| item.position);
            return Node::new(NodeKind::Array(items), position);
        }
        other => return Err(refused(places, &other)),
    };
    let tested = boxed(places, *left, level)?;
    let position = tested.position;
    let word = if all { "ALL" } else { "ANY" };
    let Some(op) = comparison(&op) else {
        return Err(SqlError::unsupported(format!("operator {op} {word}")).at(position));
    };
    if let ast::Expr::Subquery(_) = *right {
        return Err(SqlError::unsupported("a subquery").at(position));
    }
    let array = boxed(places, *right, level)?;
    Node::new(NodeKind::Any(tested, op, all, array), position)
}

fn type_name(data_type: &ast::DataType, position: Option<usize>) -> Result<SqlType> {
    Ok(match data_type {
        ast::DataType::Numeric(ast::ExactNumberInfo::None)
        | ast::DataType::Decimal(ast::ExactNumberInfo::None) => SqlType::Decimal(None),
        ast::DataType::Timestamp(None, ast::TimezoneInfo::WithTimeZone | ast::TimezoneInfo::Tz) => {
            SqlType::TimestampTz
        }
        ast::DataType::Array(ast::ArrayElemTypeDef::SquareBracket(element, _)) => {
            match type_name(element, position)? {
                SqlType::Array(_) => {
                    return Err(SqlError::unsupported("a multi-dimensional array").at(position));
                }
                element => element.array(),
            }
        }
        other => SqlType::of_column(super::column_type(other, position)?),
    })
}

/// IN, BETWEEN, LIKE.
#[inline(never)]
fn tested(places: &Places<'_>, node: ast::Expr, level: u16) -> Result<Node> {
    match node {
        ast::Expr::InList { expr, list, negated } => {
            let tested = boxed(places, *expr, level)?;
            let position = tested.position;
            let items = list.into_iter().map(|item| lower(places, item, level)).collect::<Result<_>>()?;
            Node::new(NodeKind::In(tested, items, negated), position)
        }
        ast::Expr::Between { expr, negated, low, high } => {
            let tested = boxed(places, *expr, level)?;
            let position = tested.position;
            let (low, high) = (boxed(places, *low, level)?, boxed(places, *high, level)?);
            Node::new(NodeKind::Between(tested, low, high, negated), position)
        }
        ast::Expr::Like { negated, any: false, expr, pattern, escape_char } => {
            let escape = escape(places, escape_char.as_deref())?;
            let text = boxed(places, *expr, level)?;
            let position = text.position;
            let pattern = boxed(places, *pattern, level)?;
            Node::new(NodeKind::Like(text, pattern, escape, negated), position)
        }
        other => Err(refused(places, &other)),
    }
}

fn escape(places: &Places<'_>, node: Option<&ast::Expr>) -> Result<Option<char>> {
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
    let position = places.position(node.span().start);
    Err(SqlError::new(SqlState::InvalidParameterValue, message).at(position))
}

/// The forms of IS.
#[inline(never)]
fn is(places: &Places<'_>, node: ast::Expr, level: u16) -> Result<Node> {
    let (inner, truth, negated) = match node {
        ast::Expr::IsNull(inner) => (inner, None, false),
        ast::Expr::IsNotNull(inner) => (inner, None, true),
        ast::Expr::IsTrue(inner) => (inner, Some(Truth::True), false),
        ast::Expr::IsNotTrue(inner) => (inner, Some(Truth::True), true),
        ast::Expr::IsFalse(inner) => (inner, Some(Truth::False), false),
        ast::Expr::IsNotFalse(inner) => (inner, Some(Truth::False), true),
        ast::Expr::IsUnknown(inner) => (inner, Some(Truth::Unknown), false),
        ast::Expr::IsNotUnknown(inner) => (inner, Some(Truth::Unknown), true),
        other => return Err(refused(places, &other)),
    };
    let inner = boxed(places, *inner, level)?;
    let position = inner.position;
    let kind = match truth {
        None => NodeKind::IsNull(inner, negated),
        Some(truth) => NodeKind::Is(inner, truth, negated),
    };
    Node::new(kind, position)
}

#[inline(never)]
fn call(places: &Places<'_>, function: ast::Function, level: u16) -> Result<Node> {
    let position = match function.name.0.first() {
        Some(ast::ObjectNamePart::Identifier(ident)) => places.position(ident.span.start),
        _ => None,
    };
    let name = function.name.to_string().to_lowercase();
    let name = name.strip_prefix("pg_catalog.").unwrap_or(&name).to_string();
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
    let arguments = match function.args {
        ast::FunctionArguments::None => Arguments::Absent,
        ast::FunctionArguments::Subquery(_) => {
            return Err(SqlError::unsupported("a subquery").at(position));
        }
        ast::FunctionArguments::List(list) => {
            if list.duplicate_treatment == Some(ast::DuplicateTreatment::Distinct) {
                return Err(SqlError::unsupported(format!("{name}(DISTINCT)")).at(position));
            }
            if !list.clauses.is_empty() {
                return Err(unsupported());
            }
            let is_star = |argument: &ast::FunctionArg| {
                matches!(argument, ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Wildcard))
            };
            if list.args.iter().any(is_star) {
                if list.args.len() > 1 {
                    return Err(unsupported());
                }
                Arguments::Star
            } else {
                let argument = |argument| match argument {
                    ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => lower(places, expr, level),
                    _ => Err(unsupported()),
                };
                Arguments::List(list.args.into_iter().map(argument).collect::<Result<_>>()?)
            }
        }
    };
    Node::new(NodeKind::Call(Call { name, arguments }), position)
}

/// The error for an expression that is not accepted, with its name.
#[inline(never)]
fn refused(places: &Places<'_>, node: &ast::Expr) -> SqlError {
    SqlError::unsupported(construct(node)).at(places.position(node.span().start))
}

/// The name of an expression that is not accepted.
fn construct(node: &ast::Expr) -> &'static str {
    match node {
        ast::Expr::Case { .. } => "CASE",
        ast::Expr::Exists { .. } => "EXISTS",
        ast::Expr::Subquery(_) | ast::Expr::InSubquery { .. } => "a subquery",
        ast::Expr::AnyOp { .. } => "ANY",
        ast::Expr::AllOp { .. } => "ALL",
        ast::Expr::Array(_) => "ARRAY",
        ast::Expr::Interval(_) => "INTERVAL",
        ast::Expr::Extract { .. } => "EXTRACT",
        ast::Expr::Substring { .. } => "SUBSTRING",
        ast::Expr::Trim { .. } => "TRIM",
        ast::Expr::Position { .. } => "POSITION",
        ast::Expr::Overlay { .. } => "OVERLAY",
        ast::Expr::Ceil { .. } => "CEIL",
        ast::Expr::Floor { .. } => "FLOOR",
        ast::Expr::AtTimeZone { .. } => "AT TIME ZONE",
        ast::Expr::Collate { .. } => "COLLATE",
        ast::Expr::ILike { .. } => "ILIKE",
        ast::Expr::SimilarTo { .. } => "SIMILAR TO",
        ast::Expr::IsDistinctFrom(..) | ast::Expr::IsNotDistinctFrom(..) => "IS DISTINCT FROM",
        ast::Expr::Tuple(_) => "a row of several values",
        ast::Expr::CompoundFieldAccess { .. } => "a subscript or field",
        ast::Expr::Cast { .. } => "this form of CAST",
        ast::Expr::TypedString(_) => "this form of a typed string",
        _ => "this form of expression",
    }
}
