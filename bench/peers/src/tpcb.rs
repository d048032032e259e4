//! The bank, as far as engines share it: which rows there are, what a transaction does to them, what must add up.
//!
//! The transactions are those of `rialto bench tpcb`: the same draws, the same order of writes.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rialto::io::Random;
use rialto_workloads::tpcb::TELLERS_PER_BRANCH;

use crate::error::Result;
use crate::table::Table;
pub use rialto_workloads::tpcb::{Movement, Shape};

/// How many rows one transaction loads.
const CHUNK_ROWS: usize = 10_000;

/// A row to load; its balance is 0.
#[derive(Debug, Clone, Copy)]
pub struct NewRow {
    /// Where to.
    pub table: Table,
    /// Its key.
    pub key: u32,
    /// Its branch.
    pub branch: u32,
}

/// All rows of a new bank, in the order of their keys, as many at a time as one transaction should load.
pub fn new_rows(shape: Shape) -> impl Iterator<Item = Vec<NewRow>> {
    let row = |table| move |key: u32, branch: u32| NewRow { table, key, branch };
    let branches = (0..shape.branches).map(move |branch| row(Table::Branches)(branch, branch));
    let tellers = (0..shape.branches * TELLERS_PER_BRANCH)
        .map(move |teller| row(Table::Tellers)(teller, teller / TELLERS_PER_BRANCH));
    let accounts = (0..shape.branches).flat_map(move |branch| {
        shape.accounts_of(branch).map(move |account| row(Table::Accounts)(account, branch))
    });
    let mut all = branches.chain(tellers).chain(accounts);
    std::iter::from_fn(move || {
        let chunk: Vec<NewRow> = all.by_ref().take(CHUNK_ROWS).collect();
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// What a transaction of a peer must be able to do.
pub trait Rows {
    /// Adds to a balance.
    fn add(&mut self, table: Table, key: u32, delta: i64) -> Result<()>;
    /// Appends to the history.
    fn append(&mut self, movement: &Movement, time_us: i64) -> Result<()>;
}

/// The body of the transaction.
#[inline]
pub fn transact(rows: &mut impl Rows, movement: &Movement, time_us: i64) -> Result<()> {
    rows.add(Table::Accounts, movement.account as u32, movement.delta)?;
    rows.append(movement, time_us)?;
    rows.add(Table::Tellers, movement.teller as u32, movement.delta)?;
    rows.add(Table::Branches, movement.branch as u32, movement.delta)
}

/// Where one client's transactions come from.
#[derive(Debug)]
pub struct Source {
    shape: Shape,
    random: Random,
    began: Instant,
    began_us: i64,
}

impl Source {
    /// Of a client; another seed gives other transactions.
    pub fn new(shape: Shape, seed: u64) -> Source {
        let began_us =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64);
        Source { shape, random: Random::new(seed), began: Instant::now(), began_us }
    }

    /// The next one, and its time in microseconds since 1970.
    #[inline]
    pub fn next(&mut self, now: Instant) -> (Movement, i64) {
        let time_us = self.began_us + now.saturating_duration_since(self.began).as_micros() as i64;
        (Movement::draw(&self.shape, &mut self.random), time_us)
    }
}

/// What a pass over all rows of a bank found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sums {
    /// The balances of each table, by [`Table::index`].
    pub balances: [i128; 3],
    /// The rows of each table, by [`Table::index`].
    pub rows: [u64; 3],
    /// The deltas of the history.
    pub deltas: i128,
    /// The rows of the history.
    pub history_rows: u64,
}

impl Sums {
    /// Counts a row.
    pub fn row(&mut self, table: Table, balance: i64) {
        self.balances[table.index()] += i128::from(balance);
        self.rows[table.index()] += 1;
    }

    /// Counts a row of the history.
    pub fn history(&mut self, delta: i64) {
        self.deltas += i128::from(delta);
        self.history_rows += 1;
    }

    /// All rows.
    pub fn all_rows(&self) -> u64 {
        self.rows.iter().sum::<u64>() + self.history_rows
    }

    /// What is wrong, if anything, in a bank on which `committed` transactions were acknowledged and none else begun.
    pub fn problem(&self, shape: Shape, committed: u64) -> Option<String> {
        let expected = [shape.branches, shape.branches * TELLERS_PER_BRANCH, shape.accounts];
        for table in Table::ALL {
            let (found, expected) = (self.rows[table.index()], u64::from(expected[table.index()]));
            if found != expected {
                return Some(format!("{table} has {found} rows, expected {expected}"));
            }
            let balance = self.balances[table.index()];
            if balance != self.deltas {
                return Some(format!(
                    "balances of {table} add up to {balance}, the history to {}",
                    self.deltas
                ));
            }
        }
        (self.history_rows != committed).then(|| {
            format!("the history has {} rows, {committed} transactions committed", self.history_rows)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { branches: 3, accounts: 25_000 };

    #[test]
    fn every_row_is_loaded_once() {
        let mut sums = Sums::default();
        let chunks: Vec<_> = new_rows(SHAPE).collect();
        assert!(chunks.iter().all(|chunk| chunk.len() <= CHUNK_ROWS));
        let mut keys = chunks.iter().flatten().map(|row| (row.table.index(), row.key)).collect::<Vec<_>>();
        let loaded = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), loaded);
        assert!(keys.is_sorted());
        chunks.iter().flatten().for_each(|row| sums.row(row.table, 0));
        assert_eq!(sums.problem(SHAPE, 0), None);
    }

    #[test]
    fn a_bank_that_does_not_add_up_is_named() {
        let good = Sums { balances: [7; 3], rows: [3, 30, 25_000], deltas: 7, history_rows: 2 };
        assert_eq!(good.problem(SHAPE, 2), None);
        let problem = |change: fn(&mut Sums)| {
            let mut sums = good.clone();
            change(&mut sums);
            sums.problem(SHAPE, 2).unwrap()
        };
        assert!(problem(|sums| sums.rows[2] -= 1).contains("accounts has 24999 rows"));
        assert!(problem(|sums| sums.balances[1] += 1).contains("balances of tellers add up to 8"));
        assert!(problem(|sums| sums.deltas -= 1).contains("the history to 6"));
        assert!(problem(|sums| sums.history_rows -= 1).contains("1 rows, 2 transactions"));
    }
}
