//! Bulk loads: rows straight into a table that nobody else sees yet.
//!
//! A table that the transaction created or truncated has storage of its own, so after some rows into it, further ones
//! go there at once: not into the packet, but into a load file that is synced before the packet is pushed and that a
//! record of the packet names.

use std::sync::Arc;

use super::context::Context;
use super::loaded_rows::RUNS_PER_PACKET;
use super::seek::SlotClaims;
use crate::canary;
use crate::commit::redo;
use crate::error::{Error, Result};
use crate::ids::Lsn;
use crate::row::{Key, WhichIndex};
use crate::store::memory::image;
use crate::store::memory::index::{Admit, Index, Insert};
use crate::store::memory::{Heap, RecordRef};

/// Rows that go into a private table by the packet before a bulk load begins.
const ROWS_BEFORE_LOAD: usize = 256;

/// Removes an entry if it leads to this record.
fn remove_entry(index: &Index, key: &Key, record: RecordRef) {
    if index.get(key).value == Some(record.0) {
        index.remove(key, None);
    }
}

/// The load into one table.
pub(super) struct Load {
    pub heap: Arc<Heap>,
    pub file: u64,
    /// Where its record begins and ends in the packet.
    pub packet_at: usize,
    pub packet_end: usize,
}

impl Context {
    /// Whether the next row of the table goes straight to its storage.
    pub fn inserts_directly(&mut self, slot: u32) -> bool {
        let Some(ddl) = &mut self.ddl else { return false };
        let table = self.tables.at(slot);
        let heap = table.heap.id();
        if ddl.is_loaded(heap) {
            return true;
        }
        if !ddl.is_private(heap) || ddl.write_counts.of(heap, &self.writes) < ROWS_BEFORE_LOAD {
            return false;
        }
        let (heap, id) = (table.heap.clone(), table.id);
        // Without a number for its file there is no load: the rows go on by the packet.
        let Ok(file) = self.core.storage.catalog.new_id().map(u64::from) else { return false };
        let packet = self.packet.as_mut().expect("borrowed by check_write").bytes_mut();
        let packet_at = packet.len();
        // The file is written at the commit, and has its digest then.
        redo::write_load(packet, id, file, Some(0));
        let packet_end = packet.len();
        self.ddl().add_load(Load { heap, file, packet_at, packet_end });
        true
    }

    /// Puts the row in `self.body`, whose absent key is in `self.key`, straight into the table. Rolling back to a mark does not
    /// take it back, so this is the last of an operation's steps, and what the operation has put into the packet fits by then.
    pub fn insert_direct(&mut self, slot: u32) -> Result<()> {
        let written = self.packet_bytes().len();
        if written > self.room {
            return Err(self.too_large(written));
        }
        self.check_room_for_runs()?;
        let length = self.body.len();
        let ask =
            |heap: &Heap, number: usize, claims: &mut SlotClaims<'_>| heap.allocate(number, length, claims);
        let record = match self.with_claims(slot, ask) {
            Some(record) => record,
            None => self.slot_at_bound(slot, ask)?,
        };
        let table = self.tables.at(slot);
        table.segments().write(record, &self.body, Lsn::ZERO);
        table.heap.count_rows(self.number, 1);
        let mark = self.mark();
        if let Err(error) = self.enter_direct(slot, record) {
            // First the entries that it has taken over from other rows of this transaction: these have them again.
            self.roll_back_to(&mark);
            self.take_back_direct(slot, record);
            return Err(error);
        }
        if !self.savepoints.is_empty() {
            let units = self.core.storage.segments.units(record);
            self.ddl().loaded_rows.push(slot, record, units);
        }
        Ok(())
    }

    /// Whether the runs of loaded rows leave room for one more. Without an open savepoint there are none.
    fn check_room_for_runs(&mut self) -> Result<()> {
        let limit = RUNS_PER_PACKET * self.core.defaults.write_set_bytes_max;
        match self.ddl().loaded_rows.bytes() {
            length if length > limit => Err(Error::WriteSetTooLarge { length, limit }),
            _ => Ok(()),
        }
    }

    /// Puts the row in `self.body` into all indexes of the table, which no other transaction sees: so no key needs a lock,
    /// and an entry
    /// that is there already is of one of this transaction's rows, which has the key still, or has given it up.
    fn enter_direct(&mut self, slot: u32, record: RecordRef) -> Result<()> {
        let mut key = self.key.clone();
        let entered = self.insert_entry(slot, WhichIndex::Primary, &key, record)?;
        debug_assert!(!matches!(entered, Insert::Exists(_)), "the key was absent");
        for position in 0..self.tables.at(slot).secondaries.len() {
            let which = WhichIndex::Secondary(position);
            self.secondary_key(slot, position, None, &mut key);
            let Insert::Exists(there) = self.insert_entry(slot, which, &key, record)? else { continue };
            let taken = self.is_taken(slot, position, &key) && !canary::is_back("load-skips-unique-keys");
            if taken || canary::is_back("duplicate-after-load") {
                return Err(self.duplicate(slot, which, &key));
            }
            self.tables.at(slot).index(which).replace(&key, there, record.0);
            let replaced = Some(RecordRef(there));
            self.note_entry(slot, which, &key, record, replaced)?;
        }
        Ok(())
    }

    fn insert_entry(&mut self, slot: u32, which: WhichIndex, key: &Key, record: RecordRef) -> Result<Insert> {
        let insert = |context: &mut Context| {
            context.tables.at(slot).index(which).insert(key, record.0, || Admit::Go).ok()
        };
        insert(self).map_or_else(|| self.at_bound(Some(slot), insert), Ok)
    }

    /// Writes and syncs the load files that the packet names, and completes their names by their digests.
    pub fn prepare_ddl(&mut self) -> Result<()> {
        let Context { core, ddl: Some(ddl), packet: Some(packet), .. } = self else { return Ok(()) };
        if !core.commits.names_load_files() {
            return Ok(());
        }
        let _pass = core.storage.pass_to_load_files()?;
        for load in ddl.loads() {
            let digest =
                image::write_load_file(&*core.storage.disk, core.storage.database_id, load.file, &load.heap)?;
            redo::set_load_digest(packet.bytes_mut(), load.packet_end, digest);
        }
        Ok(())
    }

    /// Takes back a loaded row, which may be in some of its indexes only. Entries that it has taken over from other rows, or that
    /// others have from it, have been given back.
    pub(super) fn take_back_direct(&mut self, slot: u32, record: RecordRef) {
        let mut body = Vec::new();
        let table = self.tables.at(slot);
        table.segments().read(record, &mut body);
        let row = &body[table.row_at()..];
        let (mut primary, mut key) = (Key::new(), Key::new());
        table.schema.primary_key_of_row(row, table.row_number(&body), &mut primary);
        for (position, index) in table.secondaries.iter().enumerate() {
            table.schema.index_key_of_row(position, row, &primary, &mut key);
            remove_entry(index, &key, record);
        }
        remove_entry(&table.primary, &primary, record);
        table.heap.release(self.number, record);
        table.heap.count_rows(self.number, -1);
    }
}
