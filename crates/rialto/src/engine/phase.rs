//! A phase of a flow in one call: which of its actions there are, what they lock, and how each runs. The same on every
//! engine.

use smallvec::SmallVec;

use super::action::{Action, Body};
use super::binding::{Binding, Bound};
use super::identifier::Given;
use super::prepared::Prepared;
use super::procedure::{Arguments, Outputs};
use super::table_action::{TableAction, run_without_lease};
use crate::canary;
use crate::error::{Error, Result};
use crate::isolate::{LockPolicy, OwnLease, Wanted};
use crate::rarely::rarely;
use crate::row::{Value, WhichIndex};
use crate::txn::Transaction;
use crate::txn::context::Context;

/// A phase of more actions than this locks what they name instead of having their executors for itself.
const STINT_ACTIONS_MAX: usize = 64;

/// An action in a call.
pub(super) enum BoundAction<'a> {
    /// On its table, or on an index of it.
    OnTable(TableAction<'a>),
    /// A plain closure.
    Plain(&'a Body),
    /// On a table or an index that is not there, behind a plain closure of the same phase, which may make it: it is bound when its turn
    /// comes.
    Late(&'a Action),
}

/// The actions of a phase in a call, in their order.
pub(super) type BoundActions<'a> = SmallVec<[BoundAction<'a>; 20]>;

impl<'a> BoundAction<'a> {
    /// An action by the binding that its procedure has, if that counts.
    #[inline(always)]
    pub fn bound(
        action: &'a Action,
        binding: Option<&'a Binding>,
        context: &Context,
    ) -> Option<BoundAction<'a>> {
        // Only by its name is a table looked for among the transaction's own definitions.
        let binding = Bound::There(binding.filter(|_| context.ddl.is_none())?);
        Some(BoundAction::OnTable(TableAction::new(action.target.as_ref()?, action.body.as_ref(), binding)))
    }

    /// An action without one.
    #[cold]
    pub fn anew(procedure: &Prepared, action: &'a Action, context: &mut Context) -> Result<BoundAction<'a>> {
        Ok(match (&action.target, &action.body) {
            (Some(target), body) => {
                BoundAction::OnTable(TableAction::anew(procedure, target, body.as_ref(), context)?)
            }
            (None, body) => BoundAction::Plain(body.as_ref().expect("only what has a target can be a claim")),
        })
    }

    /// Works out its identifier ([`TableAction::identify`]).
    #[inline]
    pub fn identify(&mut self, procedure: &Prepared, context: &mut Context, given: Given<'_>) -> Result<()> {
        match self {
            BoundAction::OnTable(action) => action.identify(procedure, context, given),
            BoundAction::Plain(_) | BoundAction::Late(_) => Ok(()),
        }
    }

    /// The action, if it is none that may do anything.
    pub fn on_table(&self) -> Option<&TableAction<'a>> {
        match self {
            BoundAction::OnTable(action) => Some(action),
            BoundAction::Plain(_) | BoundAction::Late(_) => None,
        }
    }

    /// Locks its table by intention.
    #[inline]
    pub fn intend(&mut self, procedure: &Prepared, context: &mut Context, given: Given<'_>) -> Result<()> {
        match self {
            BoundAction::OnTable(action) => action.intend(procedure, context, given),
            BoundAction::Plain(_) | BoundAction::Late(_) => Ok(()),
        }
    }

    /// Uses its table under the intentions of the executors that the transaction has for itself, if the action is bound to it as it is.
    #[inline]
    fn use_in_stint(&mut self, context: &mut Context) -> bool {
        match self {
            BoundAction::OnTable(action) => action.use_in_stint(context),
            BoundAction::Plain(_) | BoundAction::Late(_) => false,
        }
    }

    /// Runs it, behind [`lock`].
    #[inline]
    pub fn run(
        &mut self,
        procedure: &Prepared,
        transaction: &mut Transaction,
        values: &[Value],
        outputs: &mut Outputs,
    ) -> Result<()> {
        match self {
            BoundAction::OnTable(action) => action.run(procedure, transaction, values, outputs),
            BoundAction::Plain(body) => {
                let which = WhichIndex::Primary;
                body(transaction, &Arguments { procedure, values, table: None, which }, outputs)
            }
            BoundAction::Late(action) => run_late(action, procedure, transaction, values, outputs),
        }
    }
}

/// Runs an action whose turn it is in its phase, with all that is to be done for it. It gets no stint: the phase has plain closures.
#[cold]
fn run_late(
    action: &Action,
    procedure: &Prepared,
    transaction: &mut Transaction,
    values: &[Value],
    outputs: &mut Outputs,
) -> Result<()> {
    let (context, given) = (transaction.context(), Given { arguments: values, earlier: outputs.earlier() });
    context.check()?;
    let mut action = BoundAction::anew(procedure, action, context)?;
    action.identify(procedure, context, given)?;
    lock_as_others_do(procedure, context, std::slice::from_mut(&mut action), given)?;
    action.run(procedure, transaction, values, outputs)
}

/// Finds out which actions of a phase are part of the call, and what they name. The functions of the user's that tell so run beside the
/// executor lease of the phase before, if there is one, as a body does.
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
    if rarely(lease.is_some_and(OwnLease::end)) {
        run_without_lease(procedure, context)?;
    }
    found
}

