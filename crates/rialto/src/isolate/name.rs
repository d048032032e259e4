//! Names: the subjects of locks.

use std::fmt;

use crate::catalog::CATALOG_LOCK;
use crate::ids::{IndexId, TableId};
use crate::store::Catalog;

/// The name of a record lock: a key of an index, whether a record of that key exists or not.
///
/// Two keys of one index with equal hashes share a lock. That costs a false conflict between two transactions at the
/// worst; one transaction that locks both finds the second lock held already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LockName {
    /// The index.
    pub index: IndexId,
    /// A hash of the key's bytes, by the seed of the manager: [`LockManager::name`](super::LockManager::name).
    pub hash: u64,
}

/// The subject of a wait, as the view of waits shows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LockTarget {
    /// A table.
    Table(TableId),
    /// A record, or the absence of one.
    Record {
        /// The index.
        index: IndexId,
        /// The key's bytes in that index.
        key: Vec<u8>,
    },
    /// The insertion of a key into an interval that another transaction has read.
    Interval {
        /// The index.
        index: IndexId,
        /// The key to be inserted.
        key: Vec<u8>,
    },
}

impl LockTarget {
    /// The target in words, with the names of tables and the values of keys.
    pub(crate) fn in_words(&self, catalog: &Catalog) -> String {
        let keyed = |index: IndexId, key: &[u8], what: &str| match catalog.index_by_id(index) {
            Some((table, which)) => {
                let schema = table.schema();
                format!("{what} {} of table \"{}\"", schema.print_key(which, key), schema.table())
            }
            None => self.to_string(),
        };
        match self {
            LockTarget::Table(id) if *id == CATALOG_LOCK => "the catalog".to_owned(),
            LockTarget::Table(id) => match catalog.by_id(*id) {
                Some(table) => format!("table \"{}\"", table.name()),
                None => self.to_string(),
            },
            LockTarget::Record { index, key } => keyed(*index, key, "key"),
            LockTarget::Interval { index, key } => keyed(*index, key, "an interval around key"),
        }
    }
}

impl fmt::Display for LockTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, index, key) = match self {
            LockTarget::Table(table) => return write!(f, "table {}", table.0),
            LockTarget::Record { index, key } => ("key", index, key),
            LockTarget::Interval { index, key } => ("interval around key", index, key),
        };
        write!(f, "{what} ")?;
        key.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, " of index {}", index.0)
    }
}

/// A lock head's full name: tables and records share one hash of heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct HeadName {
    /// The index's number; or the table's with bit 32 set; or bit 33 alone, for a record by its address.
    space: u64,
    hash: u64,
}

/// 2^64 divided by the golden ratio, odd: spreads small numbers over all bits.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

impl HeadName {
    pub(super) fn table(table: TableId) -> HeadName {
        HeadName { space: 1 << 32 | u64::from(table.0), hash: 0 }
    }

    pub(super) fn record(name: LockName) -> HeadName {
        HeadName { space: u64::from(name.index.0), hash: name.hash }
    }

    /// A present record, by its address, for the thin form.
    pub(super) fn address(record: u64) -> HeadName {
        HeadName { space: 1 << 33, hash: record }
    }

    /// Whether it is the name of a table.
    pub(super) fn is_table(self) -> bool {
        self.space & 1 << 32 != 0
    }

    /// The record's address, if this is the name of one.
    pub(super) fn as_address(self) -> Option<u64> {
        (self.space == 1 << 33).then_some(self.hash)
    }

    /// Bits for partition (the top ones) and bucket (the ones below).
    pub(super) fn spread(self) -> u64 {
        let mixed = (self.hash ^ self.space.wrapping_mul(SPREAD)).wrapping_mul(SPREAD);
        mixed ^ (mixed >> 32)
    }
}
