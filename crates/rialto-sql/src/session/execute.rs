//! The execution of a statement, from its text to its completion: it is parsed or found in the cache, planned for the
//! current tables, and run.

use std::sync::Arc;

use rialto::row::{Schema, Value};
use rialto::{Database, Error, ProcedureId, Retries, ScanMode, Table, Transaction, fault_injection};

use super::block::{Block, in_failed_block};
use super::{ReadStatement, Ready, Session, Tag};
use crate::bind::Facts;
use crate::cancel::Cancel;
use crate::copy::{CopyIn, CopyTarget};
use crate::error::{Result, SqlError, SqlState};
use crate::expr::{Context, RowTexts};
use crate::parse::{self, Access, CopyDirection, Lifted, Literal, Name, Statement};
use crate::prepared::{self, CatalogState, Kind, Prepared};
use crate::run::{self, Out, RowSink, Run};
use crate::values::{SqlType, array, text};

/// The longest text whose literals are lifted, in bytes.
const LIFTED_TEXT_BYTES_MAX: usize = 256 << 10;

/// A larger room for literals and arguments is not kept for the next statement, because a session may be idle for long.
const ROOM_BYTES_MAX: usize = 64 << 10;

/// The input of a run of a statement.
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    pub(super) params: &'a [Value],
    /// See [`Ready::lifted_from`].
    pub(super) lifted_from: Option<&'a str>,
}

impl Session {
    /// Makes a statement ready to run. `declared` has the types of parameters that the client fixes.
    pub fn prepare(&mut self, text: &str, declared: &[SqlType]) -> Result<Arc<Prepared>> {
        self.renew_catalog();
        self.start_time()?;
        // A cached plan has only the parameters of its text.
        let open = declared.iter().all(|sql_type| *sql_type == SqlType::Unknown);
        if open
            && let Some(found) = self.cache.get(text)
            && declared.len() <= found.params.len()
        {
            return self.prepare_known(text, found, Some(declared));
        }
        self.prepare_parsed(text, self.parse(text)?, Some(declared))
    }

    /// Parses a statement that has no parameters, or finds it among those that were run before, with the same literals
    /// or with others.
    pub fn read(&mut self, text: &str) -> Result<ReadStatement> {
        self.renew_catalog();
        self.start_time()?;
        self.cancel.check_between()?;
        // A longer text is not kept without its literals, and lifting them would take more than the text.
        let lifts = text.len() <= LIFTED_TEXT_BYTES_MAX && self.lift.lift(text);
        let known = if lifts { self.lifted.get(&self.lift.key) } else { Some(None) };
        Ok(match known {
            Some(Some(plan)) => ReadStatement::Lifted(plan, std::mem::take(&mut self.lift)),
            Some(None) => {
                if self.lift.room() > ROOM_BYTES_MAX {
                    self.lift = Lifted::default();
                }
                match self.cache.get(text) {
                    Some(found) => ReadStatement::Known(found),
                    None => ReadStatement::Parsed(Box::new(self.parse(text)?), None),
                }
            }
            None => {
                let statement = Box::new(self.parse(text)?);
                ReadStatement::Parsed(statement, Some(std::mem::take(&mut self.lift)))
            }
        })
    }

