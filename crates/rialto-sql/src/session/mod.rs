//! [`Session`]: one client's statements, settings and transaction.
//!
//! A transaction block is implicit (one statement, one query string or one pipeline until its Sync) or explicit (BEGIN
//! to COMMIT or ROLLBACK). The kernel's transaction begins with the block's first statement that needs one. Kept here:
//!
//! - After an error an explicit block is failed, and refuses everything but its end (25P02). Without savepoints its
//!   transaction, and with it its locks, are gone already.
//! - An outcome, failure included, comes with the [`Ticket`] that has to be awaited before a client hears it (I3).
//! - A deadlock's victim is retried if it is the only statement of its implicit block; a client in a block is told.

mod cache;
mod cancel;
mod ddl;
mod settings;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rialto::row::Value;
use rialto::{Database, Error, LockPolicy, Savepoint, Table, Ticket, Transaction, TxOptions};

pub use cancel::Cancel;
pub use settings::Settings;

use crate::bind::{Facts, OutputColumn};
use crate::copy::CopyIn;
use crate::error::{Result, Severity, SqlError, SqlState};
use crate::expr::Context;
use crate::parse::{self, Access, CopyDirection, Modes, Name, SetValue, Statement};
use crate::prepared::{self, CatalogState, Kind, Prepared};
use crate::run::{self, Out, RowSink, Run};
use crate::values::SqlType;
use cache::PlanCache;

/// How often a deadlock's victim is run again.
const DEADLOCK_RETRIES: usize = 20;

/// The state of a session's transaction, as clients see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionStatus {
    /// None is open (or an implicit one).
    Idle,
    /// In an explicit block.
    Block,
    /// In an explicit block that has failed.
    Failed,
}

/// What CommandComplete says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// A word.
    Word(&'static str),
    /// A word and a number of rows.
    Rows(&'static str, u64),
}

impl std::fmt::Display for Tag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Tag::Word(word) => f.write_str(word),
            Tag::Rows(word, rows) => write!(f, "{word} {rows}"),
        }
    }
}

/// What a statement came to.
#[derive(Debug)]
pub struct Completion {
    /// What CommandComplete says.
    pub tag: Tag,
    /// What has to be awaited before it is said.
    pub ticket: Option<Ticket>,
}

/// A statement that was read but not yet bound: its syntax is right.
pub enum ReadStatement {
    /// It was run before.
    Known(Arc<Prepared>),
    /// It is new.
    Parsed(Box<Statement>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    None,
    Implicit,
    Explicit,
}

/// A savepoint; without a mark if the kernel's transaction had not begun.
struct NamedSavepoint {
    name: String,
    mark: Option<Savepoint>,
}

/// One client's view of a database.
pub struct Session {
    database: Database,
    settings: Settings,
    /// The settings as they were before the block changed them.
    settings_before: Option<Settings>,
    default_access: Access,
    facts: Facts,
    cache: PlanCache,
    block: Block,
    failed: bool,
    tx: Option<Transaction>,
    /// Whether the transaction has changed what tables there are.
    defined: bool,
    savepoints: Vec<NamedSavepoint>,
    access: Access,
    /// Statements run in this block.
    statements: usize,
    /// Whether the block has run statements that take long, so that its commit may take long too.
    heavy: bool,
    now: i64,
    notices: Vec<(Severity, SqlError)>,
    status_changes: Vec<(&'static str, String)>,
    cancel: Arc<Cancel>,
}

impl Session {
    /// A session on a database, for this user and database name.
    pub fn new(database: Database, user: &str, name: &str) -> Session {
        Session {
            database,
            settings: Settings::default(),
            settings_before: None,
            default_access: Access::ReadWrite,
            facts: Facts { user: user.to_string(), database: name.to_string() },
            cache: PlanCache::default(),
            block: Block::None,
            failed: false,
            tx: None,
            defined: false,
            savepoints: Vec::new(),
            access: Access::ReadWrite,
            statements: 0,
            heavy: false,
            now: 0,
            notices: Vec::new(),
            status_changes: Vec::new(),
            cancel: Arc::default(),
        }
    }

