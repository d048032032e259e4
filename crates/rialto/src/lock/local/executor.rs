//! [`Executor`]: a local lock table and whose turn it is.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::sync::{AtomicU32, AtomicU64, Condvar, Mutex, give_way, look_a_while};
use super::locks::LocalLocks;

/// A sleeper looks again so often, whoever forgot to wake it.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Who has slept so often, and has always found that others were faster, has waited for long enough.
const SLEEPS_MAX: u32 = 4;

/// Nobody has the table.
const IN: u32 = 0;
/// Somebody has it for one look.
const LATCHED: u32 = 1;
/// Somebody has it for a stint.
const OUT: u32 = 2;
/// Beside one of these: somebody sleeps until it is back.
const WANTED: u32 = 4;

/// An executor's lock table, which one thread has at a time: under the latch for one look, or out of its place for a
/// [stint](super::stint). It is a structure, not a thread: whoever has the table runs what there is to do with it.
///
/// Both cost one exchange to begin and one to end.
#[derive(Debug, Default)]
pub(super) struct Executor {
    state: AtomicU32,
    table: UnsafeCell<LocalLocks>,
    sleepers: Mutex<()>,
    back: Condvar,
    /// How often somebody has found the table away and waited for it.
    found_out: AtomicU64,
    /// How many requests there had been when the table was last taken out: for who does not wait until it is back.
    requests: AtomicU64,
}

// SAFETY: the table is reached through a `Taken` alone, and of these there is one at a time: it is made by whoever changes
// the state from `IN`, and the state is `IN` again only when it is gone.
unsafe impl Sync for Executor {}

/// A lock table in the hands of whoever has this. It is given back by [`Executor::put_back`]; one that is forgotten leaves
/// the table out for ever.
#[derive(Debug)]
pub(in super::super) struct Taken(NonNull<LocalLocks>);

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
        unsafe { self.0.as_ref() }
    }
}

impl DerefMut for Taken {
    #[inline]
    fn deref_mut(&mut self) -> &mut LocalLocks {
        // SAFETY: as above.
        unsafe { self.0.as_mut() }
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

impl Drop for Latch<'_> {
    #[inline]
    fn drop(&mut self) {
        self.executor.leave();
    }
}

impl Executor {
    /// The latch; waits for it, and for the table to be back.
    #[inline]
    pub fn lock(&self) -> Latch<'_> {
        loop {
            if let Some(latch) = self.lock_for(LOOK_AGAIN) {
                return latch;
            }
        }
    }

    /// The latch, if the table is in or somebody has just a look at it.
    #[inline]
    pub fn lock_if_in(&self) -> Option<Latch<'_>> {
        loop {
            if let Some(table) = self.enter(LATCHED) {
                return Some(Latch { executor: self, table });
            }
            if self.state.load(Ordering::Relaxed) & OUT != 0 {
                return None;
            }
            if let Some(table) = self.wait(LATCHED, LOOK_AGAIN) {
                return Some(Latch { executor: self, table });
            }
        }
    }

    /// The latch; none if the table stays away for about so long.
    #[inline]
    pub fn lock_for(&self, limit: Duration) -> Option<Latch<'_>> {
        let table = match self.enter(LATCHED) {
            Some(table) => table,
            None => self.wait(LATCHED, limit)?,
        };
        Some(Latch { executor: self, table })
    }

    /// Takes the table out; none if it stays away for about so long.
    #[inline]
    pub fn take_within(&self, limit: Duration) -> Option<Taken> {
        let table = match self.enter(OUT) {
            Some(table) => table,
            None => self.wait(OUT, limit)?,
        };
        self.requests.store(table.requests(), Ordering::Relaxed);
        Some(table)
    }

    /// Takes the table out if nobody has it: who does may wait for another executor's.
    #[inline]
    pub fn try_take(&self) -> Option<Taken> {
        let table = self.enter(OUT)?;
        self.requests.store(table.requests(), Ordering::Relaxed);
        Some(table)
    }

    /// How many requests there were so far; while the table is out, before it went. Waits for nobody's stint.
    pub fn requests(&self) -> u64 {
        match self.lock_if_in() {
            Some(latch) => latch.requests(),
            None => self.requests.load(Ordering::Relaxed),
        }
    }

    /// How often somebody has found the table away and waited for it.
    pub fn found_out(&self) -> u64 {
        self.found_out.load(Ordering::Relaxed)
    }

    /// Puts the table back. True: somebody sleeps until it is, and is to be [woken](Executor::wake).
    #[inline]
    #[must_use]
    pub fn put_back(&self, table: Taken) -> bool {
        debug_assert_eq!(table.0.as_ptr(), self.table.get(), "a table goes back to its own place");
        self.state.swap(IN, Ordering::Release) & WANTED != 0
    }

    /// Has the table, if nobody else does.
    #[inline]
    fn enter(&self, to: u32) -> Option<Taken> {
        let entered = self.state.compare_exchange(IN, to, Ordering::Acquire, Ordering::Relaxed);
        entered.ok().map(|_| self.taken())
    }

    #[inline]
    fn taken(&self) -> Taken {
        // SAFETY: the cell's address is never null.
        Taken(unsafe { NonNull::new_unchecked(self.table.get()) })
    }

    /// Nobody has the table any more.
    #[inline]
    fn leave(&self) {
        if self.state.swap(IN, Ordering::Release) & WANTED != 0 {
            self.wake();
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
    fn wait(&self, to: u32, limit: Duration) -> Option<Taken> {
        self.found_out.fetch_add(1, Ordering::Relaxed);
        let is_in = || self.state.load(Ordering::Relaxed) == IN;
        look_a_while(is_in);
        // Who has it waits for nothing (L12).
        give_way(is_in);
        let (mut guard, mut sleeps) = (self.sleepers.lock(), 0);
        loop {
            let state = self.state.load(Ordering::Relaxed);
            // Others may sleep still.
            let next = if state == IN { to | WANTED } else { state | WANTED };
            if state != next
                && self.state.compare_exchange(state, next, Ordering::Acquire, Ordering::Relaxed).is_err()
            {
                continue;
            }
            if state == IN {
                return Some(self.taken());
            }
            if sleeps == SLEEPS_MAX {
                return None;
            }
            guard = self.back.wait_for(guard, limit);
            sleeps += 1;
        }
    }
}
