//! [`Executor`]: a local lock table and whose turn it is.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::mode::RecordMode;
use super::super::sync::{AtomicU32, AtomicU64, Condvar, Mutex, give_way, look_a_while};
use super::locks::{Answer, LocalLocks, Look, Request};
use super::span::SpanRef;
use crate::ids::IndexId;

/// A sleeper looks again so often, whoever forgot to wake it.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A sleeper that may have other latches, or needs none, looks again so often.
const LOOK_AT_ONCE: Duration = Duration::from_millis(1);

/// Who has slept so often, and has always found that others were faster, has waited for long enough.
const SLEEPS_MAX: u32 = 4;

/// Nobody has the table, and nothing is entered in it.
const IN: u32 = 0;
/// Somebody has it for one look.
const LATCHED: u32 = 1;
/// Somebody has it for a stint.
const OUT: u32 = 2;
/// Beside one of these, or readers: somebody sleeps until it is back.
const WANTED: u32 = 4;
/// Locks are entered in it, or requests that wait.
const ENTERED: u32 = 8;
/// One more reader has it; all bits from here on count these.
const READER: u32 = 16;
const READERS: u32 = !(READER - 1);

/// How a table is had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// For a stint.
    Out,
    /// Under the latch.
    Alone,
    /// Under the latch, beside readers.
    BesideReaders,
}

impl How {
    #[inline]
    fn bit(self) -> u32 {
        if self == How::Out { OUT } else { LATCHED }
    }

    /// What the table's state has nothing of for him who comes.
    #[inline]
    fn kept_off_by(self) -> u32 {
        LATCHED | OUT | if self == How::BesideReaders { 0 } else { READERS }
    }
}

/// An executor's lock table, which one thread has at a time: under the latch for one look, or out of its place for a
/// [stint](super::stint). It is a structure, not a thread: whoever has the table runs what there is to do with it.
///
/// Both cost one exchange to begin and one to end.
///
/// Or *readers* have it, any number at a time, each for a stint of shared locks: they know that no exclusive one is entered on
/// what they read, and none is entered, nor asked for, while there is any reader. All else goes on beside them under the latch.
///
/// A stint at a table in which nothing is entered touches one cache line of it, the first: the state says that much, and the
/// requests are counted there.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Executor {
    state: AtomicU32,
    /// How many requests there were.
    requests: AtomicU64,
    /// How many there were at the last look.
    looked_at: AtomicU64,
    /// How often somebody has found the table away and waited for it.
    found_out: AtomicU64,
    sleepers: Mutex<()>,
    back: Condvar,
    table: UnsafeCell<LocalLocks>,
}

/// One request in so many tells what it was for.
const TELLS: u64 = 16;

// SAFETY: the table is reached through a `Taken` alone, and of these there is one at a time: it is made by whoever sets
// `LATCHED` or `OUT` where neither was set, and both are clear again only when it is gone. Readers do not reach it.
unsafe impl Sync for Executor {}

/// A lock table in the hands of whoever has this. It is given back by [`Executor::put_back`]; one that is forgotten leaves
/// the table out for ever.
#[derive(Debug)]
pub(in super::super) struct Taken {
    table: NonNull<LocalLocks>,
    /// Nothing was entered in it, and it has not been touched since.
    is_idle: bool,
}

impl Taken {
    /// Whether nobody holds anything or waits.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.is_idle || self.deref().is_idle()
    }
}

// SAFETY: it is as good as `&mut LocalLocks`, and lock tables may go from thread to thread.
unsafe impl Send for Taken {}
// SAFETY: behind a shared reference to it the table is only read.
unsafe impl Sync for Taken {}

impl Deref for Taken {
    type Target = LocalLocks;

    #[inline]
    fn deref(&self) -> &LocalLocks {
        // SAFETY: it is the only way to the table (see `Executor`), which lies in its manager, and a manager is not dropped
        // before its owners have ended.
        unsafe { self.table.as_ref() }
    }
}

impl DerefMut for Taken {
    #[inline]
    fn deref_mut(&mut self) -> &mut LocalLocks {
        self.is_idle = false;
        // SAFETY: as above.
        unsafe { self.table.as_mut() }
    }
}

/// The table, until this is dropped.
#[derive(Debug)]
pub(in super::super) struct Latch<'a> {
    executor: &'a Executor,
    table: Taken,
}

impl Deref for Latch<'_> {
    type Target = LocalLocks;

    #[inline]
    fn deref(&self) -> &LocalLocks {
        &self.table
    }
}

impl DerefMut for Latch<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut LocalLocks {
        &mut self.table
    }
}

