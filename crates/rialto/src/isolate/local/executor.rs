//! [`Executor`]: a local lock table, its latch, and the threads that wait for it.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::mode::RecordMode;
use super::super::sync::{AtomicU32, AtomicU64, Condvar, Mutex, MutexGuard, give_way, spin_a_while};
use super::locks::{LocalAnswer, LocalLocks, LocalRequest, Sample};
use super::readers::Readers;
use super::span::SpanRef;
use crate::account::latches;
use crate::ids::IndexId;
use crate::io::Clock;

/// A sleeper checks again at this interval, so that no missed wake-up makes it sleep for ever.
const RECHECK: Duration = Duration::from_secs(1);

/// The same for a thread that can take other latches meanwhile, or can go on without this one.
const RECHECK_SOON: Duration = Duration::from_millis(1);

/// After so many sleeps, each of which ended with the table taken by another thread, a wait gives up.
const SLEEPS_MAX: u32 = 4;

/// No thread has the table, and nothing is entered in it.
const IN: u32 = 0;
/// A thread holds the latch; readers may hold the table too.
const LATCHED: u32 = 1;
/// A thread holds the latch, and there are no readers.
const ALONE: u32 = 2;
/// A lease holds the table.
const OUT: u32 = 4;
const HAD: u32 = LATCHED | ALONE | OUT;
/// Threads sleep until they can have the table; the thread that returns it wakes them.
const WANTED: u32 = 8;
/// A request needs the table without readers, and there were some: no new reader is admitted until the present ones
/// have left.
const BARRED: u32 = 16;
/// In these states no reader is admitted.
const CLOSED: u32 = ALONE | OUT | BARRED;
/// Locks, or requests that wait, are entered in it.
const ENTERED: u32 = 32;
/// Set only beside `ENTERED`: exclusive locks, or requests that wait, may be among the entries. Without it all
/// entries are shared locks, with which no reader conflicts.
const WRITTEN: u32 = 64;
/// This is the read-only executor.
const READABLE: u32 = 128;

/// How a thread has the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// Out, for a lease.
    Out,
    /// Under the latch, without readers.
    Alone,
    /// Under the latch, beside readers.
    BesideReaders,
}

impl How {
    #[inline]
    fn bit(self) -> u32 {
        match self {
            How::Out => OUT,
            How::Alone => ALONE,
            How::BesideReaders => LATCHED,
        }
    }
}

/// The threads that sleep at an executor; `WANTED` is set while there are any.
#[derive(Debug, Default)]
struct Sleepers {
    /// Threads that wait for the table.
    takers: u32,
    /// The takers that need it without readers.
    alone: u32,
    /// Threads that wait to become readers.
    readers: u32,
}

/// An executor's lock table. One thread has it at a time: under the latch for one operation, or *out* for a
/// [lease](super::lease). The executor is a structure, not a thread: the thread that has the table does the work on
/// it. Each of the two ways costs one atomic operation to begin and one to end.
///
/// *Readers* are a third way: any number of them have the table at a time, each for a lease of shared locks. A reader
/// knows that no exclusive lock is entered on what it reads; while there is any reader, no such lock is entered or
/// asked for. All other work goes on under the latch while readers have the table and new ones are admitted: a
/// request for a shared lock makes no reader wait. A reader first increments its counter, then reads the state. A
/// request that needs the table without readers first changes the state, then reads the counters. So at least one of
/// the two sees the other, and backs off (Dekker's algorithm).
///
/// A lease of a table in which nothing is entered touches only the first cache line of the executor: the state says
/// that nothing is entered, and the requests are counted there. A reader does not write to that line: the readers and
/// their requests are counted in other lines ([`Readers`]).
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Executor {
    state: AtomicU32,
    /// The number of requests so far, without those of readers.
    requests: AtomicU64,
    /// The number of all requests at the last sample.
    looked_at: AtomicU64,
    /// How often a thread has found the table taken and has waited for it.
    found_out: AtomicU64,
    /// Empty except at the read-only executor.
    readers: Readers,
    sleepers: Mutex<Sleepers>,
    back: Condvar,
    /// Notified when readers may be admitted.
    open: Condvar,
    table: UnsafeCell<LocalLocks>,
    clock: Clock,
}

/// Of every so many requests, one is sampled with its key.
const TELLS: u64 = 16;

