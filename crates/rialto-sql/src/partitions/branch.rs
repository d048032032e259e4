//! [`BranchSession`]: one transaction's part in one partition; [`BranchPool`]: what stays between transactions.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;
use rialto::row::{RowView, Value};
use rialto::{
    Canceller, Database, Durability, Error, KeyBound, Savepoint, Scan, ScanMode, Table, Ticket, Transaction,
    fault_injection,
};

use super::known::{KnownTable, KnownTables, definition};
use super::message::{
    Answer, Arguments, Choices, EncodedRows, Insert, Notice, Opening, Part, PartitionNumber, Reply, Run,
    Savepoints, Statement, TakeMisplaced, Work,
};
use super::partial::{Partials, arguments};
use super::placement::{Placement, partition_of, placement};
use super::wire::{Cells, Told};
use crate::cancel::Cancel;
use crate::error::{Result, Severity, SqlError, SqlState};
use crate::prepared::{Kind, Prepared};
use crate::run::RowSink;
use crate::session::{Session, Tag};
use crate::values::SqlType;

/// A portion has at most so many bytes of rows, or one row.
const PORTION_BYTES: usize = 256 << 10;

/// What a branch does after a portion of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It gives the next one: there was a [`Request::Fetch`](super::Request::Fetch).
    Fetch,
    /// It ends the statement: there was a [`Request::Close`](super::Request::Close).
    Close,
}

/// Takes the portions of a result.
pub trait Portions {
    /// Sends a reply with [`Answer::More`], and waits for the request that follows. It is called on the branch's own
    /// thread, while its statement runs: the branch keeps its locks meanwhile.
    ///
    /// # Errors
    /// The session has gone: then the branch is to be aborted.
    fn give(&mut self, reply: Reply) -> Result<Next>;
}

/// Ends what a branch runs, or its next request: see [`CancelBranches`](super::CancelBranches).
#[derive(Clone)]
pub struct BranchCanceller {
    canceller: Canceller,
    cancel: Arc<Cancel>,
}

impl BranchCanceller {
    /// Ends the request that runs, or that runs next, with SQLSTATE 57014. It stays in force until
    /// [`BranchSession::clear_cancellation`], or until the session goes back to a savepoint.
    pub fn cancel(&self) {
        self.canceller.cancel();
        self.cancel.request();
    }
}

/// Sessions that are kept for later branches.
const IDLE_MAX: usize = 64;

/// Plans that are kept for statements with arguments. When there are more, all are forgotten.
const PLANS_MAX: usize = 64;

/// Opens the branches of one partition. Their sessions, and so the plans of their statements, are kept for later
/// transactions of the same user.
pub struct BranchPool {
    database: Database,
    idle: Mutex<Vec<Kept>>,
}

/// What stays of a branch.
struct Kept {
    opening: Opening,
    session: Session,
    known: KnownTables,
    /// Plans by text, for statements with arguments.
    plans: HashMap<String, Arc<Prepared>>,
    partials: Partials,
}

impl BranchPool {
    /// For the partition of this database.
    pub fn new(database: Database) -> Arc<BranchPool> {
        Arc::new(BranchPool { database, idle: Mutex::default() })
    }

    /// The partition's database.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Opens a branch for its first request.
    ///
    /// # Errors
    /// Those of [`Database::begin_with`].
    pub fn begin(self: &Arc<BranchPool>, opening: &Opening, first: &Run) -> Result<BranchSession> {
        let mut tx = self.database.begin_with(&first.choices.options(first.then_commit))?;
        let canceller = tx.canceller();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let found = idle.iter().rposition(|kept| kept.opening == *opening).map(|at| idle.swap_remove(at));
        drop(idle);
        let mut kept = found.unwrap_or_else(|| Kept {
            opening: opening.clone(),
            session: Session::for_branches(self.database.clone(), opening),
            known: KnownTables::default(),
            plans: HashMap::new(),
            partials: Partials::default(),
        });
        kept.session.open_branch(tx);
        let canceller = BranchCanceller { canceller, cancel: kept.session.cancel() };
        Ok(BranchSession {
            pool: self.clone(),
            kept: Some(kept),
            canceller,
            choices: first.choices.clone(),
            savepoints: Vec::new(),
            has_written: false,
        })
    }
}

