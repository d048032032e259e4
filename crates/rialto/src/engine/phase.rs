//! A phase of a flow in one call: which of its actions there are, what they lock, and how each runs. The same on every
//! engine.

use std::borrow::Cow;

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::action::{Action, ActionMode, Body, Target};
use super::identifier::Given;
use super::procedure::{Arguments, Outputs, Registered};
use crate::canary;
use crate::catalog::{Table, TableVersion};
use crate::error::{Error, Result};
use crate::ids::{IndexId, TableId};
use crate::isolate::{LockForm, LockMode, LockPolicy, OwnLease, RecordMode, SpanRef, Wanted};
use crate::rarely::rarely;
use crate::row::{Key, Value, WhichIndex};
use crate::txn::Transaction;
use crate::txn::scope::Reach;
use crate::txn::transaction::Context;

/// A phase of more actions than this locks what they name instead of having their executors for itself.
const STINT_ACTIONS_MAX: usize = 64;

/// An action in a call.
pub(super) enum Ready<'a> {
    /// On its table, or on an index of it.
    Targeted(Targeted<'a>),
    /// A plain closure.
    Plain(&'a Body),
    /// On a table or an index that is not there, behind a plain closure of the same phase, which may make it: it is bound when its turn
    /// comes.
    Late(&'a Action),
}

/// The actions of a phase in a call, in their order.
pub(super) type ReadyActions<'a> = SmallVec<[Ready<'a>; 20]>;

impl<'a> Ready<'a> {
    /// The action, which gets its identifier by [`Ready::identify`].
    #[inline(always)]
    pub fn new(action: &'a Action, context: &mut Context) -> Result<Ready<'a>> {
        Ok(match (&action.target, &action.body) {
            (Some(target), body) => {
                let table = table_of(target, context)?;
                Ready::Targeted(Targeted::new(target, body.as_ref(), table, context)?)
            }
            (None, body) => Ready::Plain(body.as_ref().expect("only what has a target can be a claim")),
        })
    }

    /// Works out its identifier for the arguments and for what earlier phases gave. The table is not locked yet, so the version of
    /// it that the context knows may be retired. An error counts only by the version that holds under the lock, which is taken
    /// then.
    #[inline(always)]
    pub fn identify(
        &mut self,
        procedure: &Registered,
        context: &mut Context,
        given: Given<'_>,
    ) -> Result<()> {
        let Ready::Targeted(targeted) = self else { return Ok(()) };
        match targeted.identify(procedure, context, given) {
            Ok(()) => Ok(()),
            Err(_) => targeted.identify_locked(procedure, context, given),
        }
    }

    /// The action, if it is none that may do anything.
    pub fn targeted(&self) -> Option<&Targeted<'a>> {
        match self {
            Ready::Targeted(targeted) => Some(targeted),
            Ready::Plain(_) | Ready::Late(_) => None,
        }
    }

    /// Locks its table by intention.
    #[inline]
    pub fn intend(&mut self, procedure: &Registered, context: &mut Context, given: Given<'_>) -> Result<()> {
        match self {
            Ready::Targeted(targeted) => targeted.intend(procedure, context, given),
            Ready::Plain(_) | Ready::Late(_) => Ok(()),
        }
    }

    /// Runs it, behind [`lock`].
    #[inline]
    pub fn run(
        &mut self,
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
            Ready::Late(action) => run_late(action, procedure, transaction, values, outputs),
        }
    }
}

/// Runs an action whose turn it is in its phase, with all that is to be done for it. It gets no stint: the phase has plain closures.
#[cold]
fn run_late(
    action: &Action,
    procedure: &Registered,
    transaction: &mut Transaction,
    values: &[Value],
    outputs: &mut Outputs,
) -> Result<()> {
    let (context, given) = (transaction.context(), Given { arguments: values, earlier: outputs.earlier() });
    context.check()?;
    let mut ready = Ready::new(action, context)?;
    ready.identify(procedure, context, given)?;
    lock_as_others_do(procedure, context, std::slice::from_mut(&mut ready), given)?;
    ready.run(procedure, transaction, values, outputs)
}

