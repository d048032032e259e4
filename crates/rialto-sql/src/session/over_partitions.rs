//! The execution of statements over partitions ([`crate::partitions`]): each goes to the partitions that it concerns,
//! and their answers become one.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rialto::row::Value;
use rialto::{Error, TxOptions, fault_injection};

use super::block::Block;
use super::cache::PlanCache;
use super::execute::{Given, is_stale, tell_lines};
use super::{Session, Tag};
use crate::bind::Facts;
use crate::copy::CopyIn;
use crate::error::{Result, Severity, SqlError, SqlState};
use crate::expr::{Context, RowTexts};
use crate::parse::{Access, Name, Statement as Parsed};
use crate::partitions::{
    Answer, Arguments, CATALOG_LAG_MAX, Choices, EncodedRows, Header, Insert, Level, NotInserted, Opening,
    Over, PLACEMENT_TABLE, Part, PartitionNumber, Partitions, Placement, ReplicaReads, Savepoints, Sent,
    Spread, Statement, TakeMisplaced, Work, first_error, run_sent, unexpected,
};
use crate::prepared::{Kind, Prepared};
use crate::room::Room;
use crate::run::{self, Out, RowSink, Run};
use crate::values::array;

/// How often a victim's statement runs, if it is alone in its transaction.
const RUNS_MAX: u32 = 20;

impl Session {
    /// A session over partitions, for this user and database name. It reads its statements within the room that the
    /// other sessions of this room have left.
    pub fn over_partitions(
        partitions: Arc<dyn Partitions>,
        user: &str,
        name: &str,
        room: Arc<Room>,
    ) -> Session {
        let mut session = Session::beside_others(partitions.catalog(), user, name, room);
        let Facts { user, database } = session.facts.clone();
        let over = Over::new(partitions, Opening { user, database }, session.cancel.clone());
        session.over = Some(Box::new(over));
        session
    }

    /// Says that the next statement is the last one of its implicit block, because nothing follows it in its query
    /// string, or its Sync has come already. Then a session over partitions can have it committed in the message that
    /// brings it. Without this, it waits for [`Session::finish`]. In a session of one database nothing changes. It is
    /// in force until the next statement has run, or [`Session::finish`] or [`Session::fail`] was called.
    #[inline]
    pub fn announce_end(&mut self) {
        if let Some(over) = &mut self.over {
            over.next_is_last = true;
        }
    }

    /// Whether rows that the session gives were read from what is durable, as far as the client is to be told of them
    /// before their transaction has ended. Otherwise the caller makes sure of that before it sends them (I3).
    #[inline]
    pub fn gives_settled_rows(&self) -> bool {
        self.over.is_some()
    }

    /// Takes back what [`Session::announce_end`] has said.
    #[inline]
    pub(super) fn forget_announced_end(&mut self) {
        if let Some(over) = &mut self.over
            && !fault_injection::is_on("announced-end-stays")
        {
            over.next_is_last = false;
        }
    }

    /// Takes another catalog if the session's own was closed: its replica has begun to lead, has stopped leading, or
    /// has taken a copy. Plans are made again.
    #[inline]
    pub(super) fn renew_catalog(&mut self) {
        if let Some(over) = &self.over
            && !self.database.is_open()
        {
            self.database = over.partitions.catalog();
            self.cache = PlanCache::default();
            self.lifted = PlanCache::default();
            self.settled = None;
        }
    }

    /// Waits until the session's catalog has the definitions that were committed before this call; false if it has them
    /// anyway. Then what a statement names, and what was not found, is not there.
    ///
    /// # Errors
    /// 57014 if the statement is cancelled, or its time is up; 40001 if they do not come in time.
    pub(super) fn await_definitions(&mut self) -> Result<bool> {
        self.renew_catalog();
        let Some(over) = &self.over else { return Ok(false) };
        let wait = || over.partitions.await_definitions(&self.database, &|| self.cancel.check());
        let is_new = self.cancel.reading(wait)?;
        self.renew_catalog();
        Ok(is_new)
    }

    fn over(&mut self) -> &mut Over {
        self.over.as_mut().expect("the session is one over partitions")
    }

    fn branch_choices(&self) -> Choices {
        Choices::of(&self.choices(), self.settings.current().durability)
    }

