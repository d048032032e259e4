//! [`Prepared`]: a procedure as its calls use it, with the tables and indexes of its actions.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::binding::Bindings;
use super::data_oriented::in_place;
use super::procedure::{Outputs, Registered};
use super::{conventional, deterministic};
use crate::error::Result;
use crate::row::Value;
use crate::store::Catalog;
use crate::txn::Transaction;

/// A registered procedure, and the tables and indexes of its actions as of a version of the catalog.
#[derive(Clone)]
pub(crate) struct Prepared {
    registered: Arc<Registered>,
    pub(super) bindings: Arc<Bindings>,
}

impl Deref for Prepared {
    type Target = Registered;

    #[inline]
    fn deref(&self) -> &Registered {
        &self.registered
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.registered.fmt(f)
    }
}

impl Prepared {
    pub fn new(registered: Arc<Registered>, catalog: &Catalog) -> Prepared {
        let bindings = registered.bindings(catalog);
        Prepared { registered, bindings }
    }

    /// Brings the bindings up to date with the catalog.
    #[inline]
    pub fn follow(&mut self, catalog: &Catalog) {
        if !self.bindings.are_of(catalog) {
            self.bind_again(catalog);
        }
    }

    #[cold]
    fn bind_again(&mut self, catalog: &Catalog) {
        self.bindings = self.registered.bindings(catalog);
    }

    /// Whether it is the same procedure, of the same version.
    pub fn is_same(&self, other: &Prepared) -> bool {
        Arc::ptr_eq(&self.registered, &other.registered)
    }

    /// Runs the flow inside a transaction. Its outputs are added to `outputs`.
    #[inline]
    pub fn run(
        &self,
        transaction: &mut Transaction,
        arguments: &[Value],
        outputs: &mut Outputs,
    ) -> Result<()> {
        if self.procedure().deterministic && transaction.context().core.commits.tracks_calls() {
            return deterministic::run(self, transaction, arguments, outputs);
        }
        self.run_here(transaction, arguments, outputs)
    }

    /// Runs the flow on this thread, as the engine does it.
    pub(super) fn run_here(
        &self,
        transaction: &mut Transaction,
        arguments: &[Value],
        outputs: &mut Outputs,
    ) -> Result<()> {
        let context = transaction.context();
        // A fetch stage uses no executor.
        match context.core.locks.keeps_keys_at_executors() && !context.fetches() {
            true => in_place::run(self, transaction, arguments, outputs),
            false => conventional::run(self, transaction, arguments, outputs),
        }
    }

    /// As [`Prepared::run`], for a caller that passes the outputs on.
    pub fn run_to_values(&self, transaction: &mut Transaction, arguments: &[Value]) -> Result<Vec<Value>> {
        let mut outputs = self.new_outputs();
        self.run(transaction, arguments, &mut outputs)?;
        self.note_outputs(&outputs);
        Ok(outputs.into_values())
    }
}
