//! What goes over the admin socket.

use std::path::PathBuf;

use rialto::log::LogPoint;
use serde::{Deserialize, Serialize};

use crate::node::{BackupStatus, Node, NodeFacts, ReplicaStatus};
use crate::protocol::NodeId;
use crate::protocol::replication::{Configuration, Member, RoleKind};

/// What an operator asks a node for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AdminRequest {
    /// What it is and has: [`AdminAnswer::Status`].
    Status,
    /// The replica of this partition, which leads here, is to lead on another node.
    Switchover {
        /// The partition.
        partition: u32,
        /// The other node's number.
        to: u32,
    },
    /// The replica of this partition leads by force.
    Force {
        /// The partition.
        partition: u32,
        /// The numbers of nodes that are known to be dead.
        without: Vec<u32>,
    },
    /// A backup of the whole cluster is to be taken.
    Backup {
        /// The directory of this machine where it is written: from the root on, and empty or not there yet.
        to: PathBuf,
    },
    /// How far the backup is that was begun here last: [`AdminAnswer::Backup`].
    BackupStatus,
}

/// What a node answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdminAnswer {
    /// What it is and has.
    Status(Box<NodeReport>),
    /// How far the backup is that was begun here last.
    Backup(BackupStatus),
    /// It has begun.
    Begun,
    /// The backup of this number has begun, in hexadecimal digits as its manifest has it.
    BackupBegun(String),
    /// It does not, for this reason.
    Refused(String),
}

/// A node, as it sees itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Its number.
    pub node: u32,
    /// The version of its program.
    pub version: String,
    /// The number of the cluster's partitions.
    pub partitions: u32,
    /// All nodes, as the control store had them last.
    pub nodes: Vec<NodeFacts>,
    /// Its connections with other nodes.
    pub connections: usize,
    /// Why a replica that it is to have is not there, if so.
    pub trouble: Option<String>,
    /// Branches of transactions over several partitions that have voted here, and do not know the decision.
    pub in_doubt: u64,
    /// Its replicas.
    pub replicas: Vec<ReplicaReport>,
}

/// A replica, as its node sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaReport {
    /// The partition.
    pub partition: u32,
    /// Whether it leads.
    pub leads: bool,
    /// Whether it takes transactions at this moment.
    pub serves: bool,
    /// The highest epoch that it has seen.
    pub epoch: u64,
    /// The newest configuration that it knows.
    pub configuration: Option<ConfigurationReport>,
    /// The end of its log; none while its database is not open.
    pub received: Option<PointReport>,
    /// The end of what is on its disk.
    pub on_disk: Option<PointReport>,
    /// What went wrong last.
    pub trouble: Option<String>,
}

/// A place in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PointReport {
    /// Its place in bytes, the same in the logs of all replicas.
    pub position: u64,
    /// The last transaction before it.
    pub lsn: u64,
}

/// A partition's configuration, by the numbers of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigurationReport {
    /// Its number.
    pub epoch: u64,
    /// The primary's node.
    pub primary: u32,
    /// The nodes whose replicas are in sync, the primary's among them.
    pub in_sync: Vec<u32>,
    /// The nodes of the other replicas.
    pub learners: Vec<u32>,
}

impl NodeReport {
    /// What a node is and has.
    pub fn of(node: &Node) -> NodeReport {
        NodeReport {
            node: node.id().0,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            partitions: node.facts().partitions,
            nodes: node.nodes(),
            connections: node.links().connections(),
            trouble: node.trouble(),
            in_doubt: node.transactions().unfinished().iter().map(|of| of.prepared as u64).sum(),
            replicas: node.replicas().iter().map(|replica| ReplicaReport::from(replica.status())).collect(),
        }
    }
}

impl From<ReplicaStatus> for ReplicaReport {
    fn from(status: ReplicaStatus) -> ReplicaReport {
        ReplicaReport {
            partition: status.partition.0,
            leads: status.role == RoleKind::Leading,
            serves: status.serves,
            epoch: status.epoch.0,
            configuration: status.configuration.as_ref().map(ConfigurationReport::from),
            received: status.received.map(PointReport::from),
            on_disk: status.on_disk.map(PointReport::from),
            trouble: status.trouble,
        }
    }
}

impl From<LogPoint> for PointReport {
    fn from(point: LogPoint) -> PointReport {
        PointReport { position: point.position.0, lsn: point.lsn.0 }
    }
}

impl From<&Configuration> for ConfigurationReport {
    fn from(configuration: &Configuration) -> ConfigurationReport {
        let numbers = |members: &[Member]| members.iter().map(|member| member.node.0).collect();
        let NodeId(primary) = configuration.primary;
        ConfigurationReport {
            epoch: configuration.epoch.0,
            primary,
            in_sync: numbers(&configuration.in_sync),
            learners: numbers(&configuration.learners),
        }
    }
}