    /// What each request of the next statement has.
    pub(super) fn header(&self) -> Header {
        let over = self.over.as_ref().expect("the session is one over partitions");
        let savepoints = match self.savepoints.first() {
            Some(first) => Savepoints { newest: self.savepoints_made, oldest: first.number },
            None => Savepoints::default(),
        };
        let is_last = over.next_is_last && self.is_alone() && !over.is_open();
        // In an explicit block the client is told at its end that what it has read is durable.
        let settle = self.block != Block::Explicit;
        Header { choices: self.branch_choices(), now: self.now, savepoints, settle, is_last, reads: None }
    }

    /// What a statement accepts of replicas that are not primaries, as the settings say: if it is one of a transaction that is
    /// read only, or a SELECT that is alone in its transaction. What a replica gives has level 2, so level 3 reads at
    /// primaries.
    fn replica_reads(&self, plan: &Prepared, header: &Header) -> Option<ReplicaReads> {
        let settings = self.settings.current();
        let staleness = settings.read_staleness.filter(|_| settings.durability != Some(Level::Disk))?;
        let only_reads = match &plan.kind {
            _ if self.settings.access() == Access::ReadOnly => true,
            Kind::Select(select) => header.is_last && !select.bound.for_update,
            _ => false,
        };
        only_reads.then(|| ReplicaReads { staleness, after: settings.read_after.clone() })
    }

    /// Positions after what the session's last transaction has written ([`Partitions::positions`]).
    pub(super) fn commit_position(&mut self) -> Result<String> {
        match &self.over {
            Some(over) => over.commit_position().map(|positions| positions.to_string()),
            None => Ok(String::new()),
        }
    }

    /// The header, in a transaction over partitions that has changed definitions.
    #[inline]
    pub(super) fn header_where_defined(&self) -> Option<Header> {
        (self.over.is_some() && self.defined).then(|| self.header())
    }

    pub(super) fn commit_over(&mut self) -> Result<()> {
        let (choices, defined) = (self.branch_choices(), self.defined);
        let version = self.database.catalog_version();
        let committed = self.over().commit(&choices, defined);
        if defined && committed.is_ok() {
            self.await_catalog(version);
        }
        self.close_block();
        self.end_settings(committed.is_ok());
        committed
    }

