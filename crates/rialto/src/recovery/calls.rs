//! Calls during redo: redo hands them to a [`Replay`], and takes over what only redo can do. What runs procedures is
//! given to recovery ([`Replayer`]), because engines lie above it (`engine/replay`).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use hashbrown::{HashMap, HashSet};

use super::redo::{Redo, Workers, table_at};
use super::table::{RedoTable, Scratch, resident};
use crate::catalog::system::is_system;
use crate::catalog::{RowNumbers, first_row_number};
use crate::commit::redo::{self, Change};
use crate::commit::senseless::no_record;
use crate::error::{Error, Result};
use crate::ids::{Lsn, TableId};
use crate::io::Disk;
use crate::log::{Packet, PacketKind};
use crate::row::{Key, WhichIndex};
use crate::store::memory::MemoryStore;
use crate::store::paged::DiskTables;
use crate::store::tree::{Admit, Insert};
use crate::store::{Catalog, Storage, TableParts, TableVersion};
use crate::txn::calls::{LoggedCall, read_call};

/// What recovery does with the calls in a log.
#[derive(Clone, Copy)]
pub(crate) enum Calls<'a> {
    /// This runs them again.
    Replayed(&'a dyn Replayer),
    /// They are not run, because the program has no procedures: the tables stay as they were before the first call that
    /// would have to be run, and the rest of the log is only read.
    Left,
}

/// What runs calls again.
pub(crate) trait Replayer: Sync {
    /// Begins to run calls, on these tables.
    fn begin(&self, setup: &Setup, tables: Vec<Arc<TableVersion>>) -> Result<Box<dyn Replay>>;
}

/// What a replay works in.
pub(crate) struct Setup {
    pub memory: MemoryStore,
    pub disk_tables: Arc<DiskTables>,
    pub database_id: u128,
    pub threads: usize,
}

impl Setup {
    /// The store as calls find it.
    pub fn storage(&self, disk: Arc<dyn Disk>, catalog: Catalog) -> Storage {
        let memory = (self.memory.clone(), self.disk_tables.clone());
        Storage::new((disk, self.database_id), memory, catalog, Vec::new(), Lsn::ZERO)
    }
}

/// A replay of calls in progress. Its errors are those of calls.
pub(crate) trait Replay {
    /// Runs the call at this place, now or later.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a call that no procedure fits; the error of an earlier call.
    fn call(&mut self, lsn: Lsn, call: LoggedCall<'_>) -> Result<()>;

    /// Waits until all calls so far are done.
    fn barrier(&mut self) -> Result<()>;

    /// The table of this identifier, which exists.
    fn version(&self, table: TableId) -> &Arc<TableVersion>;

    /// Removes tables; all calls so far are done.
    fn take_out(&mut self, tables: &mut dyn Iterator<Item = TableId>);

    /// Gives back the secondary indexes of a table, which will be built anew or are gone; all calls so far are done.
    fn give_up_indexes(&self, table: TableId);

    /// Adds a table, or replaces it by another version.
    fn put_in(&mut self, version: TableVersion);

    /// Forgets what was found of the tables, because they have changed; all calls so far are done.
    fn forget_identifiers(&mut self);

    /// Notes that a packet of values has put a row of this number.
    fn note_row_number(&mut self, number: u64);

    /// The number of calls so far.
    fn calls(&self) -> u64;

    /// Ends the replay when all calls are done.
    fn end(self: Box<Self>) -> Result<ReplayedTables>;
}

/// The tables at the end of a replay.
pub(crate) struct ReplayedTables {
    versions: HashMap<TableId, Arc<TableVersion>>,
    /// The highest hidden row number that was put.
    highest_number: u64,
}

impl ReplayedTables {
    pub fn new(versions: HashMap<TableId, Arc<TableVersion>>, highest_number: u64) -> ReplayedTables {
        ReplayedTables { versions, highest_number }
    }

    /// Gives back the nodes of the secondary indexes.
    pub fn give_up_indexes(&self) {
        let stores = self.versions.values().filter_map(|version| version.store.memory());
        stores.flat_map(|memory| &memory.secondaries).for_each(|index| index.discard());
    }

    /// The table with all of its indexes, for coming transactions.
    pub(super) fn table(&self, table: &RedoTable, first_row_number: u64) -> Option<TableVersion> {
        let parts = self.versions.get(&table.description.id)?.parts();
        let first = first_row_number.max(self.highest_number + 1).max(parts.numbers.next());
        Some(TableVersion::new(TableParts {
            numbers: Arc::new(RowNumbers::new(first)),
            floor: Arc::new(AtomicU64::new(0)),
            ..parts
        }))
    }
}

impl Redo<'_> {
    /// Handles a packet that is a call, or comes after one. False if redo has to do it in the usual way.
    pub(super) fn beside_calls(&mut self, packet: &Packet<'_>, workers: &mut Workers<'_>) -> Result<bool> {
        if let Some((_, left)) = &mut self.left {
            *left += 1;
            if packet.kind == PacketKind::Call {
                let call = call_in(packet.lsn, packet.bytes)?;
                self.needs.insert((call.name.to_owned(), call.version));
            }
            if packet.kind == PacketKind::Commit {
                self.has_left_values = true;
                self.verify_load_files(packet)?;
            }
            return Ok(true);
        }
        match packet.kind {
            PacketKind::Call => self.call(packet, workers).map(|()| true),
            PacketKind::Commit if is_plain(packet) => self.values(packet).map(|()| true),
            _ => {
                self.wait_for_calls()?;
                Ok(false)
            }
        }
    }

