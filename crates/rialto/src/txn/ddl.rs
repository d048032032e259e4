//! DDL inside a transaction.
//!
//! The effect of a DDL statement on the tables on disk is rows of system tables, which are written like any others.
//! Beside these rows a [`DdlState`] keeps the new table versions. Only this transaction uses them until it commits: it
//! holds the catalog's lock and each changed table's lock exclusively. Rows into a table that it made may be a
//! `bulk_load`.

use std::sync::Arc;

use hashbrown::HashSet;

use super::context::Context;
use super::ddl_state::{DdlChange, DdlState};
use super::savepoint::SavepointState;
use super::transaction::Transaction;
use crate::catalog::description::{Description, check_index_count};
use crate::catalog::system::{self, SystemRow};
use crate::catalog::{CATALOG_LOCK, Residence, TableDef};
use crate::commit::Logging;
use crate::commit::redo;
use crate::commit::write_set::{CurrentLocation, Write, WriteKind};
use crate::error::{Error, Result};
use crate::ids::{HeapId, IndexId, TableId};
use crate::isolate::{LockMode, LockTarget};
use crate::row::{
    IndexDef, IntoKey, Key, Schema, WhichIndex, encode, primary_index_name, table_of_primary_index,
};
use crate::store::{IndexStorage, StoragePart, Table, TableParts, TableVersion};

/// The versions of tables that a transaction defines may take this many times the bytes that its packet may
/// ([`Options::write_set_bytes_max`](crate::Options::write_set_bytes_max)). Each change of a table keeps a version of
/// its own until the transaction has ended, because writes and savepoints name it.
const VERSIONS_PER_PACKET: usize = 4;

/// The identifier of an index in memory while it is built.
const UNNAMED: IndexId = IndexId(0);

/// A schema with one more index, and the position of that.
fn with_index(schema: &Schema, index: &IndexDef) -> Result<(Schema, usize)> {
    let mut indexes = schema.indexes().to_vec();
    indexes.push(index.clone());
    Ok((schema.with_indexes(indexes)?, schema.indexes().len()))
}

/// Refuses a row that has a NULL in the primary key, or too long a key.
pub(super) fn check_keys(schema: &Schema, row: &[u8]) -> Result<()> {
    let key = schema.primary_key().unwrap_or_default();
    match key.iter().find(|&&column| schema.slot(column).is_null(row)) {
        Some(&column) => {
            let column = schema.columns()[column].name.clone();
            Err(Error::NotNull { table: schema.table().to_owned(), column })
        }
        None => schema.check_key_lengths(row),
    }
}

impl Context {
    pub(super) fn ddl(&mut self) -> &mut DdlState {
        self.ddl.get_or_insert_default()
    }

    /// Begins a DDL statement. One transaction at a time can be past this.
    pub(super) fn begin_ddl(&mut self) -> Result<()> {
        self.stay_off_definitions()?;
        self.check_has_not_voted()?;
        self.check_write()?;
        self.lock(
            |core, owner, _, _, wait| {
                core.locks.table(owner, CATALOG_LOCK, LockMode::Exclusive, wait).map(drop)
            },
            |_, _| LockTarget::Table(CATALOG_LOCK),
        )?;
        // Also if all that it defines is taken back.
        self.note_table(CATALOG_LOCK, LockMode::Exclusive);
        // The place on which the error of a failed statement depends.
        let changed_at = self.core.storage.catalog.changed_at();
        self.depend(changed_at);
        self.ddl();
        Ok(())
    }

    /// Runs a DDL statement; takes it back if it fails.
    fn ddl_step<T>(&mut self, work: impl FnOnce(&mut Context) -> Result<T>) -> Result<T> {
        self.begin_ddl()?;
        self.check_room_for_versions()?;
        let state = SavepointState {
            id: 0,
            mark: self.mark(),
            tables: self.tables.len(),
            ddl_changes: self.ddl().changes(),
            loaded_rows: self.ddl().loaded_rows.mark(),
        };
        let result = work(self);
        if result.is_err() {
            self.roll_back_to(&state.mark);
            self.roll_back_ddl(&state);
        }
        result
    }

    /// Whether the transaction's definitions leave room for one more. A first definition always has room.
    fn check_room_for_versions(&mut self) -> Result<()> {
        let limit = VERSIONS_PER_PACKET * self.core.defaults.write_set_bytes_max;
        match self.ddl().bytes() {
            length if length > limit => Err(Error::WriteSetTooLarge { length, limit }),
            _ => Ok(()),
        }
    }

