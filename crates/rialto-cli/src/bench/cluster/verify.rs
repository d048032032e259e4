//! [`Verdict`]: whether the tables hold at the end what they must.

use rialto_measure::RunError;

use super::attempts::{Attempts, Ledger, Which};
use super::bank::Bank;
use super::connection::Connection;
use super::load::{Accounts, read_accounts};

/// How many branches one statement reads the ledger of.
const BRANCHES_AT_A_TIME: u32 = 50;

/// What was found at the end.
#[derive(Debug)]
pub struct Verdict {
    /// The transactions that were answered, and are absent.
    pub lost: Vec<Which>,
    /// Rows of the ledger that must not be there.
    pub too_many: u64,
    found: Accounts,
    expected: Accounts,
}

impl Verdict {
    fn new(ledger: &Ledger<'_>, found: Accounts, bank: Bank) -> Verdict {
        let expected = Accounts { count: u64::from(bank.accounts), sum: bank.sum() };
        Verdict { lost: ledger.lost(), too_many: ledger.too_many(), found, expected }
    }

    /// Whether the data are consistent: money stays, and no transaction that was aborted is in the ledger.
    pub fn is_consistent(&self) -> bool {
        self.found == self.expected && self.too_many == 0
    }

    /// Whether nothing is lost, too.
    pub fn is_right(&self) -> bool {
        self.is_consistent() && self.lost.is_empty()
    }

    /// What was found of the accounts and the ledger, for people.
    pub fn text(&self) -> String {
        let Verdict { found, expected, too_many, .. } = self;
        let mut text = format!("{} accounts have {} together", found.count, found.sum);
        if found != expected {
            text += &format!(", expected {} with {}", expected.count, expected.sum);
        }
        if *too_many > 0 {
            text +=
                &format!("; {too_many} rows of the ledger belong to transactions without effect, or to none");
        }
        text
    }
}

/// Reads the ledger and the accounts, and waits for that until the cluster serves.
///
/// # Errors
/// See [`Connection::insist`].
pub fn verify(
    connection: &mut Connection<'_>,
    bank: Bank,
    attempts: &[Attempts],
) -> Result<Verdict, RunError> {
    let mut ledger = Ledger::new(attempts);
    for first in (0..bank.branches()).step_by(BRANCHES_AT_A_TIME as usize) {
        let statement = format!(
            "SELECT client, number FROM bench_ledger WHERE branch >= {first} AND branch < {} AND run = {}",
            first + BRANCHES_AT_A_TIME,
            bank.run
        );
        let rows =
            connection.insist("reading the ledger", &statement, Vec::<(u64, u64)>::new, |rows, row| {
                let number = |column: usize| row.get(column).copied().flatten()?.parse::<u64>().ok();
                rows.push(number(0).zip(number(1)).unwrap_or((u64::MAX, u64::MAX)));
            })?;
        for (client, number) in rows {
            ledger.has(client, number);
        }
    }
    let found = read_accounts(connection, "reading the accounts")?;
    Ok(Verdict::new(&ledger, found, bank))
}

#[cfg(test)]
mod tests {
    use super::super::attempts::Outcome;
    use super::*;

    #[test]
    fn a_missing_row_a_row_too_many_and_a_wrong_sum_are_each_wrong() {
        let mut attempts = Attempts::default();
        attempts.ended(Outcome::Answered);
        attempts.ended(Outcome::Aborted);
        let attempts = [attempts];
        let bank = Bank { accounts: 20, run: 1 };
        let right = Accounts { count: 20, sum: bank.sum() };
        let judge = |rows: &[u64], found: Accounts| {
            let mut ledger = Ledger::new(&attempts);
            rows.iter().for_each(|number| ledger.has(0, *number));
            let verdict = Verdict::new(&ledger, found, bank);
            (verdict.lost.len(), verdict.is_consistent(), verdict.is_right())
        };
        assert_eq!(judge(&[0], right), (0, true, true));
        assert_eq!(judge(&[], right), (1, true, false));
        assert_eq!(judge(&[0, 1], right), (0, false, false));
        assert_eq!(judge(&[0], Accounts { sum: bank.sum() + 1, ..right }), (0, false, false));
        assert_eq!(judge(&[0], Accounts { count: 19, ..right }), (0, false, false));
    }
}
