//! What clients observe: attempts, each with a version of its own for every write, and the rows that they saw.
//!
//! Each key has a row in one of the tables, or none, and a *grave*, a row of another table that always exists. A row
//! has the list of all versions that its key has had, its own last. A removal adds its version too, and writes the list
//! to the grave. So the order of a key's versions is in the data, over removals as well.

use std::sync::atomic::{AtomicU64, Ordering};

use rialto::{Durability, Engine};

use super::scans::Predicate;

/// A write's number. It is unique over writes, and over the attempts of a transaction.
pub type Version = u64;

/// An attempt's versions are its number times this, and the following numbers.
pub const VERSIONS_EACH: u64 = 1_024;

/// The first attempt's number. Versions below its own belong to the first rows of the tables.
const FIRST_ATTEMPT: u64 = 3;

/// Tables that have rows; each has a second one for its graves.
pub const TABLES: usize = 2;

/// The names of the tables of rows. The first one's index on the tags is unique.
pub const ROWS: [&str; TABLES] = ["things", "others"];

/// The names of the tables of their graves.
pub const GRAVES: [&str; TABLES] = ["things_graves", "others_graves"];

/// The names of an index on the parts that is made and dropped.
pub const EXTRA: [&str; TABLES] = ["things_extra", "others_extra"];

/// Hot identifiers: a narrow space has no others.
pub const KEYS: i32 = 16;

/// Hot values of the column with the secondary index.
pub const PARTS: i32 = 4;

/// Hot values of the column with the unique index.
pub const TAGS: i32 = 8;

/// A row's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub table: usize,
    pub id: i32,
}

/// A row without its versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Values {
    pub part: i32,
    pub tag: Option<i32>,
}

/// A row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub values: Values,
    pub versions: Vec<Version>,
}

/// The text of a row with these versions.
pub fn text_of(versions: &[Version]) -> String {
    let words: Vec<String> = versions.iter().map(u64::to_string).collect();
    words.join(" ")
}

/// The versions in a row's text. None for a text that is not of this form.
pub fn versions_in(text: &str) -> Option<Vec<Version>> {
    text.split_ascii_whitespace().map(|word| word.parse().ok()).collect()
}

/// One event of an attempt, in the order of the attempt's operations.
#[derive(Debug, Clone)]
pub enum Event {
    Read {
        key: Key,
        seen: Option<Row>,
    },
    /// The list in a key's grave.
    Grave {
        key: Key,
        versions: Vec<Version>,
    },
    Scan {
        table: usize,
        predicate: Predicate,
        seen: Vec<(i32, Row)>,
    },
    /// The unique index let this key have the tag, so no other key had it.
    Claimed {
        key: Key,
        tag: i32,
    },
    Put {
        key: Key,
        row: Row,
    },
    /// The row was removed, and this list written to the grave.
    Removed {
        key: Key,
        versions: Vec<Version>,
    },
    Savepoint,
    /// The writes since the newest savepoint were rolled back, and the savepoint is gone.
    RolledBack,
    /// The newest savepoint is gone, and the writes since it stay.
    Released,
    /// Something that no serializable execution shows.
    Wrong(String),
}

/// The outcome of an attempt, as far as its client was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// With its place in the log if the client was told. For an attempt without writes that is the last place on which
    /// it depends.
    Committed {
        place: Option<u64>,
    },
    Aborted,
    Unknown,
}

/// One run of a transaction.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub number: u64,
    /// By the clock of the history, before the first operation.
    pub began: u64,
    /// After the client had the outcome, or knew the place; none if it was never told.
    pub ended: Option<u64>,
    pub outcome: Outcome,
    /// The level that an answer promised for everything that this attempt saw and wrote; none if no answer did.
    pub told: Option<Durability>,
    /// Whether its reads have to fit together although it aborted: false for an optimistic run that was discarded.
    pub coherent: bool,
    pub events: Vec<Event>,
}

impl Attempt {
    pub fn aborted(number: u64, began: u64) -> Attempt {
        Attempt {
            number,
            began,
            ended: None,
            outcome: Outcome::Aborted,
            told: None,
            coherent: true,
            events: Vec::new(),
        }
    }
}

/// How a life of a database ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    PowerLost,
    Killed,
    /// Closed, or still open: everything that was committed is there.
    Closed,
}

impl End {
    /// Whether what was promised at this level is there afterwards.
    pub fn spares(self, told: Option<Durability>) -> bool {
        match self {
            End::PowerLost => told == Some(Durability::Disk),
            End::Killed => told.is_some(),
            End::Closed => true,
        }
    }
}

/// The state of a key when a life begins or has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    pub versions: Vec<Version>,
    pub values: Option<Values>,
    /// The number of versions in the grave.
    pub in_grave: usize,
}

/// All keys; missing keys have had no version yet.
pub type State = std::collections::BTreeMap<Key, Found>;

/// The events from one opening of a database to the next.
#[derive(Debug, Clone)]
pub struct Life {
    /// The engine of its database.
    pub engine: Engine,
    /// The state when it began.
    pub first: State,
    pub attempts: Vec<Attempt>,
    pub end: End,
    /// The state when it had ended, before anything else was done; none if that was not read.
    pub last: Option<State>,
}

/// The one clock of a history, and the numbers of its attempts.
#[derive(Default)]
pub struct Clock {
    time: AtomicU64,
    attempts: AtomicU64,
}

impl Clock {
    pub fn now(&self) -> u64 {
        self.time.fetch_add(1, Ordering::SeqCst)
    }

    /// The number of the next attempt.
    pub fn attempt(&self) -> u64 {
        FIRST_ATTEMPT + self.attempts.fetch_add(1, Ordering::Relaxed)
    }
}
