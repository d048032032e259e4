//! The data-oriented engine (the DORA paper): threads own data, transactions travel.
//!
//! - Local lock tables, one an executor, and the routing rules that say whose the keys of an index are, are in
//!   [`isolate`](crate::isolate), its local form. An executor is a structure: the thread that has its table runs what there is to
//!   do with it.
//! - *In place* (`in_place`), the default: the thread that calls runs the call, and leases the executors that it needs.
//! - *Bound* (`threads`; [`Executors::threads`](crate::Executors::threads)): threads share the executors out among themselves, and calls go
//!   from one to the other.
//! - `locking`: what a phase locks at executors, the same for both.
//! - `plans`: whether the actions of a phase are run at the same time or one after the other, by how often they abort
//!   (`planner`, a policy).
//! - `scaling`: how many executors and threads there are while transactions run; `scaling_policy` says how many there should be.
//! - `resource_manager`: keeps the rules in step with how the tables grow (`datasets`), and with what is asked for (`rebalancing`,
//!   and `readers`: what is only read); `routing`: rules given by hand.

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
