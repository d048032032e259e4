//! Reads by key.

use std::ops::ControlFlow;

use super::context::Context;
use super::scope::Touch;
use super::transaction::Transaction;
use crate::catalog::CATALOG_LOCK;
use crate::commit::write_set::{CurrentLocation, Write, key_of};
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::ids::TableId;
use crate::isolate::{LockMode, LockTarget, RecordMode};
use crate::opening::TableKey;
use crate::row::{IntoKey, Key, Row, RowView, WhichIndex};
use crate::store::{Found, Table, TableVersion};
use crate::unlikely::unlikely;

/// A row's identity: its primary key's bytes, or its hidden row number's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RowKey(pub(crate) Key);

impl RowKey {
    /// The bytes that it takes on the heap: a long key is allocated.
    #[inline]
    pub fn allocated_bytes(&self) -> usize {
        self.0.allocated_bytes()
    }
}

/// The mode that covers both.
fn join(held: Option<LockMode>, wanted: LockMode) -> LockMode {
    held.map_or(wanted, |held| held.join(wanted))
}

impl Context {
    /// Locks the table and returns its position in the cache, with the version that is in force under that lock.
    #[inline(always)]
    pub fn use_table(&mut self, table: &Table, mode: LockMode) -> Result<u32> {
        match self.use_again(table.key(), mode) {
            Some(slot) => Ok(slot),
            None => match self.used_by_action(table.key(), mode) {
                Some(slot) => Ok(slot),
                None => self.use_table_slowly(table, mode),
            },
        }
    }

    /// The position of a table that the transaction has locked already, or locks again as the last transaction of this
    /// slot did. `None`: take the long way.
    #[inline(always)]
    pub fn use_again(&mut self, table: TableKey, mode: LockMode) -> Option<u32> {
        let mode = self.mode_in_stage(mode);
        let Context { core, tables, owner, ddl: None, .. } = self else { return None };
        let slot = tables.find_key(table)?;
        let held = core.locks.intend_again(owner, table.id(), mode);
        // A version is retired under a lock on the whole table.
        (held && !tables.at(slot).is_retired()).then_some(slot)
    }

    /// The mode in which a table is locked for a lock in this mode: the fetch stage only intends to read.
    #[inline(always)]
    fn mode_in_stage(&self, mode: LockMode) -> LockMode {
        if unlikely(self.fetches()) { LockMode::IntentShared } else { mode }
    }

    /// The slot of the table that the running action is on, if this is the table: its intention lock is held.
    #[inline(never)]
    fn used_by_action(&self, table: TableKey, mode: LockMode) -> Option<u32> {
        match mode {
            LockMode::IntentShared => self.scope.slot_of(table, RecordMode::Shared),
            LockMode::IntentExclusive => self.scope.slot_of(table, RecordMode::Exclusive),
            _ => None,
        }
    }

    /// The position of a table in the cache, in whatever version. It is not locked.
    #[inline]
    pub fn find_table(&mut self, table: &Table) -> Result<u32> {
        match self.tables.find_key(table.key()) {
            Some(slot) => Ok(slot),
            None => self.get_to_know(table),
        }
    }

    /// Puts a table into the cache, if its handle is of this opening: the storage that another handle leads to is not
    /// this database's, or is no longer in use.
    #[cold]
    fn get_to_know(&mut self, table: &Table) -> Result<u32> {
        self.check_handle(table)?;
        Ok(self.tables.put(table.version()))
    }

    /// An error for a handle of another opening.
    pub(super) fn check_handle(&self, table: &Table) -> Result<()> {
        if table.key().opening() == self.tables.opening() {
            return Ok(());
        }
        Err(Error::ForeignHandle { what: format!("the handle of table \"{}\"", table.name()) })
    }

    /// The table of this name, the transaction's own DDL included.
    ///
    /// I7: a table's absence is locked by the catalog's lock as a whole, since otherwise a definition could make the
    /// table at any time.
    fn table(&mut self, name: &str) -> Result<Table> {
        loop {
            let found = self.table_unlocked(name);
            if !matches!(found, Err(Error::NoSuchTable { .. })) || self.owner.mode_of(CATALOG_LOCK).is_some()
            {
                return found;
            }
            self.lock_catalog(name)?;
            // The definition that this waited for may have made it.
        }
    }