/// A transaction's part in one partition: an open transaction of that partition's database, and a session that runs
/// statements in it. [`BranchPool::begin`] opens it.
///
/// The thread that it belongs to gives it requests by [`BranchSession::run`], one after the other, and then ends it by
/// one of [`commit`](BranchSession::commit), [`submit`](BranchSession::submit), [`prepare`](BranchSession::prepare) and
/// [`abort`](BranchSession::abort). If it is dropped, it is aborted.
pub struct BranchSession {
    pool: Arc<BranchPool>,
    /// Taken when the branch is dropped.
    kept: Option<Kept>,
    canceller: BranchCanceller,
    /// The choices that the kernel's transaction has.
    choices: Choices,
    /// The savepoints that were made, with the number of the session's newest one by then.
    savepoints: Vec<(u64, Savepoint)>,
    has_written: bool,
}

impl Drop for BranchSession {
    fn drop(&mut self) {
        let Some(mut kept) = self.kept.take() else { return };
        kept.session.abandon();
        let mut idle = self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(kept);
        }
    }
}

impl BranchSession {
    /// Ends what the branch runs, from another thread.
    pub fn canceller(&self) -> BranchCanceller {
        self.canceller.clone()
    }

    /// Takes a cancellation back.
    pub fn clear_cancellation(&mut self) {
        if let Ok(tx) = self.transaction() {
            tx.clear_cancellation();
        }
    }

    /// Whether the branch has written anything, or may have: an error may have come in the middle of a statement.
    pub fn has_written(&self) -> bool {
        self.has_written
    }

    /// What the branch has read: the ticket tells when that is durable at its level.
    ///
    /// # Errors
    /// The branch is over.
    pub fn settled(&mut self) -> Result<Ticket> {
        Ok(self.transaction()?.settled())
    }

