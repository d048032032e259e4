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
//! `rialto cluster` of the crate `rialto-cli` runs nodes. SQL clients enter there: its server gives each client a session of
//! `rialto-sql` over [`Transactions::partitions`](node::Transactions::partitions), and the statements of that session come to
//! [`node`] as requests to branches.
//!
//! The invariants have numbers. C1 to C7, of one partition's replicas, are in [`protocol::replication`]; C8 to C13, of
//! transactions over several partitions, are in [`protocol::transactions`]. What else a module keeps, it says at its top.
//!
//! Reading order: [`protocol::replication`], [`control`], [`node`] (without its transactions), [`net`], then
//! [`protocol::transactions`] and the transactions of [`node`].
//!
//! A program that is a node itself calls procedures by [`Transactions::call`](node::Transactions::call).
//!
//! Not built: the archive of a cluster's log; calls of procedures by SQL, and from machines without a node; changes of
//! the number of partitions or replicas of a cluster.

pub mod control;
pub mod net;
pub mod node;
pub mod protocol;