/// The table of an action. The transaction's own definitions come first.
#[inline]
fn table_of<'a>(target: &'a Target, context: &mut Context) -> Result<Cow<'a, Table>> {
    let ddl = context.ddl.as_ref().filter(|_| !canary::is_back("dropped-table-is-written"));
    let table = match ddl.and_then(|ddl| ddl.table(target.name(), &context.core.storage.catalog)) {
        None => target.table(&context.core.storage.catalog),
        Some(table) => table.map(Cow::Owned),
    };
    if table.is_err() {
        // I3: that there is none of this name.
        context.depend_on_definitions();
    }
    table
}

/// Finds out which actions of a phase are part of the call, and what they name. The functions of the user's that tell so run beside the
/// executor lease of the phase before, if there is one, as a body does.
#[inline]
pub(super) fn beside_lease<T>(
    procedure: &Registered,
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

/// Puts actions of a phase, all of them part of the call, into `ready`, each with what its identifier is for the arguments and for
/// what earlier phases gave. Nothing is locked yet.
#[inline]
pub(super) fn make_ready<'a>(
    procedure: &Registered,
    actions: impl IntoIterator<Item = &'a Action>,
    context: &mut Context,
    given: Given<'_>,
    ready: &mut ReadyActions<'a>,
) -> Result<()> {
    context.check()?;
    ready.clear();
    for action in actions {
        let made = Ready::new(action, context);
        if rarely(made.is_err()) && has_plain(ready) {
            ready.push(Ready::Late(action));
            continue;
        }
        // Identified where it lies: it is large.
        ready.push(made?);
        let at = ready.len() - 1;
        if let Err(error) = ready[at].identify(procedure, context, given) {
            if !has_plain(&ready[..at]) {
                return Err(error);
            }
            ready[at] = Ready::Late(action);
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
    procedure: &Registered,
    context: &mut Context,
    actions: &mut [Ready<'_>],
    given: Given<'_>,
) -> Result<()> {
    let is_local = context.core.locks.form() == LockForm::Local;
    if is_local && !procedure.has_handles() && begin_stint(context, actions) {
        return Ok(());
    }
    lock_as_others_do(procedure, context, actions, given)
}

#[inline(never)]
fn lock_as_others_do(
    procedure: &Registered,
    context: &mut Context,
    actions: &mut [Ready<'_>],
    given: Given<'_>,
) -> Result<()> {
    context.core.locks.leave_stint(&mut context.owner);
    actions.iter_mut().try_for_each(|action| action.intend(procedure, context, given))?;
    if context.core.locks.form() == LockForm::Local { lock_identifiers(context, actions) } else { Ok(()) }
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
    procedure: &Registered,
    context: &mut Context,
    actions: &mut [Ready<'_>],
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
    procedure: &Registered,
    context: &mut Context,
    actions: &mut [Ready<'_>],
    given: Given<'_>,
) -> Result<AtOnce> {
    let is_refusal = |error: &Error| matches!(error, Error::WouldWait { .. });
    for action in actions.iter_mut() {
        match action.intend(procedure, context, given) {
            Err(error) if is_refusal(&error) => return Ok(AtOnce::Refused),
            intended => intended?,
        }
    }
    for targeted in in_order_of_locks(actions) {
        let Wanted { index, span, mode } = targeted.wanted();
        match context.lock_identifier(index, span, mode) {
            Err(error) if is_refusal(&error) => {
                return Ok(match context.core.locks.was_refused_on_same_span(&context.owner) {
                    true => AtOnce::Met(targeted.name()),
                    false => AtOnce::Refused,
                });
            }
            locked => locked?,
        }
    }
    Ok(AtOnce::Locked)
}

/// The names of what actions lock ([`Targeted::name`]).
pub(super) fn names(actions: &[Ready<'_>]) -> impl Iterator<Item = u64> {
    actions.iter().filter_map(Ready::targeted).filter(|it| it.is_span()).map(Targeted::name)
}

/// Prefetches the rows and entries that actions name by their whole keys.
pub(super) fn prefetch(context: &Context, actions: &[Ready<'_>]) {
    let points = actions.iter().filter_map(Ready::targeted).filter(|it| it.is_point);
    context.prefetch(points.map(|it| (it.slot, it.which, &it.key)));
}

/// Whether one of them is a plain closure, which may do anything.
pub(super) fn has_plain(actions: &[Ready<'_>]) -> bool {
    actions.iter().any(|action| action.targeted().is_none())
}

/// Has the executors of all the phase's identifiers in a stint, if they are free: then it needs no locks while it runs.
#[inline]
fn begin_stint(context: &mut Context, actions: &[Ready<'_>]) -> bool {
    // Many would keep many executors from others for long. A plain closure may wait for whatever it likes. Only
    // the ordinary way to a table looks at the transaction's own definitions.
    if actions.len() > STINT_ACTIONS_MAX
        || (context.ddl.is_some() && !canary::is_back("dropped-table-is-written"))
        || has_plain(actions)
    {
        return false;
    }
    let Context { core, owner, tables, .. } = context;
    let mut uses = actions.iter().filter_map(Ready::targeted);
    let wanted = uses.clone().filter(|it| it.is_span()).map(Targeted::wanted);
    core.locks.stint(owner, wanted)
        && uses.all(|it| {
            // A version is retired under a lock on the whole table.
            core.locks.use_in_stint(owner, it.table.id(), intention(it.target.mode()))
                && it.is_identified_by(tables.at(it.slot))
                && !tables.at(it.slot).is_retired()
        })
}

#[inline(never)]
fn lock_identifiers(context: &mut Context, actions: &[Ready<'_>]) -> Result<()> {
    if canary::is_back("bodies-before-grants") {
        return Ok(());
    }
    for Wanted { index, span, mode } in in_order_of_locks(actions).iter().map(|it| it.wanted()) {
        context.lock_identifier(index, span, mode)?;
    }
    Ok(())
}

/// The actions whose identifiers are locked, in the one order in which all transactions lock them.
fn in_order_of_locks<'a, 'b>(actions: &'b [Ready<'a>]) -> SmallVec<[&'b Targeted<'a>; 8]> {
    let identified = actions.iter().filter_map(Ready::targeted).filter(|it| it.is_span());
    let mut identified: SmallVec<[&Targeted<'_>; 8]> = identified.collect();
    // The strongest first, of those with one identifier: nobody upgrades.
    identified.sort_by(|one, other| {
        let weak = |it: &Targeted<'_>| !it.wanted().is_exclusive();
        (one.index, &one.key, weak(one)).cmp(&(other.index, &other.key, weak(other)))
    });
    identified
}

/// What was locked for an action.
#[derive(Debug)]
pub(super) struct Identified {
    index: IndexId,
    key: Key,
}

/// An action on a table in a call, with its identifier.
pub(super) struct Targeted<'a> {
    target: &'a Target,
    /// None of a claim.
    body: Option<&'a Body>,
    table: Cow<'a, Table>,
    /// Where its table stands in the transaction's list of tables.
    slot: u32,
    /// The version of its table by which it was identified last. It is only compared: the version itself may be gone.
    version: *const TableVersion,
    which: WhichIndex,
    /// The index, in whose keys the identifier is a span.
    pub index: IndexId,
    /// What the keys begin with that it may touch; until it runs.
    pub key: Key,
    /// It names one key.
    is_point: bool,
    /// The key is of the first columns of a table without a primary key, whose rows are locked by their numbers.
    by_columns: bool,
}

impl<'a> Targeted<'a> {
    #[inline(always)]
    fn new(
        target: &'a Target,
        body: Option<&'a Body>,
        table: Cow<'a, Table>,
        context: &mut Context,
    ) -> Result<Targeted<'a>> {
        let (which, index) = (WhichIndex::Primary, IndexId(0));
        let (slot, key) = (context.find_table(&table)?, Key::new());
        let (is_point, by_columns) = (false, false);
        let version = std::ptr::null();
        Ok(Targeted { target, body, table, slot, version, which, index, key, is_point, by_columns })
    }

    /// Works out its identifier by the version of its table that the transaction knows.
    #[inline(always)]
    fn identify(&mut self, procedure: &Registered, context: &mut Context, given: Given<'_>) -> Result<()> {
        let Context { tables, depends, .. } = context;
        let (target, version) = (self.target, tables.at(self.slot));
        // I3: whatever the action comes to, though it read no row, and what is wrong with the identifier.
        *depends = (*depends).max(version.floor());
        let wrong = |problem: &str| {
            procedure.error(format!("the identifier of its {}: {problem}", target.describe()))
        };
        let which = target.which(&version.schema).map_err(|error| wrong(&error.to_string()))?;
        if target.parts() > 0 {
            let encoded = target.key_prefix(given, &version.schema, which, &mut self.key);
            encoded.map_err(|problem| wrong(&problem))?;
        }
        let shape = version.schema.key_shape(which);
        (self.which, self.index) = (which, version.index_id(which));
        self.by_columns = shape.is_row_number() && target.parts() > 0;
        self.is_point = shape.is_whole_key(target.parts());
        self.version = version;
        Ok(())
    }

    /// The same by the version that holds under a lock on the table.
    #[cold]
    fn identify_locked(
        &mut self,
        procedure: &Registered,
        context: &mut Context,
        given: Given<'_>,
    ) -> Result<()> {
        // The lock may be waited for (L12).
        context.core.locks.leave_stint(&mut context.owner);
        self.intend(procedure, context, given)
    }

    /// Whether its identifier is by this version of its table.
    ///
    /// The version that was in its place before, if it was another one, was still there when this one was put in; and this one stays
    /// as long as the lock. So two versions are told apart by their addresses.
    #[inline]
    fn is_identified_by(&self, version: &TableVersion) -> bool {
        std::ptr::eq(self.version, version)
    }

    /// Locks its table by intention, and with it the version by which the identifier has to be.
    #[inline]
    fn intend(&mut self, procedure: &Registered, context: &mut Context, given: Given<'_>) -> Result<()> {
        self.use_table(context)?;
        // Another action of the phase may have put the version in before.
        if self.is_identified_by(context.tables.at(self.slot)) {
            return Ok(());
        }
        self.identify(procedure, context, given)
    }

    /// Binds the action to its table once more, which a closure of the same phase may have changed, dropped or replaced since.
    #[cold]
    fn bind_again(&mut self, procedure: &Registered, context: &mut Context, given: Given<'_>) -> Result<()> {
        let locked = self.identifier();
        self.table = table_of(self.target, context)?;
        self.use_table(context)?;
        self.identify(procedure, context, given)?;
        // Another index is of a table that the transaction has made or changed itself, and so has for itself.
        if locked.index == self.index { self.check_is(&locked, procedure) } else { Ok(()) }
    }

    /// What calls that wait for the same identifier know it by. Others may have the same name.
    pub fn name(&self) -> u64 {
        xxh3_64_with_seed(&self.key, u64::from(self.index.0))
    }

    /// What its identifier is now.
    pub fn identifier(&self) -> Identified {
        Identified { index: self.index, key: self.key.clone() }
    }

    /// An error if its identifier is not the one that was locked: a function that gives a part of it may be asked several times, and
    /// has to give the same.
    pub fn check_is(&self, locked: &Identified, procedure: &Registered) -> Result<()> {
        if locked.index == self.index && locked.key == self.key {
            return Ok(());
        }
        Err(procedure.error(format!(
            "the identifier of its {} is not what was locked: let it follow from the arguments, and from what earlier phases gave, \
             alone",
            self.target.describe()
        )))
    }

    /// Locks its table by intention.
    #[inline]
    fn use_table(&mut self, context: &mut Context) -> Result<()> {
        loop {
            match context.use_table(&self.table, intention(self.target.mode())) {
                // It was dropped while its lock was waited for. Another table may have the name.
                Err(Error::NoSuchTable { .. }) => self.table = table_of(self.target, context)?,
                used => {
                    self.slot = used?;
                    return Ok(());
                }
            }
        }
    }

    /// The table that it works on.
    pub fn table_id(&self) -> TableId {
        self.table.id()
    }

    /// Whether it changes rows.
    pub fn writes(&self) -> bool {
        self.target.lock_mode() == RecordMode::Exclusive
    }

    /// Whether rows of its table have keys that no other row may have, beside those of their own index.
    pub fn has_unique_keys(&self, context: &Context) -> bool {
        context.tables.at(self.slot).schema.indexes().iter().any(|index| index.unique)
    }

    /// The index that it works on.
    pub fn which(&self) -> WhichIndex {
        self.which
    }

    /// Whether its identifier is locked, where identifiers are. One without parts is not: the action may touch the whole
    /// table, but few of its rows, which are locked as it comes to them.
    #[inline]
    pub fn is_span(&self) -> bool {
        self.target.parts() > 0 && !self.by_columns
    }

    /// What its identifier names.
    #[inline]
    pub fn wanted(&self) -> Wanted<'_> {
        let span = if self.is_point { SpanRef::point(&self.key) } else { SpanRef::prefix(&self.key) };
        Wanted { index: self.index, span, mode: self.target.lock_mode() }
    }

    #[inline]
    fn run(
        &mut self,
        procedure: &Registered,
        transaction: &mut Transaction,
        values: &[Value],
        outputs: &mut Outputs,
    ) -> Result<()> {
        let Some(body) = self.body else { return Ok(()) };
        let context = transaction.context();
        if rarely(context.ddl.is_some()) {
            self.bind_again(procedure, context, Given { arguments: values, earlier: outputs.earlier() })?;
        }
        let is_locked = self.is_span() && context.core.locks.form() == LockForm::Local;
        let &mut Targeted { target, slot, which, by_columns, .. } = self;
        let reach = Reach {
            table: self.table.key(),
            slot,
            mode: target.mode().into(),
            which,
            parts: target.parts(),
            by_columns,
            locked: is_locked.then(|| target.lock_mode()),
            savepoints: context.savepoints.len(),
            read_only: context.choices.read_only,
        };
        context.scope.begin(reach, &mut self.key);
        let is_shared = target.mode() == ActionMode::Shared;
        let was_read_only = context.choices.read_only;
        context.choices.read_only |= is_shared;
        // So that a write is checked as a transaction's first write is, and refused.
        let was_writing = is_shared && std::mem::take(&mut context.writing);
        // Also where no identifier of its own is locked: other actions of its phase may have executors out.
        let lease = context.core.locks.own_lease(&context.owner);
        let done =
            body(transaction, &Arguments { procedure, values, table: Some(&self.table), which }, outputs);
        let context = transaction.context();
        if is_shared {
            context.writing |= was_writing;
            context.end_shared_action();
        }
        if rarely(context.savepoints.len() > reach.savepoints) {
            context.forget_savepoints(reach.savepoints);
        }
        if rarely(lease.is_some_and(OwnLease::end)) {
            return run_without_lease(procedure, context);
        }
        // Whatever the body made of it.
        if let Some(strayed) = context.scope.end() {
            return Err(procedure.error(strayed.into()));
        }
        if is_shared && !was_read_only && matches!(done, Err(Error::ReadOnly)) {
            return Err(procedure.error(format!(
                "its {} wrote, but is in shared mode: make it Action::exclusive",
                target.describe()
            )));
        }
        done
    }
}

/// A handle in a body, or in a function that tells what an action names, has met the executor lease of the call's transaction: that runs
/// again, without one.
#[cold]
fn run_without_lease(procedure: &Registered, context: &mut Context) -> Result<()> {
    procedure.note_handles();
    context.scope.end();
    let waiting_for = "what it uses by another transaction itself".to_owned();
    let error = Error::Deadlock { waiting_for };
    context.doom(error.clone());
    context.met_lease = true;
    Err(error)
}

fn intention(mode: ActionMode) -> LockMode {
    match mode {
        ActionMode::Shared => LockMode::IntentShared,
        ActionMode::Exclusive => LockMode::IntentExclusive,
    }
}
