//! Binds SELECT, INSERT, UPDATE and DELETE.

use std::sync::Arc;

use rialto::row::{Schema, Value};
use rialto::{Table, fault_injection};

use super::expr::each_padded;
use super::{Binder, OutputColumn, Scope, Typed, column_name};
use crate::error::{Result, SqlError, SqlState};
use crate::expr::Expr;
use crate::parse::{self, InsertSource, Item, Name, Node, NodeKind, OrderItem, Source};
use crate::values::SqlType;

/// The most columns of a result, and the most keys to sort by, as in PostgreSQL.
const RESULT_COLUMNS_MAX: usize = 1_664;

/// Finds a table by its name.
pub type Lookup<'a> = &'a mut dyn FnMut(&Name) -> Result<Table>;

/// Where rows come from.
#[derive(Clone)]
pub enum RowSource {
    /// One row without columns.
    Nothing,
    /// A table.
    Table(Table, Arc<Schema>),
    /// generate_series: start, stop, step, and the type of its values.
    Series(Box<[Expr; 3]>, SqlType),
}

/// One key to sort by.
#[derive(Clone)]
pub struct Order {
    /// What to sort by.
    pub expr: Expr,
    /// Whether the largest comes first.
    pub descending: bool,
    /// Whether nulls come first.
    pub nulls_first: bool,
}

/// A bound SELECT.
pub struct BoundSelect {
    /// Where rows come from.
    pub source: RowSource,
    /// The conditions that all have to hold.
    pub filter: Vec<Expr>,
    /// What is asked for.
    pub items: Vec<Expr>,
    /// Sort keys.
    pub order: Vec<Order>,
    /// LIMIT.
    pub limit: Option<Expr>,
    /// OFFSET.
    pub offset: Option<Expr>,
    /// Whether the items count rows.
    pub counts: bool,
    /// FOR UPDATE.
    pub for_update: bool,
}

/// A bound INSERT.
pub struct BoundInsert {
    /// The table.
    pub table: Table,
    /// Its schema.
    pub schema: Arc<Schema>,
    /// The columns that are given; the others are null.
    pub positions: Vec<usize>,
    /// Rows, one expression for each column that is given, or for the first of them.
    pub rows: Vec<Vec<Expr>>,
    /// What the expressions are evaluated on: once for `Nothing`, and once for each row of a series that passes the
    /// filter.
    pub source: RowSource,
    /// The conditions on rows of the source.
    pub filter: Vec<Expr>,
    /// RETURNING.
    pub returning: Vec<Expr>,
}

/// A bound UPDATE.
pub struct BoundUpdate {
    /// The table.
    pub table: Table,
    /// Its schema.
    pub schema: Arc<Schema>,
    /// Columns and their new values.
    pub assignments: Vec<(usize, Expr)>,
    /// The conditions that all have to hold.
    pub filter: Vec<Expr>,
    /// RETURNING.
    pub returning: Vec<Expr>,
}

/// A bound DELETE.
pub struct BoundDelete {
    /// The table.
    pub table: Table,
    /// Its schema.
    pub schema: Arc<Schema>,
    /// The conditions that all have to hold.
    pub filter: Vec<Expr>,
    /// RETURNING.
    pub returning: Vec<Expr>,
}

fn table_scope(table: &Table, alias: Option<&Name>) -> (Scope, Arc<Schema>) {
    let schema = table.schema();
    let name = alias.map_or_else(|| table.name(), |alias| alias.text.clone());
    (Scope::Table { name, schema: schema.clone() }, schema)
}

/// Raises errors in constants that every row would need, whether or not there is a row. Conditions behind the first
/// need not be reached.
fn tell_errors<'e>(exprs: impl IntoIterator<Item = &'e Expr>, filter: &'e [Expr]) -> Result<()> {
    match exprs.into_iter().chain(filter.first()).find_map(Expr::certain_error) {
        Some(error) => Err(error.clone()),
        None => Ok(()),
    }
}

