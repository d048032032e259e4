//! The locks that a phase takes on the data-oriented engine before the first of its bodies runs, in place and on
//! threads alike. It locks the identifiers of its actions: by a lease of the executors if they are free, else by
//! entries in their lock tables.

use smallvec::SmallVec;

use crate::engine::identifier::Given;
use crate::engine::phase::{BoundAction, has_plain};
use crate::engine::prepared::Prepared;
use crate::engine::table_action::{TableAction, run_without_lease};
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::isolate::{LockPolicy, OwnLease, Wanted};
use crate::txn::context::Context;
use crate::unlikely::unlikely;

/// A phase of more actions than this locks their identifiers and does not lease executors.
const LEASE_ACTIONS_MAX: usize = 64;

/// Finds out which actions of a phase are part of the call, and what they name. Functions of the user that say so run
/// beside the executor lease of the earlier phase, if there is one, as a body does.
#[inline]
pub(super) fn beside_lease<T>(
    procedure: &Prepared,
    context: &mut Context,
    find_out: impl FnOnce(&mut Context) -> Result<T>,
) -> Result<T> {
    let lease = match procedure.has_functions() {
        true => context.core.locks.own_lease(&context.owner),
        false => None,
    };
    let found = find_out(context);
    if unlikely(lease.is_some_and(OwnLease::end)) {
        run_without_lease(procedure, context)?;
    }
    found
}

/// Takes the locks that a phase of a call needs before the first of its bodies runs: intentions on the tables, and
/// locks on the identifiers.
///
/// All transactions lock identifiers in one order. So two transactions of the same flow, if it visits each table and
/// each index in one phase only, cannot deadlock.
#[inline]
pub(super) fn lock(
    procedure: &Prepared,
    context: &mut Context,
    actions: &mut [BoundAction<'_>],
    given: Given<'_>,
) -> Result<()> {
    if !procedure.has_handles() && begin_lease(context, actions) {
        return Ok(());
    }
    lock_without_lease(procedure, context, actions, given)
}

/// As [`lock`], by entries in the lock tables of the executors.
#[inline(never)]
pub(in crate::engine) fn lock_without_lease(
    procedure: &Prepared,
    context: &mut Context,
    actions: &mut [BoundAction<'_>],
    given: Given<'_>,
) -> Result<()> {
    context.core.locks.return_lease(&mut context.owner);
    actions.iter_mut().try_for_each(|action| action.intend(procedure, context, given))?;
    lock_identifiers(context, actions)
}

/// The result of locking without waiting. Unless everything is locked, some locks may be held.
pub(super) enum AtOnce {
    Locked,
    /// Refused by a lock on exactly an action's identifier, which has this name. If the holder is a call, it wakes at
    /// its end a call that waits for the name.
    Conflict(u64),
    /// Refused for another reason.
    Refused,
}

/// As [`lock`], but does not wait.
pub(super) fn lock_at_once(
    procedure: &Prepared,
    context: &mut Context,
    actions: &mut [BoundAction<'_>],
    given: Given<'_>,
) -> Result<AtOnce> {
    if !procedure.has_handles() && begin_lease(context, actions) {
        return Ok(AtOnce::Locked);
    }
    context.core.locks.return_lease(&mut context.owner);
    let policy = std::mem::replace(&mut context.choices.lock_wait, LockPolicy::Refuse);
    let locked = intend_and_lock(procedure, context, actions, given);
    context.choices.lock_wait = policy;
    locked
}

fn intend_and_lock(
    procedure: &Prepared,
    context: &mut Context,
    actions: &mut [BoundAction<'_>],
    given: Given<'_>,
) -> Result<AtOnce> {
    let is_refusal = |error: &Error| matches!(error, Error::WouldWait { .. });
    for action in actions.iter_mut() {
        match action.intend(procedure, context, given) {
            Err(error) if is_refusal(&error) => return Ok(AtOnce::Refused),
            intended => intended?,
        }
    }
    for action in in_order_of_locks(actions) {
        let Wanted { index, span, mode } = action.wanted();
        match context.lock_identifier(index, span, mode) {
            Err(error) if is_refusal(&error) => {
                return Ok(match context.core.locks.was_refused_on_same_span(&context.owner) {
                    true => AtOnce::Conflict(action.name()),
                    false => AtOnce::Refused,
                });
            }
            locked => locked?,
        }
    }
    Ok(AtOnce::Locked)
}

/// The names of the identifiers that actions lock ([`TableAction::name`]).
pub(super) fn names_of(actions: &[BoundAction<'_>]) -> impl Iterator<Item = u64> {
    actions.iter().filter_map(BoundAction::on_table).filter(|it| it.is_span()).map(TableAction::name)
}

/// Leases the executors of all the phase's identifiers, if they are free. The phase then needs no locks while it
/// runs.
#[inline]
fn begin_lease(context: &mut Context, actions: &mut [BoundAction<'_>]) -> bool {
    // Many actions would keep many executors from other transactions for long. A plain closure may wait for anything.
    // And the transaction's own definitions are only seen by the ordinary way to a table.
    if actions.len() > LEASE_ACTIONS_MAX
        || (context.ddl.is_some() && !fault_injection::is_on("dropped-table-is-written"))
        || has_plain(actions)
    {
        return false;
    }
    let wanted = actions.iter().filter_map(BoundAction::on_table).filter(|it| it.is_span());
    context.core.locks.lease(&mut context.owner, wanted.map(TableAction::wanted))
        && actions.iter_mut().all(|action| action.use_under_lease(context))
}

#[inline(never)]
fn lock_identifiers(context: &mut Context, actions: &[BoundAction<'_>]) -> Result<()> {
    if fault_injection::is_on("bodies-before-grants") {
        return Ok(());
    }
    for Wanted { index, span, mode } in in_order_of_locks(actions).iter().map(|it| it.wanted()) {
        context.lock_identifier(index, span, mode)?;
    }
    Ok(())
}

/// The actions whose identifiers are locked, in the order in which all transactions lock them.
fn in_order_of_locks<'a, 'b>(actions: &'b [BoundAction<'a>]) -> SmallVec<[&'b TableAction<'a>; 8]> {
    let identified = actions.iter().filter_map(BoundAction::on_table).filter(|it| it.is_span());
    let mut identified: SmallVec<[&TableAction<'_>; 8]> = identified.collect();
    // Of equal identifiers the strongest comes first, so no lock is upgraded.
    identified.sort_by(|one, other| {
        let weak = |it: &TableAction<'_>| !it.wanted().is_exclusive();
        (one.index(), &one.key, weak(one)).cmp(&(other.index(), &other.key, weak(other)))
    });
    identified
}
