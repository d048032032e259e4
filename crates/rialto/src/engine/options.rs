//! [`Engine`]: how transactions are assigned to threads, and how locks are kept, as a database's options choose it.

use std::fmt;
use std::ops::RangeInclusive;

use super::planning::Planning;
use crate::isolate::LockForm;

/// The most executors.
const COUNT_MAX: usize = 4_096;
/// The most threads that may own executors.
const THREADS_MAX: usize = 256;

/// How transactions are assigned to threads ([`Options::engine`](crate::Options::engine));
/// [conventional](Engine::Conventional) with [thin locks](Locks::Thin) by default. A flow means the same on each
/// engine, and a database may be opened with another engine than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Thread-to-transaction: a thread runs its transaction, and the transaction locks each row that it touches.
    Conventional {
        /// How locks are kept while no transactions conflict.
        locks: Locks,
    },
    /// Thread-to-data (DORA): executors have the data, each a share of the keys and a lock table for them, and
    /// transactions go to the executors.
    DataOriented(Executors),
}

/// How the conventional engine keeps locks while no transactions conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Locks {
    /// Present records are locked in their own words, and tables, by intention, in the slots of the transactions. On
    /// conflict a lock gets a queue.
    #[default]
    Thin,
    /// Every lock has a queue, in a hash table of the lock manager: the baseline of the papers.
    Central,
}

/// The executors of the data-oriented engine: how many, and on which threads.
///
/// ```
/// # use rialto::{Engine, Executors, Options};
/// let executors = Executors { threads: 2, ..Executors::default() };
/// let options = Options { engine: executors.into(), ..Options::default() };
/// # assert_eq!(options.engine, Engine::DataOriented(Executors::of(64, 2)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Executors {
    /// The number of lock tables among which the keys of each index are divided; 64 by default, at most 4,096.
    pub count: usize,
    /// How many executors there may be later: the resource manager adds some where transactions conflict
    /// ([`Database::set_executors`](crate::Database::set_executors)); 0, the default: no more than at first.
    pub count_max: usize,
    /// How many threads own the executors. Each thread owns an equal number of executors with adjacent numbers, and
    /// runs the parts of procedure calls that use their data; at most 256. 0, the default: the thread that calls a
    /// procedure runs the call in place, and has the executors for itself meanwhile. Closures and handles always run on
    /// their own thread. With threads, at most half of [`Options::transactions_max`](crate::Options::transactions_max)
    /// calls are in progress at a time; further callers wait.
    pub threads: usize,
    /// How many threads there may be later: the resource manager adds some where tasks queue up
    /// ([`Database::set_executor_threads`](crate::Database::set_executor_threads)); 0, the default: no more than at
    /// first.
    pub threads_max: usize,
    /// Whether such threads always run the actions of a phase at the same time, or one after the other where they
    /// abort often, which is the default.
    pub planning: Planning,
    /// Whether such threads run every call, or only calls that find them busy, which is the default.
    pub hand_over: HandOver,
}

/// When a call is handed over to a thread that owns executors ([`Executors::threads`]). A call that is sent
/// ([`Database::send_call`](crate::Database::send_call)) is always handed over, because its caller does not wait for
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HandOver {
    /// If the thread that owns the call's first executor is busy or has a backlog. Otherwise the caller, which waits
    /// for the call anyway, runs it itself, which takes less time than two thread switches. Tasks that arrive for the
    /// thread meanwhile wait on its queue, unless the caller has to wait for a lock, for room in the log or for a
    /// checkpoint: then the thread goes on.
    #[default]
    IfBusy,
    /// Always, as in the DORA paper.
    Always,
}

impl Engine {
    /// One of each kind: conventional with thin locks, the same with central locks, and data-oriented in place.
    pub const ALL: [Engine; 3] = [Engine::thin(), Engine::central(), Engine::data_oriented()];

    /// The conventional engine with thin locks, the default.
    pub const fn thin() -> Engine {
        Engine::Conventional { locks: Locks::Thin }
    }

    /// The conventional engine with central locks.
    pub const fn central() -> Engine {
        Engine::Conventional { locks: Locks::Central }
    }

    /// The data-oriented engine with the default number of executors, in place.
    pub const fn data_oriented() -> Engine {
        Engine::DataOriented(Executors::by_default())
    }

