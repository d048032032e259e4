//! The conventional engine: thread-to-transaction. A flow's actions run in order on the thread that called.
//!
//! Each row is locked when an action's body comes to it, and stays locked to the end of the transaction. Where keys
//! are kept at executors a phase first locks its identifiers, and then no row under them: it leases the executors if they are free, else
//! it adds entries to their lock tables. A phase of many actions prefetches the rows that they name before it runs the
//! first. A rendezvous point is the step from one phase to the next.
//!
//! Actions of one phase run in the order in which they stand, which orders those whose identifiers overlap. The order of
//! others is not observable: each touches only its own table, identifier and mode ([`Scope`](crate::txn::scope::Scope)).

use super::action::Action;
use super::binding::Binding;
use super::identifier::Given;
use super::phase::{BoundAction, BoundActions, beside_lease, bind, lock, prefetch};
use super::prepared::Prepared;
use super::procedure::Outputs;
use super::table_action::InUse;
use crate::error::Result;
use crate::rarely::rarely;
use crate::row::Value;
use crate::txn::Transaction;

/// A phase of at least so many actions prefetches the rows that they name. The short transactions of the benchmarks have at most four actions a
/// phase, of which one row or two are of large tables: too few to overlap.
const PREFETCH_FROM: usize = 5;

/// Runs a flow inside a transaction; `outputs` are then what it gave.
pub(crate) fn run(
    procedure: &Prepared,
    transaction: &mut Transaction,
    arguments: &[Value],
    outputs: &mut Outputs,
) -> Result<()> {
    outputs.clear();
    let locks_identifiers = transaction.context().core.locks.keeps_keys_at_executors();
    for (nth, phase) in procedure.flow().phases().iter().enumerate() {
        let bindings = procedure.bindings.of_phase(nth).iter().map(Option::as_ref);
        let bound = phase.iter().zip(bindings);
        let is_together = phase.len() >= PREFETCH_FROM || locks_identifiers && phase.len() > 1;
        if is_together || rarely(locks_identifiers && asks_beside_lease(procedure, transaction)) {
            run_together(procedure, bound, transaction, arguments, outputs)?;
        } else {
            // A claim is of identifiers only, and of nothing where rows are locked.
            for action in bound.filter(|(action, _)| locks_identifiers || !action.is_claim()) {
                run_alone(procedure, action, transaction, arguments, outputs)?;
            }
        }
        outputs.rendezvous();
    }
    Ok(())
}

/// Whether functions of the user's tell what the next phase names, and have to be asked with executors of an earlier one out.
#[inline]
fn asks_beside_lease(procedure: &Prepared, transaction: &mut Transaction) -> bool {
    procedure.has_functions() && transaction.context().owner.is_in_stint()
}

/// Runs one action, if it is part of the call.
#[inline(always)]
fn run_alone(
    procedure: &Prepared,
    (action, binding): (&Action, Option<&Binding>),
    transaction: &mut Transaction,
    arguments: &[Value],
    outputs: &mut Outputs,
) -> Result<()> {
    let (context, given) = (transaction.context(), Given { arguments, earlier: outputs.earlier() });
    if !action.is_part_of(given.arguments, given.earlier) {
        return Ok(());
    }
    context.check()?;
    if let (Some(target), Some(body), Some(binding)) = (&action.target, &action.body, binding)
        && let Some(action) = InUse::at_once((target, body, binding), context, given)
    {
        return action.run(procedure, transaction, arguments, outputs);
    }
    let mut action = match BoundAction::bound(action, binding, context) {
        Some(action) => action,
        None => BoundAction::anew(procedure, action, context)?,
    };
    action.identify(procedure, context, given)?;
    lock(procedure, context, std::slice::from_mut(&mut action), given)?;
    action.run(procedure, transaction, arguments, outputs)
}

/// Locks the tables of a phase's actions (and their identifiers, where identifiers are locked), prefetches the rows of a large phase, and runs
/// the actions.
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
        let locks_identifiers = context.core.locks.keeps_keys_at_executors();
        let part_of_it = phase.filter(|(action, _)| locks_identifiers || !action.is_claim());
        let part_of_it = part_of_it.filter(|(action, _)| action.is_part_of(given.arguments, given.earlier));
        bind(procedure, part_of_it, context, given, &mut actions)
    })?;
    lock(procedure, context, &mut actions, given)?;
    if is_large {
        prefetch(context, &actions);
    }
    actions.iter_mut().try_for_each(|action| action.run(procedure, transaction, arguments, outputs))
}