    /// The state of the transaction.
    pub fn status(&self) -> TransactionStatus {
        match (self.block, self.failed) {
            (Block::Explicit, true) => TransactionStatus::Failed,
            (Block::Explicit, false) => TransactionStatus::Block,
            _ => TransactionStatus::Idle,
        }
    }

    /// Warnings and notices since the last call.
    pub fn take_notices(&mut self) -> Vec<(Severity, SqlError)> {
        let mut notices = std::mem::take(&mut self.notices);
        if !self.settings.notices {
            notices.retain(|(severity, _)| *severity != Severity::Notice);
        }
        notices
    }

    /// Settings that clients want to be told of, changed since the last call.
    pub fn take_status_changes(&mut self) -> Vec<(&'static str, String)> {
        std::mem::take(&mut self.status_changes)
    }

    /// Changes a setting as the start-up packet asks.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let name = Name { text: name.to_ascii_lowercase(), position: None };
        self.settings.set(&name, &SetValue::Text(value.to_string()))?;
        Ok(())
    }

    /// What SHOW tells of a setting.
    pub fn show(&self, name: &str) -> String {
        self.settings.show(name, self.access == Access::ReadOnly)
    }

    /// Whether the commit may take long.
    pub fn is_heavy(&self) -> bool {
        self.heavy
    }

    /// Cancels what the session runs, from another thread.
    pub fn cancel(&self) -> Arc<Cancel> {
        self.cancel.clone()
    }

    /// Makes a statement ready to run. `declared` are the types of parameters as far as the client fixes them.
    pub fn prepare(&mut self, text: &str, declared: &[SqlType]) -> Result<Arc<Prepared>> {
        let open = declared.iter().all(|sql_type| *sql_type == SqlType::Unknown);
        let read = match open {
            true => self.read(text)?,
            false => ReadStatement::Parsed(Box::new(parse::parse(text)?)),
        };
        self.prepare_read(text, read, declared)
    }

    /// Parses a statement, or finds it among those that were run before.
    pub fn read(&mut self, text: &str) -> Result<ReadStatement> {
        match self.cache.get(text) {
            Some(found) => Ok(ReadStatement::Known(found)),
            None => Ok(ReadStatement::Parsed(Box::new(parse::parse(text)?))),
        }
    }

    /// Makes a statement that was read ready to run.
    pub fn prepare_read(
        &mut self,
        text: &str,
        read: ReadStatement,
        declared: &[SqlType],
    ) -> Result<Arc<Prepared>> {
        let statement = match read {
            ReadStatement::Parsed(statement) => *statement,
            ReadStatement::Known(found) => {
                if self.failed && !found.is_allowed_when_failed() {
                    return Err(in_failed_block());
                }
                if self.is_current(&found)? {
                    return Ok(found);
                }
                self.cache.forget(text);
                parse::parse(text)?
            }
        };
        self.prepare_parsed(text, statement, declared)
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
        // Read before the tables are: a change in between makes the plan look old, never new.
        let catalog = match self.defined {
            true => CatalogState::Private,
            false => CatalogState::Committed(self.database.catalog_version()),
        };
        let Session { tx, database, facts, .. } = self;
        let mut lookup = |name: &Name| find(tx, database, name);
        let prepared = Arc::new(prepared::prepare(text, statement, declared, facts, catalog, &mut lookup)?);
        let open = declared.iter().all(|sql_type| *sql_type == SqlType::Unknown);
        if open && catalog != CatalogState::Private && !matches!(prepared.kind, Kind::Explain(_)) {
            self.cache.put(prepared.clone());
        }
        Ok(prepared)
    }

