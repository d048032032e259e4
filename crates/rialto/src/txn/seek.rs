//! Locking a key and finding its row.
//!
//! In the central form the key's name is locked first, and then its row is looked up; so a row that is found is locked
//! already. In the thin form the row is looked up first and locked in its own word. Then the index is checked: it still
//! has to lead from the key to this row (`isolate/thin/mod.rs`, L8). Only a key without an entry is locked by name.

use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicU64, Ordering};

use super::context::Context;
use super::scan::{ByteScan, Reads, ScanScratch};
use super::scope::Scope;
use crate::commit::write_set::CurrentLocation;
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::ids::{IndexId, Lsn};
use crate::io::Moment;
use crate::isolate::{
    Acquired, Lent, LockManager, LockMode, LockTarget, LockWords, Owner, RecordMode, SpanRef, ThinWord,
};
use crate::opening::TableKey;
use crate::row::{IntoKey, Key, WhichIndex};
use crate::store::{Claims, Direction, Found, Leaf, RowLocation, Storage, TableStore, TableVersion, Vacancy};
use crate::txn::core::Core;
use crate::unlikely::unlikely;

/// How a transaction locks an existing row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowLocking {
    /// Not at all: it has locked the whole table.
    Covered,
    /// In the row's word.
    InPlace,
    /// By the name of its key.
    ByName,
}

/// Where an index leads to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Probe {
    /// To this record, which is now locked.
    Present(RowLocation),
    /// Nowhere, as of this reading of the leaf.
    Absent { vacancy: Vacancy, removal: Lsn },
}

impl LockWords for Storage {
    fn lock_word(&self, record: u64) -> &AtomicU64 {
        Storage::lock_word(self, RowLocation::from_number(record))
    }
}

/// A transaction's claims on the slots of rows that it inserts.
pub(crate) struct SlotClaims<'a> {
    locks: &'a LockManager,
    owner: &'a mut Owner,
    /// The primary key that is being inserted.
    key: &'a Key,
    /// How a slot is claimed: locked, or, under a lock on the whole table, only checked.
    lock: bool,
}

impl Claims for SlotClaims<'_> {
    fn claim(&mut self, location: RowLocation, word: &AtomicU64) -> bool {
        if self.lock {
            self.locks.lock_fresh(self.owner, word, location.number())
        } else {
            !self.locks.keeps_locks_in_records() || ThinWord::is_free(word.load(Ordering::Relaxed))
        }
    }

    #[inline]
    fn placeholder(&self) -> &[u8] {
        self.key
    }
}

impl Context {
    /// Whether the lock on the table covers locks on its records.
    #[inline]
    pub fn is_covered(&self, slot: u32, mode: RecordMode) -> bool {
        let owner = &self.owner;
        if !owner.holds_whole() {
            return false;
        }
        match owner.mode_of(self.tables.id(slot)) {
            Some(LockMode::Exclusive) => true,
            Some(LockMode::Shared | LockMode::SharedIntentExclusive) => mode == RecordMode::Shared,
            _ => false,
        }
    }

    /// How the transaction locks rows of a table.
    #[inline(always)]
    pub fn row_locking(&self, slot: u32, mode: RecordMode) -> RowLocking {
        if self.is_covered(slot, mode) {
            RowLocking::Covered
        } else if self.core.locks.keeps_locks_in_records() && self.pages(slot).is_none() {
            RowLocking::InPlace
        } else {
            RowLocking::ByName
        }
    }

    /// Whether the transaction claims slots of a table by locks on them.
    #[inline]
    fn locks_slots(&self, slot: u32) -> bool {
        self.row_locking(slot, RecordMode::Exclusive) == RowLocking::InPlace
    }

    /// Ensures room for one more claim on a slot of the table.
    #[inline]
    pub fn make_room_for_claim(&mut self, slot: u32) -> Result<()> {
        if unlikely(self.locks_slots(slot) && !self.core.locks.make_room_for_one(&mut self.owner)) {
            return Err(Error::LockMemory { limit: self.core.locks.memory_limit() });
        }
        Ok(())
    }

