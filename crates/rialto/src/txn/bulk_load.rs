//! Bulk loads: rows go straight into a table that no other transaction sees yet.
//!
//! A table that the transaction created or truncated has storage of its own. Once the transaction has written
//! `ROWS_BEFORE_LOAD` rows to the table by its packet (or, if the table is in pages, `BYTES_BEFORE_LOAD` bytes), further rows
//! go straight into this storage. The packet does not have these rows. They are in a load file, which a record of the
//! packet names, and which is synced before the packet is pushed.
//!
//! Rows that were loaded into pages cannot be taken back singly. So while a savepoint younger than the table is open, the
//! table's rows go through the packet.

use super::context::Context;
use super::seek::SlotClaims;
use crate::commit::redo;
use crate::commit::write_set::CurrentLocation;
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::ids::Lsn;
use crate::row::{Key, WhichIndex};
use crate::store::{Admit, Entered, RowLocation, TableStore};

/// The rows that go into a private table by the packet before a bulk load begins.
const ROWS_BEFORE_LOAD: usize = 256;

/// The same of the bytes of the packet, for a disk-resident table: its rows claim pages in memory.
const BYTES_BEFORE_LOAD: usize = 256 << 10;

/// The runs of loaded rows of one transaction take at most this many times the bytes of the longest write set.
const RUNS_PER_PACKET: usize = 4;

/// The load into one table.
pub(super) struct TableLoad {
    pub store: TableStore,
    pub file: u64,
    /// Where the load's record begins and ends in the packet.
    pub packet_at: usize,
    pub packet_end: usize,
    pub written: LoadFileIs,
}

/// What has become of the file of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadFileIs {
    /// The commit writes it.
    ToBeWritten,
    /// It is written, and its digest is in the packet. An abort removes it.
    Written,
    /// It was there before the transaction, which redoes it. An abort leaves it.
    Received,
}

impl Context {
    /// Whether the next row of the table goes straight to its storage. A transaction that may be prepared, or has voted, keeps its
    /// rows in its packet: no checkpoint would keep a load file for it.
    pub fn inserts_directly(&mut self, slot: u32) -> bool {
        if self.ddl.is_none() || self.noted_locks.is_some() || self.has_voted() {
            return false;
        }
        let Some(ddl) = &mut self.ddl else { return false };
        let table = self.tables.at(slot);
        let heap = table.store.heap();
        // A row in pages is taken back only with its table.
        let last = self.savepoints.last().map_or(0, |savepoint| savepoint.ddl_changes);
        if table.store.pages().is_some() && !ddl.is_made_since(heap, last) {
            return false;
        }
        if ddl.is_loaded(heap) {
            return true;
        }
        if !ddl.is_private(heap) {
            return false;
        }
        let packet = self.packet.as_ref().map_or(0, |packet| packet.bytes().len());
        let is_long = table.store.pages().is_some() && packet >= BYTES_BEFORE_LOAD;
        if !is_long && ddl.write_counts.of(heap, &self.writes) < ROWS_BEFORE_LOAD {
            return false;
        }
        let (store, id) = (table.store.clone(), table.id);
        // Without a number for its file there is no load: the rows continue to go by the packet.
        let Ok(file) = self.core.storage.catalog.new_id().map(u64::from) else { return false };
        let packet = self.packet.as_mut().expect("borrowed by check_write").bytes_mut();
        let packet_at = packet.len();
        // The file is written at the commit, which also sets its digest here.
        redo::write_load(packet, id, file, Some(0));
        let packet_end = packet.len();
        self.ddl().add_load(TableLoad {
            store,
            file,
            packet_at,
            packet_end,
            written: LoadFileIs::ToBeWritten,
        });
        true
    }