    /// As [`Context::table`], but a table's absence is not locked.
    ///
    /// A call that runs again finds the same tables, in the same versions, at its place in the log: a table that it has
    /// found is locked by intention until then, and a table's absence is an error of the moment
    /// ([`Error::is_of_the_moment`]).
    fn table_unlocked(&mut self, name: &str) -> Result<Table> {
        if let Some(ddl) = &self.ddl
            && let Some(answer) = ddl.table(name, &self.core.storage.catalog)
        {
            return answer;
        }
        loop {
            let found = self.core.storage.catalog.table(name);
            if let Ok(table) = &found
                && unlikely(self.may_be_a_call())
            {
                self.check()?;
                match self.use_table(table, LockMode::IntentShared) {
                    // The table was dropped while this waited for its lock. Another table may have the name by now.
                    Err(Error::NoSuchTable { .. }) => continue,
                    used => drop(used?),
                }
            }
            let depends = match &found {
                Ok(table) => table.version().floor(),
                Err(_) => {
                    self.side.note_anything_absent();
                    self.core.storage.catalog.changed_at()
                }
            };
            self.depend(depends);
            return found;
        }
    }

    /// Keeps definitions of other transactions from committing until this one has ended, because there is no table of
    /// this name. A transaction that has read without locks cannot do so.
    #[cold]
    fn lock_catalog(&mut self, name: &str) -> Result<()> {
        self.check()?;
        if self.reads.is_active() {
            self.read_locked()?;
        }
        if self.view.is_part() {
            return Err(
                self.need_whole(format!("an action has looked for a table \"{name}\", and there is none"))
            );
        }
        self.lock(
            |core, owner, _, _, wait| core.locks.table(owner, CATALOG_LOCK, LockMode::Shared, wait).map(drop),
            |_, _| LockTarget::Table(CATALOG_LOCK),
        )?;
        self.note_table(CATALOG_LOCK, LockMode::Shared);
        Ok(())
    }

    /// Notes a lock on a whole table, if the transaction may be prepared.
    #[inline]
    pub(super) fn note_table(&mut self, id: TableId, mode: LockMode) {
        if let Some(noted) = &mut self.noted_locks
            && mode.is_whole()
        {
            noted.table(id);
        }
    }

    #[inline(never)]
    fn use_table_slowly(&mut self, table: &Table, mode: LockMode) -> Result<u32> {
        let slot = self.find_table(table)?;
        self.use_slot(slot, mode)
    }

    pub fn use_slot(&mut self, mut slot: u32, mode: LockMode) -> Result<u32> {
        let mode = self.mode_in_stage(mode);
        let id = self.tables.at(slot).id;
        let is_dropped = self.ddl.as_ref().is_some_and(|ddl| ddl.has_dropped(id));
        if is_dropped && !fault_injection::is_on("dropped-table-is-written") {
            return Err(Error::NoSuchTable { table: self.tables.at(slot).name().to_owned() });
        }
        loop {
            let held = self.owner.mode_of(id);
            let wanted = join(held, mode);
            if held != Some(wanted) {
                self.ask(
                    &mut None,
                    |core, owner, _, _, wait| core.locks.table(owner, id, wanted, wait),
                    |_, _| LockTarget::Table(id),
                )?;
            }
            if !self.tables.at(slot).is_retired() {
                self.note_table(id, wanted);
                return Ok(slot);
            }
            let name = self.tables.at(slot).name().to_owned();
            let Some(current) = self.core.storage.catalog.by_id(id) else {
                let changed_at = self.core.storage.catalog.changed_at();
                self.depend(changed_at);
                return Err(Error::NoSuchTable { table: name });
            };
            slot = self.tables.put(current.version());
        }
    }

    /// Reads the body of the row of the key in `self.key`, at its location, into `self.body`. False if there is none.
    pub fn read_at(&mut self, slot: u32, location: CurrentLocation) -> Result<bool> {
        let mut body = std::mem::take(&mut self.body);
        let there = self.read_at_into(slot, location, &mut body);
        self.body = body;
        there
    }

