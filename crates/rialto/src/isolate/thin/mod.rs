//! The thin form of record locks: an uncontended lock is 18 bits of the record's own word.
//!
//! ```text
//! word     0..16 owner (exclusive) or number of sharers | 16 exclusive | 17 queued | 18..20 unused | 20.. the store's
//! ```
//!
//! Invariants kept here:
//!
//! - **L7** A word's queued bit is set exactly while a lock head of the record's address exists; both change under that
//!   head's partition latch. While it is set, the word's other lock bits are 0 and the head is the whole truth.
//! - **L8** A record's address is the lock's name, so a slot must not be given to another record while its word's
//!   lock bits are set ([`LockManager::lock_fresh`] refuses it). A transaction that locks a record that an index
//!   probe gave it has to check afterwards that the record is still the key's. If it is not, the transaction releases
//!   the lock and probes again.
//! - **L9** Each owner's list names every record that it holds in the thin form, once, and a word counts each of its
//!   sharers once. So a release finds its records, and the deadlock detector finds the sharers that a word only
//!   counts.
//!
//! A key that is absent has no word: its lock is central, by name. An inserter therefore holds both, the name and,
//! before the entry is published, the new slot.

pub(super) mod index;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32 as PlainU32, AtomicU64 as PlainU64, Ordering};

use super::central::head::{Head, Heads};
use super::manager::{LockManager, WokenOwners};
use super::mode::{Acquired, LockMode, RecordMode};
use super::name::{HeadName, LockTarget};
use super::slot::{Lent, Owner, Slot, SlotBody};
use super::sync::{AtomicU64, Mutex};
use super::wait::{LockError, LockPolicy, Wait};
use crate::ids::IndexId;
use crate::probes::count_probe;
use crate::store::Budget;
use crate::unlikely::unlikely;

/// The lock bits of a record's word.
#[derive(Debug)]
pub struct ThinWord;

impl ThinWord {
    /// The bits that belong to the lock manager. All others are the store's, and the lock manager does not change
    /// them. The store changes its own bits by atomic read-modify-writes that leave these alone.
    pub const MASK: u64 = (1 << 20) - 1;
    /// The owner, or the number of sharers.
    const COUNT: u64 = (1 << 16) - 1;
    const EXCLUSIVE: u64 = 1 << 16;
    const QUEUED: u64 = 1 << 17;
    /// The bits of a lock in the word.
    const LOCK: u64 = Self::COUNT | Self::EXCLUSIVE;

    /// Whether the word's value shows neither a holder nor a waiter.
    pub fn is_free(word: u64) -> bool {
        word & Self::MASK == 0
    }

    /// Whether the record is locked exclusively, or its lock is in a head, which alone knows the mode.
    #[inline]
    pub fn is_exclusive(word: u64) -> bool {
        word & (Self::EXCLUSIVE | Self::QUEUED) != 0
    }

    /// Clears the word's queued bit when its head is gone. Under the head's partition latch (L7).
    fn deflate(word: &AtomicU64) {
        word.fetch_and(!Self::QUEUED, Ordering::Release);
    }

    fn granted(word: u64, owner: u16, mode: RecordMode) -> u64 {
        match mode {
            RecordMode::Shared => word + 1,
            RecordMode::Exclusive => word | Self::EXCLUSIVE | u64::from(owner),
        }
    }
}

/// Finds the word of a record by its address, when its lock is released.
pub trait LockWords {
    /// The word that was passed to [`LockManager::record_thin`] with this address.
    fn lock_word(&self, record: u64) -> &AtomicU64;
}

/// No record: the entry was taken back.
pub(super) const VOID: u64 = u64::MAX;

/// The length of a list's first chunk, which lies in the slot. Each further chunk is twice as long as the one before
/// it.
const FIRST_CHUNK: usize = 64;
/// How many chunks after the first a slot keeps for its next transactions.
pub(super) const CHUNKS_KEPT: usize = 2;
/// The length of a list of the first chunk and the kept ones. Longer lists take further memory from the budget.
pub(super) const LENGTH_KEPT: usize = FIRST_CHUNK * ((2 << CHUNKS_KEPT) - 1);

/// The records that an owner holds in the thin form. Only the owner writes the list; the deadlock detector reads it.
#[derive(Debug)]
pub(super) struct ThinList {
    length: PlainU32,
    first: [PlainU64; FIRST_CHUNK],
    /// A copy of the owner's own [`Chunks`], for the detector.
    more: Mutex<Chunks>,
}

