//! Procedures that are declared to be deterministic: how their calls get into the log, and how wrong declarations are
//! found (the debug mode, [`Options::check_determinism`](crate::Options::check_determinism)).
//!
//! A call is logged in place of the write set only if three conditions hold. The write set comes from the procedure
//! alone: the call has made no definition and no bulk load, which are logged as values. No operation has given its body
//! an error of the moment (`Error::is_of_the_moment`), such as a lock's time-out or a limit: the body may have gone on,
//! and the error need not come when the call is run again. And the checkpoint in force is transaction-consistent
//! (`Core::logs_calls`). Transactions are serializable in the order of their places in the log (I2). So if calls are
//! run again in the order of their places, each reads the same rows, and finds the same tables by their names
//! (`Context::table`).

use super::prepared::Prepared;
use super::procedure::Outputs;
use crate::commit::redo::{self, Change, RedoRecord};
use crate::commit::write_set::Mark;
use crate::error::Result;
use crate::row::{Value, WhichIndex};
use crate::txn::Transaction;
use crate::txn::calls::{NumberSource, Numbers, checksum_of, write_call};
use crate::txn::context::Context;

/// Runs a deterministic procedure: once, to make the call that the transaction is logged as; or twice, to compare.
#[inline(never)]
pub(super) fn run(
    procedure: &Prepared,
    transaction: &mut Transaction,
    arguments: &[Value],
    outputs: &mut Outputs,
) -> Result<()> {
    let context = transaction.context();
    (context.numbers, context.of_the_moment) = (NumberSource::Noted(Numbers::new()), None);
    procedure.run_here(transaction, arguments, outputs)?;
    let context = transaction.context();
    let numbers = match std::mem::take(&mut context.numbers) {
        NumberSource::Noted(numbers) => numbers,
        NumberSource::Next | NumberSource::Given(..) => Numbers::new(),
    };
    let repeats = context.ddl.is_none() && context.of_the_moment.is_none();
    // A change of another transaction may come between two runs without locks.
    if context.core.commits.checks_determinism && repeats && !context.choices.read_only {
        run_again(procedure, transaction, arguments, outputs, &numbers)?;
    }
    let context = transaction.context();
    let repeats = repeats && context.of_the_moment.is_none();
    if context.core.commits.logs_calls() && repeats && !context.writes.is_empty() {
        let (name, version) = (&procedure.procedure().name, procedure.procedure().version);
        let packet = context.packet.as_mut().expect("of a transaction that has written").bytes_mut();
        let from = packet.len();
        let checksum = checksum_of(packet);
        write_call(packet, name, version, checksum, &numbers, arguments);
        context.call_from = from as u32;
    }
    Ok(())
}

/// Undoes the first run but keeps its locks, runs the procedure once more, and compares.
fn run_again(
    procedure: &Prepared,
    transaction: &mut Transaction,
    arguments: &[Value],
    outputs: &mut Outputs,
    numbers: &Numbers,
) -> Result<()> {
    let context = transaction.context();
    let first = context.packet_bytes().to_vec();
    let before = outputs.values().to_vec();
    context.savepoints.clear();
    context.roll_back_to(&Mark { writes: 0, adds: 0, packet: 0 });
    context.numbers = NumberSource::Given(numbers.clone(), 0);
    procedure.run_here(transaction, arguments, outputs).map_err(|error| match error {
        error if error.is_of_the_moment() => error,
        error => procedure.error(format!(
            "it says that it is deterministic, but it gave an error when it ran again on the same rows: {error}"
        )),
    })?;
    let context = transaction.context();
    context.numbers = NumberSource::Next;
    if context.of_the_moment.is_some() {
        return Ok(());
    }
    if let Some(difference) = difference(context, &first, context.packet_bytes()) {
        return Err(procedure.error(format!(
            "it says that it is deterministic, but two runs on the same rows wrote different things: {difference}"
        )));
    }
    if outputs.values() != before {
        return Err(procedure.error(format!(
            "it says that it is deterministic, but two runs on the same rows gave different outputs: {before:?}, then \
             {:?}",
            outputs.values()
        )));
    }
    Ok(())
}

/// The first record in which two write sets differ, in words.
fn difference(context: &Context, first: &[u8], second: &[u8]) -> Option<String> {
    if first == second {
        return None;
    }
    let print = |record: Option<&RedoRecord<'_>>| {
        let Some(record) = record else { return "nothing more".to_owned() };
        let what = match &record.change {
            Change::Put { .. } => "put",
            Change::Patch(_) | Change::Operate(_) => "change",
            Change::Delete => "delete",
            Change::Load { .. } => "load",
        };
        let Some(table) = context.core.storage.catalog.by_id(record.table) else { return what.to_owned() };
        let schema = table.schema();
        let key = schema.print_key(WhichIndex::Primary, record.key);
        format!("a {what} of the row {key} of table \"{}\"", schema.table())
    };
    let records = |bytes| -> Vec<RedoRecord<'_>> { redo::read(bytes).map_while(Result::ok).collect() };
    let (first, second) = (records(first), records(second));
    let at = first.iter().zip(&second).take_while(|(first, second)| first == second).count();
    let (one, other) = (print(first.get(at)), print(second.get(at)));
    Some(match one == other {
        true => format!("record {at}, {one}, has other contents the second time"),
        false => format!("record {at} was {one}, then {other}"),
    })
}
