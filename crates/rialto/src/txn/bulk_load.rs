//! Bulk loads: rows straight into a table that nobody else sees yet.
//!
//! A table that the transaction created or truncated has storage of its own, so after some rows into it, further ones
//! go there at once: not into the packet, but into a load file that is synced before the packet is pushed and that a
//! record of the packet names.

use std::sync::Arc;

use super::redo;
use super::transaction::Context;
use crate::checkpoint::image;
use crate::error::Result;
use crate::ids::Lsn;
use crate::row::{Key, WhichIndex};
use crate::store::memory::index::{Admit, Insert};
use crate::store::memory::{Heap, RecordRef};

/// Rows that go into a private table by the packet before a bulk load begins.
const ROWS_BEFORE_LOAD: usize = 256;

/// The load into one table.
pub(super) struct Load {
    pub heap: Arc<Heap>,
    pub file: u64,
    /// Where its record lies in the packet.
    pub packet_at: usize,
}

impl Context {
    /// Whether the next row of the table goes straight to its storage.
    pub fn inserts_directly(&mut self, slot: u32) -> bool {
        let Some(ddl) = &self.ddl else { return false };
        let table = self.tables.at(slot);
        let heap = table.heap.id();
        if ddl.loads.iter().any(|load| load.heap.id() == heap) {
            return true;
        }
        if !ddl.is_private(heap) || self.writes.count_of(heap) < ROWS_BEFORE_LOAD {
            return false;
        }
        let (heap, id) = (table.heap.clone(), table.id);
        let file = u64::from(self.core.catalog.new_id());
        let packet = self.packet.as_mut().expect("borrowed by check_write").bytes_mut();
        let packet_at = packet.len();
        redo::write_load(packet, id, file);
        self.ddl().loads.push(Load { heap, file, packet_at });
        true
    }

    /// Puts the row in `self.body`, whose absent key is in `self.key`, straight into the table.
    pub fn insert_direct(&mut self, slot: u32) -> Result<()> {
        let length = self.body.len();
        let record = self
            .with_claims(slot, |heap, number, claims| heap.allocate(number, length, claims))
            .ok_or_else(|| self.memory_limit())?;
        let table = self.tables.at(slot);
        table.segments().write(record, &self.body, Lsn::ZERO);
        table.heap.count_rows(self.number, 1);
        let mut key = Key::new();
        let mut failed =
            table.primary.insert(&self.key, record.0, || Admit::Go).is_err().then(|| self.memory_limit());
        for position in 0..table.secondaries.len() {
            if failed.is_some() {
                break;
            }
            table.schema.index_key_of_row(position, &self.body[table.row_at()..], &self.key, &mut key);
            failed = match table.secondaries[position].insert(&key, record.0, || Admit::Go) {
                Ok(Insert::Done) => None,
                Ok(_) => Some(self.duplicate(slot, WhichIndex::Secondary(position), &key)),
                Err(_) => Some(self.memory_limit()),
            };
        }
        if let Some(error) = failed {
            self.take_back_entries(slot, record);
            return Err(error);
        }
        if !self.savepoints.is_empty() {
            self.ddl().direct_rows.push((slot, record));
        }
        Ok(())
    }

    /// Takes a row back that is in some of its indexes.
    fn take_back_entries(&self, slot: u32, record: RecordRef) {
        let table = self.tables.at(slot);
        let mut key = Key::new();
        for (position, index) in table.secondaries.iter().enumerate() {
            table.schema.index_key_of_row(position, &self.body[table.row_at()..], &self.key, &mut key);
            if index.get(&key).value == Some(record.0) {
                index.remove(&key, None);
            }
        }
        if table.primary.get(&self.key).value == Some(record.0) {
            table.primary.remove(&self.key, None);
        }
        table.heap.release(self.number, record);
        table.heap.count_rows(self.number, -1);
    }

    /// Writes and syncs the load files that the packet names.
    pub fn prepare_ddl(&mut self) -> Result<()> {
        let Some(ddl) = &self.ddl else { return Ok(()) };
        for load in &ddl.loads {
            image::write_load_file(&*self.core.disk, self.core.database_id, load.file, &load.heap)?;
        }
        Ok(())
    }

    /// Takes a loaded row back.
    pub(super) fn take_back_direct(&mut self, slot: u32, record: RecordRef) {
        let mut body = Vec::new();
        let table = self.tables.at(slot);
        table.segments().read(record, &mut body);
        let row = &body[table.row_at()..];
        let (mut primary, mut key) = (Key::new(), Key::new());
        table.schema.primary_key_of_row(row, table.row_number(&body), &mut primary);
        for (position, index) in table.secondaries.iter().enumerate() {
            table.schema.index_key_of_row(position, row, &primary, &mut key);
            index.remove(&key, None);
        }
        table.primary.remove(&primary, None);
        table.heap.release(self.number, record);
        table.heap.count_rows(self.number, -1);
    }
}
