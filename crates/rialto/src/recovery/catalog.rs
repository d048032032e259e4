//! What the system tables say.

use super::table::RedoTable;
use crate::catalog::Description;
use crate::catalog::system::{FIRST_USER_ID, HEAPS, INDEXES, SystemRows, TABLES};
use crate::error::{Error, Result};
use crate::ids::{Lsn, TableId};
use crate::row::{RowView, Value};
use crate::store::memory::RecordRef;
use crate::store::memory::index::{Batch, Direction, Guard, More, ScanRange};

pub(super) fn is_system(table: TableId) -> bool {
    table.0 < FIRST_USER_ID
}

/// The rows of a system table.
fn rows_of(table: &RedoTable) -> Result<Vec<Vec<Value>>, String> {
    let mut rows = Vec::new();
    let mut body = Vec::new();
    let mut batch = Batch::new();
    batch.begin();
    loop {
        let more = table.primary.read_leaf(&ScanRange::ALL, Direction::Forward, Guard::Leave, &mut batch);
        for (_, record) in batch.iter() {
            table.heap.segments().read(RecordRef(record), &mut body);
            let row = RowView::validate(&table.schema, &body).map_err(|error| error.to_string())?;
            rows.push(row.values());
        }
        if more == More::No {
            return Ok(rows);
        }
    }
}

/// The highest identifier in a row of a system table.
pub(super) fn highest_id(table: TableId, row: RowView<'_>) -> u32 {
    let columns: &[usize] = match table {
        TABLES => &[0],
        INDEXES => &[0, 1],
        HEAPS => &[0, 1],
        _ => &[],
    };
    columns.iter().map(|&column| row.get_i32(column).unwrap_or(0) as u32).max().unwrap_or(0)
}

/// The tables that the system tables describe: all of them, and nothing else is in there.
///
/// The system tables of a backup copy are those of the redo start (`checkpoint/catalog_copy.rs`), and redo brings them from
/// one DDL statement to the next; so what they say makes sense at each of these moments, or is damaged.
///
/// # Errors
/// [`Error::Corrupt`] at `read_from`, naming what makes no sense.
pub(super) fn tables(system: &[&RedoTable], read_from: &str) -> Result<Vec<Description>> {
    let mut all = SystemRows::default();
    for table in system {
        let rows = rows_of(table).map_err(|what| damaged(read_from, what))?;
        all.extend(table.description.id, rows);
    }
    all.descriptions().map_err(|what| damaged(read_from, what))
}

fn damaged(read_from: &str, what: String) -> Error {
    Error::Corrupt { file: read_from.to_owned(), offset: 0, what: format!("the system tables: {what}") }
}

/// The error for a redo record that makes no sense for its table, though its packet's checksum is right.
pub(super) fn senseless(table: &RedoTable, lsn: Lsn, what: &str) -> Error {
    Error::Corrupt {
        file: format!("the log, place {lsn}"),
        offset: 0,
        what: format!("a redo record for table \"{}\": {what}", table.schema.table()),
    }
}
