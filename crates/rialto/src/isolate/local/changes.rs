//! [`RoutingChanges`]: counts of the changes of routing rules.

use std::time::Duration;

/// Changes of routing rules since the database was opened, by hand and by the resource manager.
///
/// Nothing drains. A change holds up a transaction only while it holds the executors' lock tables: while it copies
/// the locks that are entered for the index. It waits for transactions that run in place before it holds any table,
/// and meanwhile calls enter locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoutingChanges {
    /// The number of changes.
    pub changes: u64,
    /// The number of locks that they found entered, and moved where their keys went.
    pub locks: u64,
    /// The longest time that one change held the lock tables.
    pub held_max: Duration,
}
