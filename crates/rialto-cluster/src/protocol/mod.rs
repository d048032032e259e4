//! What the nodes of a cluster decide, as state machines: messages, timers and outcomes go in, messages and effects come
//! out. Nothing here blocks, reads a clock, or knows the kernel; therefore a simulation can run any order of events,
//! and a seed repeats it.
//!
//! - [`replication`]: the replicas of one partition, and which of them is primary.
//! - [`transactions`]: transactions over several partitions.

mod ids;
pub mod replication;
pub mod transactions;
mod wire;

pub use ids::{Epoch, Life, Moment, NodeId, PartitionId};
