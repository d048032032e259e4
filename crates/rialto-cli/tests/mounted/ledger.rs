//! What was acknowledged, and what may exist: the history of one client's tables.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::change::Change;
use crate::tables::{Table, Tables};

/// Clients of a server at a time.
pub const CLIENTS: usize = 3;

/// The level of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// It outlives the process.
    Memory,
    /// It outlives the machine.
    Disk,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Level::Memory => "memory",
            Level::Disk => "disk",
        }
    }
}

/// Transactions of each client.
pub type Counts = [usize; CLIENTS];

/// How many transactions of each client were acknowledged in a life of the server, and how many of those survive a loss
/// of power.
///
/// The log is written in the order of commits, so a commit on disk has all earlier ones with it. A commit at level disk
/// therefore makes everything durable that any client was told before that commit was requested.
#[derive(Debug, Default)]
pub struct Progress {
    told: [AtomicUsize; CLIENTS],
    durable: [AtomicUsize; CLIENTS],
}

impl Progress {
    /// Before a commit is requested: the transactions that it will have before it.
    pub fn now(&self) -> Counts {
        std::array::from_fn(|client| self.told[client].load(Ordering::SeqCst))
    }

    /// A client's commit was acknowledged; `before` is from the moment of its request.
    pub fn acknowledged(&self, client: usize, level: Level, mut before: Counts) {
        before[client] = self.told[client].fetch_add(1, Ordering::SeqCst) + 1;
        if level == Level::Disk {
            for (durable, count) in self.durable.iter().zip(before) {
                durable.fetch_max(count, Ordering::SeqCst);
            }
        }
    }

    /// How many transactions of each client survive a loss of power.
    pub fn all_durable(&self) -> Counts {
        std::array::from_fn(|client| self.durable(client))
    }

    pub fn durable(&self, client: usize) -> usize {
        self.durable[client].load(Ordering::SeqCst)
    }
}

/// One client's transactions in one life of the server, in order.
#[derive(Debug)]
pub struct History {
    /// The tables when the life began.
    pub base: Tables,
    /// What was acknowledged.
    pub told: Vec<Vec<Change>>,
    /// The last request, if it was never answered: its changes may exist.
    pub unanswered: Option<Vec<Change>>,
}

impl History {
    pub fn new(base: Tables) -> History {
        History { base, told: Vec::new(), unanswered: None }
    }

    /// Compares the contents found with what was acknowledged: they have to be those after some transaction of the
    /// client, not before the last that must exist. Gives the fewest transactions that make them up.
    pub fn check(&self, found: &Tables, least: usize, about: &str) -> usize {
        self.check_between(found, (least, usize::MAX), about)
    }

    /// The same, with an upper bound on the transactions.
    pub fn check_between(&self, found: &Tables, (least, most): (usize, usize), about: &str) -> usize {
        let mut tables = self.base.clone();
        let mut fewest = (least == 0 && tables == *found).then_some(0);
        let mut at_least = tables.clone();
        for (at, changes) in self.told.iter().chain(&self.unanswered).take(most).enumerate() {
            changes.iter().for_each(|change| tables.apply(change));
            if at + 1 == least {
                at_least = tables.clone();
            }
            if fewest.is_none() && at + 1 >= least && tables == *found {
                fewest = Some(at + 1);
            }
        }
        let all = self.told.len() + usize::from(self.unanswered.is_some());
        fewest.unwrap_or_else(|| {
            panic!(
                "{about}: {least} of {} acknowledged transactions must be there, at most {} may be, and this is what none of them left:\n{}",
                self.told.len(),
                most.min(all),
                differences(&at_least, found)
            )
        })
    }
}

/// The differences between the contents found and the least required ones.
fn differences(expected: &Tables, found: &Tables) -> String {
    let mut lines = Vec::new();
    if expected.count != found.count {
        lines.push(format!("  {} are counted, not {}", found.count, expected.count));
    }
    let names =
        expected.by_name.keys().chain(found.by_name.keys()).collect::<std::collections::BTreeSet<_>>();
    for name in names {
        match (expected.by_name.get(name), found.by_name.get(name)) {
            (Some(expected), Some(found)) => {
                let outline = |it: &Table| format!("keyed {}, index {:?}", it.keyed, it.index);
                if outline(expected) != outline(found) {
                    lines.push(format!("  {name}: {}, not {}", outline(found), outline(expected)));
                }
                let keys = expected.rows.keys().chain(found.rows.keys());
                for key in keys.collect::<std::collections::BTreeSet<_>>() {
                    let (expected, found) = (expected.rows.get(key), found.rows.get(key));
                    if expected != found {
                        lines
                            .push(format!("  {name}, row {key}: found {found:?}, at least was {expected:?}"));
                    }
                }
            }
            (Some(_), None) => lines.push(format!("  {name} is missing")),
            (None, _) => lines.push(format!("  {name} should not be there")),
        }
    }
    lines.join("\n")
}
