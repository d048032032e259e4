//! [`Session`]: one client's statements, settings and transaction.
//!
//! A transaction block is implicit (one statement, one query string, or one pipeline until its Sync) or explicit (BEGIN
//! to COMMIT or ROLLBACK). The kernel's transaction begins with the block's first statement that needs one. Invariants:
//!
//! - After an error an explicit block is failed, and refuses everything but its end (25P02). Without savepoints its
//!   transaction, and with it its locks, are gone already.
//! - An outcome, failure included, is given when the log is as durable as it needs (I3): the session that ends a
//!   transaction waits.
//! - Settings belong to the transaction: `setting_store` undoes them as the transaction is undone.
//!   `Session::change_settings`, the only way to change a setting, hands them to the kernel's transaction.
//! - A deadlock's victim is retried if it is the only statement of its implicit block. In an explicit block the client
//!   is told.

mod block;
mod branch;
mod cache;
mod ddl;
mod execute;
mod over_partitions;
mod setting_store;
mod settings;
mod time_limit;
mod timeouts;
mod utility;

use std::sync::Arc;

use rialto::row::Value;
use rialto::{Database, Durability, Lsn, Transaction};

pub use settings::Settings;
pub(crate) use utility::show_columns;

use crate::bind::Facts;
use crate::cancel::Cancel;
use crate::error::{Result, Severity, SqlError};
use crate::parse::{Access, Lifted, Name, READING_ROOM_BYTES, SetValue, Statement};
use crate::partitions::Level;
use crate::partitions::Over;
use crate::prepared::Prepared;
use crate::room::Room;
use block::{Block, NamedSavepoint};
use cache::PlanCache;
use setting_store::SettingStore;

/// The state of a session's transaction, as clients see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionStatus {
    /// No block is open, or an implicit one.
    Idle,
    /// In an explicit block.
    Block,
    /// In an explicit block that has failed.
    Failed,
}

/// The text of CommandComplete.
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

/// What a statement drops of that which the session's owner keeps for the client: prepared statements and portals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Closing {
    /// The prepared statement of this name.
    Statement(String),
    /// All prepared statements that have a name.
    Statements,
    /// The portal of this name.
    Portal(String),
    /// All portals but the one that runs.
    Portals,
}

/// A statement that was read but not yet bound: its syntax is right.
pub enum ReadStatement {
    /// It was run before.
    Known(Arc<Prepared>),
    /// A statement that differs only in its literals was run before.
    Lifted(Arc<Prepared>, Lifted),
    /// It is new. Its text without literals is new too, if lifting them is worthwhile.
    Parsed(Box<Statement>, Option<Lifted>),
}

/// A statement that is ready to run with the arguments that it needs.
pub struct Ready<'t> {
    /// The statement.
    pub prepared: Arc<Prepared>,
    /// Its literals, if they were lifted.
    pub arguments: Vec<Value>,
    /// The text of these literals. The plan's own text may have others.
    lifted_from: Option<&'t str>,
}

impl Ready<'_> {
    /// A statement that needs no arguments.
    pub fn of(prepared: Arc<Prepared>) -> Self {
        Ready { prepared, arguments: Vec::new(), lifted_from: None }
    }

    /// The statement, and its literals.
    pub(crate) fn into_parts(self) -> (Arc<Prepared>, Vec<Value>) {
        (self.prepared, self.arguments)
    }
}

/// One client's view of a database.
pub struct Session {
    database: Database,
    settings: SettingStore,
    facts: Facts,
    cache: PlanCache<Arc<Prepared>>,
    /// Plans by texts without their literals; `None` where binding needs the literals.
    lifted: PlanCache<Option<Arc<Prepared>>>,
    /// Room for the next text without its literals, and for the literals.
    lift: Lifted,
    spare_arguments: Vec<Value>,
    block: Block,
    failed: bool,
    tx: Option<Transaction<'static>>,
    /// Whether the transaction has changed definitions.
    defined: bool,
    /// The statement that was bound last has looked a table up in the committed catalog.
    has_looked_up: bool,
    savepoints: Vec<NamedSavepoint>,
    /// Savepoints so far, in all blocks.
    savepoints_made: u64,
    /// The savepoint, by its number, to which a rollback went back: portals with rows that were read after it were
    /// closed. 0 for all portals.
    portals_closed: Option<u64>,
    closings: Vec<Closing>,
    /// Whether the time of a statement is limited and runs.
    timed: bool,
    /// Statements run in this block.
    statements: usize,
    /// Of these, those of the open transaction that have an account.
    accounted: usize,
    now: i64,
    notices: Vec<(Severity, SqlError)>,
    status_changes: Vec<(&'static str, String)>,
    cancel: Arc<Cancel>,
    reading_room: Arc<Room>,
    /// The place and the level of the definitions that were awaited last.
    settled: Option<(Lsn, Option<Durability>)>,
    /// The partitions, if the session is one over partitions. `tx` stays empty then.
    over: Option<Box<Over>>,
    /// Whether the session runs the statements of a branch.
    is_branch: bool,
}

impl Session {
    /// A session on a database, for this user and database name.
    pub fn new(database: Database, user: &str, name: &str) -> Session {
        Session::beside_others(database, user, name, Room::new(READING_ROOM_BYTES))
    }

