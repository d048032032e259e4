//! [`System`]: what the experiments compare.

use rialto::{Engine, Executors, HandOver};

use super::run::cores;

/// A way to run transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// A thread runs a transaction, with the central lock manager: the paper's Baseline.
    Central,
    /// A thread runs a transaction, with locks in the records: this program's default.
    Thin,
    /// The paper's DORA, in place: the calling thread runs the call.
    DataOriented,
    /// The paper's DORA, bound: threads own the executors, one a processor unless a figure says otherwise.
    Bound,
}

impl System {
    /// In the order in which they are shown.
    pub const ALL: [System; 4] = [System::Central, System::Thin, System::DataOriented, System::Bound];

    /// For tables and pictures.
    pub fn name(self) -> &'static str {
        match self {
            System::Central => "conventional, central locks",
            System::Thin => "conventional, thin locks",
            System::DataOriented => "data-oriented",
            System::Bound => "data-oriented, threads",
        }
    }

    /// The engine that the database is opened with. All that tells the systems apart is here.
    pub fn engine(self) -> Engine {
        match self {
            System::Central => Engine::central(),
            System::Thin => Engine::thin(),
            System::DataOriented => Engine::data_oriented(),
            System::Bound => {
                Executors { threads: cores() as usize, hand_over: HandOver::Always, ..Executors::default() }
                    .into()
            }
        }
    }

    /// What the systems are, for a paragraph.
    pub const LEGEND: &'static str = "On every system clients call the same procedures, and wait for each call. *Central locks* is the \
        conventional engine with its central lock manager, the paper's Baseline; *thin locks* the same with locks in the records' own \
        headers, this program's default, whose transactions that only read lock no rows; *data-oriented* the data-oriented engine in \
        place: a thread runs a phase of its call itself while it has the phase's executors, that is their local lock tables, leased; \
        *threads* the same engine with threads that own the executors: every call is handed to them.";
}
