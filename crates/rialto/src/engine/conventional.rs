//! The conventional engine: thread-to-transaction. A flow's actions run in order on the thread that called.
//!
//! Every action's locks are taken as its body runs, and held to the end of the transaction; with local locks
//! ([`LockForm::Local`]) what its identifier names is locked before the bodies of its phase run, and then no row of it is: in a
//! stint at the executors of the phase, if these are free, else by entries in their lock tables. A rendezvous point is the
//! step from one phase to the next. Actions of one phase run in the order in which they stand, which orders those whose
//! identifiers overlap; between others it cannot be told, since each keeps to its own: whatever an action touches is
//! held against its table, identifier and mode ([`Scope`](crate::txn::scope::Scope)).

use super::identifier::Given;
use super::phase::{Ready, lock_identifiers, ready};
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
    for phase in procedure.flow().phases() {
        if locks_identifiers {
            let (context, given) = (transaction.context(), Given { arguments, earlier: outputs.earlier() });
            let actions = ready(procedure, phase, context, given)?;
            lock_identifiers(context, &actions)?;
            for action in &actions {
                action.run(procedure, transaction, arguments, outputs)?;
            }
        } else {
            for action in phase.iter().filter(|action| action.body.is_some()) {
                let given = Given { arguments, earlier: outputs.earlier() };
                if action.is_part_of(arguments, given.earlier) {
                    let ready = Ready::new(procedure, action, transaction.context(), given)?;
                    ready.run(procedure, transaction, arguments, outputs)?;
                }
            }
        }
        outputs.rendezvous();
    }
    Ok(())
}
