//! The conventional engine: thread-to-transaction. A flow's actions run in order on the thread that called.
//!
//! Every action's locks are taken as its body runs, and held to the end of the transaction; with local locks
//! ([`LockForm::Local`]) what its identifier names is locked before the bodies of its phase run, and then no row of it is. A rendezvous point is the step from one phase to the next. Actions of one phase run in the order in which
//! they stand, which orders those whose identifiers overlap; between others it cannot be told, since each keeps to its
//! own rows: what an action writes is checked against its table, identifier and mode.

use smallvec::SmallVec;

use super::flow::{Action, ActionMode, Target};
use super::procedure::{Arguments, Outputs, Registered};
use crate::error::{Error, Result};
use crate::ids::{IndexId, TableId};
use crate::lock::{LockForm, LockMode};
use crate::row::{Key, Value, WhichIndex};
use crate::txn::Transaction;
use crate::txn::transaction::Context;
use crate::txn::write_set::key_of;

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
            identifiers = lock_identifiers(procedure, phase, transaction, arguments)?;
        }
        for action in phase {
            match &action.target {
                Some(_) if !action.is_part_of(arguments) => {}
                Some(target) => {
                    let identifier = identifiers.iter_mut().find(|it| std::ptr::eq(it.target, target));
                    if let Some(Identifier { slot, key, .. }) = identifier {
                        transaction.context().cover.set(*slot, std::mem::take(key), target.mode.into());
                    }
                    let done = run_on(procedure, action, target, transaction, arguments, outputs);
                    transaction.context().cover.clear();
                    done?;
                }
                None => {
                    let arguments = Arguments { procedure, values: arguments, table: None };
                    (action.body)(transaction, &arguments, outputs)?;
                }
            }
        }
        outputs.rendezvous();
    }
    Ok(())
}

/// What an action may touch of its table, by its identifier.
struct Identifier<'a> {
    target: &'a Target,
    index: IndexId,
    slot: u32,
    key: Key,
}

type Identifiers<'a> = SmallVec<[Identifier<'a>; 4]>;

/// With local locks: locks what the identifiers of a phase's actions name, all of it before the first of them runs, in one order for
/// all transactions. So two of the same flow that visit each table in one phase cannot deadlock.
fn lock_identifiers<'a>(
    procedure: &Registered,
    phase: &'a [Action],
    transaction: &mut Transaction,
    arguments: &[Value],
) -> Result<Identifiers<'a>> {
    let context = transaction.context();
    let mut identifiers = Identifiers::new();
    let actions = phase.iter().filter(|action| action.is_part_of(arguments));
    for target in actions.filter_map(|action| action.target.as_ref()) {
        // It may touch the whole table, but few of its rows: they are locked as it comes to them.
        if target.parts() == 0 {
            continue;
        }
        let table = target.table(&context.core.catalog)?;
        context.check()?;
        let slot = context.use_table(&table, intention(target.mode))?;
        let version = context.tables.at(slot);
        let shape = version.schema.key_shape(WhichIndex::Primary);
        // A table without a primary key has its rows locked by their numbers.
        if shape.is_row_number() {
            continue;
        }
        let mut key = Key::new();
        target
            .key_prefix(arguments, shape, &mut key)
            .map_err(|error| wrong_identifier(procedure, target, &error))?;
        identifiers.push(Identifier { target, index: version.primary_id, slot, key });
    }
    identifiers.sort_unstable_by(|one, other| (one.index, &one.key).cmp(&(other.index, &other.key)));
    for Identifier { target, index, key, slot } in &identifiers {
        // The strongest first, of those with one identifier: nobody upgrades.
        let mode =
            identifiers.iter().filter(|it| it.index == *index && it.key == *key).map(|it| it.target.mode);
        let exclusive =
            mode.fold(target.mode, |one, other| if other == ActionMode::Exclusive { other } else { one });
        context.lock_identifier(*slot, key, target.parts(), exclusive.into())?;
    }
    Ok(identifiers)
}

fn wrong_identifier(procedure: &Registered, target: &Target, error: &Error) -> Error {
    procedure.error(format!("the identifier of its action on table \"{}\": {error}", target.name))
}

fn intention(mode: ActionMode) -> LockMode {
    match mode {
        ActionMode::Shared => LockMode::IntentShared,
        ActionMode::Exclusive => LockMode::IntentExclusive,
    }
}

/// Runs an action on its table.
fn run_on(
    procedure: &Registered,
    action: &Action,
    target: &Target,
    transaction: &mut Transaction,
    arguments: &[Value],
    outputs: &mut Outputs,
) -> Result<()> {
    let context = transaction.context();
    let table = target.table(&context.core.catalog)?;
    let is_shared = target.mode == ActionMode::Shared;
    context.check()?;
    let slot = context.use_table(&table, intention(target.mode))?;
    let mut prefix = Key::new();
    let shape = context.tables.at(slot).schema.key_shape(WhichIndex::Primary);
    target
        .key_prefix(arguments, shape, &mut prefix)
        .map_err(|error| wrong_identifier(procedure, target, &error))?;
    let first_write = context.writes.len();
    let was_read_only = context.choices.read_only;
    context.choices.read_only |= is_shared;
    let values = Arguments { procedure, values: arguments, table: Some(&table) };
    let done = (action.body)(transaction, &values, outputs);
    let context = transaction.context();
    context.choices.read_only = was_read_only;
    match done {
        Err(Error::ReadOnly) if is_shared && !was_read_only => Err(procedure.error(format!(
            "its action on table \"{}\" wrote, but is in shared mode: make it Action::exclusive",
            target.name
        ))),
        Err(error) => Err(error),
        Ok(()) => check_writes(procedure, target, context, first_write, table.id(), &prefix),
    }
}

/// Checks that an action has kept to its table and identifier.
fn check_writes(
    procedure: &Registered,
    target: &Target,
    context: &Context,
    first: usize,
    table: TableId,
    prefix: &[u8],
) -> Result<()> {
    // Fewer than at first if the body rolled back to an earlier action's savepoint.
    for write in context.writes.writes().get(first..).unwrap_or_default() {
        let key = key_of(write, context.packet_bytes());
        if write.table == table && key.starts_with(prefix) {
            continue;
        }
        let written = context.tables.at(write.slot);
        let key = written.schema.print_key(WhichIndex::Primary, key);
        let reason = match write.table == table {
            true => format!(
                "its action on table \"{}\" wrote the row {key}, which its identifier does not begin",
                target.name
            ),
            false => format!(
                "its action on table \"{}\" wrote to table \"{}\": make that an action of its own",
                target.name,
                written.name()
            ),
        };
        return Err(procedure.error(reason));
    }
    Ok(())
}
