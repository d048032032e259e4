//! A replica on this node: the state machine of [`replication`](crate::protocol::replication) over a kernel's database.
//!
//! - [`HostedReplica`]: what the rest of the node has of it: its database while it leads, and what may be answered.
//! - `answering`: what may be answered, and what waits for that.
//! - `driver`: the thread that takes steps and carries out effects.
//! - `database`: the database in each role, and how it changes from one to the other, on a thread of its own.
//! - `shipping`: the log's blocks, to the other replicas.
//! - `store_requests`: requests to the control store, on a thread of their own.
//! - `saved_file`: the replica's own file.
//! - `reads`: transactions that read while it follows, and give way to its redo. `table_age`: how old its tables are.
//!   `read_here`: how a transaction comes to read here. `read_permit`: what it has until its end.
//!
//! The *ring* of a database is the memory that has the end of its log; it outlives the process. Its *life* is a random
//! number, which is drawn when the ring is made: an opening that finds the ring of the process before it has the same life,
//! and has lost nothing; after a restart of the machine, or with a new copy, the life is another one.
//!
//! Invariants, beside those of the state machine:
//!
//! 1. **Effects in order.** They are carried out in the order in which the state machine gives them. If the replica's own
//!    file cannot be written, the replica stops.
//! 2. **Answered after the check (C1).** After a transaction has run, and before its client is answered, [`Lead::answer`]
//!    asks the state machine whether this replica may still answer.
//! 3. **The ring's life.** Each opening of the database tells the state machine the life that it has found. Without a
//!    database the state machine has a newly drawn life, and so is in sync in no configuration.
//! 4. **No fork by an accident of the directory.** A database is made only for the recorded primary of a partition's first
//!    configuration, under which nothing was ever answered. Every other replica without a database takes a copy.

mod answering;
mod database;
mod driver;
mod hosted;
mod inputs;
mod read_here;
mod read_permit;
mod reads;
mod saved_file;
mod shipping;
mod store_requests;
mod table_age;

pub(in crate::node) use answering::Haste;
pub use database::{NewPartition, database_directory, replica_directory};
pub use hosted::{
    Admitted, Catching, HostedReplica, Lead, NotServing, Outcome, ReplicaOptions, ReplicaStatus,
};
pub use read_here::{NotHere, ToldPlace};
pub use read_permit::{NotRead, ReadEnd, ReadPermit};
pub use saved_file::SavedFile;
pub use store_requests::{CONFIGURATIONS, configuration_key, read_configuration, read_configurations};
