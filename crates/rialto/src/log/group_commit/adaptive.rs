//! The adaptive design: the log server, with a group size that needs no setting.
//!
//! It tracks *the company*: the largest number of packets that were outstanding at once during the last groups
//! (`COMPANY_GROUPS`). A committer waits until a share of the company has come, and the committer that completes the
//! share writes at once. A lone transaction has no company and never waits, and no group waits for its company longer
//! than two log writes take. *The share* is found by KODA's mountain climbing ("Observations"), done continuously. Now
//! and then some groups are written with another share, in turn with as many groups with the present one; the share
//! that commits more in the same time stays. At equal speed the smaller share stays, so that no committer waits without
//! gain. Comparisons become rarer while they bring no change.
//!
//! Where a write is long and clients are quick, the whole company in one group is best: half of it would wait for the
//! other half's write. Where clients are slow or the processors are busy, one half computes while the other half is
//! written.
//!
//! Packets without a waiter linger first, as in the log server's design: a group of few of them costs as much as a group
//! of many.
//!
//! No transaction waits longer than it allows ([`View::stall`], [`View::willing_to_wait`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::{Choice, GroupCommit, GroupCommitter, LogServer, View, Written};

/// The shares of the company that a group may wait for, in quarters.
const QUARTERS: usize = 4;
/// In a walk: groups written with one share before the other share's turn.
const TURN_GROUPS: u32 = 6;
/// Turns of each of the two shares that a walk compares.
const TURNS: u32 = 2;
/// Groups from one walk to the next once all shares have been tried: the fewest and the most. The number grows by this
/// factor.
const REST_GROUPS: [u32; 2] = [64, 4096];
const REST_GROWTH: u32 = 4;
/// A share that has committed this many percent less after its first turn is given up.
const HOPELESS_PERCENT: i64 = 10;
/// How many percent more a larger share has to commit; a smaller one may commit half as many percent less.
const BETTER_PERCENT: i64 = 2;
/// The company is the largest number of outstanding packets among this many groups.
const COMPANY_GROUPS: usize = 8;

/// Finds the size of its groups by itself.
#[derive(Debug, Default)]
pub struct Adaptive {
    /// The number of packets that a group waits for.
    goal: AtomicU64,
    climb: Mutex<Climb>,
}

/// What was committed with a share in a walk, and in which time.
#[derive(Debug, Clone, Copy, Default)]
struct Throughput {
    packets: u64,
    time_ns: u64,
}

#[derive(Debug, Default)]
struct Climb {
    /// Outstanding packets when each of the last groups ended.
    outstanding: [u64; COMPANY_GROUPS],
    groups: usize,
    /// The present share, in quarters.
    share: usize,
    /// Which other share was tried last; below, the number of walks.
    tried: usize,
    walks: u32,
    /// Groups until the next walk; below, the number before the walk after that.
    rest: u32,
    rest_next: u32,
    walk: Option<Walk>,
    /// When the last group completed.
    last: Option<Duration>,
}

/// A comparison of the present share with another, in turns.
#[derive(Debug)]
struct Walk {
    other: usize,
    group: u32,
    measured: [Throughput; 2],
}

impl Walk {
    /// Which share the next group is written with: 0 is the present one, 1 the other.
    fn side(&self) -> usize {
        (self.group / TURN_GROUPS % 2) as usize
    }

    /// Whether the other share commits more by this many percent; with a negative number, whether it commits less by at
    /// most as many.
    fn other_brings(&self, percent: i64) -> bool {
        let [present, other] = self.measured;
        // packets / time, compared crosswise.
        let (present, other) = (
            u128::from(present.packets) * u128::from(other.time_ns),
            u128::from(other.packets) * u128::from(present.time_ns),
        );
        other * 100 > present * (100 + percent) as u128
    }

    fn is_over(&self) -> bool {
        self.group == 2 * TURNS * TURN_GROUPS
            || self.group == 2 * TURN_GROUPS && !self.other_brings(-HOPELESS_PERCENT)
    }
}

impl Climb {
    fn company(&self) -> u64 {
        self.outstanding.into_iter().max().unwrap_or(0)
    }

