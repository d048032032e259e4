//! A phase of a flow in one call: which of its actions there are, what they lock, and how each runs. The same on every
//! engine.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::action::{Action, ActionMode, Body, Target};
use super::identifier::Given;
use super::procedure::{Arguments, Outputs, Registered};
use crate::catalog::Table;
use crate::error::{Error, Result};
use crate::ids::{IndexId, TableId};
use crate::lock::{LockMode, SpanRef, Wanted};
use crate::row::{Key, Value, WhichIndex};
use crate::txn::Transaction;
use crate::txn::scope::Reach;
use crate::txn::transaction::Context;

/// A phase of more actions than this locks what they name instead of having their executors for itself.
const STINT_ACTIONS_MAX: usize = 8;

/// An action in a call.
pub(super) enum Ready<'a> {
    /// On its table, or on an index of it.
    Targeted(Targeted<'a>),
    /// A plain closure.
    Plain(&'a Body),
}

/// The actions of a phase in a call, in their order.
pub(super) type ReadyActions<'a> = SmallVec<[Ready<'a>; 4]>;

impl<'a> Ready<'a> {
    /// The action, with its table locked by intention.
    #[inline]
    pub fn new(
        procedure: &Registered,
        action: &'a Action,
        context: &mut Context,
        given: Given<'_>,
    ) -> Result<Ready<'a>> {
        Ok(match (&action.target, &action.body) {
            (Some(target), body) => {
                Ready::Targeted(Targeted::new(procedure, target, body.as_ref(), context, given)?)
            }
            (None, body) => Ready::Plain(body.as_ref().expect("only what has a target can be a claim")),
        })
    }

    /// Runs it.
    pub fn run(
        &self,
        procedure: &Registered,
        transaction: &mut Transaction,
        values: &[Value],
        outputs: &mut Outputs,
    ) -> Result<()> {
        match self {
            Ready::Targeted(targeted) => targeted.run(procedure, transaction, values, outputs),
            Ready::Plain(body) => {
                let which = WhichIndex::Primary;
                body(transaction, &Arguments { procedure, values, table: None, which }, outputs)
            }
        }
    }
}

/// The actions of a phase that are part of a call, each with what its identifier is for the arguments and for what earlier
/// phases gave.
pub(super) fn ready<'a>(
    procedure: &Registered,
    actions: impl IntoIterator<Item = &'a Action>,
    context: &mut Context,
    given: Given<'_>,
) -> Result<ReadyActions<'a>> {
    let actions = actions.into_iter().filter(|action| action.is_part_of(given.arguments, given.earlier));
    actions.map(|action| Ready::new(procedure, action, context, given)).collect()
}

