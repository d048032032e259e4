//! [`run_sent`]: SELECT, INSERT, UPDATE, DELETE and COPY over partitions. Each goes to the partitions that it concerns,
//! and their answers become one.

use std::ops::ControlFlow;
use std::sync::Arc;

use rialto::fault_injection;
use rialto::row::{Schema, Value};

use super::gather::{Gathered, Wanted};
use super::known::KnownTable;
use super::message::{Arguments, Part, PartitionNumber, Statement};
use super::over::{Header, Over, unexpected};
use super::placement::Placement;
use super::routing::{Concerned, concerned};
use super::spread::Spread;
use super::wire::Cells;
use crate::bind::{BoundInsert, BoundSelect, BoundUpdate, RowSource};
use crate::error::{Result, Severity, SqlError, SqlState};
use crate::expr::{Columns, Context, Expr, NoColumns};
use crate::parse::CopyDirection;
use crate::prepared::{CopyPlan, DeletePlan, Kind, Prepared, SelectPlan, UpdatePlan};
use crate::run::{self, Out, RowSink};
use crate::session::Tag;
use crate::values::SqlType;

/// Rows are sent when RETURNING gives so many bytes of them.
const RETURNED_BYTES_MAX: usize = 1 << 20;

/// A statement with its arguments, as it is sent.
pub(crate) struct Sent<'a> {
    pub(crate) plan: &'a Prepared,
    pub(crate) params: &'a [Value],
    /// The text with literals, if these are the arguments.
    pub(crate) literals: Option<&'a str>,
    pub(crate) header: &'a Header,
    pub(crate) context: Context<'a>,
}

impl Sent<'_> {
    fn statement(&self, part: Part, known: Option<&KnownTable>) -> Statement {
        let arguments = match self.literals {
            Some(_) => Arguments::Literals,
            None => Arguments::Given {
                declared: self.plan.declared.iter().map(|sql_type| oid(*sql_type)).collect(),
                values: Cells(self.params.to_vec()),
            },
        };
        let text = self.literals.unwrap_or(&self.plan.text).to_owned();
        Statement { text, arguments, part, expects: known.map(|known| known.digest) }
    }
}

fn oid(sql_type: SqlType) -> u32 {
    if sql_type == SqlType::Unknown { 0 } else { sql_type.oid() }
}

/// Runs a plan that has a table. Gives the tag, and what the client is told beside.
pub(crate) fn run_sent(
    over: &mut Over,
    sent: &Sent<'_>,
    known: &Arc<KnownTable>,
    sink: &mut dyn RowSink,
) -> Result<(Tag, Vec<(Severity, SqlError)>)> {
    let alone = |tag| Ok((tag, Vec::new()));
    match &sent.plan.kind {
        Kind::Select(plan) => alone(Tag::Rows("SELECT", select(over, sent, plan, known, sink)?)),
        Kind::Insert(plan) => alone(Tag::Rows("INSERT 0", insert(over, sent, plan, known, sink)?)),
        Kind::Update(UpdatePlan { bound, .. }) => {
            refuse_routing(bound, known)?;
            let (rows, notices) = change(over, sent, &bound.schema, &bound.filter, known, sink)?;
            Ok((Tag::Rows("UPDATE", rows), notices))
        }
        Kind::Delete(DeletePlan { bound, .. }) => {
            let (rows, notices) = change(over, sent, &bound.schema, &bound.filter, known, sink)?;
            Ok((Tag::Rows("DELETE", rows), notices))
        }
        Kind::Copy(CopyPlan { options, .. }) if options.direction == CopyDirection::ToStdout => {
            alone(Tag::Rows("COPY", copy_out(over, sent, known, sink)?))
        }
        Kind::Copy(_) => {
            let message = "COPY FROM STDIN needs a client that sends its data";
            Err(SqlError::new(SqlState::ProtocolViolation, message))
        }
        Kind::Explain(_) | Kind::Utility(_) => unreachable!("the session answers them itself"),
    }
}

fn refuse_routing(bound: &BoundUpdate, known: &KnownTable) -> Result<()> {
    match bound.assignments.iter().find(|(column, _)| known.routes_by(*column)) {
        None => Ok(()),
        Some((column, _)) => {
            let name = &bound.schema.columns()[*column].name;
            Err(SqlError::unsupported(format!(
                "UPDATE of column \"{name}\", by which the rows of table \"{}\" are partitioned,",
                bound.schema.table()
            ))
            .hint("Delete the row and insert it with its new value."))
        }
    }
}

fn concerned_by(
    over: &Over,
    sent: &Sent<'_>,
    schema: &Schema,
    filter: &[Expr],
    known: &KnownTable,
) -> Concerned {
    let places = (over.count(), over.handiest());
    concerned(&known.placement, schema, filter, sent.context, places)
}

