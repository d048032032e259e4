//! Registered procedures, and calls of them.

use std::borrow::Cow;
use std::sync::Arc;

use super::Database;
use crate::engine::data_oriented::{Queues, Way, send, way};
use crate::engine::run::run_to_completion;
use crate::engine::{Prepared, Procedure, Registered};
use crate::error::Result;
use crate::inside::InBody;
use crate::reply::{Sent, Ticket};
use crate::row::Value;
use crate::store::Prefetched;
use crate::txn::options::TxOptions;

impl Database {
    /// Registers a procedure until the database is closed. It replaces a procedure of the same name and a lower
    /// version.
    ///
    /// # Errors
    /// [`Error::Procedure`](crate::Error::Procedure) if its flow makes no sense, or if a procedure of its name and of
    /// no lower version is registered.
    pub fn register(&self, procedure: Procedure) -> Result<()> {
        self.runtime().procedures.register(procedure, &self.core().commits.accounts)
    }

    /// The queues of the threads that run calls of this procedure; `None` if a call of it runs where it is called.
    #[inline]
    pub(super) fn queues_for(&self, procedure: &Registered) -> Option<&Arc<Queues>> {
        self.runtime().queues.as_ref().filter(|_| procedure.travels(self.core()))
    }

    /// Where a call runs if its caller waits for it.
    #[inline]
    pub(super) fn way(&self, procedure: &Prepared, arguments: &[Value]) -> Result<Way<'_>> {
        match self.queues_for(procedure) {
            Some(queues) => way(queues, self.runtime().engine.hand_over(), procedure, arguments),
            None => Ok(Way::Here(None)),
        }
    }

    /// Hands a call over to the threads that own executors, beginning at this queue.
    pub(super) fn hand_over(
        &self,
        queue: usize,
        procedure: &Prepared,
        options: &TxOptions,
        arguments: Cow<'_, [Value]>,
    ) -> Result<Sent> {
        let queues = self.runtime().queues.as_ref().expect("there is a queue");
        let (options, arguments) = (options.clone(), arguments.into_owned());
        send(queues, Some(queue), procedure.clone(), options, arguments)
    }

    pub(super) fn find_procedure(&self, name: &str) -> Result<Prepared> {
        self.runtime().procedures.find(name, &self.core().storage.catalog)
    }

    /// The version of this procedure that is registered; `None` without one.
    pub fn registered_version(&self, name: &str) -> Option<u32> {
        self.runtime().procedures.get(name).map(|registered| registered.procedure().version)
    }

    /// Runs a registered procedure as one transaction, waits until its outcome is durable, and returns the outputs of
    /// the procedure.
    ///
    /// # Blocking
    /// The call may wait for locks, for each of them up to its time-out; for room in the log, up to
    /// [`Options::log_wait_max`](crate::Options::log_wait_max); and for a checkpoint that the transaction straddles.
    /// Then it waits until the log is durable up to the transaction's place.
    ///
    /// # Errors
    /// [`Error::Procedure`](crate::Error::Procedure) if no procedure of this name is registered, if it takes other
    /// arguments, or if an action does what its table, identifier and mode do not allow; else as
    /// [`Database::transact`].
    pub fn call(&self, name: &str, arguments: &[Value]) -> Result<Vec<Value>> {
        self.call_with(&TxOptions::default(), name, arguments)
    }

    /// As [`Database::call`], with options.
    ///
    /// # Errors
    /// As [`Database::call`].
    pub fn call_with(&self, options: &TxOptions, name: &str, arguments: &[Value]) -> Result<Vec<Value>> {
        let procedure = self.find_procedure(name)?;
        let arguments = procedure.check(arguments)?;
        let way = self.way(&procedure, &arguments)?;
        if let Way::Queue(queue) = way {
            return self.hand_over(queue, &procedure, &procedure.options(options), arguments)?.wait();
        }
        self.transact_with(&procedure.options(options), |transaction| {
            procedure.run_to_values(transaction, &arguments)
        })
    }

    /// Sends a call of a registered procedure on its way without waiting for its outcome, which [`Sent`] gives. Where
    /// threads own executors ([`Executors::threads`](crate::Executors::threads)), they run the call. So a client can
    /// have many calls in progress, up to the bound named there; at the bound this waits for room. Without these
    /// threads, and for a procedure without identifiers, the call runs here before this returns, and only the wait for
    /// the log is left out.
    ///
    /// # Blocking
    /// Where threads own executors the call may wait for room among the calls on their way, and for nothing else.
    /// Elsewhere it runs the procedure, and may wait as [`Database::submit`] does.
    ///
    /// # Errors
    /// [`Error::Procedure`](crate::Error::Procedure) if there is no procedure of this name or it takes other arguments;
    /// [`Error::Nested`](crate::Error::Nested) inside a body; [`Error::Closed`](crate::Error::Closed). Errors of the
    /// call itself are in [`Sent`].
    pub fn send_call(&self, name: &str, arguments: &[Value]) -> Result<Sent> {
        self.send_call_with(&TxOptions::default(), name, arguments)
    }

    /// As [`Database::send_call`], with options.
    ///
    /// # Errors
    /// As [`Database::send_call`].
    pub fn send_call_with(&self, options: &TxOptions, name: &str, arguments: &[Value]) -> Result<Sent> {
        let procedure = self.find_procedure(name)?;
        self.send(&procedure, &procedure.options(options), procedure.check(arguments)?, None)
    }

    /// Sends a call on its way. If it runs here, its transaction gets what was `found` of its keys ahead.
    pub(super) fn send(
        &self,
        procedure: &Prepared,
        options: &TxOptions,
        arguments: Cow<'_, [Value]>,
        mut found: Option<&mut Prefetched>,
    ) -> Result<Sent> {
        if let Some(queues) = self.queues_for(procedure) {
            let (options, arguments) = (options.clone(), arguments.into_owned());
            return send(queues, None, procedure.clone(), options, arguments);
        }
        let _in_body = InBody::enter(self.core().storage.catalog.opening())?;
        self.core().storage.check_open()?;
        let completed = run_to_completion(self.core(), options, |transaction| {
            if let Some(found) = found.take() {
                transaction.begin_with_found(found);
            }
            procedure.run_to_values(transaction, &arguments)
        });
        Ok(Sent::completed(self.core().storage.catalog.opening(), completed))
    }

    /// Runs a registered procedure as [`Database::call`] does, but does not wait for the disk: the ticket tells when
    /// the outcome is durable. It waits until the call has its place; [`Database::send_call`] does not.
    ///
    /// # Blocking
    /// The call may wait for locks, for each of them up to its time-out; for room in the log, up to
    /// [`Options::log_wait_max`](crate::Options::log_wait_max); and for a checkpoint that the transaction straddles.
    /// If the body fails it waits until what the body read is durable. It does not wait for the disk otherwise.
    ///
    /// # Errors
    /// As [`Database::call`].
    pub fn submit_call(&self, name: &str, arguments: &[Value]) -> Result<(Vec<Value>, Ticket)> {
        self.submit_call_with(&TxOptions::default(), name, arguments)
    }

    /// As [`Database::submit_call`], with options.
    ///
    /// # Errors
    /// As [`Database::call`].
    pub fn submit_call_with(
        &self,
        options: &TxOptions,
        name: &str,
        arguments: &[Value],
    ) -> Result<(Vec<Value>, Ticket)> {
        let procedure = self.find_procedure(name)?;
        let arguments = procedure.check(arguments)?;
        let way = self.way(&procedure, &arguments)?;
        if let Way::Queue(queue) = way {
            return self
                .hand_over(queue, &procedure, &procedure.options(options), arguments)?
                .wait_for_place();
        }
        self.submit_with(&procedure.options(options), |transaction| {
            procedure.run_to_values(transaction, &arguments)
        })
    }
}
