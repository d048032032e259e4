//! The bank's consistency condition, on the real tables.

use std::ops::RangeInclusive;

use rialto::{Result, Scan, Table, Transaction};

use super::{BALANCE, BRANCH_BALANCE, Shape, Tpcb, history};
use crate::verify::{Problems, each};
use crate::workload::Verdict;

/// What a pass over all tables found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Audit {
    /// Balances by branch.
    pub branches: Vec<i128>,
    /// Balances of the tellers of each branch.
    pub tellers: Vec<i128>,
    /// Deltas of the history of each branch.
    pub history: Vec<i128>,
    /// Balances of all accounts.
    pub accounts: i128,
    /// Accounts.
    pub accounts_count: u64,
    /// Tellers.
    pub tellers_count: u64,
    /// History rows.
    pub history_count: u64,
    /// Rows that name a branch that there is not.
    pub strays: u64,
}

impl Tpcb {
    /// Reads all tables.
    ///
    /// # Errors
    /// What a read can meet.
    pub fn audit(&self) -> Result<Audit> {
        self.database.read(|transaction| {
            let branches = self.shape.branches as usize;
            let mut audit = Audit {
                branches: vec![0; branches],
                tellers: vec![0; branches],
                history: vec![0; branches],
                ..Audit::default()
            };
            let Audit { branches, tellers, history, strays, .. } = &mut audit;
            add_up(transaction, &self.branches, (0, BRANCH_BALANCE), branches, strays)?;
            let tellers_count = add_up(transaction, &self.tellers, (1, BALANCE), tellers, strays)?;
            let history_count =
                add_up(transaction, &self.history, (history::BRANCH, history::DELTA), history, strays)?;
            let mut accounts = vec![0; self.shape.branches as usize];
            let accounts_count = add_up(transaction, &self.accounts, (1, BALANCE), &mut accounts, strays)?;
            Ok(Audit {
                accounts: accounts.iter().sum(),
                accounts_count,
                tellers_count,
                history_count,
                ..audit
            })
        })
    }

    /// Judges what was found; `history` is how many rows the history may have.
    pub fn judge(&self, audit: &Audit, history: RangeInclusive<u64>) -> Verdict {
        let mut problems = Problems::default();
        for (branch, &balance) in audit.branches.iter().enumerate() {
            let (tellers, deltas) = (audit.tellers[branch], audit.history[branch]);
            problems.expect("balances", balance == tellers && balance == deltas, || {
                format!("branch {branch} has {balance}, its tellers {tellers}, its history {deltas}")
            });
        }
        let (total, accounts) = (audit.branches.iter().sum::<i128>(), audit.accounts);
        problems
            .expect("balances", total == accounts, || format!("branches have {total}, accounts {accounts}"));
        let Shape { branches, accounts } = self.shape;
        problems.equal("accounts", audit.accounts_count as i64, accounts.into());
        problems.equal("tellers", audit.tellers_count as i64, (branches * super::TELLERS_PER_BRANCH).into());
        problems.expect("branches", audit.strays == 0, || {
            format!("{} rows name a branch that there is not", audit.strays)
        });
        let rows = audit.history_count;
        problems.expect("history", history.contains(&rows), || {
            let (acknowledged, begun) = (history.start(), history.end());
            format!("it has {rows} rows, expected {acknowledged} (acknowledged) to {begun} (begun)")
        });
        problems.verdict(|| {
            format!(
                "balances of accounts, tellers and branches and the deltas of {rows} history rows all add up to {total}"
            )
        })
    }
}

/// Adds a column's values up by branch; `columns` are those of the branch and of the value. Returns the rows.
fn add_up(
    transaction: &mut Transaction,
    table: &Table,
    columns: (usize, usize),
    sums: &mut [i128],
    strays: &mut u64,
) -> Result<u64> {
    each(transaction, table, &Scan::all(), |row| {
        let value = i128::from(row.get_i64(columns.1)?);
        match sums.get_mut(row.get_i32(columns.0)? as usize) {
            Some(sum) => *sum += value,
            None => *strays += 1,
        }
        Ok(())
    })
}
