//! [`WaitGuard`]: what a thread goes through before it sleeps for something that another transaction, the log or a checkpoint has to give.
//!
//! The guard does what every such wait has to do:
//! - *it lets others run*: an executor of a transaction server, or a thread that owns executors, gives its turn to another one until the
//!   guard is dropped; to other threads this means nothing;
//! - *it accounts the wait* by the database's [`Clock`], where no account is kept of it elsewhere ([`Awaited`]);
//! - *it looks for latches*: in debug builds a thread that holds one may not wait, and panics. An executor that goes on waits for its turn, and
//!   the thread that has the turn must need nothing that the waiting thread holds.
//!
//! Every wait of a transaction that is not bounded by a few milliseconds goes through it; waits for the disk itself, as of `Database::sync`, do not. A wait for a latch is none of these ([`LatchWait`]): its holder
//! holds it for a moment, and the waiter may hold others.
//!
//! A commit that has waited goes on without the turn, and waits for it when it has ended (`Context::leave_turn`): others
//! do not wait for the body that has the turn, as they would for what the commit holds.
//!
//! **A thread that has lock tables out keeps its turn** (L12 in `isolate/local/`). It has some only while it runs a body whose transaction
//! has an executor lease (`OwnLease`), and then it waits for no other transaction, but for the log or a checkpoint at most. These
//! need no turn: they wait for commits, and none waits for its turn while it keeps a barrier, a place that is not applied, or the log's room.

use std::cell::Cell;
use std::sync::Arc;
use std::thread::LocalKey;
use std::time::Instant;

use super::latches;
use super::waits::{LATCH_NS, LOG_NS};
use crate::io::{Clock, Moment};

/// What a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// A lock or a lock table: its slot accounts the wait.
    Lock,
    /// The ends of other transactions, whatever they have locked.
    Others,
    /// Nothing of its own: the guard of a commit that goes on without its turn, in which each wait has its own guard.
    Commit,
    /// The log to be durable up to a place: the reply accounts the wait.
    Log,
    /// A packet slot, or room in the log.
    LogRoom,
    /// A checkpoint: its end, or that of another one or of a backup before it begins.
    Checkpoint,
    /// A checkpoint or a definition, at a barrier that commits pass.
    Barrier,
}

impl Awaited {
    /// Where the wait is added to, if it is not accounted elsewhere.
    fn sum(self) -> Option<&'static LocalKey<Cell<u64>>> {
        match self {
            Awaited::Lock | Awaited::Others | Awaited::Commit | Awaited::Log | Awaited::Checkpoint => None,
            Awaited::LogRoom => Some(&LOG_NS),
            Awaited::Barrier => Some(&LATCH_NS),
        }
    }
}

/// Who lets others run.
pub(crate) trait Turns: Send + Sync {
    /// The calling executor is about to block.
    fn leave(&self);
    /// What it waited for is there: returns when it is its turn.
    fn come_back(&self);
}

thread_local! {
    /// None: the thread is no executor, or is blocked already. So it is when this is gone, since the thread ends.
    static TURNS: Cell<Option<Arc<dyn Turns>>> = const { Cell::new(None) };
    /// Whether the thread has lock tables out.
    static KEEPS_ITS_TURN: Cell<bool> = const { Cell::new(false) };
    /// Whether the thread is inside of a wait that is accounted as a whole: a checkpoint that a transaction makes for its room, say.
    static IS_ACCOUNTED: Cell<bool> = const { Cell::new(false) };
}

/// From now on the calling thread keeps its turn while it is blocked, or does no more.
pub(crate) fn keep_turn(keeps: bool) {
    KEEPS_ITS_TURN.set(keeps);
}

fn set_turns(turns: Option<Arc<dyn Turns>>) {
    // Gone, it is none.
    let _ = TURNS.try_with(|mine| mine.set(turns));
}

/// Whether the calling thread can be an executor: not while it ends.
pub(crate) fn can_take_turns() -> bool {
    TURNS.try_with(|_| ()).is_ok()
}

/// Makes the calling thread an executor, until what this gives is dropped. What the thread does afterwards, such as to close the
/// database with the last handle, is no transaction's turn.
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
}

impl WaitGuard {
    /// Whether the thread has a turn, which a guard would give to another executor.
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

    /// The thread is about to wait. Lets another executor run, unless the thread has lock tables out.
    pub fn enter(clock: &Clock, what: Awaited) -> WaitGuard {
        latches::assert_none(what);
        let sum = what.sum().filter(|_| !IS_ACCOUNTED.get());
        let account = sum.map(|sum| (clock.clone(), clock.now(), sum));
        let is_outer = account.is_some();
        if is_outer {
            IS_ACCOUNTED.set(true);
        }
        if KEEPS_ITS_TURN.get() {
            return WaitGuard { turns: None, account, is_outer };
        }
        let turns = TURNS.try_with(Cell::take).unwrap_or_default();
        if let Some(turns) = &turns {
            turns.leave();
        }
        WaitGuard { turns, account, is_outer }
    }

    /// What the thread waited for is there: returns when it is its turn. That wait is accounted as one for a latch.
    pub fn end(mut self, clock: &Clock) {
        self.account = Some((clock.clone(), clock.now(), &LATCH_NS));
    }
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        if let Some(turns) = self.turns.take() {
            turns.come_back();
            set_turns(Some(turns));
        }
        if let Some((clock, since, sum)) = self.account.take() {
            sum.set(sum.get() + clock.now().ns_since(since));
        }
        if self.is_outer {
            IS_ACCOUNTED.set(false);
        }
    }
}

/// A wait for a latch, which others have for a moment, until this is dropped. It is measured by the machine's clock, whatever the database's is.
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
    use std::time::Duration;

    use super::super::waits::now;
    use super::*;

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
