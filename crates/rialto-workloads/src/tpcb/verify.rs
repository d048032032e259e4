//! The bank's consistency condition, on the real tables.

use std::ops::{ControlFlow, RangeInclusive};

use rialto::{Result, Scan, Table, Transaction};

use super::{BALANCE, BRANCH_BALANCE, Tpcb, history};
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
        let mut problems = Vec::new();
        let mut expect = |holds: bool, problem: String| {
            if !holds {
                problems.push(problem);
            }
        };
        for (branch, &balance) in audit.branches.iter().enumerate() {
            let (tellers, deltas) = (audit.tellers[branch], audit.history[branch]);
            expect(
                balance == tellers && balance == deltas,
                format!("branch {branch} has {balance}, its tellers {tellers}, its history {deltas}"),
            );
        }
        let total: i128 = audit.branches.iter().sum();
        expect(total == audit.accounts, format!("branches have {total}, accounts {}", audit.accounts));
        let shape = self.shape;
        expect(
            audit.accounts_count == u64::from(shape.accounts),
            format!("{} accounts", audit.accounts_count),
        );
        expect(
            audit.tellers_count == u64::from(shape.branches) * u64::from(super::TELLERS_PER_BRANCH),
            format!("{} tellers", audit.tellers_count),
        );
        expect(audit.strays == 0, format!("{} rows name a branch that there is not", audit.strays));
        expect(
            history.contains(&audit.history_count),
            format!(
                "the history has {} rows, expected {} (acknowledged) to {} (begun)",
                audit.history_count,
                history.start(),
                history.end()
            ),
        );
        let consistent = problems.is_empty();
        let text = match consistent {
            true => format!(
                "balances of accounts, tellers and branches and the deltas of {} history rows all add up to {total}",
                audit.history_count
            ),
            false => problems.join("; "),
        };
        Verdict { consistent, text }
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
    let mut rows = 0;
    transaction.scan(table, &Scan::all(), |_, row| {
        rows += 1;
        let value = i128::from(row.get_i64(columns.1)?);
        match sums.get_mut(row.get_i32(columns.0)? as usize) {
            Some(sum) => *sum += value,
            None => *strays += 1,
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(rows)
}
