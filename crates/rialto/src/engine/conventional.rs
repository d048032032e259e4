//! The conventional engine: thread-to-transaction. A flow's actions run in order on the thread that called.
//!
//! Every action's locks are taken in the central lock manager, as its body runs, and held to the end of the
//! transaction; a rendezvous point is the step from one phase to the next. Actions of one phase run in the order in which
//! they stand, which orders those whose identifiers overlap; between others it cannot be told, since each keeps to its
//! own rows: what an action writes is checked against its table, identifier and mode.

use super::flow::{Action, ActionMode, Target};
use super::procedure::{Arguments, Outputs, Registered};
use crate::error::{Error, Result};
use crate::ids::TableId;
use crate::lock::LockMode;
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
    for phase in procedure.flow().phases() {
        for action in phase {
            match &action.target {
                Some(_) if !action.is_part_of(arguments) => {}
                Some(target) => {
                    run_on(procedure, action, target, transaction, arguments, outputs)?;
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
    let mode = match is_shared {
        true => LockMode::IntentShared,
        false => LockMode::IntentExclusive,
    };
    context.check()?;
    let slot = context.use_table(&table, mode)?;
    let mut prefix = Key::new();
    let shape = context.tables.at(slot).schema.key_shape(WhichIndex::Primary);
    target.key_prefix(arguments, shape, &mut prefix).map_err(|error| {
        procedure.error(format!("the identifier of its action on table \"{}\": {error}", target.name))
    })?;
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
