//! The lock manager: owners, waits, and release.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::central::head::{Head, Heads, WaitOutcome};
use super::central::interval::IntervalTable;
use super::counters::LockCounters;
use super::deadlock::Searches;
use super::grain::Grains;
use super::intent::WantedTables;
use super::local::LocalTables;
use super::mode::{Acquired, LockMode};
use super::name::{HeadName, LockName, LockTarget};
use super::options::{LockForm, LockOptions};
use super::slot::{
    FreeSlots, GRANTED, HELD_KEPT, HeldTable, Lent, Owner, RETRY, Slot, SlotBody, TableForm, VICTIM,
    WaitRecord,
};
use super::sync::{AtomicBool, AtomicU32, Mutex, spin_a_while};
use super::wait::{LockError, Wait};
use crate::account::disk_waits::DiskWaits;
use crate::account::wait_guard::{Awaited, WaitGuard};
use crate::ids::{IndexId, TableId};
use crate::io::Moment;
use crate::seed;

/// The number of partitions of the hash of lock heads.
const PARTITIONS: usize = 256;

/// The longest time between two searches for a deadlock by one waiter.
const CHECK_INTERVAL_MAX: Duration = Duration::from_millis(100);

/// The longest single sleep when nothing bounds the wait.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Owners to be woken once no latch is held.
pub(super) type WokenOwners = SmallVec<[u16; 16]>;

/// Grants locks to owners. See the [module](super) for its invariants.
#[derive(Debug)]
pub struct LockManager {
    pub(super) partitions: Box<[CachePadded<Mutex<Heads>>]>,
    pub(super) intervals: IntervalTable,
    /// The executors' lock tables, in the local form.
    pub(super) local: LocalTables,
    /// The tables that are requested as a whole.
    pub(super) wanted: WantedTables,
    pub(super) slots: Box<[CachePadded<Slot>]>,
    /// How many owners run a part of another owner's transaction.
    pub(super) followers: AtomicU32,
    waiters: Waiters,
    /// One search for a deadlock at a time.
    pub(super) detector: Mutex<Searches>,
    pub(super) options: LockOptions,
    free: FreeSlots,
    shutdown: AtomicBool,
    born: Moment,
    /// The seed of the hashes of keys.
    seed: u64,
    /// Keys that are locked together, if there are some.
    grains: OnceLock<Grains>,
}

/// How many owners wait for locks.
#[derive(Debug, Default)]
struct Waiters(AtomicU32);

impl Waiters {
    /// One more waits until this is dropped.
    fn enter(&self) -> IsWaiting<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        IsWaiting(self)
    }
}

/// An owner waits.
struct IsWaiting<'a>(&'a Waiters);

impl Drop for IsWaiting<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How a sleep ended.
pub(super) enum Woke {
    Granted,
    /// The lock was free, and the request is to be made again.
    Retry,
    Not(LockError),
}

impl LockManager {
    /// A manager with no owners yet.
    ///
    /// # Panics
    ///
    /// If `owners_max` is not within 1 to 65535.
    pub fn new(options: LockOptions) -> LockManager {
        assert!(
            (1..=usize::from(u16::MAX)).contains(&options.owners_max),
            "LockOptions::owners_max is {}, expected 1 to 65535",
            options.owners_max
        );
        LockManager {
            partitions: (0..PARTITIONS).map(|_| CachePadded::default()).collect(),
            intervals: IntervalTable::default(),
            local: match options.form {
                LockForm::Local => LocalTables::new(
                    options.executors,
                    options.executors_max.max(options.executors),
                    &options.clock,
                ),
                LockForm::Thin | LockForm::Central => LocalTables::new(0, 0, &options.clock),
            },
            wanted: WantedTables::default(),
            slots: (0..options.owners_max).map(|_| CachePadded::default()).collect(),
            followers: AtomicU32::new(0),
            waiters: Waiters::default(),
            detector: Mutex::default(),
            free: FreeSlots::new(options.owners_max),
            shutdown: AtomicBool::new(false),
            born: options.clock.now(),
            seed: seed::draw(),
            grains: OnceLock::new(),
            options,
        }
    }

