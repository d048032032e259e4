//! Rows of the engines that store bytes under keys: records of 100 bytes with their key of 4, history rows of 50.

use crate::error::{PeerError, Result};
use crate::table::Table;
use crate::tpcb::Movement;

/// A record without its key: branch, balance, filler.
pub const RECORD_BYTES: usize = 96;
/// A history row: account, teller, branch, delta, time, filler.
pub const HISTORY_BYTES: usize = 50;

const BALANCE: std::ops::Range<usize> = 4..12;
const DELTA: std::ops::Range<usize> = 12..20;
const TIME: std::ops::Range<usize> = 20..28;

/// A record of this branch with a balance of 0.
pub fn record(branch: u32) -> [u8; RECORD_BYTES] {
    let mut record = [b'a'; RECORD_BYTES];
    record[..4].copy_from_slice(&branch.to_le_bytes());
    record[BALANCE].copy_from_slice(&0i64.to_le_bytes());
    record
}

fn eight(bytes: &[u8]) -> i64 {
    i64::from_le_bytes(bytes.try_into().expect("a range of eight bytes"))
}

/// A record's balance.
///
/// # Errors
/// If there is no such record.
pub fn balance(table: Table, key: u32, found: Option<&[u8]>) -> Result<i64> {
    match found {
        Some(record) if record.len() == RECORD_BYTES => Ok(eight(&record[BALANCE])),
        _ => Err(PeerError::Row { table, key }),
    }
}

/// The record with this added to its balance.
///
/// # Errors
/// If there is no such record.
#[inline]
pub fn added(table: Table, key: u32, delta: i64, found: Option<&[u8]>) -> Result<[u8; RECORD_BYTES]> {
    let mut record: [u8; RECORD_BYTES] =
        found.and_then(|found| found.try_into().ok()).ok_or(PeerError::Row { table, key })?;
    let balance = eight(&record[BALANCE]) + delta;
    record[BALANCE].copy_from_slice(&balance.to_le_bytes());
    Ok(record)
}

/// A history row.
#[inline]
pub fn history(movement: &Movement, time_us: i64) -> [u8; HISTORY_BYTES] {
    let mut row = [b'x'; HISTORY_BYTES];
    row[..4].copy_from_slice(&movement.account.to_le_bytes());
    row[4..8].copy_from_slice(&movement.teller.to_le_bytes());
    row[8..12].copy_from_slice(&movement.branch.to_le_bytes());
    row[DELTA].copy_from_slice(&movement.delta.to_le_bytes());
    row[TIME].copy_from_slice(&time_us.to_le_bytes());
    row
}

/// The delta of a history row; `None` if it is none.
pub fn delta(row: &[u8]) -> Option<i64> {
    (row.len() == HISTORY_BYTES).then(|| eight(&row[DELTA]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_balance_is_changed_in_place() {
        let table = Table::Tellers;
        let before = record(7);
        let after = added(table, 1, -5, Some(&before)).unwrap();
        assert_eq!(balance(table, 1, Some(&after)).unwrap(), -5);
        assert_eq!((&after[..4], &after[12..]), (&before[..4], &before[12..]));
        assert!(added(table, 1, 1, None).unwrap_err().to_string().contains("row 1 of table tellers"));
        assert!(balance(table, 1, Some(&after[1..])).is_err());
    }

    #[test]
    fn a_history_row_gives_its_delta() {
        let movement = Movement { account: 1, teller: 2, branch: 3, delta: -4 };
        let row = history(&movement, 5);
        assert_eq!(delta(&row), Some(-4));
        assert_eq!(delta(&row[1..]), None);
    }
}
