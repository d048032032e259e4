//! What the system tables say at a place in the log.

use hashbrown::HashSet;

use super::table::RedoTable;
use crate::catalog::Description;
use crate::catalog::system::{COLUMNS, FIRST_USER_ID, HEAPS, INDEXES, SystemRows, TABLES};
use crate::error::{Error, Result};
use crate::ids::{IndexId, Lsn, TableId};
use crate::row::{RowView, Value};
use crate::store::memory::RecordRef;
use crate::store::memory::index::{Batch, Direction, Guard, More, ScanRange};

/// A table as it is at a place.
#[derive(Debug)]
pub(super) struct Described {
    pub description: Description,
    /// The place at which it got its heap: redo records of an earlier one are not for it.
    pub since: Lsn,
}

pub(super) fn is_system(table: TableId) -> bool {
    table.0 < FIRST_USER_ID
}

/// The rows of a system table with their places.
fn rows_of(table: &RedoTable) -> Result<Vec<(Lsn, Vec<Value>)>> {
    let mut rows = Vec::new();
    let mut body = Vec::new();
    let mut batch = Batch::new();
    batch.begin();
    loop {
        let more = table.primary.read_leaf(&ScanRange::ALL, Direction::Forward, Guard::Leave, &mut batch);
        for (_, record) in batch.iter() {
            let record = RecordRef(record);
            table.heap.segments().read(record, &mut body);
            let row = RowView::validate(&table.schema, &body)?;
            rows.push((table.heap.segments().lsn(record), row.values()));
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

/// The tables that the system tables describe at place `at`.
///
/// The rows can be ahead of `at`, because the backup copy is fuzzy. That matters for one thing: by which key the redo
/// records of a table name its rows, which ADD PRIMARY KEY changes. So an `is_primary` row of a later place does not
/// count; where the copy has lost the one before it, that one said "by row number". In the midst of the packet at `at`,
/// `keyed` has the `is_primary` rows that it has put so far: the others of that place are later.
///
/// Unless `complete`, tables with rows missing are left out: they are being dropped or created at a later place. So are
/// those whose storage begins at a later place: no redo record before it is for them, and the copy can have a part of the
/// rows that describe them, as many columns as had been put when it was made.
pub(super) fn tables_at(
    system: &[&RedoTable],
    at: Lsn,
    keyed: Option<&HashSet<IndexId>>,
    complete: bool,
) -> Result<Vec<Described>> {
    let rows = |id: TableId| {
        let table =
            system.iter().find(|table| table.description.id == id).expect("all system tables are there");
        rows_of(table)
    };
    let heaps = rows(HEAPS)?;
    let numbered =
        |table: &Value| heaps.iter().any(|(_, heap)| heap[0] == *table && heap[2] == Value::Bool(true));
    let mut all = SystemRows::default();
    let mut primaries: Vec<(Lsn, Vec<Value>)> = Vec::new();
    let is_later = |lsn: Lsn, row: &[Value]| {
        let put = |keyed: &HashSet<IndexId>| keyed.iter().any(|id| row[0] == Value::Int4(id.0 as i32));
        lsn > at || lsn == at && keyed.is_some_and(|keyed| !put(keyed))
    };
    for (lsn, row) in rows(INDEXES)? {
        if row[4] != Value::Bool(true) {
            all.indexes.push(row);
        } else if !is_later(lsn, &row) || !numbered(&row[1]) {
            match primaries.iter_mut().find(|(_, other)| other[1] == row[1]) {
                Some(other) if other.0 < lsn => *other = (lsn, row),
                Some(_) => {}
                None => primaries.push((lsn, row)),
            }
        }
    }
    all.tables = rows(TABLES)?.into_iter().map(|(_, row)| row).collect();
    all.columns = rows(COLUMNS)?.into_iter().map(|(_, row)| row).collect();
    if !complete {
        for row in &all.tables {
            if numbered(&row[0]) && !primaries.iter().any(|(_, primary)| primary[1] == row[0]) {
                primaries.push((Lsn::ZERO, by_row_number(&row[0])));
            }
        }
    }
    all.indexes.extend(primaries.into_iter().map(|(_, row)| row));
    all.heaps = heaps.iter().map(|(_, row)| row.clone()).collect();
    let since = |id: TableId| {
        let heap = heaps.iter().find(|(_, heap)| heap[0] == Value::Int4(id.0 as i32));
        heap.map_or(Lsn::ZERO, |&(lsn, _)| lsn)
    };
    let described = all.descriptions(complete)?.into_iter();
    let described = described.map(|description| Described { since: since(description.id), description });
    Ok(described.filter(|table| complete || table.since <= at).collect())
}

/// An `is_primary` row for a table whose rows are known by number.
fn by_row_number(table: &Value) -> Vec<Value> {
    let name = Value::Text(String::new());
    vec![
        Value::Int4(0),
        table.clone(),
        name,
        Value::Bool(true),
        Value::Bool(true),
        Value::Text(String::new()),
    ]
}

/// The error for a redo record that makes no sense for its table, though its packet's checksum is right.
pub(super) fn senseless(table: &RedoTable, lsn: Lsn, what: &str) -> Error {
    Error::Corrupt {
        file: format!("the log, place {lsn}"),
        offset: 0,
        what: format!("a redo record for table \"{}\": {what}", table.schema.table()),
    }
}