/// Binds a SELECT. Gives also the columns of its result.
pub fn bind_select(
    binder: &mut Binder<'_>,
    select: &parse::Select,
    lookup: Lookup<'_>,
) -> Result<(BoundSelect, Vec<OutputColumn>)> {
    let (scope, typed, mut columns, mut bound) = select_parts(binder, select, lookup)?;
    bound.items.reserve_exact(typed.len());
    for (item, column) in typed.into_iter().zip(&mut columns) {
        bound.items.push(shown(binder, &scope, item, column)?);
    }
    tell_errors(bound.items.iter().chain(bound.order.iter().map(|order| &order.expr)), &bound.filter)?;
    Ok((bound, columns))
}

/// An item as the client sees it.
fn shown(binder: &mut Binder<'_>, scope: &Scope, item: Typed, column: &mut OutputColumn) -> Result<Expr> {
    let item = binder.settle_text(item)?;
    column.sql_type = item.sql_type;
    Ok(match item.sql_type {
        SqlType::Char(None) => each_padded(scope, item.expr),
        _ => item.expr,
    })
}

/// The meaning of a SELECT's names, and all its parts. The types of its items are still open.
fn select_parts(
    binder: &mut Binder<'_>,
    select: &parse::Select,
    lookup: Lookup<'_>,
) -> Result<(Scope, Vec<Typed>, Vec<OutputColumn>, BoundSelect)> {
    let (scope, source) = match &select.source {
        Source::Nothing => (Scope::Nothing, RowSource::Nothing),
        Source::Table { table, alias } => {
            let table = lookup(table)?;
            let (scope, schema) = table_scope(&table, alias.as_ref());
            (scope, RowSource::Table(table, schema))
        }
        Source::Series { arguments, alias } => {
            let (bounds, sql_type) = series(binder, arguments)?;
            (
                Scope::Series { name: alias.text.clone(), sql_type },
                RowSource::Series(Box::new(bounds), sql_type),
            )
        }
    };
    if select.for_update && !matches!(source, RowSource::Table(..)) {
        return Err(SqlError::unsupported("FOR UPDATE without a table"));
    }
    let filter = filter(binder, &scope, select.filter.as_ref())?;
    let (items, columns) = items(binder, &scope, &select.items)?;
    if items.is_empty() {
        return Err(SqlError::unsupported("SELECT without columns"));
    }
    let counts = items.iter().any(|item| item.expr.has_count());
    if counts {
        if let Some(item) = items.iter().find(|item| item.expr.has_columns()) {
            let message = "a column beside count(*) must appear in a GROUP BY clause, which is not supported";
            return Err(SqlError::new(SqlState::GroupingError, message).at(item.position));
        }
        if select.for_update {
            return Err(SqlError::unsupported("FOR UPDATE with count(*)"));
        }
    }
    let order = order(binder, &scope, &select.order, &items, &columns)?;
    if !counts && order.iter().any(|order| order.expr.has_count()) {
        let message = "ORDER BY with count(*) in a SELECT that does not count";
        return Err(SqlError::new(SqlState::GroupingError, message));
    }
    if counts && !order.is_empty() {
        return Err(SqlError::unsupported("ORDER BY with count(*)"));
    }
    let limit = select.limit.as_ref().map(|limit| row_count(binder, limit, "LIMIT")).transpose()?;
    let offset = select.offset.as_ref().map(|offset| row_count(binder, offset, "OFFSET")).transpose()?;
    let for_update = select.for_update;
    let bound = BoundSelect { source, filter, items: Vec::new(), order, limit, offset, counts, for_update };
    Ok((scope, items, columns, bound))
}

