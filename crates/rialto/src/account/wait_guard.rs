//! [`WaitGuard`]: what a thread does before it sleeps until another transaction, the log or a checkpoint wakes it.
//!
//! The guard does what every such wait has to do:
//! - *it lets other executors run*: an executor of a transaction server, or a thread that owns executors, gives its
//!   turn to another executor until the guard is dropped; for other threads this has no effect;
//! - *it accounts the wait* by the database's [`Clock`], unless the wait is accounted elsewhere ([`Awaited`]);
//! - *it checks for latches*: in debug builds a thread that holds one may not wait, and panics. An executor that
//!   resumes waits for its turn, and the thread that has the turn must need nothing that the waiting thread holds.
//!
//! Every wait of a transaction that is not bounded by a few milliseconds goes through the guard; waits for the disk
//! itself, as in `Database::sync`, do not. A wait for a latch does not either ([`LatchWait`]): its holder holds it for
//! a moment, and the waiter may hold other latches.
//!
//! A commit that has waited continues without the turn, and waits for the turn when it has ended
//! (`Context::leave_turn`). Otherwise other transactions, which wait for what the commit holds, would also wait for the
//! body that has the turn.
//!
//! **A thread that holds leases of lock tables keeps its turn** (L12 in `isolate/local/`). It holds some only while it
//! runs a body whose transaction has an executor lease (`OwnLease`). Then it waits for no other transaction, but at
//! most for the log or a checkpoint. These need no turn: they wait for commits, and no commit waits for its turn while
//! it keeps a barrier, a place that is not applied, or the log's room.

use std::cell::Cell;
use std::sync::Arc;
use std::thread::LocalKey;
use std::time::Instant;

use super::waits::{LATCH_NS, LOG_NS, PAGE_NS};
use super::{disk_waits, latches};
use crate::io::{Clock, Moment};

/// What a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// A lock or a lock table: the transaction's lock slot accounts the wait.
    Lock,
    /// The ends of other transactions, whatever they have locked.
    Others,
    /// Nothing by itself: the guard of a commit that continues without its turn, in which each wait has its own guard.
    Commit,
    /// The log to be durable up to a place: the reply accounts the wait.
    Log,
    /// A packet slot, or room in the log.
    LogRoom,
    /// A checkpoint: its end, or before it begins, the end of another checkpoint or of a backup.
    Checkpoint,
    /// A page that is read from the disk, by this thread or by another one.
    Page,
    /// At a barrier that commits pass: a checkpoint or a definition that holds it.
    Barrier,
}

impl Awaited {
    /// The sum that the wait is added to, if it is not accounted elsewhere.
    fn sum(self) -> Option<&'static LocalKey<Cell<u64>>> {
        match self {
            Awaited::Lock | Awaited::Others | Awaited::Commit | Awaited::Log | Awaited::Checkpoint => None,
            Awaited::LogRoom => Some(&LOG_NS),
            Awaited::Barrier => Some(&LATCH_NS),
            Awaited::Page => Some(&PAGE_NS),
        }
    }
}

/// Passes the turn between executors.
pub(crate) trait Turns: Send + Sync {
    /// The calling executor is about to block.
    fn leave(&self);
    /// The event that it waited for has happened: returns when it is its turn.
    fn come_back(&self);
}

thread_local! {
    /// `None`: the thread is no executor, or is blocked already. When the thread ends and this is gone, that counts as
    /// `None`.
    static TURNS: Cell<Option<Arc<dyn Turns>>> = const { Cell::new(None) };
    /// Whether the thread holds leases of lock tables.
    static KEEPS_ITS_TURN: Cell<bool> = const { Cell::new(false) };
    /// Whether the thread is inside of a wait that is accounted as a whole, for instance a checkpoint that a
    /// transaction makes for its room.
    static IS_ACCOUNTED: Cell<bool> = const { Cell::new(false) };
}

/// From now on the calling thread keeps its turn while it is blocked, or no longer does.
pub(crate) fn keep_turn(keeps: bool) {
    KEEPS_ITS_TURN.set(keeps);
}

fn set_turns(turns: Option<Arc<dyn Turns>>) {
    // If it is gone, it counts as `None`.
    let _ = TURNS.try_with(|mine| mine.set(turns));
}

/// Whether the calling thread can be an executor: not while it ends.
pub(crate) fn can_take_turns() -> bool {
    TURNS.try_with(|_| ()).is_ok()
}

/// Makes the calling thread an executor until the returned guard is dropped. What the thread does afterwards, for
/// instance closing the database with the last handle, is not part of a transaction's turn.
#[must_use = "the thread is an executor only as long as this lives"]
pub(crate) fn take_turns(turns: Arc<dyn Turns>) -> TakesTurns {
    set_turns(Some(turns));
    TakesTurns
}

/// The calling thread is an executor.
pub(crate) struct TakesTurns;

impl Drop for TakesTurns {
    fn drop(&mut self) {
        set_turns(None);
    }
}

