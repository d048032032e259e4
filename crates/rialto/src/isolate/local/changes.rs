//! [`RoutingChanges`]: what changes of routing rules came to.

use std::time::Duration;

/// Changes of routing rules since the database was opened, by hand and by the resource manager.
///
/// Nothing drains, so a transaction is held up by a change only as long as that holds the executors' lock tables: while it
/// copies the locks that are entered for the index. It waits for those who run in place before it holds any, and meanwhile
/// calls enter locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoutingChanges {
    /// How many there were.
    pub changes: u64,
    /// How many locks they found entered, and moved where their keys went.
    pub locks: u64,
    /// The longest time that one held the lock tables.
    pub held_max: Duration,
}