    /// Reads the load files that a packet names, and reports what is wrong with them: without the tables there is
    /// nowhere to put their rows.
    fn verify_load_files(&mut self, packet: &Packet<'_>) -> Result<()> {
        for record in redo::read(packet.bytes) {
            let record = record.map_err(|offset| no_record(packet.lsn, offset))?;
            if let Change::Load { file, digest } = record.change {
                self.load_file(packet.lsn, file, digest)?.verify()?;
            }
        }
        Ok(())
    }

    /// Gives the replay the tables of which a packet amid calls has changed rows or definitions, with their secondary
    /// indexes built anew. All others stay as they are: the cost of a definition among calls does not depend on their
    /// size.
    pub(super) fn go_on_with_calls(&mut self, lsn: Lsn, workers: &mut Workers<'_>) -> Result<()> {
        let changed = std::mem::take(&mut self.changed);
        let Some(replay) = &mut self.replay else { return Ok(()) };
        workers.barrier()?;
        // Calls use no disk-resident tables, which are finished at the end.
        let resident = |id: &TableId| self.tables.get(id).filter(|table| table.pages.is_none());
        replay.take_out(&mut changed.iter().copied().filter(|id| resident(id).is_none()));
        for id in changed {
            let Some(table) = resident(&id) else { continue };
            replay.give_up_indexes(id);
            replay.put_in(self.heaps.retry(|| self.builder.finish(table, first_row_number(lsn)))?);
        }
        replay.forget_identifiers();
        Ok(())
    }

    fn call(&mut self, packet: &Packet<'_>, workers: &mut Workers<'_>) -> Result<()> {
        let lsn = packet.lsn;
        let call = call_in(lsn, packet.bytes)?;
        if !self.start.home.fits_call(lsn) {
            return Err(no_copy(lsn, &call, self.start.home.sequence));
        }
        let Calls::Replayed(replayer) = self.calls else {
            self.left = Some((lsn, 1));
            self.needs.insert((call.name.to_owned(), call.version));
            return workers.barrier();
        };
        if self.replay.is_none() {
            workers.barrier()?;
            self.replay = Some(self.begin_replay(lsn, replayer)?);
        }
        let replay = self.replay.as_mut().expect("just begun");
        replay.call(lsn, call)
    }

    /// Refuses a call that the copy holds after values that may or may not be in the copy. These values are redone,
    /// and if they put a row that the call has deleted, nothing shows that the row must not come back.
    pub(super) fn check_held(&self, packet: &Packet<'_>) -> Result<()> {
        let home = &self.start.home;
        if home.names_held || packet.kind != PacketKind::Call || (self.records == 0 && !self.has_left_values)
        {
            return Ok(());
        }
        Err(not_named(packet.lsn, &call_in(packet.lsn, packet.bytes)?, home.sequence))
    }

    fn begin_replay(&mut self, lsn: Lsn, replayer: &dyn Replayer) -> Result<Box<dyn Replay>> {
        // As at the end of redo, for the same indexes.
        self.heaps.make_room(self.builder.segments.budget());
        self.heaps.let_rows_move(false);
        let mut tables = Vec::new();
        for table in self.system.iter().chain(self.tables.values()).filter(|table| table.pages.is_none()) {
            tables.push(Arc::new(self.builder.finish(table, first_row_number(lsn))?));
        }
        let setup = Setup {
            memory: MemoryStore {
                segments: self.builder.segments.clone(),
                nodes: self.builder.nodes.clone(),
            },
            disk_tables: self.builder.disk_tables.clone(),
            database_id: self.database_id,
            threads: self.builder.threads,
        };
        replayer.begin(&setup, tables)
    }

    /// Ends the replay of calls, if one is in progress, when all of them are done.
    pub(super) fn end_replay(&mut self) -> Result<Option<ReplayedTables>> {
        let Some(replay) = self.replay.take() else { return Ok(None) };
        self.replayed += replay.calls();
        replay.end().map(Some)
    }

    /// Waits until the calls so far are done.
    pub fn wait_for_calls(&mut self) -> Result<()> {
        self.replay.as_mut().map_or(Ok(()), |replay| replay.barrier())
    }

