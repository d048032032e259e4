//! [`Directory`]: on which node each partition is served.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};

use crate::protocol::transactions::Opening;
use crate::protocol::{NodeId, PartitionId};

/// A node says that it serves a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serves {
    /// The partition.
    pub partition: PartitionId,
    /// The node.
    pub node: NodeId,
    /// The opening.
    pub opening: Opening,
}

/// Where partitions are served, as their primaries say. It is a hint: what is sent to a node that does not serve any more is
/// refused there, or lost.
#[derive(Default)]
pub struct Directory {
    served: Mutex<BTreeMap<PartitionId, Serves>>,
    changed: Condvar,
}

impl Directory {
    /// A node has said that it serves a partition. True if that is news.
    pub fn hear(&self, serves: Serves) -> bool {
        let mut served = self.served.lock();
        let known = served.get(&serves.partition);
        if known.is_some_and(|known| known.opening >= serves.opening) {
            return false;
        }
        served.insert(serves.partition, serves);
        self.changed.notify_all();
        true
    }

    /// A partition is not served any more in this opening.
    pub fn forget(&self, gone: Serves) {
        let mut served = self.served.lock();
        if served.get(&gone.partition) == Some(&gone) {
            served.remove(&gone.partition);
        }
    }

    /// Where a partition is served, as far as is known.
    pub fn find(&self, partition: PartitionId) -> Option<Serves> {
        self.served.lock().get(&partition).copied()
    }

    /// Where a partition is served; waits for at most this time until one is known that is newer than an opening.
    pub fn wait(
        &self,
        partition: PartitionId,
        newer_than: Option<Opening>,
        patience: Duration,
    ) -> Option<Serves> {
        let until = Instant::now() + patience;
        let mut served = self.served.lock();
        loop {
            let known = served.get(&partition);
            if let Some(known) = known
                && newer_than.is_none_or(|old| known.opening > old)
            {
                return Some(*known);
            }
            if self.changed.wait_until(&mut served, until).timed_out() {
                return None;
            }
        }
    }

    /// The partitions that a node serves, as far as is known.
    pub fn of_node(&self, node: NodeId) -> Vec<Serves> {
        self.served.lock().values().filter(|serves| serves.node == node).copied().collect()
    }
}
