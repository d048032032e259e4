//! [`Opening`]: tells the handles of an open database from those of other databases, and of its own earlier openings.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::ids::TableId;

static OPENINGS: AtomicU32 = AtomicU32::new(0);

/// One opening of one database, counted in this process. Identifiers of tables are valid within one opening only:
/// another database has the same ones, and a handle of an earlier opening leads to storage that is no longer in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Opening(u32);

impl Opening {
    /// The next one.
    pub fn new() -> Opening {
        Opening(OPENINGS.fetch_add(1, Ordering::Relaxed))
    }

    /// The key of one of its tables.
    #[inline]
    pub fn key(self, id: TableId) -> TableKey {
        TableKey(u64::from(self.0) << 32 | u64::from(id.0))
    }
}

/// A table's identifier together with its opening, in one word. So one comparison finds a handle's table among those
/// that a transaction knows, and never a table of another opening.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableKey(u64);

impl TableKey {
    #[inline(always)]
    pub fn id(self) -> TableId {
        TableId(self.0 as u32)
    }

    #[inline]
    pub fn opening(self) -> Opening {
        Opening((self.0 >> 32) as u32)
    }
}

impl fmt::Debug for TableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableKey({} of opening {})", self.id().0, self.opening().0)
    }
}