    pub fn read_at_into(&self, slot: u32, location: CurrentLocation, body: &mut Vec<u8>) -> Result<bool> {
        let table = self.tables.at(slot);
        match (location, table.store.pages()) {
            (CurrentLocation::Absent(_), _) => Ok(false),
            (CurrentLocation::Stored(record), None) => {
                table.store.read(record, body);
                Ok(true)
            }
            (CurrentLocation::Stored(_), Some(pages)) => pages.read(&self.page_access, &self.key, body),
            (CurrentLocation::Own(position), pages) => {
                let packet = self.packet_bytes();
                let mut base = |write: &Write, body: &mut Vec<u8>| match pages {
                    None => table.store.read(write.record, body),
                    Some(pages) => pages.read_claimed(key_of(write, packet), body),
                };
                Ok(self.writes.materialize(position, packet, table.row_at(), body, &mut base))
            }
        }
    }

    #[inline(always)]
    pub(super) fn get_locked(&mut self, slot: u32, mode: RecordMode) -> Result<bool> {
        if unlikely(self.fetches()) {
            return self.fetch_row(slot);
        }
        if self.reads.is_active() && !self.is_covered(slot, mode) && !self.reads_pages(slot)? {
            let mut body = std::mem::take(&mut self.body);
            let there = self.read_row_unlocked(slot, WhichIndex::Primary, None, None, &mut body);
            self.body = body;
            return there;
        }
        let Some(record) = self.seek_free(slot, mode) else {
            let location = self.seek(slot, mode)?;
            return self.read_at(slot, location);
        };
        let Context { tables, body, .. } = self;
        tables.at(slot).store.read(record, body);
        Ok(true)
    }

    #[inline(always)]
    pub fn get(&mut self, table: &Table, key: &impl IntoKey, mode: RecordMode) -> Result<Option<u32>> {
        if mode == RecordMode::Shared
            && let Some(slot) = self.encode_at_once(table.key(), key)
        {
            let is_read = match self.reads.is_active() {
                true => self.reach_unlocked(slot),
                false => self.reach_and_read(slot),
            };
            if !unlikely(!is_read) {
                return Ok(Some(slot));
            }
        }
        self.get_slowly(table, key, mode)
    }

    /// The usual way to the row of the key in `self.key`, read under a lock; false: take the long way.
    #[inline(never)]
    fn reach_and_read(&mut self, slot: u32) -> bool {
        let Some(record) = self.reach_key(slot, RecordMode::Shared) else { return false };
        self.tables.at(slot).store.read(record, &mut self.body);
        true
    }

    /// The same for a row that is read without a lock. A transaction that reads so keeps its locks in the thin form.
    #[inline(never)]
    fn reach_unlocked(&mut self, slot: u32) -> bool {
        if unlikely(!self.prefetched.is_empty()) {
            let found = self.approach_prefetched(slot, RecordMode::Shared);
            return found.is_some_and(|found| self.read_found(slot, &found));
        }
        let Some(found) = self.approach(slot, RecordMode::Shared) else { return false };
        self.read_found(slot, &found)
    }

    #[inline(always)]
    fn read_found(&mut self, slot: u32, found: &Found) -> bool {
        let Context { tables, depends, reads, body, .. } = self;
        let is_read = reads.read_found(tables.at(slot), found, depends, body).is_some();
        // The row that was just read was present then.
        is_read && (self.reads.is_first() || self.recheck().is_ok())
    }

    #[inline(never)]
    fn get_slowly(&mut self, table: &Table, key: &impl IntoKey, mode: RecordMode) -> Result<Option<u32>> {
        let slot = self.use_for(table, mode)?;
        key.encode_into(self.tables.at(slot).schema.key_shape(WhichIndex::Primary), &mut self.key)?;
        self.stay_at_key(slot, Touch::Read)?;
        Ok(self.get_locked(slot, mode)?.then_some(slot))
    }

    #[inline(always)]
    pub(super) fn use_for(&mut self, table: &Table, mode: RecordMode) -> Result<u32> {
        let intention = match mode {
            RecordMode::Shared => {
                self.check()?;
                LockMode::IntentShared
            }
            RecordMode::Exclusive => {
                self.check_write()?;
                LockMode::IntentExclusive
            }
        };
        self.use_table(table, intention)
    }

