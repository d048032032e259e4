//! [`Prepared`]: a statement that is ready to run, and the tables it depends on.

use std::sync::Arc;

use rialto::row::Schema;
use rialto::{Database, ProcedureId, Table};

use crate::bind::{
    self, Binder, BoundDelete, BoundInsert, BoundSelect, BoundUpdate, Facts, OutputColumn, RowSource,
};
use crate::cancel::Cancel;
use crate::copy::Forced;
use crate::error::{Result, SqlError, SqlState};
use crate::parse::{self, CopyDirection, CopyFormat, ForceQuote, Literal, Name, Statement};
use crate::plan::{self, Access, Path};
use crate::values::SqlType;

/// A SELECT that is ready to run.
pub struct SelectPlan {
    /// The bound statement.
    pub bound: BoundSelect,
    /// How rows are found; `None` without a table.
    pub access: Option<Access>,
    /// Whether rows are sent as they are found and unchanged: no count, LIMIT, OFFSET or FOR UPDATE.
    pub plain: bool,
}

/// An UPDATE that is ready to run.
pub struct UpdatePlan {
    /// The bound statement.
    pub bound: BoundUpdate,
    /// How rows are found.
    pub access: Access,
    /// Whether the row can be changed in place: it is found by its key alone, the changed columns are fixed and outside
    /// every index, and nothing is returned.
    pub in_place: bool,
}

/// A DELETE that is ready to run.
pub struct DeletePlan {
    /// The bound statement.
    pub bound: BoundDelete,
    /// How rows are found.
    pub access: Access,
}

/// A COPY that is ready to run.
pub struct CopyPlan {
    /// The table.
    pub table: Table,
    /// Its schema.
    pub schema: Arc<Schema>,
    /// The columns, in the order of the data.
    pub columns: Vec<usize>,
    /// The same, with names and types.
    pub output: Vec<OutputColumn>,
    /// For each of a CSV's columns, its options.
    pub forced: Vec<Forced>,
    /// The statement's options.
    pub options: parse::Copy,
}

/// An EXPLAIN that is ready to run.
pub struct Explained {
    /// The lines to answer.
    pub lines: Vec<String>,
    /// The table that they describe, and its schema.
    table: Option<(Table, Arc<Schema>)>,
}

/// The kinds of statement.
pub enum Kind {
    /// SELECT.
    Select(SelectPlan),
    /// INSERT.
    Insert(BoundInsert),
    /// UPDATE.
    Update(UpdatePlan),
    /// DELETE.
    Delete(DeletePlan),
    /// EXPLAIN.
    Explain(Explained),
    /// COPY.
    Copy(CopyPlan),
    /// Everything else.
    Utility(Statement),
}

impl Kind {
    /// The table, and its schema.
    fn table(&self) -> Option<(&Table, &Arc<Schema>)> {
        match self {
            Kind::Select(plan) => match &plan.bound.source {
                RowSource::Table(table, schema) => Some((table, schema)),
                _ => None,
            },
            Kind::Insert(plan) => Some((&plan.table, &plan.schema)),
            Kind::Update(plan) => Some((&plan.bound.table, &plan.bound.schema)),
            Kind::Delete(plan) => Some((&plan.bound.table, &plan.bound.schema)),
            Kind::Copy(plan) => Some((&plan.table, &plan.schema)),
            Kind::Explain(explained) => explained.table.as_ref().map(|(table, schema)| (table, schema)),
            Kind::Utility(_) => None,
        }
    }
}

/// A statement that is ready to run.
pub struct Prepared {
    /// Its text.
    pub text: Arc<str>,
    /// The types of its parameters as the client gave them.
    pub declared: Vec<SqlType>,
    /// The types of its parameters.
    pub params: Vec<SqlType>,
    /// The columns of its result; empty if it returns no rows.
    pub columns: Vec<OutputColumn>,
    /// The kind of the statement, with its plan.
    pub kind: Kind,
    /// The catalog that the plan was made for.
    pub catalog: CatalogState,
    /// The account of statements of its kind on its table; without a table, that of transactions without a name.
    pub procedure: ProcedureId,
    /// About how many bytes all of this takes, with the definition of its table but not the rows.
    pub bytes: usize,
}

/// What a plan assumes about the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatalogState {
    /// The catalog as it was committed at this version.
    Committed(u64),
    /// The catalog as changed by the transaction in which the plan was made: good for one execution.
    Private,
}

