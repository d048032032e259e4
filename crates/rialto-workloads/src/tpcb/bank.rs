//! The bank's tables: how they are created and loaded, and how an existing bank is recognised.

use std::fmt;
use std::ops::Range;

use rialto::row::{Column, ColumnType, Value};
use rialto::{Database, Residence, Result, Table, TableDef, TxOptions};

use super::{PROCEDURE, TELLERS_PER_BRANCH, Tpcb};
use crate::calendar::Calendar;
use crate::data::{Data, Loader, ShapeError};

/// The bank's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Branches.
    pub branches: u32,
    /// Accounts in all; each branch has its part of them.
    pub accounts: u32,
}

impl Shape {
    /// The accounts of a branch: an equal part, or one more.
    pub fn accounts_of(&self, branch: u32) -> Range<u32> {
        let first =
            |branch: u32| (u64::from(branch) * u64::from(self.accounts) / u64::from(self.branches)) as u32;
        first(branch)..first(branch + 1)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tellers = self.branches * TELLERS_PER_BRANCH;
        write!(f, "{} branches, {tellers} tellers, {} accounts", self.branches, self.accounts)
    }
}

/// The fillers that make records 100 bytes long, as encoded.
const BRANCH_FILLER_BYTES: usize = 86;
const RECORD_FILLER_BYTES: usize = 82;
/// How many rows are loaded between two words of progress.
const PROGRESS_ROWS: u32 = 250_000;

fn int4(name: &str) -> Column {
    Column::new(name, ColumnType::Int4)
}

impl Data<4, 2> for Shape {
    const NAME: &'static str = "a TPC-B bank";
    const TABLE: &'static str = "bank";
    const KIND: &'static str = "tpcb";
    const SIZES: [&'static str; 2] = ["branches", "accounts"];

    fn of_sizes([branches, accounts]: [u32; 2]) -> Shape {
        Shape { branches, accounts }
    }

    fn sizes(&self) -> [u32; 2] {
        [self.branches, self.accounts]
    }

    fn tables() -> [TableDef; 4] {
        let balance = || Column::new("balance", ColumnType::Int8);
        let filler = || Column::new("filler", ColumnType::Text);
        [
            TableDef::new("branches", vec![int4("bid"), balance(), filler()]).with_primary_key(&["bid"]),
            TableDef::new("tellers", vec![int4("tid"), int4("bid"), balance(), filler()])
                .with_primary_key(&["tid"]),
            TableDef::new("accounts", vec![int4("aid"), int4("bid"), balance(), filler()])
                .with_primary_key(&["aid"]),
            TableDef::new(
                "history",
                vec![
                    int4("aid"),
                    int4("tid"),
                    int4("bid"),
                    Column::new("delta", ColumnType::Int8),
                    Column::new("mtime", ColumnType::Timestamp),
                    filler(),
                ],
            ),
        ]
    }

    fn fill(
        &self,
        loader: &mut Loader<'_>,
        [branches, tellers, accounts, _history]: &[Table; 4],
    ) -> Result<()> {
        let size = |size: u32| Value::Int4(size as i32);
        let mut values = [size(0), Value::Int8(0), Value::Text("b".repeat(BRANCH_FILLER_BYTES))];
        for branch in 0..self.branches {
            values[0] = size(branch);
            loader.insert(branches, &values)?;
        }
        let mut record = Records::new();
        for teller in 0..self.branches * TELLERS_PER_BRANCH {
            record.insert(loader, tellers, teller, teller / TELLERS_PER_BRANCH)?;
        }
        for branch in 0..self.branches {
            for account in self.accounts_of(branch) {
                record.insert(loader, accounts, account, branch)?;
                if (account + 1) % PROGRESS_ROWS == 0 {
                    loader.tell(&format!("{} of {} accounts loaded", account + 1, self.accounts));
                }
            }
        }
        Ok(())
    }
}

impl Tpcb {
    /// The bank in the database, if it is one of this shape; loaded, if the database is empty. The second is whether it
    /// was there already.
    ///
    /// # Errors
    /// [`ShapeError::OtherShape`] if the database holds something else.
    pub fn open_or_load(
        database: &Database,
        residence: Residence,
        shape: Shape,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(Tpcb, bool), ShapeError> {
        let ([branches, tellers, accounts, history], there) =
            shape.open_or_load(database, residence, progress)?;
        let bank = Tpcb {
            database: database.clone(),
            shape,
            branches,
            tellers,
            accounts,
            history,
            options: TxOptions { procedure: Some(database.procedure_id(PROCEDURE)), ..TxOptions::default() },
            calendar: Calendar::of(database.clock()),
            calls: false,
        };
        Ok((bank, there))
    }
}

/// Rows of tellers and accounts.
struct Records([Value; 4]);

impl Records {
    fn new() -> Records {
        let filler = Value::Text("a".repeat(RECORD_FILLER_BYTES));
        Records([Value::Int4(0), Value::Int4(0), Value::Int8(0), filler])
    }

    fn insert(&mut self, loader: &mut Loader<'_>, table: &Table, key: u32, branch: u32) -> Result<()> {
        self.0[0] = Value::Int4(key as i32);
        self.0[1] = Value::Int4(branch as i32);
        loader.insert(table, &self.0)
    }
}

#[cfg(test)]
mod tests {
    use rialto::row::{Schema, encode};

    use super::super::history::FILLER;
    use super::*;

    #[test]
    fn records_have_100_bytes_and_history_rows_50() {
        let length = |table: usize, values: &[Value]| {
            let columns = Shape::tables()[table].columns.clone();
            let schema = Schema::new("t", columns, None, vec![]).unwrap();
            let mut row = Vec::new();
            encode(&schema, values, &mut row).unwrap();
            row.len()
        };
        let text = |bytes| Value::Text("x".repeat(bytes));
        let (zero, balance) = (Value::Int4(0), Value::Int8(0));
        assert_eq!(length(0, &[zero.clone(), balance.clone(), text(BRANCH_FILLER_BYTES)]), 100);
        for table in [1, 2] {
            assert_eq!(
                length(table, &[zero.clone(), zero.clone(), balance.clone(), text(RECORD_FILLER_BYTES)]),
                100
            );
        }
        let time = Value::Timestamp(0);
        assert_eq!(length(3, &[zero.clone(), zero.clone(), zero, balance, time, text(FILLER.len())]), 50);
    }

    #[test]
    fn every_account_belongs_to_one_branch() {
        for shape in [Shape { branches: 10, accounts: 1_000_000 }, Shape { branches: 7, accounts: 20 }] {
            let mut next = 0;
            for branch in 0..shape.branches {
                let accounts = shape.accounts_of(branch);
                assert_eq!(accounts.start, next);
                assert!(!accounts.is_empty());
                next = accounts.end;
            }
            assert_eq!(next, shape.accounts);
        }
    }
}
