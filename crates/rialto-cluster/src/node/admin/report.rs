//! What goes over the admin socket.

use std::path::PathBuf;

use rialto::log::LogPoint;
use serde::{Deserialize, Serialize};

use crate::node::{
    BackupStatus, ComparisonStatus, DecisionStage, LastComparison, Node, NodeFacts, ReplicaStatus,
};
use crate::protocol::replication::{Configuration, Member, RoleKind, Unprotected};
use crate::protocol::transactions::{Decision, Opening, TransactionId, Undecided};
use crate::protocol::{NodeId, PartitionId};

/// What an operator asks a node for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AdminRequest {
    /// What it is and has: [`AdminAnswer::Status`].
    Status,
    /// What it and all other nodes that answer it are and have: [`AdminAnswer::StatusOfAll`].
    StatusOfAll,
    /// Another node is asked. It takes each request, but not those for other nodes, and not those about backups.
    At {
        /// The other node's number.
        node: u32,
        /// The request.
        request: Box<AdminRequest>,
    },
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
    /// Whether a partition that it leads knows of a transaction that has not ended everywhere: [`AdminAnswer::Knows`].
    Knows {
        /// The transaction's name.
        transaction: String,
    },
    /// A transaction that waits for an operator, after a loss of its deciding partition, ends so.
    Decide {
        /// The deciding partition, which this node leads.
        partition: u32,
        /// The transaction's name.
        transaction: String,
        /// How it ends.
        decision: Decision,
    },
    /// A backup of the whole cluster is to be taken.
    Backup {
        /// The directory of this machine where it is written: from the root on, and empty or not there yet.
        to: PathBuf,
    },
    /// The progress of the last backup that was begun here: [`AdminAnswer::Backup`].
    BackupStatus,
    /// The replicas of the partitions that it leads are to be compared with each other.
    Compare,
    /// The progress of the last comparison that was begun here: [`AdminAnswer::Comparison`].
    ComparisonStatus,
}

/// What a node answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdminAnswer {
    /// What it is and has.
    Status(Box<NodeReport>),
    /// What it is and has, and what the other nodes are and have, as far as they have answered it within a second.
    StatusOfAll(Vec<NodeReport>),
    /// The node that was to be asked does not answer this one, for this reason.
    Unreached(String),
    /// The progress of the last backup that was begun here.
    Backup(BackupStatus),
    /// Whether it knows of it.
    Knows(bool),
    /// It has begun.
    Begun,
    /// The backup of this number has begun, in hexadecimal digits as its manifest has it.
    BackupBegun(String),
    /// The progress of the last comparison that was begun here.
    Comparison(ComparisonStatus),
    /// The comparison of this number has begun.
    ComparisonBegun(u64),
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
    /// What becomes of commits at level 2 in unprotected partitions.
    pub unprotected: Unprotected,
    /// All nodes, as the control store had them last.
    pub nodes: Vec<NodeFacts>,
    /// Its connections with other nodes.
    pub connections: usize,
    /// Why a replica that it is to have is not there, if so.
    pub trouble: Option<String>,
    /// Branches of transactions over several partitions that have voted here, and do not know the decision.
    pub in_doubt: u64,
    /// Transactions that wait for an operator, in the partitions that it leads.
    pub undecided: Vec<UndecidedReport>,
    /// Transactions that an operator has decided since the node leads their deciding partitions.
    pub decided: Vec<DecidedReport>,
    /// What differs between replicas of partitions that it leads, in words, the newest last.
    #[serde(default)]
    pub differences: Vec<String>,
    /// The last comparison of each partition that it leads.
    #[serde(default)]
    pub comparisons: Vec<LastComparison>,
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

/// A transaction that waits for an operator: its deciding partition may have lost its records, and no branch knows how
/// it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndecidedReport {
    /// Its name.
    pub transaction: String,
    /// Its deciding partition.
    pub partition: u32,
    /// The opening of that partition which says so. If two nodes do, the higher one is right.
    pub opening: u64,
    /// For how many milliseconds the deciding partition has asked for the decision, since the node leads it.
    pub age_ms: u64,
    /// The partitions with a branch that is prepared, and keeps its locks.
    pub prepared: Vec<u32>,
    /// The partitions that may have lost their branches themselves.
    pub lost: Vec<u32>,
}

/// A transaction that an operator has decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecidedReport {
    /// Its name.
    pub transaction: String,
    /// Its deciding partition.
    pub partition: u32,
    /// The opening of that partition which says so.
    pub opening: u64,
    /// The decision.
    pub decision: Decision,
    /// How far that is.
    pub stage: DecisionStage,
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
        let unfinished = node.transactions().unfinished();
        NodeReport {
            node: node.id().0,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            partitions: node.facts().partitions,
            unprotected: node.facts().unprotected,
            nodes: node.nodes(),
            connections: node.links().connections(),
            trouble: node.trouble(),
            differences: node.differences().iter().map(ToString::to_string).collect(),
            comparisons: node.last_comparisons(),
            in_doubt: unfinished.iter().map(|of| of.prepared as u64).sum(),
            undecided: unfinished
                .iter()
                .flat_map(|of| {
                    of.undecided
                        .iter()
                        .map(|undecided| UndecidedReport::of((of.partition, of.opening), undecided))
                })
                .collect(),
            decided: unfinished
                .iter()
                .flat_map(|of| {
                    of.decided.iter().map(|decided| DecidedReport::of((of.partition, of.opening), decided))
                })
                .collect(),
            replicas: node.replicas().iter().map(|replica| ReplicaReport::from(replica.status())).collect(),
        }
    }
}

impl UndecidedReport {
    fn of(
        (PartitionId(partition), opening): (PartitionId, Opening),
        undecided: &Undecided,
    ) -> UndecidedReport {
        let numbers = |partitions: &[PartitionId]| partitions.iter().map(|partition| partition.0).collect();
        UndecidedReport {
            transaction: undecided.id.name(),
            partition,
            opening: opening.0,
            age_ms: u64::try_from(undecided.age.as_millis()).unwrap_or(u64::MAX),
            prepared: numbers(&undecided.prepared),
            lost: numbers(&undecided.lost),
        }
    }
}

impl DecidedReport {
    fn of(
        (PartitionId(partition), Opening(opening)): (PartitionId, Opening),
        (id, decision, stage): &(TransactionId, Decision, DecisionStage),
    ) -> DecidedReport {
        let (decision, stage) = (*decision, *stage);
        DecidedReport { transaction: id.name(), partition, opening, decision, stage }
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
