//! SELECT, INSERT, UPDATE and DELETE: takes what is accepted out of sqlparser's tree, and refuses the rest.

use std::sync::LazyLock;

use sqlparser::ast::{self, SetExpr, TableFactor};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;

use super::expr::{self, Item, Node};
use super::{Name, Places, left_over};
use crate::error::{Result, SqlError};

/// Where a SELECT's rows come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// No FROM: one row without columns.
    Nothing,
    /// A table, and its name in the statement.
    Table {
        /// The table.
        table: Name,
        /// Its alias.
        alias: Option<Name>,
    },
    /// generate_series(start, stop[, step]) AS alias.
    Series {
        /// The arguments: two or three.
        arguments: Vec<Node>,
        /// The name of the row and of its only column.
        alias: Name,
    },
}

/// One item of ORDER BY.
#[derive(Debug, Clone)]
pub struct OrderItem {
    /// What to order by.
    pub expr: Node,
    /// Whether the largest comes first.
    pub descending: bool,
    /// Whether nulls come first.
    pub nulls_first: bool,
}

/// SELECT.
#[derive(Debug, Clone)]
pub struct Select {
    /// What is asked for.
    pub items: Vec<Item>,
    /// Where from.
    pub source: Source,
    /// WHERE.
    pub filter: Option<Node>,
    /// ORDER BY.
    pub order: Vec<OrderItem>,
    /// LIMIT.
    pub limit: Option<Node>,
    /// OFFSET.
    pub offset: Option<Node>,
    /// FOR UPDATE.
    pub for_update: bool,
}

/// Where an INSERT's rows come from.
#[derive(Debug, Clone)]
pub enum InsertSource {
    /// VALUES.
    Values(Vec<Vec<Node>>),
    /// SELECT ... FROM generate_series.
    Select(Box<Select>),
}

/// INSERT.
#[derive(Debug, Clone)]
pub struct Insert {
    /// The table.
    pub table: Name,
    /// The columns named; none means all, in order.
    pub columns: Vec<Name>,
    /// The rows.
    pub source: InsertSource,
    /// RETURNING.
    pub returning: Vec<Item>,
}

/// UPDATE.
#[derive(Debug, Clone)]
pub struct Update {
    /// The table.
    pub table: Name,
    /// Its alias.
    pub alias: Option<Name>,
    /// SET.
    pub assignments: Vec<(Name, Node)>,
    /// WHERE.
    pub filter: Option<Node>,
    /// RETURNING.
    pub returning: Vec<Item>,
}

/// DELETE.
#[derive(Debug, Clone)]
pub struct Delete {
    /// The table.
    pub table: Name,
    /// Its alias.
    pub alias: Option<Name>,
    /// WHERE.
    pub filter: Option<Node>,
    /// RETURNING.
    pub returning: Vec<Item>,
}

/// The smallest statement of each kind: what is left of a tree is compared with these.
struct Smallest {
    query: ast::Query,
    insert: ast::Insert,
    update: ast::Update,
    delete: ast::Delete,
}

static SMALLEST: LazyLock<Smallest> = LazyLock::new(|| {
    let parse = |sql: &str| {
        let mut statements =
            Parser::parse_sql(&PostgreSqlDialect {}, sql).expect("the smallest statements parse");
        statements.remove(0)
    };
    let ast::Statement::Query(query) = parse("select 1") else { unreachable!("a select is a query") };
    let ast::Statement::Insert(insert) = parse("insert into t values (1)") else { unreachable!("an insert") };
    let ast::Statement::Update(update) = parse("update t set a = 1") else { unreachable!("an update") };
    let ast::Statement::Delete(delete) = parse("delete from t") else { unreachable!("a delete") };
    Smallest { query: *query, insert, update, delete }
});

