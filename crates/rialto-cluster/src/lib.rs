//! Rialto on several machines.
//!
//! A *node* is a process that keeps *replicas* of *partitions*. A partition is a database of its own, with one replica
//! that runs transactions, its *primary*, and others that redo its log. The kernel, the crate `rialto`, knows of no
//! cluster.
//!
//! - [`protocol`]: what is decided, as state machines without threads, clocks or sockets.
//! - [`control`]: the store of the cluster's configuration.
//! - [`net`]: the connections between nodes.
//! - [`node`]: replicas over the kernel's databases, transactions over partitions, and the process that keeps them.
//!
//! `rialto cluster` of the crate `rialto-cli` runs nodes. Not built: joining and leaving of nodes, the backup of a whole
//! cluster, requests that are run at most once, and procedures over partitions.

pub mod control;
pub mod net;
pub mod node;
pub mod protocol;
