//! Inserts, and the index entries of changed rows. Both are made before the commit, so that applying it needs no memory
//! (I10).

use std::time::Duration;

use super::context::Context;
use super::seek::{RowLocking, SlotClaims};
use crate::commit::redo;
use crate::commit::write_set::{CurrentLocation, Effect, TargetRow, Write, WriteKind};
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::ids::{IndexId, Lsn};
use crate::isolate::{Admission, LockManager, LockTarget, Owner, RecordMode};
use crate::row::{Key, WhichIndex};
use crate::store::{Admit, Entered, Followed, RowLocation, TableStore, Vacancy};
use crate::unlikely::unlikely;

/// How long a transaction at the memory bound waits for the end of the transactions that may seek records in a segment.
const OUTLAST_MAX: Duration = Duration::from_millis(10);

impl Context {
    /// Inserts a row.
    pub fn insert_row(&mut self, slot: u32, row: &[u8]) -> Result<()> {
        let Context { core, owner, tables, body, key, numbers, .. } = self;
        let mut row_number = 0;
        body.clear();
        if tables.at(slot).numbered {
            row_number = numbers.take(|| {
                let share = core.locks.numbers_of_lease(owner, tables.at(slot).primary_id);
                tables.next_row_number(slot, share)
            });
            body.extend_from_slice(&row_number.to_le_bytes());
        }
        body.extend_from_slice(row);
        tables.at(slot).schema.primary_key_of_row(row, row_number, key);
        self.step(|context| context.insert_body(slot))
    }

    /// Locks the key in `self.key`, which is about to be inserted, and finds the row that has it already, if any.
    #[inline]
    fn seek_new(&mut self, slot: u32) -> Result<CurrentLocation> {
        let table = self.tables.at(slot);
        if table.schema.primary_key().is_some() {
            return self.seek(slot, RecordMode::Exclusive);
        }
        // A hidden row number that no row has had.
        if self.row_locking(slot, RecordMode::Exclusive) == RowLocking::ByName {
            self.lock_name(slot, RecordMode::Exclusive)?;
        }
        Ok(CurrentLocation::Absent(None))
    }

    /// Inserts the body in `self.body` under the key in `self.key`.
    pub(super) fn insert_body(&mut self, slot: u32) -> Result<()> {
        self.stay_at_row(slot)?;
        if unlikely(self.fetches()) {
            return self.fetch_insert(slot);
        }
        let absences = self.side.absences();
        let location = self.seek_new(slot)?;
        self.insert_at(slot, location, absences)
    }

    /// The same for a key that is locked, and whose row is at `location`; `absences` is what the transaction's side had
    /// noted before the key was sought.
    #[inline]
    pub(super) fn insert_at(&mut self, slot: u32, location: CurrentLocation, absences: usize) -> Result<()> {
        match location {
            CurrentLocation::Absent(_) if self.ddl.is_some() && self.inserts_directly(slot) => {
                self.insert_direct(slot)
            }
            CurrentLocation::Absent(vacancy) => {
                self.insert_new(slot, vacancy)?;
                self.side.forget_absences_after(absences);
                Ok(())
            }
            CurrentLocation::Own(position) if self.writes.get(position).kind == WriteKind::Delete => {
                self.check_unique(slot, None)?;
                if self.pages(slot).is_some() {
                    let target = TargetRow { slot, location };
                    return self.push_in_pages(target, WriteKind::Put, None);
                }
                let record = self.writes.get(position).final_location();
                let moved_to = self.reserve_move(slot, record, self.body.len())?;
                let effect = Effect { moved_to, rekeys: true, ..Effect::of(WriteKind::Put, record) };
                self.push_put(TargetRow { slot, location }, effect);
                self.add_secondary_entries(slot, None, record)
            }
            CurrentLocation::Own(_) | CurrentLocation::Stored(_) => {
                Err(self.duplicate(slot, WhichIndex::Primary, &self.key))
            }
        }
    }

