//! DDL inside a transaction, and bulk loads into tables that it made.
//!
//! What a DDL statement does to the tables on disk is rows of system tables, written like any others. Beside them, a
//! [`DdlState`] keeps the new table versions, which only this transaction uses until it commits: it holds the catalog's
//! lock and each changed table's exclusively. A table that the transaction created or truncated has storage that nobody
//! else can see, so after some rows into it, further rows go straight there ("a bulk load"): not into the packet, but
//! into a load file that is synced before the packet is pushed and that a record of the packet names.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::redo;
use super::transaction::{Context, SavepointState, Transaction};
use crate::catalog::description::{Description, Storage};
use crate::catalog::system::{self, SystemRow};
use crate::catalog::{CATALOG_LOCK, Table, TableDef, TableParts, TableVersion};
use crate::checkpoint::image;
use crate::core::LoadFile;
use crate::error::{Error, Result};
use crate::ids::{HeapId, IndexId, Lsn, TableId};
use crate::lock::{LockTarget, TableMode};
use crate::row::{IndexDef, IntoKey, Key, Schema, WhichIndex, encode};
use crate::store::memory::index::{Admit, Batch, Direction, Guard, Index, Insert, More, ScanRange};
use crate::store::memory::{Heap, RecordRef};

/// Rows that go into a private table by the packet before a bulk load begins.
const ROWS_BEFORE_LOAD: u64 = 256;

/// A transaction's DDL.
#[derive(Default)]
pub(crate) struct DdlState {
    changes: Vec<DdlChange>,
    loads: Vec<Load>,
    /// Rows loaded since the first savepoint that is open, so that it can be rolled back to.
    direct_rows: Vec<(u32, RecordRef)>,
}

enum DdlChange {
    Create(Arc<TableVersion>),
    Replace {
        old: Arc<TableVersion>,
        new: Arc<TableVersion>,
        /// Storage that goes when this commits.
        replaced: Vec<Part>,
        /// Storage that goes when this is taken back.
        created: Vec<Part>,
    },
    Drop(Arc<TableVersion>),
}

/// Storage of a table.
enum Part {
    Heap(Arc<Heap>),
    Index(IndexId, Arc<Index>),
}

/// Makes an index key of a row and its primary key.
type KeyOf<'a> = dyn Fn(&[u8], &[u8], &mut Key) + 'a;

/// A bulk load.
struct Load {
    heap: Arc<Heap>,
    file: u64,
    /// Where its record lies in the packet.
    packet_at: usize,
}

impl Part {
    fn all_of(version: &TableVersion) -> Vec<Part> {
        let mut parts =
            vec![Part::Heap(version.heap.clone()), Part::Index(version.primary_id, version.primary.clone())];
        for (index, def) in version.secondaries.iter().zip(version.schema.indexes()) {
            parts.push(Part::Index(def.id, index.clone()));
        }
        parts
    }

    fn discard(&self, context: &Context) {
        match self {
            Part::Heap(heap) => heap.clear(),
            Part::Index(id, index) => {
                index.clear();
                context.core.locks.forget_index(*id);
            }
        }
    }
}

impl DdlChange {
    fn take_back(&self, context: &Context) {
        match self {
            DdlChange::Create(version) => {
                version.retire();
                Part::all_of(version).iter().for_each(|part| part.discard(context));
            }
            DdlChange::Replace { new, created, .. } => {
                new.retire();
                created.iter().for_each(|part| part.discard(context));
            }
            DdlChange::Drop(_) => {}
        }
    }
}

impl DdlState {
    pub fn changes(&self) -> usize {
        self.changes.len()
    }

    pub fn direct_rows(&self) -> usize {
        self.direct_rows.len()
    }

    pub fn has_dropped(&self, id: TableId) -> bool {
        self.changes.iter().any(|change| matches!(change, DdlChange::Drop(old) if old.id == id))
    }

    /// What this transaction's DDL says about a name, if it says anything.
    pub fn table(&self, name: &str) -> Option<Result<Table>> {
        self.changes.iter().rev().find_map(|change| match change {
            DdlChange::Create(version) | DdlChange::Replace { new: version, .. }
                if version.name() == name =>
            {
                Some(Ok(Table::new(version.clone())))
            }
            DdlChange::Drop(old) if old.name() == name => {
                Some(Err(Error::NoSuchTable { table: name.to_owned() }))
            }
            _ => None,
        })
    }

