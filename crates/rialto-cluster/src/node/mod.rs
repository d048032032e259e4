//! A node: a process that keeps replicas of partitions, and takes clients.

pub mod admin;
mod clock;
mod facts;
mod packet;
mod random;
mod replica;
mod running;
mod sending;
mod transactions;
mod transfer;

pub use clock::NodeClock;
pub use facts::{ClusterFacts, FactsError, NodeFacts, PARTITIONS_MAX, init};
pub use replica::{
    Admitted, HostedReplica, Lead, Level, NewPartition, NotServing, Outcome, ReplicaOptions, ReplicaStatus,
    read_configuration,
};
pub use running::{Node, NodeError, NodeOptions};
pub use transactions::{Transactions, make_table};
