//! Moving a table to memory or to the disk while it is used.
//!
//! [`TableMove`] is a transaction that fills new storage, which no other transaction sees, without a lock on the table. Other, short
//! transactions read the rows for it, batch by batch, under the usual locks. From before the first of them the table is watched
//! ([`WatchedTables`](crate::store::WatchedTables)): a row that a commit has changed since it was copied is *behind*, and is copied
//! again. Once few rows are behind, the copy is written to a load file, as a bulk load's rows are. Copies of rows after that go
//! to the storage and, as redo records, behind the load's record into the packet. At last the move takes the locks of a definition, copies
//! what is still behind, gives the storage to the table, and commits.
//!
//! Invariants:
//!
//! - **At the commit the copy has the table's rows**: each row was read after the table was watched, and again after each commit that
//!   has changed it. The last read is under the table's lock.
//! - **Redo makes the same rows**: the load file has all that was copied before it, the packet all after it, in order.
//!
//! Unique keys may collide in the copy while rows are behind: of two rows that exchange their keys, one may be copied first. The
//! second row is then noted as changed. Under the table's lock all noted rows are removed from the copy before any is inserted again,
//! so their unique keys cannot collide.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use super::bulk_load::{LoadFileIs, TableLoad};
use super::context::Context;
use super::core::Core;
use super::scan::{ByteScan, Reads};
use super::transaction::Transaction;
use crate::catalog::{Description, Residence};
use crate::commit::Logging;
use crate::commit::redo;
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::ids::{HeapId, TableId};
use crate::isolate::{LockMode, RecordMode};
use crate::row::{Key, WhichIndex};
use crate::store::{ChangedRows, Direction, StoragePart, Table, TableVersion};

/// The rows that are read under locks at a time.
pub(crate) const ROWS_AT_A_TIME: usize = 256;
/// A table with fewer rows is moved under its lock, at once.
const ROWS_MIN: u64 = 1_024;

/// Room in the packet for the records of the definition, and of the load.
const ROOM_FOR_RECORDS: usize = 64 << 10;

/// A row as it was read: its key, and its body if there is one.
pub(crate) type ReadRow = (Key, Option<Vec<u8>>);

/// A table's copy on its way, in the transaction that makes it.
pub(crate) struct TableMove {
    core: Arc<Core>,
    /// The table as it was when the move began.
    pub old: Arc<TableVersion>,
    pub residence: Residence,
    /// The copy: a table that only this transaction knows.
    fresh: Arc<TableVersion>,
    slot: u32,
    /// The load file with the copy, and its digest, once it is written.
    file: Option<(u64, u64)>,
    /// Redo records of what was copied since.
    since_file: Vec<u8>,
    /// Whether the transaction's definitions have the copy: what becomes of them becomes of it.
    is_given: bool,
}

/// How a move ended that has taken the locks of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finished {
    /// The table has the storage.
    Moved,
    /// Another definition has changed the table meanwhile.
    Redefined,
    /// More rows have changed meanwhile than are noted.
    TooFarBehind,
}

impl TableMove {
    /// Begins to move a table of at least [`ROWS_MIN`] rows. `None`: it is moved under its lock, or there already.
    pub fn begin(
        tx: &mut Transaction<'static>,
        table: &Table,
        residence: Residence,
    ) -> Result<Option<TableMove>> {
        tx.operate(|context| context.begin_move(table, residence))
    }

    /// Puts rows into the copy, as they were read, that are not there. A row whose unique key is in the way is noted as behind.
    pub fn copy(
        &mut self,
        tx: &mut Transaction<'static>,
        rows: &[ReadRow],
        behind: &ChangedRows,
    ) -> Result<()> {
        tx.operate(|context| context.copy_rows(self, rows, behind))
    }

    /// As [`TableMove::copy`], of rows that may be in the copy.
    pub fn copy_again(
        &mut self,
        tx: &mut Transaction<'static>,
        rows: &[ReadRow],
        behind: &ChangedRows,
    ) -> Result<()> {
        tx.operate(|context| {
            rows.iter().try_for_each(|(key, _)| context.remove_copy(self, key))?;
            context.copy_rows(self, rows, behind)
        })
    }

    /// Writes the copy to its load file. What is copied later goes into the packet, too.
    pub fn write_file(&mut self, tx: &mut Transaction<'static>) -> Result<()> {
        tx.operate(|context| context.write_copy(self))
    }

