//! [`TransactionServer`]: the threads of its executors, and how it ends.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use parking_lot::Mutex;

use super::MessageServer;
use super::envelope::Unanswered;
use crate::engine::ActionMode;
use crate::engine::data_oriented::{Queues, Served};
use crate::engine::dispatch::TransactionServerStats;
use crate::engine::prepared::Prepared;
use crate::engine::runtime::Runtime;
use crate::error::{Error, Result};
use crate::inside::InBody;
use crate::opening::Opening;
use crate::txn::options::TxOptions;

/// The longest request queue.
const QUEUE_MAX: usize = 1 << 20;
/// The most standby executors.
const STANDBYS_MAX: usize = 1_000;

/// The options of a [`TransactionServer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionServerOptions {
    /// The length of the request queue: so many requests may wait for an executor. A longer queue keeps the executor
    /// busy while message servers sleep; but a request waits for all requests before it (System M's paper, section
    /// 4.3).
    pub queue: usize,
    /// How many executors stand by for the case that the priority executor is blocked. So many transactions, and one
    /// more, can wait for locks before no executor can run.
    pub standbys: usize,
}

impl Default for TransactionServerOptions {
    fn default() -> TransactionServerOptions {
        TransactionServerOptions { queue: 64, standbys: 4 }
    }
}

/// Keeps a database open while it is held.
pub(crate) type KeptOpen = Arc<dyn Any + Send + Sync>;

/// Runs registered procedures for message servers, one at a time. See the [module](super).
///
/// Dropping it closes it.
pub struct TransactionServer {
    runtime: Arc<Runtime>,
    /// The request queue, and the executor's threads.
    queues: Arc<Queues>,
    /// Closed when no response waits for the log any more.
    answered: Mutex<Receiver<()>>,
    /// The database is open for as long as this is held.
    _open: KeptOpen,
    options: TransactionServerOptions,
}

/// A registered procedure that a transaction server runs. It stays this version if a later one is registered.
#[derive(Debug, Clone)]
pub struct ServedProcedure {
    /// Its database.
    pub(super) opening: Opening,
    pub(super) procedure: Prepared,
    pub(super) options: TxOptions,
}

impl ServedProcedure {
    /// Its name.
    pub fn name(&self) -> &str {
        self.procedure.name()
    }
}

impl TransactionServer {
    /// Starts a server of a database that `open` keeps open.
    pub(crate) fn start_on(
        runtime: &Arc<Runtime>,
        open: &KeptOpen,
        options: &TransactionServerOptions,
    ) -> Result<TransactionServer> {
        let TransactionServerOptions { queue, standbys } = *options;
        for (name, value, least, most) in
            [("queue", queue, 1, QUEUE_MAX), ("standbys", standbys, 0, STANDBYS_MAX)]
        {
            if !(least..=most).contains(&value) {
                let reason = format!("it is {value}, expected {least} to {most}");
                return Err(Error::BadDefinition {
                    name: format!("TransactionServerOptions::{name}"),
                    reason,
                });
            }
        }
        let executors = 1 + standbys;
        let (runtime, open) = (runtime.clone(), open.clone());
        let queues = Arc::new(Queues::of_server(&runtime.core, queue, executors));
        let (last, answered) = channel();
        let unanswered = Arc::new(Unanswered { log: runtime.core.commits.log.clone(), _last: last });
        let served = Served { runtime: runtime.clone(), unanswered, _open: open.clone() };
        // If one thread does not start, those that are there end when this is dropped.
        let server = TransactionServer {
            runtime,
            queues,
            answered: Mutex::new(answered),
            _open: open,
            options: options.clone(),
        };
        server.queues.start_server(served).map_err(|error| Error::Unsupported {
            what: format!(
                "starting a thread for each of {executors} executors ({error}); use fewer standbys"
            ),
        })?;
        Ok(server)
    }

    /// The registered procedure of this name, to make requests of.
    ///
    /// # Errors
    /// [`Error::Procedure`] if there is none.
    pub fn procedure(&self, name: &str) -> Result<ServedProcedure> {
        let procedure = self.runtime.procedures.find(name, &self.runtime.core.storage.catalog)?;
        // Its actions say whether they write; if none does, it can read without locks.
        let mut actions = procedure.flow().phases().iter().flatten();
        let read_only = actions.all(|action| action.mode() == ActionMode::Shared);
        let options = procedure.options(&TxOptions { read_only, ..TxOptions::default() });
        let opening = self.runtime.core.storage.catalog.opening();
        Ok(ServedProcedure { opening, procedure, options })
    }

    /// A new message server, with a response queue of its own.
    pub fn message_server(&self) -> MessageServer {
        MessageServer::new(&self.runtime, &self.queues)
    }

    /// Its options.
    pub fn options(&self) -> &TransactionServerOptions {
        &self.options
    }

    /// Its counts so far.
    pub fn stats(&self) -> TransactionServerStats {
        self.queues.request_queue().stats()
    }

    /// Takes no more requests, runs those that are on the queue, and waits until all responses are in their response
    /// queues. Message servers can still take them from there. Inside a body it does not wait: the body may be that
    /// of one of its requests.
    pub fn close(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.queues.request_queue().close();
        if InBody::is_inside(self.runtime.core.storage.catalog.opening()) {
            // The body may be run by one of the executors. They end when they have run what is on the queue.
            return;
        }
        self.queues.close();
        let _ = self.answered.get_mut().recv();
    }
}

impl Drop for TransactionServer {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for TransactionServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionServer").field("options", &self.options).finish_non_exhaustive()
    }
}