/// The bounds of generate_series, and its type, int4 or int8.
fn series(binder: &mut Binder<'_>, arguments: &[Node]) -> Result<([Expr; 3], SqlType)> {
    let mut bound = arguments
        .iter()
        .map(|argument| {
            let typed = binder.expr(&Scope::Nothing, argument)?;
            if typed.expr.has_count() {
                let message = "aggregate functions are not allowed in functions in FROM";
                return Err(SqlError::new(SqlState::GroupingError, message).at(typed.position));
            }
            binder.settle(typed, SqlType::Int8)
        })
        .collect::<Result<Vec<_>>>()?;
    let mut sql_type = SqlType::Int4;
    for argument in &bound {
        match argument.sql_type {
            SqlType::Int2 | SqlType::Int4 => {}
            SqlType::Int8 => sql_type = SqlType::Int8,
            other => {
                let what = format!("generate_series of {}", other.name());
                return Err(SqlError::unsupported(what).at(argument.position));
            }
        }
    }
    if bound.len() == 2 {
        bound.push(Typed { expr: Expr::Const(Value::Int8(1)), sql_type: SqlType::Int8, position: None });
    }
    let bounds = bound
        .into_iter()
        .map(|argument| Ok(binder.cast(argument, SqlType::Int8)?.expr))
        .collect::<Result<Vec<Expr>>>()?;
    let bounds = bounds.try_into().expect("there are three of them");
    Ok((bounds, sql_type))
}

/// WHERE as conditions that all have to hold.
fn filter(binder: &mut Binder<'_>, scope: &Scope, node: Option<&Node>) -> Result<Vec<Expr>> {
    let Some(node) = node else { return Ok(Vec::new()) };
    let condition = binder.condition(scope, node, "WHERE")?;
    if condition.has_count() {
        let message = "aggregate functions are not allowed in WHERE";
        return Err(SqlError::new(SqlState::GroupingError, message));
    }
    Ok(match condition {
        Expr::And(items) => items
            .into_iter()
            .flat_map(|item| match item {
                Expr::And(inner) => inner,
                other => vec![other],
            })
            .collect(),
        other => vec![other],
    })
}

/// A select list: expressions and names.
fn items(binder: &mut Binder<'_>, scope: &Scope, items: &[Item]) -> Result<(Vec<Typed>, Vec<OutputColumn>)> {
    let mut typed = Vec::with_capacity(items.len());
    let mut columns = Vec::with_capacity(items.len());
    for item in items {
        match item {
            Item::Expr(node, alias) => {
                let name = alias.clone().unwrap_or_else(|| column_name(node));
                let item = binder.expr(scope, node)?;
                binder.take_column(&name)?;
                columns.push(OutputColumn { name, sql_type: item.sql_type });
                typed.push(item);
            }
            Item::All(qualifier) => {
                if let Some(name) = qualifier
                    && name.text != scope.qualifier()
                {
                    let message = format!("missing FROM-clause entry for table \"{}\"", name.text);
                    return Err(SqlError::new(SqlState::UndefinedTable, message).at(name.position));
                }
                all_columns(binder, scope, &mut typed, &mut columns)?;
            }
        }
        if typed.len() > RESULT_COLUMNS_MAX && !fault_injection::is_on("columns-are-not-counted") {
            let message = format!("target lists can have at most {RESULT_COLUMNS_MAX} entries");
            return Err(SqlError::new(SqlState::TooManyColumns, message));
        }
    }
    Ok((typed, columns))
}

fn all_columns(
    binder: &mut Binder<'_>,
    scope: &Scope,
    typed: &mut Vec<Typed>,
    columns: &mut Vec<OutputColumn>,
) -> Result<()> {
    if matches!(scope, Scope::Nothing) {
        return Err(SqlError::new(SqlState::SyntaxError, "SELECT * with no tables specified is not valid"));
    }
    for (index, name) in scope.names().into_iter().enumerate() {
        let sql_type = scope.column_type(index);
        binder.take(2 * size_of::<Expr>())?;
        binder.take_column(name)?;
        typed.push(Typed { expr: Expr::Column(index), sql_type, position: None });
        columns.push(OutputColumn { name: name.to_string(), sql_type });
    }
    Ok(())
}

