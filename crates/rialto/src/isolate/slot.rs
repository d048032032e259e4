//! Transaction slots: owners of locks, how an owner sleeps and is woken, and how slots are lent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use smallvec::SmallVec;

use super::central::head::Release;
use super::counters::CounterCells;
use super::intent::Intents;
use super::local::{ExecutorLease, HeldLocal, Rules};
use super::mode::LockMode;
use super::name::{HeadName, LockTarget};
use super::sync::{AtomicU32, AtomicU64, Condvar, Mutex};
use super::thin::index::ThinIndex;
use super::thin::{Chunks, ThinList};
use crate::account::disk_waits::{DiskTimes, DiskWaits};
use crate::ids::{IndexId, TableId};
use crate::io::{Clock, Moment, thread_number};

/// In a slot's state word: the wait is over, the lock is granted (or worth another try, for an interval).
pub(super) const GRANTED: u64 = 1;
/// In a slot's state word: the wait is over, the owner is a deadlock's victim.
pub(super) const VICTIM: u64 = 2;
/// In a slot's state word: the owner has left the wait. Its request may still be listed where the lock table is out.
const LEFT: u64 = 4;
/// In a slot's state word: the request has left the queue, and its owner is to ask again.
pub(super) const RETRY: u64 = 8;
/// The state word counts waits above its flags, so that a flag meant for one wait cannot reach the next.
const WAIT: u64 = 16;
const FLAGS: u64 = WAIT - 1;

/// The subject of a waiting request, as the detector needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WaitsFor {
    Head(HeadName),
    Interval(IndexId, Vec<u8>),
    /// A span at this executor.
    Local(u16),
}

/// A wait, as other threads see it.
#[derive(Debug, Clone)]
pub(super) struct WaitRecord {
    pub(super) waits_for: WaitsFor,
    pub(super) target: LockTarget,
    pub(super) since: Moment,
}

/// The part of a transaction slot that other threads read.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// The number of waits and the current one's flags. Written by the owner when a wait begins; flags are set under
    /// the latch of the partition where the owner waits.
    state: AtomicU64,
    /// When the transaction that waits began, in nanoseconds of the manager's life: its age for the victim policy.
    started_ns: AtomicU64,
    /// Odd while a transaction has the slot.
    lendings: AtomicU64,
    /// The last lending whose transaction was a deadlock's victim.
    victim_in: AtomicU64,
    /// How many locks the owner held when its wait began.
    held: AtomicU32,
    /// The leader's number plus one, if the owner runs a part of a phase for another one; else 0.
    leader: AtomicU32,
    /// Not 0: the owner seeks no record until this is 0 again.
    rests: AtomicU32,
    /// Not 0: the owner runs a part of a phase, and an action has failed that comes before those that the owner has
    /// still to run.
    gives_up: AtomicU32,
    parker: Mutex<()>,
    wake: Condvar,
    wait: Mutex<Option<WaitRecord>>,
    /// When those that have granted what the owner waits for have waited for the disk.
    told: Mutex<DiskTimes>,
    /// When the owner's transaction has waited for the disk.
    pub(super) disk_waits: Arc<DiskWaits>,
    pub(super) counters: CounterCells,
    /// The records that the owner has locked in the thin form.
    pub(super) thin: ThinList,
    /// The owner's thin table intentions.
    pub(super) intents: Intents,
}

/// The slot that is lent to an owner, kept at hand for several steps.
#[derive(Clone, Copy)]
pub struct Lent<'a>(pub(super) &'a Slot);

impl Slot {
    /// Sets the owner whose transaction this one runs a part of; none: its own.
    pub(super) fn follow(&self, leader: Option<u16>) {
        self.leader.store(leader.map_or(0, |leader| u32::from(leader) + 1), Ordering::Release);
    }

    /// The owner whose transaction this one runs a part of.
    pub(super) fn leader(&self) -> Option<u16> {
        self.leader.load(Ordering::Acquire).checked_sub(1).map(|leader| leader as u16)
    }

    /// Sets whether the owner rests: what it knows of records are those that it has locked.
    pub(super) fn rest(&self, rests: bool) {
        self.rests.store(u32::from(rests), Ordering::SeqCst);
    }

    /// Whether the owner rests.
    pub(super) fn rests(&self) -> bool {
        self.rests.load(Ordering::SeqCst) != 0
    }

