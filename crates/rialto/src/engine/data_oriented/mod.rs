//! The data-oriented engine (the DORA paper): threads own data, transactions travel.
//!
//! - Local lock tables, one an executor, and the routing rules that say whose the keys of an index are, are in
//!   [`isolate`](crate::isolate), its local form. An executor is a structure: whoever has its table
//!   runs what there is to do with it.
//! - *In place*, the default: the thread that calls runs the call, in a stint at the executors that it needs
//!   ([`phase`](super::phase)).
//! - *Bound* ([`Executors::threads`](crate::Executors::threads)): threads share the executors out among
//!   themselves, each with a queue (`queues`); a `call` is put on the queue of its first action's, and becomes a `flight`,
//!   which goes from thread to thread; `placing` says which thread runs which actions of a phase, and at a `rendezvous` point
//!   they meet.
//! - `plans`: whether the actions of a phase are run at the same time or one after the other, by how often they abort
//!   (`planner`, a policy).
//! - `numbers`: how many executors and threads there are while transactions run; `headcount` says how many there should be.
//! - `resource_manager`: keeps the rules in step with how the tables grow (`datasets`), and with what is asked for (`loads`,
//!   and `readers`: what is only read); `routing`: rules given by hand.

mod call;
mod datasets;
mod flight;
mod headcount;
mod loads;
#[cfg(test)]
mod model;
mod numbers;
mod placing;
mod planner;
mod plans;
mod queues;
mod readers;
mod rendezvous;
mod resource_manager;
mod sync;
#[cfg(test)]
mod tests;

pub(crate) use call::send;
pub(crate) use numbers::{Bounds, resize};
pub(super) use planner::Counted;
pub use planner::{ActionRuns, Plan};
pub(crate) use plans::Plans;
pub(crate) use queues::Queues;
pub(crate) use resource_manager::ResourceManager;
