//! A node: a process that keeps replicas of partitions, and runs the transactions of SQL sessions and of calls over them.
//!
//! - [`Node`] (`running`): the process. It reads what the control store has, opens a replica for each partition that has one
//!   here, and hands each packet that comes to the replica, the transfer or the transaction that it is for.
//! - `facts`: the cluster and its nodes, as the control store has them; [`init`] makes them.
//!   `claim`: which directory runs as a node.
//! - `replica`: a replica: the state machine of [`replication`](crate::protocol::replication) over a kernel's database.
//! - `transactions`: transactions over partitions: the state machines of
//!   [`transactions`](crate::protocol::transactions) over kernels' databases and SQL's branches.
//! - `calls`: procedures, and calls of them over partitions.
//! - `packet`, `sending`: what nodes send to each other, and how. `transfer`, `pace`: copies of partitions and load files, and
//!   how fast they go.
//! - `members`: replicas that go from one node to another, and the repair of those that are lost.
//! - `backup`: a backup of all partitions at one moment, and the databases of a new cluster made of it.
//! - `compare`: the comparison of a partition's replicas.
//! - `admin`: what an operator on the same machine asks a node for.
//! - `clock`, `random`: the node's clock, and numbers that no other process draws.
//!
//! The invariants are those of the two state machines, and those at the top of `replica` and of `transactions`.
//!
//! Reading order: `facts.rs`, `packet.rs`, `sending.rs`, `replica/mod.rs`, `transfer.rs`, `running.rs`,
//! `transactions/mod.rs`, `calls/mod.rs`, `members/mod.rs`, `backup/mod.rs`, `compare/mod.rs`, `admin/mod.rs`.

pub mod admin;
mod backup;
mod calls;
mod claim;
mod clock;
mod compare;
mod facts;
mod members;
mod pace;
mod packet;
mod random;
mod replica;
mod running;
mod sending;
mod transactions;
mod transfer;

pub use backup::{BackupStatus, MANIFEST, Manifest, PartitionBackup, restore_partition};
pub use calls::{
    ActionInput, Call, CallError, CallLevel, CallNumbers, Outputs, Procedure, ProcedureAction, Procedures,
};
pub use claim::has_replicas;
pub use clock::NodeClock;
pub use compare::{ComparisonReport, ComparisonStatus, Difference, LastComparison, PartitionComparison};
pub use facts::{
    ClusterFacts, FactsError, Joined, NodeFacts, PARTITIONS_MAX, PROMISE_MS, PROMISE_MS_USUAL, Standing,
    check_restored, first_primary, init, init_restored,
};
pub use members::{
    FailedMove, Move, Moves, NoRoom, Placement, Purpose, Round, RoundError, balance_round, drain_round,
    next_primary,
};
pub use replica::{
    Admitted, Catching, HostedReplica, Lead, NewPartition, NotHere, NotRead, NotServing, Outcome, ReadPermit,
    ReplicaOptions, ReplicaStatus, ToldPlace, read_configuration, read_configurations,
};
pub use running::{LinkOptions, Node, NodeError, NodeOptions};
pub use transactions::{DecisionStage, TransactionCounts, Transactions, make_table};