    /// Runs `work` for the row of the key in `self.key`, with the table's storage, a hint that tells this transaction's
    /// slots apart in it, and the claims that the transaction makes on slots. There is
    /// [room](Context::make_room_for_claim) for a claim.
    #[inline]
    pub fn with_claims<T>(
        &mut self,
        slot: u32,
        work: impl FnOnce(&TableStore, usize, &mut SlotClaims<'_>) -> T,
    ) -> T {
        let lock = self.locks_slots(slot);
        let Context { core, tables, owner, number, key, .. } = self;
        let mut claims = SlotClaims { locks: &core.locks, owner, key, lock };
        work(&tables.at(slot).store, *number, &mut claims)
    }

    /// The usual way to a row by its primary key, in one piece: the table in the version that the last transaction
    /// used, and an uncontended lock in the row's own word. The key is in `self.key` then. `None`: take the long way
    /// from its beginning; it may find some of these steps done, and it reports the error if there is one.
    #[inline(always)]
    pub fn reach_to_change(&mut self, table: TableKey, key: &impl IntoKey) -> Option<(u32, RowLocation)> {
        let slot = self.encode_at_once(table, key)?;
        self.reach_key_to_change(slot).map(|record| (slot, record))
    }

    /// Encodes the key into `self.key` and returns the table's position, if the table is found at the first look-up.
    #[inline(always)]
    pub fn encode_at_once(&mut self, table: TableKey, key: &impl IntoKey) -> Option<u32> {
        let (slot, version) = self.tables.find_at_once(table)?;
        key.encode_into(version.schema.key_shape(WhichIndex::Primary), &mut self.key).ok()?;
        Some(slot)
    }

    #[inline(never)]
    fn reach_key_to_change(&mut self, slot: u32) -> Option<RowLocation> {
        self.reach_key(slot, RecordMode::Exclusive)
    }

    /// The usual way to the row of the key in `self.key`.
    #[inline(always)]
    pub fn reach_key(&mut self, slot: u32, mode: RecordMode) -> Option<RowLocation> {
        if unlikely(!self.core.locks.keeps_locks_in_records()) {
            return self.reach_locked(slot, mode);
        }
        if unlikely(self.has_other_ways()) {
            return None;
        }
        if unlikely(!self.prefetched.is_empty()) {
            return self.reach_prefetched(slot, mode);
        }
        let Context { core, tables, owner, key, scope, depends, .. } = self;
        let (table, lent) = (tables.at(slot), core.locks.lent(owner));
        let found = approach(table, lent, owner, key, scope, mode)?;
        let record = lock_found(core, lent, owner, table, depends, &found, mode)?;
        // A record that this transaction writes is not free: the transaction has locked it exclusively.
        debug_assert!(self.find_own(slot).is_none());
        Some(record)
    }

    /// The same in a transaction that has prefetched keys.
    #[inline(never)]
    fn reach_prefetched(&mut self, slot: u32, mode: RecordMode) -> Option<RowLocation> {
        let Context { core, tables, owner, key, scope, depends, prefetched, .. } = self;
        let (table, lent) = (tables.at(slot), core.locks.lent(owner));
        if !may_approach(table, lent, owner, key, scope, mode) {
            return None;
        }
        let looked_up;
        let found = match prefetched.find(&table.store, WhichIndex::Primary, key) {
            Some(found) => found,
            None => {
                looked_up = table.store.find(WhichIndex::Primary, key);
                &looked_up
            }
        };
        lock_found(core, lent, owner, table, depends, found, mode)
    }

    /// Whether the usual way must not be taken.
    #[inline(always)]
    fn has_other_ways(&self) -> bool {
        self.is_hindered() || self.ddl.is_some() || self.owner.holds_whole()
    }

    /// The usual way to the row of the key in `self.key`, in the thin form, up to its lock: what the index says.
    #[inline(always)]
    pub fn approach(&mut self, slot: u32, mode: RecordMode) -> Option<Found> {
        if unlikely(self.has_other_ways()) {
            return None;
        }
        let Context { core, tables, owner, key, scope, .. } = self;
        approach(tables.at(slot), core.locks.lent(owner), owner, key, scope, mode)
    }

    /// As [`Context::approach`] in a transaction that has prefetched keys.
    #[inline(never)]
    pub fn approach_prefetched(&mut self, slot: u32, mode: RecordMode) -> Option<Found> {
        if unlikely(self.has_other_ways()) {
            return None;
        }
        let Context { core, tables, owner, key, scope, .. } = self;
        let may_go = may_approach(tables.at(slot), core.locks.lent(owner), owner, key, scope, mode);
        may_go.then(|| self.look_up(slot, WhichIndex::Primary, None))
    }

    /// The same in an action whose identifier is locked.
    #[inline(never)]
    fn reach_locked(&mut self, slot: u32, mode: RecordMode) -> Option<RowLocation> {
        if !self.core.locks.keeps_keys_at_executors() || self.is_hindered() {
            return None;
        }
        let Context { key, scope, side, .. } = self;
        if !scope.is_at(slot, mode) || !scope.has_locked(slot, key, mode) || side.noted {
            return None;
        }
        if self.pages(slot).is_some() {
            return None;
        }
        let record = self.look_up(slot, WhichIndex::Primary, None).location()?;
        let row = self.tables.at(slot).store.row(record);
        if row.is_absent() {
            return None;
        }
        // The action depends on the table's floor already.
        let lsn = row.lsn();
        if self.find_own(slot).is_some() {
            return None;
        }
        self.depend(lsn);
        Some(record)
    }

    /// The way to an uncontended lock: locks the row of the key in `self.key` of the table's identity in its own word.
    /// `None`, with no effect, if there is no row, if the row is locked (maybe by this transaction), or where locks are
    /// kept elsewhere: then [`Context::seek`] decides.
    #[inline(always)]
    pub fn seek_free(&mut self, slot: u32, mode: RecordMode) -> Option<RowLocation> {
        if self.row_locking(slot, mode) != RowLocking::InPlace || unlikely(self.noted_locks.is_some()) {
            return None;
        }
        let found = self.look_up(slot, WhichIndex::Primary, None);
        self.lock_found(slot, &found, mode)
    }

    /// The rest of [`Context::seek_free`], behind a probe for the key in `self.key`.
    #[inline(always)]
    pub fn lock_found(&mut self, slot: u32, found: &Found, mode: RecordMode) -> Option<RowLocation> {
        let Context { core, tables, owner, depends, .. } = self;
        let lent = core.locks.lent(owner);
        let record = lock_found(core, lent, owner, tables.at(slot), depends, found, mode)?;
        // A record that this transaction writes is not free: the transaction has locked it exclusively.
        debug_assert!(self.find_own(slot).is_none());
        Some(record)
    }

    /// Locks the key in `self.key` of the table's identity and finds its row. Notes what the answer depends on.
    #[inline(never)]
    pub fn seek(&mut self, slot: u32, mode: RecordMode) -> Result<CurrentLocation> {
        let location = self.seek_key(slot, mode)?;
        if unlikely(matches!(location, CurrentLocation::Absent(_))) && self.keeps_number_absent(slot)? {
            return self.seek_key(slot, mode);
        }
        Ok(location)
    }

    #[inline(always)]
    pub(super) fn seek_key(&mut self, slot: u32, mode: RecordMode) -> Result<CurrentLocation> {
        match self.row_locking(slot, mode) {
            RowLocking::InPlace => self.seek_thin(slot, mode),
            RowLocking::Covered | RowLocking::ByName => self.seek_slowly(slot, mode),
        }
    }

    /// In the thin form, locks the absence of the hidden row number in `self.key` as a scan locks a range (I7). An
    /// insert does not ask for the lock on the name of a new number, so that lock does not stop it. False: the lock on
    /// the name suffices.
    #[cold]
    fn keeps_number_absent(&mut self, slot: u32) -> Result<bool> {
        let has_key = self.tables.at(slot).schema.primary_key().is_some();
        if has_key || self.row_locking(slot, RecordMode::Shared) != RowLocking::InPlace {
            return Ok(false);
        }
        let key = self.key.clone();
        let bounds = (Bound::Included(key.clone()), Bound::Included(key.clone()));
        let (index, direction, mode) = (WhichIndex::Primary, Direction::Forward, RecordMode::Shared);
        let range =
            ByteScan { index, bounds, direction, mode, reads: Reads::Rows, limit: Some(1), before: 0 };
        let scanned = self
            .scan_bytes(slot, &range, &mut ScanScratch::default(), &mut |_, _| Ok(ControlFlow::Break(())));
        self.key = key;
        scanned.map(|()| true)
    }

    /// The same in the central form and the local one, or under a lock on the table.
    fn seek_slowly(&mut self, slot: u32, mode: RecordMode) -> Result<CurrentLocation> {
        // What this transaction writes it has locked exclusively.
        if let Some(position) = self.find_own(slot) {
            return Ok(CurrentLocation::Own(position));
        }
        if !self.is_covered(slot, mode) && !self.scope.has_locked(slot, &self.key, mode) {
            self.lock_name(slot, mode)?;
        }
        self.find(slot)
    }

    fn seek_thin(&mut self, slot: u32, mode: RecordMode) -> Result<CurrentLocation> {
        let found = self.look_up(slot, WhichIndex::Primary, None);
        if let Some(position) = self.find_own(slot) {
            return Ok(CurrentLocation::Own(position));
        }
        let mut since = None;
        let Some(record) = found.location() else {
            return self.seek_absent(slot, (found.vacancy(), found.removal), mode, &mut since);
        };
        let known = Some((record, found.leaf));
        match self.lock_present_since(slot, (WhichIndex::Primary, None), known, mode, &mut since)? {
            Probe::Present(record) => Ok(self.stored(slot, record)),
            Probe::Absent { vacancy, removal } => {
                self.seek_absent(slot, (vacancy, removal), mode, &mut since)
            }
        }
    }

    /// Locks by name a key that was absent. If it is present by now, its record is locked too.
    fn seek_absent(
        &mut self,
        slot: u32,
        (vacancy, removal): (Vacancy, Lsn),
        mode: RecordMode,
        since: &mut Option<Moment>,
    ) -> Result<CurrentLocation> {
        self.lock_name_since(slot, mode, since)?;
        if self.tables.at(slot).store.unchanged(WhichIndex::Primary, &vacancy.leaf) {
            return Ok(self.absent(slot, vacancy, removal));
        }
        match self.lock_present_since(slot, (WhichIndex::Primary, None), None, mode, since)? {
            Probe::Present(record) => Ok(self.stored(slot, record)),
            Probe::Absent { vacancy, removal } => Ok(self.absent(slot, vacancy, removal)),
        }
    }

    /// Locks the key in `self.key` by name. The lock holds whether there is a row of this key or not.
    pub fn lock_name(&mut self, slot: u32, mode: RecordMode) -> Result<()> {
        self.lock_name_since(slot, mode, &mut None)
    }

    fn lock_name_since(&mut self, slot: u32, mode: RecordMode, since: &mut Option<Moment>) -> Result<()> {
        let index = self.tables.at(slot).primary_id;
        self.lock_since(
            since,
            |core, owner, _, key, wait| core.locks.key(owner, index, key, mode, wait).map(drop),
            |_, key| LockTarget::Record { index, key: key.to_vec() },
        )?;
        if let Some(noted) = &mut self.noted_locks {
            noted.key(index, &self.key);
        }
        Ok(())
    }

    /// Locks the keys of an index that an action's identifier names, present or not.
    pub fn lock_identifier(&mut self, index: IndexId, span: SpanRef<'_>, mode: RecordMode) -> Result<()> {
        self.lock(
            |core, owner, _, _, wait| core.locks.local(owner, index, span, mode, wait).map(drop),
            |_, _| LockTarget::Record { index, key: span.lower().to_vec() },
        )
    }

    /// Locks a key of an index, whether it is there or not.
    pub fn lock_key(&mut self, index: IndexId, key: &Key, mode: RecordMode) -> Result<()> {
        self.lock(
            |core, owner, _, _, wait| core.locks.key(owner, index, key, mode, wait).map(drop),
            |_, _| LockTarget::Record { index, key: key.to_vec() },
        )?;
        if let Some(noted) = &mut self.noted_locks {
            noted.key(index, key);
        }
        Ok(())
    }

    /// Locks the record that an index leads to from `entry` (`None`: the key in `self.key`); `known` is what a scan has
    /// just read there. Under the lock the index still leads to the record.
    pub fn lock_present(
        &mut self,
        slot: u32,
        which: WhichIndex,
        entry: Option<&[u8]>,
        known: Option<(RowLocation, Leaf)>,
        mode: RecordMode,
    ) -> Result<Probe> {
        self.lock_present_since(slot, (which, entry), known, mode, &mut None)
    }

    /// The same for an operation whose waits began at `since`.
    fn lock_present_since(
        &mut self,
        slot: u32,
        (which, entry): (WhichIndex, Option<&[u8]>),
        mut known: Option<(RowLocation, Leaf)>,
        mode: RecordMode,
        since: &mut Option<Moment>,
    ) -> Result<Probe> {
        loop {
            let (record, leaf) = match known.take() {
                Some(known) => known,
                None => {
                    let found = self.tables.at(slot).store.find(which, entry.unwrap_or(&self.key));
                    match found.location() {
                        Some(record) => (record, found.leaf),
                        None => {
                            return Ok(Probe::Absent { vacancy: found.vacancy(), removal: found.removal });
                        }
                    }
                }
            };
            let acquired = self.lock_record(slot, (which, entry), record, mode, since)?;
            let store = &self.tables.at(slot).store;
            if fault_injection::is_on("no-recheck-behind-lock")
                || store.leads_still(which, entry.unwrap_or(&self.key), record, &leaf)
            {
                return Ok(Probe::Present(record));
            }
            if acquired == Acquired::New
                && let Some(word) = store.lock_word(record)
            {
                self.core.locks.release_thin_early(&mut self.owner, word, record.number());
            }
        }
    }

    #[inline]
    fn lock_record(
        &mut self,
        slot: u32,
        (which, entry): (WhichIndex, Option<&[u8]>),
        record: RowLocation,
        mode: RecordMode,
        since: &mut Option<Moment>,
    ) -> Result<Acquired> {
        let index = self.tables.at(slot).index_id(which);
        let acquired = self.lock_since(
            since,
            |core, owner, tables, key, wait| {
                let at = tables.at(slot).store.lock_word(record).map(|word| (word, record.number()));
                debug_assert!(
                    at.is_some() || which == WhichIndex::Primary,
                    "a row's name is that of its primary key"
                );
                core.locks.row(owner, at, (index, entry.unwrap_or(key)), mode, wait)
            },
            |_, key| LockTarget::Record { index, key: entry.unwrap_or(key).to_vec() },
        )?;
        if let Some(noted) = &mut self.noted_locks {
            noted.row(index, entry.unwrap_or(&self.key));
        }
        Ok(acquired)
    }

    /// The location of the row of the key in `self.key`, which is locked.
    pub fn locate(&mut self, slot: u32) -> Result<CurrentLocation> {
        match self.find_own(slot) {
            Some(position) => Ok(CurrentLocation::Own(position)),
            None => self.find(slot),
        }
    }

    fn find(&mut self, slot: u32) -> Result<CurrentLocation> {
        if self.pages(slot).is_some() {
            return self.find_in_pages(slot);
        }
        let found = self.look_up(slot, WhichIndex::Primary, None);
        Ok(match found.location() {
            Some(record) => self.stored(slot, record),
            None => self.absent(slot, found.vacancy(), found.removal),
        })
    }

    fn absent(&mut self, slot: u32, vacancy: Vacancy, removal: Lsn) -> CurrentLocation {
        let floor = self.tables.at(slot).floor();
        self.depend(removal.max(floor));
        if self.side.noted {
            self.side.note_absence(self.tables.at(slot).primary_id, removal);
        }
        CurrentLocation::Absent(Some(vacancy))
    }

    /// The location of a record that is locked.
    #[inline]
    pub fn stored(&mut self, slot: u32, record: RowLocation) -> CurrentLocation {
        let table = self.tables.at(slot);
        let row = table.store.row(record);
        if row.is_absent() {
            self.side.note_anything_absent();
            return CurrentLocation::Absent(None);
        }
        let lsn = row.lsn().max(table.floor());
        self.depend(lsn);
        // In the thin form the lock itself tells.
        if self.side.noted && !self.core.locks.keeps_locks_in_records() {
            self.side.note_record(record);
        }
        CurrentLocation::Stored(record)
    }

    /// This transaction's own newest write to the row of the key in `self.key`.
    #[inline]
    pub fn find_own(&self, slot: u32) -> Option<u32> {
        if self.writes.is_empty() {
            return None;
        }
        let table = self.tables.at(slot);
        self.writes.find(table.store.heap(), table.primary_id, &self.key, self.packet_bytes())
    }
}

/// What the table's identity index says about a key, once the intention lock on the table is held. `None`: take the
/// long way.
#[inline(always)]
fn approach(
    table: &TableVersion,
    lent: Lent<'_>,
    owner: &mut Owner,
    key: &Key,
    scope: &Scope,
    mode: RecordMode,
) -> Option<Found> {
    match may_approach(table, lent, owner, key, scope, mode) {
        true => Some(table.store.find_in_line(key)),
        false => None,
    }
}

/// Takes the intention lock on a table. False: take the long way.
#[inline(always)]
fn may_approach(
    table: &TableVersion,
    lent: Lent<'_>,
    owner: &mut Owner,
    key: &Key,
    scope: &Scope,
    mode: RecordMode,
) -> bool {
    let intention = match mode {
        RecordMode::Shared => LockMode::IntentShared,
        RecordMode::Exclusive => LockMode::IntentExclusive,
    };
    // A version is retired under a lock on the whole table.
    let intends = lent.intend_again(owner, table.id, intention);
    let is_usual =
        intends && table.store.pages().is_none() && !table.is_retired() && scope.has_key(table.id, key);
    !unlikely(!is_usual)
}

/// Locks what a probe of the table's identity has found, if it is not locked; notes what the answer depends on.
#[inline(always)]
fn lock_found(
    core: &Core,
    lent: Lent<'_>,
    owner: &mut Owner,
    table: &TableVersion,
    depends: &mut Lsn,
    found: &Found,
    mode: RecordMode,
) -> Option<RowLocation> {
    let record = found.location()?;
    let (row, word) = (table.store.row(record), table.store.lock_word(record)?);
    if unlikely(!lent.record_if_free(owner, word, record.number(), mode)) {
        return None;
    }
    // L8: between the probe and the lock the row may have gone, and its slot to another row, whose commit has ended.
    // Then the slot is unlocked and not absent, and only the leaf tells.
    let leads_there = fault_injection::is_on("no-recheck-behind-lock")
        || table.store.unchanged(WhichIndex::Primary, &found.leaf);
    if unlikely(!leads_there || row.is_absent()) {
        core.locks.release_thin_early(owner, word, record.number());
        return None;
    }
    *depends = (*depends).max(row.lsn()).max(table.floor());
    Some(record)
}

#[cfg(test)]
mod tests;
