//! Rewriting a table: its rows are copied to new storage, under a new description. Redo reads the copies from the packet, or from its
//! load file.

use super::context::Context;
use super::ddl::check_keys;
use crate::catalog::{Description, Residence, system};
use crate::error::Result;
use crate::ids::HeapId;

impl Context {
    /// Moves a table to memory, or to the disk.
    pub(super) fn set_residence(&mut self, table: &str, residence: Residence) -> Result<()> {
        let slot = self.take_table(table)?;
        let mut description = Description::of_version(self.tables.at(slot));
        if description.residence == residence {
            return Ok(());
        }
        self.check_residence(table, residence)?;
        description.residence = residence;
        self.rewrite(slot, description)
    }

    /// Puts the rows of a table that this transaction has locked exclusively, as it sees them, into new storage of another
    /// description.
    pub(super) fn rewrite(&mut self, slot: u32, mut description: Description) -> Result<()> {
        let old = self.tables.shared(slot).clone();
        description.heap = HeapId(self.core.storage.catalog.new_id()?);
        self.replace_system_rows(&Description::of_version(&old), &description)?;
        let new = self.replace_storage(old.clone(), &description)?;
        let to = self.tables.find(new.id).expect("just replaced");
        let mut body = Vec::new();
        let what = format!("copying the rows of table \"{}\"", old.name());
        self.each_row(slot, what, |context, seen| {
            check_keys(&new.schema, seen.row)?;
            body.clear();
            body.extend_from_slice(seen.body);
            let number = new.row_number(&body);
            new.schema.primary_key_of_row(&body[new.row_at()..], number, &mut context.key);
            std::mem::swap(&mut context.body, &mut body);
            context.insert_body(to)?;
            Ok(true)
        })
    }

    /// Replaces the rows of the system tables that describe a table.
    pub(super) fn replace_system_rows(&mut self, old: &Description, new: &Description) -> Result<()> {
        let (old, new) = (system::rows(old), system::rows(new));
        for row in old.iter().filter(|row| !new.contains(row)) {
            self.delete_system_row(row)?;
        }
        new.iter().filter(|row| !old.contains(row)).try_for_each(|row| self.put_system_row(row))
    }
}
