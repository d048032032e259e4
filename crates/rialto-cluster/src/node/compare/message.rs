//! [`Compared`]: what a replica answers to a comparison that it has redone.

use serde::{Deserialize, Serialize};

use super::comparison::Found;
use crate::protocol::replication::Member;
use crate::protocol::{Epoch, PartitionId};

/// What a replica has found at the place of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// The partition.
    pub partition: PartitionId,
    /// The epoch in which the primary of the comparison has begun to lead.
    pub epoch: Epoch,
    /// The comparison's number.
    pub number: u64,
    /// The replica, in its life.
    pub from: Member,
    /// What its range comes to.
    pub found: Found,
}