    /// Takes DDL back to a savepoint. The writes since then are taken back already.
    pub fn roll_back_ddl(&mut self, state: &SavepointState) {
        let Some(mut ddl) = self.ddl.take() else { return };
        // Set first: even if this panics, the context has to forget the versions of tables that it has used.
        self.forget_tables = true;
        let core = self.core.clone();
        let take_back = |slot, record| self.take_back_direct(slot, record);
        core.storage.take_back_loaded(&mut ddl.loaded_rows, &state.loaded_rows, take_back);
        let has_changed = ddl.changes() > state.ddl_changes;
        while ddl.changes() > state.ddl_changes {
            ddl.pop().expect("longer than the mark").take_back(self);
        }
        if has_changed {
            // Writes, index entries and loaded rows since the savepoint are taken back: nothing names a later version.
            self.tables.cut_back(state.tables);
        }
        self.ddl = Some(ddl);
    }

    /// Locks a table to change its definition.
    pub(super) fn take_table(&mut self, name: &str) -> Result<u32> {
        let table = match self.made_table(name) {
            Some(table) => table?,
            None => self.core.storage.catalog.table(name)?,
        };
        if self.core.storage.catalog.is_system(table.id()) {
            let what = format!("changing the system table \"{name}\"");
            return Err(Error::Unsupported { what });
        }
        self.use_table(&table, LockMode::Exclusive)
    }

    /// The same for a handle's table; another table that has its name by now is not meant.
    fn take_table_of(&mut self, handle: &Table) -> Result<u32> {
        self.check_handle(handle)?;
        let name = handle.name();
        let slot = self.take_table(&name)?;
        if self.tables.id(slot) == handle.id() { Ok(slot) } else { Err(Error::NoSuchTable { table: name }) }
    }

    /// The answer of this transaction's own statements about a name, if they have one.
    fn made_table(&mut self, name: &str) -> Option<Result<Table>> {
        let Context { core, ddl, .. } = self;
        ddl.get_or_insert_default().table(name, &core.storage.catalog)
    }

    fn use_system(&mut self, id: TableId) -> Result<u32> {
        let table = self.core.storage.catalog.by_id(id).expect("the system tables are there");
        self.use_table(&table, LockMode::IntentExclusive)
    }

    pub(super) fn put_system_row(&mut self, row: &SystemRow) -> Result<()> {
        let slot = self.use_system(row.table)?;
        let mut bytes = std::mem::take(&mut self.other_body);
        bytes.clear();
        let inserted = encode(&self.tables.at(slot).schema, &row.values, &mut bytes)
            .and_then(|()| self.insert_row(slot, &bytes));
        self.other_body = bytes;
        inserted
    }

    pub(super) fn delete_system_row(&mut self, row: &SystemRow) -> Result<()> {
        let slot = self.use_system(row.table)?;
        row.key
            .as_slice()
            .encode_into(self.tables.at(slot).schema.key_shape(WhichIndex::Primary), &mut self.key)?;
        let there = self.delete_key(slot)?;
        debug_assert!(there, "the catalog and its rows agree");
        Ok(())
    }

    fn has_table(&mut self, name: &str) -> bool {
        match self.made_table(name) {
            Some(table) => table.is_ok(),
            None => self.core.storage.catalog.table(name).is_ok(),
        }
    }

    /// Tables, secondary indexes and primary indexes share one space of names. A table without a primary key also
    /// reserves the name of its primary index, so that it can be given one.
    fn check_name_is_free(&mut self, name: &str) -> Result<()> {
        let taken = self.has_table(name)
            || self.find_index(name).is_some()
            || table_of_primary_index(name).is_some_and(|table| self.has_table(table));
        if taken {
            return Err(Error::NameTaken { name: name.to_owned() });
        }
        Ok(())
    }

    /// The table and position of an index of this name, as this transaction sees it.
    fn find_index(&mut self, name: &str) -> Option<(String, WhichIndex)> {
        if let Some((version, which)) = self.ddl().table_of_index(name) {
            return Some((version.name().to_owned(), which));
        }
        let (table, which) = self.core.storage.catalog.table_of_index(name)?;
        let is_as_committed = !self.ddl().is_about(table.id());
        is_as_committed.then(|| (table.name(), which))
    }

    fn create_table(&mut self, def: &TableDef) -> Result<Table> {
        let core = self.core.clone();
        self.create_table_of(def, || core.storage.catalog.new_id())
    }