// SAFETY: the table is reached through a `TakenTable` alone, and of these there is one at a time: it is made by the
// thread that sets one of the bits of `HAD` where none was set, and they are clear again only when it is gone. Readers
// do not reach it.
unsafe impl Sync for Executor {}

/// Exclusive access to a lock table. [`Executor::put_back`] gives it back; a `TakenTable` that is forgotten leaves the
/// table out for ever.
#[derive(Debug)]
pub(in super::super) struct TakenTable {
    table: NonNull<LocalLocks>,
    /// What the state says about the entries.
    entered: u32,
    /// Nothing was entered in it, and it has not been touched since.
    is_idle: bool,
}

impl TakenTable {
    /// Whether no lock is held and no request waits.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.is_idle || self.deref().is_idle()
    }
}

// SAFETY: it is as good as `&mut LocalLocks`, and lock tables may go from thread to thread.
unsafe impl Send for TakenTable {}
// SAFETY: behind a shared reference to it the table is only read.
unsafe impl Sync for TakenTable {}

impl Deref for TakenTable {
    type Target = LocalLocks;

    #[inline]
    fn deref(&self) -> &LocalLocks {
        // SAFETY: it is the only way to the table (see `Executor`), which lies in its manager, and a manager is not
        // dropped before its owners have ended.
        unsafe { self.table.as_ref() }
    }
}

impl DerefMut for TakenTable {
    #[inline]
    fn deref_mut(&mut self) -> &mut LocalLocks {
        self.is_idle = false;
        // SAFETY: as above.
        unsafe { self.table.as_mut() }
    }
}

/// The latch: access to the table until this is dropped.
#[derive(Debug)]
pub(in super::super) struct LockTableGuard<'a> {
    executor: &'a Executor,
    table: TakenTable,
    how: How,
}

impl Deref for LockTableGuard<'_> {
    type Target = LocalLocks;

    #[inline]
    fn deref(&self) -> &LocalLocks {
        &self.table
    }
}

impl DerefMut for LockTableGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut LocalLocks {
        &mut self.table
    }
}

impl<'a> LockTableGuard<'a> {
    #[inline(always)]
    fn of(executor: &'a Executor, table: TakenTable, how: How) -> LockTableGuard<'a> {
        latches::taken();
        LockTableGuard { executor, table, how }
    }

    /// As [`LocalLocks::ask`]; counts the request.
    #[inline]
    pub fn ask(&mut self, request: LocalRequest<'_>) -> LocalAnswer {
        let answer = self.table.ask(request);
        if answer != LocalAnswer::Rerouted {
            let before = self.executor.requests.fetch_add(1, Ordering::Relaxed);
            if (before + 1).is_multiple_of(TELLS) {
                self.table.tell(request.index, request.span, request.mode);
            }
        }
        answer
    }
}

impl Drop for LockTableGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        latches::given_back();
        if self.executor.leave(self.how, &self.table) {
            self.executor.wake();
        }
    }
}

/// The result of a request to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// The requester is a reader.
    Yes,
    /// A lock or a waiting request of another owner conflicts.
    Locked,
    /// Another thread has the table.
    Away,
}

impl Executor {
    pub fn new(clock: &Clock) -> Executor {
        Executor { clock: clock.clone(), ..Executor::default() }
    }

    /// The read-only executor.
    pub fn read_only(clock: &Clock) -> Executor {
        let (state, readers) = (AtomicU32::new(READABLE), Readers::new());
        Executor { state, readers, ..Executor::new(clock) }
    }