    /// The versions that this transaction has made, the newest first.
    fn made(&self) -> impl Iterator<Item = &Arc<TableVersion>> {
        self.changes.iter().rev().filter_map(|change| match change {
            DdlChange::Create(version) | DdlChange::Replace { new: version, .. } => Some(version),
            DdlChange::Drop(_) => None,
        })
    }

    /// Whether nobody else can see this heap.
    fn is_private(&self, heap: HeapId) -> bool {
        self.changes.iter().any(|change| match change {
            DdlChange::Create(version) => version.heap.id() == heap,
            DdlChange::Replace { old, new, .. } => new.heap.id() == heap && old.heap.id() != heap,
            DdlChange::Drop(_) => false,
        })
    }

    /// Makes the DDL visible; the writes are applied.
    pub fn publish(self, context: &mut Context, lsn: Lsn) {
        context.core.catalog.note_change(lsn);
        for version in self.made() {
            version.floor.fetch_max(lsn.0, Ordering::Relaxed);
        }
        for load in &self.loads {
            context.core.loads.lock().push(LoadFile { number: load.file, lsn });
        }
        for change in &self.changes {
            match change {
                DdlChange::Create(version) => context.core.catalog.publish(version.clone()),
                DdlChange::Replace { old, new, replaced, .. } => {
                    context.core.catalog.publish(new.clone());
                    old.retire_for(new.clone());
                    replaced.iter().for_each(|part| part.discard(context));
                }
                DdlChange::Drop(old) => {
                    context.core.catalog.remove(old);
                    old.retire();
                    Part::all_of(old).iter().for_each(|part| part.discard(context));
                }
            }
        }
        context.forget_tables = true;
    }

    /// Drops the DDL of an aborted transaction.
    pub fn discard(self, context: &mut Context) {
        for load in &self.loads {
            // It may not have been written, and nothing names it: recovery would remove it.
            let _ = context.core.disk.remove(&image::load_file_name(load.file));
        }
        self.changes.iter().rev().for_each(|change| change.take_back(context));
        context.forget_tables = true;
    }
}

impl Context {
    fn ddl(&mut self) -> &mut DdlState {
        self.ddl.get_or_insert_default()
    }

    /// Begins a DDL statement: one transaction at a time.
    fn begin_ddl(&mut self) -> Result<()> {
        self.check_write()?;
        self.lock(
            |core, owner, _, _, wait| {
                core.locks.table(owner, CATALOG_LOCK, TableMode::Exclusive, wait).map(drop)
            },
            |_, _| LockTarget::Table(CATALOG_LOCK),
        )?;
        // What a statement that fails says of the catalog.
        let changed_at = self.core.catalog.changed_at();
        self.depend(changed_at);
        self.ddl();
        Ok(())
    }

    /// Runs a DDL statement; takes it back if it fails.
    fn ddl_step<T>(&mut self, work: impl FnOnce(&mut Context) -> Result<T>) -> Result<T> {
        self.begin_ddl()?;
        let state = SavepointState {
            id: 0,
            mark: self.mark(),
            ddl_changes: self.ddl().changes(),
            direct_rows: self.ddl().direct_rows(),
        };
        let result = work(self);
        if result.is_err() {
            self.roll_back_to(&state.mark);
            self.roll_back_ddl(&state);
        }
        result
    }

    /// Takes DDL back to a savepoint. The writes since are taken back already.
    pub fn roll_back_ddl(&mut self, state: &SavepointState) {
        let Some(mut ddl) = self.ddl.take() else { return };
        while ddl.direct_rows.len() > state.direct_rows {
            let (slot, record) = ddl.direct_rows.pop().expect("longer than the mark");
            self.take_back_direct(slot, record);
        }
        ddl.loads.retain(|load| load.packet_at < state.mark.packet);
        while ddl.changes.len() > state.ddl_changes {
            let change = ddl.changes.pop().expect("longer than the mark");
            change.take_back(self);
            if let DdlChange::Replace { old, .. } | DdlChange::Drop(old) = change {
                self.tables.supersede(old);
            }
        }
        self.ddl = Some(ddl);
    }

    fn take_back_direct(&mut self, slot: u32, record: RecordRef) {
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

    fn storage(&self) -> Storage<'_> {
        Storage {
            segments: &self.core.segments,
            nodes: &self.core.nodes,
            first_row_number: self.core.first_row_number(),
        }
    }