    /// Makes a table with identifiers from `new_id`.
    fn create_table_of(&mut self, def: &TableDef, new_id: impl FnMut() -> Result<u32>) -> Result<Table> {
        self.check_name_is_free(&def.name)?;
        let primary = primary_index_name(&def.name);
        self.check_name_is_free(&primary)?;
        // Table and indexes are made as one version: if each index were added to the version before, a table with many
        // indexes would cost the square of their number.
        let mut names: HashSet<&str> = HashSet::from([def.name.as_str(), &primary]);
        for index in &def.indexes {
            self.check_name_is_free(&index.name)?;
            if !names.insert(&index.name) {
                return Err(Error::NameTaken { name: index.name.clone() });
            }
        }
        self.check_residence(&def.name, def.residence)?;
        let description = Description::of(def, new_id)?;
        let version = Arc::new(self.build_empty(&description)?);
        if let Err(error) = system::rows(&description).iter().try_for_each(|row| self.put_system_row(row)) {
            if let Some(pages) = version.store.pages() {
                pages.discard();
            }
            return Err(error);
        }
        self.ddl().push(DdlChange::Create(version.clone()));
        let slot = self.tables.supersede(version.clone());
        self.use_slot(slot, LockMode::Exclusive)?;
        Ok(self.core.storage.catalog.handle(version))
    }

    /// An empty table of this description.
    pub(super) fn build_empty(&mut self, description: &Description) -> Result<TableVersion> {
        match description.build(&self.core.storage.material()) {
            Err(Error::MemoryLimit { .. }) => {
                self.at_bound(None, |context| description.build(&context.core.storage.material()).ok())
            }
            built => built,
        }
    }

    fn drop_table(&mut self, name: &str) -> Result<()> {
        let slot = self.take_table(name)?;
        let version = self.tables.shared(slot).clone();
        for row in system::rows(&Description::of_version(&version)) {
            self.delete_system_row(&row)?;
        }
        self.ddl().push(DdlChange::Drop(version));
        Ok(())
    }

    /// Replaces the newest version of a table.
    pub(super) fn replace(
        &mut self,
        old: Arc<TableVersion>,
        parts: TableParts,
        replaced: Vec<StoragePart>,
        created: Vec<StoragePart>,
    ) -> Arc<TableVersion> {
        let new = Arc::new(TableVersion::new(parts));
        self.ddl().push(DdlChange::Replace { old, new: new.clone(), replaced, created });
        self.tables.supersede(new.clone());
        new
    }

    fn truncate(&mut self, table: &Table) -> Result<()> {
        let slot = self.take_table_of(table)?;
        let old = self.tables.shared(slot).clone();
        let mut description = Description::of_version(&old);
        self.delete_system_row(&system::heap_row(&description))?;
        description.heap = HeapId(self.core.storage.catalog.new_id()?);
        self.put_system_row(&system::heap_row(&description))?;
        self.replace_storage(old, &description).map(drop)
    }

    /// Gives a table new, empty storage, as this description says.
    pub(super) fn replace_storage(
        &mut self,
        old: Arc<TableVersion>,
        description: &Description,
    ) -> Result<Arc<TableVersion>> {
        let fresh = self.build_empty(description)?;
        let mut parts = fresh.parts();
        (parts.numbers, parts.lineage) = (old.numbers.clone(), old.lineage.clone());
        let (created, replaced) = (StoragePart::all_of(&fresh), StoragePart::all_of(&old));
        Ok(self.replace(old, parts, replaced, created))
    }

    fn create_index(&mut self, table: &str, name: &str, columns: &[&str], unique: bool) -> Result<()> {
        self.check_name_is_free(name)?;
        let slot = self.take_table(table)?;
        let old = self.tables.shared(slot).clone();
        let positions = columns.iter().map(|column| old.schema.position_of(column)).collect::<Result<_>>()?;
        check_index_count(table, old.schema.indexes().len() + 1)?;
        // The index takes its identifier once it is built: a refused index takes none. In pages it has one from the first.
        let in_pages = self.pages(slot).is_some();
        let new_id = |context: &Context| context.core.storage.catalog.new_id().map(IndexId);
        let id = if in_pages { new_id(self)? } else { IndexId(0) };
        let mut index = IndexDef { id, name: name.to_owned(), columns: positions, unique };
        let built = self.build_secondary(slot, &index)?;
        if !in_pages {
            index.id = new_id(self)?;
        }
        let made = |error| {
            built.discard();
            error
        };
        self.put_system_row(&system::index_row(old.id, &index)).map_err(made)?;
        self.add_index(slot, &index, built)
    }