impl Prepared {
    /// The table and the schema that the plan was made for.
    pub fn table(&self) -> Option<(&Table, &Arc<Schema>)> {
        self.kind.table()
    }

    /// Sets the account for its command and table.
    pub fn take_account(&mut self, database: &Database) {
        let command = match &self.kind {
            Kind::Select(_) => "SELECT",
            Kind::Insert(_) => "INSERT",
            Kind::Update(_) => "UPDATE",
            Kind::Delete(_) => "DELETE",
            Kind::Copy(_) => "COPY",
            Kind::Explain(_) | Kind::Utility(_) => return,
        };
        if let Some((table, _)) = self.kind.table() {
            self.procedure = database.procedure_id(&format!("{command} {}", table.name()));
        }
    }

    /// Whether the result names existing tables, columns or indexes.
    pub fn tells_of_tables(&self) -> bool {
        self.table().is_some()
    }

    /// The columns of the rows that running it gives: the result's, or those of a COPY.
    pub fn row_columns(&self) -> &[OutputColumn] {
        match &self.kind {
            Kind::Copy(plan) => &plan.output,
            _ => &self.columns,
        }
    }

    /// Whether it is a COPY whose data are in binary form.
    pub fn copies_binary(&self) -> bool {
        matches!(&self.kind, Kind::Copy(plan) if plan.options.format == CopyFormat::Binary)
    }

    /// The direction of a COPY and the number of its columns.
    pub fn copy(&self) -> Option<(CopyDirection, usize)> {
        match &self.kind {
            Kind::Copy(plan) => Some((plan.options.direction, plan.columns.len())),
            _ => None,
        }
    }

    /// Whether the statement is one that a read-only transaction always refuses.
    #[inline]
    pub fn writes(&self) -> bool {
        match &self.kind {
            Kind::Insert(_) | Kind::Update(_) | Kind::Delete(_) => true,
            Kind::Copy(plan) => plan.options.direction == CopyDirection::FromStdin,
            Kind::Select(_) | Kind::Explain(_) | Kind::Utility(_) => false,
        }
    }

    /// Whether the statement ends or repairs a failed transaction, and is therefore allowed in one.
    pub fn is_allowed_when_failed(&self) -> bool {
        matches!(
            &self.kind,
            Kind::Utility(Statement::Commit | Statement::Rollback | Statement::RollbackTo(_))
        )
    }
}

/// Binds and plans a parsed statement. The client fixes some types of parameters; `None` if it gives no arguments.
/// `lookup` finds tables.
pub fn prepare(
    text: &str,
    statement: Statement,
    declared: Option<&[SqlType]>,
    (facts, cancel): (&Facts, &Cancel),
    catalog: CatalogState,
    lookup: &mut dyn FnMut(&Name) -> Result<Table>,
) -> Result<Prepared> {
    if let Statement::Explain(inner) = statement {
        let inner = prepare(text, *inner, declared, (facts, cancel), catalog, lookup)?;
        let table = inner.table().map(|(table, schema)| (table.clone(), schema.clone()));
        if let Some((table, _)) = &table {
            // The plan may show an index that is younger than the first lookup: an open transaction depends on that,
            // too.
            let _ = lookup(&Name { text: table.name(), position: None });
        }
        let columns = vec![OutputColumn { name: "QUERY PLAN".to_string(), sql_type: SqlType::Text }];
        let lines = explain(&inner);
        let bytes = inner.bytes + lines.iter().map(|line| size_of::<String>() + line.len()).sum::<usize>();
        return Ok(Prepared { columns, kind: Kind::Explain(Explained { lines, table }), bytes, ..inner });
    }
    let mut binder = Binder::new(declared, facts, cancel);
    let (kind, columns) = bind(&mut binder, statement, lookup)?;
    let declared = declared.unwrap_or_default().to_vec();
    let bytes = plan_bytes(text, &kind, &binder) + declared.len() * size_of::<SqlType>();
    let params = binder.into_params()?;
    Ok(Prepared {
        text: text.into(),
        declared,
        params,
        columns,
        kind,
        catalog,
        procedure: ProcedureId::default(),
        bytes,
    })
}

