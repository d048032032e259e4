//! Records of rows in storage that the packet itself has made.
//!
//! No other transaction sees this storage, and an abort gives it back as a whole. So its rows go straight there, as
//! those of a bulk load do, and the write set has none of them. They go into the primary index alone. A load file has the rows as they
//! were in the end, and comes before records that change some of them. So two of its rows may have a unique key
//! that one of them gives up later. The secondary indexes are built when all records are redone.

use super::Redone;
use crate::catalog::system::after_load;
use crate::commit::redo::{Change, RedoRecord};
use crate::commit::write_set::CurrentLocation;
use crate::error::Result;
use crate::row::Key;
use crate::txn::bulk_load::{LoadFileIs, TableLoad};
use crate::txn::context::Context;

impl Context {
    /// Puts the body in `self.body` at the key in `self.key`, over a row that is there.
    fn put_direct(&mut self, slot: u32) -> Result<()> {
        self.remove_direct(slot)?;
        self.insert_direct(slot)
    }
}

impl Redone<'_> {
    /// Redoes a record of these bytes.
    pub(super) fn private_record(&mut self, record: &RedoRecord<'_>, bytes: &[u8]) -> Result<()> {
        let slot = self.slot_of(record.table)?;
        match record.change {
            Change::Put { row_number, row } => {
                self.compose(slot, record.key, (row_number, row))?;
                self.context.put_direct(slot)?;
            }
            Change::Patch(_) | Change::Operate(_) => {
                self.context.key = Key::from(record.key);
                let location = self.context.locate(slot)?;
                if matches!(location, CurrentLocation::Absent(_)) {
                    return Err(self.missing(slot, record));
                }
                self.context.read_at(slot, location)?;
                self.patch(slot, record)?;
                self.context.put_direct(slot)?;
            }
            Change::Delete => {
                self.context.key = Key::from(record.key);
                if !self.context.remove_direct(slot)? {
                    return Err(self.missing(slot, record));
                }
            }
            Change::Load { file, digest } => return self.load(slot, (file, digest), bytes),
        }
        self.log(bytes);
        Ok(())
    }

    /// Redoes the rows of a load file.
    fn load(&mut self, slot: u32, (file, digest): (u64, Option<u64>), bytes: &[u8]) -> Result<()> {
        let core = self.context.core.clone();
        core.storage.for_each_loaded((file, digest), |body| {
            self.context.check()?;
            core.redo_steps.step();
            self.compose_loaded(slot, body)?;
            self.context.put_direct(slot)
        })?;
        self.next_id = self.next_id.max(after_load(file));
        let packet_at = self.context.packet_bytes().len();
        self.log(bytes);
        let store = self.context.tables.at(slot).store.clone();
        let (packet_end, written) = (packet_at + bytes.len(), LoadFileIs::Received);
        self.context.ddl().add_load(TableLoad { store, file, packet_at, packet_end, written });
        Ok(())
    }

    /// Appends a record to the transaction's packet.
    fn log(&mut self, bytes: &[u8]) {
        let packet = self.context.packet.as_mut().expect("borrowed by check_write");
        packet.bytes_mut().extend_from_slice(bytes);
    }

    /// Builds the secondary indexes.
    pub(super) fn finish_private(&mut self) -> Result<()> {
        for (id, description) in std::mem::take(&mut self.private) {
            for index in &description.indexes {
                let slot = self.slot_of(id)?;
                let built = self.context.build_secondary(slot, index)?;
                self.context.add_index(slot, index, built)?;
                self.find_again(id);
            }
        }
        Ok(())
    }
}
