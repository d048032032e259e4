//! The conventional engine: thread-to-transaction. A flow's actions run in order on the thread that called.
//!
//! Every action's locks are taken as its body runs, and held to the end of the transaction; with local locks
//! ([`LockForm::Local`]) what its identifier names is locked before the bodies of its phase run, and then no row of it is: in a
//! stint at the executors of the phase, if these are free, else by entries in their lock tables. A rendezvous point is the
//! step from one phase to the next. Actions of one phase run in the order in which they stand, which orders those whose
//! identifiers overlap; between others it cannot be told, since each keeps to its own: whatever an action touches is
//! held against its table, identifier and mode ([`Scope`](crate::txn::scope::Scope)).

use super::identifier::Given;
use super::phase::{ReadyActions, lock, make_ready};
use super::procedure::{Outputs, Registered};
use crate::error::Result;
use crate::lock::LockForm;
use crate::row::Value;
use crate::txn::Transaction;

/// Runs a flow inside a transaction; `outputs` are then what it gave.
pub(crate) fn run(
    procedure: &Registered,
    transaction: &mut Transaction,
    arguments: &[Value],
    outputs: &mut Outputs,
) -> Result<()> {
    outputs.clear();
    let locks_identifiers = transaction.context().core.locks.form() == LockForm::Local;
    let mut actions = ReadyActions::new();
    for phase in procedure.flow().phases() {
        // Where rows are locked, each action's turn comes when the one before it has run.
        let steps = if locks_identifiers { phase.len() } else { 1 };
        for step in phase.chunks(steps) {
            let (context, given) = (transaction.context(), Given { arguments, earlier: outputs.earlier() });
            // A claim is of identifiers only.
            let actions_of_step = step.iter().filter(|action| locks_identifiers || !action.is_claim());
            make_ready(procedure, actions_of_step, context, given, &mut actions)?;
            lock(procedure, context, &mut actions, given)?;
            for action in &mut actions {
                action.run(procedure, transaction, arguments, outputs)?;
            }
        }
        outputs.rendezvous();
    }
    Ok(())
}