    /// The row that the last read left in `self.body`.
    pub fn row(&self, slot: u32) -> Row {
        let table = self.tables.at(slot);
        Row::stored(table.schema.clone(), self.body[table.row_at()..].to_vec())
    }
}

/// The row in a record's body.
pub(crate) fn view<'a>(table: &'a TableVersion, body: &'a [u8]) -> RowView<'a> {
    RowView::new(&table.schema, &body[table.row_at()..])
}

impl Transaction<'_> {
    /// The table of this name, the transaction's own DDL included. The table is not locked before it is used, except in
    /// a call of a deterministic procedure that may be logged as a call. A table's absence is locked: after
    /// [`Error::NoSuchTable`] the definitions of other transactions wait until this one has ended. If two transactions
    /// both find no table and then create it, one is a deadlock's victim: call [`Transaction::lock_definitions`] before
    /// the look-up.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; the errors of a lock request.
    pub fn table(&mut self, name: &str) -> Result<Table> {
        self.operate(|context| context.table(name))
    }

    /// As [`Transaction::table`], but a table's absence is not locked, and nothing is waited for. It is for a
    /// transaction that ends with the error. One that goes on may see rows of a transaction that made the table
    /// meanwhile.
    ///
    /// # Errors
    /// As [`Transaction::table`].
    pub fn table_unlocked(&mut self, name: &str) -> Result<Table> {
        self.operate(|context| context.table_unlocked(name))
    }

    /// A copy of the row with this primary key.
    ///
    /// # Errors
    /// The error of a key that does not fit the table; the errors of a lock request.
    pub fn get(&mut self, table: &Table, key: impl IntoKey) -> Result<Option<Row>> {
        self.operate(|context| {
            let found = context.get(table, &key, RecordMode::Shared)?;
            Ok(found.map(|slot| context.row(slot)))
        })
    }

    /// As [`Transaction::get`], and locks the row (or its absence) exclusively at once.
    ///
    /// # Errors
    /// As [`Transaction::get`]; [`Error::ReadOnly`].
    pub fn get_for_update(&mut self, table: &Table, key: impl IntoKey) -> Result<Option<Row>> {
        self.operate(|context| {
            let found = context.get(table, &key, RecordMode::Exclusive)?;
            Ok(found.map(|slot| context.row(slot)))
        })
    }

    /// As [`Transaction::get`], into an existing `row`, without an allocation once that is large enough. False, with
    /// `row` unchanged, if there is no row of this key.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn get_into(&mut self, table: &Table, key: impl IntoKey, row: &mut Row) -> Result<bool> {
        self.operate(|context| {
            let Some(slot) = context.get(table, &key, RecordMode::Shared)? else {
                return Ok(false);
            };
            let table = context.tables.at(slot);
            row.replace_by_stored(&table.schema, &context.body[table.row_at()..]);
            Ok(true)
        })
    }

    /// Calls `look` with the row of this primary key, in place: no copy for the caller, no allocation.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    #[inline(always)]
    pub fn look<T>(
        &mut self,
        table: &Table,
        key: impl IntoKey,
        look: impl FnOnce(RowView<'_>) -> T,
    ) -> Result<Option<T>> {
        self.operate(|context| {
            let found = context.get(table, &key, RecordMode::Shared)?;
            Ok(found.map(|slot| look(view(context.tables.at(slot), &context.body))))
        })
    }

    /// A copy of the row with this identity.
    ///
    /// # Errors
    /// The errors of a lock request.
    pub fn get_at(&mut self, table: &Table, key: &RowKey) -> Result<Option<Row>> {
        self.operate(|context| {
            let slot = context.use_for(table, RecordMode::Shared)?;
            context.key.clone_from(&key.0);
            context.stay_at_key(slot, Touch::Read)?;
            Ok(context.get_locked(slot, RecordMode::Shared)?.then(|| context.row(slot)))
        })
    }

    /// Counts the rows of a table, which it locks against changes.
    ///
    /// # Errors
    /// The errors of a lock request.
    pub fn count(&mut self, table: &Table) -> Result<u64> {
        let mut rows = 0;
        self.scan(table, &super::scan::Scan::all(), |_, _| {
            rows += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(rows)
    }
}