    /// Takes the latch, for anything but a request for an exclusive lock. Waits for the latch, and for the table if
    /// it is out.
    #[inline]
    pub fn lock(&self) -> LockTableGuard<'_> {
        loop {
            if let Some(latch) = self.lock_for(RECHECK) {
                return latch;
            }
        }
    }

    /// As [`Executor::lock`]; none if the table cannot be had within about `limit`.
    #[inline]
    pub fn lock_for(&self, limit: Duration) -> Option<LockTableGuard<'_>> {
        self.latch(How::BesideReaders, limit)
    }

    /// The latch, without readers; none if the table cannot be had within about `limit`.
    #[inline]
    pub fn lock_alone_for(&self, limit: Duration) -> Option<LockTableGuard<'_>> {
        self.latch(How::Alone, limit)
    }

    /// The latch, without readers. Waits for another thread's latch; none if the table is out or has readers.
    #[inline]
    pub fn lock_if_in(&self) -> Option<LockTableGuard<'_>> {
        loop {
            let how = How::Alone;
            if let Some(table) = self.enter(how) {
                return Some(LockTableGuard::of(self, table, how));
            }
            if self.state.load(Ordering::Relaxed) & OUT != 0 || self.readers.are_there() {
                return None;
            }
            if let Some(table) = self.wait(how, RECHECK_SOON) {
                return Some(LockTableGuard::of(self, table, how));
            }
        }
    }

    #[inline]
    fn latch(&self, how: How, limit: Duration) -> Option<LockTableGuard<'_>> {
        let table = self.enter(how).or_else(|| self.wait(how, limit))?;
        Some(LockTableGuard::of(self, table, how))
    }

    /// Takes the table out; none if it cannot be had within about `limit`.
    #[inline]
    pub fn take_within(&self, limit: Duration) -> Option<TakenTable> {
        self.enter(How::Out).or_else(|| self.wait(How::Out, limit))
    }

    /// Takes the table out if no thread has it. Does not wait: the thread that has this table may be waiting for one
    /// that the caller has.
    #[inline]
    pub fn try_take(&self) -> Option<TakenTable> {
        self.enter(How::Out)
    }

    /// The same, but spins for a short time until the table is back.
    #[inline]
    pub fn try_take_soon(&self) -> Option<TakenTable> {
        self.enter(How::Out).or_else(|| {
            spin_a_while(|| self.state.load(Ordering::Relaxed) & HAD == 0);
            self.enter(How::Out)
        })
    }

    /// Counts a request of the lease that has the table out.
    #[inline]
    pub fn count(&self, table: &mut TakenTable, index: IndexId, span: SpanRef<'_>, mode: RecordMode) {
        // No other thread counts meanwhile.
        let requests = self.requests.load(Ordering::Relaxed) + 1;
        self.requests.store(requests, Ordering::Relaxed);
        if requests.is_multiple_of(TELLS) {
            table.tell(index, span, mode);
        }
    }

    /// Puts the table back. True: threads sleep until it is back, and the caller is to call [`Executor::wake`].
    #[inline]
    #[must_use]
    pub fn put_back(&self, table: TakenTable) -> bool {
        self.leave(How::Out, &table)
    }

    /// Makes an owner a reader; `reader` is its number. Refused with [`Reading::Away`] if a thread has the table
    /// alone or out, or if new readers are barred. If exclusive locks may be entered, `is_free` says, under the
    /// latch, whether none of them conflicts.
    #[inline]
    pub fn try_read(&self, reader: u16, is_free: impl FnOnce(&mut LocalLocks) -> bool) -> Reading {
        self.readers.come(reader);
        let state = self.state.load(Ordering::SeqCst);
        if state & (CLOSED | WRITTEN) == 0 {
            self.readers.count(reader);
            return Reading::Yes;
        }
        let reading = if state & CLOSED == 0 { self.read_among_locks(is_free) } else { Reading::Away };
        if reading == Reading::Yes {
            self.readers.count(reader);
        } else if self.stop_reading(reader) {
            self.wake_behind_reader();
        }
        reading
    }

    /// Checks under the latch that no lock conflicts, for a reader or a thread that has counted itself as one.
    #[cold]
    fn read_among_locks(&self, is_free: impl FnOnce(&mut LocalLocks) -> bool) -> Reading {
        let how = How::BesideReaders;
        let Some(table) = self.come_in(how) else { return Reading::Away };
        let mut latch = LockTableGuard::of(self, table, how);
        if is_free(&mut latch) { Reading::Yes } else { Reading::Locked }
    }

    /// A reader asks for a further span. This does not wait.
    #[inline]
    pub fn read_more(&self, reader: u16, is_free: impl FnOnce(&mut LocalLocks) -> bool) -> Reading {
        self.readers.count(reader);
        // Without `WRITTEN` all entries are shared locks, which do not conflict with a reader's.
        if self.state.load(Ordering::Acquire) & WRITTEN == 0 {
            return Reading::Yes;
        }
        self.read_among_locks(is_free)
    }

    /// Takes the table out for the only reader, which stops being a reader. None if another thread has the table or
    /// another reader is there.
    pub fn take_from_readers(&self, reader: u16) -> Option<TakenTable> {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if state & HAD != 0 || self.readers.number() != 1 {
                return None;
            }
            match self.state.compare_exchange(state, state | OUT, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        if self.readers.number() != 1 {
            self.back_out(How::Out);
            return None;
        }
        self.readers.go(reader);
        Some(self.taken(state))
    }

    /// Ends the reader's lease. True: threads sleep, and the caller is to call [`Executor::wake_behind_reader`].
    #[inline]
    #[must_use]
    pub fn stop_reading(&self, reader: u16) -> bool {
        self.readers.go(reader);
        let state = self.state.load(Ordering::SeqCst);
        // Otherwise the thread that has the table wakes them when it returns it.
        state & BARRED != 0 && state & HAD == 0 && !self.readers.are_there()
    }

    /// Waits until readers are admitted; false if they are not within about `limit`.
    #[cold]
    pub fn wait_to_read(&self, limit: Duration) -> bool {
        self.found_out.fetch_add(1, Ordering::Relaxed);
        let may_read = || {
            let state = self.state.load(Ordering::SeqCst);
            // Where exclusive locks may be entered, a reader needs the latch to look for them.
            state & CLOSED == 0 && (state & WRITTEN == 0 || state & LATCHED == 0)
        };
        spin_a_while(may_read);
        give_way(may_read);
        if may_read() {
            return true;
        }
        let mut sleepers = self.sleepers.lock();
        sleepers.readers += 1;
        let mut sleeps = 0;
        loop {
            self.update_wanted_and_barred(&sleepers);
            if may_read() || sleeps == SLEEPS_MAX {
                break;
            }
            sleepers = self.open.wait_for(&self.clock, sleepers, limit);
            sleeps += 1;
        }
        sleepers.readers -= 1;
        self.update_wanted_and_barred(&sleepers);
        may_read()
    }

    /// The number of requests so far.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed) + self.readers.requests()
    }

    /// The requests since the last sample. Only the number is known of what readers ask for, and of all requests if
    /// the table is out.
    pub fn sample(&self) -> Sample {
        let keys = self.lock_for(RECHECK_SOON).map_or_else(Vec::new, |mut table| table.take_keys());
        let requests = self.requests();
        Sample { requests: requests - self.looked_at.swap(requests, Ordering::Relaxed), keys }
    }

    /// How often a thread has found the table taken and has waited for it.
    pub fn found_out(&self) -> u64 {
        self.found_out.load(Ordering::Relaxed)
    }

    /// Takes the table, if no thread has it or sleeps for it, and no readers exclude this way of having it.
    #[inline]
    fn enter(&self, how: How) -> Option<TakenTable> {
        let mut state = IN;
        loop {
            match self.state.compare_exchange(state, state | how.bit(), Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) if now & (HAD | WANTED) != 0 || self.is_read(how, now) => return None,
                Err(now) => state = now,
            }
        }
        if self.is_read(how, state) {
            self.back_out(how);
            return None;
        }
        Some(self.taken(state))
    }

    /// Whether there are readers, and they exclude this way of having the table.
    #[inline]
    fn is_read(&self, how: How, state: u32) -> bool {
        state & READABLE != 0 && how != How::BesideReaders && self.readers.are_there()
    }

    /// Returns a table that was taken although there are readers.
    #[cold]
    fn back_out(&self, how: How) {
        if self.state.fetch_sub(how.bit(), Ordering::SeqCst) & WANTED != 0 {
            self.wake();
        }
    }

    /// `before`: the state before the table was taken.
    #[inline]
    fn taken(&self, before: u32) -> TakenTable {
        // SAFETY: the cell's address is never null.
        let table = unsafe { NonNull::new_unchecked(self.table.get()) };
        TakenTable { table, entered: before & (ENTERED | WRITTEN), is_idle: before & ENTERED == 0 }
    }

    /// Notes that the thread does not have the table any more. True: sleepers are to be woken, or the bar against
    /// readers may be cleared; [`Executor::wake`] does both.
    #[inline]
    fn leave(&self, how: How, table: &TakenTable) -> bool {
        debug_assert_eq!(table.table.as_ptr(), self.table.get(), "a table goes back to its own place");
        let entered = match (table.is_idle(), how) {
            (true, _) => 0,
            // No exclusive lock is requested in this way.
            (false, How::BesideReaders) => ENTERED | table.entered & WRITTEN,
            (false, _) => ENTERED | WRITTEN,
        };
        // No other thread changes these bits meanwhile.
        let gone = (how.bit() + table.entered).wrapping_sub(entered);
        let tells = if how == How::BesideReaders { WANTED } else { WANTED | BARRED };
        self.state.fetch_sub(gone, Ordering::Release) & tells != 0
    }

    /// Wakes one sleeper: a thread that comes in after a sleep while others still sleep wakes the next one when it
    /// leaves. If all were woken at once they would contend for the table. All threads that wait to become readers
    /// are woken, because these do not exclude each other. Also clears the bar against readers if it was set for the
    /// thread that has had the table.
    #[cold]
    pub fn wake(&self) {
        // A thread that found the table taken is asleep by now, not about to be: it looks and falls asleep under this
        // lock.
        let sleepers = self.sleepers.lock();
        self.update_wanted_and_barred(&sleepers);
        self.notify(&sleepers);
    }

    /// As [`Executor::wake`], after the last reader has left: the bar stays set, since a request that is between two
    /// tries still needs it.
    #[cold]
    pub fn wake_behind_reader(&self) {
        self.notify(&self.sleepers.lock());
    }

    fn notify(&self, sleepers: &MutexGuard<'_, Sleepers>) {
        if self.readers.can_be() && sleepers.takers > sleepers.alone {
            // Some of the sleepers can come in beside readers and some cannot; a single wake-up might reach one that
            // cannot.
            self.back.notify_all();
        } else if sleepers.takers > 0 {
            self.back.notify_one();
        }
        if sleepers.readers > 0 {
            self.open.notify_all();
        }
    }

    #[cold]
    fn wait(&self, how: How, limit: Duration) -> Option<TakenTable> {
        self.found_out.fetch_add(1, Ordering::Relaxed);
        let is_in = || {
            let state = self.state.load(Ordering::Relaxed);
            state & HAD == 0 && !self.is_read(how, state)
        };
        spin_a_while(is_in);
        // The thread that has the table waits for nothing (L12).
        give_way(is_in);
        let mut sleepers = self.sleepers.lock();
        if let Some(table) = self.come_in(how) {
            return Some(table);
        }
        let alone = u32::from(how != How::BesideReaders);
        (sleepers.takers, sleepers.alone) = (sleepers.takers + 1, sleepers.alone + alone);
        let mut sleeps = 0;
        let table = loop {
            self.update_wanted_and_barred(&sleepers);
            let table = self.come_in(how);
            if table.is_some() || sleeps == SLEEPS_MAX {
                break table;
            }
            sleepers = self.back.wait_for(&self.clock, sleepers, limit);
            sleeps += 1;
        };
        (sleepers.takers, sleepers.alone) = (sleepers.takers - 1, sleepers.alone - alone);
        self.update_wanted_and_barred(&sleepers);
        if table.is_none() && sleepers.readers > 0 {
            // `BARRED` may have been cleared, so readers may be admitted.
            self.open.notify_all();
        }
        table
    }

    /// As [`Executor::enter`], also if threads sleep. Unless `how` is beside readers, the caller holds the lock on
    /// `sleepers`. A table that is taken and returned at once because of readers then needs no wake-up, since no
    /// other thread can have fallen asleep for it. The caller itself may be about to sleep, so it looks for readers
    /// once more: a reader that left meanwhile has found the table taken and has woken no thread.
    fn come_in(&self, how: How) -> Option<TakenTable> {
        let mut state = self.state.load(Ordering::SeqCst);
        loop {
            if state & HAD != 0 || self.is_read(how, state) {
                return None;
            }
            match self.state.compare_exchange(state, state | how.bit(), Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) if self.is_read(how, state) => {
                    state = self.state.fetch_sub(how.bit(), Ordering::SeqCst) - how.bit();
                }
                Ok(_) => return Some(self.taken(state)),
                Err(now) => state = now,
            }
        }
    }

    /// Sets `WANTED` and `BARRED` as the sleepers require. `BARRED` stays set until there are no readers, also when
    /// the request that needed it stops sleeping: the request is made again, and overlapping readers would starve it
    /// otherwise.
    fn update_wanted_and_barred(&self, sleepers: &MutexGuard<'_, Sleepers>) {
        let wanted = if sleepers.takers + sleepers.readers > 0 { WANTED } else { 0 };
        let needs_bar = sleepers.alone > 0 && self.readers.can_be();
        let barred = if needs_bar { BARRED } else { 0 };
        self.state.fetch_or(wanted | barred, Ordering::SeqCst);
        let kept = if needs_bar || self.readers.are_there() { BARRED } else { 0 };
        self.state.fetch_and(!(WANTED | BARRED) | wanted | kept, Ordering::SeqCst);
    }
}