    /// The number of packets that the next group waits for.
    fn goal(&self) -> u64 {
        let share = match &self.walk {
            Some(walk) if walk.side() == 1 => walk.other,
            _ => self.share,
        };
        (self.company() * share as u64).div_ceil(QUARTERS as u64)
    }

    fn wrote(&mut self, group: &Written) {
        let outstanding = group.packets + group.behind;
        self.outstanding[self.groups % COMPANY_GROUPS] = outstanding;
        self.groups += 1;
        let Some(last) = self.last.replace(group.now) else { return };
        let time_ns = group.now.saturating_sub(last).as_nanos() as u64;
        if self.company() <= 1 {
            // Without company, what was found for a company no longer holds.
            let Climb { outstanding, groups, last, .. } = *self;
            *self = Climb { outstanding, groups, last, ..Climb::default() };
            return;
        }
        match &mut self.walk {
            Some(walk) => {
                // The first group of a turn was begun with the share before.
                if walk.group % TURN_GROUPS > 0 {
                    let side = walk.side();
                    walk.measured[side].packets += group.packets;
                    walk.measured[side].time_ns += time_ns;
                }
                walk.group += 1;
                if walk.is_over() {
                    self.arrive();
                }
            }
            None if self.rest > 0 => self.rest -= 1,
            None => self.set_out(),
        }
    }

    fn set_out(&mut self) {
        // Every other share in turn, not only the neighbours, because there may be plains between the peaks.
        self.tried = (self.tried + 1) % (QUARTERS + 1);
        let other = self.tried;
        if other == self.share {
            return self.set_out();
        }
        self.walk = Some(Walk { other, group: 0, measured: [Throughput::default(); 2] });
    }

    fn arrive(&mut self) {
        let Some(walk) = self.walk.take() else { return };
        let [least, most] = REST_GROUPS;
        let needed = if walk.other > self.share { BETTER_PERCENT } else { -BETTER_PERCENT / 2 };
        if walk.other_brings(needed) {
            self.share = walk.other;
            self.rest_next = 0;
        }
        self.rest = self.rest_next;
        // Rarer once all other shares have been tried and brought no gain.
        self.walks += 1;
        if self.walks.is_multiple_of(QUARTERS as u32) {
            self.rest_next = (self.rest_next * REST_GROWTH).clamp(least, most);
        }
    }
}

impl Adaptive {
    /// A design that has measured nothing yet: no group waits.
    pub fn new() -> Adaptive {
        Adaptive::default()
    }

    /// Until when a committer waits for the company. The first one waits for two log writes and then writes. The others
    /// only write if the first does not: their limit is long enough that they seldom wake up before the group is
    /// written, which would be for nothing.
    fn end(view: &View) -> Duration {
        let writes = if view.waiting == 0 || view.stand_in { 2 } else { 4 };
        view.arrived.max(view.freed) + view.write_time * writes + view.raised
    }

    /// A design that has already found how many packets to wait for.
    #[cfg(test)]
    pub(crate) fn waiting_for(goal: u64) -> Adaptive {
        let climb = Climb { outstanding: [goal; COMPANY_GROUPS], share: QUARTERS, ..Climb::default() };
        Adaptive { goal: AtomicU64::new(goal), climb: Mutex::new(climb) }
    }

    /// How much longer this committer may stall.
    fn allowed(view: &View) -> Duration {
        let wait = view.willing_to_wait.map_or(Duration::MAX, |wait| {
            (view.started + wait).saturating_sub(view.write_time).saturating_sub(view.now)
        });
        let stalled = view.now.saturating_sub(view.arrived);
        wait.min(view.stall.map_or(Duration::MAX, |stall| stall.saturating_sub(stalled)))
    }
}

