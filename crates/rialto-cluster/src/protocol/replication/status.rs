//! [`ReplicaStatus`]: what an operator is shown of a replica.

use rialto::log::LogPoint;

use super::configuration::Member;
use super::message::Fitness;
use super::replica::RoleKind;
use crate::protocol::{Epoch, Moment, NodeId};

/// What an operator is shown of a replica, as it is at one moment and as far as the replica knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// What it does.
    pub role: RoleKind,
    /// Whether it can be a standby or a primary.
    pub fitness: Fitness,
    /// The highest epoch that it has seen.
    pub epoch: Epoch,
    /// The recorded primary.
    pub primary: Option<NodeId>,
    /// The replicas in sync.
    pub in_sync: Vec<Member>,
    /// The others.
    pub learners: Vec<Member>,
    /// Whether it serves at this moment.
    pub serves: bool,
    /// At a primary, the other replicas that it has heard or asked.
    pub peers: Vec<PeerStatus>,
    /// The epoch of the configuration that a swap of its own, whose outcome is not known yet, would put in force.
    pub open_swap: Option<Epoch>,
    /// When the control store gave it an answer last.
    pub store_seen: Option<Moment>,
}

/// What a primary shows of another replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerStatus {
    /// The replica.
    pub member: Member,
    /// What it has in memory of the primary's log, once that is known.
    pub received: Option<LogPoint>,
    /// What was sent to it in the stream that it has now.
    pub sent: LogPoint,
    /// Until when its promise counts, if it has given one that still does.
    pub promised_until: Option<Moment>,
    /// Whether it can be a standby.
    pub fitness: Fitness,
}
