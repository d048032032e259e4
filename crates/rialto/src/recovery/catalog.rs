//! The contents of the system tables.

use std::sync::Arc;

use super::table::RedoTable;
use crate::catalog::system::SystemRows;
use crate::catalog::{Described, Description};
use crate::commit::senseless::in_log;
use crate::error::{Error, Result};
use crate::ids::{Lsn, TableId};
use crate::row::{RowView, Value};
use crate::store::memory::RecordRef;
use crate::store::tree::{Batch, Direction, Guard, More, ScanRange};

/// Calls `take` with the key and the values of each row of a system table.
fn each_row(
    table: &RedoTable,
    mut take: impl FnMut(&[u8], Vec<Value>) -> Result<(), String>,
) -> Result<(), String> {
    let mut batch = Batch::new();
    batch.begin();
    loop {
        let more = table.primary.read_leaf(&ScanRange::ALL, Direction::Forward, Guard::Leave, &mut batch);
        for (key, record) in batch.iter() {
            take(key, values_of(table, RecordRef(record))?)?;
        }
        if more == More::No {
            return Ok(());
        }
    }
}

/// The values of a row of a system table.
fn values_of(table: &RedoTable, record: RecordRef) -> Result<Vec<Value>, String> {
    #[cfg(test)]
    ROWS_READ.set(ROWS_READ.get() + 1);
    let mut body = Vec::new();
    table.heap.segments().read(record, &mut body);
    let row = RowView::validate(&table.schema, &body).map_err(|error| error.to_string())?;
    Ok(row.values())
}

#[cfg(test)]
thread_local! {
    /// How many rows of system tables this thread has read.
    pub(super) static ROWS_READ: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The tables that the system tables describe. Every row there must belong to one of them.
///
/// The system tables of a backup copy are those of the redo start (`checkpoint/catalog_copy.rs`), and redo brings them
/// from one DDL statement to the next. So their contents make sense at each of these moments, or are damaged.
///
/// # Errors
/// [`Error::Corrupt`] at `read_from`, naming the row that makes no sense.
pub(super) fn tables(system: &[Arc<RedoTable>], read_from: &str) -> Result<Vec<Description>> {
    let mut all = SystemRows::default();
    for table in system {
        let id = table.description.id;
        let taken = each_row(table, |_, values| {
            all.extend(id, [values]);
            Ok(())
        });
        taken.map_err(|what| damaged(read_from, what))?;
    }
    all.descriptions().map_err(|what| damaged(read_from, what))
}

/// The system tables as they are. No table is described yet: all of them count as changed.
///
/// # Errors
/// As [`tables`].
pub(super) fn described_by(system: &[Arc<RedoTable>], read_from: &str) -> Result<Described> {
    let mut described = Described::default();
    for table in system {
        let id = table.description.id;
        let put = each_row(table, |key, values| described.put((id, key.into()), Some(values)));
        put.map_err(|what| damaged(read_from, what))?;
    }
    Ok(described)
}

/// Notes that the row of this key in a system table was changed.
///
/// # Errors
/// As [`tables`].
pub(super) fn note_row(described: &mut Described, system: &RedoTable, key: &[u8], lsn: Lsn) -> Result<()> {
    let found = system.primary.get(key).value.map(RecordRef);
    let values = found.map(|record| values_of(system, record)).transpose();
    let put = values.and_then(|values| described.put((system.description.id, key.into()), values));
    put.map_err(|what| damaged(&in_log(lsn), what))
}

/// As [`Described::changes`].
///
/// # Errors
/// As [`tables`].
pub(super) fn changes(
    described: &mut Described,
    read_from: &str,
) -> Result<Vec<(TableId, Option<Description>)>> {
    described.changes().map_err(|what| damaged(read_from, what))
}

/// Checks that the described tables are those that the system tables describe when all are read anew.
///
/// # Errors
/// As [`tables`]; [`Error::Corrupt`] if they differ.
pub(super) fn check(described: &Described, system: &[Arc<RedoTable>], read_from: &str) -> Result<()> {
    if !described.are(&tables(system, read_from)?) {
        let what = "they describe other tables at its end than the log's definitions have made".to_owned();
        return Err(damaged(read_from, what));
    }
    Ok(())
}

fn damaged(read_from: &str, what: String) -> Error {
    Error::Corrupt { file: read_from.to_owned(), offset: 0, what: format!("the system tables: {what}") }
}

/// The error for a redo record that makes no sense for its table, though its packet's checksum is right.
pub(super) fn senseless(table: &RedoTable, lsn: Lsn, what: &str) -> Error {
    crate::commit::senseless::record(lsn, table.schema.table(), what)
}
