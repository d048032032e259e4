//! What passes between a session and the branches of its transaction: [`Request`] and [`Reply`], as plain data.

use std::time::Duration;

use rialto::{Durability, TxOptions};
use serde::{Deserialize, Serialize};

use super::placement::Placement;
use super::wire::{Bytes, Cells, ColumnDefinition, IndexDefinition, Told};
use crate::error::Severity;

/// The number of a partition, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PartitionNumber(pub u32);

impl PartitionNumber {
    /// The partition in which statements that concern all of them begin, so that two of them wait for each other there,
    /// and not in two partitions in turn.
    pub const FIRST: PartitionNumber = PartitionNumber(0);
}

impl std::fmt::Display for PartitionNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "partition {}", self.0)
    }
}

/// Facts of a session that its branches need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// The user's name.
    pub user: String,
    /// The database's name.
    pub database: String,
}

/// How durable a commit is, as the session's client knows the levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Level {
    /// Level 1: [`Durability::Memory`].
    Memory,
    /// Level 2: in the memory of every standby, too. The nodes of a cluster see to it. One database has no standbys, so its
    /// disk counts.
    Standby,
    /// Level 3: [`Durability::Disk`].
    Disk,
}

impl Level {
    /// The level of a branch in its database, whose node waits for the standbys.
    pub fn of_branch(self) -> Durability {
        match self {
            Level::Memory | Level::Standby => Durability::Memory,
            Level::Disk => Durability::Disk,
        }
    }

    /// The level of a session that has one database.
    pub fn of_database(self) -> Durability {
        match self {
            Level::Memory => Durability::Memory,
            Level::Standby | Level::Disk => Durability::Disk,
        }
    }
}

/// The choices of a transaction that its settings make. Times are in microseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choices {
    /// The level of the commit; `None` for the database's own.
    pub durability: Option<Level>,
    /// The longest wait for one lock.
    pub lock_timeout_us: u64,
    /// How long the commit stalls; `None` for the database's own.
    pub commit_stall_us: Option<u64>,
    /// How long the transaction is willing to take; `None` for the database's own.
    pub willing_to_wait_us: Option<u64>,
    /// Whether writes are refused.
    pub read_only: bool,
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Choices {
    /// The choices of these options, at this level.
    pub fn of(options: &TxOptions, durability: Option<Level>) -> Choices {
        Choices {
            durability,
            lock_timeout_us: options.lock_timeout.map_or(u64::MAX, micros),
            commit_stall_us: options.commit_stall.map(micros),
            willing_to_wait_us: options.willing_to_wait.map(micros),
            read_only: options.read_only,
        }
    }

    /// The options of a branch. `alone` says that its transaction has no other branch, now or later.
    pub fn options(&self, alone: bool) -> TxOptions {
        TxOptions {
            durability: self.durability.map(Level::of_branch),
            lock_timeout: Some(Duration::from_micros(self.lock_timeout_us)),
            commit_stall: self.commit_stall_us.map(Duration::from_micros),
            willing_to_wait: self.willing_to_wait_us.map(Duration::from_micros),
            read_only: self.read_only,
            may_prepare: !alone,
            ..TxOptions::default()
        }
    }
}

/// A request to one branch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Does some work. The branch has no work that is unfinished.
    Run(Box<Run>),
    /// Asks for the next portion of rows, after a reply with [`Answer::More`].
    Fetch,
    /// No more rows are wanted, after a reply with [`Answer::More`]. The reply is [`Answer::Done`].
    Close,
}

/// Work for a branch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The choices in force. They may differ from those of earlier requests.
    pub choices: Choices,
    /// When the session's block began: microseconds since 1970, UTC.
    pub now: i64,
    /// The session's savepoints before this request.
    pub savepoints: Savepoints,
    /// Whether rows may go to the client before the transaction has ended. Then a reply has only rows that were read
    /// from what is durable at the level of [`Run::choices`] (I3).
    pub settle: bool,
    /// Whether this is the only request of its transaction, which is to be committed at once: see
    /// [`Branches::run`](super::Branches::run).
    pub then_commit: bool,
    /// The work.
    pub work: Work,
}

/// The savepoints that a branch has to be able to go back to. They are numbered in the order in which the session made
/// them. A branch makes its own savepoint with the next request after a new one, so a savepoint costs no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Savepoints {
    /// The newest number; 0 without savepoints.
    pub newest: u64,
    /// The oldest one that was not released; 0 without savepoints.
    pub oldest: u64,
}