    /// Takes the locks of a definition, copies what is behind, and gives the copy to the table, for the commit to come.
    pub fn finish(&mut self, tx: &mut Transaction<'static>, behind: &ChangedRows) -> Result<Finished> {
        tx.operate(|context| context.finish_move(self, behind))
    }
}

/// A move that fails gives its memory or pages back, and removes its file. Its transaction still has to be aborted.
impl Drop for TableMove {
    fn drop(&mut self) {
        if self.is_given {
            return;
        }
        let storage = &self.core.storage;
        if let (Some((file, _)), Ok(_pass)) = (self.file, storage.pass_to_load_files()) {
            storage.remove_load_file(file);
        }
        self.fresh.retire();
        StoragePart::all_of(&self.fresh).iter().for_each(StoragePart::discard);
    }
}

/// The reads of a move, each in a transaction of its own.
impl Transaction<'_> {
    /// Reads the next rows of a table behind this key, under locks, if the table is still this version. Gives them in order; fewer
    /// than [`ROWS_AT_A_TIME`] are the last ones.
    pub(crate) fn read_rows_behind(
        &mut self,
        table: &Table,
        version: &Arc<TableVersion>,
        key: Option<&Key>,
    ) -> Result<Option<Vec<ReadRow>>> {
        self.operate(|context| context.read_rows_behind(table, version, key))
    }

    /// Reads the rows of these keys, under locks, if the table is still this version.
    pub(crate) fn read_rows_of(
        &mut self,
        table: &Table,
        version: &Arc<TableVersion>,
        keys: &[Key],
    ) -> Result<Option<Vec<ReadRow>>> {
        self.operate(|context| match context.use_version(table, version)? {
            Some(slot) => context.read_locked_rows(slot, keys.to_vec()).map(Some),
            None => Ok(None),
        })
    }
}

impl Context {
    fn begin_move(&mut self, table: &Table, residence: Residence) -> Result<Option<TableMove>> {
        let old = table.version();
        let mut description = Description::of_version(&old);
        let core = self.core.clone();
        let catalog = &core.storage.catalog;
        if description.residence == residence
            || catalog.is_system(old.id)
            || self.core.commits.logging == Logging::Transaction
            || old.store.rows() < ROWS_MIN
        {
            return Ok(None);
        }
        self.check_write()?;
        // The copy has its own table identifier, so that locks and look-ups do not confuse it with the table.
        (description.id, description.heap) = (TableId(catalog.new_id()?), HeapId(catalog.new_id()?));
        description.residence = residence;
        let fresh = Arc::new(self.build_empty(&description)?);
        self.forget_tables = true;
        let slot = self.tables.supersede(fresh.clone());
        let (file, since_file, is_given) = (None, Vec::new(), false);
        let copy = TableMove { core, old, residence, fresh, slot, file, since_file, is_given };
        // With it no row of the copy needs a lock.
        self.use_slot(slot, LockMode::Exclusive)?;
        Ok(Some(copy))
    }

    fn read_rows_behind(
        &mut self,
        table: &Table,
        version: &Arc<TableVersion>,
        key: Option<&Key>,
    ) -> Result<Option<Vec<ReadRow>>> {
        let Some(slot) = self.use_version(table, version)? else { return Ok(None) };
        let low = key.map_or(Bound::Unbounded, |key| Bound::Excluded(key.clone()));
        let range = ByteScan {
            index: WhichIndex::Primary,
            bounds: (low, Bound::Unbounded),
            direction: Direction::Forward,
            mode: RecordMode::Shared,
            reads: Reads::Rows,
            limit: Some(ROWS_AT_A_TIME as u64),
            before: 0,
        };
        let mut keys = Vec::with_capacity(ROWS_AT_A_TIME);
        let mut scratch = self.scan_scratch.take().unwrap_or_default();
        let scanned = self.scan_bytes(slot, &range, &mut scratch, &mut |key, _| {
            keys.push(key.0.clone());
            Ok(ControlFlow::Continue(()))
        });
        self.scan_scratch = Some(scratch);
        scanned?;
        self.read_locked_rows(slot, keys).map(Some)
    }

    /// Uses a table that is still this version.
    fn use_version(&mut self, table: &Table, version: &Arc<TableVersion>) -> Result<Option<u32>> {
        let slot = match self.use_for(table, RecordMode::Shared) {
            // There may be another table of its name.
            Err(Error::NoSuchTable { .. }) => return Ok(None),
            used => used?,
        };
        Ok(Arc::ptr_eq(self.tables.shared(slot), version).then_some(slot))
    }