    /// The name of `key` in `index`, for this manager.
    #[inline]
    pub fn name(&self, index: IndexId, key: &[u8]) -> LockName {
        if let Some(grains) = self.grains.get() {
            let granule = grains.of_key(index, key);
            return LockName { index, hash: xxh3_64_with_seed(&granule, self.seed) };
        }
        LockName { index, hash: xxh3_64_with_seed(key, self.seed) }
    }

    /// Whether keys are locked by granules.
    pub(crate) fn has_grains(&self) -> bool {
        self.grains.get().is_some()
    }

    /// From now on these keys are locked together. No transaction has begun yet.
    pub(crate) fn set_grains(&self, grains: Grains) {
        assert!(self.grains.set(grains).is_ok(), "they are set once");
    }

    /// The present moment, by the clock of its options.
    pub(super) fn now(&self) -> Moment {
        self.options.clock.now()
    }

    /// Takes a slot and opens it for a transaction; `None`: all are taken.
    pub fn begin(&self) -> Option<Owner> {
        let mut owner = self.take()?;
        self.open(&mut owner, self.now());
        Some(owner)
    }

    /// Closes a slot and gives it back.
    ///
    /// # Panics
    ///
    /// As [`LockManager::close`].
    pub fn end(&self, mut owner: Owner) {
        self.close(&mut owner);
        self.give_back(&mut owner);
    }

    /// Takes a slot; `None`: all are taken.
    pub fn take(&self) -> Option<Owner> {
        self.free.take()
    }

    /// Gives a closed slot back, and leaves a handle without a slot.
    pub fn give_back(&self, owner: &mut Owner) {
        debug_assert!(self.slot(owner).lending().is_none(), "owner {} is open", owner.id());
        self.free.give(std::mem::replace(owner, Owner::of_none()));
    }

    /// Opens the slot for a transaction that began at `started`. A transaction that runs again after a deadlock
    /// passes the start of its first run, so that it does not stay the youngest, and thereby the victim, for ever.
    #[inline]
    pub fn open(&self, owner: &mut Owner, started: Moment) {
        owner.body.started = started;
        self.slot(owner).lend();
    }

    /// Ends the slot's transaction, releasing what it still holds.
    ///
    /// # Panics
    ///
    /// If it still holds thin locks, whose words only [`LockManager::release_all_thin`] can find.
    #[inline(always)]
    pub fn close(&self, owner: &mut Owner) {
        assert_eq!(
            owner.body.thin,
            0,
            "owner {} ends with thin locks; call release_all_thin first",
            owner.id()
        );
        if owner.holds_any() {
            self.release_all(owner);
        }
        self.part_from_leader(owner);
        self.slot(owner).take_back();
    }

    /// Whether keys and ranges of keys are locked in the lock tables of executors (the local form).
    #[inline]
    pub fn keeps_keys_at_executors(&self) -> bool {
        self.options.form == LockForm::Local
    }

    /// Whether a present record is locked in its own word (the thin form).
    #[inline]
    pub fn keeps_locks_in_records(&self) -> bool {
        self.options.form == LockForm::Thin
    }

    /// Sets whether an owner rests: until it does not rest any more it seeks no record. What it knows of records are those
    /// that it has locked.
    pub fn rest(&self, owner: &Owner, rests: bool) {
        self.slot(owner).rest(rests);
    }

    /// Waits until every other owner that exists now, and does not rest, has ended, up to `limit` or until the caller `gives_up`; false:
    /// one has not ended. After that, a record that no index led to when the wait began is known by its address only
    /// to an owner that holds it.
    pub fn outlast_others(&self, owner: &Owner, limit: Duration, gives_up: impl Fn() -> bool) -> bool {
        fence(Ordering::SeqCst);
        let others = self.slots[..self.lent_ever()].iter().enumerate();
        let others = others.filter(|(id, slot)| *id != usize::from(owner.id()) && !slot.rests());
        let mut open: Vec<_> =
            others.filter_map(|(id, slot)| slot.lending().map(|lending| (id, lending))).collect();
        let since = self.now();
        // Some of them may run on other executors' threads and wait for their turn.
        let _waiting = WaitGuard::enter(&self.options.clock, Awaited::Others);
        loop {
            open.retain(|&(id, lending)| self.slots[id].lending() == Some(lending));
            if open.is_empty() || self.now() - since >= limit || gives_up() {
                return open.is_empty();
            }
            self.options.clock.rest(Duration::from_micros(50));
        }
    }

