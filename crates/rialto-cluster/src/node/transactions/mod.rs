//! Transactions of SQL sessions and of calls over the cluster's partitions: the state machines of
//! [`transactions`](crate::protocol::transactions) over the kernel's databases and [`rialto_sql::partitions`].
//!
//! - `work`: what actions and replies are.
//! - `directory`: on which node each partition is served, in which opening.
//! - `served`: a partition that this node serves: its branches, and what comes from coordinators. `in_parts`: what is too much
//!   for one transaction of the system.
//! - `branch`: one branch. `inbox`: its tasks. `workers`: the node's queue of work that may block, and its threads.
//! - `rows`: the system's rows of a partition, in a table.
//! - `opening`: how a partition begins to be served, and ends.
//! - `calling`: calls, on the node that a program calls. `over`: those of several partitions. `called`: what a branch
//!   runs of a call.
//! - `counts`: what a node counts of its transactions.
//! - `reading`: transactions that only read, at replicas of this node that follow. `reader`: a branch there. `positions`: places of
//!   logs, for clients that read there what they have written.
//! - `coordinators`: the transactions that are coordinated here. `session`: one of them, as a SQL session has it.
//! - `alone`: a statement that is alone in its transaction, in a partition of its session's node. `statements_here`:
//!   those that run.
//! - `cluster`: all of it, for one node.
//!
//! Invariants, beside those of the state machines:
//!
//! 1. **No step of a deposed primary (C1).** A step is first carried out; then [`Lead::answer`] is asked; only if it agrees
//!    does the state machine learn of the step.
//! 2. **Nothing is served before it is safe.** A partition is served once its whole log is on its disk and in the memory of
//!    each replica in sync, and its prepared branches have their locks again.
//! 3. **Prepared by its name.** The kernel keeps a prepared transaction under a name, with a note. The name of a prepared
//!    branch is its transaction's identifier, and the note is the branch's row of the protocol. So the kernel has the
//!    prepared branch and its row, or neither of them.
//!
//! [`Lead::answer`]: super::Lead::answer

mod alone;
mod branch;
mod called;
mod calling;
mod cluster;
mod coordinators;
mod counts;
mod definitions;
mod directory;
mod in_parts;
mod inbox;
mod opening;
mod over;
mod positions;
mod reader;
mod reading;
pub(in crate::node) mod rows;
mod served;
mod session;
mod statements_here;
mod waiting;
mod work;
mod workers;

pub use cluster::Transactions;
pub use coordinators::Cancelled;
pub use counts::TransactionCounts;
pub use directory::Serves;
pub(in crate::node) use rows as system_rows;
pub use rows::make_table;
pub use served::{Clearance, DecisionStage, ServedPartition};
pub use work::SqlWork;
