//! The conventional engine: thread-to-transaction. A flow's actions run in order on the calling thread.
//!
//! Each row is locked when an action's body touches it, and stays locked to the end of the transaction. A phase of
//! many actions prefetches the rows that they name before it runs the first one; in a fetch stage, a phase of several reads
//! their pages side by side. A rendezvous point is the step from one phase to the next.
//!
//! Actions of one phase run in the order in which they stand in the flow, which orders those whose identifiers
//! overlap. The order of the others is not observable: each touches only its own table, identifier and mode
//! ([`Scope`](crate::txn::scope::Scope)).

use super::action::Action;
use super::binding::Binding;
use super::identifier::Given;
use super::phase::{BoundAction, BoundActions, PREFETCH_FROM, bind, fetch_pages, prefetch};
use super::prepared::Prepared;
use super::procedure::Outputs;
use super::table_action::InUse;
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
    let large_from = if unlikely(transaction.context().fetches()) { 2 } else { PREFETCH_FROM };
    for (nth, phase) in procedure.flow().phases().iter().enumerate() {
        let bindings = procedure.bindings.of_phase(nth).iter().map(Option::as_ref);
        // A claim only locks identifiers, so it does nothing where rows are locked.
        let bound = phase.iter().zip(bindings).filter(|(action, _)| !action.is_claim());
        if phase.len() >= large_from {
            run_large(procedure, bound, transaction, arguments, outputs)?;
        } else {
            for action in bound {
                run_alone(procedure, action, transaction, arguments, outputs)?;
            }
        }
        outputs.rendezvous();
    }
    Ok(())
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
    let mut action = BoundAction::of(procedure, (action, binding), context)?;
    action.identify(procedure, context, given)?;
    action.intend(procedure, context, given)?;
    action.run(procedure, transaction, arguments, outputs)
}

/// Locks the tables of a phase's actions, prefetches the rows that they name, and runs the actions.
#[inline(never)]
fn run_large<'a>(
    procedure: &Prepared,
    phase: impl Iterator<Item = (&'a Action, Option<&'a Binding>)>,
    transaction: &mut Transaction,
    arguments: &[Value],
    outputs: &mut Outputs,
) -> Result<()> {
    let (context, given) = (transaction.context(), Given { arguments, earlier: outputs.earlier() });
    let part_of_it = phase.filter(|(action, _)| action.is_part_of(given.arguments, given.earlier));
    let mut actions = BoundActions::new();
    bind(procedure, part_of_it, context, given, &mut actions)?;
    actions.iter_mut().try_for_each(|action| action.intend(procedure, context, given))?;
    match unlikely(context.fetches()) {
        true => fetch_pages(context, &actions)?,
        false => prefetch(context, &actions),
    }
    actions.iter_mut().try_for_each(|action| action.run(procedure, transaction, arguments, outputs))?;
    transaction.context().prefetched.clear();
    Ok(())
}