    /// Builds a secondary index over the rows of a table.
    pub(super) fn build_secondary(&mut self, slot: u32, index: &IndexDef) -> Result<IndexStorage> {
        let (schema, position) = with_index(&self.tables.at(slot).schema, index)?;
        let check = |row: &[u8]| schema.check_key_lengths(row);
        let about = (slot, index.id, &*index.name);
        let built = self.build_index(about, &check, &|row: &[u8], primary: &[u8], key: &mut Key| {
            schema.index_key_of_row(position, row, primary, key);
        });
        built?.map_err(|key| Error::DuplicateKey {
            table: schema.table().to_owned(),
            index: index.name.clone(),
            key: schema.print_key(WhichIndex::Secondary(position), &key),
        })
    }

    /// Adds an index, which was built, behind the others of its table.
    pub(super) fn add_index(&mut self, slot: u32, index: &IndexDef, built: IndexStorage) -> Result<()> {
        let old = self.tables.shared(slot).clone();
        let mut parts = old.parts();
        parts.schema = Arc::new(with_index(&old.schema, index)?.0);
        parts.store.add_index(built.clone());
        self.replace(old, parts, Vec::new(), vec![StoragePart::Index(index.id, built)]);
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
        let old = self.tables.at(slot);
        let row = system::index_row(old.id, &old.schema.indexes()[position]);
        self.delete_system_row(&row)?;
        self.remove_index(slot, position)
    }

    /// Removes the index at a position of its table.
    pub(super) fn remove_index(&mut self, slot: u32, position: usize) -> Result<()> {
        let old = self.tables.shared(slot).clone();
        let mut indexes = old.schema.indexes().to_vec();
        let index = indexes.remove(position);
        let mut parts = old.parts();
        parts.schema = Arc::new(old.schema.with_indexes(indexes)?);
        let gone = parts.store.remove_index(position);
        self.replace(old, parts, vec![StoragePart::Index(index.id, gone)], Vec::new());
        Ok(())
    }

    /// Refuses the residence that a table cannot have.
    pub(super) fn check_residence(&self, table: &str, residence: Residence) -> Result<()> {
        if residence == Residence::Memory || self.core.commits.logging != Logging::Transaction {
            return Ok(());
        }
        let what = format!(
            "the disk-resident table \"{table}\" with logging transaction, since a call that runs again would not find it as it \
             was: use logging value"
        );
        Err(Error::Unsupported { what })
    }

    /// Gives the rows another identity. Their bytes stay: a column that was nullable keeps its null bit, which is never
    /// set from now on.
    fn add_primary_key(&mut self, table: &str, columns: &[&str]) -> Result<()> {
        let slot = self.take_table(table)?;
        let old = self.tables.shared(slot).clone();
        if old.schema.primary_key().is_some() {
            let reason = "it has a primary key already".to_owned();
            return Err(Error::BadDefinition { name: table.to_owned(), reason });
        }
        let mut description = Description::of_version(&old);
        let key: Vec<usize> =
            columns.iter().map(|column| old.schema.position_of(column)).collect::<Result<_>>()?;
        description.primary_key = Some(key.clone());
        if self.pages(slot).is_some() {
            // A row lies where its key is.
            description.primary_id = IndexId(self.core.storage.catalog.new_id()?);
            return self.rewrite(slot, description);
        }
        self.delete_system_row(&system::primary_row(&Description::of_version(&old)))?;
        let schema = Arc::new(description.schema()?);
        let built = self.build_primary(slot, &schema)?;
        description.primary_id = IndexId(self.core.storage.catalog.new_id()?);
        self.put_system_row(&system::primary_row(&description))?;
        self.identify(slot, schema, (description.primary_id, built))
    }

    /// Builds the primary index of a memory-resident table by the key that this schema has.
    pub(super) fn build_primary(&mut self, slot: u32, schema: &Schema) -> Result<IndexStorage> {
        let check = |row: &[u8]| check_keys(schema, row);
        let name = primary_index_name(schema.table());
        let built =
            self.build_index((slot, UNNAMED, &name), &check, &|row: &[u8], _: &[u8], key: &mut Key| {
                schema.primary_key_of_row(row, 0, key);
            });
        built?.map_err(|key| Error::DuplicateKey {
            table: schema.table().to_owned(),
            index: schema.key_shape(WhichIndex::Primary).name().to_owned(),
            key: schema.print_key(WhichIndex::Primary, &key),
        })
    }