pub(super) fn select(places: &Places<'_>, mut query: ast::Query) -> Result<Select> {
    if let Some(with) = &query.with {
        let position = places.position(with.with_token.0.span.start);
        return Err(SqlError::unsupported("WITH").at(position));
    }
    let body = match std::mem::replace(&mut *query.body, (*SMALLEST.query.body).clone()) {
        SetExpr::Select(select) => *select,
        SetExpr::SetOperation { op, .. } => return Err(SqlError::unsupported(op)),
        SetExpr::Values(_) => return Err(SqlError::unsupported("VALUES as a query")),
        SetExpr::Table(_) => return Err(SqlError::unsupported("TABLE as a query")),
        SetExpr::Query(_) => return Err(SqlError::unsupported("a query in parentheses")),
        _ => return Err(SqlError::unsupported("a data-changing query")),
    };
    let order = order_by(places, query.order_by.take())?;
    let (limit, offset) = match query.limit_clause.take() {
        None => (None, None),
        Some(ast::LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
            let lower = |node: Option<ast::Expr>| node.map(|node| expr::expr(places, node)).transpose();
            (lower(limit)?, lower(offset.map(|offset| offset.value))?)
        }
        Some(_) => return Err(SqlError::unsupported("this form of LIMIT")),
    };
    if query.fetch.is_some() {
        return Err(SqlError::unsupported("FETCH FIRST (write LIMIT)"));
    }
    let mut for_update = false;
    for lock in std::mem::take(&mut query.locks) {
        match lock.lock_type {
            ast::LockType::Update if lock.nonblock.is_none() && lock.of.is_none() => for_update = true,
            ast::LockType::Update => {
                return Err(SqlError::unsupported("FOR UPDATE with OF, NOWAIT or SKIP LOCKED"));
            }
            _ => return Err(SqlError::unsupported("FOR SHARE")),
        }
    }
    left_over("SELECT", query == SMALLEST.query)?;
    let (items, source, filter) = select_body(places, body)?;
    Ok(Select { items, source, filter, order, limit, offset, for_update })
}

fn select_body(places: &Places<'_>, mut body: ast::Select) -> Result<(Vec<Item>, Source, Option<Node>)> {
    let SetExpr::Select(smallest) = &*SMALLEST.query.body else { unreachable!("a select") };
    let refused = [
        (body.distinct.is_some(), "SELECT DISTINCT"),
        (body.into.is_some(), "SELECT INTO"),
        (body.group_by != smallest.group_by, "GROUP BY"),
        (body.having.is_some(), "HAVING"),
        (!body.named_window.is_empty(), "WINDOW"),
        (body.top.is_some(), "TOP"),
        (!body.lateral_views.is_empty(), "LATERAL VIEW"),
    ];
    if let Some((_, what)) = refused.into_iter().find(|(found, _)| *found) {
        return Err(SqlError::unsupported(what));
    }
    let items = std::mem::replace(&mut body.projection, smallest.projection.clone());
    let items = expr::items(places, items)?;
    let filter = body.selection.take().map(|filter| expr::expr(places, filter)).transpose()?;
    let mut from = std::mem::take(&mut body.from);
    left_over("SELECT", body == **smallest)?;
    if from.len() > 1 {
        return Err(SqlError::unsupported("a join (FROM with several tables)"));
    }
    let source = match from.pop() {
        None => Source::Nothing,
        Some(from) => source(places, from)?,
    };
    Ok((items, source, filter))
}

