//! [`TableAction`]: an action on a table in one call, from its binding to the end of its body.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::action::{ActionMode, ActionTarget, Body};
use super::binding::{Binding, Bound};
use super::identifier::Given;
use super::prepared::Prepared;
use super::procedure::{Arguments, Outputs};
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::ids::{IndexId, TableId};
use crate::isolate::{LockMode, OwnLease, RecordMode, SpanRef, Wanted};
use crate::row::{Key, Value, WhichIndex};
use crate::store::Table;
use crate::txn::Transaction;
use crate::txn::context::Context;
use crate::txn::scope::Reach;
use crate::unlikely::unlikely;

/// The identifier that was locked for an action.
#[derive(Debug)]
pub(super) struct Identified {
    index: IndexId,
    key: Key,
}

/// An action on a table in a call, with its identifier.
pub(super) struct TableAction<'a> {
    target: &'a ActionTarget,
    /// None for a claim.
    body: Option<&'a Body>,
    binding: Bound<'a>,
    /// The position of its table in the transaction's list of tables.
    slot: u32,
    /// The prefix of the keys that it may touch; valid until it runs.
    pub key: Key,
}

impl<'a> TableAction<'a> {
    #[inline]
    pub fn new(target: &'a ActionTarget, body: Option<&'a Body>, binding: Bound<'a>) -> TableAction<'a> {
        TableAction { target, body, binding, slot: 0, key: Key::new() }
    }

    /// An action without a binding, bound by its table's name.
    pub fn anew(
        procedure: &Prepared,
        target: &'a ActionTarget,
        body: Option<&'a Body>,
        context: &mut Context,
    ) -> Result<TableAction<'a>> {
        let binding = bind_anew(procedure, target, context)?;
        Ok(TableAction::new(target, body, Bound::anew(binding)))
    }

    /// Computes its identifier from the arguments and the outputs of earlier phases. The table is not locked yet, so
    /// the version of it that the action is bound to may be retired. Therefore an error only counts by the version
    /// that holds under the lock, and the lock is then taken.
    #[inline]
    pub fn identify(&mut self, procedure: &Prepared, context: &mut Context, given: Given<'_>) -> Result<()> {
        match self.binding.key_prefix(self.target, given, &mut self.key) {
            Ok(()) => Ok(()),
            Err(_) => self.identify_locked(procedure, context, given),
        }
    }

    #[cold]
    fn identify_locked(
        &mut self,
        procedure: &Prepared,
        context: &mut Context,
        given: Given<'_>,
    ) -> Result<()> {
        // There may be a wait for the lock (L12).
        context.core.locks.return_lease(&mut context.owner);
        self.intend(procedure, context, given)?;
        self.encode(procedure, given)
    }

    fn encode(&mut self, procedure: &Prepared, given: Given<'_>) -> Result<()> {
        let encoded = self.binding.key_prefix(self.target, given, &mut self.key);
        encoded.map_err(|problem| wrong_identifier(procedure, self.target, &problem))
    }

    /// Locks its table by intention, and thereby the version for which the identifier has to be computed.
    #[inline]
    pub fn intend(&mut self, procedure: &Prepared, context: &mut Context, given: Given<'_>) -> Result<()> {
        self.use_table(context)?;
        let Context { tables, depends, .. } = context;
        let version = tables.at(self.slot);
        // I3: this counts whatever the action's outcome is, even if it read no row, and also for an error in the
        // identifier.
        *depends = (*depends).max(version.floor());
        // The version stays as long as the lock.
        match self.binding.is_by(version) {
            true => Ok(()),
            false => self.identify_again(procedure, context, given),
        }
    }

    #[cold]
    fn identify_again(&mut self, procedure: &Prepared, context: &Context, given: Given<'_>) -> Result<()> {
        self.binding = Bound::anew(self.bind_locked(procedure, context)?);
        self.encode(procedure, given)
    }

    /// Binds it to the version of its table that the transaction has locked.
    fn bind_locked(&self, procedure: &Prepared, context: &Context) -> Result<Binding> {
        let bound = Binding::new(self.target, self.binding.table.clone(), context.tables.shared(self.slot));
        bound.map_err(|error| wrong_identifier(procedure, self.target, &error.to_string()))
    }

    /// Binds the action to its table once more: a closure of the same phase may have changed, dropped or replaced the
    /// table.
    #[cold]
    fn bind_again(&mut self, procedure: &Prepared, context: &mut Context, given: Given<'_>) -> Result<()> {
        let locked = self.identifier();
        self.binding = Bound::anew(bind_anew(procedure, self.target, context)?);
        self.use_table(context)?;
        self.identify_again(procedure, context, given)?;
        // A different index belongs to a table that the transaction has made or changed itself, and so has for
        // itself.
        if locked.index == self.index() { self.check_is(&locked, procedure) } else { Ok(()) }
    }