    /// The number of calls run so far.
    pub fn calls_replayed(&self) -> u64 {
        self.replayed + self.replay.as_ref().map_or(0, |replay| replay.calls())
    }

    /// Redoes a packet of values amid calls: in the primary index as usual, and in the secondary indexes, which exist.
    fn values(&mut self, packet: &Packet<'_>) -> Result<()> {
        let (lsn, at) = (packet.lsn, self.at(packet.lsn));
        let replay = self.replay.as_mut().expect("it goes on");
        replay.barrier()?;
        let records: Vec<_> = redo::read(packet.bytes).map_while(Result::ok).collect();
        self.records += records.len() as u64;
        // For each row that the packet writes, all its entries are removed, and those that it has in the end are put,
        // whatever keys the rows have exchanged.
        let mut rows: Vec<(&Arc<RedoTable>, &[u8])> = Vec::new();
        let mut seen: HashSet<(TableId, &[u8])> = HashSet::new();
        for record in &records {
            let table = table_at(&self.tables, lsn, record.table)?;
            if table.pages.is_none() && seen.insert((record.table, record.key)) {
                rows.push((table, record.key));
            }
        }
        for &(table, key) in &rows {
            let version = replay.version(table.description.id);
            let Some((record, keys)) = table.secondary_keys(key) else { continue };
            for (index, secondary) in resident(version).secondaries.iter().zip(&keys) {
                if index.get(secondary).value == Some(record.0) {
                    index.remove(secondary, None);
                }
            }
        }
        let mut scratch = Scratch::new(self.builder.threads);
        for record in &records {
            if let Change::Put { row_number, .. } = record.change {
                replay.note_row_number(row_number);
            }
            let table = table_at(&self.tables, lsn, record.table)?;
            self.heaps.redo(table, at, record, &mut scratch)?;
        }
        for &(table, key) in &rows {
            let version = replay.version(table.description.id);
            let Some((record, keys)) = table.secondary_keys(key) else { continue };
            for (position, secondary) in keys.iter().enumerate() {
                let index = resident(version).index(WhichIndex::Secondary(position));
                let insert = || index.insert(secondary, record.0, || Admit::Go);
                let inserted = match insert() {
                    Err(_) if self.heaps.give_back_empty() => insert(),
                    inserted => inserted,
                };
                match inserted.map_err(|_| super::indexes::memory_limit(self.builder.segments.budget()))? {
                    Insert::Done => {}
                    _ => return Err(twice(lsn, table, secondary)),
                }
            }
        }
        Ok(())
    }
}

fn twice(lsn: Lsn, table: &RedoTable, key: &Key) -> Error {
    Error::Corrupt {
        file: format!("the log, place {lsn}"),
        offset: 0,
        what: format!(
            "a second row of table \"{}\" gets the key {:02x?} of a unique index",
            table.schema.table(),
            &key[..]
        ),
    }
}

/// Whether all of a packet's records are values of rows of users' tables.
fn is_plain(packet: &Packet<'_>) -> bool {
    redo::read(packet.bytes).all(|record| {
        record.is_ok_and(|record| !is_system(record.table) && !matches!(record.change, Change::Load { .. }))
    })
}

/// The error for a call that cannot be run again, with the reason.
pub(crate) fn unsupported(lsn: Lsn, call: &LoggedCall<'_>, what: &str) -> Error {
    let what = format!(
        "place {lsn} of the log is a call of procedure \"{}\" version {} (Logging::Transaction), {what}",
        call.name, call.version
    );
    Error::Unsupported { what }
}

/// The call in these bytes of the packet at this place.
///
/// # Errors
/// [`Error::Corrupt`].
fn call_in(lsn: Lsn, bytes: &[u8]) -> Result<LoggedCall<'_>> {
    read_call(bytes).ok_or_else(|| Error::Corrupt {
        file: format!("the log, place {lsn}"),
        offset: 0,
        what: "expected a call; the packet's checksum is right, but the call makes no sense".to_owned(),
    })
}

/// The error for a call that the copy in force does not fit.
fn no_copy(lsn: Lsn, call: &LoggedCall<'_>, checkpoint: u64) -> Error {
    let what = format!(
        "but the copy of checkpoint {checkpoint}, which redo begins with, is not transaction-consistent and can have a part of \
         it: it cannot be run again on that; restore a backup"
    );
    unsupported(lsn, call, &what)
}

/// The error for a call that the copy in force has, after values that may or may not be in the copy.
fn not_named(lsn: Lsn, call: &LoggedCall<'_>, checkpoint: u64) -> Error {
    let what = format!(
        "which the copy of checkpoint {checkpoint} has, made by an earlier Rialto that did not note which values before it are in the \
         copy, too: rows that the call deleted could come back. Restore a backup; or open the database with the Rialto that wrote \
         it, see to it that no such row is there, and make a checkpoint while no transaction runs"
    );
    unsupported(lsn, call, &what)
}
