//! Engines: which thread runs which part of a transaction.
//!
//! - `options`: the [`Engine`] that a database is opened with;
//! - [`flow`]: the form of a transaction, a [`Flow`] of phases of actions, on every engine; [`action`]: its actions,
//!   on tables and on indexes; [`identifier`]: what each may touch, by arguments or by outputs of earlier phases;
//! - [`procedure`]: flows under a name, with typed arguments, and how they are run;
//! - `run`: the loop that runs a transaction until it has its place or has failed;
//! - `binding`, `prepared`: the tables and indexes of a procedure's actions, looked up once for a version of the
//!   catalog;
//! - `phase`, `table_action`: a phase in one call: which actions there are, and how each runs;
//! - `keys_ahead`: keys of several calls, looked up together before the first of the calls runs;
//! - [`conventional`]: the engine that runs a flow's actions in order on the calling thread, and locks rows;
//! - [`data_oriented`]: the engine whose executors have the data: calls in place, threads that own executors, and the
//!   adaptation of routing rules;
//! - `dispatch`: the queues of requests for executors, and which thread of an executor runs;
//! - [`servers`]: System M's transaction server: requests from a queue, one executor, and standbys for when it is
//!   blocked;
//! - [`runtime`]: the state that all of these share;
//! - `replay`: calls in the log, run again for recovery;
//! - `deterministic`: procedures that write the same when they run again on the same rows with the same arguments.
//!
//! Invariant kept here: a flow has **one meaning** on every engine. An action sees the writes of earlier phases, and of
//! its own phase only those of earlier actions whose identifiers overlap its own. The conventional engine could show an
//! action more than that, because the action has the whole transaction at hand. So every engine refuses an action that
//! reads or writes outside its table and identifier (`txn/scope.rs`), or that writes in shared mode.
//! [`Outputs::earlier`] has the outputs of earlier phases, never those of the action's own phase.

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
