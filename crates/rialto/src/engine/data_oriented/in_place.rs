//! The data-oriented engine without threads of its own: the calling thread runs a phase's actions in their order.
//!
//! A phase locks its identifiers before its first action, and then needs no locks on the rows under them. If the
//! executors are free, the transaction leases them: it has their lock tables for itself, at most until it ends.
//! Otherwise it adds entries to the lock tables ([`locking`](super::locking)). The order of actions means what it means
//! on the [conventional](crate::engine::conventional) engine.

use super::locking::{beside_lease, lock};
use crate::engine::action::Action;
use crate::engine::binding::Binding;
use crate::engine::identifier::Given;
use crate::engine::phase::{BoundAction, BoundActions, PREFETCH_FROM, bind, prefetch};
use crate::engine::prepared::Prepared;
use crate::engine::procedure::Outputs;
use crate::error::Result;
use crate::row::Value;
use crate::txn::Transaction;
use crate::unlikely::unlikely;

/// Runs a flow inside a transaction. Its outputs are added to `outputs`.
pub(crate) fn run(
    procedure: &Prepared,
    transaction: &mut Transaction,
    arguments: &[Value],
    outputs: &mut Outputs,
) -> Result<()> {
    outputs.clear();
    for (nth, phase) in procedure.flow().phases().iter().enumerate() {
        match (&phase[..], procedure.bindings.of_phase(nth)) {
            ([action], [binding]) if !unlikely(asks_beside_lease(procedure, transaction)) => {
                run_alone(procedure, (action, binding.as_ref()), transaction, arguments, outputs)?;
            }
            (phase, bindings) => {
                let bound = phase.iter().zip(bindings.iter().map(Option::as_ref));
                run_together(procedure, bound, transaction, arguments, outputs)?;
            }
        }
        outputs.rendezvous();
    }
    Ok(())
}

/// Whether functions of the user say what the next phase names, and would be called while executors of an earlier
/// phase are leased.
#[inline]
fn asks_beside_lease(procedure: &Prepared, transaction: &mut Transaction) -> bool {
    procedure.has_functions() && transaction.context().owner.holds_lease()
}

/// Runs the one action of a phase, if it is part of the call.
#[inline(always)]
fn run_alone(
    procedure: &Prepared,
    action: (&Action, Option<&Binding>),
    transaction: &mut Transaction,
    arguments: &[Value],
    outputs: &mut Outputs,
) -> Result<()> {
    let (context, given) = (transaction.context(), Given { arguments, earlier: outputs.earlier() });
    if !action.0.is_part_of(given.arguments, given.earlier) {
        return Ok(());
    }
    context.check()?;
    let mut action = BoundAction::of(procedure, action, context)?;
    action.identify(procedure, context, given)?;
    lock(procedure, context, std::slice::from_mut(&mut action), given)?;
    action.run(procedure, transaction, arguments, outputs)
}

/// Locks the identifiers of a phase's actions, prefetches the rows of a large phase, and runs the actions.
#[inline(never)]
fn run_together<'a>(
    procedure: &Prepared,
    phase: impl ExactSizeIterator<Item = (&'a Action, Option<&'a Binding>)>,
    transaction: &mut Transaction,
    arguments: &[Value],
    outputs: &mut Outputs,
) -> Result<()> {
    let (context, given) = (transaction.context(), Given { arguments, earlier: outputs.earlier() });
    let (mut actions, is_large) = (BoundActions::new(), phase.len() >= PREFETCH_FROM);
    beside_lease(procedure, context, |context| {
        let part_of_it = phase.filter(|(action, _)| action.is_part_of(given.arguments, given.earlier));
        bind(procedure, part_of_it, context, given, &mut actions)
    })?;
    lock(procedure, context, &mut actions, given)?;
    if is_large {
        prefetch(context, &actions);
    }
    actions.iter_mut().try_for_each(|action| action.run(procedure, transaction, arguments, outputs))?;
    if is_large {
        transaction.context().prefetched.clear();
    }
    Ok(())
}