    /// Waits until the catalog has heard of definitions that were committed, so that the client's next statement finds them.
    /// If they have changed nothing in effect, or the catalog is very late, that takes [`CATALOG_AWAITED`].
    fn await_catalog(&self, before: u64) {
        let began = Instant::now();
        while self.database.catalog_version() == before
            && self.database.is_open()
            && began.elapsed() < CATALOG_AWAITED
        {
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn abort_over(&mut self) -> Result<()> {
        let choices = self.branch_choices();
        self.over().abort(&choices)
    }

    pub(super) fn settle_over(&mut self) -> Result<()> {
        let choices = self.branch_choices();
        self.over().settle(&choices)
    }

    pub(super) fn roll_back_over(&mut self, savepoint: u64) -> Result<()> {
        if self.over().has_lost_branches {
            let message = "the transaction was ended by the error: it can only be rolled back as a whole";
            return Err(SqlError::new(SqlState::InFailedTransaction, message));
        }
        let header = self.header();
        // It also takes back the cancellation that may have led here.
        self.over().clear_cancellation();
        self.over().roll_back_to(&header, savepoint)
    }

    /// Runs a statement.
    pub(super) fn execute_over(
        &mut self,
        prepared: &Prepared,
        given: Given<'_>,
        sink: &mut dyn RowSink,
    ) -> Result<Tag> {
        let header = self.header();
        self.over().next_is_last = false;
        if let Kind::Utility(statement) = &prepared.kind {
            sink.begin(prepared)?;
            return self.utility_over(prepared, statement, given, &header, sink);
        }
        let since = Instant::now();
        let mut fresh = None;
        loop {
            let known_current = match &fresh {
                None => self.is_current(prepared)?,
                Some(_) => true,
            };
            if !known_current {
                fresh = Some(self.renewed(prepared, given, sink)?);
            }
            let (plan, params) = match &fresh {
                None => (prepared, given.params),
                Some((plan, params)) => (&**plan, *params),
            };
            if let Kind::Explain(_) = &plan.kind {
                return tell_lines(plan, sink);
            }
            self.check_writes(plan)?;
            let literals = given.lifted_from.or_else(|| fresh_literals(prepared, given));
            let answer = self.run_over(plan, params, literals, &header, sink);
            match answer {
                Err(error) if is_stale(&error) => self.catch_up(error, since)?,
                answer => return answer,
            }
            fresh = Some(self.renewed(prepared, given, sink)?);
        }
    }

    /// After an error of a definition that is out of date: waits a little for the catalog, so that the statement can be
    /// planned again. If a branch has done its part already, it is taken back with the whole transaction, if nothing
    /// else is in that.
    ///
    /// # Errors
    /// The transaction has done something before, or the catalog lacks the definition for too long.
    fn catch_up(&mut self, error: SqlError, since: Instant) -> Result<()> {
        self.over().forget_known();
        self.cancel.check()?;
        let is_alone = self.block != Block::Explicit && self.statements == 0 && !self.defined;
        if is_alone {
            self.abort_over()?;
            self.over().has_lost_branches = false;
        }
        if !is_alone || since.elapsed() > CATALOG_LAG_MAX {
            if error.sqlstate == SqlState::UndefinedTable {
                return Err(SqlError { cause: None, ..error });
            }
            let message = "the definition of a table has changed while the transaction ran";
            return Err(SqlError { message: message.to_owned(), cause: None, ..error }.hint("Run it again."));
        }
        thread::sleep(Duration::from_millis(1));
        Ok(())
    }

    /// As `execute_again`, over partitions.
    pub(super) fn execute_over_again(
        &mut self,
        mut answer: Result<Tag>,
        prepared: &Prepared,
        given: Given<'_>,
        sink: &mut dyn RowSink,
    ) -> Result<Tag> {
        for run in 1..RUNS_MAX {
            let is_victim = answer.as_ref().is_err_and(SqlError::is_deadlock);
            if !is_victim || self.block != Block::Implicit || self.statements > 0 || !sink.restart() {
                break;
            }
            self.abort_over()?;
            self.over().has_lost_branches = false;
            self.defined = false;
            self.cancel.check()?;
            thread::sleep(Duration::from_micros(50 << run.min(10)));
            answer = self.execute_once(prepared, given, sink);
        }
        answer
    }

    /// Runs a plan.
    fn run_over(
        &mut self,
        plan: &Prepared,
        params: &[Value],
        literals: Option<&str>,
        header: &Header,
        sink: &mut dyn RowSink,
    ) -> Result<Tag> {
        let cancel = self.cancel.clone();
        let texts = RowTexts::default();
        let arrays = array::read_arguments(&plan.params, params)?;
        let context =
            Context { params, arrays: &arrays, now: self.now, count: 0, texts: &texts, cancel: &cancel };
        let Some((table, schema)) = plan.table() else { return self.run_here(plan, context, sink) };
        if plan.writes() || !READABLE.contains(&schema.table()) {
            refuse_system(schema.table())?;
        }
        sink.begin(plan)?;
        let mut header = Header { reads: self.replica_reads(plan, header), ..header.clone() };
        header.choices.read_only |= header.reads.is_some();
        let header = &header;
        let (database, defined) = (self.database.clone(), self.defined);
        let over = self.over();
        let known = over.known(&database, (table, schema), defined)?;
        let sent = Sent { plan, params, literals, header, context };
        let (tag, notices) = run_sent(over, &sent, &known, sink)?;
        self.take_in(notices);
        Ok(tag)
    }

    fn take_in(&mut self, notices: Vec<(Severity, SqlError)>) {
        self.notices.extend(notices);
    }

    /// Runs a statement without a table at this node.
    fn run_here(&mut self, plan: &Prepared, context: Context<'_>, sink: &mut dyn RowSink) -> Result<Tag> {
        let Kind::Select(select) = &plan.kind else { unreachable!("every other statement has a table") };
        sink.begin(plan)?;
        let options = TxOptions { read_only: true, ..self.choices() };
        let mut tx = self.database.begin_with(&options)?;
        self.cancel.set(Some(tx.canceller()));
        let ran = self.cancel.check().and_then(|()| {
            let mut run = Run { tx: &mut tx, out: Out { context, plan, sink } };
            run::select(&mut run, select)
        });
        drop(tx);
        self.over().restore_canceller();
        Ok(Tag::Rows("SELECT", ran?))
    }

    fn utility_over(
        &mut self,
        plan: &Prepared,
        statement: &Parsed,
        given: Given<'_>,
        header: &Header,
        sink: &mut dyn RowSink,
    ) -> Result<Tag> {
        match statement {
            Parsed::AlterSystem(..) | Parsed::Backup { .. } | Parsed::ArchiveLog => Err(SqlError::new(
                SqlState::FeatureNotSupported,
                "this statement is about one partition's database",
            )
            .hint("docs/partitions.md says what can be done instead.")),
            Parsed::Maintain { tables, .. } => {
                for name in tables {
                    self.find_settled(name)?;
                }
                self.utility(plan, &without_tables(statement), sink)
            }
            Parsed::Truncate(_)
            | Parsed::DropTable { .. }
            | Parsed::DropIndex { .. }
            | Parsed::AddPrimaryKey { .. }
            | Parsed::SetResidence { .. }
            | Parsed::CreateTable(_)
            | Parsed::CreateIndex(_) => {
                if self.settings.access() == Access::ReadOnly {
                    return Err(Error::ReadOnly.into());
                }
                self.define_over(plan, statement, given, header)
            }
            other => self.utility(plan, other, sink),
        }
    }

    /// Runs a definition in all partitions: in the first one, and then in the others. So two definitions, or a
    /// definition and a transaction that has locks everywhere, wait for each other in one partition.
    fn define_over(
        &mut self,
        plan: &Prepared,
        statement: &Parsed,
        given: Given<'_>,
        header: &Header,
    ) -> Result<Tag> {
        let header = Header { is_last: false, ..header.clone() };
        match statement {
            Parsed::DropTable { names, .. } | Parsed::Truncate(names) => {
                names.iter().try_for_each(|name| refuse_system(&name.text))?;
            }
            Parsed::CreateTable(table) => refuse_system(&table.name.text)?,
            Parsed::CreateIndex(index) => refuse_system(&index.table.text)?,
            Parsed::AddPrimaryKey { table, .. } | Parsed::SetResidence { table, .. } => {
                refuse_system(&table.text)?
            }
            _ => {}
        }
        // The rows of a table without a key get places by the new one.
        let moved = match statement {
            Parsed::AddPrimaryKey { table, .. } if self.over().count() > 1 => {
                let found = self.find_settled(table)?;
                let (database, defined) = (self.database.clone(), self.defined);
                let known = self.over().known(&database, (&found, &found.schema()), defined)?;
                (known.placement == Placement::Anywhere).then_some(table)
            }
            _ => None,
        };
        let text = given.lifted_from.unwrap_or(&plan.text).to_owned();
        let statement = Statement { text, arguments: Arguments::Literals, part: Part::Whole, expects: None };
        let all = self.over().all();
        let (first, others) = all.split_at(1);
        let work = |partition: &PartitionNumber| (*partition, Work::Statement(statement.clone()));
        // From here on, names mean what they mean in the branches.
        self.defined = true;
        let over = self.over();
        let mut answers = first_error(over.run(&header, first.iter().map(work).collect(), false)?)?;
        if !others.is_empty() {
            first_error(over.run(&header, others.iter().map(work).collect(), false)?)?;
        }
        let Some(Answer::Done { notices, .. }) = answers.pop() else { return Err(unexpected()) };
        self.take_in(notices.into_iter().map(|notice| (notice.severity(), notice.told.into())).collect());
        if let Some(table) = moved {
            self.repartition(table, &header)?;
        }
        Ok(Tag::Word(tag_of(plan)))
    }

    /// Moves the rows of a table to where its new key sends them.
    fn repartition(&mut self, table: &Name, header: &Header) -> Result<()> {
        let cancel = self.cancel.clone();
        let over = self.over();
        let found = over.defined_table(header, table)?;
        let schema = found.schema();
        let database = self.database.clone();
        let over = self.over();
        let known = over.known(&database, (&found, &schema), true)?;
        let count = over.count();
        let mut spread = Spread::new(table.text.clone(), schema.clone(), known.clone(), over);
        for here in over.all() {
            let mut after = None;
            loop {
                cancel.check()?;
                let step =
                    TakeMisplaced { table: table.text.clone(), expects: known.digest, here, count, after };
                let mut answers =
                    first_error(over.run(header, vec![(here, Work::TakeMisplaced(step))], false)?)?;
                let Some(Answer::Misplaced { rows, last }) = answers.pop() else { return Err(unexpected()) };
                rows.iter().for_each(|row| spread.push_encoded(row));
                spread.send(over, header, false).map_err(|NotInserted { error, .. }| not_unique(*error))?;
                after = last;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// As [`Session::begin_copy`], over partitions.
    pub(super) fn begin_copy_over(&mut self, prepared: &Prepared) -> Result<CopyIn> {
        self.over().next_is_last = false;
        self.check_writes(prepared)?;
        if let Some((_, schema)) = prepared.table() {
            refuse_system(schema.table())?;
        }
        self.cancel.begin_running();
        let copy = self.copy_over(prepared);
        copy.map_err(|mut error| {
            self.cancel.name_cause(&mut error);
            error
        })
    }

    /// Plans a COPY for the definition that the partitions have. No other transaction changes it until the end of this
    /// one: a branch has the table's lock.
    fn copy_over(&mut self, prepared: &Prepared) -> Result<CopyIn> {
        let header = Header { is_last: false, ..self.header() };
        let since = Instant::now();
        let mut fresh = match self.is_current(prepared)? {
            true => None,
            false => Some(self.renew(prepared)?),
        };
        loop {
            let plan = fresh.as_deref().unwrap_or(prepared);
            let no_copy = || SqlError::new(SqlState::Internal, "the statement is no COPY");
            let copy = CopyIn::new(plan).ok_or_else(no_copy)?;
            let (table, schema) = plan.table().ok_or_else(no_copy)?;
            let (database, defined) = (self.database.clone(), self.defined);
            let over = self.over();
            let known = over.known(&database, (table, schema), defined)?;
            let no_rows = Insert { table: table.name(), expects: known.digest, rows: EncodedRows::default() };
            let locked = over.run(&header, vec![(over.handiest(), Work::Insert(no_rows))], false)?;
            match first_error(locked) {
                Ok(_) => return Ok(copy.over(Spread::new(table.name(), schema.clone(), known, over))),
                Err(error) if is_stale(&error) => self.catch_up(error, since)?,
                Err(error) => return Err(error),
            }
            fresh = Some(self.renew(plan)?);
        }
    }
}

/// The text of a statement whose literals were its arguments, for one that was planned again.
fn fresh_literals<'a>(prepared: &'a Prepared, given: Given<'_>) -> Option<&'a str> {
    (given.params.is_empty() && prepared.params.is_empty() && prepared.declared.is_empty())
        .then_some(&prepared.text)
}

/// VACUUM or ANALYZE, after its tables were found.
fn without_tables(statement: &Parsed) -> Parsed {
    match statement {
        Parsed::Maintain { command, .. } => Parsed::Maintain { command, tables: Vec::new() },
        other => other.clone(),
    }
}

fn tag_of(plan: &Prepared) -> &'static str {
    match &plan.kind {
        Kind::Utility(Parsed::Truncate(_)) => "TRUNCATE TABLE",
        Kind::Utility(Parsed::DropTable { .. }) => "DROP TABLE",
        Kind::Utility(Parsed::DropIndex { .. }) => "DROP INDEX",
        Kind::Utility(Parsed::CreateTable(_)) => "CREATE TABLE",
        Kind::Utility(Parsed::CreateIndex(_)) => "CREATE INDEX",
        _ => "ALTER TABLE",
    }
}

/// The error of rows with equal keys in two partitions, as a new key meets them.
fn not_unique(mut error: SqlError) -> SqlError {
    if error.sqlstate == SqlState::UniqueViolation {
        let name = error.about.as_ref().and_then(|about| about.constraint.clone()).unwrap_or_default();
        error.message = format!("could not create unique index \"{name}\"");
        error.detail = error.detail.map(|detail| detail.replace("already exists.", "is duplicated."));
    }
    error
}

/// System tables that clients may read. Reads lock rows, and those of other tables are written by commits that must not wait.
const READABLE: [&str; 1] = [PLACEMENT_TABLE];

/// How long the end of a transaction waits for its definitions in the session's catalog.
const CATALOG_AWAITED: Duration = Duration::from_secs(2);

/// Refuses the use of a table that is each partition's own.
fn refuse_system(table: &str) -> Result<()> {
    match table.starts_with("rialto_") {
        true => Err(SqlError::unsupported(format!("the use of the system table \"{table}\""))),
        false => Ok(()),
    }
}