    /// Gives a memory-resident table the primary key of this schema, with the index that was built.
    pub(super) fn identify(
        &mut self,
        slot: u32,
        schema: Arc<Schema>,
        (primary_id, built): (IndexId, IndexStorage),
    ) -> Result<()> {
        let old = self.tables.shared(slot).clone();
        let mut parts = old.parts();
        (parts.schema, parts.primary_id) = (schema.clone(), primary_id);
        let mut created = vec![StoragePart::Index(primary_id, built.clone())];
        let before = parts.store.replace_index(WhichIndex::Primary, built);
        let mut replaced = vec![StoragePart::Index(old.primary_id, before)];
        // Entries of a non-unique index end in the primary key, which has changed.
        for position in 0..schema.indexes().len() {
            let secondary = self.build_index(
                (slot, UNNAMED, &schema.indexes()[position].name),
                &|_| Ok(()),
                &|row: &[u8], _: &[u8], key: &mut Key| {
                    let mut primary = Key::new();
                    schema.primary_key_of_row(row, 0, &mut primary);
                    schema.index_key_of_row(position, row, &primary, key);
                },
            )?;
            let secondary = secondary.unwrap_or_else(|_| unreachable!("its keys were unique before"));
            let id = schema.indexes()[position].id;
            let before = parts.store.replace_index(WhichIndex::Secondary(position), secondary.clone());
            replaced.push(StoragePart::Index(id, before));
            created.push(StoragePart::Index(id, secondary));
        }
        let new = self.replace(old, parts, replaced, created);
        self.rename_writes(self.tables.find(new.id).expect("just replaced"))
    }

    /// Writes the rows that this transaction has put into a table once more, by their new key. So they are found by it,
    /// and recovery, which has their earlier records by row number, switches to it together with the table. Each row
    /// gets a slot of its own: a placeholder names its key, and a rollback has to find the old one unchanged.
    fn rename_writes(&mut self, slot: u32) -> Result<()> {
        let table = self.tables.shared(slot).clone();
        let (mut body, mut key, mut entry) = (Vec::new(), Key::new(), Key::new());
        for position in 0..self.writes.len() as u32 {
            let write = *self.writes.get(position);
            if write.heap != table.store.heap()
                || write.superseded
                || !self.read_at_into(slot, CurrentLocation::Own(position), &mut body)?
            {
                continue;
            }
            table.schema.primary_key_of_row(&body[table.row_at()..], table.row_number(&body), &mut key);
            let record = write.final_location();
            let room = body.len();
            self.key.clone_from(&key);
            let moved = self.reserve_near(slot, record, room)?;
            let packet = self.packet.as_mut().expect("borrowed by check_write").bytes_mut();
            let record_at = redo::write_put(packet, table.id, &key, table.numbered, &body);
            let length = packet.len();
            let renamed = Write {
                slot,
                identity: table.primary_id,
                kind: WriteKind::Put,
                fresh: false,
                entered: false,
                rekeys: true,
                patches: 0,
                record,
                moved_to: Some(moved),
                previous: Some(position),
                superseded: false,
                record_at,
                ..write
            };
            self.writes.push(renamed, packet);
            let mut replaced = table.store.repoint(WhichIndex::Primary, &key, record, moved);
            for position in 0..table.schema.indexes().len() {
                table.schema.index_key_of_row(position, &body[table.row_at()..], &key, &mut entry);
                replaced &= table.store.repoint(WhichIndex::Secondary(position), &entry, record, moved);
            }
            debug_assert!(replaced, "the indexes were built with the row");
            if length > self.room {
                return Err(self.too_large(length));
            }
        }
        Ok(())
    }
}

