//! Finds the tables, or makes and fills them.

use std::time::Instant;

use rialto_measure::RunError;
use rialto_measure::text::say;

use super::SERVES_WITHIN;
use super::args::ACCOUNTS;
use super::bank::{BALANCE, Bank, TABLES};
use super::connection::{Connection, text};

/// What the accounts have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Accounts {
    /// How many there are.
    pub count: u64,
    /// The sum of their balances.
    pub sum: i128,
}

/// Reads all accounts, in one statement and so at one moment.
///
/// # Errors
/// See [`Connection::insist`].
pub fn read_accounts(connection: &mut Connection<'_>, during: &'static str) -> Result<Accounts, RunError> {
    connection.insist(during, "SELECT balance FROM bench_accounts", Accounts::default, |found, row| {
        let balance = row.first().copied().flatten().and_then(|text| text.parse::<i64>().ok());
        found.count += 1;
        found.sum += i128::from(balance.unwrap_or(0));
    })
}

/// Makes the tables if there are none, fills them if they are empty, and gives the number of accounts. It learns all nodes.
///
/// # Errors
/// [`RunError::Directory`] for tables of another number of accounts, [`RunError::Inconsistent`] if their sum is wrong.
pub fn open(connection: &mut Connection<'_>, wanted: Option<u32>) -> Result<u32, RunError> {
    for table in TABLES {
        connection.insist("making the tables", table, || (), |_, _| ())?;
    }
    let began = Instant::now();
    loop {
        let found = read_accounts(connection, "reading the accounts")?;
        if found.count > 0 {
            return judge(found, wanted);
        }
        let accounts = wanted.unwrap_or(ACCOUNTS);
        say(&format!("loading {accounts} accounts"));
        // All rows in one transaction. It may commit without an answer, so the tables are looked at before another try.
        match connection.query(&Bank::filling(accounts), |_| ()) {
            Ok(()) => connection.succeeded(),
            Err(failure) if began.elapsed() > SERVES_WITHIN => {
                let cause = std::io::Error::other(text(&failure));
                return Err(RunError::Io { during: "loading the accounts", cause });
            }
            Err(failure) => connection.recover(&failure),
        }
    }
}

fn judge(found: Accounts, wanted: Option<u32>) -> Result<u32, RunError> {
    let count = u32::try_from(found.count).unwrap_or(u32::MAX);
    if let Some(wanted) = wanted
        && wanted != count
    {
        return Err(RunError::Directory(format!(
            "the table bench_accounts holds {count} accounts, expected {wanted}: leave --accounts out, or drop the \
             tables bench_accounts and bench_ledger"
        )));
    }
    let expected = i128::from(count) * i128::from(BALANCE);
    if found.sum != expected {
        return Err(RunError::Inconsistent(format!(
            "the accounts have {} together before the run, expected {expected}; drop the tables bench_accounts and \
             bench_ledger to load others",
            found.sum
        )));
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_another_shape_are_refused_and_a_wrong_sum_is_inconsistent() {
        let found = Accounts { count: 30, sum: 30_000 };
        assert_eq!(judge(found, None).unwrap(), 30);
        assert_eq!(judge(found, Some(30)).unwrap(), 30);
        assert_eq!(judge(found, Some(40)).unwrap_err().exit_code(), 3);
        let wrong = Accounts { count: 30, sum: 29_999 };
        assert_eq!(judge(wrong, None).unwrap_err().exit_code(), 1);
    }
}
