//! Identifiers and positions, each a type of its own so that none is taken for another.

use std::fmt;

/// A transaction's place in the log order (I2): dense, starting at 1; 0 is "before everything".
///
/// At most 2^48 - 1, so that it fits beside a slot number in one word and beside a length in a record header.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Before every transaction.
    pub const ZERO: Lsn = Lsn(0);
    /// The largest place that the log format can hold.
    pub const MAX: Lsn = Lsn((1 << 48) - 1);

    /// The place after this one.
    pub const fn next(self) -> Lsn {
        Lsn(self.0 + 1)
    }
}

impl fmt::Debug for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lsn({})", self.0)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A table's identifier; never reused in the life of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u32);

/// An index's identifier, the primary one included; never reused in the life of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexId(pub u32);

/// Identifies the storage of a table's rows: a truncated table gets another. Never reused in the life of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeapId(pub u32);