    /// Takes a table for a change of its definition.
    fn take_table(&mut self, name: &str) -> Result<u32> {
        let made = self.ddl().table(name);
        let table = match made {
            Some(table) => table?,
            None => self.core.catalog.table(name)?,
        };
        if self.core.catalog.is_system(table.id()) {
            let what = format!("changing the system table \"{name}\"");
            return Err(Error::Unsupported { what });
        }
        self.use_table(&table, TableMode::Exclusive)
    }

    fn use_system(&mut self, id: TableId) -> Result<u32> {
        let table = self.core.catalog.by_id(id).expect("the system tables are there");
        self.use_table(&table, TableMode::IntentExclusive)
    }

    fn put_system_row(&mut self, row: &SystemRow) -> Result<()> {
        let slot = self.use_system(row.table)?;
        let mut bytes = std::mem::take(&mut self.other_body);
        bytes.clear();
        let encoded = encode(&self.tables.at(slot).schema, &row.values, &mut bytes);
        self.other_body = bytes;
        encoded?;
        self.insert_row(slot)
    }

    fn delete_system_row(&mut self, row: &SystemRow) -> Result<()> {
        let slot = self.use_system(row.table)?;
        row.key
            .as_slice()
            .encode_into(self.tables.at(slot).schema.key_shape(WhichIndex::Primary), &mut self.key)?;
        let there = self.delete_key(slot)?;
        debug_assert!(there, "the catalog and its rows agree");
        Ok(())
    }

    fn check_name_is_free(&mut self, name: &str) -> Result<()> {
        let taken = match self.ddl().table(name) {
            Some(table) => table.is_ok(),
            None => self.core.catalog.table(name).is_ok(),
        };
        if taken || self.find_index(name).is_some() {
            return Err(Error::NameTaken { name: name.to_owned() });
        }
        Ok(())
    }

    /// The table and position of an index of this name, as this transaction sees it.
    fn find_index(&mut self, name: &str) -> Option<(String, WhichIndex)> {
        let ddl = self.ddl();
        for version in ddl.made() {
            let newest = ddl.made().find(|other| other.id == version.id).expect("at least itself");
            if Arc::ptr_eq(newest, version)
                && !ddl.has_dropped(version.id)
                && let Ok(which) = version.schema.index_named(name)
            {
                return Some((version.name().to_owned(), which));
            }
        }
        let (table, which) = self.core.catalog.table_of_index(name)?;
        let changed = self.ddl().made().any(|version| version.id == table.id());
        if changed || self.ddl().has_dropped(table.id()) { None } else { Some((table.name(), which)) }
    }

    fn create_table(&mut self, def: &TableDef) -> Result<Table> {
        self.check_name_is_free(&def.name)?;
        let description = Description::of(def, || self.core.catalog.new_id())?;
        let version = Arc::new(description.build(&self.storage())?);
        for row in system::rows(&description) {
            self.put_system_row(&row)?;
        }
        self.ddl().changes.push(DdlChange::Create(version.clone()));
        let slot = self.tables.supersede(version.clone());
        self.use_slot(slot, TableMode::Exclusive)?;
        Ok(Table::new(version))
    }

    fn drop_table(&mut self, name: &str) -> Result<()> {
        let slot = self.take_table(name)?;
        let version = self.tables.shared(slot).clone();
        for row in system::rows(&Description::of_version(&version)) {
            self.delete_system_row(&row)?;
        }
        self.ddl().changes.push(DdlChange::Drop(version));
        Ok(())
    }

    /// Replaces the newest version of a table.
    fn replace(
        &mut self,
        old: Arc<TableVersion>,
        parts: TableParts,
        replaced: Vec<Part>,
        created: Vec<Part>,
    ) -> Arc<TableVersion> {
        let new = Arc::new(TableVersion::new(parts));
        self.ddl().changes.push(DdlChange::Replace { old, new: new.clone(), replaced, created });
        let slot = self.tables.supersede(new.clone());
        self.tables.note_locked(slot, TableMode::Exclusive);
        new
    }

    fn truncate(&mut self, name: &str) -> Result<()> {
        let slot = self.take_table(name)?;
        let old = self.tables.shared(slot).clone();
        let mut description = Description::of_version(&old);
        self.delete_system_row(&system::heap_row(&description))?;
        description.heap = HeapId(self.core.catalog.new_id());
        self.put_system_row(&system::heap_row(&description))?;
        let fresh = description.build(&self.storage())?;
        let mut parts = fresh.parts();
        parts.numbers = old.numbers.clone();
        let created = Part::all_of(&fresh);
        let replaced = Part::all_of(&old);
        self.replace(old, parts, replaced, created);
        Ok(())
    }