impl Default for ThinList {
    fn default() -> ThinList {
        ThinList {
            length: PlainU32::new(0),
            first: [const { PlainU64::new(VOID) }; FIRST_CHUNK],
            more: Mutex::default(),
        }
    }
}

/// The chunks of a list after the first one. The owner has its own copy, so it needs no latch; the slot has one for
/// the detector. The detector keeps a chunk that it reads alive, so a chunk that the owner gives up is freed after
/// the last read.
#[derive(Debug, Default, Clone)]
pub(super) struct Chunks(Vec<Arc<[PlainU64]>>);

impl Chunks {
    /// The cell at this position of the list, if it exists.
    fn cell(&self, at: usize) -> Option<&PlainU64> {
        let chunk = (at / FIRST_CHUNK + 1).ilog2() as usize - 1;
        let begin = FIRST_CHUNK * ((2 << chunk) - 1);
        Some(&self.0.get(chunk)?[at - begin])
    }

    /// The cells of a list of this length.
    fn cells(&self, length: usize) -> impl Iterator<Item = &PlainU64> {
        self.0.iter().flat_map(|chunk| chunk.iter()).take(length.saturating_sub(FIRST_CHUNK))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The bytes of a chunk that come from the budget.
    fn bytes_of(chunk: usize) -> u64 {
        let length = FIRST_CHUNK * (2 << chunk);
        if chunk < CHUNKS_KEPT { 0 } else { (length * size_of::<PlainU64>()) as u64 }
    }
}

/// A list, read by its owner.
#[derive(Clone, Copy)]
struct Own<'a> {
    list: &'a ThinList,
    chunks: &'a Chunks,
}

impl Own<'_> {
    fn cell(&self, at: usize) -> &PlainU64 {
        self.list.first.get(at).or_else(|| self.chunks.cell(at)).expect("a place before the list's end")
    }

    #[inline]
    fn get(&self, at: usize) -> u64 {
        look(self.cell(at))
    }
}

impl ThinList {
    /// Appends a record; `at` is the list's length.
    #[inline(always)]
    fn push(&self, chunks: &mut Chunks, at: usize, record: u64) {
        match self.first.get(at) {
            Some(cell) => cell.store(record, Ordering::Relaxed),
            None => self.set_beyond(chunks, at, record),
        }
        self.length.store(at as u32 + 1, Ordering::Release);
    }

    fn set_beyond(&self, chunks: &mut Chunks, at: usize, record: u64) {
        chunks.cell(at).expect("there is room for one").store(record, Ordering::Relaxed);
    }

    /// Adds a chunk. False: there is no memory for it.
    #[cold]
    fn grow(&self, chunks: &mut Chunks, memory: &Budget) -> bool {
        if !memory.take(Chunks::bytes_of(chunks.len())) {
            return false;
        }
        let length = FIRST_CHUNK * (2 << chunks.len());
        chunks.0.push((0..length).map(|_| PlainU64::new(VOID)).collect());
        *self.more.lock() = chunks.clone();
        true
    }

    /// Empties the list. A long one gives memory back.
    #[inline(always)]
    fn clear(&self, chunks: &mut Chunks, memory: &Budget) {
        self.length.store(0, Ordering::Release);
        if unlikely(chunks.len() > CHUNKS_KEPT) {
            memory.give((CHUNKS_KEPT..chunks.len()).map(Chunks::bytes_of).sum());
            chunks.0.truncate(CHUNKS_KEPT);
            *self.more.lock() = chunks.clone();
        }
    }

    fn len(&self) -> usize {
        self.length.load(Ordering::Acquire) as usize
    }

    /// Whether the list names the record. Any thread may ask.
    pub(super) fn contains(&self, record: u64) -> bool {
        let length = self.len();
        if self.first.iter().take(length).any(|cell| look(cell) == record) {
            return true;
        }
        // If the owner has given up chunks since, it no longer holds anything that it held.
        length > FIRST_CHUNK && {
            let more = self.more.lock().clone();
            more.cells(length).any(|cell| look(cell) == record)
        }
    }

    /// How many chunks after the first are kept for the detector.
    #[cfg(test)]
    pub(super) fn chunks(&self) -> usize {
        self.more.lock().len()
    }
}

#[inline]
fn look(cell: &PlainU64) -> u64 {
    count_probe();
    cell.load(Ordering::Relaxed)
}