    /// As [`Session::new`]. The session reads its statements within the room that the other sessions of this room have
    /// left.
    pub fn beside_others(database: Database, user: &str, name: &str, room: Arc<Room>) -> Session {
        Session {
            database,
            settings: SettingStore::default(),
            facts: Facts { user: user.to_string(), database: name.to_string() },
            cache: PlanCache::default(),
            lifted: PlanCache::default(),
            lift: Lifted::default(),
            spare_arguments: Vec::new(),
            block: Block::None,
            failed: false,
            tx: None,
            defined: false,
            has_looked_up: false,
            savepoints: Vec::new(),
            savepoints_made: 0,
            portals_closed: None,
            closings: Vec::new(),
            timed: false,
            statements: 0,
            accounted: 0,
            now: 0,
            notices: Vec::new(),
            status_changes: Vec::new(),
            cancel: Arc::default(),
            reading_room: room,
            settled: None,
            over: None,
            is_branch: false,
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

    /// Whether a transaction is open that the client did not begin by BEGIN: its outcome is still to come.
    #[inline]
    pub fn is_in_implicit_block(&self) -> bool {
        self.block == Block::Implicit
    }

    /// Whether there are notices, changed settings, closed portals or closings to take.
    #[inline]
    pub fn has_news(&self) -> bool {
        !self.notices.is_empty()
            || !self.status_changes.is_empty()
            || self.portals_closed.is_some()
            || !self.closings.is_empty()
    }

    /// What the statement that has run drops of that which the session's owner keeps. It is dropped at once, whatever
    /// becomes of the transaction.
    pub fn take_closings(&mut self) -> Vec<Closing> {
        std::mem::take(&mut self.closings)
    }

    /// The number of the newest savepoint: a portal that is opened now, or reads now, does so after it.
    #[inline]
    pub fn savepoint_number(&self) -> u64 {
        self.savepoints_made
    }

    /// The savepoint, by its number, to which a rollback went back since the last call. That closed the portals that
    /// were opened after it, or that keep rows that were read after it. 0 at the end of a block, which closes all.
    pub fn take_closed_portals(&mut self) -> Option<u64> {
        self.portals_closed.take()
    }

    /// The durability of commits, and of what was read before the client is told of it; `None` for the database's own.
    #[inline]
    pub fn durability(&self) -> Option<Durability> {
        self.settings.current().durability.map(Level::of_database)
    }

    /// Outside of a block: waits until what the open transaction has read is durable, for a caller that tells the
    /// client of it before the transaction has ended (I3).
    pub fn settle(&mut self) -> Result<()> {
        match (&mut self.tx, self.block) {
            (Some(tx), Block::Implicit) => Ok(tx.settled().wait()?),
            (None, Block::Implicit) if self.over.is_some() => self.settle_over(),
            _ => Ok(()),
        }
    }

    /// Refuses everything but the end of a block that has failed.
    #[inline]
    pub fn check_not_failed(&self) -> Result<()> {
        if self.failed { Err(block::in_failed_block()) } else { Ok(()) }
    }

    /// Warnings and notices since the last call.
    pub fn take_notices(&mut self) -> Vec<(Severity, SqlError)> {
        let mut notices = std::mem::take(&mut self.notices);
        if !self.settings.current().notices {
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
        self.settings.set_at_start(&name, &SetValue::Text(value.to_string()))?;
        self.check_replicas(&name.text)
    }

    /// What SHOW tells of a setting.
    pub fn show(&self, name: &str) -> String {
        if name == settings::RAISE_STALLS {
            return settings::show_wait(self.database.raised_stalls());
        }
        let partitions = self.over.as_ref().map(|over| &over.partitions);
        match name {
            settings::NODES => partitions.map_or_else(String::new, |all| all.nodes().join(",")),
            settings::NODE_COUNTS => {
                partitions.and_then(|all| all.counts()).map_or_else(String::new, |counts| counts.to_string())
            }
            name => self.settings.current().show(name, self.settings.access() == Access::ReadOnly),
        }
    }

    /// Gives an error if a cancel request has come between two statements of a query string, or of a pipeline whose
    /// transaction is open. Between other statements there is nothing to cancel.
    ///
    /// # Errors
    /// SQLSTATE 57014.
    #[inline]
    pub fn check_not_cancelled(&self) -> Result<()> {
        self.cancel.check_between()
    }

    /// A query string of several statements begins or has ended. Until its end a cancel request ends the current or
    /// next statement.
    pub fn set_in_string(&self, in_string: bool) {
        self.cancel.set_in_string(in_string);
    }

    /// The handle by which another thread cancels what the session runs.
    pub fn cancel(&self) -> Arc<Cancel> {
        self.cancel.clone()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The last handle of a database waits for open transactions when it is dropped, so the session's own has to end
        // first.
        self.abandon();
    }
}
