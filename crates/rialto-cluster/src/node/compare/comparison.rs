//! [`Comparison`]: what a primary has summed, as the log has it.

use rialto::row::WhichIndex;
use rialto::{Database, Result, SumRange, Table};
use serde::{Deserialize, Serialize};

use crate::protocol::{Epoch, NodeId};

/// The version of the row, and of how sums are made. A replica compares only what it sums in the same way.
const FORMAT: u8 = 1;

/// A range of a table, and what it comes to at the place of the transaction that has written this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    /// A number that no other comparison of the primary's node has.
    pub number: u64,
    /// The primary.
    pub by: NodeId,
    /// The epoch in which it has begun to lead.
    pub epoch: Epoch,
    /// The table.
    pub table: u32,
    /// The position of a secondary index; without one the rows are summed, by the primary index.
    pub index: Option<u16>,
    /// The range begins after this key of the index.
    pub after: Option<Vec<u8>>,
    /// It ends with this one.
    pub to: Option<Vec<u8>>,
    /// How many rows are to be shown in words.
    pub show: u16,
}

impl Comparison {
    /// The row's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![FORMAT]).expect("a comparison has bytes")
    }

    /// The comparison, unless another version has written it.
    pub fn from_bytes(bytes: &[u8]) -> Option<Comparison> {
        match bytes.split_first() {
            Some((&FORMAT, rest)) => postcard::from_bytes(rest).ok(),
            _ => None,
        }
    }

    /// The range, for a replica's own sum.
    pub fn range(&self) -> SumRange {
        SumRange {
            index: self.index.map_or(WhichIndex::Primary, |at| WhichIndex::Secondary(usize::from(at))),
            after: self.after.clone(),
            to: self.to.clone(),
            show: usize::from(self.show),
            ..SumRange::all()
        }
    }

    /// The table, in a database that is at the comparison's place.
    pub fn table_in(&self, db: &Database) -> Option<Table> {
        db.tables().into_iter().find(|table| table.id().0 == self.table)
    }
}

/// What a range comes to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Found {
    /// This.
    Sum {
        /// How many rows.
        rows: u64,
        /// Their checksum.
        sum: u128,
        /// The first ones in words, as many as are to be shown.
        shown: Vec<String>,
    },
    /// There is no such table or index, in words.
    Missing(String),
    /// It was not summed, for this reason.
    Unknown(String),
    /// Bytes are there that are no row, in words.
    Damaged(String),
}

impl Found {
    /// The sum of a range.
    pub fn of(sum: rialto::RangeSum) -> Found {
        Found::Sum { rows: sum.rows, sum: sum.sum, shown: sum.shown }
    }

    /// Of a sum, or why there is none.
    pub fn from_result(summed: Result<rialto::RangeSum>) -> Found {
        match summed {
            Ok(sum) => Found::of(sum),
            Err(error @ (rialto::Error::NoSuchIndex { .. } | rialto::Error::NoSuchTable { .. })) => {
                Found::Missing(error.to_string())
            }
            Err(error @ rialto::Error::Corrupt { .. }) => Found::Damaged(error.to_string()),
            Err(error) => Found::Unknown(error.to_string()),
        }
    }

    /// Whether two replicas have the same there; nothing if one of them does not know.
    pub fn is_same(&self, other: &Found) -> Option<bool> {
        match (self, other) {
            (Found::Unknown(_), _) | (_, Found::Unknown(_)) => None,
            (Found::Sum { rows, sum, .. }, Found::Sum { rows: others, sum: other, .. }) => {
                Some((rows, sum) == (others, other))
            }
            (Found::Missing(_), Found::Missing(_)) => Some(true),
            _ => Some(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_the_comparison_or_none() {
        let comparison = Comparison {
            number: 9,
            by: NodeId(2),
            epoch: Epoch(3),
            table: 64,
            index: Some(1),
            after: None,
            to: Some(vec![1, 2]),
            show: 3,
        };
        let bytes = comparison.to_bytes();
        assert_eq!(Comparison::from_bytes(&bytes), Some(comparison));
        assert_eq!(Comparison::from_bytes(&[]), None);
        assert_eq!(Comparison::from_bytes(&bytes[..bytes.len() - 1]), None);
        let another = [&[FORMAT + 1], &bytes[1..]].concat();
        assert_eq!(Comparison::from_bytes(&another), None, "another version sums in another way");
    }

    #[test]
    fn what_is_not_known_is_no_difference() {
        let sum = |rows| Found::Sum { rows, sum: 7, shown: Vec::new() };
        let (unknown, missing) = (Found::Unknown("a lock".into()), Found::Missing("no index".into()));
        let corrupt = rialto::Error::Corrupt { file: "t".to_owned(), offset: 0, what: "no UTF-8".to_owned() };
        let damaged = Found::from_result(Err(corrupt));
        assert_eq!(sum(1).is_same(&sum(1)), Some(true));
        assert_eq!(sum(1).is_same(&sum(2)), Some(false));
        assert_eq!(sum(1).is_same(&missing), Some(false));
        assert_eq!(sum(1).is_same(&damaged), Some(false));
        assert_eq!(damaged.is_same(&damaged), Some(false), "no two replicas agree on what is damaged");
        assert_eq!(unknown.is_same(&sum(1)), None);
        assert_eq!(missing.is_same(&unknown), None);
    }
}