    /// Sets whether the owner gives up waits for locks. If it does, wakes it.
    pub(super) fn give_up(&self, gives_up: bool) {
        self.gives_up.store(u32::from(gives_up), Ordering::SeqCst);
        if gives_up {
            self.notify();
        }
    }

    /// Whether the owner gives up waits for locks.
    pub(super) fn gives_up(&self) -> bool {
        self.gives_up.load(Ordering::Acquire) != 0
    }

    /// Announces a wait. A request may be queued only after this.
    pub(super) fn begin_wait(&self, record: WaitRecord, held: usize, started_ns: u64) {
        self.held.store(held as u32, Ordering::Relaxed);
        self.started_ns.store(started_ns, Ordering::Relaxed);
        *self.wait.lock() = Some(record);
        let state = self.state.load(Ordering::Relaxed);
        self.state.store((state & !FLAGS) + WAIT, Ordering::Release);
    }

    /// Ends the announcement.
    pub(super) fn end_wait(&self) {
        *self.wait.lock() = None;
    }

    /// Counts a wait that has ended.
    pub(super) fn count_wait(&self, since: Moment, now: Moment) {
        self.counters.waits.add(1);
        self.counters.wait_ns.add(now.ns_since(since));
        let told = std::mem::take(&mut *self.told.lock());
        self.counters.wait_for_disk_ns.add(self.disk_waits.end_lock_wait(&told, since, now));
    }

    /// The announced wait.
    pub(super) fn wait_record(&self) -> Option<WaitRecord> {
        self.wait.lock().clone()
    }

    /// Tells the sleeper that its wait is over. Under the latch of the partition where it waits (L3).
    pub(super) fn set_granted(&self) {
        self.state.fetch_or(GRANTED, Ordering::AcqRel);
    }

    /// Tells the sleeper to ask again. Under the latch of the partition where it waits; its request has left the
    /// queue there.
    pub(super) fn set_retry(&self) {
        self.state.fetch_or(RETRY, Ordering::AcqRel);
    }

    /// The owner of another slot releases what the sleeper waits for: tells it when that one has waited for the disk.
    pub(super) fn tell_disk_waits(&self, by: &Slot) {
        if by.disk_waits.are_there() {
            by.disk_waits.add_to(&mut self.told.lock());
        }
    }

    /// The number of the wait that began last.
    pub(super) fn wait_number(&self) -> u64 {
        self.state.load(Ordering::Relaxed) / WAIT
    }