    #[inline]
    pub(super) fn partition_of(name: HeadName) -> usize {
        (name.spread() >> 48) as usize % PARTITIONS
    }

    pub(super) fn slot(&self, owner: &Owner) -> &Slot {
        &self.slots[usize::from(owner.body.id)]
    }

    /// The owner's slot.
    #[inline(always)]
    pub fn lent(&self, owner: &Owner) -> Lent<'_> {
        Lent(self.slot(owner))
    }

    /// Locks a table, or strengthens the lock that the owner has on it.
    pub fn table(
        &self,
        owner: &mut Owner,
        table: TableId,
        mode: LockMode,
        wait: &Wait<'_>,
    ) -> Result<Acquired, LockError> {
        let held = owner.body.tables.iter().position(|held| held.table == table);
        if let Some(at) = held {
            let HeldTable { mode: held, form, .. } = owner.body.tables[at];
            if held.join(mode) == held {
                return Ok(Acquired::Held);
            }
            if form == TableForm::Leased {
                self.return_lease(owner);
            }
        }
        if self.options.form != LockForm::Central {
            if held.is_none() && self.intend_again(owner, table, mode) {
                return Ok(Acquired::New);
            }
            return self.table_thin(owner, table, mode, wait, held);
        }
        let name = HeadName::table(table);
        let (acquired, head) = self.acquire(owner, name, mode, wait, || LockTarget::Table(table))?;
        self.note_table(owner, table, mode, TableForm::Head(head), held);
        Ok(acquired)
    }

    /// Enters a granted table lock into the owner's list; `held` is its position there, if it has one.
    pub(super) fn note_table(
        &self,
        owner: &mut Owner,
        table: TableId,
        mode: LockMode,
        form: TableForm,
        held: Option<usize>,
    ) {
        owner.body.whole |= mode.is_whole();
        match held {
            Some(at) => {
                let held = &mut owner.body.tables[at];
                held.mode = held.mode.join(mode);
                held.form = form;
            }
            None => owner.body.tables.push(HeldTable { table, mode, form, wanted: false }),
        }
        if held.is_some() {
            // New locks are counted when they are released, all at once.
            self.slot(owner).counters.higher.add(1);
        }
    }

    /// The error of a request whose owner has all the locks that it may have.
    #[cold]
    pub(super) fn too_many(&self) -> LockError {
        LockError::TooMany { limit: self.options.locks_max }
    }

    /// Returns the owner's lease (L12), then announces the wait and what the deadlock detector needs to know of the
    /// waiter.
    pub(super) fn begin_wait(&self, owner: &mut Owner, record: WaitRecord) {
        self.return_lease(owner);
        let started_ns = owner.body.started.ns_since(self.born);
        self.slot(owner).begin_wait(record, owner.locks_held(), started_ns);
    }

    pub(super) fn account_wait(&self, slot: &Slot, since: Moment, error: Option<&LockError>) {
        slot.end_wait();
        slot.count_wait(since, self.now());
        match error {
            Some(LockError::Deadlock) => {
                slot.counters.deadlocks.add(1);
                slot.note_victim();
                if let Some(leader) = slot.leader() {
                    self.slots[usize::from(leader)].note_victim();
                }
            }
            Some(LockError::Timeout { .. } | LockError::Deadline { .. }) => slot.counters.timeouts.add(1),
            _ => {}
        }
    }

    pub(super) fn mark_granted(&self, owner: u16, woken: &mut WokenOwners) {
        self.slots[usize::from(owner)].set_granted();
        woken.push(owner);
    }

    /// Grants the requests that waited for what `owner` has released, and sets their owners' flags as the head says.
    #[inline]
    pub(super) fn grant_waiting(&self, head: &mut Head, owner: u16, woken: &mut WokenOwners) {
        // Those that go on waiting, for other holders, are told, too: the last holder does not know of this one.
        let releasing = &self.slots[usize::from(owner)];
        if releasing.disk_waits.are_there() {
            head.waiting().for_each(|waiter| self.slots[usize::from(waiter)].tell_disk_waits(releasing));
        }
        let by = releasing.release();
        head.grant_waiting(by, |told| match told {
            WaitOutcome::Granted(owner) => self.mark_granted(owner, woken),
            WaitOutcome::Retry(owner) => {
                self.slots[usize::from(owner)].set_retry();
                woken.push(owner);
            }
        });
    }

    #[inline]
    pub(super) fn wake(&self, woken: &WokenOwners) {
        for &owner in woken {
            self.slots[usize::from(owner)].notify();
        }
    }

    /// The error with which a request has to stop waiting, if it has to.
    pub(super) fn why_not_wait(&self, wait: &Wait<'_>) -> Option<LockError> {
        if self.is_shut_down() {
            return Some(LockError::Shutdown);
        }
        if wait.cancelled.load(Ordering::Acquire) {
            return Some(LockError::Cancelled);
        }
        let now = self.now();
        let waited = now - wait.since(now);
        if wait.timeout.is_some_and(|limit| waited >= limit) {
            return Some(LockError::Timeout { waited });
        }
        wait.deadline.is_some_and(|limit| now >= limit).then_some(LockError::Deadline { waited })
    }

    /// Sleeps until the slot's wait is over, and searches for deadlocks now and then.
    pub(super) fn sleep(&self, id: u16, wait: &Wait<'_>) -> Woke {
        let slot = &self.slots[usize::from(id)];
        spin_a_while(|| slot.flags() != 0);
        if slot.flags() & (GRANTED | RETRY) == 0 && self.meets_own_lease(id) {
            return Woke::Not(LockError::Deadlock);
        }
        let mut check_interval = self.options.deadlock_check_after;
        let mut next_check = self.now() + check_interval;
        // No latch is held here.
        let mut waiting = None;
        loop {
            match slot.flags() {
                flags if flags & GRANTED != 0 => return Woke::Granted,
                flags if flags & RETRY != 0 => return Woke::Retry,
                flags if flags & VICTIM != 0 => return Woke::Not(LockError::Deadlock),
                _ => {}
            }
            if slot.gives_up() {
                return Woke::Not(LockError::Cancelled);
            }
            if let Some(error) = self.why_not_wait(wait) {
                return Woke::Not(error);
            }
            let now = self.now();
            // A search takes a while, too.
            waiting.get_or_insert_with(|| {
                (self.waiters.enter(), WaitGuard::enter(&self.options.clock, Awaited::Lock))
            });
            if now >= next_check {
                self.find_deadlock(id);
                check_interval = (check_interval * 4).clamp(Duration::from_millis(1), CHECK_INTERVAL_MAX);
                next_check = now + check_interval;
                continue;
            }
            let mut limit = SLEEP_MAX.min(next_check - now);
            if let Some(timeout) = wait.timeout {
                limit = limit.min(timeout.saturating_sub(now - wait.since(now)));
            }
            if let Some(deadline) = wait.deadline {
                limit = limit.min(deadline - now);
            }
            slot.sleep(&self.options.clock, limit, || {
                slot.flags() != 0
                    || slot.gives_up()
                    || self.is_shut_down()
                    || wait.cancelled.load(Ordering::Acquire)
            });
        }
    }

    /// Makes a waiting owner, and the owners that run parts of its transaction, check their `cancelled` flag. Call it
    /// after setting the flag; harmless at any time.
    pub fn interrupt(&self, owner: u16) {
        self.slots[usize::from(owner)].notify();
        // A part that begins later sees the flag before it sleeps.
        fence(Ordering::SeqCst);
        if self.followers.load(Ordering::Acquire) > 0 {
            let slots = self.slots[..self.lent_ever()].iter();
            slots.filter(|slot| slot.leader() == Some(owner)).for_each(|slot| slot.notify());
        }
    }

    /// Ends the wait of an owner that runs a part of a transaction, and its later waits until the parts are over,
    /// with [`LockError::Cancelled`], because another part has failed.
    pub fn end_waits_of_part(&self, part: u16) {
        self.slots[usize::from(part)].give_up(true);
    }

    /// Ends all present and later waits with [`LockError::Shutdown`].
    pub fn shut_down(&self) {
        self.shutdown.store(true, Ordering::Release);
        self.slots.iter().for_each(|slot| slot.notify());
    }

    pub(super) fn is_shut_down(&self) -> bool {
        self.shutdown.load(Ordering::Acquire)
    }

    /// Releases everything and wakes the owners that this grants a lock. Called after the transaction has its place
    /// (I2), or when it aborts.
    pub fn release_all(&self, owner: &mut Owner) {
        self.release_all_of(self.slot(owner), owner);
    }

    #[inline(always)]
    pub(super) fn release_all_of(&self, slot: &Slot, owner: &mut Owner) {
        debug_assert_eq!(owner.body.thin, 0, "thin locks are released by LockManager::release_all_thin");
        if owner.body.lease.is_on() {
            self.end_lease(owner);
        }
        let body = &mut owner.body;
        if !(body.records.is_empty() && body.intervals.is_empty()) {
            self.release_named(body);
        }
        if !body.locals.is_empty() {
            self.release_locals(body.id, &mut body.locals);
            body.long_keys = 0;
        }
        let mut higher = 0;
        for held in &body.tables {
            if matches!(held.form, TableForm::Leased | TableForm::Leaders) {
                continue;
            }
            higher += 1;
            if held.form != TableForm::Intent || !slot.intents.leave_idle(held) {
                self.release_table(body.id, held);
            }
        }
        if higher > 0 {
            slot.counters.higher.add(higher);
        }
        body.tables.clear();
        body.whole = false;
    }

    /// Releases the locks on records by name, and the intervals.
    #[inline(never)]
    fn release_named(&self, body: &mut SlotBody) {
        for held in body.records.drain(..) {
            self.release(body.id, held.name, held.head);
        }
        if body.records.capacity() > HELD_KEPT {
            body.records = Vec::new();
        }
        for index in body.intervals.drain(..) {
            let mut woken = WokenOwners::new();
            self.intervals.release(body.id, index, |granted| {
                self.slots[usize::from(granted)].tell_disk_waits(&self.slots[usize::from(body.id)]);
                self.mark_granted(granted, &mut woken);
            });
            self.wake(&woken);
        }
    }

    /// Releases a lock on a table that is in its head.
    #[inline(never)]
    fn release_table(&self, id: u16, held: &HeldTable) {
        match held.form {
            TableForm::Head(at) if !held.wanted => self.release(id, HeadName::table(held.table), at),
            _ => self.release_thin_table(id, held),
        }
    }

    /// When the transaction that has the owner's slot has waited for the disk.
    pub(crate) fn disk_waits(&self, owner: &Owner) -> &Arc<DiskWaits> {
        &self.slots[usize::from(owner.body.id)].disk_waits
    }

    /// How long transactions of this owner's slot, including earlier ones, have waited for locks.
    pub fn waited_ns(&self, owner: &Owner) -> u64 {
        self.slots[usize::from(owner.body.id)].counters.wait_ns.get()
    }

    /// How many owners wait for locks now.
    pub fn waiters(&self) -> u32 {
        self.waiters.0.load(Ordering::Relaxed)
    }

    /// The counts since the manager was made.
    pub fn counters(&self) -> LockCounters {
        let mut total = LockCounters::default();
        self.slots[..self.lent_ever()].iter().for_each(|slot| slot.counters.sum_into(&mut total));
        total
    }

    /// Slots from this number on were never lent.
    pub(super) fn lent_ever(&self) -> usize {
        self.free.lent_ever()
    }

    /// How many lock heads there are now: locks on records and tables that are not in the thin form.
    pub fn locks_now(&self) -> usize {
        let heads: usize = self.partitions.iter().map(|partition| partition.lock().len()).sum();
        heads + self.local.locks_now()
    }
}
