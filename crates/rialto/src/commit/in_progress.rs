//! [`CommitsInProgress`]: the packets that are not applied yet, and the barrier that a cut closes to new ones.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::sync::{AtomicU8, AtomicU64, Clock, Condvar, Mutex, fence};
use crate::fault_injection;
use crate::ids::Lsn;

/// What a commit finds before its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum CommitBarrier {
    /// No barrier and no sweep.
    Open,
    /// A sweep at a cut is under way: what the commit changes may have to be kept for it.
    Snapshots,
    /// A black/white sweep is under way: the commit's side has to be settled.
    Sides,
    /// A cut is being made: no commit takes its place.
    Closed,
}

/// The packets of commits in progress: from before their push until the last of their writes is applied (I5).
///
/// Two orders hold, each by a store, a fence on both sides, and a load: a commit publishes its entry before it reads
/// the barrier, and the thread that closes the barrier reads the entries afterwards. Therefore the cut finds a commit
/// that has passed the barrier.
pub(crate) struct CommitsInProgress {
    /// Per context: a place at or before its packet's, or [`IDLE`].
    places: Box<[CachePadded<AtomicU64>]>,
    barrier: AtomicU8,
    /// For the threads that wait at the barrier.
    lock: Mutex<()>,
    opened: Condvar,
}

const IDLE: u64 = u64::MAX;

impl CommitsInProgress {
    pub fn new(contexts: usize) -> CommitsInProgress {
        CommitsInProgress {
            places: (0..contexts).map(|_| CachePadded::new(AtomicU64::new(IDLE))).collect(),
            barrier: AtomicU8::new(CommitBarrier::Open as u8),
            lock: Mutex::new(()),
            opened: Condvar::new(),
        }
    }

    /// Publishes that a packet will take a place after `place`; returns the state of the barrier afterwards. A commit
    /// that finds it closed [leaves] and [waits].
    ///
    /// [leaves]: CommitsInProgress::leave
    /// [waits]: CommitsInProgress::wait_at_barrier
    #[inline]
    pub fn enter(&self, context: usize, place: Lsn) -> CommitBarrier {
        self.places[context].store(place.0, Ordering::Relaxed);
        // The sweep reads the queue's head, then these: the store comes before the push.
        fence(Ordering::SeqCst);
        self.barrier()
    }

    /// The state of the barrier.
    #[inline]
    pub fn barrier(&self) -> CommitBarrier {
        match self.barrier.load(Ordering::Acquire) {
            0 => CommitBarrier::Open,
            1 => CommitBarrier::Snapshots,
            2 => CommitBarrier::Sides,
            _ => CommitBarrier::Closed,
        }
    }

    /// Publishes that the commit's writes are applied.
    pub fn leave(&self, context: usize) {
        self.places[context].store(IDLE, Ordering::Release);
    }

    /// The oldest place that may not be wholly applied. `place` has been read from the queue's head before.
    pub fn oldest(&self, place: Lsn) -> Lsn {
        fence(Ordering::SeqCst);
        let oldest = self.places.iter().map(|place| place.load(Ordering::Acquire)).min().unwrap_or(IDLE);
        let oldest = if fault_injection::is_on("redo-start-behind-commits") { IDLE } else { oldest };
        // An entry says "after this place".
        Lsn(oldest.min(place.0)).next()
    }

    /// Waits until all places up to `lsn` are wholly applied; `place` returns the head of the queue. Returns the oldest
    /// place that may not be.
    pub fn outlast_until(&self, clock: &Clock, lsn: Lsn, place: impl Fn() -> Lsn) -> Lsn {
        let mut looks = 0;
        loop {
            let oldest = self.oldest(place());
            if oldest > lsn {
                return oldest;
            }
            looks += 1;
            clock.look_later(looks);
        }
    }

    /// Waits until no commit is in progress.
    pub fn drain(&self, clock: &Clock) {
        let mut looks = 0;
        while self.places.iter().any(|place| place.load(Ordering::SeqCst) != IDLE) {
            looks += 1;
            clock.look_later(looks);
        }
    }

    /// Waits until the commits that are in progress now are applied, or have left. A commit that enters from here on
    /// sees the barrier as it is now, or as it is later.
    pub fn outlast(&self, clock: &Clock) {
        fence(Ordering::SeqCst);
        for place in &self.places {
            let seen = place.load(Ordering::SeqCst);
            let mut looks = 0;
            while seen != IDLE && place.load(Ordering::SeqCst) == seen {
                looks += 1;
                clock.look_later(looks);
            }
        }
    }

    /// Keeps commits from their places until the barrier is opened.
    pub fn close_barrier(&self) {
        self.barrier.store(CommitBarrier::Closed as u8, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Lets commits pass.
    pub fn open_barrier(&self, barrier: CommitBarrier) {
        self.barrier.store(barrier as u8, Ordering::SeqCst);
        let _lock = self.lock.lock();
        self.opened.notify_all();
    }

    /// Waits until the barrier is open, for at most the limit.
    pub fn wait_at_barrier(&self, clock: &Clock, limit: Duration) {
        let mut lock = self.lock.lock();
        if self.barrier() == CommitBarrier::Closed {
            clock.wait(&self.opened, &mut lock, Some(limit));
        }
    }
}