    fn create_index(&mut self, table: &str, name: &str, columns: &[&str], unique: bool) -> Result<()> {
        self.check_name_is_free(name)?;
        let slot = self.take_table(table)?;
        let old = self.tables.shared(slot).clone();
        let positions = columns.iter().map(|column| old.schema.position_of(column)).collect::<Result<_>>()?;
        let index = IndexDef {
            id: IndexId(self.core.catalog.new_id()),
            name: name.to_owned(),
            columns: positions,
            unique,
        };
        let mut indexes = old.schema.indexes().to_vec();
        indexes.push(index.clone());
        let mut parts = old.parts();
        parts.schema = Arc::new(old.schema.with_indexes(indexes)?);
        let position = old.secondaries.len();
        let schema = parts.schema.clone();
        let built = self.build_index(slot, &schema, &|row: &[u8], primary: &[u8], key: &mut Key| {
            schema.index_key_of_row(position, row, primary, key);
        });
        let built = Arc::new(built?.map_err(|key| Error::DuplicateKey {
            table: table.to_owned(),
            index: name.to_owned(),
            key: schema.print_key(WhichIndex::Secondary(position), &key),
        })?);
        self.put_system_row(&system::index_row(old.id, &index))?;
        parts.secondaries.push(built.clone());
        self.replace(old, parts, Vec::new(), vec![Part::Index(index.id, built)]);
        Ok(())
    }

    fn drop_index(&mut self, name: &str) -> Result<()> {
        let (table, which) =
            self.find_index(name).ok_or_else(|| Error::NoSuchIndex { index: name.to_owned() })?;
        let WhichIndex::Secondary(position) = which else {
            let what = format!("dropping \"{name}\", the primary key of table \"{table}\"");
            return Err(Error::Unsupported { what });
        };
        let slot = self.take_table(&table)?;
        let old = self.tables.shared(slot).clone();
        let mut indexes = old.schema.indexes().to_vec();
        let index = indexes.remove(position);
        let mut parts = old.parts();
        parts.schema = Arc::new(old.schema.with_indexes(indexes)?);
        let gone = parts.secondaries.remove(position);
        self.delete_system_row(&system::index_row(old.id, &index))?;
        self.replace(old, parts, vec![Part::Index(index.id, gone)], Vec::new());
        Ok(())
    }

    fn add_primary_key(&mut self, table: &str, columns: &[&str]) -> Result<()> {
        let slot = self.take_table(table)?;
        let old = self.tables.shared(slot).clone();
        if old.schema.primary_key().is_some() {
            let reason = "it has a primary key already".to_owned();
            return Err(Error::BadDefinition { name: table.to_owned(), reason });
        }
        if self.writes.touches(old.id) {
            let what = format!(
                "adding a primary key to \"{table}\" in a transaction that wrote to it: commit first"
            );
            return Err(Error::Unsupported { what });
        }
        let mut description = Description::of_version(&old);
        self.delete_system_row(&system::primary_row(&description))?;
        let key = columns.iter().map(|column| old.schema.position_of(column)).collect::<Result<_>>()?;
        description.primary_key = Some(key);
        description.primary_id = IndexId(self.core.catalog.new_id());
        self.put_system_row(&system::primary_row(&description))?;
        let mut parts = old.parts();
        parts.schema = Arc::new(description.schema()?);
        parts.primary_id = description.primary_id;
        let schema = parts.schema.clone();
        let built = self.build_index(slot, &schema, &|row: &[u8], _: &[u8], key: &mut Key| {
            schema.primary_key_of_row(row, 0, key);
        });
        let built = Arc::new(built?.map_err(|key| Error::DuplicateKey {
            table: table.to_owned(),
            index: schema.key_shape(WhichIndex::Primary).name().to_owned(),
            key: schema.print_key(WhichIndex::Primary, &key),
        })?);
        let mut created = vec![Part::Index(description.primary_id, built.clone())];
        let mut replaced = vec![Part::Index(old.primary_id, old.primary.clone())];
        parts.primary = built;
        // Entries of a non-unique index end in the primary key, which is another now.
        for position in 0..parts.secondaries.len() {
            let secondary = self.build_index(slot, &schema, &|row: &[u8], _: &[u8], key: &mut Key| {
                let mut primary = Key::new();
                schema.primary_key_of_row(row, 0, &mut primary);
                schema.index_key_of_row(position, row, &primary, key);
            })?;
            let secondary = Arc::new(secondary.expect("its keys were unique before"));
            let id = schema.indexes()[position].id;
            replaced.push(Part::Index(
                id,
                std::mem::replace(&mut parts.secondaries[position], secondary.clone()),
            ));
            created.push(Part::Index(id, secondary));
        }
        self.replace(old, parts, replaced, created);
        Ok(())
    }