    fn read_locked_rows(&mut self, slot: u32, keys: Vec<Key>) -> Result<Vec<ReadRow>> {
        let read = |key: Key| {
            self.key.clone_from(&key);
            let there = self.get_locked(slot, RecordMode::Shared)?;
            Ok((key, there.then(|| self.body.clone())))
        };
        keys.into_iter().map(read).collect()
    }

    fn copy_rows(&mut self, copy: &mut TableMove, rows: &[ReadRow], behind: &ChangedRows) -> Result<()> {
        for (key, body) in rows {
            self.check()?;
            let Some(body) = body else { continue };
            self.key.clone_from(key);
            self.body.clone_from(body);
            match self.insert_direct(copy.slot) {
                Ok(()) if copy.file.is_some() => {
                    redo::write_put(&mut copy.since_file, copy.old.id, key, copy.fresh.numbered, body);
                    self.check_room_for_late(copy)?;
                }
                Ok(()) => {}
                Err(Error::DuplicateKey { .. }) => behind.note(key),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether the packet has room for what was copied since the load file was written.
    fn check_room_for_late(&mut self, copy: &TableMove) -> Result<()> {
        let length = self.packet_bytes().len() + copy.since_file.len() + ROOM_FOR_RECORDS;
        if length > self.room { Err(self.too_large(length)) } else { Ok(()) }
    }

    /// Takes the row of this key out of the copy, if it is there.
    fn remove_copy(&mut self, copy: &mut TableMove, key: &Key) -> Result<()> {
        self.check()?;
        self.key.clone_from(key);
        if self.remove_direct(copy.slot)? && copy.file.is_some() {
            redo::write_delete(&mut copy.since_file, copy.old.id, key);
            self.check_room_for_late(copy)?;
        }
        Ok(())
    }

    fn write_copy(&mut self, copy: &mut TableMove) -> Result<()> {
        let storage = &self.core.storage;
        if !self.core.commits.names_load_files() {
            return Ok(());
        }
        let number = storage.catalog.new_id().map(u64::from)?;
        let _pass = storage.pass_to_load_files()?;
        copy.file = Some((number, 0));
        let (file, check) = ((storage.database_id, number), || self.check());
        let digest = copy.fresh.store.write_load_file(&*storage.disk, file, &check)?;
        copy.file = Some((number, digest));
        Ok(())
    }

    fn finish_move(&mut self, copy: &mut TableMove, behind: &ChangedRows) -> Result<Finished> {
        self.begin_ddl()?;
        let slot = match self.take_table(copy.old.name()) {
            Err(Error::NoSuchTable { .. }) => return Ok(Finished::Redefined),
            taken => taken?,
        };
        let old = self.tables.shared(slot).clone();
        if !Arc::ptr_eq(&old, &copy.old) {
            return Ok(Finished::Redefined);
        }
        self.check_residence(old.name(), copy.residence)?;
        if !fault_injection::is_on("last-changes-not-moved") {
            let Some(keys) = behind.take() else { return Ok(Finished::TooFarBehind) };
            keys.iter().try_for_each(|key| self.remove_copy(copy, key))?;
            for keys in keys.chunks(ROWS_AT_A_TIME) {
                let rows = self.read_locked_rows(slot, keys.to_vec())?;
                self.copy_rows(copy, &rows, behind)?;
            }
            assert_eq!(behind.len(), 0, "no other row has the unique keys of a table that is locked");
        }
        let mut description = Description::of_version(&old);
        (description.residence, description.heap) = (copy.residence, copy.fresh.store.heap());
        self.replace_system_rows(&Description::of_version(&old), &description)?;
        let mut parts = copy.fresh.parts();
        (parts.id, parts.numbers, parts.lineage) = (old.id, old.numbers.clone(), old.lineage.clone());
        let (created, replaced) = (StoragePart::all_of(&copy.fresh), StoragePart::all_of(&old));
        copy.is_given = true;
        self.replace(old.clone(), parts, replaced, created);
        if let Some((file, digest)) = copy.file {
            let packet = self.packet.as_mut().expect("borrowed by check_write").bytes_mut();
            let packet_at = packet.len();
            redo::write_load(packet, old.id, file, Some(digest));
            let load = TableLoad {
                store: copy.fresh.store.clone(),
                file,
                packet_at,
                packet_end: packet.len(),
                written: LoadFileIs::Written,
            };
            if !fault_injection::is_on("late-copies-not-logged") {
                packet.extend_from_slice(&copy.since_file);
            }
            self.ddl().add_load(load);
        }
        Ok(Finished::Moved)
    }
}