/// The kinds of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Work {
    /// A statement.
    Statement(Statement),
    /// Rows for a table.
    Insert(Insert),
    /// The definition of the table of this name, as the branch sees it: [`Answer::Definition`].
    Definition(String),
    /// Takes the rows out of a table that lie in the wrong partition: [`Answer::Misplaced`].
    TakeMisplaced(TakeMisplaced),
    /// Goes back to the state before the session made the savepoint of this number. Everything is taken back if the
    /// branch is younger than it. Takes a cancellation back, too.
    RollbackTo(u64),
}

/// A statement, or a part of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Statement {
    /// Its text.
    pub text: String,
    /// Its arguments.
    pub arguments: Arguments,
    /// What the branch gives of its result.
    pub part: Part,
    /// The digest of its table's definition; `None` for a definition, which has none yet.
    pub expects: Option<u64>,
}

/// The arguments of a statement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Arguments {
    /// None: the text has its values as literals. A branch keeps its plan for texts that differ only in these.
    Literals,
    /// These.
    Given {
        /// The types that the client has fixed, as PostgreSQL's numbers; 0 for one that is open.
        declared: Vec<u32>,
        /// The values.
        values: Cells,
    },
}

/// What a branch gives of a statement's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Part {
    /// All of it: no other partition is concerned, or the rows of all are simply put together.
    Whole,
    /// Of a SELECT that counts: one row with the number of its rows.
    Count,
    /// Rows before OFFSET and LIMIT.
    Rows {
        /// At most so many.
        take: Option<u64>,
        /// Whether the values of the sort keys come after those of each row. The rows come in their order.
        keys: bool,
    },
}

/// Rows for a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Insert {
    /// The table's name.
    pub table: String,
    /// The digest of its definition.
    pub expects: u64,
    /// The rows.
    pub rows: EncodedRows,
}

/// Rows in the kernel's encoding for a schema.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncodedRows {
    bytes: Bytes,
    /// Where each row ends.
    ends: Vec<u32>,
}

impl EncodedRows {
    /// Adds a row. All rows have less than 4 GiB.
    pub fn push(&mut self, row: &[u8]) {
        self.bytes.0.extend_from_slice(row);
        self.ends.push(u32::try_from(self.bytes.0.len()).expect("a batch is much smaller"));
    }

    /// The rows. A place that does not fit ends them: then they came from elsewhere.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut from = 0;
        self.ends
            .iter()
            .map_while(move |&end| self.bytes.0.get(std::mem::replace(&mut from, end as usize)..end as usize))
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of all rows.
    pub fn bytes(&self) -> usize {
        self.bytes.0.len()
    }
}

/// A step on the way through a table whose rows are to be placed anew.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TakeMisplaced {
    /// The table's name. It has a primary key.
    pub table: String,
    /// The digest of its definition.
    pub expects: u64,
    /// The number of the branch's own partition.
    pub here: PartitionNumber,
    /// How many partitions there are.
    pub count: u32,
    /// The primary key after which this step begins; `None` for the first step.
    pub after: Option<Cells>,
}

/// The reply to a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The answer, or the error.
    pub answer: Result<Answer, Told>,
    /// Whether the branch has written anything so far, or may have.
    pub has_written: bool,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// A portion of rows, and there are more: the branch waits for [`Request::Fetch`] or [`Request::Close`].
    More(Vec<Cells>),
    /// The last rows, possibly none.
    Done {
        /// The rows.
        rows: Vec<Cells>,
        /// The number that the statement's tag has: rows that were given, or changed.
        affected: u64,
        /// What the client is told beside.
        notices: Vec<Notice>,
    },
    /// The definition of a table; `None` if there is no such table.
    Definition(Option<Definition>),
    /// Rows that were taken out.
    Misplaced {
        /// The rows.
        rows: EncodedRows,
        /// The primary key after which the next step begins; `None` after the last row.
        last: Option<Cells>,
    },
}

/// A warning or a notice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Notice {
    /// Whether it is a warning.
    pub warns: bool,
    /// What it says.
    pub told: Told,
}

impl Notice {
    pub(crate) fn severity(&self) -> Severity {
        if self.warns { Severity::Warning } else { Severity::Notice }
    }
}

/// The definition of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// Its name.
    pub name: String,
    /// Its columns.
    pub columns: Vec<ColumnDefinition>,
    /// The names of the primary key's columns.
    pub primary_key: Option<Vec<String>>,
    /// Its secondary indexes.
    pub indexes: Vec<IndexDefinition>,
    /// Where its rows lie.
    pub placement: Placement,
}
