//! What sleeping and waking cost, in counts and times.

use std::time::Duration;

use super::{AtomicU64, Ordering};

/// What wrote a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Author {
    /// A committer that waits, or a thread that syncs the log itself.
    Committer,
    /// The stand-in, for packets without a waiter, in the designs that elect a committer.
    StandIn,
    /// The log server, in the designs that have one.
    LogServer,
    /// The stand-in or the log server, because level 1's interval was over.
    Overdue,
}

/// What the waiting has cost.
#[derive(Debug, Default)]
pub(super) struct Tally {
    wakes: AtomicU64,
    woken: AtomicU64,
    self_wakes: AtomicU64,
    stalls: AtomicU64,
    stalled_ns: AtomicU64,
    groups: [AtomicU64; 4],
}

impl Tally {
    fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }

    /// A wake call that woke this many threads.
    pub(super) fn wake(&self, woken: u32) {
        Tally::add(&self.wakes, 1);
        Tally::add(&self.woken, woken.into());
    }

    /// A sleep with a time limit.
    pub(super) fn stall(&self, spent: Duration, limit: Duration) {
        Tally::add(&self.stalls, 1);
        Tally::add(&self.stalled_ns, spent.as_nanos() as u64);
        if spent >= limit {
            Tally::add(&self.self_wakes, 1);
        }
    }

    /// A group is written.
    pub(super) fn group(&self, author: Author) {
        Tally::add(&self.groups[author as usize], 1);
    }

    pub(super) fn read(&self) -> Waits {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let groups = |author: Author| read(&self.groups[author as usize]);
        Waits {
            wakes: read(&self.wakes),
            woken: read(&self.woken),
            self_wakes: read(&self.self_wakes),
            stalls: read(&self.stalls),
            stalled_ns: read(&self.stalled_ns),
            groups_by_committers: groups(Author::Committer),
            groups_by_stand_in: groups(Author::StandIn),
            groups_by_server: groups(Author::LogServer),
            groups_overdue: groups(Author::Overdue),
        }
    }
}

/// What the waiting has cost since the log was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits {
    /// Wake calls made for waiters and for the log server.
    pub wakes: u64,
    /// Threads that these calls woke.
    pub woken: u64,
    /// Sleeps that ended by their time limit.
    pub self_wakes: u64,
    /// Stalls begun.
    pub stalls: u64,
    /// Time actually spent in stalls, in nanoseconds, of all committers together.
    pub stalled_ns: u64,
    /// Groups that one of the committers has written: the elected one, where one is elected.
    pub groups_by_committers: u64,
    /// Groups that the stand-in has written, in the designs that elect a committer.
    pub groups_by_stand_in: u64,
    /// Groups that the log server has written, in the designs that have one.
    pub groups_by_server: u64,
    /// Groups that the stand-in or the log server has written because level 1's interval was over, without regard to a
    /// stall.
    pub groups_overdue: u64,
}

impl Waits {
    /// Groups written by all of these together.
    pub fn groups(self) -> u64 {
        self.groups_by_committers + self.groups_by_stand_in + self.groups_by_server + self.groups_overdue
    }

    /// What was counted since an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Waits) -> Waits {
        Waits {
            wakes: self.wakes - earlier.wakes,
            woken: self.woken - earlier.woken,
            self_wakes: self.self_wakes - earlier.self_wakes,
            stalls: self.stalls - earlier.stalls,
            stalled_ns: self.stalled_ns - earlier.stalled_ns,
            groups_by_committers: self.groups_by_committers - earlier.groups_by_committers,
            groups_by_stand_in: self.groups_by_stand_in - earlier.groups_by_stand_in,
            groups_by_server: self.groups_by_server - earlier.groups_by_server,
            groups_overdue: self.groups_overdue - earlier.groups_overdue,
        }
    }
}