/// ORDER BY. Invariant: each output column is copied at most once, however often it is named, and the bytes of the copy
/// are taken.
fn order(
    binder: &mut Binder<'_>,
    scope: &Scope,
    list: &[OrderItem],
    items: &[Typed],
    columns: &[OutputColumn],
) -> Result<Vec<Order>> {
    if list.len() > RESULT_COLUMNS_MAX {
        let message = format!("ORDER BY can have at most {RESULT_COLUMNS_MAX} entries");
        return Err(SqlError::new(SqlState::TooManyColumns, message));
    }
    let mut order: Vec<Order> = Vec::new();
    let mut is_named = vec![false; items.len()];
    for entry in list {
        binder.cancel.check()?;
        let expr = match output_column(entry, items, columns)? {
            Some(index) if std::mem::replace(&mut is_named[index], true) => continue,
            Some(index) => {
                binder.take(items[index].expr.bytes())?;
                items[index].expr.clone()
            }
            None => {
                let typed = binder.expr(scope, &entry.expr)?;
                match entry.expr.kind {
                    NodeKind::Column(..) => typed.expr,
                    _ => binder.settle_text(typed)?.expr,
                }
            }
        };
        // A key that is there already decides nothing.
        if !order.iter().any(|before| before.expr == expr) {
            order.push(Order { expr, descending: entry.descending, nulls_first: entry.nulls_first });
        }
    }
    Ok(order)
}

/// The output column that an entry of ORDER BY names: a number is a place in the select list, a bare name the name of
/// an output column first. Output columns of one name have to be the same expression.
fn output_column(entry: &OrderItem, items: &[Typed], columns: &[OutputColumn]) -> Result<Option<usize>> {
    match &entry.expr.kind {
        NodeKind::Number(digits) => {
            let place = digits.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
            match place.filter(|place| *place < items.len()) {
                Some(place) => Ok(Some(place)),
                None => {
                    let message = format!("ORDER BY position {digits} is not in select list");
                    let error = SqlError::new(SqlState::InvalidColumnReference, message);
                    Err(error.at(entry.expr.position))
                }
            }
        }
        NodeKind::Column(name, _) => {
            let mut named = (0..columns.len()).filter(|place| columns[*place].name == name.text);
            let first = named.next();
            if let Some(first) = first
                && named.any(|place| items[place].expr != items[first].expr)
            {
                let message = format!("ORDER BY \"{}\" is ambiguous", name.text);
                return Err(SqlError::new(SqlState::AmbiguousColumn, message).at(name.position));
            }
            Ok(first)
        }
        _ => Ok(None),
    }
}

fn row_count(binder: &mut Binder<'_>, node: &Node, what: &str) -> Result<Expr> {
    let typed = binder.expr(&Scope::Nothing, node)?;
    let typed = binder.settle(typed, SqlType::Int8)?;
    if typed.sql_type.number_rank().is_none() {
        let message = format!("argument of {what} must be type bigint, not type {}", typed.sql_type.name());
        return Err(SqlError::new(SqlState::TypeMismatch, message).at(typed.position));
    }
    if typed.expr.has_count() {
        let message = format!("aggregate functions are not allowed in {what}");
        return Err(SqlError::new(SqlState::GroupingError, message).at(typed.position));
    }
    Ok(binder.cast(typed, SqlType::Int8)?.expr)
}

fn returning(
    binder: &mut Binder<'_>,
    scope: &Scope,
    list: &[Item],
) -> Result<(Vec<Expr>, Vec<OutputColumn>)> {
    let (typed, mut columns) = items(binder, scope, list)?;
    let mut exprs = Vec::with_capacity(typed.len());
    for (item, column) in typed.into_iter().zip(&mut columns) {
        if item.expr.has_count() {
            let message = "aggregate functions are not allowed in RETURNING";
            return Err(SqlError::new(SqlState::GroupingError, message).at(item.position));
        }
        exprs.push(shown(binder, scope, item, column)?);
    }
    Ok((exprs, columns))
}

/// The positions of columns named in a list, each at most once.
pub(crate) fn column_positions(schema: &Schema, names: &[Name]) -> Result<Vec<usize>> {
    let mut positions = Vec::with_capacity(names.len());
    for name in names {
        let index = schema.position_of(&name.text).map_err(|_| {
            let message =
                format!("column \"{}\" of relation \"{}\" does not exist", name.text, schema.table());
            SqlError::new(SqlState::UndefinedColumn, message).at(name.position)
        })?;
        if positions.contains(&index) {
            let message = format!("column \"{}\" specified more than once", name.text);
            return Err(SqlError::new(SqlState::DuplicateColumn, message).at(name.position));
        }
        positions.push(index);
    }
    Ok(positions)
}

