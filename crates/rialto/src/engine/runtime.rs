//! [`Runtime`]: what is needed to run the calls of an open database.

use std::sync::Arc;

use super::data_oriented::{Bounds, Queues};
use super::options::Engine;
use super::procedure::Procedures;
use crate::account::processor::ProcessorTime;
use crate::txn::core::Core;

/// See the [module](self).
pub(crate) struct Runtime {
    pub core: Arc<Core>,
    /// The engine that runs them.
    pub engine: Engine,
    pub procedures: Procedures,
    /// The queues of threads that own executors; none if calls run in place.
    pub queues: Option<Arc<Queues>>,
    /// The bounds within which the numbers of executors and of these threads are chosen.
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