/// The calling thread waits until this is dropped. A wait within the wait is part of it.
pub(crate) struct WaitGuard {
    turns: Option<Arc<dyn Turns>>,
    account: Option<(Clock, Moment, &'static LocalKey<Cell<u64>>)>,
    /// The waits inside of this one are part of it, and accounted by it.
    is_outer: bool,
    is_for_page: bool,
    /// A virtual clock, which is told when what the thread waited for has happened.
    told: Option<Clock>,
}

impl WaitGuard {
    /// Whether the thread has a turn, which a guard would pass to another executor.
    pub fn would_give_turn_away() -> bool {
        TURNS
            .try_with(|mine| {
                let turns = mine.take();
                let has_turn = turns.is_some();
                mine.set(turns);
                has_turn
            })
            .unwrap_or_default()
    }

    /// The thread is about to wait. Lets another executor run, unless the thread holds leases of lock tables.
    pub fn enter(clock: &Clock, what: Awaited) -> WaitGuard {
        latches::assert_none(what);
        let sum = what.sum().filter(|_| !IS_ACCOUNTED.get());
        let account = sum.map(|sum| (clock.clone(), clock.now(), sum));
        let is_outer = account.is_some();
        let is_for_page = is_outer && what == Awaited::Page;
        // A back-off ends by itself, and the next run may do no more than the one before.
        let told = (matches!(clock, Clock::Virtual(_)) && what != Awaited::Others).then(|| clock.clone());
        if is_outer {
            IS_ACCOUNTED.set(true);
        }
        if KEEPS_ITS_TURN.get() {
            return WaitGuard { turns: None, account, is_outer, is_for_page, told };
        }
        let turns = TURNS.try_with(Cell::take).unwrap_or_default();
        if let Some(turns) = &turns {
            turns.leave();
        }
        WaitGuard { turns, account, is_outer, is_for_page, told }
    }

    /// The event that the thread waited for has happened: returns when it is its turn. The wait for the turn is
    /// accounted as one for a latch.
    pub fn end(mut self, clock: &Clock) {
        self.account = Some((clock.clone(), clock.now(), &LATCH_NS));
    }
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        if let Some(clock) = &self.told {
            clock.end_wait();
        }
        if let Some(turns) = self.turns.take() {
            turns.come_back();
            set_turns(Some(turns));
        }
        if let Some((clock, since, sum)) = self.account.take() {
            let now = clock.now();
            sum.set(sum.get() + now.ns_since(since));
            if self.is_for_page {
                disk_waits::note(since, now);
            }
        }
        if self.is_outer {
            IS_ACCOUNTED.set(false);
        }
    }
}

/// A wait for a latch, which its holder holds for a moment, until this is dropped. It is measured by the machine's
/// clock, whatever the database's is.
pub(crate) struct LatchWait {
    since: Instant,
}

impl LatchWait {
    pub fn begin() -> LatchWait {
        LatchWait { since: Instant::now() }
    }
}

impl Drop for LatchWait {
    fn drop(&mut self) {
        if !IS_ACCOUNTED.get() {
            LATCH_NS.set(LATCH_NS.get() + self.since.elapsed().as_nanos() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::super::waits::now;
    use super::*;
    use crate::io::{Scheduler, VirtualClock};

    /// Counts the waits that have ended.
    #[derive(Default)]
    struct EndedWaits(AtomicU32);

    impl Scheduler for EndedWaits {
        fn wait(&self, _: &VirtualClock, _: Option<Moment>) {}

        fn end_wait(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_scheduler_is_told_when_what_was_waited_for_has_happened() {
        let ended = Arc::new(EndedWaits::default());
        let clock = Clock::from(Arc::new(VirtualClock::scheduled(ended.clone())));
        for what in [Awaited::Lock, Awaited::Page, Awaited::LogRoom, Awaited::Log] {
            drop(WaitGuard::enter(&clock, what));
        }
        assert_eq!(ended.0.load(Ordering::Relaxed), 4);
        drop(WaitGuard::enter(&clock, Awaited::Others));
        assert_eq!(ended.0.load(Ordering::Relaxed), 4, "a back-off ends by itself");
    }

    #[test]
    fn waits_are_kept_by_thread_and_kind() {
        let before = now();
        let latch = LatchWait::begin();
        std::thread::spawn(|| drop(WaitGuard::enter(&Clock::System, Awaited::LogRoom))).join().unwrap();
        std::thread::sleep(Duration::from_millis(2));
        drop(latch);
        let barrier = WaitGuard::enter(&Clock::System, Awaited::Barrier);
        std::thread::sleep(Duration::from_millis(2));
        drop(barrier);
        drop(WaitGuard::enter(&Clock::System, Awaited::Lock));
        let waited = now().since(before);
        assert!(waited.latch_ns >= 4_000_000, "{waited:?}");
        assert_eq!(waited.log_ns, 0);
        let room = WaitGuard::enter(&Clock::System, Awaited::LogRoom);
        std::thread::sleep(Duration::from_millis(2));
        drop(room);
        assert!(now().since(before).log_ns >= 2_000_000);
    }
}
