//! Binding: from [`Statement`](crate::parse::Statement) to a bound statement. Names become columns, and types are
//! settled.
//!
//! A literal in quotes and a parameter have no type of their own; they take the type of the expression beside them.
//! What is still open at the end is text. Invariant: a bound expression needs no further check of types.

mod any;
mod expr;
mod function;
mod statement;

use std::sync::Arc;

use rialto::row::{Schema, Value};

pub(crate) use statement::column_positions;
pub use statement::{
    BoundDelete, BoundInsert, BoundSelect, BoundUpdate, Order, RowSource, bind_delete, bind_insert,
    bind_select, bind_update,
};

use crate::cancel::Cancel;
use crate::error::{Result, SqlError, SqlState};
use crate::expr::cast::{self, CastContext};
use crate::expr::{Context, Expr, NoColumns, RowTexts};
use crate::parse::{Literal, Name, Node, NodeKind};
use crate::values::SqlType;

/// The columns that an expression can name.
#[derive(Debug, Clone)]
pub enum Scope {
    /// None.
    Nothing,
    /// Those of a table.
    Table {
        /// The name by which the statement calls the table.
        name: String,
        /// Its schema.
        schema: Arc<Schema>,
    },
    /// The column of generate_series.
    Series {
        /// Its name.
        name: String,
        /// Its type.
        sql_type: SqlType,
    },
}

impl Scope {
    /// The names of all columns.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Scope::Nothing => Vec::new(),
            Scope::Table { schema, .. } => {
                schema.columns().iter().map(|column| column.name.as_str()).collect()
            }
            Scope::Series { name, .. } => vec![name],
        }
    }

    fn column_type(&self, index: usize) -> SqlType {
        match self {
            Scope::Nothing => SqlType::Unknown,
            Scope::Table { schema, .. } => SqlType::of_column(schema.columns()[index].ty),
            Scope::Series { sql_type, .. } => *sql_type,
        }
    }

    fn qualifier(&self) -> &str {
        match self {
            Scope::Nothing => "",
            Scope::Table { name, .. } | Scope::Series { name, .. } => name,
        }
    }

    fn find(&self, name: &Name) -> Result<usize> {
        let found = match self {
            Scope::Nothing => None,
            Scope::Table { schema, .. } => {
                schema.columns().iter().position(|column| column.name == name.text)
            }
            Scope::Series { name: series, .. } => (*series == name.text).then_some(0),
        };
        found.ok_or_else(|| {
            let message = format!("column \"{}\" does not exist", name.text);
            SqlError::new(SqlState::UndefinedColumn, message).at(name.position)
        })
    }
}

/// A bound expression with its type.
#[derive(Debug, Clone)]
pub struct Typed {
    /// The expression.
    pub expr: Expr,
    /// Its type.
    pub sql_type: SqlType,
    /// Where it begins in the text.
    pub position: Option<usize>,
}

/// A column of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub sql_type: SqlType,
}

/// The most bytes that a bound statement takes.
pub const BOUND_BYTES_MAX: usize = 128 << 20;

/// The bytes of a parameter: its type and whether it was found, twice for the room into which the lists may grow.
const PARAM_BYTES: usize = 2 * (size_of::<SqlType>() + size_of::<bool>());

/// Binds the expressions of one statement.
///
/// Invariant: everything that a plan keeps of a statement, and that grows with the statement, is taken from
/// [`BOUND_BYTES_MAX`] before it is allocated.
pub struct Binder<'a> {
    /// What the plan takes, in bytes: at most [`BOUND_BYTES_MAX`].
    bytes: usize,
    /// The types of the parameters, as far as they are known.
    params: Vec<SqlType>,
    /// Which of the parameters occur in the statement.
    found: Vec<bool>,
    /// Whether the statement may have parameters.
    takes_params: bool,
    /// Facts of the session that expressions can ask for.
    facts: &'a Facts,
    /// Ends the binding early.
    cancel: &'a Cancel,
    /// The literals that become parameters.
    lifted: Option<LiftedLiterals<'a>>,
}

/// Literals that become parameters, and whether that changes only when errors in them are found.
struct LiftedLiterals<'a> {
    literals: &'a [Literal],
    /// Which of them were found to be literals.
    found: Vec<bool>,
    /// Whether no literal's value is needed at binding.
    sound: bool,
}

/// Facts of a session that expressions can ask for.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The user's name.
    pub user: String,
    /// The database's name.
    pub database: String,
}