    /// The kernel's transaction. The branch is over.
    ///
    /// # Errors
    /// An error has ended the transaction before.
    pub fn into_transaction(mut self) -> Result<Transaction<'static>> {
        Ok(self.session().take_transaction().ok_or(Error::Closed)?)
    }

    /// Prepares the branch: [`Transaction::prepare`].
    ///
    /// # Errors
    /// As there. The branch is aborted then.
    pub fn prepare(self, name: &str, note: &[u8]) -> Result<()> {
        Ok(self.into_transaction()?.prepare(name, note)?)
    }

    /// Commits the branch: [`Transaction::submit`]. The ticket tells the place in the log, and when it is durable.
    ///
    /// # Errors
    /// As there. The branch is aborted then.
    pub fn submit(self) -> Result<Ticket> {
        Ok(self.into_transaction()?.submit()?)
    }

    /// Commits the branch, and waits until that is durable at its level: [`Transaction::commit`].
    ///
    /// # Errors
    /// As there. The branch is aborted then, or its outcome is unknown.
    pub fn commit(self) -> Result<()> {
        Ok(self.into_transaction()?.commit()?)
    }

    /// Aborts the branch, and waits until what it has read is durable: [`Transaction::abort`].
    ///
    /// # Errors
    /// What it has read will never be durable.
    pub fn abort(mut self) -> Result<()> {
        match self.session().take_transaction() {
            Some(tx) => Ok(tx.abort()?),
            None => Ok(()),
        }
    }

    /// Does some work. [`Run::then_commit`] is left to the caller, which ends the branch before it sends the reply.
    /// After an error the branch has what it has done so far: it is to be aborted, or to go back to a savepoint.
    pub fn run(&mut self, run: Run, portions: &mut dyn Portions) -> Reply {
        let mut row = None;
        let answer = self.answer(run, portions, &mut row);
        let answer = answer.map_err(|error| Told { row, ..Told::from(&error) });
        Reply { answer, has_written: self.has_written }
    }

    fn answer(&mut self, run: Run, portions: &mut dyn Portions, row: &mut Option<u64>) -> Result<Answer> {
        if let Work::RollbackTo(number) = run.work {
            self.roll_back_to(number)?;
        }
        self.choose(&run)?;
        self.make_savepoint(run.savepoints)?;
        let settle = run.settle;
        match run.work {
            Work::Statement(statement) => {
                let answer = self.statement(&statement, (run.now, settle), portions)?;
                // The commit waits for that, too.
                let has_rows = matches!(&answer, Answer::Done { rows, .. } if !rows.is_empty());
                if settle && !run.then_commit && has_rows {
                    self.settled()?.wait()?;
                }
                Ok(answer)
            }
            Work::Insert(insert) => self.insert(&insert, row),
            Work::Definition(name) => self.definition(&name),
            Work::TakeMisplaced(step) => self.take_misplaced(&step),
            Work::RollbackTo(_) => Ok(done(0)),
        }
    }

    fn kept(&mut self) -> &mut Kept {
        self.kept.as_mut().expect("it is there until the branch is dropped")
    }

    fn session(&mut self) -> &mut Session {
        &mut self.kept().session
    }

    fn transaction(&mut self) -> Result<&mut Transaction<'static>> {
        Ok(self.session().branch_transaction().ok_or(Error::Closed)?)
    }

    fn choose(&mut self, run: &Run) -> Result<()> {
        if self.choices != run.choices {
            self.transaction()?.choose(&run.choices.options(run.then_commit))?;
            self.choices = run.choices.clone();
        }
        Ok(())
    }

    /// Makes a savepoint if the session has made one since the last request.
    fn make_savepoint(&mut self, Savepoints { newest, oldest }: Savepoints) -> Result<()> {
        // Those of which all are released are not needed.
        if let (Some((_, mark)), Some((last, _))) = (self.savepoints.first(), self.savepoints.last())
            && (oldest == 0 || *last < oldest)
        {
            let mark = *mark;
            self.transaction()?.release_savepoint(mark)?;
            self.savepoints.clear();
        }
        if newest > self.savepoints.last().map_or(0, |(number, _)| *number) {
            let mark = self.transaction()?.savepoint();
            self.savepoints.push((newest, mark));
        }
        Ok(())
    }

    /// Goes back to before the first request after this savepoint.
    fn roll_back_to(&mut self, number: u64) -> Result<()> {
        let at = self.savepoints.partition_point(|(made, _)| *made < number);
        // The first savepoint of a branch that is younger than the session's.
        if at == 0 && fault_injection::is_on("younger-branch-outlives-a-savepoint") {
            return Ok(());
        }
        let mark = self.savepoints.get(at).map(|(_, mark)| *mark);
        self.savepoints.truncate(at + 1);
        let tx = self.transaction()?;
        tx.clear_cancellation();
        if let Some(mark) = mark {
            tx.rollback_to(&mark)?;
        }
        Ok(())
    }

    fn statement(
        &mut self,
        statement: &Statement,
        (now, settle): (i64, bool),
        portions: &mut dyn Portions,
    ) -> Result<Answer> {
        self.session().set_now(now);
        let (whole, values) = self.bound(statement).map_err(|error| match statement.expects {
            // The session knows the table: the partition has not heard of it yet.
            Some(_) if error.sqlstate == SqlState::UndefinedTable => {
                let cause = Error::TableChanged { table: error.message.clone() };
                SqlError { cause: Some(Box::new(cause)), ..error }
            }
            _ => error,
        })?;
        if let Some((table, schema)) = whole.table() {
            let known = self.known(table, schema)?;
            check(statement.expects, &known, table)?;
        }
        let plan = match statement.part {
            Part::Whole => whole,
            part => self.kept().partials.of(&whole, part)?,
        };
        let values = arguments(values, statement.part);
        let writes = plan.writes() || matches!(plan.kind, Kind::Utility(_));
        let written_before = self.has_written;
        self.has_written |= writes;
        let has_written = self.has_written;
        let settle = settle.then(|| (self.pool.database.clone(), self.choices.options(false).durability));
        let mut sink =
            PortionSink { portions, rows: Vec::new(), bytes: 0, has_written, settle, end: End::Open };
        let ran = self.session().execute(&plan, &values, &mut sink);
        let PortionSink { rows, end, .. } = sink;
        let (rows, tag) = match (ran, end) {
            (Ok(tag), _) => (rows, Some(tag)),
            (Err(_), End::Closed) => (Vec::new(), None),
            (Err(error), _) => return Err(error),
        };
        let affected = match tag {
            Some(Tag::Rows(_, rows)) => rows,
            _ => 0,
        };
        if let (Some(Tag::Rows(_, 0)), Kind::Update(_) | Kind::Delete(_)) = (tag, &plan.kind) {
            self.has_written = written_before;
        }
        if matches!(statement.arguments, Arguments::Literals) {
            self.session().reuse(values);
        }
        let notice = |(severity, error): (Severity, SqlError)| Notice {
            warns: severity == Severity::Warning,
            told: Told::from(&error),
        };
        let notices = self.session().take_notices().into_iter().map(notice).collect();
        Ok(Answer::Done { rows, affected, notices })
    }

    /// The plan of a statement, and its arguments.
    fn bound(&mut self, statement: &Statement) -> Result<(Arc<Prepared>, Vec<Value>)> {
        match &statement.arguments {
            Arguments::Literals => {
                let session = self.session();
                let read = session.read(&statement.text)?;
                Ok(session.prepare_read(&statement.text, read)?.into_parts())
            }
            Arguments::Given { declared, values } => {
                Ok((self.prepared(&statement.text, declared)?, values.0.clone()))
            }
        }
    }

    /// The plan of a statement with arguments.
    fn prepared(&mut self, text: &str, declared: &[u32]) -> Result<Arc<Prepared>> {
        let sql_type = |oid: &u32| {
            SqlType::from_oid(*oid).ok_or_else(|| {
                SqlError::new(
                    SqlState::Internal,
                    format!("a parameter has the type {oid}, which is not built"),
                )
            })
        };
        let declared: Vec<SqlType> = declared.iter().map(sql_type).collect::<Result<_>>()?;
        let Kept { session, plans, .. } = self.kept();
        if let Some(found) = plans.get(text)
            && found.declared == declared
            && session.is_plan_current(found)?
        {
            return Ok(found.clone());
        }
        let plan = session.prepare(text, &declared)?;
        if plans.len() >= PLANS_MAX {
            plans.clear();
        }
        plans.insert(text.to_owned(), plan.clone());
        Ok(plan)
    }

    fn known(&mut self, table: &Table, schema: &Arc<rialto::row::Schema>) -> Result<Arc<KnownTable>> {
        let Kept { session, known, .. } = self.kept();
        let tx = session.branch_transaction().ok_or(Error::Closed)?;
        known.get(table, schema, || placement(tx, schema))
    }

    /// The table of a request, if its definition is the one that the sender knows.
    fn table(&mut self, name: &str, expects: u64) -> Result<(Table, Arc<KnownTable>)> {
        let tx = self.transaction()?;
        let table = match tx.table_unlocked(name) {
            Err(Error::NoSuchTable { table }) => return Err(Error::TableChanged { table }.into()),
            found => found?,
        };
        let schema = table.schema();
        tx.lock_for_writes(&table, &schema)?;
        let known = self.known(&table, &schema)?;
        check(Some(expects), &known, &table)?;
        Ok((table, known))
    }

    fn insert(&mut self, insert: &Insert, row: &mut Option<u64>) -> Result<Answer> {
        let (table, _) = self.table(&insert.table, insert.expects)?;
        self.has_written |= !insert.rows.is_empty();
        let tx = self.transaction()?;
        for (number, bytes) in insert.rows.iter().enumerate() {
            *row = Some(number as u64);
            tx.insert_encoded(&table, bytes)?;
        }
        *row = None;
        Ok(done(insert.rows.len() as u64))
    }

    fn definition(&mut self, name: &str) -> Result<Answer> {
        let tx = self.transaction()?;
        let table = match tx.table_unlocked(name) {
            Err(Error::NoSuchTable { .. }) => return Ok(Answer::Definition(None)),
            found => found?,
        };
        let schema = table.schema();
        let placement = self.known(&table, &schema)?.placement.clone();
        Ok(Answer::Definition(Some(definition(&schema, placement))))
    }

    /// Deletes rows that belong to another partition, and gives them.
    fn take_misplaced(&mut self, step: &TakeMisplaced) -> Result<Answer> {
        let (table, known) = self.table(&step.table, step.expects)?;
        let schema = table.schema();
        let (Placement::By(routing), Some(key)) = (&known.placement, schema.primary_key()) else {
            let message = format!("the rows of table \"{}\" are not placed by a key", step.table);
            return Err(SqlError::new(SqlState::Internal, message));
        };
        let lower =
            step.after.as_ref().map_or(KeyBound::Unbounded, |after| KeyBound::Excluded(after.0.clone()));
        let scan = Scan { lower, mode: ScanMode::Update, ..Scan::all() };
        let (mut rows, mut keys) = (EncodedRows::default(), Vec::new());
        let mut last = None;
        let tx = self.transaction()?;
        tx.scan_planned(&table, &schema, &scan, |_, row| {
            if home(&row, routing, step.count) == step.here {
                return Ok(ControlFlow::Continue(()));
            }
            let values: Vec<Value> = key.iter().map(|column| row.get_ref(*column).to_value()).collect();
            rows.push(row.bytes());
            keys.push(values);
            if rows.bytes() < PORTION_BYTES {
                return Ok(ControlFlow::Continue(()));
            }
            last = keys.last().cloned();
            Ok(ControlFlow::Break(()))
        })?;
        for key in &keys {
            tx.delete(&table, &key[..])?;
        }
        self.has_written |= !keys.is_empty();
        Ok(Answer::Misplaced { rows, last: last.map(Cells) })
    }
}

