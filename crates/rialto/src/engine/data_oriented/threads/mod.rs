//! The data-oriented engine with threads that own executors: calls go from thread to thread.
//!
//! Each thread has a queue (`queues`). A `call` is put on the queue of its first action and becomes an `execution`,
//! which is handed from thread to thread. `assignment` says which thread runs which actions of a phase; at a
//! `rendezvous` point the parts of a phase meet. A caller may run its call itself if the queue is empty (`visit`).

mod admission;
mod assignment;
mod call;
mod execution;
#[cfg(test)]
mod model;
mod queues;
mod rendezvous;
mod running_actions;
mod split_phase;
#[cfg(test)]
mod tests;
mod visit;

use crate::engine::dispatch::sync;

pub(crate) use call::{Way, send, way};
pub(in crate::engine) use execution::{Here, Task};
pub(crate) use queues::Queues;
pub(in crate::engine) use queues::Served;