impl Lent<'_> {
    /// As [`LockManager::record_if_free`].
    #[inline(always)]
    pub fn record_if_free(self, owner: &mut Owner, word: &AtomicU64, record: u64, mode: RecordMode) -> bool {
        let before = word.load(Ordering::Relaxed);
        if !ThinWord::is_free(before) || !owner.has_room_for_one() {
            return false;
        }
        let locked = ThinWord::granted(before, owner.id(), mode);
        let free = word.compare_exchange(before, locked, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if free {
            self.note(owner, record);
        }
        free
    }

    /// Enters a record into the owner's list, which has room for it.
    #[inline(always)]
    fn note(self, owner: &mut Owner, record: u64) {
        // Counted when the locks are released, all at once.
        let body = &mut owner.body;
        self.0.thin.push(&mut body.thin_chunks, body.thin, record);
        body.thin += 1;
    }
}

impl Owner {
    /// Whether its list of thin locks has room for one more.
    #[inline(always)]
    fn has_room_for_one(&self) -> bool {
        let SlotBody { thin, thin_chunks, .. } = &self.body;
        *thin < FIRST_CHUNK || thin_chunks.cell(*thin).is_some()
    }
}

impl LockManager {
    /// Makes room for one more thin lock in the owner's list. False: there is no memory for it.
    #[inline]
    pub fn make_room_for_one(&self, owner: &mut Owner) -> bool {
        owner.has_room_for_one()
            || self.slot(owner).thin.grow(&mut owner.body.thin_chunks, &self.options.memory)
    }

    /// The bytes that all long lists of thin locks together may take.
    pub fn memory_limit(&self) -> u64 {
        self.options.memory.limit()
    }

    #[cold]
    fn no_memory(&self) -> LockError {
        LockError::NoMemory { limit: self.memory_limit() }
    }

    /// Locks a record by its word if it is free and the owner's list has room. If this gives `false`, call
    /// [`LockManager::record_thin`].
    #[inline(always)]
    pub fn record_if_free(&self, owner: &mut Owner, word: &AtomicU64, record: u64, mode: RecordMode) -> bool {
        self.lent(owner).record_if_free(owner, word, record, mode)
    }