/// Puts actions of a phase, all of them part of the call, into `bound`, each with what its identifier is for the arguments and for
/// what earlier phases gave. Nothing is locked yet.
#[inline]
pub(super) fn bind<'a>(
    procedure: &Prepared,
    actions: impl IntoIterator<Item = (&'a Action, Option<&'a Binding>)>,
    context: &mut Context,
    given: Given<'_>,
    bound: &mut BoundActions<'a>,
) -> Result<()> {
    context.check()?;
    bound.clear();
    for (action, binding) in actions {
        let at = bound.len();
        match BoundAction::bound(action, binding, context) {
            Some(action) => bound.push(action),
            None => match BoundAction::anew(procedure, action, context) {
                Err(_) if has_plain(bound) => {
                    bound.push(BoundAction::Late(action));
                    continue;
                }
                made => bound.push(made?),
            },
        }
        if let Err(error) = bound[at].identify(procedure, context, given) {
            if !has_plain(&bound[..at]) {
                return Err(error);
            }
            bound[at] = BoundAction::Late(action);
        }
    }
    Ok(())
}

/// Locks what a phase of a call needs before the first of its bodies runs: the tables by intention and, with local locks,
/// what its identifiers name.
///
/// These are locked in one order for all transactions. So two of the same flow that visit each table and each index in one
/// phase cannot deadlock.
#[inline]
pub(super) fn lock(
    procedure: &Prepared,
    context: &mut Context,
    actions: &mut [BoundAction<'_>],
    given: Given<'_>,
) -> Result<()> {
    let is_local = context.core.locks.keeps_keys_at_executors();
    if is_local && !procedure.has_handles() && begin_stint(context, actions) {
        return Ok(());
    }
    lock_as_others_do(procedure, context, actions, given)
}

#[inline(never)]
fn lock_as_others_do(
    procedure: &Prepared,
    context: &mut Context,
    actions: &mut [BoundAction<'_>],
    given: Given<'_>,
) -> Result<()> {
    context.core.locks.leave_stint(&mut context.owner);
    actions.iter_mut().try_for_each(|action| action.intend(procedure, context, given))?;
    if context.core.locks.keeps_keys_at_executors() { lock_identifiers(context, actions) } else { Ok(()) }
}

/// The result of locking without waiting. Unless all is locked, some locks may be held.
pub(super) enum AtOnce {
    Locked,
    /// Refused by a lock on exactly an action's identifier, which has this name. A holder that is a call wakes one that waits for the name at
    /// its end.
    Met(u64),
    /// Refused by something else.
    Refused,
}

/// As [`lock`] with local locks, but waits for nothing.
pub(super) fn lock_at_once(
    procedure: &Prepared,
    context: &mut Context,
    actions: &mut [BoundAction<'_>],
    given: Given<'_>,
) -> Result<AtOnce> {
    if !procedure.has_handles() && begin_stint(context, actions) {
        return Ok(AtOnce::Locked);
    }
    context.core.locks.leave_stint(&mut context.owner);
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
                    true => AtOnce::Met(action.name()),
                    false => AtOnce::Refused,
                });
            }
            locked => locked?,
        }
    }
    Ok(AtOnce::Locked)
}

/// The names of what actions lock ([`TableAction::name`]).
pub(super) fn names(actions: &[BoundAction<'_>]) -> impl Iterator<Item = u64> {
    actions.iter().filter_map(BoundAction::on_table).filter(|it| it.is_span()).map(TableAction::name)
}

/// Prefetches the rows and entries that actions name by their whole keys.
pub(super) fn prefetch(context: &Context, actions: &[BoundAction<'_>]) {
    context.prefetch(actions.iter().filter_map(BoundAction::on_table).filter_map(TableAction::point));
}

/// Whether one of them is a plain closure, which may do anything.
pub(super) fn has_plain(actions: &[BoundAction<'_>]) -> bool {
    actions.iter().any(|action| action.on_table().is_none())
}

/// Has the executors of all the phase's identifiers in a stint, if they are free: then it needs no locks while it runs.
#[inline]
fn begin_stint(context: &mut Context, actions: &mut [BoundAction<'_>]) -> bool {
    // Many would keep many executors from others for long. A plain closure may wait for whatever it likes. Only
    // the ordinary way to a table looks at the transaction's own definitions.
    if actions.len() > STINT_ACTIONS_MAX
        || (context.ddl.is_some() && !canary::is_back("dropped-table-is-written"))
        || has_plain(actions)
    {
        return false;
    }
    let wanted = actions.iter().filter_map(BoundAction::on_table).filter(|it| it.is_span());
    context.core.locks.stint(&mut context.owner, wanted.map(TableAction::wanted))
        && actions.iter_mut().all(|action| action.use_in_stint(context))
}

#[inline(never)]
fn lock_identifiers(context: &mut Context, actions: &[BoundAction<'_>]) -> Result<()> {
    if canary::is_back("bodies-before-grants") {
        return Ok(());
    }
    for Wanted { index, span, mode } in in_order_of_locks(actions).iter().map(|it| it.wanted()) {
        context.lock_identifier(index, span, mode)?;
    }
    Ok(())
}

/// The actions whose identifiers are locked, in the one order in which all transactions lock them.
fn in_order_of_locks<'a, 'b>(actions: &'b [BoundAction<'a>]) -> SmallVec<[&'b TableAction<'a>; 8]> {
    let identified = actions.iter().filter_map(BoundAction::on_table).filter(|it| it.is_span());
    let mut identified: SmallVec<[&TableAction<'_>; 8]> = identified.collect();
    // The strongest first, of those with one identifier: nobody upgrades.
    identified.sort_by(|one, other| {
        let weak = |it: &TableAction<'_>| !it.wanted().is_exclusive();
        (one.index(), &one.key, weak(one)).cmp(&(other.index(), &other.key, weak(other)))
    });
    identified
}