/// Whether this is the word DEFAULT, which here always means null.
fn is_default(node: &Node) -> bool {
    matches!(&node.kind, NodeKind::Column(name, false) if name.text == "default")
}

/// Binds an INSERT. Gives also the columns of its result.
pub fn bind_insert(
    binder: &mut Binder<'_>,
    insert: &parse::Insert,
    lookup: Lookup<'_>,
) -> Result<(BoundInsert, Vec<OutputColumn>)> {
    let table = lookup(&insert.table)?;
    let (scope, schema) = table_scope(&table, None);
    let positions: Vec<usize> = match insert.columns[..] {
        [] => (0..schema.columns().len()).collect(),
        _ => column_positions(&schema, &insert.columns)?,
    };
    binder.take(positions.len() * size_of::<usize>())?;
    let null = Expr::Const(Value::Null);
    let (rows, source, filter) = match &insert.source {
        InsertSource::Values(rows) => {
            let mut bound = Vec::with_capacity(rows.len());
            for row in rows {
                let values = row
                    .iter()
                    .map(|value| match is_default(value) {
                        true => {
                            binder.take(2 * size_of::<Expr>())?;
                            Ok(Typed { expr: null.clone(), sql_type: SqlType::Unknown, position: None })
                        }
                        false => binder.expr(&Scope::Nothing, value),
                    })
                    .collect::<Result<Vec<_>>>()?;
                binder.take(size_of::<Vec<Expr>>())?;
                bound.push(given_row(binder, &schema, &positions, values, insert)?);
            }
            (bound, RowSource::Nothing, Vec::new())
        }
        InsertSource::Select(select) => {
            let (_, items, _, bound) = select_parts(binder, select, lookup)?;
            if bound.counts || !bound.order.is_empty() || bound.limit.is_some() || bound.offset.is_some() {
                return Err(SqlError::unsupported(
                    "INSERT ... SELECT with count(*), ORDER BY, LIMIT or OFFSET",
                ));
            }
            (vec![given_row(binder, &schema, &positions, items, insert)?], bound.source, bound.filter)
        }
    };
    if rows.iter().flatten().any(Expr::has_count) {
        let message = "aggregate functions are not allowed in VALUES";
        return Err(SqlError::new(SqlState::GroupingError, message));
    }
    let (returning, columns) = returning(binder, &scope, &insert.returning)?;
    tell_errors(rows.iter().flatten().chain(&returning), &filter)?;
    Ok((BoundInsert { table, schema, positions, rows, source, filter, returning }, columns))
}

/// One expression for each column that is given. Nothing is kept for the other columns: a table may have 1,600 columns,
/// and a statement a million rows.
fn given_row(
    binder: &mut Binder<'_>,
    schema: &Schema,
    positions: &[usize],
    values: Vec<Typed>,
    insert: &parse::Insert,
) -> Result<Vec<Expr>> {
    let more = values.len() > positions.len();
    let fewer = values.len() < positions.len() && !insert.columns.is_empty();
    if more || fewer {
        let (first, second) =
            if more { ("expressions", "target columns") } else { ("target columns", "expressions") };
        let message = format!("INSERT has more {first} than {second}");
        let position =
            if more { values[positions.len()].position } else { insert.columns[values.len()].position };
        return Err(SqlError::new(SqlState::SyntaxError, message).at(position));
    }
    let given = values.into_iter().zip(positions).map(|(value, position)| {
        let column = &schema.columns()[*position];
        binder.assign(value, &column.name, SqlType::of_column(column.ty))
    });
    given.collect()
}