    /// Locks a present record by its word, or strengthens the lock that the owner has on it. `record` is its address,
    /// below 2^63. The caller then checks that the record is still the one of `key` in `index` (L8). These two are
    /// read here only if the request has to wait, for the view of waits.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    pub fn record_thin(
        &self,
        owner: &mut Owner,
        word: &AtomicU64,
        record: u64,
        index: IndexId,
        key: &[u8],
        mode: RecordMode,
        wait: &Wait<'_>,
    ) -> Result<Acquired, LockError> {
        if self.record_if_free(owner, word, record, mode) {
            return Ok(Acquired::New);
        }
        let target = || LockTarget::Record { index, key: key.to_vec() };
        self.record_thin_again(owner, word, record, target, mode, wait)
    }

    fn record_thin_again(
        &self,
        owner: &mut Owner,
        word: &AtomicU64,
        record: u64,
        target: impl FnOnce() -> LockTarget,
        mode: RecordMode,
        wait: &Wait<'_>,
    ) -> Result<Acquired, LockError> {
        let id = owner.id();
        loop {
            let before = word.load(Ordering::Relaxed);
            let (locked, acquired) = if before & ThinWord::QUEUED != 0 {
                break;
            } else if before & ThinWord::EXCLUSIVE != 0 {
                if before & ThinWord::COUNT == u64::from(id) {
                    return Ok(Acquired::Held);
                }
                break;
            } else {
                let sharers = before & ThinWord::COUNT;
                match mode {
                    RecordMode::Shared if sharers > 0 && self.names(owner, record)? => {
                        return Ok(Acquired::Held);
                    }
                    RecordMode::Shared if sharers == ThinWord::COUNT => break,
                    RecordMode::Exclusive if sharers > 0 => {
                        if sharers > 1 || !self.names(owner, record)? {
                            // Other owners share it.
                            break;
                        }
                        (ThinWord::granted(before & !ThinWord::LOCK, id, mode), Acquired::Upgraded)
                    }
                    _ => (ThinWord::granted(before, id, mode), Acquired::New),
                }
            };
            if unlikely(acquired == Acquired::New && !self.make_room_for_one(owner)) {
                return Err(self.no_memory());
            }
            if word.compare_exchange_weak(before, locked, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                match acquired {
                    Acquired::New => self.lent(owner).note(owner, record),
                    _ => self.slot(owner).counters.row.add(1),
                }
                return Ok(acquired);
            }
        }
        if wait.policy == LockPolicy::Refuse && word.load(Ordering::Relaxed) & ThinWord::QUEUED == 0 {
            self.slot(owner).counters.refused.add(1);
            return Err(LockError::WouldWait);
        }
        let name = HeadName::address(record);
        let holds = self.names(owner, record)?;
        if unlikely(!holds && !self.make_room_for_one(owner)) {
            return Err(self.no_memory());
        }
        let ask = |heads: &mut Heads| {
            let at = heads.find_or_insert(name);
            let head = heads.at(at);
            inflate(word, head);
            if holds && !head.names(id) {
                head.name_anonymous(id);
            }
            (at, head.ask(id, mode.into()))
        };
        let (acquired, _) = self.acquire_by(owner, name, wait, target, ask)?;
        match acquired {
            Acquired::New => self.lent(owner).note(owner, record),
            Acquired::Upgraded => self.slot(owner).counters.row.add(1),
            Acquired::Held => {}
        }
        Ok(acquired)
    }

    /// Whether the owner's list names the record. A short list is searched; a long one has an index.
    fn names(&self, owner: &mut Owner, record: u64) -> Result<bool, LockError> {
        let body = &mut owner.body;
        let own = Own { list: &self.slots[usize::from(body.id)].thin, chunks: &body.thin_chunks };
        if body.thin <= FIRST_CHUNK {
            return Ok((0..body.thin).rev().any(|at| own.get(at) == record));
        }
        if !body.thin_index.extend(body.thin, |at| own.get(at), &self.options.memory) {
            return Err(self.no_memory());
        }
        Ok(body.thin_index.has(record))
    }

    /// The owner's list.
    fn own<'a>(&'a self, owner: &'a Owner) -> Own<'a> {
        Own { list: &self.slot(owner).thin, chunks: &owner.body.thin_chunks }
    }

    /// The records that the owner holds in the thin form, by address.
    pub fn held_records<'a>(&'a self, owner: &'a Owner) -> impl Iterator<Item = u64> + 'a {
        let own = self.own(owner);
        (0..owner.body.thin).map(move |at| own.get(at)).filter(|&record| record != VOID)
    }

    /// Locks a slot that no index names yet, exclusively, before an entry for it is published. The owner's list has
    /// [room](LockManager::make_room_for_one) for it. False: the slot's lock bits are still in use by owners that
    /// held, or asked for, the record that was there before; take another slot.
    ///
    /// If the owner has locked the slot itself, for a row that it has taken back, the slot is locked already, and L8
    /// holds for it: while the word is exclusively the owner's and not queued, no other owner holds the slot or waits
    /// for it as the row that was taken back. An owner that has the slot's address from an index and asks later waits
    /// for this owner's end, and then finds in the index that the record is not the key's. A reader without locks
    /// reads no record that is locked exclusively, and a record that it has read before has another version since,
    /// which it got when the slot was freed.
    pub fn lock_fresh(&self, owner: &mut Owner, word: &AtomicU64, record: u64) -> bool {
        let own = ThinWord::EXCLUSIVE | u64::from(owner.id());
        self.record_if_free(owner, word, record, RecordMode::Exclusive)
            || word.load(Ordering::Relaxed) & ThinWord::MASK == own
    }

    /// Releases one thin lock before the end of the transaction: for a record that turned out not to be the key's
    /// (L8), and for weaker isolation levels. Does nothing if the lock is not held. Only for a lock that was
    /// [`Acquired::New`].
    pub fn release_thin_early(&self, owner: &mut Owner, word: &AtomicU64, record: u64) {
        let own = self.own(owner);
        let Some(at) = (0..owner.body.thin).rev().find(|&at| own.get(at) == record) else { return };
        self.release_thin(owner.id(), word, record);
        self.slot(owner).counters.row.add(1);
        own.cell(at).store(VOID, Ordering::Relaxed);
        let was_long = owner.body.thin > FIRST_CHUNK;
        let length = (0..owner.body.thin).rev().find(|&at| own.get(at) != VOID).map_or(0, |last| last + 1);
        own.list.length.store(length as u32, Ordering::Release);
        owner.body.thin = length;
        match length > FIRST_CHUNK {
            true => {
                owner.body.thin_index.remove(record);
                owner.body.thin_index.shorten(length);
            }
            false if was_long => owner.body.thin_index.clear(&self.options.memory),
            false => {}
        }
    }

    /// Releases everything, thin locks included.
    #[inline(always)]
    pub fn release_all_thin(&self, owner: &mut Owner, words: &impl LockWords) {
        self.release_records(owner, words);
        self.release_all(owner);
    }

    /// Releases everything, thin locks included, and ends the slot's transaction. Returns how long transactions of
    /// this slot, including earlier ones, have waited for locks.
    #[inline(always)]
    pub fn finish(&self, owner: &mut Owner, words: &impl LockWords) -> u64 {
        let slot = self.slot(owner);
        self.release_records_of(slot, owner, words);
        self.release_all_of(slot, owner);
        self.part_from_leader(owner);
        slot.take_back();
        slot.counters.wait_ns.get()
    }

    /// Releases all thin locks on records, and nothing else.
    pub fn release_records(&self, owner: &mut Owner, words: &impl LockWords) {
        self.release_records_of(self.slot(owner), owner, words);
    }

    #[inline(always)]
    fn release_records_of(&self, slot: &Slot, owner: &mut Owner, words: &impl LockWords) {
        let id = owner.id();
        let held = std::mem::take(&mut owner.body.thin);
        if held > 0 {
            let first = slot.thin.first[..held.min(FIRST_CHUNK)].iter();
            let mut released = self.release_cells(id, first, words);
            if unlikely(held > FIRST_CHUNK) {
                released += self.release_cells(id, owner.body.thin_chunks.cells(held), words);
                owner.body.thin_index.clear(&self.options.memory);
            }
            slot.thin.clear(&mut owner.body.thin_chunks, &self.options.memory);
            slot.counters.row.add(released);
        } else if unlikely(owner.body.thin_chunks.len() > CHUNKS_KEPT) {
            // The list has given all of them back before.
            slot.thin.clear(&mut owner.body.thin_chunks, &self.options.memory);
        }
    }

    /// The latch of a record's head. While it is held, the lock cannot be released if an owner waits for it.
    #[cfg(test)]
    pub fn latch_of(&self, record: u64) -> impl Sized + '_ {
        self.partitions[Self::partition_of(HeadName::address(record))].lock()
    }

    /// Whether the heads of two records are in different partitions.
    #[cfg(test)]
    pub fn are_apart(&self, one: u64, other: u64) -> bool {
        Self::partition_of(HeadName::address(one)) != Self::partition_of(HeadName::address(other))
    }

    /// Releases the thin locks that these cells name. Returns their number.
    #[inline(always)]
    fn release_cells<'a>(
        &self,
        id: u16,
        cells: impl Iterator<Item = &'a PlainU64>,
        words: &impl LockWords,
    ) -> u64 {
        let mut released = 0;
        for cell in cells {
            let record = cell.load(Ordering::Relaxed);
            if record != VOID {
                self.release_thin(id, words.lock_word(record), record);
                released += 1;
            }
        }
        released
    }

    #[inline]
    fn release_thin(&self, id: u16, word: &AtomicU64, record: u64) {
        let mut before = word.load(Ordering::Relaxed);
        while before & ThinWord::QUEUED == 0 {
            let after = if before & ThinWord::EXCLUSIVE != 0 {
                debug_assert_eq!(
                    before & ThinWord::COUNT,
                    u64::from(id),
                    "released by another than its owner"
                );
                before & !ThinWord::LOCK
            } else {
                debug_assert_ne!(before & ThinWord::COUNT, 0, "released, but no owner holds it");
                before - 1
            };
            match word.compare_exchange_weak(before, after, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => before = now,
            }
        }
        self.release_inflated(id, word, record);
    }

    #[cold]
    fn release_inflated(&self, id: u16, word: &AtomicU64, record: u64) {
        let name = HeadName::address(record);
        let mut woken = WokenOwners::new();
        {
            let mut heads = self.partitions[Self::partition_of(name)].lock();
            let at = heads.find(name).expect("L7: the queued bit is set only while the head exists");
            let head = heads.at(at);
            if !head.release(id) {
                head.release_anonymous();
            }
            self.grant_waiting(head, id, &mut woken);
            if heads.retire_if_idle(at) {
                ThinWord::deflate(word);
            }
        }
        self.wake(&woken);
    }
}

/// Moves the lock from the word into its head, under the head's partition latch (L7).
fn inflate(word: &AtomicU64, head: &mut Head) {
    let mut before = word.load(Ordering::Relaxed);
    while before & ThinWord::QUEUED == 0 {
        let queued = (before & !ThinWord::LOCK) | ThinWord::QUEUED;
        match word.compare_exchange_weak(before, queued, Ordering::AcqRel, Ordering::Relaxed) {
            Err(now) => before = now,
            Ok(_) if before & ThinWord::EXCLUSIVE != 0 => {
                return head.adopt((before & ThinWord::COUNT) as u16, LockMode::Exclusive);
            }
            Ok(_) => return head.adopt_anonymous((before & ThinWord::COUNT) as u32),
        }
    }
}

const _: () = assert!((ThinWord::LOCK | ThinWord::QUEUED) & !ThinWord::MASK == 0);