fn source(places: &Places<'_>, from: ast::TableWithJoins) -> Result<Source> {
    if !from.joins.is_empty() {
        return Err(SqlError::unsupported("JOIN"));
    }
    match from.relation {
        TableFactor::Table {
            args: Some(args),
            name,
            alias,
            with_hints,
            version,
            with_ordinality,
            partitions,
            json_path,
            sample,
            index_hints,
        } => {
            let is_plain = with_hints.is_empty()
                && partitions.is_empty()
                && index_hints.is_empty()
                && !with_ordinality
                && version.is_none()
                && json_path.is_none()
                && sample.is_none();
            if !is_plain {
                return Err(SqlError::unsupported("what follows a function in FROM"));
            }
            let function = name.to_string();
            if !matches!(function.to_lowercase().as_str(), "generate_series" | "pg_catalog.generate_series") {
                return Err(SqlError::unsupported(format!("function {function} in FROM")));
            }
            let mut arguments = Vec::new();
            for arg in args.args {
                match arg {
                    ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(node)) => {
                        arguments.push(expr::expr(places, node)?);
                    }
                    _ => return Err(SqlError::unsupported("this argument of generate_series")),
                }
            }
            if !(2..=3).contains(&arguments.len()) {
                let message = format!("generate_series with {} arguments", arguments.len());
                return Err(SqlError::unsupported(message));
            }
            let alias = match alias {
                None => Name { text: "generate_series".to_string(), position: None },
                Some(alias) if alias.columns.is_empty() && alias.at.is_none() => places.alias(&alias.name)?,
                Some(alias)
                    if alias.columns.len() == 1
                        && alias.at.is_none()
                        && alias.columns[0].data_type.is_none() =>
                {
                    places.alias(&alias.columns[0].name)?
                }
                Some(_) => return Err(SqlError::unsupported("this alias of generate_series")),
            };
            Ok(Source::Series { arguments, alias })
        }
        relation => {
            let (table, alias) = table(places, relation)?;
            Ok(Source::Table { table, alias })
        }
    }
}

/// A plain table with an optional alias.
fn table(places: &Places<'_>, relation: TableFactor) -> Result<(Name, Option<Name>)> {
    match relation {
        TableFactor::Table {
            name,
            alias,
            args: None,
            with_hints,
            version: None,
            with_ordinality: false,
            partitions,
            json_path: None,
            sample,
            index_hints,
        } if with_hints.is_empty() && partitions.is_empty() && index_hints.is_empty() => {
            if sample.is_some() {
                return Err(SqlError::unsupported("TABLESAMPLE"));
            }
            let alias = match alias {
                Some(alias) if !alias.columns.is_empty() || alias.at.is_some() => {
                    return Err(SqlError::unsupported("an alias with column names"));
                }
                alias => alias.map(|alias| places.alias(&alias.name)).transpose()?,
            };
            Ok((places.object(&name)?, alias))
        }
        TableFactor::Derived { .. } => Err(SqlError::unsupported("a subquery in FROM")),
        TableFactor::NestedJoin { .. } => Err(SqlError::unsupported("JOIN")),
        TableFactor::Function { .. } | TableFactor::TableFunction { .. } => {
            Err(SqlError::unsupported("a function in FROM"))
        }
        TableFactor::UNNEST { .. } => Err(SqlError::unsupported("UNNEST")),
        _ => Err(SqlError::unsupported("this form of FROM")),
    }
}

fn order_by(places: &Places<'_>, order: Option<ast::OrderBy>) -> Result<Vec<OrderItem>> {
    let items = match order {
        None => return Ok(Vec::new()),
        Some(ast::OrderBy { kind: ast::OrderByKind::Expressions(items), interpolate: None }) => items,
        Some(_) => return Err(SqlError::unsupported("this form of ORDER BY")),
    };
    items
        .into_iter()
        .map(|item| {
            let descending = match item.options.sort {
                None | Some(ast::OrderBySort::Asc) => false,
                Some(ast::OrderBySort::Desc) => true,
                Some(_) => return Err(SqlError::unsupported("ORDER BY ... USING")),
            };
            left_over("ORDER BY", item.with_fill.is_none())?;
            let nulls_first = item.options.nulls_first.unwrap_or(descending);
            Ok(OrderItem { expr: expr::expr(places, item.expr)?, descending, nulls_first })
        })
        .collect()
}