/// Binds an UPDATE. Gives also the columns of its result.
pub fn bind_update(
    binder: &mut Binder<'_>,
    update: &parse::Update,
    lookup: Lookup<'_>,
) -> Result<(BoundUpdate, Vec<OutputColumn>)> {
    let table = lookup(&update.table)?;
    let (scope, schema) = table_scope(&table, update.alias.as_ref());
    let mut assignments: Vec<(usize, Expr)> = Vec::with_capacity(update.assignments.len());
    for (name, value) in &update.assignments {
        let index = column_positions(&schema, std::slice::from_ref(name))?[0];
        if assignments.iter().any(|(other, _)| *other == index) {
            let message = format!("multiple assignments to same column \"{}\"", name.text);
            return Err(SqlError::new(SqlState::SyntaxError, message).at(name.position));
        }
        binder.take(size_of::<(usize, Expr)>())?;
        let typed = match is_default(value) {
            true => Typed { expr: Expr::Const(Value::Null), sql_type: SqlType::Unknown, position: None },
            false => binder.expr(&scope, value)?,
        };
        if typed.expr.has_count() {
            let message = "aggregate functions are not allowed in UPDATE";
            return Err(SqlError::new(SqlState::GroupingError, message).at(typed.position));
        }
        let column = &schema.columns()[index];
        assignments.push((index, binder.assign(typed, &column.name, SqlType::of_column(column.ty))?));
    }
    let filter = filter(binder, &scope, update.filter.as_ref())?;
    let (returning, columns) = returning(binder, &scope, &update.returning)?;
    tell_errors(assignments.iter().map(|(_, value)| value).chain(&returning), &filter)?;
    Ok((BoundUpdate { table, schema, assignments, filter, returning }, columns))
}

/// Binds a DELETE. Gives also the columns of its result.
pub fn bind_delete(
    binder: &mut Binder<'_>,
    delete: &parse::Delete,
    lookup: Lookup<'_>,
) -> Result<(BoundDelete, Vec<OutputColumn>)> {
    let table = lookup(&delete.table)?;
    let (scope, schema) = table_scope(&table, delete.alias.as_ref());
    let filter = filter(binder, &scope, delete.filter.as_ref())?;
    let (returning, columns) = returning(binder, &scope, &delete.returning)?;
    tell_errors(&returning, &filter)?;
    Ok((BoundDelete { table, schema, filter, returning }, columns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bind::Facts;
    use crate::cancel::Cancel;
    use crate::parse::{Statement, parse};

    #[test]
    fn an_output_column_is_copied_once_for_order_by_and_a_request_ends_that() {
        let (facts, cancel) = (Facts::default(), Arc::new(Cancel::default()));
        let text = "x".repeat(1 << 20);
        let bound = |order: &str| {
            let sql = format!("select '{text}' as a, 2 as b {order}");
            let Ok(Statement::Select(select)) = parse(&sql, &cancel) else { panic!("{order}") };
            let mut binder = Binder::new(None, &facts, &cancel);
            let (items, columns) = items(&mut binder, &Scope::Nothing, &select.items).unwrap();
            let before = binder.bytes();
            cancel.begin_running();
            let keys = order_keys(&mut binder, &select, &items, &columns).unwrap();
            cancel.request();
            let code = order_keys(&mut binder, &select, &items, &columns).err().map(|e| e.sqlstate.code());
            cancel.end_running();
            (keys, binder.bytes() - before, code)
        };
        assert_eq!(bound(""), (0, 0, None));
        for (list, keys) in [("1", 1), ("a", 1), ("a, 1, a desc, 1", 1), ("b, 1, 2, a", 2)] {
            let (found, bytes, code) = bound(&format!("order by {list}"));
            assert_eq!((found, code), (keys, Some("57014")), "{list}");
            assert!((text.len()..2 * text.len()).contains(&bytes), "{list}: {bytes}");
        }
    }

    fn order_keys(
        binder: &mut Binder<'_>,
        select: &parse::Select,
        items: &[Typed],
        columns: &[OutputColumn],
    ) -> Result<usize> {
        order(binder, &Scope::Nothing, &select.order, items, columns).map(|keys| keys.len())
    }
}