/// Runs a SELECT from a table. Gives the number of rows.
fn select(
    over: &mut Over,
    sent: &Sent<'_>,
    plan: &SelectPlan,
    known: &KnownTable,
    sink: &mut dyn RowSink,
) -> Result<u64> {
    let bound = &plan.bound;
    let RowSource::Table(_, schema) = &bound.source else { unreachable!("the statement has a table") };
    let partitions = match concerned_by(over, sent, schema, &bound.filter, known) {
        Concerned::Several(partitions) => partitions,
        Concerned::One(partition) => return pass(over, sent, partition, known, sink),
        // The locks of FOR UPDATE have to meet those of others, so they are taken in one partition.
        Concerned::Any if bound.for_update => return pass(over, sent, PartitionNumber::FIRST, known, sink),
        Concerned::Any => return pass(over, sent, over.handiest(), known, sink),
    };
    let window = run::window(sent.context, bound)?;
    if bound.counts {
        return count(over, sent, bound, &partitions, known, sink);
    }
    let skip = if fault_injection::is_on("offset-in-each-partition") { 0 } else { window.skip };
    let take = skip.saturating_add(window.take);
    let take = (take < u64::MAX).then_some(take);
    if window.take == 0 {
        // The answer depends on the definition only.
        let statement = sent.statement(Part::Rows { take: Some(0), keys: false }, Some(known));
        let visit = |_| Ok(ControlFlow::Continue(()));
        Gathered::of(over, sent.header, (&partitions[..1], &statement), Wanted::InTurn, visit)?;
        return Ok(0);
    }
    let keys = !bound.order.is_empty();
    let statement = sent.statement(Part::Rows { take, keys }, Some(known));
    let wanted = if keys { Wanted::Merged(&bound.order) } else { Wanted::InTurn };
    let (mut passed, mut given) = (0, 0);
    Gathered::of(over, sent.header, (&partitions, &statement), wanted, |values| {
        passed += 1;
        if passed <= window.skip {
            return Ok(ControlFlow::Continue(()));
        }
        sent.context.cancel.check()?;
        sink.row(sent.plan, &values)?;
        given += 1;
        Ok(if given >= window.take { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(given)
}

/// Adds up the numbers of rows in several partitions, and gives the row of the sum.
fn count(
    over: &mut Over,
    sent: &Sent<'_>,
    bound: &BoundSelect,
    partitions: &[PartitionNumber],
    known: &KnownTable,
    sink: &mut dyn RowSink,
) -> Result<u64> {
    let window = run::window(sent.context, bound)?;
    let mut sum = 0;
    let statement = sent.statement(Part::Count, Some(known));
    Gathered::of(over, sent.header, (partitions, &statement), Wanted::InTurn, |values| {
        match values[..] {
            [Value::Int8(count)] => sum += count,
            _ => return Err(unexpected()),
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if window.skip > 0 || window.take == 0 {
        return Ok(0);
    }
    let context = Context { count: sum, ..sent.context };
    Out { context, plan: sent.plan, sink }.send(&bound.items, &NoColumns)?;
    Ok(1)
}

/// Ends the statement after a cancel request. One that is alone may have been committed with its last rows, and its branch
/// looks at such requests before that.
fn check_open(header: &Header, context: Context<'_>) -> Result<()> {
    if header.is_last { Ok(()) } else { context.cancel.check() }
}

/// Runs a whole statement in one partition. Gives the number for its tag.
fn pass(
    over: &mut Over,
    sent: &Sent<'_>,
    partition: PartitionNumber,
    known: &KnownTable,
    sink: &mut dyn RowSink,
) -> Result<u64> {
    let statement = sent.statement(Part::Whole, Some(known));
    let gathered = Gathered::of(over, sent.header, (&[partition], &statement), Wanted::InTurn, |values| {
        check_open(sent.header, sent.context)?;
        sink.row(sent.plan, &values)?;
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(gathered.affected[0])
}

/// Runs an UPDATE or a DELETE. Gives the number of rows, and the notices.
fn change(
    over: &mut Over,
    sent: &Sent<'_>,
    schema: &Schema,
    filter: &[Expr],
    known: &KnownTable,
    sink: &mut dyn RowSink,
) -> Result<(u64, Vec<(Severity, SqlError)>)> {
    let statement = sent.statement(Part::Whole, Some(known));
    let (first, others) = match concerned_by(over, sent, schema, filter, known) {
        Concerned::One(partition) => (vec![partition], Vec::new()),
        Concerned::Several(partitions) => (partitions, Vec::new()),
        // In the first partition two such statements wait for each other, and not in two partitions in turn.
        Concerned::Any => {
            let all = over.all();
            (all[..1].to_vec(), all[1..].to_vec())
        }
    };
    let header = Header { is_last: sent.header.is_last && others.is_empty(), ..sent.header.clone() };
    let others = if fault_injection::is_on("replicas-are-left-out") { Vec::new() } else { others };
    let mut rows = Vec::new();
    let gathered = Gathered::of(over, &header, (&first, &statement), Wanted::InTurn, |values| {
        check_open(&header, sent.context)?;
        match others.is_empty() {
            true => sink.row(sent.plan, &values)?,
            // They are given when all partitions have changed theirs.
            false => rows.push(values),
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if !others.is_empty() {
        Gathered::of(over, &header, (&others, &statement), Wanted::InTurn, |_| {
            Ok(ControlFlow::Continue(()))
        })?;
        rows.iter().try_for_each(|values| sink.row(sent.plan, values))?;
    }
    let notices = gathered.notices.into_iter().map(|notice| (notice.severity(), notice.told.into()));
    Ok((gathered.affected.iter().sum(), notices.collect()))
}

/// Runs an INSERT: its rows are computed here. Gives their number.
fn insert(
    over: &mut Over,
    sent: &Sent<'_>,
    plan: &BoundInsert,
    known: &Arc<KnownTable>,
    sink: &mut dyn RowSink,
) -> Result<u64> {
    let mut rows = Rows {
        spread: Spread::new(plan.table.name(), plan.schema.clone(), known.clone(), over),
        over,
        sent,
        plan,
        returned: Collect::default(),
        values: Vec::new(),
        count: 0,
    };
    let computed = rows.compute(sink);
    // The rows before one that cannot be computed may have errors of their own, which come first.
    rows.send(computed.is_ok(), sink)?;
    computed.map(|()| rows.count)
}

/// The rows of an INSERT.
struct Rows<'a, 'o> {
    over: &'o mut Over,
    sent: &'a Sent<'a>,
    plan: &'a BoundInsert,
    spread: Spread,
    /// What RETURNING gives of rows that wait.
    returned: Collect,
    values: Vec<Value>,
    count: u64,
}

impl Rows<'_, '_> {
    /// Computes all rows. Some of them may wait to be sent.
    fn compute(&mut self, sink: &mut dyn RowSink) -> Result<()> {
        let context = self.sent.context;
        match &self.plan.source {
            RowSource::Series(bounds, sql_type) => {
                let (mut nothing, plan) = (Collect::default(), self.plan);
                let mut out = Out { context, plan: self.sent.plan, sink: &mut nothing };
                run::series(&mut out, bounds, *sql_type, |_, row| {
                    context.cancel.check()?;
                    if run::holds(&plan.filter, row, context)? {
                        self.row(&plan.rows[0], row)?;
                        self.send_if_full(sink)?;
                    }
                    Ok(ControlFlow::Continue(()))
                })
            }
            _ => {
                for row in &self.plan.rows {
                    if run::holds(&self.plan.filter, &NoColumns, context)? {
                        self.row(row, &NoColumns)?;
                        self.send_if_full(sink)?;
                    }
                }
                Ok(())
            }
        }
    }

    fn row<C: Columns + ?Sized>(&mut self, exprs: &[Expr], row: &C) -> Result<()> {
        let Rows { sent, plan, spread, values, .. } = self;
        run::evaluate(plan, exprs, row, sent.context, values)?;
        spread.push(values)?;
        self.count += 1;
        if !plan.returning.is_empty() {
            let mut out = Out { context: sent.context, plan: sent.plan, sink: &mut self.returned };
            out.send(&plan.returning, &self.values[..])?;
        }
        Ok(())
    }

    fn send_if_full(&mut self, sink: &mut dyn RowSink) -> Result<()> {
        if self.spread.is_full() || self.returned.bytes >= RETURNED_BYTES_MAX {
            self.send(false, sink)
        } else {
            Ok(())
        }
    }

    fn send(&mut self, is_end: bool, sink: &mut dyn RowSink) -> Result<()> {
        self.spread.send(self.over, self.sent.header, is_end).map_err(|not_inserted| *not_inserted.error)?;
        self.returned.bytes = 0;
        self.returned.rows.drain(..).try_for_each(|values| sink.row(self.sent.plan, &values))
    }
}

/// Rows that wait.
#[derive(Default)]
struct Collect {
    rows: Vec<Vec<Value>>,
    bytes: usize,
}

impl RowSink for Collect {
    fn row(&mut self, _plan: &Prepared, values: &[Value]) -> Result<()> {
        self.bytes += run::bytes_of(values) + size_of_val(values);
        self.rows.push(values.to_vec());
        Ok(())
    }

    fn restart(&mut self) -> bool {
        false
    }
}

/// Runs a COPY to the client. Gives the number of rows.
fn copy_out(over: &mut Over, sent: &Sent<'_>, known: &KnownTable, sink: &mut dyn RowSink) -> Result<u64> {
    let partitions = match &known.placement {
        Placement::Replicated => vec![over.handiest()],
        Placement::By(_) | Placement::Anywhere => over.all(),
    };
    let statement = sent.statement(Part::Whole, Some(known));
    let gathered = Gathered::of(over, sent.header, (&partitions, &statement), Wanted::InTurn, |values| {
        sent.context.cancel.check()?;
        sink.row(sent.plan, &values)?;
        Ok(ControlFlow::Continue(()))
    })?;
    sink.end(sent.plan)?;
    Ok(gathered.affected.iter().sum())
}