    /// Puts the row in `self.body`, whose absent key is in `self.key`, straight into the table. Rolling back to a mark
    /// does not take this back. Therefore it is the last step of an operation, and everything that the operation has
    /// put into the packet fits by then.
    pub fn insert_direct(&mut self, slot: u32) -> Result<()> {
        let written = self.packet_bytes().len();
        if written > self.room {
            return Err(self.too_large(written));
        }
        if self.pages(slot).is_some() {
            return self.load_in_pages(slot);
        }
        self.check_room_for_runs()?;
        let length = self.body.len();
        let ask = |store: &TableStore, number: usize, claims: &mut SlotClaims<'_>| {
            store.reserve(number, length, claims)
        };
        let record = match self.with_claims(slot, ask) {
            Some(record) => record,
            None => self.slot_at_bound(slot, ask)?,
        };
        let store = &self.tables.at(slot).store;
        store.put(record, &self.body, Lsn::ZERO);
        store.count_rows(self.number, 1);
        let mark = self.mark();
        if let Err(error) = self.enter_direct(slot, record) {
            // First the entries that this row has taken over go back to the other rows of this transaction that had
            // them.
            self.roll_back_to(&mark);
            self.take_back_direct(slot, record);
            return Err(error);
        }
        if !self.savepoints.is_empty() {
            let Context { tables, ddl, .. } = self;
            tables.at(slot).store.note_loaded(&mut ddl.get_or_insert_default().loaded_rows, slot, record);
        }
        Ok(())
    }

    /// Whether the runs of loaded rows leave room for one more. Without an open savepoint there are no runs.
    fn check_room_for_runs(&mut self) -> Result<()> {
        let limit = RUNS_PER_PACKET * self.core.defaults.write_set_bytes_max;
        match self.ddl().loaded_rows.bytes() {
            length if length > limit => Err(Error::WriteSetTooLarge { length, limit }),
            _ => Ok(()),
        }
    }

    /// Puts the row in `self.body` into all indexes of the table, which no other transaction sees. Therefore no key
    /// needs a lock, and an existing entry belongs to one of this transaction's rows, which still has the key or has
    /// given it up.
    fn enter_direct(&mut self, slot: u32, record: RowLocation) -> Result<()> {
        let mut key = self.key.clone();
        let entered = self.insert_entry(slot, WhichIndex::Primary, &key, record)?;
        debug_assert!(!matches!(entered, Entered::Exists(_)), "the key was absent");
        for position in 0..self.tables.at(slot).schema.indexes().len() {
            let which = WhichIndex::Secondary(position);
            self.secondary_key(slot, position, None, &mut key);
            let Entered::Exists(there) = self.insert_entry(slot, which, &key, record)? else { continue };
            let taken =
                self.is_taken(slot, position, &key)? && !fault_injection::is_on("load-skips-unique-keys");
            if taken || fault_injection::is_on("duplicate-after-load") {
                return Err(self.duplicate(slot, which, &key));
            }
            self.tables.at(slot).store.repoint(which, &key, there, record);
            self.note_entry(slot, which, &key, record, Some(there))?;
        }
        Ok(())
    }

    fn insert_entry(
        &mut self,
        slot: u32,
        which: WhichIndex,
        key: &Key,
        record: RowLocation,
    ) -> Result<Entered> {
        let insert =
            |context: &mut Context| context.tables.at(slot).store.enter(which, key, record, || Admit::Go);
        insert(self).map_or_else(|| self.at_bound(Some(slot), insert), Ok)
    }

    /// Writes and syncs the load files that the packet names, and puts their digests into the packet.
    pub fn prepare_ddl(&mut self) -> Result<()> {
        let Context { core, ddl: Some(ddl), packet: Some(packet), cancellation, .. } = self else {
            return Ok(());
        };
        if !core.commits.names_load_files() {
            return Ok(());
        }
        let _pass = core.storage.pass_to_load_files()?;
        for load in ddl.loads().iter().filter(|load| load.written == LoadFileIs::ToBeWritten) {
            let check = || if cancellation.is_asked() { Err(Error::Cancelled) } else { Ok(()) };
            let file = (core.storage.database_id, load.file);
            let digest = load.store.write_load_file(&*core.storage.disk, file, &check)?;
            redo::set_load_digest(packet.bytes_mut(), load.packet_end, digest);
        }
        Ok(())
    }

    /// Takes the row of the key in `self.key` out of a table that no other transaction sees, and that has it from
    /// [`Context::insert_direct`]. False if it is not there.
    pub(super) fn remove_direct(&mut self, slot: u32) -> Result<bool> {
        let CurrentLocation::Stored(record) = self.locate(slot)? else { return Ok(false) };
        let table = self.tables.at(slot);
        let Some(pages) = table.store.pages() else {
            self.take_back_direct(slot, record);
            return Ok(true);
        };
        let mut body = Vec::new();
        pages.read(&self.page_access, &self.key, &mut body)?;
        let row = &body[table.row_at()..];
        let entry = |position| {
            let mut entry = Key::new();
            table.schema.index_key_of_row(position, row, &self.key, &mut entry);
            entry
        };
        let entries: Vec<Key> = (0..table.schema.indexes().len()).map(entry).collect();
        pages.unload(&self.page_access, &self.key, record, &entries)?;
        Ok(true)
    }

    /// Takes back a loaded row, which may be in only some of its indexes. Entries that it took over from other rows, or
    /// that others took over from it, have been given back.
    pub(super) fn take_back_direct(&mut self, slot: u32, record: RowLocation) {
        let mut body = Vec::new();
        let table = self.tables.at(slot);
        let store = &table.store;
        store.read(record, &mut body);
        let row = &body[table.row_at()..];
        let (mut primary, mut key) = (Key::new(), Key::new());
        table.schema.primary_key_of_row(row, table.row_number(&body), &mut primary);
        for position in 0..table.schema.indexes().len() {
            table.schema.index_key_of_row(position, row, &primary, &mut key);
            store.remove_own(WhichIndex::Secondary(position), &key, &[record], None);
        }
        store.remove_own(WhichIndex::Primary, &primary, &[record], None);
        store.release(self.number, record);
        store.count_rows(self.number, -1);
    }
}
