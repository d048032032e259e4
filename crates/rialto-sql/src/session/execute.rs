//! A statement from its text to its completion: parsed or found in the cache, planned for the tables of now, run.

use std::sync::Arc;

use rialto::row::{Schema, Value};
use rialto::{Database, Error, Table, Transaction};

use super::block::{Block, in_failed_block};
use super::{ReadStatement, Ready, Session, Tag};
use crate::copy::CopyIn;
use crate::error::{Result, SqlError, SqlState};
use crate::expr::Context;
use crate::parse::{self, Access, CopyDirection, Lifted, Literal, Name, Statement};
use crate::prepared::{self, CatalogState, Kind, Prepared};
use crate::run::{self, Out, RowSink, Run};
use crate::values::{SqlType, text};

/// How often a deadlock's victim is run again.
const DEADLOCK_RETRIES: usize = 20;

impl Session {
    /// Makes a statement ready to run. `declared` are the types of parameters as far as the client fixes them.
    pub fn prepare(&mut self, text: &str, declared: &[SqlType]) -> Result<Arc<Prepared>> {
        let open = declared.iter().all(|sql_type| *sql_type == SqlType::Unknown);
        if open && let Some(found) = self.cache.get(text) {
            return self.prepare_known(text, found, declared);
        }
        self.prepare_parsed(text, parse::parse(text)?, declared)
    }

    /// Parses a statement without parameters, or finds it among those that were run before, with these literals or
    /// others.
    pub fn read(&mut self, text: &str) -> Result<ReadStatement> {
        let lifts = self.lift.lift(text);
        let known = if lifts { self.lifted.get(&self.lift.key) } else { Some(None) };
        Ok(match known {
            Some(Some(plan)) => ReadStatement::Lifted(plan, std::mem::take(&mut self.lift)),
            Some(None) => match self.cache.get(text) {
                Some(found) => ReadStatement::Known(found),
                None => ReadStatement::Parsed(Box::new(parse::parse(text)?), None),
            },
            None => {
                let statement = Box::new(parse::parse(text)?);
                ReadStatement::Parsed(statement, Some(std::mem::take(&mut self.lift)))
            }
        })
    }

    /// Makes a statement that was read ready to run.
    pub fn prepare_read(&mut self, text: &str, read: ReadStatement) -> Result<Ready> {
        let without = |prepared| Ready { prepared, arguments: Vec::new() };
        match read {
            ReadStatement::Known(found) => self.prepare_known(text, found, &[]).map(without),
            ReadStatement::Lifted(plan, lifted) => {
                if self.failed {
                    return Err(in_failed_block());
                }
                if self.is_current(&plan)? {
                    if let Some(arguments) = self.arguments(&plan, &lifted, text) {
                        self.lift = lifted;
                        return Ok(Ready { prepared: plan, arguments });
                    }
                    return self.prepare_parsed(text, parse::parse(text)?, &[]).map(without);
                }
                self.lifted.forget(&lifted.key);
                self.prepare_new(text, parse::parse(text)?, lifted)
            }
            ReadStatement::Parsed(statement, Some(lifted)) => self.prepare_new(text, *statement, lifted),
            ReadStatement::Parsed(statement, None) => self.prepare_parsed(text, *statement, &[]).map(without),
        }
    }

    /// Makes a statement ready that was run before, with the same literals.
    fn prepare_known(
        &mut self,
        text: &str,
        found: Arc<Prepared>,
        declared: &[SqlType],
    ) -> Result<Arc<Prepared>> {
        if self.failed && !found.is_allowed_when_failed() {
            return Err(in_failed_block());
        }
        if self.is_current(&found)? {
            return Ok(found);
        }
        self.cache.forget(text);
        self.prepare_parsed(text, parse::parse(text)?, declared)
    }

    /// Makes a parsed statement ready, and keeps its plan for others that differ only in their literals if it can be
    /// theirs. If not, or if anything is wrong with it, it is bound as it stands: so errors are those of its own text.
    fn prepare_new(&mut self, text: &str, statement: Statement, lifted: Lifted) -> Result<Ready> {
        if self.failed {
            return Err(in_failed_block());
        }
        let key: Arc<str> = lifted.key.as_str().into();
        if let Ok((plan, sound)) = self.bind_lifted(text, statement.clone(), &lifted.literals) {
            let plan = sound.then(|| Arc::new(plan));
            if !self.defined {
                self.lifted.put(key, plan.clone());
            }
            if let Some(plan) = plan
                && let Some(arguments) = self.arguments(&plan, &lifted, text)
            {
                self.lift = lifted;
                return Ok(Ready { prepared: plan, arguments });
            }
        }
        let prepared = self.prepare_parsed(text, statement, &[])?;
        Ok(Ready { prepared, arguments: Vec::new() })
    }