impl Latch<'_> {
    /// As the table's, counted.
    #[inline]
    pub fn ask(&mut self, request: Request<'_>) -> Answer {
        let answer = self.table.ask(request);
        if answer != Answer::Rerouted {
            let before = self.executor.requests.fetch_add(1, Ordering::Relaxed);
            if (before + 1).is_multiple_of(TELLS) {
                self.table.tell(request.index, request.span, request.mode);
            }
        }
        answer
    }
}

impl Drop for Latch<'_> {
    #[inline]
    fn drop(&mut self) {
        let is_idle = self.table.is_idle();
        self.executor.leave(is_idle);
    }
}

/// What came of asking to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// One is a reader.
    Yes,
    /// A lock of somebody else's is in the way.
    Locked,
    /// Somebody has the table.
    Away,
}

impl Executor {
    /// The latch, for anything but to ask for an exclusive lock; waits for it, and for the table to be back.
    #[inline]
    pub fn lock(&self) -> Latch<'_> {
        loop {
            if let Some(latch) = self.lock_for(LOOK_AGAIN) {
                return latch;
            }
        }
    }

    /// As [`Executor::lock`]; none if the table stays away for about so long.
    #[inline]
    pub fn lock_for(&self, limit: Duration) -> Option<Latch<'_>> {
        self.latch(How::BesideReaders, limit)
    }

    /// The latch, with no readers beside; none if the table stays away for about so long.
    #[inline]
    pub fn lock_alone_for(&self, limit: Duration) -> Option<Latch<'_>> {
        self.latch(How::Alone, limit)
    }

    /// The latch, if the table is in or somebody has just a look at it.
    #[inline]
    pub fn lock_if_in(&self) -> Option<Latch<'_>> {
        loop {
            if let Some(table) = self.enter(How::Alone) {
                return Some(Latch { executor: self, table });
            }
            if self.state.load(Ordering::Relaxed) & (OUT | READERS) != 0 {
                return None;
            }
            if let Some(table) = self.wait(How::Alone, LOOK_AT_ONCE) {
                return Some(Latch { executor: self, table });
            }
        }
    }

    #[inline]
    fn latch(&self, how: How, limit: Duration) -> Option<Latch<'_>> {
        let table = self.enter(how).or_else(|| self.wait(how, limit))?;
        Some(Latch { executor: self, table })
    }

    /// Takes the table out; none if it stays away for about so long.
    #[inline]
    pub fn take_within(&self, limit: Duration) -> Option<Taken> {
        self.enter(How::Out).or_else(|| self.wait(How::Out, limit))
    }

    /// Takes the table out if nobody has it: who does may wait for another executor's.
    #[inline]
    pub fn try_take(&self) -> Option<Taken> {
        self.enter(How::Out)
    }

    /// Counts a request of him who has the table out.
    #[inline]
    pub fn count(&self, table: &mut Taken, index: IndexId, span: SpanRef<'_>, mode: RecordMode) {
        // Nobody else counts meanwhile.
        let requests = self.requests.load(Ordering::Relaxed) + 1;
        self.requests.store(requests, Ordering::Relaxed);
        if requests.is_multiple_of(TELLS) {
            table.tell(index, span, mode);
        }
    }

    /// Puts the table back. True: somebody sleeps until it is, and is to be [woken](Executor::wake).
    #[inline]
    #[must_use]
    pub fn put_back(&self, table: Taken) -> bool {
        debug_assert_eq!(table.table.as_ptr(), self.table.get(), "a table goes back to its own place");
        let to = if table.is_idle() { IN } else { ENTERED };
        self.state.swap(to, Ordering::Release) & WANTED != 0
    }

    /// Becomes a reader, if nobody has the table but readers. Where locks are entered, `is_free` says whether any is in the way.
    #[inline]
    pub fn try_read(&self, is_free: impl FnOnce(&mut LocalLocks) -> bool) -> Reading {
        let mut state = IN;
        loop {
            match self.state.compare_exchange(state, state + READER, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    self.requests.fetch_add(1, Ordering::Relaxed);
                    return Reading::Yes;
                }
                // Who waits has the table next: there may always be a reader.
                Err(now) if now & (LATCHED | OUT | WANTED) != 0 => return Reading::Away,
                Err(now) if now & ENTERED != 0 => return self.read_among_locks(is_free),
                Err(now) => state = now,
            }
        }
    }

    #[cold]
    fn read_among_locks(&self, is_free: impl FnOnce(&mut LocalLocks) -> bool) -> Reading {
        let Some(table) = self.enter(How::BesideReaders) else { return Reading::Away };
        let mut latch = Latch { executor: self, table };
        if !is_free(&mut latch) {
            return Reading::Locked;
        }
        self.state.fetch_add(READER, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
        Reading::Yes
    }

    /// A reader asks for more: whether it is free for him. Waits for nobody.
    #[inline]
    pub fn read_more(&self, is_free: impl FnOnce(&mut LocalLocks) -> bool) -> Reading {
        self.requests.fetch_add(1, Ordering::Relaxed);
        // Nothing that was entered since is in a reader's way.
        if self.state.load(Ordering::Acquire) & ENTERED == 0 {
            return Reading::Yes;
        }
        let Some(table) = self.enter(How::BesideReaders) else { return Reading::Away };
        let mut latch = Latch { executor: self, table };
        if is_free(&mut latch) { Reading::Yes } else { Reading::Locked }
    }

    /// The only reader has the table for himself from here on.
    #[inline]
    pub fn take_from_readers(&self) -> Option<Taken> {
        let state = self.state.load(Ordering::Relaxed);
        let is_only_one = state & !(WANTED | ENTERED) == READER;
        let to = (state.wrapping_sub(READER)) | OUT;
        (is_only_one && self.state.compare_exchange(state, to, Ordering::Acquire, Ordering::Relaxed).is_ok())
            .then(|| self.taken(state))
    }

    /// Is no reader any more. True: somebody is to be [woken](Executor::wake).
    #[inline]
    #[must_use]
    pub fn stop_reading(&self) -> bool {
        let before = self.state.fetch_sub(READER, Ordering::Release);
        before & READERS == READER && before & WANTED != 0
    }

    /// How many requests there were so far.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// What it was asked for since the last look. Of what readers ask for, and while the table stays out, only the number is known.
    pub fn look(&self) -> Look {
        let keys = self.lock_for(LOOK_AT_ONCE).map_or_else(Vec::new, |mut table| table.take_keys());
        let requests = self.requests();
        Look { requests: requests - self.looked_at.swap(requests, Ordering::Relaxed), keys }
    }

    /// How often somebody has found the table away and waited for it.
    pub fn found_out(&self) -> u64 {
        self.found_out.load(Ordering::Relaxed)
    }

    /// Has the table, if nobody else does.
    #[inline]
    fn enter(&self, how: How) -> Option<Taken> {
        let mut state = IN;
        loop {
            let to = state | how.bit();
            match self.state.compare_exchange(state, to, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(self.taken(state)),
                Err(now) if now & (how.kept_off_by() | WANTED) != 0 => return None,
                Err(now) => state = now,
            }
        }
    }

    /// `before`: what the state was.
    #[inline]
    fn taken(&self, before: u32) -> Taken {
        // SAFETY: the cell's address is never null.
        let table = unsafe { NonNull::new_unchecked(self.table.get()) };
        Taken { table, is_idle: before & ENTERED == 0 }
    }

    /// Nobody has the table any more but readers, if there are any.
    #[inline]
    fn leave(&self, is_idle: bool) {
        let entered = if is_idle { 0 } else { ENTERED };
        // While the latch is had, readers only go.
        if self.state.load(Ordering::Relaxed) & READERS != 0 {
            return self.leave_to_readers(entered);
        }
        if self.state.swap(entered, Ordering::Release) & WANTED != 0 {
            self.wake();
        }
    }

    #[cold]
    fn leave_to_readers(&self, entered: u32) {
        let mut state = self.state.load(Ordering::Relaxed);
        // Those who would have it alone want it still.
        let next =
            |state: u32| state & READERS | entered | if state & READERS == 0 { 0 } else { state & WANTED };
        while let Err(now) =
            self.state.compare_exchange(state, next(state), Ordering::Release, Ordering::Relaxed)
        {
            state = now;
        }
        if state & WANTED != 0 {
            // Some of them may go on beside readers.
            drop(self.sleepers.lock());
            self.back.notify_all();
        }
    }

    /// One is woken: who comes in from his sleep leaves the state wanted, and so wakes the next. All at once would be in each
    /// other's way.
    #[cold]
    pub fn wake(&self) {
        // Who looked before the table was back is asleep by now, not about to be.
        drop(self.sleepers.lock());
        self.back.notify_one();
    }

    #[cold]
    fn wait(&self, how: How, limit: Duration) -> Option<Taken> {
        self.found_out.fetch_add(1, Ordering::Relaxed);
        let is_free = |state: u32| state & how.kept_off_by() == 0;
        let is_in = || is_free(self.state.load(Ordering::Relaxed));
        look_a_while(is_in);
        // Who has it waits for nothing (L12).
        give_way(is_in);
        let (mut guard, mut sleeps) = (self.sleepers.lock(), 0);
        loop {
            let state = self.state.load(Ordering::Relaxed);
            // Others may sleep still.
            let next = state | WANTED | if is_free(state) { how.bit() } else { 0 };
            if state != next
                && self.state.compare_exchange(state, next, Ordering::Acquire, Ordering::Relaxed).is_err()
            {
                continue;
            }
            if is_free(state) {
                return Some(self.taken(state));
            }
            if sleeps == SLEEPS_MAX {
                return None;
            }
            guard = self.back.wait_for(guard, limit);
            sleeps += 1;
        }
    }
}
