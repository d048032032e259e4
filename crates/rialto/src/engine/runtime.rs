//! [`Runtime`]: what runs the calls of an open database.

use std::sync::Arc;

use super::data_oriented::{Bounds, Queues};
use super::options::Engine;
use super::procedure::Procedures;
use crate::account::processor::ProcessorTime;
use crate::txn::core::Core;

/// See the [module](self).
pub(crate) struct Runtime {
    pub core: Arc<Core>,
    /// Which engine runs them.
    pub engine: Engine,
    pub procedures: Procedures,
    /// What there is to do for threads that own executors; none, if the thread that calls runs a call in place.
    pub queues: Option<Arc<Queues>>,
    /// Between which bounds the numbers of executors and of these threads are chosen.
    pub bounds: Bounds,
    /// Processor time of the servers that callers start.
    pub server_times: CallersServers,
}

/// Processor time of the servers that callers start.
#[derive(Default)]
pub(crate) struct CallersServers {
    pub transaction: ProcessorTime,
    pub message: ProcessorTime,
}