/// As [`prepare`], with parameters in place of the text's literals; and whether that changes only when an error is
/// found (see [`Binder::is_sound`]).
pub fn prepare_lifted(
    text: &str,
    statement: Statement,
    literals: &[Literal],
    (facts, cancel): (&Facts, &Cancel),
    catalog: CatalogState,
    lookup: &mut dyn FnMut(&Name) -> Result<Table>,
) -> Result<(Prepared, bool)> {
    let mut binder = Binder::lifting(literals, facts, cancel);
    let (kind, columns) = bind(&mut binder, statement, lookup)?;
    let sound = binder.is_sound();
    let bytes = plan_bytes(text, &kind, &binder);
    let (params, declared) = (binder.into_params()?, Vec::new());
    let procedure = ProcedureId::default();
    Ok((Prepared { text: text.into(), declared, params, columns, kind, catalog, procedure, bytes }, sound))
}

/// About how many bytes a plan takes: its text; what is bound, and that once more for the conditions of an access path,
/// if it has one; and the definition of its table. The table may have been dropped, and then the plan alone keeps the
/// definition.
fn plan_bytes(text: &str, kind: &Kind, binder: &Binder<'_>) -> usize {
    let more = match kind {
        Kind::Select(_) | Kind::Update(_) | Kind::Delete(_) => binder.bytes(),
        Kind::Utility(statement) => text.len() + statement.bytes(),
        Kind::Insert(_) | Kind::Explain(_) | Kind::Copy(_) => 0,
    };
    let definition = kind.table().map_or(0, |(_, schema)| schema.bytes());
    size_of::<Prepared>() + text.len() + binder.bytes() + more + definition
}

/// Binds and plans a statement. Gives its kind, and the columns of the result.
fn bind(
    binder: &mut Binder<'_>,
    statement: Statement,
    lookup: &mut dyn FnMut(&Name) -> Result<Table>,
) -> Result<(Kind, Vec<OutputColumn>)> {
    Ok(match statement {
        Statement::Select(select) => {
            let (bound, columns) = bind::bind_select(binder, &select, lookup)?;
            (Kind::Select(select_plan(bound)), columns)
        }
        Statement::Insert(insert) => {
            let (bound, columns) = bind::bind_insert(binder, &insert, lookup)?;
            (Kind::Insert(bound), columns)
        }
        Statement::Update(update) => {
            let (bound, columns) = bind::bind_update(binder, &update, lookup)?;
            (Kind::Update(update_plan(bound)), columns)
        }
        Statement::Delete(delete) => {
            let (bound, columns) = bind::bind_delete(binder, &delete, lookup)?;
            let access = plan::choose(&bound.schema, &bound.filter, &[], false);
            (Kind::Delete(DeletePlan { bound, access }), columns)
        }
        Statement::Copy(options) => {
            let table = lookup(&options.table)?;
            let schema = table.schema();
            let columns: Vec<usize> = match options.columns[..] {
                [] => (0..schema.columns().len()).collect(),
                _ => bind::column_positions(&schema, &options.columns)?,
            };
            let mut output = Vec::with_capacity(columns.len());
            for column in columns.iter().map(|column| &schema.columns()[*column]) {
                binder.take(size_of::<usize>() + size_of::<Name>() + size_of::<OutputColumn>())?;
                binder.take(2 * column.name.len())?;
                let sql_type = SqlType::of_column(column.ty);
                output.push(OutputColumn { name: column.name.clone(), sql_type });
            }
            let forced = forced(binder, &schema, &columns, &options)?;
            (Kind::Copy(CopyPlan { table, schema, columns, output, forced, options }), Vec::new())
        }
        Statement::Show(name) => {
            let columns = crate::session::show_columns(name.as_ref())?;
            (Kind::Utility(Statement::Show(name)), columns)
        }
        other => (Kind::Utility(other), Vec::new()),
    })
}

/// Sets an option of a column.
type Force = fn(&mut Forced);

