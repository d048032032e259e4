//! [`NodeCounts`]: what a node has counted.

use std::fmt;

/// What a node has counted since its start. The counts only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Which start of the node this is: with another one the counts have begun again.
    pub start: u64,
    /// Messages that were sent to other nodes, of all kinds.
    pub messages_sent: u64,
    /// Transactions of this node's sessions that were committed in one partition.
    pub over_one: u64,
    /// Those that were committed in several.
    pub over_several: u64,
    /// Partitions that transactions have read at a replica of this node which was not the primary.
    pub reads_at_replicas: u64,
    /// Partitions that transactions were to read at such a replica, and have read at the primary: the replica was too old.
    pub reads_sent_on: u64,
    /// Reads at replicas that were ended, since the replica had to go on.
    pub reads_ended: u64,
}

impl fmt::Display for NodeCounts {
    /// As SHOW tells them: names and values, which a client reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NodeCounts { start, messages_sent, over_one, over_several, .. } = self;
        let NodeCounts { reads_at_replicas, reads_sent_on, reads_ended, .. } = self;
        write!(
            f,
            "start={start} messages_sent={messages_sent} over_one_partition={over_one} \
             over_several_partitions={over_several} reads_at_replicas={reads_at_replicas} \
             reads_sent_on={reads_sent_on} reads_ended={reads_ended}"
        )
    }
}
