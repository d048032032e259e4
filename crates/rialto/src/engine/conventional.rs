//! The conventional engine: thread-to-transaction. A flow's actions run in order on the thread that called.
//!
//! Every action's locks are taken as its body runs, and held to the end of the transaction; with local locks
//! ([`LockForm::Local`]) what its identifier names is locked before the bodies of its phase run, and then no row of it is. A
//! rendezvous point is the step from one phase to the next. Actions of one phase run in the order in which they stand, which
//! orders those whose identifiers overlap; between others it cannot be told, since each keeps to its own: whatever an
//! action touches is held against its table, identifier and mode ([`Scope`](crate::txn::scope::Scope)).

use smallvec::SmallVec;

use super::action::{Action, ActionMode, Body, Target};
use super::identifier::Given;
use super::procedure::{Arguments, Outputs, Registered};
use crate::error::{Error, Result};
use crate::ids::IndexId;
use crate::lock::{LockForm, LockMode, RecordMode, Span, SpanRef};
use crate::row::{Key, Value, WhichIndex};
use crate::txn::Transaction;
use crate::txn::scope::Reach;
use crate::txn::transaction::Context;

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
        let mut identifiers = Identifiers::new();
        if locks_identifiers {
            let given = Given { arguments, earlier: outputs.earlier() };
            identifiers = lock_identifiers(procedure, phase, transaction, given)?;
        }
        for action in phase {
            let Some(body) = &action.body else { continue };
            match &action.target {
                Some(_) if !action.is_part_of(arguments, outputs.earlier()) => {}
                Some(target) => {
                    let known = identifiers.iter().position(|it| std::ptr::eq(it.target, target));
                    let known = known.map(|at| identifiers.swap_remove(at));
                    run_on(procedure, target, known, transaction, arguments, outputs, body)?;
                }
                None => {
                    let arguments =
                        Arguments { procedure, values: arguments, table: None, which: WhichIndex::Primary };
                    body(transaction, &arguments, outputs)?;
                }
            }
        }
        outputs.rendezvous();
    }
    Ok(())
}

/// What an action may touch, by its identifier in one call.
struct Identifier<'a> {
    target: &'a Target,
    /// Where its table stands in the transaction's list of tables.
    slot: u32,
    which: WhichIndex,
    /// The index, in whose keys it is a span.
    index: IndexId,
    key: Key,
    /// It names one key.
    is_point: bool,
    /// The key is of the first columns of a table without a primary key, whose rows are locked by their numbers.
    by_columns: bool,
    /// Its span is locked.
    locked: bool,
}

type Identifiers<'a> = SmallVec<[Identifier<'a>; 4]>;

impl<'a> Identifier<'a> {
    /// Locks the action's table by intention, and makes the identifier.
    fn of(
        procedure: &Registered,
        target: &'a Target,
        context: &mut Context,
        given: Given<'_>,
    ) -> Result<Identifier<'a>> {
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
        Ok(Identifier { target, slot, which, index, key, is_point, by_columns, locked: false })
    }

    /// Whether it is to be locked, where identifiers are. One without parts is not: the action may touch the whole table,
    /// but few of its rows, which are locked as it comes to them.
    fn is_span(&self) -> bool {
        self.target.parts() > 0 && !self.by_columns
    }

    fn span(&self) -> Span {
        if self.is_point { SpanRef::point(&self.key).to_owned() } else { Span::prefix(&self.key) }
    }
}

/// With local locks: locks what the identifiers of a phase's actions name, all of it before the first of them runs, in one
/// order for all transactions. So two of the same flow that visit each table and each index in one phase cannot deadlock.
fn lock_identifiers<'a>(
    procedure: &Registered,
    phase: &'a [Action],
    transaction: &mut Transaction,
    given: Given<'_>,
) -> Result<Identifiers<'a>> {
    let context = transaction.context();
    let mut identifiers = Identifiers::new();
    let actions = phase.iter().filter(|action| action.is_part_of(given.arguments, given.earlier));
    for target in actions.filter_map(|action| action.target.as_ref()) {
        identifiers.push(Identifier::of(procedure, target, context, given)?);
    }
    identifiers.sort_unstable_by(|one, other| (one.index, &one.key).cmp(&(other.index, &other.key)));
    for at in 0..identifiers.len() {
        let identifier = &identifiers[at];
        if !identifier.is_span() {
            continue;
        }
        // The strongest first, of those with one identifier: nobody upgrades.
        let same = identifiers.iter().filter(|it| it.index == identifier.index && it.key == identifier.key);
        let is_exclusive = same.into_iter().any(|it| it.target.lock_mode() == RecordMode::Exclusive);
        let mode = if is_exclusive { RecordMode::Exclusive } else { RecordMode::Shared };
        context.lock_identifier(identifier.index, identifier.span().borrow(), mode)?;
        identifiers[at].locked = true;
    }
    Ok(identifiers)
}

fn intention(mode: ActionMode) -> LockMode {
    match mode {
        ActionMode::Shared => LockMode::IntentShared,
        ActionMode::Exclusive => LockMode::IntentExclusive,
    }
}

/// Runs an action's body on its table, by its identifier if that is known already.
fn run_on(
    procedure: &Registered,
    target: &Target,
    known: Option<Identifier<'_>>,
    transaction: &mut Transaction,
    arguments: &[Value],
    outputs: &mut Outputs,
    body: &Body,
) -> Result<()> {
    let context = transaction.context();
    let identifier = match known {
        Some(identifier) => identifier,
        None => Identifier::of(procedure, target, context, Given { arguments, earlier: outputs.earlier() })?,
    };
    let table = target.table(&context.core.catalog)?;
    let Identifier { slot, which, key, by_columns, locked, .. } = identifier;
    context.scope.begin(Reach { table: table.id(), which, parts: target.parts(), by_columns }, &key);
    if locked {
        context.cover.set(slot, which, key, target.lock_mode());
    }
    let is_shared = target.mode() == ActionMode::Shared;
    let was_read_only = context.choices.read_only;
    context.choices.read_only |= is_shared;
    let values = Arguments { procedure, values: arguments, table: Some(&table), which };
    let done = body(transaction, &values, outputs);
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
