//! Records of system tables: the rows, and the changes of tables that they describe.

use std::sync::Arc;

use super::Redone;
use crate::catalog::description::check_index_count;
use crate::catalog::system::{self, highest_id, is_system, names_of, table_of};
use crate::catalog::{Description, SystemRowId};
use crate::commit::redo::{Change, RedoRecord};
use crate::commit::senseless::{self, no_system_table};
use crate::error::{Error, Result};
use crate::ids::TableId;
use crate::isolate::{LockMode, RecordMode};
use crate::row::{Key, RowView, Value};
use crate::store::TableVersion;
use crate::txn::ddl_state::DdlChange;

impl Redone<'_> {
    /// Redoes a record of a system table. The tables change when they are [brought in line](Redone::bring_in_line).
    pub(super) fn system_record(&mut self, record: &RedoRecord<'_>) -> Result<()> {
        if !self.defines {
            self.context.begin_ddl()?;
            self.defines = true;
        }
        let system = self.context.core.storage.catalog.by_id(record.table);
        let system = system.ok_or_else(|| no_system_table(self.lsn, record.table))?;
        let slot = self.context.use_table(&system, LockMode::IntentExclusive)?;
        // The tables that the row was and will be about are locked before it changes.
        if let Some(before) = self.system_row(slot, record.key)? {
            self.know_table_of(record.table, &before)?;
        }
        if let Change::Put { row, .. } = record.change {
            let schema = self.context.tables.at(slot).schema.clone();
            let row =
                RowView::validate(&schema, row).map_err(|error| self.senseless(slot, &error.to_string()))?;
            self.next_id = self.next_id.max(highest_id(record.table, row).saturating_add(1));
            self.know_table_of(record.table, &row.values())?;
        }
        self.change_row(slot, record)?;
        let after = self.system_row(slot, record.key)?;
        let row = (record.table, Box::from(record.key));
        self.described.put(row, after).map_err(|what| self.senseless_rows(&what))
    }

    fn senseless_rows(&self, what: &str) -> Error {
        senseless::packet(self.lsn, format!("the system tables: {what}"))
    }

    /// The row of this key in a system table, as the transaction sees it.
    fn system_row(&mut self, slot: u32, key: &[u8]) -> Result<Option<Vec<Value>>> {
        let context = &mut *self.context;
        context.key = Key::from(key);
        let location = context.seek_key(slot, RecordMode::Exclusive)?;
        if !context.read_at(slot, location)? {
            return Ok(None);
        }
        Ok(Some(RowView::new(&context.tables.at(slot).schema, &context.body).values()))
    }

    /// Locks the table that a row of a system table is about, and gets to know it.
    fn know_table_of(&mut self, system: TableId, row: &[Value]) -> Result<()> {
        let id = table_of(system, row).map_err(|what| self.senseless_rows(&what))?;
        if is_system(id) {
            return Err(self.senseless_rows(&format!("the row {row:?} is about a system table")));
        }
        if !self.known.insert(id) {
            return Ok(());
        }
        let Some(table) = self.context.core.storage.catalog.by_id(id) else { return Ok(()) };
        let slot = self.context.use_table(&table, LockMode::Exclusive)?;
        self.slots.insert(id, slot);
        let description = Description::of_version(self.context.tables.at(slot));
        let rows = self.rows_of(&description)?;
        self.described.know(description, rows).map_err(|what| self.senseless_rows(&what))
    }

    /// The rows of the system tables about a table that exists.
    fn rows_of(&self, description: &Description) -> Result<Vec<(SystemRowId, Vec<Value>)>> {
        let catalog = &self.context.core.storage.catalog;
        let with_key = |row: system::SystemRow| {
            let mut key = Key::new();
            let table = catalog.by_id(row.table).expect("the system tables are there");
            table.schema().encode_primary_key(&row.key, &mut key)?;
            Ok(((row.table, Box::from(&key[..])), row.values))
        };
        system::rows(description).into_iter().map(with_key).collect()
    }

    /// Brings the tables in line with what the system tables describe, if the records before this offset of the packet
    /// have changed that.
    pub(super) fn bring_in_line(&mut self, end: usize) -> Result<()> {
        if !self.described.is_touched() {
            return Ok(());
        }
        let changes = self.described.changes().map_err(|what| self.senseless_rows(&what))?;
        for (id, description) in changes {
            let now = self.slots.get(&id).map(|&slot| self.context.tables.shared(slot).clone());
            match (now, description) {
                (None, None) => {}
                (Some(now), None) => self.drop_table(now),
                (None, Some(description)) => self.create_table(description)?,
                (Some(now), Some(description)) if now.store.heap() != description.heap => {
                    self.empty_table(now, description)?;
                }
                (Some(now), Some(description)) => self.change_table(now, description, end)?,
            }
        }
        Ok(())
    }

    fn drop_table(&mut self, now: Arc<TableVersion>) {
        self.slots.remove(&now.id);
        self.private.remove(&now.id);
        self.context.ddl().push(DdlChange::Drop(now));
    }

    fn create_table(&mut self, description: Description) -> Result<()> {
        self.check_description(&description)?;
        self.check_heap(&description)?;
        let id = description.id;
        let version = Arc::new(self.context.build_empty(&without_indexes(&description))?);
        self.context.ddl().push(DdlChange::Create(version.clone()));
        let slot = self.context.tables.supersede(version);
        self.private.insert(id, description);
        let slot = self.context.use_slot(slot, LockMode::Exclusive)?;
        self.slots.insert(id, slot);
        Ok(())
    }

    /// Gives a table new storage.
    fn empty_table(&mut self, now: Arc<TableVersion>, description: Description) -> Result<()> {
        self.check_description(&description)?;
        self.check_heap(&description)?;
        let id = now.id;
        self.check_same(&now, &description)?;
        self.context.replace_storage(now, &without_indexes(&description))?;
        self.find_again(id);
        self.private.insert(id, description);
        Ok(())
    }

    /// Changes the indexes of a table. Its rows stay where they are.
    fn change_table(&mut self, now: Arc<TableVersion>, description: Description, end: usize) -> Result<()> {
        self.check_description(&description)?;
        self.check_same(&now, &description)?;
        let (id, was) = (now.id, Description::of_version(&now));
        if was.residence != description.residence || was.numbered != description.numbered {
            return Err(self.not_in_place(&description, "residence"));
        }
        if (was.primary_id, &was.primary_key) != (description.primary_id, &description.primary_key) {
            let is_added = was.primary_key.is_none()
                && description.primary_key.is_some()
                && was.primary_id != description.primary_id;
            if !is_added || now.store.pages().is_some() {
                return Err(self.not_in_place(&description, "primary key"));
            }
            self.identify(&Description { indexes: was.indexes.clone(), ..description.clone() }, end)?;
        }
        if let Some(private) = self.private.get_mut(&id) {
            *private = description;
            return Ok(());
        }
        let gone = was.indexes.iter().filter(|index| !description.indexes.contains(index));
        for index in gone {
            let slot = self.slot_of(id)?;
            let now = self.context.tables.at(slot).schema.indexes();
            let position = now.iter().position(|there| there == index).expect("the table had it");
            self.context.remove_index(slot, position)?;
            self.find_again(id);
        }
        for index in description.indexes.iter().filter(|index| !was.indexes.contains(index)) {
            let slot = self.slot_of(id)?;
            let built = self.context.build_secondary(slot, index)?;
            self.context.add_index(slot, index, built)?;
            self.find_again(id);
        }
        let slot = self.slot_of(id)?;
        match self.context.tables.at(slot).schema.indexes() == description.indexes {
            true => Ok(()),
            false => Err(self.not_in_place(&description, "order of its indexes")),
        }
    }

    /// Gives a table the primary key of a description. The rows that the transaction has written before get that, too. The
    /// packet has records of that, behind this offset, which are the same.
    fn identify(&mut self, description: &Description, end: usize) -> Result<()> {
        let slot = self.slot_of(description.id)?;
        let schema = Arc::new(description.schema()?);
        let built = self.context.build_primary(slot, &schema)?;
        let before = self.context.packet_bytes().len();
        self.context.identify(slot, schema, (description.primary_id, built))?;
        let renamed = &self.context.packet_bytes()[before..];
        if self.packet[end..].starts_with(renamed) {
            self.redone_to = end + renamed.len();
        }
        self.find_again(description.id);
        Ok(())
    }

    /// Notes where the newest version of a table is, after a change.
    pub(super) fn find_again(&mut self, id: TableId) {
        let slot = self.context.tables.find(id).expect("the definition has put it there");
        self.slots.insert(id, slot);
    }

    /// Refuses what no definition makes.
    fn check_description(&self, description: &Description) -> Result<()> {
        if !(10..=100).contains(&description.fill_percent)
            || description.primary_key.is_none() && !description.numbered
        {
            return Err(self.senseless_rows(&format!("table \"{}\" makes no sense", description.name)));
        }
        check_index_count(&description.name, description.indexes.len())?;
        self.context.check_residence(&description.name, description.residence)?;
        let catalog = &self.context.core.storage.catalog;
        for name in names_of(description) {
            let table = catalog.table(&name).ok().map(|table| table.id());
            let of_index = catalog.table_of_index(&name).map(|(table, _)| table.id());
            // What the packet's definitions do with the names of tables that they are about is known.
            let is_taken = |other: TableId| other != description.id && !self.known.contains(&other);
            if table.into_iter().chain(of_index).any(is_taken) {
                return Err(self.senseless_rows(&format!("\"{name}\" is the name of two tables or indexes")));
            }
        }
        Ok(())
    }

    /// Refuses storage that a table has.
    fn check_heap(&self, description: &Description) -> Result<()> {
        if system::is_system_heap(description.heap)
            || self.context.core.storage.catalog.has_heap(description.heap)
        {
            let what =
                format!("table \"{}\" gets heap {}, which a table has", description.name, description.heap.0);
            return Err(self.senseless_rows(&what));
        }
        Ok(())
    }

    /// Refuses a change of what no definition changes.
    fn check_same(&self, now: &TableVersion, description: &Description) -> Result<()> {
        let is_same = now.name() == description.name
            && now.fill_percent == description.fill_percent
            && now.schema.stored_columns() == description.columns;
        if is_same { Ok(()) } else { Err(self.not_in_place(description, "name, columns or fill factor")) }
    }

    fn not_in_place(&self, description: &Description, what: &str) -> Error {
        let name = &description.name;
        self.senseless_rows(&format!(
            "table \"{name}\" changes its {what} as no definition of this program does"
        ))
    }
}

fn without_indexes(description: &Description) -> Description {
    Description { indexes: Vec::new(), ..description.clone() }
}
