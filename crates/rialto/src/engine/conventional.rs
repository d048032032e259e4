//! The conventional engine: thread-to-transaction. A flow's actions run in order on the thread that called.
//!
//! Every action's locks are taken as its body runs, and held to the end of the transaction; with local locks
//! ([`LockForm::Local`]) what its identifier names is locked before the bodies of its phase run, and then no row of it is: in a
//! stint at the executors of the phase, if these are free, else by entries in their lock tables. A rendezvous point is the
//! step from one phase to the next. Actions of one phase run in the order in which they stand, which orders those whose
//! identifiers overlap; between others it cannot be told, since each keeps to its own: whatever an action touches is
//! held against its table, identifier and mode ([`Scope`](crate::txn::scope::Scope)).

use super::action::Action;
use super::identifier::Given;
use super::phase::{Ready, ReadyActions, beside_lease, lock, make_ready};
use super::procedure::{Outputs, Registered};
use crate::error::Result;
use crate::isolate::LockForm;
use crate::rarely::rarely;
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
        if locks_identifiers && (phase.len() > 1 || rarely(asks_beside_lease(procedure, transaction))) {
            run_together(procedure, phase, transaction, arguments, outputs)?;
        } else {
            // Where rows are locked, each action's turn comes when the one before it has run, and a claim, which is of
            // identifiers only, has none.
            for action in phase.iter().filter(|action| locks_identifiers || !action.is_claim()) {
                run_alone(procedure, action, transaction, arguments, outputs)?;
            }
        }
        outputs.rendezvous();
    }
    Ok(())
}

/// Whether functions of the user's tell what the next phase names, and have to be asked with executors of an earlier one out.
#[inline]
fn asks_beside_lease(procedure: &Registered, transaction: &mut Transaction) -> bool {
    procedure.has_functions() && transaction.context().owner.is_in_stint()
}

/// Runs one action, if it is part of the call.
#[inline(always)]
fn run_alone(
    procedure: &Registered,
    action: &Action,
    transaction: &mut Transaction,
    arguments: &[Value],
    outputs: &mut Outputs,
) -> Result<()> {
    let (context, given) = (transaction.context(), Given { arguments, earlier: outputs.earlier() });
    if !action.is_part_of(given.arguments, given.earlier) {
        return Ok(());
    }
    context.check()?;
    let mut ready = Ready::new(action, context)?;
    ready.identify(procedure, context, given)?;
    lock(procedure, context, std::slice::from_mut(&mut ready), given)?;
    ready.run(procedure, transaction, arguments, outputs)
}

/// Locks what the actions of a phase name, then runs them.
#[inline(never)]
fn run_together(
    procedure: &Registered,
    phase: &[Action],
    transaction: &mut Transaction,
    arguments: &[Value],
    outputs: &mut Outputs,
) -> Result<()> {
    let (context, given) = (transaction.context(), Given { arguments, earlier: outputs.earlier() });
    let mut actions = ReadyActions::new();
    beside_lease(procedure, context, |context| {
        let part_of_it = phase.iter().filter(|action| action.is_part_of(given.arguments, given.earlier));
        make_ready(procedure, part_of_it, context, given, &mut actions)
    })?;
    lock(procedure, context, &mut actions, given)?;
    actions.iter_mut().try_for_each(|action| action.run(procedure, transaction, arguments, outputs))
}
