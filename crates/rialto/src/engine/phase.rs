//! A phase of a flow in one call: which of its actions the call has, and how each of them runs. All engines use this.

use smallvec::SmallVec;

use super::action::{Action, Body};
use super::binding::{Binding, Bound};
use super::data_oriented::lock_without_lease;
use super::identifier::Given;
use super::prepared::Prepared;
use super::procedure::{Arguments, Outputs};
use super::table_action::TableAction;
use crate::error::Result;
use crate::row::{Key, Value, WhichIndex};
use crate::txn::Transaction;
use crate::txn::context::Context;

/// A phase of at least so many actions prefetches the rows that they name. The short transactions of the benchmarks
/// have at most four actions a phase, of which one row or two are of large tables: too few to overlap.
pub(super) const PREFETCH_FROM: usize = 5;

/// An action in a call.
pub(super) enum BoundAction<'a> {
    /// On its table, or on an index of it.
    OnTable(TableAction<'a>),
    /// A plain closure.
    Plain(&'a Body),
    /// On a table or an index that is not there, behind a plain closure of the same phase, which may make it: it is
    /// bound when its turn comes.
    Late(&'a Action),
}

/// The actions of a phase in a call, in their order.
pub(super) type BoundActions<'a> = SmallVec<[BoundAction<'a>; 20]>;

impl<'a> BoundAction<'a> {
    /// An action by the binding that its procedure has, if that counts, else bound now.
    #[inline(always)]
    pub fn of(
        procedure: &Prepared,
        (action, binding): (&'a Action, Option<&'a Binding>),
        context: &mut Context,
    ) -> Result<BoundAction<'a>> {
        match BoundAction::bound(action, binding, context) {
            Some(action) => Ok(action),
            None => BoundAction::anew(procedure, action, context),
        }
    }

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

    /// Uses its table under the intentions of the executors that the transaction has for itself, if the action is bound
    /// to it as it is.
    #[inline]
    pub fn use_under_lease(&mut self, context: &mut Context) -> bool {
        match self {
            BoundAction::OnTable(action) => action.use_under_lease(context),
            BoundAction::Plain(_) | BoundAction::Late(_) => false,
        }
    }

    /// Runs it, behind the locks of its phase.
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

/// Runs an action whose turn it is in its phase, with all that is to be done for it. It gets no lease: the phase has
/// plain closures.
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
    match context.core.locks.keeps_keys_at_executors() {
        true => lock_without_lease(procedure, context, std::slice::from_mut(&mut action), given)?,
        false => action.intend(procedure, context, given)?,
    }
    action.run(procedure, transaction, values, outputs)
}

/// Puts actions of a phase, all of them part of the call, into `bound`, each with what its identifier is for the
/// arguments and for what earlier phases gave. Nothing is locked yet.
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

/// Prefetches the rows and entries that actions name by their whole keys. Their bodies get what is found of these in
/// the indexes.
pub(super) fn prefetch(context: &mut Context, actions: &[BoundAction<'_>]) {
    context.prefetch(points(actions));
}

/// In a fetch stage: reads the pages of these rows and entries side by side, before the actions run one by one.
///
/// # Errors
/// As [`Context::fetch_together`].
pub(super) fn fetch_pages(context: &mut Context, actions: &[BoundAction<'_>]) -> Result<()> {
    context.fetch_together(points(actions))
}

fn points<'a>(actions: &'a [BoundAction<'_>]) -> impl Iterator<Item = (u32, WhichIndex, &'a Key)> {
    actions.iter().filter_map(BoundAction::on_table).filter_map(TableAction::point)
}

/// Whether one of them is a plain closure, which may do anything.
pub(super) fn has_plain(actions: &[BoundAction<'_>]) -> bool {
    actions.iter().any(|action| action.on_table().is_none())
}
