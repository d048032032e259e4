//! The workloads: [`tpcb`] and [`scp`].

mod arguments;
mod scp;
#[cfg(test)]
mod tests;
mod tpcb;

use std::collections::BTreeMap;
use std::sync::Arc;

use rialto::io::Random;
use rialto::row::RowView;
use rialto::{Database, Error, Result, Scan, Transaction};
use rialto_cluster::node::{Call, Procedures};
use serde::{Deserialize, Serialize};

pub use self::scp::Scp;
pub use self::tpcb::Tpcb;
use crate::homes::Homes;
use crate::spec::{Data, WorkloadName};

/// Rows of one transaction of a load: some 1 MiB of log.
const LOADED_AT_ONCE: u32 = 10_000;

/// A workload: its tables, its procedures, and what they must add up to.
pub trait Workload: Send + Sync {
    /// The types of its transactions.
    fn kinds(&self) -> &'static [&'static str];

    /// What the program of each node has.
    fn procedures(&self) -> Procedures;

    /// Makes the tables of a partition.
    ///
    /// # Errors
    /// Those of the database.
    fn make(&self, db: &Database) -> Result<()>;

    /// Fills the tables of a partition, which are empty, for these branches.
    ///
    /// # Errors
    /// Those of the database.
    fn load(&self, db: &Database, branches: &[i32]) -> Result<()>;

    /// Whether transactions of a type may write.
    fn writes(&self, kind: usize) -> bool;

    /// Runs a transaction of a type in one database.
    ///
    /// # Errors
    /// Those of the database; a row that is missing.
    fn run(&self, tx: &mut Transaction<'_>, kind: usize, arguments: &[u8]) -> Result<()>;

    /// A client's next transaction.
    fn draw(&self, random: &mut Random, place: &Place<'_>) -> Drawn;

    /// Adds up the tables of a partition.
    ///
    /// # Errors
    /// Those of the database.
    fn audit(&self, db: &Database, audit: &mut Audit) -> Result<()>;

    /// What does not hold, all partitions added up, in words; nothing if all does.
    fn problems(&self, audit: &Audit, told: &Told, partitions: u32) -> Vec<String>;
}

/// The workload of this name, with these sizes.
pub fn of(data: Data) -> Arc<dyn Workload> {
    match data.workload {
        WorkloadName::Tpcb => Arc::new(Tpcb::new(data)),
        WorkloadName::Scp => Arc::new(Scp::new(data)),
    }
}

/// Where a client runs.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Where branches lie.
    pub homes: &'a Homes,
    /// The client's node.
    pub node: u32,
    /// Transactions that use another node, in percent.
    pub remote_pct: u32,
}

impl Place<'_> {
    /// A branch of this node; and one of another node in as many cases as are to be remote, else none.
    fn draw(&self, random: &mut Random) -> (i32, Option<i32>) {
        let here = self.homes.draw(random, self.node);
        let is_remote = random.chance(u64::from(self.remote_pct), 100);
        (here, is_remote.then(|| self.homes.draw_elsewhere(random, self.node)).flatten())
    }
}

/// A transaction, as a client has drawn it.
#[derive(Debug)]
pub struct Drawn {
    /// Its calls, one after the other; more than one without a commit protocol alone.
    pub calls: Vec<Call>,
    /// The arguments of its calls.
    pub arguments: Vec<u8>,
    /// Whether it uses another node.
    pub is_remote: bool,
    /// Its type: the position among [`Workload::kinds`].
    pub kind: usize,
}

/// The sum of the messages of transactions that nodes have sent since their start, and that of tries of calls after their first one.
pub const MESSAGES: &str = "messages of transactions";
/// See [`MESSAGES`].
pub const TRIES_AGAIN: &str = "tries again";

/// What the tables hold, and what nodes have counted since their start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// Sums, by name.
    pub sums: BTreeMap<String, i64>,
    /// What does not hold within a partition, in words.
    pub problems: Vec<String>,
}

impl Audit {
    /// Adds to a sum.
    pub fn add(&mut self, name: &str, amount: i64) {
        *self.sums.entry(name.to_owned()).or_default() += amount;
    }

    /// Adds those of another node.
    pub fn merge(&mut self, other: Audit) {
        for (name, amount) in other.sums {
            self.add(&name, amount);
        }
        self.problems.extend(other.problems);
    }

    /// A sum; 0 if there is none of this name.
    pub fn sum(&self, name: &str) -> i64 {
        self.sums.get(name).copied().unwrap_or(0)
    }

    /// A problem if a sum is another one than expected.
    fn expect(&self, name: &str, expected: std::ops::RangeInclusive<i64>, problems: &mut Vec<String>) {
        let found = self.sum(name);
        if !expected.contains(&found) {
            let (least, most) = expected.into_inner();
            problems.push(format!("{name}: {found}, expected {least} to {most}"));
        }
    }
}

/// What clients were told, by type of transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Answered.
    pub answered: Vec<u64>,
    /// Those of which no client knows whether they have had an effect.
    pub unknown: Vec<u64>,
}

impl Told {
    /// Of a workload.
    pub fn new(kinds: usize) -> Told {
        Told { answered: vec![0; kinds], unknown: vec![0; kinds] }
    }

    /// Adds what others were told.
    pub fn merge(&mut self, other: &Told) {
        for (own, other) in [(&mut self.answered, &other.answered), (&mut self.unknown, &other.unknown)] {
            own.resize(own.len().max(other.len()), 0);
            own.iter_mut().zip(other).for_each(|(own, other)| *own += other);
        }
    }

    /// The least and the most transactions of a type that may have had an effect.
    fn effects(&self, kind: usize) -> std::ops::RangeInclusive<i64> {
        let of = |counts: &[u64]| counts.get(kind).copied().unwrap_or(0) as i64;
        let answered = of(&self.answered);
        answered..=answered + of(&self.unknown)
    }
}

/// Runs an insertion for each number below a bound, in transactions of some rows each.
fn load_rows(
    db: &Database,
    bound: u32,
    mut insert: impl FnMut(&mut Transaction<'_>, u32) -> Result<()>,
) -> Result<()> {
    for first in (0..bound).step_by(LOADED_AT_ONCE as usize) {
        let last = bound.min(first + LOADED_AT_ONCE);
        db.transact(|tx| (first..last).try_for_each(|number| insert(tx, number)))?;
    }
    Ok(())
}

/// Visits the rows of a table; counts them.
fn each(
    tx: &mut Transaction<'_>,
    table: &str,
    mut visit: impl FnMut(RowView<'_>) -> Result<()>,
) -> Result<i64> {
    let (table, mut rows) = (tx.table(table)?, 0);
    tx.scan(&table, &Scan::all(), |_, row| {
        rows += 1;
        visit(row).map(std::ops::ControlFlow::Continue)
    })?;
    Ok(rows)
}

/// A row that a transaction needs is not there.
fn missing(table: &str, branch: i32, number: i32) -> Error {
    Error::aborted(format!("{table} has no row {number} of branch {branch}"))
}
