//! Engines: which thread runs which part of a transaction.
//!
//! A *flow* is the form of a transaction: phases, one after the other, of *actions*. An action works on one table, on
//! the rows whose keys begin with its *identifier*. The conventional engine runs a flow on the calling thread and locks
//! rows. The data-oriented engine divides the keys among *executors*: each has a share of the keys and a lock table for
//! them, and an action runs where its executor is. A transaction's *place* is its position in the log's order
//! ([`Lsn`](crate::Lsn)).
//!
//! - `options`: the [`Engine`] that a database is opened with;
//! - [`flow`]: a [`Flow`] of phases, the same on every engine; [`action`]: its actions, on tables and on indexes;
//!   [`identifier`]: how an action's identifier follows from arguments, or from outputs of earlier phases;
//! - [`procedure`]: flows with a name and typed arguments, and how they are run;
//! - `run`: the loop that runs a transaction until it has its place in the log or has failed;
//! - `binding`, `prepared`: the tables and indexes of a procedure's actions, looked up once for a version of the
//!   catalog;
//! - `phase`, `table_action`: which actions a phase has in one call, and how each runs;
//! - `keys_ahead`: keys of several calls, looked up together before the first of the calls runs;
//! - [`conventional`]: the engine that runs a flow's actions in order on the calling thread, and locks rows;
//! - [`data_oriented`]: the engine with executors: calls in place, threads that own executors, and the adaptation of
//!   the routing rules, which assign keys to executors;
//! - `dispatch`: the queues of requests for executors, and which thread of an executor runs;
//! - [`servers`]: System M's transaction server: one executor runs requests from a queue, and standby threads take over
//!   while a request waits;
//! - [`runtime`]: the state that all of these modules share;
//! - `replay`: calls in the log, run again for recovery;
//! - `deterministic`: procedures that write the same when they run again on the same rows with the same arguments.
//!
//! Invariant kept here: a flow has **one meaning** on every engine. An action sees the writes of earlier phases, and of
//! its own phase only those of earlier actions whose identifiers overlap its own. On the conventional engine an action
//! has the whole transaction at hand and could see more than that. So every engine refuses an action that reads or
//! writes outside its table and identifier (`txn/scope.rs`), or that writes in shared mode. [`Outputs::earlier`] has
//! the outputs of earlier phases, never those of the action's own phase.

pub mod action;
mod binding;
pub(crate) mod conventional;
pub(crate) mod data_oriented;
pub(crate) mod deterministic;
mod dispatch;
pub mod flow;
pub mod identifier;
mod keys_ahead;
mod options;
mod phase;
mod planning;
pub(crate) mod prepared;
pub mod procedure;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod runtime;
pub mod servers;
mod table_action;

pub use action::{Action, ActionMode};
pub use data_oriented::{ActionRuns, Plan};
pub use flow::Flow;
pub use identifier::IdentifierPart;
pub(crate) use keys_ahead::KeysAhead;
pub use options::{Engine, Executors, HandOver, Locks};
pub use planning::Planning;
pub(crate) use prepared::Prepared;
pub use procedure::{Arguments, Outputs, PhasePlan, Procedure};
pub(crate) use procedure::{Procedures, Registered};
pub(crate) use runtime::{CallersServers, Runtime};
pub use servers::{MessageServer, TransactionServer, TransactionServerOptions};
