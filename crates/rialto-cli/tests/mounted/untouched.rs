//! Rows that no client changes, and accounts whose sum is constant.

use crate::client::{Answer, Client, Row};

/// Rows that are never changed.
const ROWS: i64 = 200;
/// Accounts among which all clients move money, and their total.
pub const ACCOUNTS: i64 = 6;
const MONEY: i64 = 600;

/// Makes both in a new database.
pub fn prepare(client: &mut Client, about: &str) {
    for sql in [
        "CREATE TABLE still (id bigint PRIMARY KEY, n bigint, t text)".to_owned(),
        format!("INSERT INTO still SELECT n, n * 7, 'row ' || n FROM generate_series(1, {ROWS}) AS n"),
        "CREATE INDEX still_n ON still (n)".to_owned(),
        "CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint)".to_owned(),
        format!(
            "INSERT INTO accounts SELECT n - 1, {} FROM generate_series(1, {ACCOUNTS}) AS n",
            MONEY / ACCOUNTS
        ),
    ] {
        client.query(&sql).rows(about);
    }
}

/// Checks that they are as they have to be.
pub fn check(client: &mut Client, about: &str) {
    read(client, about).unwrap_or_else(|answer| panic!("{about}: {answer:?}"));
}

/// Checks them as far as they can be read; gives an answer that is no rows.
pub fn read(client: &mut Client, about: &str) -> Result<(), Answer> {
    let mut rows = |sql: &str| match client.query(sql) {
        Answer::Done { rows, .. } => Ok(rows),
        other => Err(other),
    };
    let expected: Vec<Row> = (1..=ROWS)
        .map(|id| [id.to_string(), (id * 7).to_string(), format!("row {id}")].map(Some).to_vec())
        .collect();
    for by in ["id", "n"] {
        let found = rows(&format!("SELECT id, n, t FROM still WHERE {by} > 0 ORDER BY {by}"))?;
        assert_eq!(found, expected, "{about}: untouched rows, by {by}");
    }
    let found = rows("SELECT balance FROM accounts")?;
    let balances =
        found.iter().map(|row| row[0].as_deref().expect("no nulls").parse::<i64>().expect("a number"));
    assert_eq!((balances.sum::<i64>(), found.len()), (MONEY, ACCOUNTS as usize), "{about}: the accounts");
    Ok(())
}