impl GroupCommit for Adaptive {
    fn choose(&self, view: &View) -> Choice {
        let goal = self.goal.load(Ordering::Relaxed);
        let complete = view.forming >= goal;
        if view.stand_in {
            return match Adaptive::end(view).saturating_sub(view.now) {
                Duration::ZERO => Choice::Write,
                _ if view.writer_busy || complete => Choice::Write,
                left => Choice::Sleep(Some(left)),
            };
        }
        let limited = view.willing_to_wait.is_some() || view.stall.is_some();
        let allowed = Adaptive::allowed(view);
        if view.covered {
            Choice::Sleep(None)
        } else if view.writer_busy && !limited {
            // When the group completes, the log server looks after the packets that it left behind.
            Choice::Sleep(None)
        } else if view.writer_busy && !allowed.is_zero() {
            Choice::Sleep(Some(allowed))
        } else if complete && (goal > 1 || view.waiting == 0) || allowed.is_zero() {
            Choice::Write
        } else if complete {
            Choice::LeaveToServer
        } else {
            match Adaptive::end(view).saturating_sub(view.now).min(allowed) {
                Duration::ZERO => Choice::Write,
                left => Choice::Sleep(Some(left)),
            }
        }
    }

    fn committer(&self) -> GroupCommitter {
        GroupCommitter::LogServer
    }

    fn linger(&self) -> Duration {
        LogServer::default().linger
    }

    fn reads_clock(&self) -> bool {
        true
    }

    fn wrote(&self, group: &Written) {
        let mut climb = self.climb.lock();
        climb.wrote(group);
        self.goal.store(climb.goal(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// The view of a committer in a company of four, when so many have come.
    fn view(forming: u64) -> View {
        View {
            forming,
            now: us(1_000),
            arrived: us(990),
            freed: us(980),
            write_time: us(100),
            ..View::default()
        }
    }

    #[test]
    fn the_committer_that_completes_the_company_writes_and_the_others_wait() {
        let design = Adaptive::waiting_for(4);
        assert_eq!(design.choose(&view(4)), Choice::Write);
        assert_eq!(
            design.choose(&view(1)),
            Choice::Sleep(Some(us(190))),
            "two writes from when company could come"
        );
        assert_eq!(
            design.choose(&View { waiting: 2, ..view(3) }),
            Choice::Sleep(Some(us(390))),
            "only takes over from the first"
        );
        assert_eq!(design.choose(&View { now: us(1_190), ..view(1) }), Choice::Write, "no other packet came");
        assert_eq!(design.choose(&View { covered: true, ..view(4) }), Choice::Sleep(None));
        assert_eq!(design.choose(&View { writer_busy: true, ..view(4) }), Choice::Sleep(None));
        assert_eq!(design.choose(&View { stand_in: true, ..view(1) }), Choice::Sleep(Some(us(190))));
        assert_eq!(Adaptive::new().choose(&view(1)), Choice::Write, "a lone transaction has no company");
    }

    #[test]
    fn no_transaction_waits_longer_than_it_allows() {
        let design = Adaptive::waiting_for(4);
        let willing = View { started: us(900), willing_to_wait: Some(us(250)), ..view(1) };
        assert_eq!(
            design.choose(&willing),
            Choice::Sleep(Some(us(50))),
            "250 less 100 used and 100 for the write"
        );
        assert_eq!(design.choose(&View { now: us(1_060), ..willing }), Choice::Write);
        assert_eq!(design.choose(&View { stall: Some(us(30)), ..view(1) }), Choice::Sleep(Some(us(20))));
        assert_eq!(design.choose(&View { stall: Some(us(10)), ..view(1) }), Choice::Write);
    }

    /// With four clients a group of two takes as long as one of four, so waiting for all commits the most.
    #[test]
    fn it_climbs_to_the_share_that_commits_the_most_and_forgets_it_when_alone() {
        let design = Adaptive::new();
        let mut now = Duration::ZERO;
        for _ in 0..400 {
            let packets = design.goal.load(Ordering::Relaxed).clamp(2, 4);
            now += us(100);
            design.wrote(&Written { packets, behind: 4 - packets, took: us(90), now });
        }
        let found = {
            let climb = design.climb.lock();
            (climb.share, climb.company())
        };
        assert_eq!(found, (QUARTERS, 4));
        for _ in 0..COMPANY_GROUPS {
            now += us(100);
            design.wrote(&Written { packets: 1, behind: 0, took: us(90), now });
        }
        assert_eq!((design.climb.lock().share, design.goal.load(Ordering::Relaxed)), (0, 0));
    }
}
