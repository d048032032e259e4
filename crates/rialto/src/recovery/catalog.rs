//! The contents of the system tables.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::HashMap;

use super::table::RedoTable;
use crate::catalog::Description;
use crate::catalog::system::{
    FIRST_USER_ID, HEAPS, INDEXES, RESIDENCE, SystemRows, TABLES, TakenNames, table_of,
};
use crate::error::{Error, Result};
use crate::ids::{Lsn, TableId};
use crate::row::{RowView, Value};
use crate::store::memory::RecordRef;
use crate::store::tree::{Batch, Direction, Guard, More, ScanRange};

pub(super) fn is_system(table: TableId) -> bool {
    table.0 < FIRST_USER_ID
}

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

/// The highest identifier in a row of a system table.
pub(super) fn highest_id(table: TableId, row: RowView<'_>) -> u32 {
    let columns: &[usize] = match table {
        TABLES => &[0],
        INDEXES => &[0, 1],
        HEAPS => &[0, 1],
        RESIDENCE => &[0],
        _ => &[],
    };
    let id = |&column: &usize| row.get_i32(column).ok().and_then(|id| u32::try_from(id).ok());
    columns.iter().filter_map(id).max().unwrap_or(0)
}

/// An identifier higher than this load file's number.
pub(super) fn after_load(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX).saturating_add(1)
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

/// A row of a system table: the table, and the row's key.
type RowId = (TableId, Box<[u8]>);

/// The contents of the system tables while redo changes them. It always equals the result of [`tables`], but describes
/// anew only the tables whose rows have changed: the time to redo a DDL statement does not depend on the number of
/// tables.
#[derive(Default)]
pub(super) struct Described {
    /// The rows about each table.
    rows: HashMap<TableId, BTreeMap<RowId, Vec<Value>>>,
    /// The table that each row is about.
    about: HashMap<RowId, TableId>,
    tables: HashMap<TableId, Description>,
    taken: TakenNames,
    /// The tables some of whose rows have changed since they were described.
    touched: BTreeSet<TableId>,
}

impl Described {
    /// The system tables as they are. No table is described yet: all of them count as changed.
    ///
    /// # Errors
    /// As [`tables`].
    pub fn of(system: &[Arc<RedoTable>], read_from: &str) -> Result<Described> {
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
    pub fn note(&mut self, system: &RedoTable, key: &[u8], lsn: Lsn) -> Result<()> {
        let found = system.primary.get(key).value.map(RecordRef);
        let values = found.map(|record| values_of(system, record)).transpose();
        let put = values.and_then(|values| self.put((system.description.id, key.into()), values));
        put.map_err(|what| damaged(&in_log(lsn), what))
    }

    fn put(&mut self, row: RowId, values: Option<Vec<Value>>) -> Result<(), String> {
        if let Some(before) = self.about.remove(&row) {
            self.touched.insert(before);
            if let Some(rows) = self.rows.get_mut(&before) {
                rows.remove(&row);
            }
        }
        if let Some(values) = values {
            let table = table_of(row.0, &values)?;
            self.touched.insert(table);
            self.about.insert(row.clone(), table);
            self.rows.entry(table).or_default().insert(row, values);
        }
        Ok(())
    }

    /// Whether some rows have changed since the last [`Described::changes`].
    pub fn is_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// The tables whose description has changed since the last time, each with its description; tables that are gone
    /// come first.
    ///
    /// # Errors
    /// As [`tables`].
    pub fn changes(&mut self, read_from: &str) -> Result<Vec<(TableId, Option<Description>)>> {
        self.describe_touched().map_err(|what| damaged(read_from, what))
    }

    fn describe_touched(&mut self) -> Result<Vec<(TableId, Option<Description>)>, String> {
        let mut changes = Vec::new();
        for id in std::mem::take(&mut self.touched) {
            let mut rows = SystemRows::default();
            for ((system, _), values) in self.rows.get(&id).into_iter().flatten() {
                rows.extend(*system, [values.clone()]);
            }
            let described = rows.descriptions()?.pop();
            if described.is_none() {
                self.rows.remove(&id);
            }
            if self.tables.get(&id) != described.as_ref() {
                changes.push((id, described));
            }
        }
        // A name may go from one table to the other.
        for (id, _) in &changes {
            if let Some(before) = self.tables.remove(id) {
                self.taken.give_back(&before);
            }
        }
        for (id, description) in &changes {
            if let Some(description) = description {
                self.taken.take(description)?;
                self.tables.insert(*id, description.clone());
            }
        }
        changes.sort_by_key(|(_, description)| description.is_some());
        Ok(changes)
    }

    /// Checks that the described tables are those that the system tables describe when all are read anew.
    ///
    /// # Errors
    /// As [`tables`]; [`Error::Corrupt`] if they differ.
    pub fn check(&self, system: &[Arc<RedoTable>], read_from: &str) -> Result<()> {
        let all = tables(system, read_from)?;
        if all.len() != self.tables.len() || all.iter().any(|one| self.tables.get(&one.id) != Some(one)) {
            let what =
                "they describe other tables at its end than the log's definitions have made".to_owned();
            return Err(damaged(read_from, what));
        }
        Ok(())
    }
}

/// Where a packet lies in the log, for errors.
pub(super) fn in_log(lsn: Lsn) -> String {
    format!("the log, place {lsn}")
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
