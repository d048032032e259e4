//! [`Described`]: the tables that rows of the system tables describe, while redo changes the rows.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;

use super::Description;
use super::system::{SystemRows, TakenNames, table_of};
use crate::ids::TableId;
use crate::row::Value;

/// A row of a system table: the table, and the row's key.
pub(crate) type SystemRowId = (TableId, Box<[u8]>);

/// The contents of the system tables while redo changes them. It describes anew only the tables whose rows have
/// changed: the time to redo a DDL statement does not depend on the number of tables.
#[derive(Default)]
pub(crate) struct Described {
    /// The rows about each table.
    rows: HashMap<TableId, BTreeMap<SystemRowId, Vec<Value>>>,
    /// The table that each row is about.
    about: HashMap<SystemRowId, TableId>,
    tables: HashMap<TableId, Description>,
    taken: TakenNames,
    /// The tables some of whose rows have changed since they were described.
    touched: BTreeSet<TableId>,
}

impl Described {
    /// Puts a row, or removes it if it has no values.
    ///
    /// # Errors
    /// The row names no table; the text says so.
    pub fn put(&mut self, row: SystemRowId, values: Option<Vec<Value>>) -> Result<(), String> {
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

    /// Adds a table that exists, with the rows that describe it. It does not count as changed.
    ///
    /// # Errors
    /// Another table has one of its names; the text says which.
    pub fn know(
        &mut self,
        description: Description,
        rows: impl IntoIterator<Item = (SystemRowId, Vec<Value>)>,
    ) -> Result<(), String> {
        self.taken.take(&description)?;
        let of_table = self.rows.entry(description.id).or_default();
        for (row, values) in rows {
            self.about.insert(row.clone(), description.id);
            of_table.insert(row, values);
        }
        self.tables.insert(description.id, description);
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
    /// The rows make no sense; the text says which.
    pub fn changes(&mut self) -> Result<Vec<(TableId, Option<Description>)>, String> {
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

    /// Whether these are the described tables.
    pub fn are(&self, all: &[Description]) -> bool {
        all.len() == self.tables.len() && all.iter().all(|one| self.tables.get(&one.id) == Some(one))
    }
}
