//! A simulation of a cluster: what more nodes would do than a machine can run.
//!
//! It is of discrete events: a thread takes a step, which takes processor time on a core of its machine, and hands on a message, a job
//! or an answer. What a step costs was measured (`calibration`). Which threads take the steps of a transaction is written down in
//! [`life`], as the code has it.
//!
//! - [`setup`]: what is simulated. [`service`]: how long work takes.
//! - `event_queue`: what happens when. `cores`: which thread runs. `network`: when messages arrive. `threads`: clients, readers and
//!   workers. `cluster`: what they do.
//! - [`outcome`]: what is counted. [`calibration`]: costs out of measured runs.
//!
//! Invariants: those of `event_queue`, `cores` and `cluster`; a run depends on its setup and its seed alone.

pub mod calibration;
mod cluster;
mod cores;
mod event_queue;
mod least_squares;
pub mod life;
mod network;
pub mod outcome;
pub mod service;
pub mod setup;
#[cfg(test)]
mod tests;
mod threads;

use self::cluster::Cluster;
use self::outcome::Simulated;
use self::setup::Setup;

/// Simulates a cluster.
///
/// # Errors
/// In words: a setup that makes no sense.
pub fn simulate(setup: &Setup) -> Result<Simulated, String> {
    setup.check()?;
    Ok(Cluster::new(setup).run())
}
