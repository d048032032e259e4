//! A node: a process that keeps replicas of partitions, and takes clients.

pub mod admin;
mod clock;
mod facts;
mod packet;
mod random;
mod replica;
mod running;
mod sending;
mod transfer;

pub use clock::NodeClock;
pub use facts::{ClusterFacts, FactsError, NodeFacts, PARTITIONS_MAX, init};
pub use replica::read_configuration;
pub use replica::{Admitted, HostedReplica, Level, NotServing, Outcome, ReplicaOptions, ReplicaStatus};
pub use running::{Node, NodeError, NodeOptions};