    /// Whether the tables are still those that the plan was made for.
    fn is_current(&mut self, prepared: &Prepared) -> Result<bool> {
        let Some((table, schema)) = prepared.table() else { return Ok(true) };
        let version = match prepared.catalog {
            CatalogState::Committed(version) if !self.defined => version,
            _ => return Ok(false),
        };
        if version == self.database.catalog_version() {
            return Ok(true);
        }
        let name = Name { text: table.name(), position: None };
        match find(&mut self.tx, &self.database, &name) {
            Ok(current) => Ok(current.id() == table.id() && Arc::ptr_eq(&current.schema(), schema)),
            Err(error) if error.sqlstate == SqlState::UndefinedTable => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Runs a statement. With [`LockPolicy::Refuse`] it may fail because a lock is not free
    /// ([`SqlError::is_would_wait`]); then, and only for a [short](Prepared::is_short) one, nothing has happened, and it
    /// may be run again. After any other error call [`Session::fail`].
    pub fn execute(
        &mut self,
        prepared: &Arc<Prepared>,
        params: &[Value],
        policy: LockPolicy,
        sink: &mut dyn RowSink,
    ) -> Result<Completion> {
        if self.failed && !prepared.is_allowed_when_failed() {
            return Err(in_failed_block());
        }
        let mut prepared = prepared.clone();
        self.open_block();
        let answer = self.execute_retrying(&mut prepared, params, policy, sink);
        if policy == LockPolicy::Wait {
            self.cancel.disarm();
        }
        answer
    }

    fn execute_retrying(
        &mut self,
        prepared: &mut Arc<Prepared>,
        params: &[Value],
        policy: LockPolicy,
        sink: &mut dyn RowSink,
    ) -> Result<Completion> {
        for retry in 0.. {
            match self.execute_once(prepared, params, policy, sink) {
                Err(error)
                    if error.is_deadlock()
                        && self.block == Block::Implicit
                        && self.statements == 0
                        && retry < DEADLOCK_RETRIES
                        && sink.restart() =>
                {
                    // The victim's locks are free once it is gone; then it starts anew.
                    self.tx = None;
                    self.defined = false;
                }
                Ok(completion) => {
                    self.statements += 1;
                    self.heavy |= !prepared.is_short();
                    return Ok(completion);
                }
                Err(error) => return Err(error),
            }
        }
        unreachable!("the loop ends by itself")
    }

    fn execute_once(
        &mut self,
        prepared: &mut Arc<Prepared>,
        params: &[Value],
        policy: LockPolicy,
        sink: &mut dyn RowSink,
    ) -> Result<Completion> {
        if let Kind::Utility(statement) = &prepared.kind {
            return self.utility(statement, policy, sink);
        }
        if let Kind::Explain(lines) = &prepared.kind {
            for line in lines {
                sink.row(&[Value::Text(line.clone())])?;
            }
            return Ok(done(Tag::Word("EXPLAIN")));
        }
        self.begin(policy)?;
        if !self.is_current(prepared)? {
            self.cache.forget(&prepared.text);
            let fresh = self.prepare(&prepared.text, &prepared.declared)?;
            if fresh.columns != prepared.columns || fresh.params != prepared.params {
                let message = "cached plan must not change result type";
                return Err(SqlError::new(SqlState::FeatureNotSupported, message));
            }
            *prepared = fresh;
        }
        if !prepared.uses_secondary_index() {
            return self.run(prepared, params, sink);
        }
        // The plan is sure only once its table is locked, that is, after the run: an index may have come or gone between
        // the look at the catalog and the first lock. Then what was done is taken back and done again.
        let mark = self.tx.as_mut().map(Transaction::savepoint);
        loop {
            let completion = self.run(prepared, params, sink)?;
            if self.is_current(prepared)? {
                return Ok(completion);
            }
            let (Some(tx), Some(mark), true) = (&mut self.tx, mark, sink.restart()) else {
                let message = "the table's indexes were changed while the statement ran: run it again";
                return Err(SqlError::new(SqlState::FeatureNotSupported, message));
            };
            tx.rollback_to(&mark)?;
            *prepared = self.prepare(&prepared.text.clone(), &prepared.declared.clone())?;
        }
    }

    /// Runs a bound statement in the open transaction.
    fn run(&mut self, prepared: &Prepared, params: &[Value], sink: &mut dyn RowSink) -> Result<Completion> {
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
        Ok(done(tag))
    }

    /// Begins a COPY from the client.
    pub fn begin_copy(&mut self, prepared: &Prepared) -> Result<CopyIn> {
        if self.failed {
            return Err(in_failed_block());
        }
        self.open_block();
        self.begin(LockPolicy::Refuse)?;
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
    pub fn run_copy(
        &mut self,
        copy: &mut CopyIn,
        policy: LockPolicy,
        last: bool,
    ) -> Result<Option<Completion>> {
        self.begin(policy)?;
        let tx = self.tx.as_mut().expect("the transaction has begun");
        let answer = if last { copy.finish(tx).map(Some) } else { copy.run(tx).map(|()| None) };
        if policy == LockPolicy::Wait {
            self.cancel.disarm();
        }
        let Some(rows) = answer? else { return Ok(None) };
        self.statements += 1;
        self.heavy = true;
        Ok(Some(done(Tag::Rows("COPY", rows))))
    }

    /// The end of an implicit block: commits it. Gives what has to be awaited.
    pub fn finish(&mut self) -> Result<Option<Ticket>> {
        if self.block == Block::Implicit { self.commit() } else { Ok(None) }
    }

    /// After an error: an implicit block is rolled back, an explicit one fails. Gives what has to be awaited before the
    /// client hears of it: what the transaction has read may not be durable yet.
    pub fn fail(&mut self, error: &SqlError) -> Option<Ticket> {
        match self.block {
            Block::None => None,
            Block::Implicit => self.roll_back(),
            Block::Explicit => {
                self.failed = true;
                // With savepoints the client may go back to one, unless the transaction is dead.
                if self.savepoints.is_empty() || error.ends_transaction() {
                    self.end_transaction()
                } else {
                    None
                }
            }
        }
    }

    /// Ends whatever is open, as when the client goes away.
    pub fn abandon(&mut self) {
        let _ = self.roll_back();
    }

    fn open_block(&mut self) {
        if self.block == Block::None {
            self.block = Block::Implicit;
            self.access = if self.settings.read_only { Access::ReadOnly } else { self.default_access };
            self.statements = 0;
            self.heavy = false;
            self.now = clock();
        }
    }

    /// Begins the kernel's transaction if it has not, and sets how it waits.
    fn begin(&mut self, policy: LockPolicy) -> Result<()> {
        if let Some(tx) = &mut self.tx {
            tx.set_lock_policy(policy);
            if policy == LockPolicy::Wait {
                self.cancel.arm(tx.canceller());
            }
            return Ok(());
        }
        if self.block == Block::Explicit && self.savepoints.iter().any(|savepoint| savepoint.mark.is_some()) {
            // Its transaction died under it; only ROLLBACK is left, and `failed` says so.
            return Err(in_failed_block());
        }
        let options = TxOptions {
            durability: self.settings.durability,
            lock_timeout: Some(self.settings.lock_timeout),
            read_only: self.access == Access::ReadOnly,
            lock_wait: policy,
            ..TxOptions::default()
        };
        let mut tx = self.database.begin_with(&options)?;
        for savepoint in &mut self.savepoints {
            savepoint.mark = Some(tx.savepoint());
        }
        if policy == LockPolicy::Wait {
            self.cancel.arm(tx.canceller());
        }
        self.tx = Some(tx);
        Ok(())
    }

    fn commit(&mut self) -> Result<Option<Ticket>> {
        let tx = self.tx.take();
        self.close_block();
        self.settings_before = None;
        match tx {
            Some(tx) => Ok(Some(tx.submit()?)),
            None => Ok(None),
        }
    }

    fn roll_back(&mut self) -> Option<Ticket> {
        let ticket = self.end_transaction();
        self.close_block();
        if let Some(before) = self.settings_before.take() {
            if before.application_name != self.settings.application_name {
                self.status_changes.push(("application_name", before.application_name.clone()));
            }
            if before.client_encoding != self.settings.client_encoding {
                self.status_changes.push(("client_encoding", before.client_encoding.to_string()));
            }
            self.settings = before;
        }
        ticket
    }

    /// Aborts the transaction; what it has read is waited for through the ticket.
    fn end_transaction(&mut self) -> Option<Ticket> {
        self.tx.take().map(|mut tx| tx.settled())
    }

    fn close_block(&mut self) {
        self.block = Block::None;
        self.failed = false;
        self.tx = None;
        self.defined = false;
        self.savepoints.clear();
        self.access = self.default_access;
    }

    fn utility(
        &mut self,
        statement: &Statement,
        policy: LockPolicy,
        sink: &mut dyn RowSink,
    ) -> Result<Completion> {
        match statement {
            Statement::Begin(modes) => {
                if self.block == Block::Explicit {
                    self.warn(SqlState::ActiveTransaction, "there is already a transaction in progress");
                }
                self.block = Block::Explicit;
                self.set_modes(*modes)?;
                Ok(done(Tag::Word("BEGIN")))
            }
            Statement::Commit => {
                if self.block != Block::Explicit {
                    self.warn(SqlState::NoActiveTransaction, "there is no transaction in progress");
                }
                if self.failed {
                    let ticket = self.roll_back();
                    return Ok(Completion { tag: Tag::Word("ROLLBACK"), ticket });
                }
                let ticket = self.commit()?;
                Ok(Completion { tag: Tag::Word("COMMIT"), ticket })
            }
            Statement::Rollback => {
                if self.block != Block::Explicit {
                    self.warn(SqlState::NoActiveTransaction, "there is no transaction in progress");
                }
                let ticket = self.roll_back();
                Ok(Completion { tag: Tag::Word("ROLLBACK"), ticket })
            }
            Statement::Savepoint(name) => self.savepoint(name),
            Statement::Release(name) => {
                let at = self.find_savepoint(name, "RELEASE SAVEPOINT")?;
                let released: Vec<NamedSavepoint> = self.savepoints.drain(at..).collect();
                if let (Some(tx), Some(mark)) = (&mut self.tx, released[0].mark) {
                    tx.release_savepoint(mark)?;
                }
                Ok(done(Tag::Word("RELEASE")))
            }
            Statement::RollbackTo(name) => self.rollback_to(name),
            Statement::SetTransaction(modes) => {
                if self.block != Block::Explicit {
                    self.warn(
                        SqlState::NoActiveTransaction,
                        "SET TRANSACTION can only be used in transaction blocks",
                    );
                } else {
                    self.set_modes(*modes)?;
                }
                Ok(done(Tag::Word("SET")))
            }
            Statement::SetSessionModes(modes) => {
                self.default_access = modes.access.unwrap_or(self.default_access);
                Ok(done(Tag::Word("SET")))
            }
            Statement::Set(name, value) => {
                self.change_setting(name, value)?;
                Ok(done(Tag::Word("SET")))
            }
            Statement::Reset(name) => {
                match name {
                    Some(name) => self.change_setting(name, &SetValue::Default)?,
                    None => {
                        self.settings_before.get_or_insert_with(|| self.settings.clone());
                        self.settings = Settings::default();
                    }
                }
                Ok(done(Tag::Word("RESET")))
            }
            Statement::Show(name) => {
                match name {
                    Some(name) => sink.row(&[Value::Text(self.show(&name.text))])?,
                    None => {
                        for name in settings::names() {
                            sink.row(&[Value::Text(name.to_string()), Value::Text(self.show(name))])?;
                        }
                    }
                }
                Ok(done(Tag::Word("SHOW")))
            }
            Statement::Maintain { command, tables } => {
                let Session { tx, database, .. } = self;
                for table in tables {
                    find(tx, database, table)?;
                }
                let what = match *command {
                    "VACUUM" => {
                        "VACUUM has nothing to do: space of old rows is free as soon as they are gone"
                    }
                    _ => "ANALYZE has nothing to do: plans need no statistics",
                };
                self.notices.push((Severity::Notice, SqlError::new(SqlState::Success, what)));
                Ok(done(Tag::Word(command)))
            }
            other => {
                self.begin(policy)?;
                self.defined = true;
                self.define(other)
            }
        }
    }

    fn warn(&mut self, sqlstate: SqlState, message: &str) {
        self.notices.push((Severity::Warning, SqlError::new(sqlstate, message)));
    }

    fn set_modes(&mut self, modes: Modes) -> Result<()> {
        // Every isolation level is serializable, so only the access mode changes anything.
        let Some(access) = modes.access else { return Ok(()) };
        if self.tx.is_some() && access != self.access {
            let message = "the access mode must be set before any query";
            return Err(SqlError::new(SqlState::ActiveTransaction, message));
        }
        self.access = access;
        Ok(())
    }

    fn change_setting(&mut self, name: &Name, value: &SetValue) -> Result<()> {
        if name.text == "transaction_read_only" {
            let read_only =
                matches!(value, SetValue::Text(text) if matches!(text.as_str(), "on" | "true" | "yes" | "1"));
            let access = Some(if read_only { Access::ReadOnly } else { Access::ReadWrite });
            return self.set_modes(Modes { isolation: false, access });
        }
        let before = self.settings.clone();
        self.status_changes.extend(self.settings.set(name, value)?);
        self.settings_before.get_or_insert(before);
        if let (Some(tx), Some(durability)) = (&mut self.tx, self.settings.durability) {
            tx.set_durability(durability);
        }
        Ok(())
    }

    fn savepoint(&mut self, name: &Name) -> Result<Completion> {
        if self.block != Block::Explicit {
            return Err(only_in_block("SAVEPOINT"));
        }
        let mark = self.tx.as_mut().map(Transaction::savepoint);
        self.savepoints.push(NamedSavepoint { name: name.text.clone(), mark });
        Ok(done(Tag::Word("SAVEPOINT")))
    }

    fn find_savepoint(&self, name: &Name, command: &str) -> Result<usize> {
        if self.block != Block::Explicit {
            return Err(only_in_block(command));
        }
        self.savepoints.iter().rposition(|savepoint| savepoint.name == name.text).ok_or_else(|| {
            let message = format!("savepoint \"{}\" does not exist", name.text);
            SqlError::new(SqlState::NoSuchSavepoint, message)
        })
    }

    fn rollback_to(&mut self, name: &Name) -> Result<Completion> {
        let at = self.find_savepoint(name, "ROLLBACK TO SAVEPOINT")?;
        match (&mut self.tx, self.savepoints[at].mark) {
            (Some(tx), Some(mark)) => tx.rollback_to(&mark)?,
            (Some(_), None) => return Err(SqlError::new(SqlState::Internal, "a savepoint lost its mark")),
            (None, Some(_)) => {
                let message = "the transaction was ended by the error: it can only be rolled back as a whole";
                return Err(SqlError::new(SqlState::InFailedTransaction, message));
            }
            (None, None) => {}
        }
        self.savepoints.truncate(at + 1);
        self.failed = false;
        Ok(done(Tag::Word("ROLLBACK")))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The last handle of a database waits for open transactions when it goes: ours has to go first.
        self.abandon();
    }
}

/// The columns of SHOW.
pub(crate) fn show_columns(name: Option<&Name>) -> Result<Vec<OutputColumn>> {
    let column = |name: &str| OutputColumn { name: name.to_string(), sql_type: SqlType::Text };
    match name {
        Some(name) => {
            settings::check_name(name)?;
            Ok(vec![column(&name.text)])
        }
        None => Ok(vec![column("name"), column("setting")]),
    }
}

fn done(tag: Tag) -> Completion {
    Completion { tag, ticket: None }
}

/// A table, as the open transaction sees it.
fn find(tx: &mut Option<Transaction>, database: &Database, name: &Name) -> Result<Table> {
    let found = match tx {
        Some(tx) => tx.table(&name.text),
        None => database.table(&name.text),
    };
    prepared::find_table(name, found)
}

fn in_failed_block() -> SqlError {
    let message = "current transaction is aborted, commands ignored until end of transaction block";
    SqlError::new(SqlState::InFailedTransaction, message)
}

fn only_in_block(command: &str) -> SqlError {
    let message = format!("{command} can only be used in transaction blocks");
    SqlError::new(SqlState::NoActiveTransaction, message)
}

/// Microseconds since 1970, UTC.
fn clock() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