    /// The same for a row that has no slot yet; `vacancy` is the insert position of its key in the primary index, as
    /// far as it is known.
    #[inline]
    fn insert_new(&mut self, slot: u32, vacancy: Option<Vacancy>) -> Result<()> {
        if unlikely(self.pages(slot).is_some()) {
            return self.insert_new_in_pages(slot);
        }
        let indexed = !self.tables.at(slot).schema.indexes().is_empty();
        if indexed {
            self.check_unique(slot, None)?;
        }
        let length = self.body.len();
        self.make_room_for_claim(slot)?;
        let slot_of_row =
            self.with_claims(slot, |store, number, claims| store.reserve(number, length, claims));
        let record = match slot_of_row {
            Some(record) => record,
            None => {
                self.slot_at_bound(slot, |store, number, claims| store.reserve(number, length, claims))?
            }
        };
        let Context { core, tables, owner, packet: Some(packet), key, body, writes, .. } = self else {
            unreachable!("borrowed by check_write")
        };
        let (table, packet) = (tables.at(slot), packet.bytes_mut());
        let record_at = redo::write_put(packet, table.id, key, table.numbered, body);
        let effect = Effect { fresh: true, ..Effect::of(WriteKind::Put, record) };
        writes.push(
            Write::new(table, TargetRow { slot, location: CurrentLocation::Absent(None) }, effect, record_at),
            packet,
        );
        // The entry in the primary index, which the write takes back if the transaction aborts.
        let admit = || admission(&core.locks, owner, table.primary_id, key);
        let inserted = match &vacancy {
            Some(vacancy) => table.store.enter_at(vacancy, key, record, admit),
            None => table.store.enter(WhichIndex::Primary, key, record, admit),
        };
        match inserted {
            Some(Entered::Done) => writes.note_entered(),
            _ => {
                let key = key.clone();
                self.add_entry(slot, WhichIndex::Primary, &key, record)?;
            }
        }
        if indexed { self.add_secondary_entries(slot, None, record) } else { Ok(()) }
    }

    /// A slot for a body that does not fit where the row lies.
    pub(super) fn reserve_move(
        &mut self,
        slot: u32,
        record: RowLocation,
        length: usize,
    ) -> Result<Option<RowLocation>> {
        if length <= self.tables.at(slot).store.row(record).room() {
            return Ok(None);
        }
        self.reserve_near(slot, record, length).map(Some)
    }

