//! The data-oriented engine (the DORA paper): a transaction's actions run where the data is assigned, and not all on
//! one thread.
//!
//! An *executor* has a share of the keys and a lock table for them. The keys of an index are divided into *datasets*,
//! and the *routing rules* assign each dataset to an executor. An executor is a data structure, not a thread: the
//! thread that has taken its lock table works on it.
//!
//! - [`isolate`](crate::isolate) has the executors' lock tables and the routing rules, as the local form of locks.
//! - *In place* (`in_place`), the default: the calling thread runs the call, and leases the executors that it needs.
//! - *Bound* (`threads`; [`Executors::threads`](crate::Executors::threads)): each executor is owned by a thread, and a
//!   call is handed from thread to thread.
//! - `locking`: the locks of a phase at executors, for both ways.
//! - `plans`: whether the actions of a phase run at the same time or one after the other, by how often they abort
//!   (`planner`, a policy).
//! - `scaling`: how many executors and threads there are while transactions run; `scaling_policy` says how many there
//!   should be.
//! - `resource_manager`: adapts the rules to the growth of the tables (`datasets`) and to the requests (`rebalancing`;
//!   `read_only` for indexes that are only read). Rules set by hand come through `database/routing.rs`.

mod datasets;
pub(super) mod in_place;
mod locking;
mod planner;
mod plans;
mod read_only;
mod rebalancing;
mod resource_manager;
mod scaling;
mod scaling_policy;
mod threads;

pub(super) use locking::lock_without_lease;
pub(super) use planner::Counted;
pub use planner::{ActionRuns, Plan};
pub(crate) use plans::Plans;
pub(crate) use resource_manager::ResourceManager;
pub(crate) use scaling::{Bounds, resize};
pub(super) use threads::{Here, Served, Task};
pub(crate) use threads::{Queues, Way, send, way};
