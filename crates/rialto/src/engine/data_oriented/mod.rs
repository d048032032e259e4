//! The data-oriented engine (the DORA paper): threads own data, transactions travel.
//!
//! - Local lock tables, one for each executor, and the routing rules, which assign the keys of an index to executors,
//!   are in [`isolate`](crate::isolate), its local form. An executor is a structure: the thread that has its table
//!   does the work on it.
//! - *In place* (`in_place`), the default: the calling thread runs the call, and leases the executors that it needs.
//! - *Bound* (`threads`; [`Executors::threads`](crate::Executors::threads)): threads divide the executors among
//!   themselves, and calls travel from one to the other.
//! - `locking`: the locks of a phase at executors, the same for both.
//! - `plans`: whether the actions of a phase run at the same time or one after the other, by how often they abort
//!   (`planner`, a policy).
//! - `scaling`: how many executors and threads there are while transactions run; `scaling_policy` says how many there
//!   should be.
//! - `resource_manager`: adapts the rules to the growth of the tables (`datasets`) and to the requests
//!   (`rebalancing`, and `read_only` for what is only read). Rules set by hand come through `database/routing.rs`.

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