    /// A slot for a body that has to leave the slot where the row lies.
    pub(super) fn reserve_near(
        &mut self,
        slot: u32,
        record: RowLocation,
        length: usize,
    ) -> Result<RowLocation> {
        let ask = |store: &TableStore, number: usize, claims: &mut SlotClaims<'_>| {
            store.reserve_near(number, length, record, claims)
        };
        self.make_room_for_claim(slot)?;
        match self.with_claims(slot, ask) {
            Some(moved) => Ok(moved),
            None => self.slot_at_bound(slot, ask),
        }
    }

    pub(super) fn duplicate(&self, slot: u32, which: WhichIndex, key: &[u8]) -> Error {
        let table = self.tables.at(slot);
        Error::DuplicateKey {
            table: table.name().to_owned(),
            index: table.schema.key_shape(which).name().to_owned(),
            key: table.schema.print_key(which, key),
        }
    }

    /// Puts an entry into an index before the commit. Waits while another transaction has read an interval that the key
    /// falls into.
    fn add_entry(&mut self, slot: u32, which: WhichIndex, key: &Key, record: RowLocation) -> Result<()> {
        if let WhichIndex::Secondary(position) = which
            && unlikely(self.pages(slot).is_some())
        {
            return self.add_entry_in_pages(slot, position, key);
        }
        let mut since = None;
        loop {
            let table = self.tables.at(slot);
            let index_id = table.index_id(which);
            let admit = || admission(&self.core.locks, &self.owner, index_id, key);
            let mut replaced = None;
            let entered = match table.store.enter(which, key, record, admit) {
                Some(entered) => entered,
                None => self.entered_at_bound(slot, which, key, record)?,
            };
            match entered {
                Entered::Done => {}
                // An entry of the same row, or of another row of this transaction that gives the key up: uniqueness has
                // been checked.
                Entered::Exists(there) if there == record => return Ok(()),
                Entered::Exists(there) => {
                    self.tables.at(slot).store.repoint(which, key, there, record);
                    replaced = Some(there);
                }
                Entered::Refused => {
                    self.lock_since(
                        &mut since,
                        |core, owner, _, _, wait| core.locks.wait_interval(owner, index_id, key, wait),
                        |_, _| LockTarget::Interval { index: index_id, key: key.to_vec() },
                    )?;
                    continue;
                }
            }
            return self.note_entry(slot, which, key, record, replaced);
        }
    }

    /// Notes an entry that was put into an index. It is an error if the transaction's entries take too much memory; the
    /// entry is removed when the operation is taken back.
    pub(super) fn note_entry(
        &mut self,
        slot: u32,
        which: WhichIndex,
        key: &Key,
        record: RowLocation,
        replaced: Option<RowLocation>,
    ) -> Result<()> {
        self.writes.add(slot, which, key, record, replaced);
        let bytes = self.writes.entry_bytes();
        if unlikely(bytes > self.room_for_entries) { Err(self.too_many_entries(bytes)) } else { Ok(()) }
    }

    /// The same step, after the index found no free node.
    #[cold]
    fn entered_at_bound(
        &mut self,
        slot: u32,
        which: WhichIndex,
        key: &Key,
        record: RowLocation,
    ) -> Result<Entered> {
        self.at_bound(Some(slot), |context| {
            let table = context.tables.at(slot);
            let admit = || admission(&context.core.locks, &context.owner, table.index_id(which), key);
            table.store.enter(which, key, record, admit)
        })
    }

    /// A slot of the table's storage, which found none free, after all tables have given up what they do not need; an
    /// error if no table has anything to give.
    #[cold]
    pub(super) fn slot_at_bound(
        &mut self,
        slot: u32,
        ask: impl Fn(&TableStore, usize, &mut SlotClaims<'_>) -> Option<RowLocation>,
    ) -> Result<RowLocation> {
        self.at_bound(Some(slot), |context| context.with_claims(slot, &ask))
    }

    /// Tries again what has failed for memory, as long as there is more memory than before the last attempt, or tables
    /// give segments back. Then it tries once more, since other transactions may have made room meanwhile.
    ///
    /// A failed attempt frees the index nodes that it has taken, which can then be given back: not more than it began
    /// with. It empties no segments. So there is a last attempt.
    #[cold]
    pub(super) fn at_bound<T>(
        &mut self,
        slot: Option<u32>,
        mut attempt: impl FnMut(&mut Context) -> Option<T>,
    ) -> Result<T> {
        let mut had = None;
        loop {
            self.check()?;
            self.core.storage.give_back_nodes();
            let is_last = Some(self.free_bytes()) <= had && self.give_back_empty(slot)? == 0;
            had = Some(self.free_bytes());
            match attempt(self) {
                Some(done) => return Ok(done),
                None if is_last => return Err(self.memory_limit()),
                None => {}
            }
        }
    }

    /// The free bytes of the memory bound.
    fn free_bytes(&self) -> u64 {
        self.core.storage.budget().free()
    }

    /// Gives back the segments of all tables that hold no row, unless other transactions may still seek what was there
    /// (L8), and returns how many there were. It waits for these transactions a little, once for all tables; the
    /// segments stay in use meanwhile.
    #[cold]
    fn give_back_empty(&mut self, slot: Option<u32>) -> Result<u64> {
        let empty = self.core.storage.empty_segments(slot.map(|slot| self.tables.at(slot)));
        if empty.is_empty() || !self.outlast_seekers()? {
            return Ok(0);
        }
        Ok(empty.give_back())
    }

    /// Waits a little until no transaction can seek a record that no index leads to any more. False: one still may.
    fn outlast_seekers(&self) -> Result<bool> {
        let locks = &self.core.locks;
        let outlasts = !locks.keeps_locks_in_records()
            || locks.outlast_others(&self.owner, OUTLAST_MAX, || self.check().is_err());
        self.check()?;
        Ok(outlasts)
    }

    /// Whether a key that comes into a secondary index or goes is locked there, because other transactions read an
    /// index alone by spans of its keys.
    pub(super) fn locks_secondary_keys(&self, slot: u32) -> bool {
        self.core.locks.keeps_keys_at_executors() && !self.is_covered(slot, RecordMode::Exclusive)
    }

    /// Adds the entries of the row in `self.body` to the secondary indexes, except keys that `old` has too.
    pub(super) fn add_secondary_entries(
        &mut self,
        slot: u32,
        old: Option<&[u8]>,
        record: RowLocation,
    ) -> Result<()> {
        let mut key = Key::new();
        let by_key = self.locks_secondary_keys(slot);
        for position in 0..self.tables.at(slot).schema.indexes().len() {
            if self.secondary_key(slot, position, old, &mut key) {
                if by_key {
                    self.lock_secondary_key(slot, position, &key)?;
                }
                self.add_entry(slot, WhichIndex::Secondary(position), &key, record)?;
            }
        }
        Ok(())
    }

    /// The key of the row in `self.body` in a secondary index. False if the row in `old` has it too.
    pub(super) fn secondary_key(
        &self,
        slot: u32,
        position: usize,
        old: Option<&[u8]>,
        key: &mut Key,
    ) -> bool {
        let table = self.tables.at(slot);
        table.schema.index_key_of_row(position, &self.body[table.row_at()..], &self.key, key);
        let Some(old) = old else { return true };
        let mut old_key = Key::new();
        table.schema.index_key_of_row(position, &old[table.row_at()..], &self.key, &mut old_key);
        old_key != *key
    }

    /// Locks the unique keys that the row in `self.body` newly has, and checks that no other row has them.
    pub(super) fn check_unique(&mut self, slot: u32, old: Option<&[u8]>) -> Result<()> {
        let mut key = Key::new();
        for position in 0..self.tables.at(slot).schema.indexes().len() {
            if !self.tables.at(slot).schema.indexes()[position].unique
                || !self.secondary_key(slot, position, old, &mut key)
            {
                continue;
            }
            if !fault_injection::is_on("unique-key-not-locked") {
                self.lock_secondary_key(slot, position, &key)?;
            }
            if self.is_taken(slot, position, &key)? {
                return Err(self.duplicate(slot, WhichIndex::Secondary(position), &key));
            }
        }
        Ok(())
    }

    pub(super) fn lock_secondary_key(&mut self, slot: u32, position: usize, key: &Key) -> Result<()> {
        let index = self.tables.at(slot).schema.indexes()[position].id;
        self.lock_key(index, key, RecordMode::Exclusive)
    }

    /// Whether a row other than the one in `self.key` has this key in a unique index. The key is locked, or no other
    /// transaction sees the table.
    pub(super) fn is_taken(&mut self, slot: u32, position: usize, key: &Key) -> Result<bool> {
        let table = self.tables.at(slot);
        let mut body = Vec::new();
        let Followed { record, lsn, removal, mut there } =
            table.read_by_entry(&self.page_access, WhichIndex::Secondary(position), key, &mut body)?;
        // The primary key of the entry's row. In a slot without a row the body is the primary key.
        let mut primary = Key::new();
        match there {
            true => {
                let row = &body[table.row_at()..];
                table.schema.primary_key_of_row(row, table.row_number(&body), &mut primary);
            }
            false => primary.extend_from_slice(&body),
        }
        let (heap, identity) = (table.store.heap(), table.primary_id);
        let own = record.and_then(|_| self.writes.find(heap, identity, &primary, self.packet_bytes()));
        if let Some(own) = own {
            there = self.read_at_into(slot, CurrentLocation::Own(own), &mut body)?;
        }
        let mut taken = false;
        if there {
            let (row, mut has) = (&body[table.row_at()..], Key::new());
            table.schema.index_key_of_row(position, row, &primary, &mut has);
            taken = has == *key && primary != self.key;
        }
        if self.side.noted {
            let index = self.tables.at(slot).index_id(WhichIndex::Secondary(position));
            match record {
                // The row itself is not locked, but the fact that it has this key is.
                Some(record) if taken => self.side.note_record(record),
                _ => self.side.note_absence(index, removal),
            }
        }
        self.depend(match own {
            _ if !taken => removal,
            Some(_) => Lsn::ZERO,
            None => lsn,
        });
        Ok(taken)
    }
}