pub(super) fn insert(places: &Places<'_>, mut insert: ast::Insert) -> Result<Insert> {
    if insert.on.is_some() {
        return Err(SqlError::unsupported("ON CONFLICT"));
    }
    let ast::TableObject::TableName(name) = &insert.table else {
        return Err(SqlError::unsupported("INSERT into a function"));
    };
    let table = places.object(name)?;
    let columns = std::mem::take(&mut insert.columns)
        .iter()
        .map(|column| match &column.0[..] {
            [ast::ObjectNamePart::Identifier(ident)] => Ok(places.name(ident)),
            _ => Err(SqlError::unsupported("a qualified column in INSERT")),
        })
        .collect::<Result<Vec<_>>>()?;
    let Some(query) = insert.source.take() else {
        return Err(SqlError::unsupported("INSERT ... DEFAULT VALUES"));
    };
    let returning = expr::items(places, insert.returning.take().unwrap_or_default())?;
    let smallest = &SMALLEST.insert;
    insert.table = smallest.table.clone();
    insert.source = smallest.source.clone();
    left_over("INSERT", insert == *smallest)?;
    let source = insert_source(places, *query)?;
    Ok(Insert { table, columns, source, returning })
}

fn insert_source(places: &Places<'_>, mut query: ast::Query) -> Result<InsertSource> {
    if !matches!(&*query.body, SetExpr::Values(_)) {
        let select = select(places, query)?;
        if matches!(select.source, Source::Table { .. }) {
            return Err(SqlError::unsupported("INSERT ... SELECT from a table"));
        }
        return Ok(InsertSource::Select(Box::new(select)));
    }
    let body = std::mem::replace(&mut *query.body, (*SMALLEST.query.body).clone());
    left_over("INSERT", query == SMALLEST.query)?;
    let SetExpr::Values(values) = body else { unreachable!("matched above") };
    left_over("VALUES", !values.explicit_row)?;
    let rows = values.rows.into_iter().map(|row| expr::exprs(places, row.content));
    Ok(InsertSource::Values(rows.collect::<Result<_>>()?))
}

pub(super) fn update(places: &Places<'_>, mut update: ast::Update) -> Result<Update> {
    if update.from.is_some() {
        return Err(SqlError::unsupported("UPDATE ... FROM"));
    }
    let smallest = &SMALLEST.update;
    let target = std::mem::replace(&mut update.table, smallest.table.clone());
    if !target.joins.is_empty() {
        return Err(SqlError::unsupported("JOIN"));
    }
    let (table, alias) = table(places, target.relation)?;
    let assignments = std::mem::replace(&mut update.assignments, smallest.assignments.clone())
        .into_iter()
        .map(|assignment| match assignment.target {
            ast::AssignmentTarget::ColumnName(name) => match &name.0[..] {
                [ast::ObjectNamePart::Identifier(ident)] => {
                    Ok((places.name(ident), expr::expr(places, assignment.value)?))
                }
                _ => Err(SqlError::unsupported("a qualified column in SET")),
            },
            ast::AssignmentTarget::Tuple(_) => Err(SqlError::unsupported("SET of several columns at once")),
        })
        .collect::<Result<Vec<_>>>()?;
    let filter = update.selection.take().map(|filter| expr::expr(places, filter)).transpose()?;
    let returning = expr::items(places, update.returning.take().unwrap_or_default())?;
    left_over("UPDATE", update == *smallest)?;
    Ok(Update { table, alias, assignments, filter, returning })
}

pub(super) fn delete(places: &Places<'_>, mut delete: ast::Delete) -> Result<Delete> {
    if delete.using.is_some() {
        return Err(SqlError::unsupported("DELETE ... USING"));
    }
    let smallest = &SMALLEST.delete;
    let ast::FromTable::WithFromKeyword(mut from) =
        std::mem::replace(&mut delete.from, smallest.from.clone())
    else {
        return Err(SqlError::unsupported("DELETE without FROM"));
    };
    if from.len() != 1 || !from[0].joins.is_empty() {
        return Err(SqlError::unsupported("DELETE from several tables"));
    }
    let (table, alias) = table(places, from.remove(0).relation)?;
    let filter = delete.selection.take().map(|filter| expr::expr(places, filter)).transpose()?;
    let returning = expr::items(places, delete.returning.take().unwrap_or_default())?;
    left_over("DELETE", delete == *smallest)?;
    Ok(Delete { table, alias, filter, returning })
}