    /// Uses its table under the intentions of the leased executors. False if it is not bound to the present version
    /// of the table.
    #[inline]
    pub fn use_under_lease(&mut self, context: &mut Context) -> bool {
        let Ok(slot) = context.find_table(&self.binding.table) else { return false };
        self.slot = slot;
        let Context { core, owner, tables, depends, .. } = context;
        if !core.locks.use_under_lease(owner, self.table_id(), intention(self.target.mode())) {
            return false;
        }
        let version = tables.at(slot);
        // I3: this counts whatever the action's outcome is, even if it read no row.
        *depends = (*depends).max(version.floor());
        // A version is retired only under a lock on the whole table.
        self.binding.is_by(version) && !version.is_retired()
    }

    /// The name of its identifier, for calls that wait for the same one. Other identifiers may have the same name.
    pub fn name(&self) -> u64 {
        xxh3_64_with_seed(&self.key, u64::from(self.index().0))
    }

    /// Its present identifier.
    pub fn identifier(&self) -> Identified {
        Identified { index: self.index(), key: self.key.clone() }
    }

    /// An error if its identifier is not the one that was locked: a function that computes a part of it may be called
    /// several times, and has to return the same.
    pub fn check_is(&self, locked: &Identified, procedure: &Prepared) -> Result<()> {
        if locked.index == self.index() && locked.key == self.key {
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
            match context.use_table(&self.binding.table, intention(self.target.mode())) {
                // The table was dropped. Another table may have the name.
                Err(Error::NoSuchTable { .. }) => {
                    let mut binding = Binding::clone(&self.binding);
                    binding.table = table_of(self.target, context)?;
                    self.binding = Bound::anew(binding);
                }
                used => {
                    self.slot = used?;
                    return Ok(());
                }
            }
        }
    }

    /// The table that it works on.
    pub fn table_id(&self) -> TableId {
        self.binding.table.id()
    }

    /// The index in whose keys its identifier is a span.
    pub fn index(&self) -> IndexId {
        self.binding.index
    }

    /// Whether it changes rows.
    pub fn writes(&self) -> bool {
        self.target.lock_mode() == RecordMode::Exclusive
    }

    /// Whether its table has unique keys besides the key that its rows are identified by.
    pub fn has_unique_keys(&self) -> bool {
        self.binding.has_unique_keys()
    }

    /// The index that it works on.
    pub fn which(&self) -> WhichIndex {
        self.binding.which
    }

    /// Whether its identifier is locked, where identifiers are locked. One without parts is not: the action may touch
    /// the whole table, but touches few of its rows, which are locked one by one.
    #[inline]
    pub fn is_span(&self) -> bool {
        self.target.parts() > 0 && !self.binding.by_columns
    }

    /// The key that its identifier names, if it names one key, with its index and the position of its table in the
    /// transaction's list.
    pub fn point(&self) -> Option<(u32, WhichIndex, &Key)> {
        self.binding.is_point.then_some((self.slot, self.binding.which, &self.key))
    }

    /// The span that its identifier names.
    #[inline]
    pub fn wanted(&self) -> Wanted<'_> {
        let is_point = self.binding.is_point;
        let span = if is_point { SpanRef::point(&self.key) } else { SpanRef::prefix(&self.key) };
        Wanted { index: self.index(), span, mode: self.target.lock_mode() }
    }

    /// Runs it, after the locks of its phase are taken.
    #[inline]
    pub fn run(
        &mut self,
        procedure: &Prepared,
        transaction: &mut Transaction,
        values: &[Value],
        outputs: &mut Outputs,
    ) -> Result<()> {
        let Some(body) = self.body else { return Ok(()) };
        let context = transaction.context();
        if unlikely(context.ddl.is_some()) {
            self.bind_again(procedure, context, Given { arguments: values, earlier: outputs.earlier() })?;
        }
        let is_locked = self.is_span() && context.core.locks.keeps_keys_at_executors();
        std::mem::swap(context.scope.prefix_mut(), &mut self.key);
        let action = InUse { target: self.target, body, binding: &self.binding, slot: self.slot, is_locked };
        action.run(procedure, transaction, values, outputs)
    }
}

/// An action whose table is in use, and whose identifier is the prefix of the transaction's scope.
pub(super) struct InUse<'a> {
    target: &'a ActionTarget,
    body: &'a Body,
    binding: &'a Binding,
    slot: u32,
    is_locked: bool,
}