/// Whether an entry may be put into a guarded leaf (I7).
pub(super) fn admission(locks: &LockManager, owner: &Owner, index: IndexId, key: &[u8]) -> Admit {
    match locks.admits(owner, index, key) {
        Admission::Go => Admit::Go,
        Admission::GoAndUnguard => Admit::GoAndUnguard,
        Admission::Refuse => Admit::Refuse,
    }
}

#[cfg(test)]
mod tests {
    use crate::io::MemoryDisk;
    use crate::{Checkpointing, Database, Error, Options};

    fn open() -> Database {
        let options =
            Options { memory_bytes: 16 << 20, checkpoint: Checkpointing::None, ..Options::default() };
        Database::open_on(MemoryDisk::new(), options).unwrap()
    }

    /// Other transactions may have made room since the last attempt, though there is no more memory and no table has
    /// any to give.
    #[test]
    fn what_fails_at_the_bound_is_tried_once_more_and_no_more() {
        let db = open();
        let mut tx = db.begin().unwrap();
        let mut attempts = 0;
        let done = tx.context().at_bound(None, |_| {
            attempts += 1;
            (attempts == 2).then_some(())
        });
        assert_eq!((done, attempts), (Ok(()), 2));
        attempts = 0;
        let done = tx.context().at_bound(None, |_| {
            attempts += 1;
            None::<()>
        });
        assert!(matches!(done, Err(Error::MemoryLimit { .. })), "{done:?}");
        assert_eq!(attempts, 2);
    }

    #[test]
    fn what_fails_at_the_bound_is_tried_again_for_as_long_as_there_is_more_memory() {
        const ROUNDS: usize = 5;
        /// The bytes that tables draw at a time.
        const CHUNK: u64 = 64 << 10;
        let db = open();
        let budget = db.core().storage.budget();
        let mut taken = (0..ROUNDS).filter(|_| budget.take(CHUNK)).count();
        assert_eq!(taken, ROUNDS, "the test's own premise");
        let mut tx = db.begin().unwrap();
        let done = tx.context().at_bound(None, |_| {
            if taken == 0 {
                return Some(());
            }
            // Another transaction gives memory back.
            budget.give(CHUNK);
            taken -= 1;
            None
        });
        assert_eq!(done, Ok(()));
    }
}
