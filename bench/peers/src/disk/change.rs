//! [`Change`]: what a transaction draws; [`Sums`]: what a table must add up to.

use rialto::io::Random;
use serde::{Deserialize, Serialize};

/// The largest amount. All amounts are positive, so that a lost change cannot be made up for by another one.
const AMOUNT_MAX: u64 = 999_999;

/// What one transaction does: it adds an amount to the balance of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The row.
    pub key: u32,
    /// What is added.
    pub amount: i64,
}

/// Draws the changes of one client.
#[derive(Debug)]
pub struct Changes {
    random: Random,
    rows: u32,
}

impl Changes {
    /// Of a table of so many rows; another seed gives other ones.
    pub fn new(rows: u32, seed: u64) -> Changes {
        Changes { random: Random::new(seed), rows }
    }

    /// The next one: each row is as likely.
    pub fn next(&mut self) -> Change {
        let key = self.random.below(u64::from(self.rows)) as u32;
        Change { key, amount: 1 + self.random.below(AMOUNT_MAX) as i64 }
    }
}

/// What a pass over a table found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    /// Its rows.
    pub rows: u64,
    /// The sum of their balances.
    pub balances: i64,
}

impl Sums {
    /// Adds a row with this balance.
    pub fn row(&mut self, balance: i64) {
        self.rows += 1;
        self.balances += balance;
    }

    /// What does not add up in a table of so many rows, after changes of so much in all.
    pub fn problem(&self, rows: u32, acknowledged: i64) -> Option<String> {
        let Sums { rows: found, balances } = *self;
        if found != u64::from(rows) {
            return Some(format!("the table has {found} rows, expected {rows}"));
        }
        (balances != acknowledged).then(|| {
            format!("the balances add up to {balances}, and the acknowledged changes to {acknowledged}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_of_all_rows_and_never_negative() {
        let mut changes = Changes::new(4, 7);
        let mut seen = [false; 4];
        for _ in 0..200 {
            let Change { key, amount } = changes.next();
            seen[key as usize] = true;
            assert!((1..=AMOUNT_MAX as i64).contains(&amount));
        }
        assert_eq!(seen, [true; 4]);
        assert_ne!(Changes::new(1 << 30, 1).next(), Changes::new(1 << 30, 2).next());
    }

    #[test]
    fn a_lost_change_and_a_lost_row_are_told() {
        let mut sums = Sums::default();
        [5, 7].into_iter().for_each(|balance| sums.row(balance));
        assert_eq!(sums.problem(2, 12), None);
        assert_eq!(
            sums.problem(2, 13).unwrap(),
            "the balances add up to 12, and the acknowledged changes to 13"
        );
        assert_eq!(sums.problem(3, 12).unwrap(), "the table has 2 rows, expected 3");
    }
}
