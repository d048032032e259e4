//! A replica on this node: the state machine of [`replication`](crate::protocol::replication) over a kernel's database.
//!
//! - [`HostedReplica`]: what the rest of the node has of it: its database while it leads, and what may be answered.
//! - `driver`: the thread that takes steps and carries out effects.
//! - `database`: the database in each role, and how it changes from one to the other, on a thread of its own.
//! - `shipping`: the log's blocks, to the other replicas.
//! - `store_requests`: requests to the control store, on a thread of their own.
//! - `saved_file`: the replica's own file.
//!
//! Invariants, beside those of the state machine:
//!
//! 1. **Effects in order.** They are carried out in the order in which the state machine gives them. If its file cannot be
//!    written, the replica stops.
//! 2. **Answered after the check (C1).** What ran is answered only after [`Lead::answer`] has asked the state machine,
//!    which is after it ran.
//! 3. **One life.** The state machine has the life of the database's ring. If the ring turns out to be another one (after a new
//!    copy), a new state machine begins, as in a new process.
//! 4. **No fork by an accident of the directory.** A database is made only for the recorded primary of a partition's first
//!    configuration, under which nothing was ever answered. Every other replica without a database takes a copy.

mod database;
mod driver;
mod hosted;
mod saved_file;
mod shipping;
mod store_requests;

pub use database::NewPartition;
pub use hosted::{Admitted, HostedReplica, Lead, Level, NotServing, Outcome, ReplicaOptions, ReplicaStatus};
pub use store_requests::{configuration_key, read_configuration};