/// The options of each column of a COPY.
fn forced(
    binder: &mut Binder<'_>,
    schema: &Schema,
    columns: &[usize],
    options: &parse::Copy,
) -> Result<Vec<Forced>> {
    let quote = match &options.force_quote {
        ForceQuote::Columns(names) => names,
        ForceQuote::All => &Vec::new(),
    };
    let lists: [(&str, &[Name], Force); 3] = [
        ("FORCE_QUOTE", quote, |forced| forced.quote = true),
        ("FORCE_NULL", &options.force_null, |forced| forced.null = true),
        ("FORCE_NOT_NULL", &options.force_not_null, |forced| forced.not_null = true),
    ];
    let all = options.force_quote == ForceQuote::All;
    if !all && lists.iter().all(|(_, names, _)| names.is_empty()) {
        return Ok(Vec::new());
    }
    binder.take(columns.len() * size_of::<Forced>())?;
    let mut forced = vec![Forced { quote: all, ..Forced::default() }; columns.len()];
    for (option, names, force) in lists {
        binder.take(std::mem::size_of_val(names))?;
        for (name, column) in names.iter().zip(bind::column_positions(schema, names)?) {
            binder.take(name.text.len())?;
            let Some(place) = columns.iter().position(|copied| *copied == column) else {
                let message = format!("{option} column \"{}\" not referenced by COPY", name.text);
                return Err(SqlError::new(SqlState::InvalidColumnReference, message).at(name.position));
            };
            force(&mut forced[place]);
        }
    }
    Ok(forced)
}

/// The plan of a bound SELECT.
pub(crate) fn select_plan(bound: BoundSelect) -> SelectPlan {
    let access = match &bound.source {
        RowSource::Table(_, schema) => {
            Some(plan::choose(schema, &bound.filter, &bound.order, bound.limit.is_some()))
        }
        _ => None,
    };
    let plain = !bound.counts && bound.limit.is_none() && bound.offset.is_none() && !bound.for_update;
    SelectPlan { bound, access, plain }
}

fn update_plan(bound: BoundUpdate) -> UpdatePlan {
    let access = plan::choose(&bound.schema, &bound.filter, &[], false);
    let schema = &bound.schema;
    let indexed = |column: &usize| {
        schema.primary_key().is_some_and(|key| key.contains(column))
            || schema.indexes().iter().any(|index| index.columns.contains(column))
    };
    let in_place = matches!(access.path, Path::Point(_))
        && access.rest.is_empty()
        && bound.returning.is_empty()
        && bound
            .assignments
            .iter()
            .all(|(column, _)| schema.fixed_field(*column).is_some() && !indexed(column));
    UpdatePlan { bound, access, in_place }
}

fn explain(prepared: &Prepared) -> Vec<String> {
    let indent = |lines: Vec<String>| lines.into_iter().map(|line| format!("  {line}"));
    match &prepared.kind {
        Kind::Select(plan) => {
            let mut lines = Vec::new();
            if plan.bound.limit.is_some() || plan.bound.offset.is_some() {
                lines.push("Limit".to_string());
            }
            if plan.bound.counts {
                lines.push("Count rows".to_string());
            }
            match (&plan.access, &plan.bound.source) {
                (Some(access), RowSource::Table(_, schema)) => {
                    if !access.ordered {
                        lines.push("Sort".to_string());
                    }
                    lines.extend(access.explain(schema));
                }
                (_, RowSource::Series(..)) => lines.push("Series".to_string()),
                _ => lines.push("One row".to_string()),
            }
            lines
        }
        Kind::Insert(plan) => vec![match plan.source {
            RowSource::Series(..) => format!("Insert into {} from a series", plan.table.name()),
            _ => format!("Insert {} into {}", rows(plan.rows.len()), plan.table.name()),
        }],
        Kind::Update(plan) => {
            let place = if plan.in_place { " in place" } else { "" };
            let mut lines = vec![format!("Update{place} of {}", plan.bound.table.name())];
            lines.extend(indent(plan.access.explain(&plan.bound.schema)));
            lines
        }
        Kind::Delete(plan) => {
            let mut lines = vec![format!("Delete from {}", plan.bound.table.name())];
            lines.extend(indent(plan.access.explain(&plan.bound.schema)));
            lines
        }
        Kind::Explain(_) | Kind::Copy(_) | Kind::Utility(_) => Vec::new(),
    }
}

fn rows(count: usize) -> String {
    if count == 1 { "1 row".to_string() } else { format!("{count} rows") }
}

/// Looks a table up, with the place of its name in the error.
pub fn find_table<T>(name: &Name, found: rialto::Result<T>) -> Result<T> {
    found.map_err(|error| match error {
        rialto::Error::NoSuchTable { .. } => {
            let message = format!("relation \"{}\" does not exist", name.text);
            SqlError::new(SqlState::UndefinedTable, message).at(name.position)
        }
        other => SqlError::from(other),
    })
}