    /// The executors, if it is the data-oriented engine.
    pub const fn executors(&self) -> Option<Executors> {
        match self {
            Engine::DataOriented(executors) => Some(*executors),
            Engine::Conventional { .. } => None,
        }
    }

    /// Whether executors have the data.
    pub const fn is_data_oriented(&self) -> bool {
        matches!(self, Engine::DataOriented(_))
    }

    /// The form in which the lock manager keeps locks for it.
    pub(crate) fn lock_form(&self) -> LockForm {
        match self {
            Engine::Conventional { locks: Locks::Thin } => LockForm::Thin,
            Engine::Conventional { locks: Locks::Central } => LockForm::Central,
            Engine::DataOriented(_) => LockForm::Local,
        }
    }

    /// How many executors there are at first, and how many there is room for.
    pub(crate) fn executor_bounds(&self) -> RangeInclusive<usize> {
        self.executors().map_or(0..=0, |executors| executors.count..=executors.count_max.max(executors.count))
    }

    /// How many threads own executors at first, and how many there is room for.
    pub(crate) fn thread_bounds(&self) -> RangeInclusive<usize> {
        self.executors()
            .map_or(0..=0, |executors| executors.threads..=executors.threads_max.max(executors.threads))
    }

    /// When calls are handed over to threads that own executors.
    pub(crate) fn hand_over(&self) -> HandOver {
        self.executors().map_or_else(HandOver::default, |executors| executors.hand_over)
    }

    /// Whether plans of phases follow how often the phases abort.
    pub(crate) fn adapts_plans(&self) -> bool {
        let adapts = |executors: Executors| executors.threads > 0 && executors.planning == Planning::Adaptive;
        self.executors().is_some_and(adapts)
    }
}

impl Default for Engine {
    fn default() -> Engine {
        Engine::thin()
    }
}

impl From<Locks> for Engine {
    fn from(locks: Locks) -> Engine {
        Engine::Conventional { locks }
    }
}

impl From<Executors> for Engine {
    fn from(executors: Executors) -> Engine {
        Engine::DataOriented(executors)
    }
}

/// "thin locks", "central locks", "64 executors in place", "64 executors on 2 threads".
impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Engine::Conventional { locks: Locks::Thin } => f.write_str("thin locks"),
            Engine::Conventional { locks: Locks::Central } => f.write_str("central locks"),
            Engine::DataOriented(executors) => executors.fmt(f),
        }
    }
}

impl Executors {
    /// So many executors, owned by so many threads, or in place if there are none; the rest by default.
    pub const fn of(count: usize, threads: usize) -> Executors {
        Executors { count, threads, ..Executors::by_default() }
    }

    /// The same, but every call is handed over to the threads ([`HandOver::Always`]).
    pub const fn handing_over(self) -> Executors {
        Executors { hand_over: HandOver::Always, ..self }
    }

    const fn by_default() -> Executors {
        Executors {
            count: 64,
            count_max: 0,
            threads: 0,
            threads_max: 0,
            planning: Planning::Adaptive,
            hand_over: HandOver::IfBusy,
        }
    }

    /// What is wrong with them, if anything: which field, and what it may be.
    pub(crate) fn problem(&self) -> Option<String> {
        let Executors { count, count_max, threads, threads_max, planning: _, hand_over: _ } = *self;
        if !(1..=COUNT_MAX).contains(&count) {
            return Some(format!("Executors::count is {count}, expected 1 to {COUNT_MAX}"));
        }
        for (name, most, least, limit) in
            [("count", count_max, count, COUNT_MAX), ("threads", threads_max, threads, THREADS_MAX)]
        {
            if most != 0 && !(least..=limit).contains(&most) {
                return Some(format!(
                    "Executors::{name}_max is {most} with {name} {least}, expected {least} to {limit}, or 0 for no more"
                ));
            }
        }
        if threads_max > 0 && threads == 0 {
            return Some(format!(
                "Executors::threads_max is {threads_max} without threads: give at least one"
            ));
        }
        if threads > THREADS_MAX {
            return Some(format!("Executors::threads is {threads}, expected at most {THREADS_MAX}"));
        }
        None
    }
}

impl Default for Executors {
    fn default() -> Executors {
        Executors::by_default()
    }
}

impl fmt::Display for Executors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.threads {
            0 => write!(f, "{} executors in place", self.count),
            threads => write!(f, "{} executors on {threads} threads", self.count),
        }
    }
}
