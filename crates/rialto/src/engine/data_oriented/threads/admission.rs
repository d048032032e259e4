//! [`CallAdmission`]: how many calls there may be at a time.

use std::sync::atomic::Ordering;

use crossbeam_utils::CachePadded;

use super::sync::{AtomicBool, AtomicUsize, Condvar, Mutex};

/// The calls that are admitted, up to a bound at which callers wait (back-pressure). A call is admitted before it is
/// queued, and is released when it has its outcome.
///
/// Each pair of orders below is a store, then a load of what the other side stores, both sequentially consistent: a
/// call that ends either leaves room for the try of a caller that is about to sleep, or sees that the caller sleeps; a
/// call that is admitted is either waited for by the close, or sees the close.
pub(super) struct CallAdmission {
    admitted_max: usize,
    /// The number of admitted calls.
    calls: CachePadded<AtomicUsize>,
    /// The number of callers that sleep until there is room; and whether no more calls are admitted. Both lie apart
    /// from `calls`, which each call changes.
    sleepers: AtomicUsize,
    is_closed: AtomicBool,
    /// Held by callers that are about to sleep, and by the close.
    at_the_door: Mutex<()>,
    /// Notified when a call has its outcome, for callers that sleep until there is room.
    room: Condvar,
    /// Notified when the last call has its outcome, for the close.
    empty: Condvar,
}

/// What became of a try to admit a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tried {
    /// There is no room.
    Full,
    /// It is admitted.
    In,
    /// It is counted, but the close has begun: it is to be released.
    TooLate,
}

impl CallAdmission {
    /// Of so many calls at a time.
    pub fn new(admitted_max: usize) -> CallAdmission {
        CallAdmission {
            admitted_max,
            calls: CachePadded::new(AtomicUsize::new(0)),
            sleepers: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            at_the_door: Mutex::new(()),
            room: Condvar::default(),
            empty: Condvar::default(),
        }
    }

    /// Admits a call; waits while as many calls are admitted as there may be. False after the close.
    #[must_use]
    pub fn admit(&self) -> bool {
        loop {
            let mut counted = self.count();
            if counted == Tried::Full {
                let latch = self.at_the_door.lock();
                if self.is_closed.load(Ordering::SeqCst) {
                    return false;
                }
                self.sleepers.fetch_add(1, Ordering::SeqCst);
                counted = self.count();
                if counted == Tried::Full {
                    drop(self.room.wait(latch, None));
                } else {
                    drop(latch);
                }
                self.sleepers.fetch_sub(1, Ordering::SeqCst);
            }
            match counted {
                Tried::Full => {}
                Tried::In => return true,
                // Without the latch, which this takes.
                Tried::TooLate => {
                    self.release();
                    return false;
                }
            }
        }
    }

    /// Admits a call if there is room and no other caller waits for room.
    #[must_use]
    pub fn admit_at_once(&self) -> bool {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            return false;
        }
        let counted = self.count();
        if counted == Tried::TooLate {
            self.release();
        }
        counted == Tried::In
    }

    /// Counts a call if there is room.
    fn count(&self) -> Tried {
        let one_more = |calls| (calls < self.admitted_max).then_some(calls + 1);
        if self.calls.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_err() {
            return Tried::Full;
        }
        match self.is_closed.load(Ordering::SeqCst) {
            false => Tried::In,
            true => Tried::TooLate,
        }
    }

    /// Notes that a call has its outcome.
    pub fn release(&self) {
        let is_last = self.calls.fetch_sub(1, Ordering::SeqCst) == 1;
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // There is room for one call. If a caller takes it without having slept, it wakes the next sleeper when
            // its call ends.
            drop(self.at_the_door.lock());
            self.room.notify_one();
        }
        if is_last && self.is_closed.load(Ordering::SeqCst) {
            drop(self.at_the_door.lock());
            self.empty.notify_all();
        }
    }

    /// Admits no more calls, and waits for those that are admitted.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        let mut latch = self.at_the_door.lock();
        self.room.notify_all();
        while self.calls.load(Ordering::SeqCst) > 0 {
            latch = self.empty.wait(latch, None);
        }
    }
}