impl Transaction<'_> {
    /// Makes a table of the system's own, with this identifier; its index and its storage have the next ones.
    pub(super) fn create_system_table(&mut self, def: &TableDef, id: TableId) -> Result<()> {
        let mut next = id.0..;
        let mut new_id = || Ok(next.next().expect("there are more"));
        self.operate(|context| {
            context.ddl_step(|context| context.create_table_of(def, &mut new_id).map(drop))
        })
    }

    /// Begins to change definitions, as each of the operations below does by itself. From now on definitions of other
    /// transactions wait until this one has ended, and what it finds of names and tables stays so. Call it before a
    /// look-up on which a definition rests.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; the errors of a lock request.
    pub fn lock_definitions(&mut self) -> Result<()> {
        self.operate(Context::begin_ddl)
    }

    /// Creates a table.
    ///
    /// # Errors
    /// [`Error::NameTaken`]; [`Error::BadDefinition`]; [`Error::WriteSetTooLarge`], also if the definitions of this
    /// transaction have left no room for one more
    /// ([`Options::write_set_bytes_max`](crate::Options::write_set_bytes_max)), as with the operations below;
    /// [`Error::MemoryLimit`]; the errors of a lock request.
    pub fn create_table(&mut self, def: &TableDef) -> Result<Table> {
        self.operate(|context| context.ddl_step(|context| context.create_table(def)))
    }

    /// Drops a table with its rows and indexes.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; the errors of a lock request.
    pub fn drop_table(&mut self, name: &str) -> Result<()> {
        self.operate(|context| context.ddl_step(|context| context.drop_table(name)))
    }

    /// Removes all rows of a table, in time that does not depend on their number.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], also if another table has its name by now; the errors of a lock request.
    pub fn truncate(&mut self, table: &Table) -> Result<()> {
        self.operate(|context| context.ddl_step(|context| context.truncate(table)))
    }

    /// Creates a secondary index over the existing rows.
    ///
    /// # Errors
    /// [`Error::NameTaken`]; [`Error::NoSuchTable`]; [`Error::NoSuchColumn`]; [`Error::BadDefinition`] for one index too many;
    /// [`Error::DuplicateKey`] if the index is unique and two rows have one key; [`Error::KeyTooLong`]; [`Error::MemoryLimit`], of a
    /// memory-resident table; of a disk-resident one [`Error::Unsupported`] for an entry that no page has room for,
    /// [`Error::CacheFull`], and those of the disk; the errors of a lock request.
    pub fn create_index(&mut self, table: &str, name: &str, columns: &[&str], unique: bool) -> Result<()> {
        self.operate(|context| context.ddl_step(|context| context.create_index(table, name, columns, unique)))
    }

    /// Drops a secondary index.
    ///
    /// # Errors
    /// [`Error::NoSuchIndex`]; [`Error::Unsupported`] for the index of a primary key.
    pub fn drop_index(&mut self, name: &str) -> Result<()> {
        self.operate(|context| context.ddl_step(|context| context.drop_index(name)))
    }

    /// Moves a table, with its indexes, to memory or to the disk. The table is locked exclusively meanwhile;
    /// [`Database::set_residence`](crate::Database::set_residence) moves it while it is used. Its rows are copied, so there
    /// has to be room for both copies: in memory until the commit, on the disk until a later checkpoint. More than 256 rows (256 KiB, if
    /// they go to the disk) are written to a load file at the commit, which stays until the checkpoints no longer need it. A table that
    /// has the residence stays as it is.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; [`Error::MemoryLimit`] if memory has no room for the rows; [`Error::CacheFull`];
    /// [`Error::Unsupported`] for a system table, for the disk with [`Logging::Transaction`], and for an entry of an index
    /// that no page has room for; [`Error::NumbersUsedUp`]; those of the disk, [`Error::DiskFull`] also at the commit; the errors of a
    /// lock request.
    pub fn set_residence(&mut self, table: &str, residence: Residence) -> Result<()> {
        self.operate(|context| context.ddl_step(|context| context.set_residence(table, residence)))
    }

    /// Gives a primary key to a table without one. Its columns take no NULL from then on. Rows that this transaction
    /// has written, except by bulk loads, count twice for
    /// [`Options::write_set_bytes_max`](crate::Options::write_set_bytes_max). The rows of a disk-resident table are copied, as by
    /// [`Transaction::set_residence`].
    ///
    /// # Errors
    /// [`Error::BadDefinition`] if the table has a primary key; [`Error::NotNull`] if a row has a NULL in one of the
    /// columns; [`Error::DuplicateKey`]; [`Error::KeyTooLong`]; [`Error::WriteSetTooLarge`]; [`Error::MemoryLimit`]; of a disk-resident
    /// table those of [`Transaction::set_residence`].
    pub fn add_primary_key(&mut self, table: &str, columns: &[&str]) -> Result<()> {
        self.operate(|context| context.ddl_step(|context| context.add_primary_key(table, columns)))
    }
}