impl<'a> Binder<'a> {
    /// For a statement, with the types of the parameters that the client has fixed; `None` if it gives no arguments.
    pub fn new(types: Option<&[SqlType]>, facts: &'a Facts, cancel: &'a Cancel) -> Binder<'a> {
        let takes_params = types.is_some();
        let params = types.unwrap_or_default().to_vec();
        let found = vec![false; params.len()];
        let bytes = params.len() * PARAM_BYTES;
        Binder { bytes, params, found, takes_params, facts, cancel, lifted: None }
    }

    /// For a statement in which these literals, in the order of the text, become the parameters.
    pub fn lifting(literals: &'a [Literal], facts: &'a Facts, cancel: &'a Cancel) -> Binder<'a> {
        let types: Vec<SqlType> = literals.iter().map(|literal| literal.sql_type).collect();
        let lifted = LiftedLiterals { literals, found: vec![false; literals.len()], sound: true };
        Binder { lifted: Some(lifted), takes_params: false, ..Binder::new(Some(&types), facts, cancel) }
    }

    /// What the plan takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes so many bytes more for what is bound.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<()> {
        self.bytes += bytes;
        if self.bytes <= BOUND_BYTES_MAX {
            return Ok(());
        }
        let message = format!("the statement would be bound to more than {BOUND_BYTES_MAX} bytes");
        Err(SqlError::new(SqlState::OutOfMemory, message).hint("Split it, or use COPY."))
    }

    /// Whether the bound statement means the same with parameters as with its literals, whatever these are.
    pub fn is_sound(&self) -> bool {
        let sound = |lifted: &LiftedLiterals<'_>| lifted.sound && lifted.found.iter().all(|found| *found);
        self.lifted.as_ref().is_none_or(sound)
    }

    /// The parameter that a literal at this place has become.
    fn lifted(&mut self, position: Option<usize>) -> Option<Typed> {
        let lifted = self.lifted.as_mut()?;
        let index = lifted.literals.binary_search_by_key(&position?, |literal| literal.position).ok()?;
        let sql_type = lifted.literals[index].sql_type;
        // One literal that stands for two expressions may take two types.
        lifted.sound &= !lifted.found[index] || sql_type != SqlType::Unknown;
        lifted.found[index] = true;
        Some(Typed { expr: Expr::Param(index), sql_type, position })
    }

    /// Notes an expression that would be computed here if its literals had not been lifted.
    fn lift_computed(&mut self, expr: &Expr) {
        if let Some(lifted) = &mut self.lifted
            && !expr.depends_on_run()
        {
            lifted.sound = false;
        }
    }

    /// Computes a constant expression once. An error is kept in the place of the value, and raised where the value
    /// would have been used: that of `coalesce(1, 1 / 0)` never.
    fn fold(&mut self, expr: Expr, position: Option<usize>) -> Expr {
        if !expr.is_constant() {
            return expr;
        }
        let texts = RowTexts::default();
        match expr.eval(
            &NoColumns,
            Context { params: &[], arrays: &[], now: 0, count: 0, texts: &texts, cancel: self.cancel },
        ) {
            Ok(value) => Expr::Const(value),
            Err(error) => self.raise(error.at(position)),
        }
    }

    /// Takes the bytes of a result's column, twice for the room into which the list may grow.
    fn take_column(&mut self, name: &str) -> Result<()> {
        self.take(2 * size_of::<OutputColumn>() + name.len())
    }

    /// An error in the place of a value. It has a position in this text, so that no other text can share it.
    fn raise(&mut self, error: SqlError) -> Expr {
        if let Some(lifted) = &mut self.lifted {
            lifted.sound = false;
        }
        // If this is too much, the next allocation is refused.
        self.bytes += size_of::<SqlError>() + error.message.len();
        Expr::Raise(Box::new(error))
    }

    /// The types of all parameters: text where nothing says more. So the parameters are those that occur in the text,
    /// and possibly others whose type the client fixed.
    ///
    /// # Errors
    /// A parameter that has no type and does not occur in the statement.
    pub fn into_params(self) -> Result<Vec<SqlType>> {
        let is_open = |(sql_type, found): (&SqlType, &bool)| *sql_type == SqlType::Unknown && !found;
        if self.lifted.is_none()
            && let Some(index) = self.params.iter().zip(&self.found).position(is_open)
        {
            let message = format!("could not determine data type of parameter ${}", index + 1);
            return Err(SqlError::new(SqlState::IndeterminateType, message));
        }
        let open = |sql_type| if sql_type == SqlType::Unknown { SqlType::Text } else { sql_type };
        Ok(self.params.into_iter().map(open).collect())
    }

    /// Settles an open literal or parameter to `sql_type`.
    fn settle(&mut self, typed: Typed, sql_type: SqlType) -> Result<Typed> {
        if typed.sql_type != SqlType::Unknown || sql_type == SqlType::Unknown {
            return Ok(typed);
        }
        let position = typed.position;
        let expr = match typed.expr {
            Expr::Param(index) => {
                self.settle_param(index, sql_type.plain(), position)?;
                Expr::Param(index)
            }
            Expr::Const(Value::Text(text)) => {
                Expr::Const(crate::values::text::parse(sql_type, &text).map_err(|error| error.at(position))?)
            }
            Expr::Const(Value::Float8(value)) if sql_type != SqlType::Float8 => {
                let message =
                    format!("number {value:e} has more than 38 digits: only a double precision takes it");
                return Err(SqlError::new(SqlState::NumberOutOfRange, message).at(position));
            }
            Expr::Const(value) => Expr::Const(value),
            other => Expr::Cast(Box::new(other), SqlType::Text, sql_type),
        };
        Ok(Typed { expr, sql_type, position })
    }

    /// Settles the type of a parameter. It has one type: where it occurs twice, it was settled first beside one
    /// expression, and may not take another type beside the next.
    fn settle_param(&mut self, index: usize, sql_type: SqlType, position: Option<usize>) -> Result<()> {
        let before = std::mem::replace(&mut self.params[index], sql_type);
        match &mut self.lifted {
            // A literal may take a type in each place.
            Some(lifted) => lifted.sound &= before == SqlType::Unknown,
            None if before != SqlType::Unknown && before != sql_type => {
                let message = format!("inconsistent types deduced for parameter ${}", index + 1);
                let error = SqlError::new(SqlState::AmbiguousParameter, message).at(position);
                return Err(error.detail(format!("{} versus {}", before.name(), sql_type.name())));
            }
            None => {}
        }
        Ok(())
    }

    /// Settles what is still open as text.
    fn settle_text(&mut self, typed: Typed) -> Result<Typed> {
        self.settle(typed, SqlType::Text)
    }

    /// The expression as one of type `to`.
    fn cast(&mut self, typed: Typed, to: SqlType) -> Result<Typed> {
        let typed = self.settle(typed, to.plain())?;
        let position = typed.position;
        if typed.sql_type == to {
            return Ok(typed);
        }
        let expr = match typed.expr {
            // As for `fold`: an error is raised where the value is used.
            Expr::Const(value) => match cast::cast(value, typed.sql_type, to) {
                Ok(value) => Expr::Const(value),
                Err(error) => self.raise(error.at(position)),
            },
            // Values of one plain type differ only in a decimal's digits.
            expr if typed.sql_type.plain() == to && !matches!(to, SqlType::Decimal(Some(_))) => expr,
            expr => {
                // A cast of an integer to a wider type cannot fail.
                let widens = matches!(typed.sql_type, SqlType::Int2 | SqlType::Int4 | SqlType::Int8)
                    && matches!(to, SqlType::Int8 | SqlType::Float8 | SqlType::Decimal(None));
                if !widens {
                    self.lift_computed(&expr);
                }
                Expr::Cast(Box::new(expr), typed.sql_type, to)
            }
        };
        Ok(Typed { expr, sql_type: to, position })
    }

    /// The expression as the value of a column in INSERT or UPDATE.
    fn assign(&mut self, typed: Typed, column: &str, to: SqlType) -> Result<Expr> {
        if !cast::exists(typed.sql_type, to, CastContext::Assignment) {
            let message = format!(
                "column \"{column}\" is of type {} but expression is of type {}",
                to.name(),
                typed.sql_type.plain().name()
            );
            let error = SqlError::new(SqlState::TypeMismatch, message).at(typed.position);
            return Err(error.hint("You will need to rewrite or cast the expression."));
        }
        // A cast to char(n) truncates; a column refuses what is too long.
        let to = if matches!(to, SqlType::Char(_)) { SqlType::Char(None) } else { to };
        Ok(self.cast(typed, to)?.expr)
    }

    fn undefined(&self, message: String, position: Option<usize>) -> SqlError {
        SqlError::new(SqlState::UndefinedFunction, message).at(position)
    }
}