    /// Builds an index over all rows of a table that this transaction has to itself, as it sees them. The inner error
    /// is a key that two rows have.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`] if `schema`, which has the index, would have refused one of the rows.
    fn build_index(
        &mut self,
        slot: u32,
        schema: &Schema,
        key_of: &KeyOf<'_>,
    ) -> Result<std::result::Result<Index, Key>> {
        let table = self.tables.shared(slot).clone();
        let (mut entries, mut body, mut key) = (Vec::new(), Vec::new(), Key::new());
        let mut batch = Batch::new();
        loop {
            let more = table.primary.read_leaf(&ScanRange::ALL, Direction::Forward, Guard::Leave, &mut batch);
            for (entry, _) in batch.iter() {
                self.key.clear();
                self.key.extend_from_slice(entry);
                let hash = crate::lock::LockName::new(table.primary_id, entry).hash;
                let place = self.locate(slot, hash);
                if !self.read_place_into(slot, place, &mut body) {
                    continue;
                }
                let row = &body[table.row_at()..];
                schema.check_key_lengths(row)?;
                key_of(row, entry, &mut key);
                entries.push((key.clone(), self.record_of(place).0));
            }
            self.check()?;
            if more == More::No {
                break;
            }
        }
        entries.sort_unstable();
        if let Some(twice) = entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Ok(Err(twice[0].0.clone()));
        }
        let sorted = entries.iter().map(|(key, record)| (&**key, *record));
        Index::build_sorted(self.core.nodes.clone(), sorted).map(Ok).map_err(|_| self.memory_limit())
    }

    // ---- bulk loads

    /// Whether the next row of the table goes straight to its storage.
    pub fn inserts_directly(&mut self, slot: u32) -> bool {
        let Some(ddl) = &self.ddl else { return false };
        let table = self.tables.at(slot);
        let heap = table.heap.id();
        if ddl.loads.iter().any(|load| load.heap.id() == heap) {
            return true;
        }
        if !ddl.is_private(heap) || self.writes.count_of(heap) < ROWS_BEFORE_LOAD as usize {
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
        let record = self
            .with_claims(slot, |context, claims| {
                context.tables.at(slot).heap.allocate(context.number, context.body.len(), claims)
            })
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
}

impl Transaction {
    /// Creates a table.
    ///
    /// # Errors
    /// [`Error::NameTaken`]; [`Error::BadDefinition`]; what a lock can meet.
    pub fn create_table(&mut self, def: &TableDef) -> Result<Table> {
        self.context().ddl_step(|context| context.create_table(def))
    }

    /// Drops a table with its rows and indexes.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; what a lock can meet.
    pub fn drop_table(&mut self, name: &str) -> Result<()> {
        self.context().ddl_step(|context| context.drop_table(name))
    }

    /// Removes all rows of a table, in time that does not depend on their number.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; what a lock can meet.
    pub fn truncate(&mut self, table: &Table) -> Result<()> {
        let name = table.name();
        self.context().ddl_step(|context| context.truncate(&name))
    }

    /// Creates a secondary index over the rows that are there.
    ///
    /// # Errors
    /// [`Error::NameTaken`]; [`Error::NoSuchTable`]; [`Error::NoSuchColumn`]; [`Error::DuplicateKey`] if it is to be
    /// unique and two rows have one key; [`Error::MemoryLimit`].
    pub fn create_index(&mut self, table: &str, name: &str, columns: &[&str], unique: bool) -> Result<()> {
        self.context().ddl_step(|context| context.create_index(table, name, columns, unique))
    }

    /// Drops a secondary index.
    ///
    /// # Errors
    /// [`Error::NoSuchIndex`]; [`Error::Unsupported`] for a primary key.
    pub fn drop_index(&mut self, name: &str) -> Result<()> {
        self.context().ddl_step(|context| context.drop_index(name))
    }

    /// Gives a table without a primary key one.
    ///
    /// # Errors
    /// [`Error::BadDefinition`] if it has one, or a column of it is nullable; [`Error::DuplicateKey`];
    /// [`Error::Unsupported`] if this transaction has written to the table.
    pub fn add_primary_key(&mut self, table: &str, columns: &[&str]) -> Result<()> {
        self.context().ddl_step(|context| context.add_primary_key(table, columns))
    }
}