/// With local locks: locks what the identifiers of a phase's actions name, all of it before the first of them runs, in one
/// order for all transactions. So two of the same flow that visit each table and each index in one phase cannot deadlock.
pub(super) fn lock_identifiers(context: &mut Context, actions: &[Ready<'_>]) -> Result<()> {
    let identified = actions.iter().filter_map(|ready| match ready {
        Ready::Targeted(targeted) if targeted.is_span() => Some(targeted),
        _ => None,
    });
    let mut identified: SmallVec<[&Targeted<'_>; 8]> = identified.collect();
    let wanted: SmallVec<[Wanted<'_>; 8]> = identified.iter().map(|it| it.wanted()).collect();
    // The executors of all of them, if they are free: then it needs no locks while it runs. Many actions would keep many of
    // them from others for long, and a plain closure may wait for whatever it likes.
    let is_long =
        wanted.len() > STINT_ACTIONS_MAX || actions.iter().any(|ready| matches!(ready, Ready::Plain(_)));
    if is_long {
        context.core.locks.leave_stint(&mut context.owner);
    } else if context.core.locks.stint(&mut context.owner, &wanted) {
        return Ok(());
    }
    // The strongest first, of those with one identifier: nobody upgrades.
    identified.sort_by(|one, other| {
        let weak = |it: &Targeted<'_>| !it.wanted().is_exclusive();
        (one.index, &one.key, weak(one)).cmp(&(other.index, &other.key, weak(other)))
    });
    for Wanted { index, span, mode } in identified.iter().map(|it| it.wanted()) {
        context.lock_identifier(index, span, mode)?;
    }
    Ok(())
}

/// An action on a table in a call: the table is locked by intention, and the identifier made.
pub(super) struct Targeted<'a> {
    target: &'a Target,
    /// None of a claim.
    body: Option<&'a Body>,
    table: Cow<'a, Table>,
    /// Where its table stands in the transaction's list of tables.
    slot: u32,
    which: WhichIndex,
    /// The index, in whose keys the identifier is a span.
    pub index: IndexId,
    /// What the keys begin with that it may touch.
    pub key: Key,
    /// It names one key.
    is_point: bool,
    /// The key is of the first columns of a table without a primary key, whose rows are locked by their numbers.
    by_columns: bool,
}

impl<'a> Targeted<'a> {
    #[inline]
    fn new(
        procedure: &Registered,
        target: &'a Target,
        body: Option<&'a Body>,
        context: &mut Context,
        given: Given<'_>,
    ) -> Result<Targeted<'a>> {
        let table = target.table(&context.core.catalog)?;
        context.check()?;
        let slot = context.use_table(&table, intention(target.mode()))?;
        let (version, mut key) = (context.tables.at(slot), Key::new());
        let wrong = |problem: &str| {
            procedure.error(format!("the identifier of its {}: {problem}", target.describe()))
        };
        let which = target.which(&version.schema).map_err(|error| wrong(&error.to_string()))?;
        if target.parts() > 0 {
            let encoded = target.key_prefix(given, &version.schema, which, &mut key);
            encoded.map_err(|problem| wrong(&problem))?;
        }
        let shape = version.schema.key_shape(which);
        let (by_columns, is_point) =
            (shape.is_row_number() && target.parts() > 0, shape.is_whole_key(target.parts()));
        let index = version.index_id(which);
        Ok(Targeted { target, body, table, slot, which, index, key, is_point, by_columns })
    }

    /// The table that it works on.
    pub fn table_id(&self) -> TableId {
        self.table.id()
    }

    /// The index that it works on.
    pub fn which(&self) -> WhichIndex {
        self.which
    }

    /// Whether its identifier is locked, where identifiers are. One without parts is not: the action may touch the whole
    /// table, but few of its rows, which are locked as it comes to them.
    pub fn is_span(&self) -> bool {
        self.target.parts() > 0 && !self.by_columns
    }

    /// What its identifier names.
    pub fn wanted(&self) -> Wanted<'_> {
        let span = if self.is_point { SpanRef::point(&self.key) } else { SpanRef::prefix(&self.key) };
        Wanted { index: self.index, span, mode: self.target.lock_mode() }
    }

    fn run(
        &self,
        procedure: &Registered,
        transaction: &mut Transaction,
        values: &[Value],
        outputs: &mut Outputs,
    ) -> Result<()> {
        let Some(body) = self.body else { return Ok(()) };
        let context = transaction.context();
        let &Targeted { target, slot, which, by_columns, .. } = self;
        let table = self.table.id();
        context.scope.begin(Reach { table, which, parts: target.parts(), by_columns }, &self.key);
        if self.is_span() && context.core.locks.form() == crate::lock::LockForm::Local {
            context.cover.set(slot, which, &self.key, target.lock_mode());
        }
        let is_shared = target.mode() == ActionMode::Shared;
        let was_read_only = context.choices.read_only;
        context.choices.read_only |= is_shared;
        let done =
            body(transaction, &Arguments { procedure, values, table: Some(&self.table), which }, outputs);
        let context = transaction.context();
        context.choices.read_only = was_read_only;
        context.cover.clear();
        // Whatever the body made of it.
        if let Some(strayed) = context.scope.end() {
            return Err(procedure.error(strayed.into()));
        }
        match done {
            Err(Error::ReadOnly) if is_shared && !was_read_only => Err(procedure.error(format!(
                "its {} wrote, but is in shared mode: make it Action::exclusive",
                target.describe()
            ))),
            done => done,
        }
    }
}

fn intention(mode: ActionMode) -> LockMode {
    match mode {
        ActionMode::Shared => LockMode::IntentShared,
        ActionMode::Exclusive => LockMode::IntentExclusive,
    }
}