/// The partition of a row.
pub(super) fn home(row: &RowView<'_>, routing: &[u32], count: u32) -> PartitionNumber {
    partition_of(routing.iter().map(|column| row.get_ref(*column as usize)), count)
}

fn done(affected: u64) -> Answer {
    Answer::Done { rows: Vec::new(), affected, notices: Vec::new() }
}

/// Checks that the sender of a request knows the table's definition.
fn check(expects: Option<u64>, known: &KnownTable, table: &Table) -> Result<()> {
    match expects {
        Some(digest) if digest != known.digest && !fault_injection::is_on("stale-definitions-run") => {
            Err(Error::TableChanged { table: table.name() }.into())
        }
        _ => Ok(()),
    }
}

/// Whether the statement was ended before its last row.
#[derive(PartialEq)]
enum End {
    Open,
    Closed,
}

/// Gives rows in portions.
struct PortionSink<'a> {
    portions: &'a mut dyn Portions,
    rows: Vec<Cells>,
    bytes: usize,
    has_written: bool,
    /// The database that has to be durable, and how much so, before the session is told of rows.
    settle: Option<(Database, Option<Durability>)>,
    end: End,
}

impl RowSink for PortionSink<'_> {
    fn tells_columns(&self) -> bool {
        true
    }

    fn row(&mut self, _plan: &Prepared, values: &[Value]) -> Result<()> {
        let bytes = values.iter().map(|value| match value {
            Value::Text(text) => size_of::<Value>() + text.len(),
            Value::Bytes(bytes) => size_of::<Value>() + bytes.len(),
            _ => size_of::<Value>(),
        });
        let bytes = bytes.sum::<usize>();
        // The last portion is the one that ends the statement, so a portion is given when the next row is there.
        if !self.rows.is_empty() && self.bytes + bytes > PORTION_BYTES {
            self.bytes = 0;
            // A running statement cannot say what it has read.
            if let Some((database, durability)) = &self.settle {
                database.settle(*durability)?;
            }
            let answer = Ok(Answer::More(std::mem::take(&mut self.rows)));
            if self.portions.give(Reply { answer, has_written: self.has_written })? == Next::Close {
                self.end = End::Closed;
                return Err(SqlError::new(SqlState::Cancelled, "no more rows are wanted"));
            }
        }
        self.bytes += bytes;
        self.rows.push(Cells(values.to_vec()));
        Ok(())
    }

    fn restart(&mut self) -> bool {
        false
    }
}