    /// Makes a statement that was read ready to run.
    pub fn prepare_read<'t>(&mut self, text: &'t str, read: ReadStatement) -> Result<Ready<'t>> {
        match read {
            ReadStatement::Known(found) if found.params.is_empty() => {
                self.prepare_known(text, found, None).map(Ready::of)
            }
            ReadStatement::Known(_) => self.prepare_parsed(text, self.parse(text)?, None).map(Ready::of),
            ReadStatement::Lifted(plan, lifted) => {
                if self.failed {
                    return Err(in_failed_block());
                }
                if self.is_current(&plan)? {
                    if let Some(arguments) = self.arguments(&plan, &lifted, text) {
                        self.keep_room(lifted);
                        return Ok(Ready { prepared: plan, arguments, lifted_from: Some(text) });
                    }
                    return self.prepare_parsed(text, self.parse(text)?, None).map(Ready::of);
                }
                self.lifted.forget(&lifted.key);
                self.prepare_new(text, self.parse(text)?, lifted)
            }
            ReadStatement::Parsed(statement, Some(lifted)) => self.prepare_new(text, *statement, lifted),
            ReadStatement::Parsed(statement, None) => {
                self.prepare_parsed(text, *statement, None).map(Ready::of)
            }
        }
    }

    /// Makes a statement ready that was run before with the same literals.
    fn prepare_known(
        &mut self,
        text: &str,
        found: Arc<Prepared>,
        declared: Option<&[SqlType]>,
    ) -> Result<Arc<Prepared>> {
        if self.failed && !found.is_allowed_when_failed() {
            return Err(in_failed_block());
        }
        if self.is_current(&found)? {
            return Ok(found);
        }
        self.cache.forget(text);
        self.prepare_parsed(text, self.parse(text)?, declared)
    }

    /// Makes a parsed statement ready. If its plan fits statements that differ only in their literals, it is kept for
    /// these. If not, or if there is an error, the statement is bound as it stands, so that errors are those of its own
    /// text.
    fn prepare_new<'t>(&mut self, text: &'t str, statement: Statement, lifted: Lifted) -> Result<Ready<'t>> {
        if self.failed {
            return Err(in_failed_block());
        }
        let key: Arc<str> = lifted.key.as_str().into();
        let lifts = self.bind_lifted(text, statement.clone(), &lifted.literals);
        if let Err(cancelled) = &lifts
            && cancelled.sqlstate == SqlState::Cancelled
        {
            return Err(cancelled.clone());
        }
        if let Ok((plan, sound)) = lifts {
            let plan = sound.then(|| Arc::new(plan));
            if !self.defined {
                let bytes = plan.as_ref().map_or(0, |plan| plan.bytes);
                self.lifted.put(key, plan.clone(), bytes);
            }
            if let Some(plan) = plan
                && let Some(arguments) = self.arguments(&plan, &lifted, text)
            {
                self.keep_room(lifted);
                return Ok(Ready { prepared: plan, arguments, lifted_from: Some(text) });
            }
        }
        self.prepare_parsed(text, statement, None).map(Ready::of)
    }

    /// The values of a plan's parameters for the literals of this text; `None` if one of them is no value of its type.
    fn arguments(&mut self, plan: &Prepared, lifted: &Lifted, text: &str) -> Option<Vec<Value>> {
        let mut arguments = std::mem::take(&mut self.spare_arguments);
        for (literal, sql_type) in lifted.literals.iter().zip(&plan.params) {
            arguments.push(match literal.value(text) {
                Value::Text(value) => text::parse(*sql_type, &value).ok()?,
                value => value,
            });
        }
        Some(arguments)
    }

    /// Gives back the room of a statement's arguments.
    pub fn reuse(&mut self, mut arguments: Vec<Value>) {
        if arguments.capacity() * size_of::<Value>() <= ROOM_BYTES_MAX {
            arguments.clear();
            self.spare_arguments = arguments;
        }
    }

    /// Keeps the room that a text's literals were lifted into, for the next text.
    fn keep_room(&mut self, lifted: Lifted) {
        if lifted.room() <= ROOM_BYTES_MAX {
            self.lift = lifted;
        }
    }

    /// Binds a statement with its literals as parameters.
    fn bind_lifted(
        &mut self,
        text: &str,
        statement: Statement,
        literals: &[Literal],
    ) -> Result<(Prepared, bool)> {
        let catalog = self.catalog_state();
        let (mut prepared, is_sound) = self.bind(|facts, lookup| {
            prepared::prepare_lifted(text, statement, literals, facts, catalog, lookup)
        })?;
        prepared.take_account(&self.database);
        Ok((prepared, is_sound))
    }

    /// Binds and plans a statement. Without a transaction nothing waits later for what was found. So everything that
    /// was looked up, tables, columns and indexes, has to be durable when the plan is there, which is more than the
    /// names alone need (I3).
    fn bind<T>(
        &mut self,
        bind: impl FnOnce((&Facts, &Cancel), &mut dyn FnMut(&Name) -> Result<Table>) -> Result<T>,
    ) -> Result<T> {
        let durability = self.durability();
        let header = self.header_where_defined();
        let Session { tx, database, facts, cancel, over, .. } = self;
        let mut looked = false;
        let mut lookup = |name: &Name| match (&mut *over, &header) {
            (Some(over), Some(header)) => over.defined_table(header, name),
            _ => {
                looked = true;
                prepared::find_table(name, find(tx, database, name))
            }
        };
        let facts = (&*facts, &**cancel);
        let bound = cancel.reading(|| bind(facts, &mut lookup));
        self.has_looked_up = looked;
        let Session { tx, database, .. } = self;
        if looked && tx.is_none() {
            database.settle_definitions(durability)?;
        }
        bound
    }

    fn parse(&self, text: &str) -> Result<Statement> {
        self.cancel.reading(|| parse::parse_in(text, &self.reading_room, &self.cancel))
    }

    /// Reads the state of the catalog, before tables are looked up: a change in between makes the plan look old, never
    /// new.
    fn catalog_state(&self) -> CatalogState {
        match self.defined {
            true => CatalogState::Private,
            false => CatalogState::Committed(self.database.catalog_version()),
        }
    }

    /// Makes a parsed statement ready to run.
    fn prepare_parsed(
        &mut self,
        text: &str,
        statement: Statement,
        declared: Option<&[SqlType]>,
    ) -> Result<Arc<Prepared>> {
        let ends = matches!(statement, Statement::Commit | Statement::Rollback | Statement::RollbackTo(_));
        if self.failed && !ends {
            return Err(in_failed_block());
        }
        let mut prepared = match self.bind_parsed(text, statement, declared) {
            Err(error) if error.sqlstate.is_undefined() && self.has_looked_up => {
                match self.await_definitions()? {
                    true => self.bind_parsed(text, self.parse(text)?, declared)?,
                    false => return Err(error),
                }
            }
            bound => bound?,
        };
        let catalog = prepared.catalog;
        prepared.take_account(&self.database);
        let prepared = Arc::new(prepared);
        let open = prepared.declared.iter().all(|sql_type| *sql_type == SqlType::Unknown);
        if open && catalog != CatalogState::Private && !matches!(prepared.kind, Kind::Explain(_)) {
            self.cache.put(prepared.text.clone(), prepared.clone(), prepared.bytes);
        }
        Ok(prepared)
    }

    fn bind_parsed(
        &mut self,
        text: &str,
        statement: Statement,
        declared: Option<&[SqlType]>,
    ) -> Result<Prepared> {
        let catalog = self.catalog_state();
        self.bind(|facts, lookup| prepared::prepare(text, statement, declared, facts, catalog, lookup))
    }

    /// Plans again a statement that was planned for other tables.
    pub(super) fn renew(&mut self, prepared: &Prepared) -> Result<Arc<Prepared>> {
        self.cache.forget(&prepared.text);
        self.prepare(&prepared.text, &prepared.declared)
    }

    /// Whether the tables are still those of the plan.
    #[inline]
    pub(super) fn is_current(&mut self, prepared: &Prepared) -> Result<bool> {
        match prepared.catalog {
            CatalogState::Committed(version)
                if !self.defined && version == self.database.catalog_version() =>
            {
                self.settle_plan(prepared)?;
                Ok(true)
            }
            _ => self.is_still_current(prepared),
        }
    }

    /// Waits until the definitions that a plan shows are as durable as the session asks now. Invariant: a plan that was
    /// made, and awaited, at a lower level is shown at the level of the answer (I3).
    ///
    /// # Errors
    /// The definitions will never be durable.
    #[inline]
    pub fn settle_plan(&mut self, prepared: &Prepared) -> Result<()> {
        // Most statements come after a wait for the same definitions at the same level.
        let wanted = Some((self.database.definitions_place(), self.durability()));
        if self.settled != wanted && prepared.tells_of_tables() {
            self.database.settle_definitions(self.durability())?;
            self.settled = wanted;
        }
        Ok(())
    }

    /// As [`Session::is_current`], when the catalog has changed since the plan was made.
    #[cold]
    fn is_still_current(&mut self, prepared: &Prepared) -> Result<bool> {
        let Some((table, schema)) = prepared.table() else { return Ok(true) };
        match prepared.catalog {
            CatalogState::Committed(_) if !self.defined => self.is_unchanged(table, schema),
            _ => Ok(false),
        }
    }

    /// Whether this is the table of its name, as the open transaction sees it.
    fn is_unchanged(&mut self, table: &Table, schema: &Arc<Schema>) -> Result<bool> {
        let name = Name { text: table.name(), position: None };
        match self.find_settled(&name) {
            Ok(current) => Ok(current.id() == table.id() && Arc::ptr_eq(&current.schema(), schema)),
            Err(error) if error.sqlstate == SqlState::UndefinedTable => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Runs a statement with a client's arguments. Gives the text of CommandComplete. It may wait for locks, and waits
    /// for the log where it ends a transaction. After an error call [`Session::fail`].
    pub fn execute(&mut self, prepared: &Prepared, params: &[Value], sink: &mut dyn RowSink) -> Result<Tag> {
        self.execute_given(prepared, Given { params, lifted_from: None }, sink)
    }

    /// As [`Session::execute`], for a statement that [`Session::prepare_read`] has made ready.
    pub fn execute_ready(&mut self, ready: &Ready<'_>, sink: &mut dyn RowSink) -> Result<Tag> {
        let given = Given { params: &ready.arguments, lifted_from: ready.lifted_from };
        self.execute_given(&ready.prepared, given, sink)
    }

    fn execute_given(
        &mut self,
        prepared: &Prepared,
        given: Given<'_>,
        sink: &mut dyn RowSink,
    ) -> Result<Tag> {
        if self.failed && !prepared.is_allowed_when_failed() {
            return Err(in_failed_block());
        }
        self.renew_catalog();
        self.start_time()?;
        self.open_block();
        self.cancel.begin_running();
        // In a query string a request may have come after the last statement.
        let mut answer = self.cancel.check().and_then(|()| self.execute_once(prepared, given, sink));
        if let Err(error) = &answer
            && error.is_deadlock()
        {
            answer = self.execute_again(answer, prepared, given, sink);
        }
        self.cancel.end_running();
        self.statements += usize::from(answer.is_ok());
        if let Err(error) = &mut answer {
            self.cancel.name_cause(error);
        }
        self.stop_time();
        answer
    }

    /// After a deadlock: if the victim is the only statement of its implicit block, it runs again, by the kernel's
    /// policy ([`Retries`]).
    #[cold]
    fn execute_again(
        &mut self,
        mut answer: Result<Tag>,
        prepared: &Prepared,
        given: Given<'_>,
        sink: &mut dyn RowSink,
    ) -> Result<Tag> {
        if self.over.is_some() {
            return self.execute_over_again(answer, prepared, given, sink);
        }
        let mut retries = Retries::default();
        loop {
            let error = match &answer {
                Err(SqlError { cause: Some(error), .. }) if matches!(**error, Error::Deadlock { .. }) => {
                    error
                }
                _ => break,
            };
            if self.block != Block::Implicit || self.statements > 0 || !sink.restart() {
                break;
            }
            let Some(victim) = self.take_transaction() else { break };
            self.defined = false;
            let tx = self.database.begin_again(victim, (**error).clone(), &self.choices(), &mut retries)?;
            answer = self.opened(tx).and_then(|()| self.execute_once(prepared, given, sink));
        }
        answer
    }

    pub(super) fn execute_once(
        &mut self,
        prepared: &Prepared,
        given: Given<'_>,
        sink: &mut dyn RowSink,
    ) -> Result<Tag> {
        if self.over.is_some() {
            return self.execute_over(prepared, given, sink);
        }
        if let Kind::Utility(statement) = &prepared.kind {
            sink.begin(prepared)?;
            return self.utility(prepared, statement, sink);
        }
        if let Kind::Explain(_) = &prepared.kind {
            return self.explain(prepared, sink);
        }
        self.begin()?;
        self.check_writes(prepared)?;
        if self.is_current(prepared)? {
            let answer = self.run(prepared, given.params, sink);
            if !answer.as_ref().is_err_and(is_stale) {
                return answer;
            }
        }
        self.execute_renewed(prepared, given, sink)
    }

    /// Refuses a statement that writes in a read-only transaction, even if it has no row to write.
    #[inline]
    pub(super) fn check_writes(&self, prepared: &Prepared) -> Result<()> {
        match prepared.writes() && self.settings.access() == Access::ReadOnly {
            true => Err(Error::ReadOnly.into()),
            false => Ok(()),
        }
    }

    /// Tells the plan with which a statement would run now; and, if other statements are in the transaction, up to the
    /// end of it.
    fn explain(&mut self, prepared: &Prepared, sink: &mut dyn RowSink) -> Result<Tag> {
        let fresh = if prepared.tells_of_tables() && !self.is_alone() {
            self.begin()?;
            self.lock_planned(prepared, |plan, tx| match plan.table() {
                Some(planned) => run::stay_with_definition(tx, planned, ScanMode::Share),
                None => Ok(()),
            })?
            .0
        } else {
            self.renew_unless_current(prepared)?
        };
        tell_lines(fresh.as_deref().unwrap_or(prepared), sink)
    }

    /// A new plan, if the table has changed.
    fn renew_unless_current(&mut self, prepared: &Prepared) -> Result<Option<Arc<Prepared>>> {
        Ok(match self.is_current(prepared)? {
            true => None,
            false => Some(self.renew(prepared)?),
        })
    }

    /// Calls `lock` to lock the table of a plan in the open transaction. Makes new plans until one fits the table under
    /// the lock, and gives that.
    fn lock_planned<T>(
        &mut self,
        prepared: &Prepared,
        lock: impl Fn(&Prepared, &mut Transaction<'_>) -> Result<T>,
    ) -> Result<(Option<Arc<Prepared>>, T)> {
        let mut fresh = self.renew_unless_current(prepared)?;
        loop {
            let tx = self.tx.as_mut().expect("the transaction has begun");
            match lock(fresh.as_deref().unwrap_or(prepared), tx) {
                Err(error) if is_stale(&error) => {}
                locked => return locked.map(|locked| (fresh, locked)),
            }
            self.cancel.check()?;
            fresh = Some(self.renew(prepared)?);
        }
    }

    /// Runs a plan that is out of date, made again. The table may change between the look at the catalog and the first
    /// lock on the table. The kernel detects that under the lock, before the statement has read or written a row. Then
    /// the plan is made once more, for the table as it is by then. Literals that were lifted may have other types in
    /// it, so their text is bound as it is.
    #[cold]
    fn execute_renewed(
        &mut self,
        prepared: &Prepared,
        given: Given<'_>,
        sink: &mut dyn RowSink,
    ) -> Result<Tag> {
        if self.is_branch {
            return self.run_in_branch(prepared, given.params, sink);
        }
        loop {
            let (fresh, params) = self.renewed(prepared, given, sink)?;
            let answer = self.run(&fresh, params, sink);
            if !answer.as_ref().is_err_and(is_stale) || self.is_good(&fresh)? {
                return answer;
            }
            self.cancel.check()?;
        }
    }

    /// The plan made again, and the arguments for it.
    ///
    /// # Errors
    /// SQLSTATE 0A000 if it gives other columns than the client was told.
    pub(super) fn renewed<'g>(
        &mut self,
        prepared: &Prepared,
        given: Given<'g>,
        sink: &dyn RowSink,
    ) -> Result<(Arc<Prepared>, &'g [Value])> {
        let (fresh, params) = match given.lifted_from {
            Some(text) => (self.prepare_parsed(text, self.parse(text)?, None)?, &[][..]),
            None => (self.renew(prepared)?, given.params),
        };
        let params_stay = given.lifted_from.is_some() || fresh.params == prepared.params;
        let columns_stay = sink.tells_columns() || fresh.columns == prepared.columns;
        let may_run = columns_stay && params_stay || fault_injection::is_on("plan-changes-its-columns");
        match may_run {
            true => Ok((fresh, params)),
            false => {
                let message = "cached plan must not change result type";
                Err(SqlError::new(SqlState::FeatureNotSupported, message))
            }
        }
    }

    /// Checks that tables exist, for a statement whose answer says so. If there are several tables, or other statements
    /// in the transaction, the tables stay unchanged until the end.
    pub(super) fn find_to_tell(&mut self, names: &[Name]) -> Result<()> {
        if let ([name], true) = (names, self.is_alone()) {
            return self.find_settled(name).map(drop);
        }
        for name in names {
            self.begin()?;
            self.cancel.check()?;
            self.find_to_stay(name)?;
        }
        Ok(())
    }

    /// Checks that a table exists, and keeps it unchanged until the transaction's end.
    fn find_to_stay(&mut self, name: &Name) -> Result<()> {
        loop {
            let table = self.find_settled(name)?;
            let tx = self.tx.as_mut().expect("the transaction has begun");
            match run::stay_with_definition(tx, (&table, &table.schema()), ScanMode::Share) {
                Err(error) if is_stale(&error) => self.cancel.check()?,
                locked => return locked,
            }
        }
    }

    /// A table, for a statement whose answer says whether it exists.
    pub(super) fn find_settled(&mut self, name: &Name) -> Result<Table> {
        if let (Some(header), Some(over)) = (self.header_where_defined(), &mut self.over) {
            return over.defined_table(&header, name);
        }
        let found = prepared::find_table(name, find(&mut self.tx, &self.database, name));
        if self.tx.is_none() {
            self.database.settle_definitions(self.durability())?;
        }
        found
    }

    /// Whether the plan's table is the one of its name, with the plan's schema, as the open transaction sees it.
    fn is_good(&mut self, prepared: &Prepared) -> Result<bool> {
        match prepared.table() {
            Some((table, schema)) => self.is_unchanged(table, schema),
            None => Ok(true),
        }
    }

    /// Runs a bound statement in the open transaction.
    pub(super) fn run(
        &mut self,
        prepared: &Prepared,
        params: &[Value],
        sink: &mut dyn RowSink,
    ) -> Result<Tag> {
        let tx = self.tx.as_mut().expect("the transaction has begun");
        let texts = RowTexts::default();
        let arrays = array::read_arguments(&prepared.params, params)?;
        let context =
            Context { params, arrays: &arrays, now: self.now, count: 0, texts: &texts, cancel: &self.cancel };
        sink.begin(prepared)?;
        tx.set_procedure(prepared.procedure);
        if let Some((table, _)) = prepared.table() {
            tx.fetch_ahead(&[table], |tx| {
                let mut run = Run { tx, out: Out { context, plan: prepared, sink: &mut Nowhere } };
                drop(run_plan(&mut run, prepared));
            });
        }
        let mut run = Run { tx, out: Out { context, plan: prepared, sink } };
        let ran = run_plan(&mut run, prepared);
        run.tx.end_fetched();
        self.accounted += 1;
        self.account_for_several();
        ran
    }

    /// The time of a transaction of several statements belongs to none of them.
    #[inline]
    fn account_for_several(&mut self) {
        if self.accounted > 1
            && let Some(tx) = &mut self.tx
        {
            tx.set_procedure(ProcedureId::default());
        }
    }

    /// Begins a COPY from the client, for the columns that the table has under its lock. No definition changes them
    /// until the transaction ends.
    pub fn begin_copy(&mut self, prepared: &Prepared) -> Result<CopyIn> {
        if self.failed {
            return Err(in_failed_block());
        }
        self.start_time()?;
        self.open_block();
        if self.over.is_some() {
            return self.begin_copy_over(prepared);
        }
        self.begin()?;
        self.check_writes(prepared)?;
        // It runs until its last data, or until it fails. A cancel request between two pieces of data reaches the next
        // one.
        self.cancel.begin_running();
        let locked = self.lock_planned(prepared, |plan, tx| {
            let copy = CopyIn::new(plan)
                .ok_or_else(|| SqlError::new(SqlState::Internal, "the statement is no COPY"))?;
            tx.set_procedure(plan.procedure);
            copy.lock(tx)?;
            Ok(copy)
        });
        let (_, copy) = locked.map_err(|mut error| {
            self.cancel.name_cause(&mut error);
            error
        })?;
        Ok(copy)
    }

    /// Inserts the data that have come for a COPY. `last` says that no more data come. The rows belong to the
    /// transaction in which the COPY began; without that transaction nothing could commit them.
    pub fn run_copy(&mut self, copy: &mut CopyIn, data: &[u8], last: bool) -> Result<Option<Tag>> {
        if fault_injection::is_on("copy-outlives-its-transaction") {
            self.begin()?;
        }
        let header = self.over.as_ref().map(|_| self.header());
        let mut target = match (&mut self.tx, &mut self.over, &header) {
            _ if self.failed => None,
            (Some(tx), ..) => Some(CopyTarget::Transaction(tx)),
            (None, Some(over), Some(header)) => Some(CopyTarget::Partitions(over, header)),
            _ => None,
        };
        let Some(target) = &mut target else {
            return Err(SqlError::new(SqlState::Internal, "a COPY has outlived its transaction"));
        };
        let mut answer =
            if last { copy.finish(target, data).map(Some) } else { copy.run(target, data).map(|()| None) };
        let goes_on = matches!(answer, Ok(None));
        if let Err(error) = &mut answer {
            self.cancel.name_cause(error);
        }
        if !goes_on {
            self.cancel.end_running();
            self.stop_time();
        }
        let Some(rows) = answer? else { return Ok(None) };
        self.statements += 1;
        self.accounted += 1;
        self.account_for_several();
        Ok(Some(Tag::Rows("COPY", rows)))
    }
}

/// Runs a plan. One copy for both stages, into which the statements' own functions are inlined.
#[inline(never)]
fn run_plan(run: &mut Run<'_, '_>, prepared: &Prepared) -> Result<Tag> {
    Ok(match &prepared.kind {
        Kind::Select(plan) => Tag::Rows("SELECT", run::select(run, plan)?),
        Kind::Insert(plan) => Tag::Rows("INSERT 0", run::insert(run, plan)?),
        Kind::Update(plan) => Tag::Rows("UPDATE", run::update(run, plan)?),
        Kind::Delete(plan) => Tag::Rows("DELETE", run::delete(run, plan)?),
        Kind::Copy(plan) => match plan.options.direction {
            CopyDirection::ToStdout => Tag::Rows("COPY", run::copy_out(run, plan)?),
            CopyDirection::FromStdin => {
                let message = "COPY FROM STDIN needs a client that sends its data";
                return Err(SqlError::new(SqlState::ProtocolViolation, message));
            }
        },
        Kind::Explain(_) | Kind::Utility(_) => unreachable!("answered above"),
    })
}

/// Drops all rows: those of a fetch stage.
struct Nowhere;

impl RowSink for Nowhere {
    fn row(&mut self, _plan: &Prepared, _values: &[Value]) -> Result<()> {
        Ok(())
    }

    fn restart(&mut self) -> bool {
        true
    }
}

pub(super) fn tell_lines(prepared: &Prepared, sink: &mut dyn RowSink) -> Result<Tag> {
    let Kind::Explain(explained) = &prepared.kind else { unreachable!("the text is an EXPLAIN") };
    sink.begin(prepared)?;
    for line in &explained.lines {
        sink.row(prepared, &[Value::Text(line.clone())])?;
    }
    Ok(Tag::Word("EXPLAIN"))
}

/// Whether the error says that the table of the statement's plan has changed or gone.
pub(super) fn is_stale(error: &SqlError) -> bool {
    !fault_injection::is_on("stale-plans-are-errors")
        && matches!(error.cause.as_deref(), Some(Error::TableChanged { .. } | Error::NoSuchTable { .. }))
}

/// A table as the open transaction sees it; the transaction waits at its end for what that depends on. Without a
/// transaction the caller waits, after its last look at the table.
fn find(tx: &mut Option<Transaction<'_>>, database: &Database, name: &Name) -> rialto::Result<Table> {
    match tx {
        Some(tx) => tx.table_unlocked(&name.text),
        None => database.table(&name.text),
    }
}

#[cfg(test)]
mod tests {
    use rialto::Options;
    use rialto::io::MemoryDisk;

    use super::*;
    use crate::run::Collected;

    /// An idle session keeps little memory, whatever it ran before.
    #[test]
    fn room_for_long_statements_is_not_kept() {
        let options = Options { memory_bytes: 64 << 20, ..Options::default() };
        let database = Database::open_on(MemoryDisk::new(), options).unwrap();
        let mut session = Session::new(database, "ann", "bank");
        let kept = |session: &mut Session, text: &str| {
            let read = session.read(text).unwrap();
            let ready = session.prepare_read(text, read).unwrap();
            session.execute_ready(&ready, &mut Collected::default()).unwrap();
            session.finish().unwrap();
            session.reuse(ready.arguments);
            assert!(session.spare_arguments.is_empty(), "their texts have gone");
            session.lift.room() + session.spare_arguments.capacity() * size_of::<Value>()
        };
        let list = |item: &str, count: usize| {
            format!("select n from generate_series(1, 0) n where n in ({})", vec![item; count].join(", "))
        };
        let short = kept(&mut session, "select 1 + n from generate_series(1, 0) n where n = 7");
        assert!(0 < short && short < 10_000, "{short}");
        let long_text =
            format!("select '{}' from generate_series(1, 0) n where n = 1", "x".repeat(200 << 10));
        let not_lifted = format!("{} or n = 1.5e0 or 'a''b' = 'c'", list("7", 20_000));
        for text in [list("7", 40_000), list("7", 40_000), list("7", 9_000), long_text, not_lifted] {
            let kept = kept(&mut session, &text);
            assert!(kept <= 2 * ROOM_BYTES_MAX, "{kept}");
        }
        assert!(0 < kept(&mut session, "select 2 + n from generate_series(1, 0) n where n = 8"));
    }
}