/// The name that PostgreSQL gives a column without an alias.
fn column_name(node: &Node) -> String {
    let name = name_within(node).unwrap_or_else(|| match &node.kind {
        NodeKind::Cast(_, _, name) | NodeKind::Typed(_, _, name) => name,
        NodeKind::Bool(_) => "bool",
        _ => "?column?",
    });
    name.to_owned()
}

/// The name of a column, or of the operand of a cast, if it has one.
fn name_within(node: &Node) -> Option<&str> {
    match &node.kind {
        NodeKind::Column(name, _) | NodeKind::Qualified(_, name) => Some(&name.text),
        NodeKind::Call(call) => Some(&call.name),
        NodeKind::Cast(inner, ..) => name_within(inner),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{Statement, parse};

    #[test]
    fn what_a_statement_is_bound_to_is_counted_and_bounded() {
        let (facts, cancel) = (Facts::default(), Arc::new(Cancel::default()));
        let select = |sql: &str, before: usize| {
            let Ok(Statement::Select(select)) = parse(sql, &cancel) else { panic!("{sql}") };
            let mut binder = Binder { bytes: before, ..Binder::new(None, &facts, &cancel) };
            let bound = bind_select(&mut binder, &select, &mut |_| unreachable!("there is no table"));
            bound.map(|_| binder.bytes() - before).map_err(|error| error.sqlstate.code())
        };
        let bytes = select("select 1, 'abc', 2 + 3", 0).unwrap();
        assert!(bytes >= 5 * size_of::<Expr>() + 3, "{bytes}");
        assert_eq!(select("select 1, 'abc', 2 + 3", BOUND_BYTES_MAX - bytes), Ok(bytes));
        assert_eq!(select("select 1, 'abcd', 2 + 3", BOUND_BYTES_MAX - bytes), Err("53200"));
    }
}
