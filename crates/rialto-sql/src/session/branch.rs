//! A session as the part of a [`BranchSession`](crate::partitions::BranchSession) that runs statements: in one open
//! transaction, with the choices of another session.

use std::sync::Arc;

use rialto::row::Value;
use rialto::{Database, Error, Transaction};

use super::block::Block;
use super::{Session, Tag};
use crate::error::Result;
use crate::partitions::Opening;
use crate::prepared::{CatalogState, Prepared};
use crate::run::RowSink;

impl Session {
    /// A session that runs the statements of branches, one branch after the other.
    pub(crate) fn for_branches(database: Database, opening: &Opening) -> Session {
        let mut session = Session::new(database, &opening.user, &opening.database);
        session.is_branch = true;
        session
    }

    /// A branch begins, in this transaction.
    pub(crate) fn open_branch(&mut self, mut tx: Transaction<'static>) {
        self.block = Block::Explicit;
        // A request for an earlier branch may be late.
        self.cancel = Arc::default();
        self.cancel.set(Some(tx.canceller()));
        self.accounted = 0;
        self.tx = Some(tx);
    }

    /// The branch's transaction; `None` after it was taken.
    pub(crate) fn branch_transaction(&mut self) -> Option<&mut Transaction<'static>> {
        self.tx.as_mut()
    }

    /// The time that the next statement gives for the transaction's begin.
    pub(crate) fn set_now(&mut self, now: i64) {
        self.now = now;
    }

    /// Whether the table is still the one that a plan was made for.
    pub(crate) fn is_plan_current(&mut self, prepared: &Prepared) -> Result<bool> {
        self.is_current(prepared)
    }

    /// Runs a plan that the catalog's version no longer vouches for. It was made for this request. In a transaction
    /// that has changed definitions that is soon enough; otherwise the sender of the request tries again.
    pub(super) fn run_in_branch(
        &mut self,
        prepared: &Prepared,
        params: &[Value],
        sink: &mut dyn RowSink,
    ) -> Result<Tag> {
        if prepared.catalog == CatalogState::Private {
            return self.run(prepared, params, sink);
        }
        let table = prepared.table().map(|(table, _)| table.name()).unwrap_or_default();
        Err(Error::TableChanged { table }.into())
    }
}