    /// As [`Slot::set_granted`], if the owner has not left the wait of this number.
    pub(super) fn set_granted_in(&self, wait: u64) -> bool {
        let grant = |state| (state / WAIT == wait && state & LEFT == 0).then_some(state | GRANTED);
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, grant).is_ok()
    }

    /// Whether the owner has left the wait of this number.
    pub(super) fn has_left(&self, wait: u64) -> bool {
        let state = self.state.load(Ordering::Acquire);
        state / WAIT != wait || state & LEFT != 0
    }

    /// Leaves the owner's wait, without the latch of the partition. False: the request has been granted.
    pub(super) fn leave_wait(&self) -> bool {
        let leave = |state| (state & GRANTED == 0).then_some(state | LEFT);
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, leave).is_ok()
    }

    /// Makes the sleeper a victim, unless its wait is over already. Under the latches of the whole cycle.
    pub(super) fn set_victim(&self) -> bool {
        let state = self.state.load(Ordering::Acquire);
        state & FLAGS == 0
            && self.state.compare_exchange(state, state | VICTIM, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The flags of the current wait.
    pub(super) fn flags(&self) -> u64 {
        self.state.load(Ordering::Acquire) & FLAGS
    }

    /// Wakes the sleeper, if there is one, so that it checks its state.
    pub(super) fn notify(&self) {
        // The latch makes sure that a sleeper that checked before the flag was set is asleep by now, not about to be.
        drop(self.parker.lock());
        self.wake.notify_one();
    }

    /// Sleeps for `limit` or less, unless `over` says, under the parker's latch, that the wait is over.
    pub(super) fn sleep(&self, clock: &Clock, limit: Duration, over: impl FnOnce() -> bool) {
        let guard = self.parker.lock();
        if !over() {
            drop(self.wake.wait_for(clock, guard, limit));
        }
    }

    /// Notes that the slot is lent. A thread that sees it as not lent has looked before the owner reads anything.
    pub(super) fn lend(&self) {
        self.lendings.store(self.lendings.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Notes that the transaction that has the slot is a deadlock's victim.
    pub(super) fn note_victim(&self) {
        self.victim_in.store(self.lendings.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The kind of release when the transaction that has the slot releases its locks.
    pub(super) fn release(&self) -> Release {
        match self.victim_in.load(Ordering::Relaxed) == self.lendings.load(Ordering::Relaxed) {
            true => Release::Victim,
            false => Release::Ordinary,
        }
    }

    /// Notes that the slot is given back.
    pub(super) fn take_back(&self) {
        self.lendings.store(self.lendings.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// The number of the present lending, if the slot is lent.
    pub(super) fn lending(&self) -> Option<u64> {
        let lendings = self.lendings.load(Ordering::Acquire);
        (lendings % 2 == 1).then_some(lendings)
    }

    pub(super) fn started_ns(&self) -> u64 {
        self.started_ns.load(Ordering::Relaxed)
    }

    pub(super) fn held(&self) -> u32 {
        self.held.load(Ordering::Relaxed)
    }
}

/// An owner's list of locks with room for more than this gives its memory back at the end of the transaction.
pub(super) const HELD_KEPT: usize = 1024;

/// A lock on a record's name that an owner holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldRecord {
    pub(super) name: HeadName,
    /// Its head's number in the partition; stable while the lock is held.
    pub(super) head: u32,
}

/// A table lock that an owner holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldTable {
    pub(super) table: TableId,
    pub(super) mode: LockMode,
    pub(super) form: TableForm,
    /// Whether this owner's request is counted in the table's word ([`WantedTables`](super::intent::WantedTables)).
    pub(super) wanted: bool,
}

/// Where an owner's table lock is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TableForm {
    /// In the head of this number.
    Head(u32),
    /// In its cell of the slot's intentions; another thread may have moved it into a head since.
    Intent,
    /// An intention that the executors of the owner's lease hold for it (L13).
    Leased,
    /// The leader's. The leader holds the lock longer than this owner runs a part of its transaction.
    Leaders,
}

/// What only the owner reads: the locks that it holds. The buffers are reused from transaction to transaction.
#[derive(Debug)]
pub(super) struct SlotBody {
    pub(super) id: u16,
    /// The owner that stands for the transaction: itself, unless it runs a part of a phase for another one.
    pub(super) transaction: u16,
    /// The transaction runs in parts now, with further owners.
    pub(super) shares: bool,
    /// When the transaction's first run began.
    pub(super) started: Moment,
    pub(super) records: Vec<HeldRecord>,
    pub(super) tables: Vec<HeldTable>,
    /// Whether one of them may be for more than an intention.
    pub(super) whole: bool,
    /// The length of the list of thin locks.
    pub(super) thin: usize,
    /// The chunks of that list after the first.
    pub(super) thin_chunks: Chunks,
    /// The index of that list by record, once it is longer than its first chunk.
    pub(super) thin_index: ThinIndex,
    /// The indexes in which the owner holds intervals.
    pub(super) intervals: Vec<IndexId>,
    /// The locks at executors.
    pub(super) locals: SmallVec<[HeldLocal; 8]>,
    /// The number of further locks that these count as, because of long keys.
    pub(super) long_keys: usize,
    /// Whether there was a lock on exactly the span of the last request that was not granted at once.
    pub(super) was_refused_on_same_span: AtomicBool,
    /// The executors that the owner has for itself.
    pub(super) lease: ExecutorLease,
    /// The owner's copy of the routing rules.
    pub(super) rules: Rules,
}

/// A transaction slot. It is lent for one transaction ([`LockManager::begin`](super::LockManager::begin) to
/// [`end`](super::LockManager::end)), or for many, one after the other: [`take`](super::LockManager::take), then for
/// each transaction [`open`](super::LockManager::open) and [`close`](super::LockManager::close), and at last
/// [`give_back`](super::LockManager::give_back).
///
/// An owner that is dropped keeps its locks until the manager itself goes.
#[derive(Debug)]
pub struct Owner {
    pub(super) body: SlotBody,
}

impl Owner {
    fn new(id: u16) -> Owner {
        let (records, tables, intervals) = (Vec::new(), Vec::new(), Vec::new());
        let started = Moment::now();
        Owner {
            body: SlotBody {
                id,
                transaction: id,
                shares: false,
                started,
                records,
                tables,
                whole: false,
                thin: 0,
                thin_chunks: Chunks::default(),
                thin_index: ThinIndex::default(),
                intervals,
                locals: SmallVec::new(),
                long_keys: 0,
                was_refused_on_same_span: AtomicBool::new(false),
                lease: ExecutorLease::default(),
                rules: Rules::default(),
            },
        }
    }

    /// A handle without a slot, which may only be dropped.
    pub(super) fn of_none() -> Owner {
        Owner::new(u16::MAX)
    }

    /// Takes the slot and all that it holds. A handle without a slot is left, which still tells when the transaction
    /// began.
    pub fn take(&mut self) -> Owner {
        let mut rest = Owner::of_none();
        rest.body.started = self.body.started;
        std::mem::replace(self, rest)
    }

    /// Whether the handle has a slot.
    pub fn has_slot(&self) -> bool {
        self.body.id != u16::MAX
    }

    /// The slot's number: the transaction's identity in the view of waits.
    pub fn id(&self) -> u16 {
        self.body.id
    }

    /// Whether it holds locks in an executor's lock table.
    #[inline]
    pub fn holds_at_executors(&self) -> bool {
        !self.body.locals.is_empty()
    }

    /// Whether it has lock tables of executors out.
    #[inline]
    pub fn holds_lease(&self) -> bool {
        self.body.lease.is_on()
    }

    /// When the transaction's first run began.
    pub fn started(&self) -> Moment {
        self.body.started
    }

    /// Whether it runs a part of another owner's transaction.
    pub fn is_part(&self) -> bool {
        self.body.transaction != self.body.id
    }

    /// Whether it may hold a table as a whole; if not, all its locks on tables are intentions.
    #[inline]
    pub fn holds_whole(&self) -> bool {
        self.body.whole
    }

    /// The number of the owner that stands for the transaction: its own, unless it runs a part of a phase.
    pub fn transaction(&self) -> u16 {
        self.body.transaction
    }

    /// The mode in which it holds the table.
    #[inline]
    pub fn mode_of(&self, table: TableId) -> Option<LockMode> {
        self.body.tables.iter().rev().find(|held| held.table == table).map(|held| held.mode)
    }

    /// The tables that it holds as a whole.
    pub fn whole_tables(&self) -> impl Iterator<Item = TableId> {
        let tables = if self.body.whole { &self.body.tables[..] } else { &[] };
        tables.iter().filter(|held| held.mode.is_whole()).map(|held| held.table)
    }

    /// Whether it holds locks on other things than present records: on a key by its name, or on an interval.
    pub fn holds_names(&self) -> bool {
        !self.body.records.is_empty() || !self.body.intervals.is_empty() || !self.body.locals.is_empty()
    }

    /// How many locks on records and tables it holds.
    pub fn locks_held(&self) -> usize {
        self.body.records.len() + self.body.tables.len() + self.body.thin + self.body.locals.len()
    }

    /// Whether it holds any lock or interval.
    pub fn holds_any(&self) -> bool {
        self.locks_held() > 0 || !self.body.intervals.is_empty() || self.body.lease.is_on()
    }
}

/// The slots that are not lent, in shards. A thread takes slots from its own shard and gives them back there, so that
/// the beginning and the end of a transaction touch no cache line that other threads write.
#[derive(Debug)]
pub(super) struct FreeSlots {
    shards: Box<[CachePadded<Mutex<Vec<Owner>>>]>,
    /// The next slot that was never lent.
    fresh: AtomicU32,
    owners_max: u32,
}

/// The number of shards. More threads than that share them.
const SHARDS: usize = 32;

impl FreeSlots {
    pub(super) fn new(owners_max: usize) -> FreeSlots {
        FreeSlots {
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            fresh: AtomicU32::new(0),
            owners_max: owners_max as u32,
        }
    }

    pub(super) fn take(&self) -> Option<Owner> {
        let own = thread_number() % SHARDS;
        if let Some(owner) = self.shards[own].lock().pop() {
            return Some(owner);
        }
        self.take_elsewhere(own)
    }

    #[cold]
    fn take_elsewhere(&self, own: usize) -> Option<Owner> {
        let fresh = self.fresh.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |next| {
            (next < self.owners_max).then_some(next + 1)
        });
        if let Ok(id) = fresh {
            return Some(Owner::new(id as u16));
        }
        (1..SHARDS).find_map(|step| self.shards[(own + step) % SHARDS].lock().pop())
    }

    /// Slots from this number on were never lent.
    pub(super) fn lent_ever(&self) -> usize {
        self.fresh.load(Ordering::SeqCst) as usize
    }

    pub(super) fn give(&self, owner: Owner) {
        self.shards[thread_number() % SHARDS].lock().push(owner);
    }
}