    /// What a plan's parameters are for the literals of this text; `None` if one of them is no value of its type.
    fn arguments(&mut self, plan: &Prepared, lifted: &Lifted, text: &str) -> Option<Vec<Value>> {
        let mut arguments = std::mem::take(&mut self.spare_arguments);
        arguments.clear();
        for (literal, sql_type) in lifted.literals.iter().zip(&plan.params) {
            arguments.push(match literal.value(text) {
                Value::Text(value) => text::parse(*sql_type, &value).ok()?,
                value => value,
            });
        }
        Some(arguments)
    }

    /// Gives the room for a statement's arguments back.
    pub fn reuse(&mut self, arguments: Vec<Value>) {
        self.spare_arguments = arguments;
    }

    /// Binds a statement with its literals as parameters.
    fn bind_lifted(
        &mut self,
        text: &str,
        statement: Statement,
        literals: &[Literal],
    ) -> Result<(Prepared, bool)> {
        let catalog = self.catalog_state();
        let Session { tx, database, facts, .. } = self;
        let mut lookup = |name: &Name| find(tx, database, name);
        prepared::prepare_lifted(text, statement, literals, facts, catalog, &mut lookup)
    }

    /// Read it before tables are looked up: a change in between makes the plan look old, never new.
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
        declared: &[SqlType],
    ) -> Result<Arc<Prepared>> {
        let ends = matches!(statement, Statement::Commit | Statement::Rollback | Statement::RollbackTo(_));
        if self.failed && !ends {
            return Err(in_failed_block());
        }
        let catalog = self.catalog_state();
        let Session { tx, database, facts, .. } = self;
        let mut lookup = |name: &Name| find(tx, database, name);
        let prepared = Arc::new(prepared::prepare(text, statement, declared, facts, catalog, &mut lookup)?);
        let open = declared.iter().all(|sql_type| *sql_type == SqlType::Unknown);
        if open && catalog != CatalogState::Private && !matches!(prepared.kind, Kind::Explain(_)) {
            self.cache.put(prepared.text.clone(), prepared.clone());
        }
        Ok(prepared)
    }

    /// Plans anew what was planned for other tables.
    fn renew(&mut self, prepared: &Prepared) -> Result<Arc<Prepared>> {
        if prepared.lifted.is_empty() {
            self.cache.forget(&prepared.text);
            return self.prepare(&prepared.text, &prepared.declared);
        }
        let statement = parse::parse(&prepared.text)?;
        let renewed = self.bind_lifted(&prepared.text, statement, &prepared.lifted);
        renewed.map(|(plan, _)| Arc::new(plan)).map_err(|mut error| {
            // Its place is one in the text that the plan was first made for.
            error.position = None;
            error
        })
    }

    /// Whether the tables are still those that the plan was made for.
    #[inline]
    fn is_current(&mut self, prepared: &Prepared) -> Result<bool> {
        match prepared.catalog {
            CatalogState::Committed(version)
                if !self.defined && version == self.database.catalog_version() =>
            {
                Ok(true)
            }
            _ => self.is_still_current(prepared),
        }
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
        match find(&mut self.tx, &self.database, &name) {
            Ok(current) => Ok(current.id() == table.id() && Arc::ptr_eq(&current.schema(), schema)),
            Err(error) if error.sqlstate == SqlState::UndefinedTable => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Runs a statement; gives what CommandComplete says. It may wait for locks, and waits for the log where it ends a
    /// transaction. After an error call [`Session::fail`].
    pub fn execute(&mut self, prepared: &Prepared, params: &[Value], sink: &mut dyn RowSink) -> Result<Tag> {
        if self.failed && !prepared.is_allowed_when_failed() {
            return Err(in_failed_block());
        }
        self.open_block();
        self.cancel.set_running(true);
        let mut answer = self.execute_once(prepared, params, sink);
        if let Err(error) = &answer
            && error.is_deadlock()
        {
            answer = self.execute_again(answer, prepared, params, sink);
        }
        self.cancel.set_running(false);
        self.statements += usize::from(answer.is_ok());
        answer
    }

    /// After a deadlock: the victim is run again if it is the only statement of its implicit block.
    #[cold]
    fn execute_again(
        &mut self,
        mut answer: Result<Tag>,
        prepared: &Prepared,
        params: &[Value],
        sink: &mut dyn RowSink,
    ) -> Result<Tag> {
        for _ in 0..DEADLOCK_RETRIES {
            let deadlock = answer.as_ref().is_err_and(SqlError::is_deadlock);
            if !deadlock || self.block != Block::Implicit || self.statements > 0 || !sink.restart() {
                break;
            }
            // The victim's locks are free once it is gone; then it starts anew.
            drop(self.take_transaction());
            self.defined = false;
            answer = self.execute_once(prepared, params, sink);
        }
        answer
    }

    fn execute_once(&mut self, prepared: &Prepared, params: &[Value], sink: &mut dyn RowSink) -> Result<Tag> {
        if let Kind::Utility(statement) = &prepared.kind {
            return self.utility(statement, sink);
        }
        if let Kind::Explain(lines) = &prepared.kind {
            for line in lines {
                sink.row(&[Value::Text(line.clone())])?;
            }
            return Ok(Tag::Word("EXPLAIN"));
        }
        self.begin()?;
        if self.is_current(prepared)? && !prepared.uses_secondary_index() {
            return self.run(prepared, params, sink);
        }
        self.execute_checked(prepared, params, sink)
    }

    /// Runs a plan that may not be good: one made for other tables, and one that names an index by its place.
    fn execute_checked(
        &mut self,
        prepared: &Prepared,
        params: &[Value],
        sink: &mut dyn RowSink,
    ) -> Result<Tag> {
        let mut renewed = None;
        if !self.is_current(prepared)? {
            let fresh = self.renew(prepared)?;
            if fresh.columns != prepared.columns || fresh.params != prepared.params {
                let message = "cached plan must not change result type";
                return Err(SqlError::new(SqlState::FeatureNotSupported, message));
            }
            renewed = Some(fresh);
        }
        // A plan by an index is sure only once its table is locked, that is, after the run: an index may have come or
        // gone between the look at the catalog and the first lock. Then what was done is taken back and done again.
        let mark = self.tx.as_mut().map(Transaction::savepoint);
        loop {
            let plan = renewed.as_deref().unwrap_or(prepared);
            let tag = self.run(plan, params, sink)?;
            if !plan.uses_secondary_index() {
                return Ok(tag);
            }
            let (table, schema) = plan.table().expect("a plan by an index has a table");
            if self.is_unchanged(table, schema)? {
                return Ok(tag);
            }
            let (Some(tx), Some(mark), true) = (&mut self.tx, mark, sink.restart()) else {
                let message = "the table's indexes were changed while the statement ran: run it again";
                return Err(SqlError::new(SqlState::FeatureNotSupported, message));
            };
            tx.rollback_to(&mark)?;
            renewed = Some(self.renew(prepared)?);
        }
    }

    /// Runs a bound statement in the open transaction.
    fn run(&mut self, prepared: &Prepared, params: &[Value], sink: &mut dyn RowSink) -> Result<Tag> {
        let tx = self.tx.as_mut().expect("the transaction has begun");
        let context = Context { params, now: self.now, count: 0 };
        let mut run = Run { tx, out: Out { context, sink } };
        let tag = match &prepared.kind {
            Kind::Select(plan) => Tag::Rows("SELECT", run::select(&mut run, plan)?),
            Kind::Insert(plan) => Tag::Rows("INSERT 0", run::insert(&mut run, plan)?),
            Kind::Update(plan) => Tag::Rows("UPDATE", run::update(&mut run, plan)?),
            Kind::Delete(plan) => Tag::Rows("DELETE", run::delete(&mut run, plan)?),
            Kind::Copy(plan) => match plan.options.direction {
                CopyDirection::ToStdout => Tag::Rows("COPY", run::copy_out(&mut run, plan)?),
                CopyDirection::FromStdin => {
                    let message = "COPY FROM STDIN needs a client that sends its data";
                    return Err(SqlError::new(SqlState::ProtocolViolation, message));
                }
            },
            Kind::Explain(_) | Kind::Utility(_) => unreachable!("answered above"),
        };
        Ok(tag)
    }

    /// Begins a COPY from the client.
    pub fn begin_copy(&mut self, prepared: &Prepared) -> Result<CopyIn> {
        if self.failed {
            return Err(in_failed_block());
        }
        self.open_block();
        self.begin()?;
        if self.access == Access::ReadOnly {
            return Err(Error::ReadOnly.into());
        }
        let fresh = match self.is_current(prepared)? {
            true => None,
            false => Some(self.prepare(&prepared.text, &prepared.declared)?),
        };
        CopyIn::new(fresh.as_deref().unwrap_or(prepared))
            .ok_or_else(|| SqlError::new(SqlState::Internal, "the statement is no COPY"))
    }

    /// Puts what a COPY has into the table; `last` says that nothing more comes.
    pub fn run_copy(&mut self, copy: &mut CopyIn, last: bool) -> Result<Option<Tag>> {
        self.begin()?;
        self.cancel.set_running(true);
        let tx = self.tx.as_mut().expect("the transaction has begun");
        let answer = if last { copy.finish(tx).map(Some) } else { copy.run(tx).map(|()| None) };
        self.cancel.set_running(false);
        let Some(rows) = answer? else { return Ok(None) };
        self.statements += 1;
        Ok(Some(Tag::Rows("COPY", rows)))
    }
}

/// A table, as the open transaction sees it.
pub(super) fn find(tx: &mut Option<Transaction>, database: &Database, name: &Name) -> Result<Table> {
    let found = match tx {
        Some(tx) => tx.table(&name.text),
        None => database.table(&name.text),
    };
    prepared::find_table(name, found)
}
