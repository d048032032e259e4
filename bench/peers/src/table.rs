//! [`Table`]: the tables with keys; the history has none.

use std::fmt;

/// A table whose rows have a key and a balance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// One row each.
    Branches,
    /// Ten for each branch.
    Tellers,
    /// Most of the rows.
    Accounts,
}

impl Table {
    /// All of them, in the order of [`index`](Table::index).
    pub const ALL: [Table; 3] = [Table::Branches, Table::Tellers, Table::Accounts];

    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Table::Branches => "branches",
            Table::Tellers => "tellers",
            Table::Accounts => "accounts",
        }
    }

    /// The position in arrays of handles.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
