//! Queues of requests for executors, and which thread of an executor runs: for transaction servers, and for threads
//! that own executors.
//!
//! - `queue`: [`Dispatch`], one queue, its priority executor and its standbys (D1 to D4, D6);
//! - `queues`: [`Dispatches`], several queues, of which those with the lowest numbers are in use (D5).
//!
//! `model.rs` checks both under a model checker, with the response queues of message servers (`servers/`).

#[cfg(test)]
mod model;
mod queue;
mod queues;
pub(super) mod sync;
#[cfg(test)]
mod tests;

pub use queue::TransactionServerStats;
pub(super) use queue::{Backoff, Dispatch, Refused, RoomWaiter, Standing};
pub(super) use queues::Dispatches;
