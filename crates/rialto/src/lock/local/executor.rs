//! [`Executor`]: a local lock table and whose turn it is.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::super::sync::{AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard, look_a_while, try_lock};
use super::locks::LocalLocks;
use std::sync::atomic::Ordering;

/// A sleeper looks again so often, whoever forgot to wake it.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// An executor's lock table, which one thread has at a time: under the latch for one look, or taken out of it for a
/// [stint](super::stint). It is a structure, not a thread: whoever has the table runs what there is to do with it.
#[derive(Debug)]
pub(super) struct Executor {
    place: Mutex<Place>,
    back: Condvar,
    /// The table is out: a hint for those who look before they sleep.
    out: AtomicBool,
    /// How often somebody has found it out and waited.
    found_out: AtomicU64,
}

#[derive(Debug)]
struct Place {
    /// None while it is out.
    locks: Option<Box<LocalLocks>>,
    /// How many sleep until it is back.
    sleepers: usize,
}

impl Default for Executor {
    fn default() -> Executor {
        Executor {
            place: Mutex::new(Place { locks: Some(Box::default()), sleepers: 0 }),
            back: Condvar::default(),
            out: AtomicBool::new(false),
            found_out: AtomicU64::new(0),
        }
    }
}

/// The table, until this is dropped.
#[derive(Debug)]
pub(in super::super) struct Latch<'a>(MutexGuard<'a, Place>);

impl Deref for Latch<'_> {
    type Target = LocalLocks;

    fn deref(&self) -> &LocalLocks {
        self.0.locks.as_ref().expect("a latch is given with the table in its place")
    }
}

impl DerefMut for Latch<'_> {
    fn deref_mut(&mut self) -> &mut LocalLocks {
        self.0.locks.as_mut().expect("a latch is given with the table in its place")
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

    /// The latch, if the table is in.
    #[inline]
    pub fn lock_if_in(&self) -> Option<Latch<'_>> {
        let place = self.place.lock();
        place.locks.is_some().then(|| Latch(place))
    }

    /// The latch; none if the table stays out for so long.
    #[inline]
    pub fn lock_for(&self, limit: Duration) -> Option<Latch<'_>> {
        let place = self.place.lock();
        if place.locks.is_some() { Some(Latch(place)) } else { self.wait(place, limit) }
    }

    #[cold]
    fn wait<'a>(&'a self, place: MutexGuard<'a, Place>, limit: Duration) -> Option<Latch<'a>> {
        drop(place);
        self.found_out.fetch_add(1, Ordering::Relaxed);
        look_a_while(|| !self.out.load(Ordering::Relaxed));
        let mut place = self.place.lock();
        if place.locks.is_none() {
            place.sleepers += 1;
            place = self.back.wait_for(place, limit);
            place.sleepers -= 1;
        }
        // One is woken when the table is back, and wakes the next: all at once would be in each other's way.
        if place.locks.is_some() && place.sleepers > 0 {
            self.back.notify_one();
        }
        place.locks.is_some().then(|| Latch(place))
    }

    /// Takes the table out; none if it stays out for so long.
    pub fn take_within(&self, limit: Duration) -> Option<Box<LocalLocks>> {
        let Latch(mut place) = self.lock_for(limit)?;
        self.out.store(true, Ordering::Relaxed);
        place.locks.take()
    }

    /// Takes the table out if it is there and nobody has the latch: who does may wait for another executor's table.
    pub fn try_take(&self) -> Option<Box<LocalLocks>> {
        if self.out.load(Ordering::Relaxed) {
            return None;
        }
        let locks = try_lock(&self.place)?.locks.take()?;
        self.out.store(true, Ordering::Relaxed);
        Some(locks)
    }

    /// How often somebody has found the table out and waited for it.
    pub fn found_out(&self) -> u64 {
        self.found_out.load(Ordering::Relaxed)
    }

    /// Puts the table back.
    pub fn put_back(&self, locks: Box<LocalLocks>) {
        let mut place = self.place.lock();
        place.locks = Some(locks);
        self.out.store(false, Ordering::Relaxed);
        let sleepers = place.sleepers;
        drop(place);
        if sleepers > 0 {
            self.back.notify_one();
        }
    }
}