impl<'a> InUse<'a> {
    /// An action for which only its table is locked, on the conventional engine: its rows are locked as the body
    /// touches them. None if the table is not as the action is bound to it, or not as this context used it last, or
    /// the identifier is wrong.
    #[inline(always)]
    pub fn at_once(
        (target, body, binding): (&'a ActionTarget, &'a Body, &'a Binding),
        context: &mut Context,
        given: Given<'_>,
    ) -> Option<InUse<'a>> {
        let slot = context.use_again(binding.table.key(), intention(target.mode()))?;
        let Context { tables, depends, scope, .. } = context;
        let version = tables.at(slot);
        if unlikely(!binding.is_by(version)) {
            return None;
        }
        // I3: this counts whatever the action's outcome is, even if it read no row.
        *depends = (*depends).max(version.floor());
        binding.key_prefix(target, given, scope.prefix_mut()).ok()?;
        Some(InUse { target, body, binding, slot, is_locked: false })
    }

    #[inline]
    pub fn run(
        self,
        procedure: &Prepared,
        transaction: &mut Transaction,
        values: &[Value],
        outputs: &mut Outputs,
    ) -> Result<()> {
        let InUse { target, body, binding, slot, is_locked } = self;
        let &Binding { ref table, which, by_columns, .. } = binding;
        let context = transaction.context();
        let reach = Reach {
            table: table.key(),
            slot,
            mode: target.mode().into(),
            which,
            parts: target.parts(),
            by_columns,
            locked: is_locked.then(|| target.lock_mode()),
            savepoints: context.savepoints.len(),
            read_only: context.choices.read_only,
        };
        context.scope.begin(reach);
        let is_shared = target.mode() == ActionMode::Shared;
        let was_read_only = context.choices.read_only;
        context.choices.read_only |= is_shared;
        // So that a write is checked like a transaction's first write, and refused.
        let was_writing = is_shared && std::mem::take(&mut context.writing);
        // Also if no identifier of its own is locked: other actions of its phase may have executors leased.
        let lease = context.core.locks.own_lease(&context.owner);
        let done = body(transaction, &Arguments { procedure, values, table: Some(table), which }, outputs);
        let context = transaction.context();
        if is_shared {
            context.writing |= was_writing;
            context.end_shared_action();
        }
        if unlikely(context.savepoints.len() > reach.savepoints) {
            context.forget_savepoints(reach.savepoints);
        }
        if unlikely(lease.is_some_and(OwnLease::end)) {
            return run_without_lease(procedure, context);
        }
        // Whatever the body made of the error.
        if let Some(out_of_scope) = context.scope.end() {
            return Err(procedure.error(out_of_scope.into()));
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

/// The table of an action, by its name. The transaction's own definitions come first.
#[cold]
fn table_of(target: &ActionTarget, context: &mut Context) -> Result<Table> {
    let ddl = context.ddl.as_ref().filter(|_| !fault_injection::is_on("dropped-table-is-written"));
    let table = match ddl.and_then(|ddl| ddl.table(target.name(), &context.core.storage.catalog)) {
        None => context.core.storage.catalog.table(target.name()),
        Some(table) => table,
    };
    if table.is_err() {
        // I3: also if there is no table of this name.
        context.depend_on_definitions();
    }
    table
}

/// Binds an action by its table's name. The table need not be locked. That the index is missing only counts by the
/// version that holds under the lock, which is then taken.
#[cold]
fn bind_anew(procedure: &Prepared, target: &ActionTarget, context: &mut Context) -> Result<Binding> {
    let mut table = table_of(target, context)?;
    if let Ok(binding) = Binding::new(target, table.clone(), &table.version()) {
        return Ok(binding);
    }
    // There may be a wait for the lock (L12).
    context.core.locks.return_lease(&mut context.owner);
    let slot = loop {
        match context.use_table(&table, intention(target.mode())) {
            Err(Error::NoSuchTable { .. }) => table = table_of(target, context)?,
            used => break used?,
        }
    };
    context.depend(context.tables.at(slot).floor());
    let bound = Binding::new(target, table, context.tables.shared(slot));
    bound.map_err(|error| wrong_identifier(procedure, target, &error.to_string()))
}

#[cold]
fn wrong_identifier(procedure: &Prepared, target: &ActionTarget, problem: &str) -> Error {
    procedure.error(format!("the identifier of its {}: {problem}", target.describe()))
}

/// Handles an executor lease that was met: a handle in a body, or in a function that says what an action names, would
/// have had to wait beside it. The call's transaction runs again without a lease.
#[cold]
pub(super) fn run_without_lease(procedure: &Prepared, context: &mut Context) -> Result<()> {
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
