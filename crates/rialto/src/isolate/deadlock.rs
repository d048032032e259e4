//! Deadlock detection: a waiter whose wait takes long walks the waits-for graph.
//!
//! The walk reads the graph latch by latch, so what it sees may never have been true at one moment. Before an owner
//! is chosen as the victim of a cycle, the cycle is therefore read again under all of its latches at once. If it is
//! still there, it is a deadlock, because no owner on it can leave its queue without one of these latches.
//!
//! The lock table of an executor may be out for as long as a body runs. The walk does not wait for it: an owner that
//! waits there has no edges in this walk, and a later walk reads them. So a long body does not delay the detection of
//! deadlocks elsewhere. Neither does it delay their end: a victim that holds locks at an executor whose table is out
//! releases its other locks at once (L15).
//!
//! A transaction may have several owners for a while, each of which runs a part of a phase. A request that waits for
//! one of them waits for all, since its locks are held until all of them have met.

use std::sync::atomic::Ordering;
use std::time::Duration;

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::central::head::{Blockers, Heads};
use super::central::interval::{IntervalTable, Intervals};
use super::local::LockTableGuard;
use super::manager::LockManager;
use super::mode::LockMode;
use super::name::HeadName;
use super::slot::WaitsFor;
use super::sync::MutexGuard;

/// Which transaction of a deadlock is the victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum VictimPolicy {
    /// The transaction that began last.
    #[default]
    Youngest,
    /// The transaction that holds the fewest locks, the youngest of these.
    FewestLocks,
}

/// An owner on the path of the walk, with the owners that keep it waiting.
struct WalkStep {
    owner: u16,
    waits_for: WaitsFor,
    blockers: Vec<u16>,
    /// Further owners that keep it waiting, and whose own blockers are all among `blockers`.
    alike: Vec<u16>,
    next: usize,
}

/// Which waiters search for deadlocks.
#[derive(Debug, Default)]
pub(super) struct Searches {
    /// A thread is searching.
    searching: bool,
    /// The owners for which that thread is to search as well.
    asked: Vec<u16>,
}

/// How long a walk waits for an executor's lock table that is out, a few times over.
const TABLE_WITHIN: Duration = Duration::from_millis(1);

/// The executors whose lock tables one walk has found out: it does not wait for any of them twice.
#[derive(Debug, Default)]
pub(super) struct TablesOut(SmallVec<[u16; 4]>);

impl TablesOut {
    /// The latch of an executor, after requests whose owners have left their waits (L15) are dropped; none if its
    /// table stays out.
    fn latch<'a>(&mut self, manager: &'a LockManager, executor: u16) -> Option<LockTableGuard<'a>> {
        if self.0.contains(&executor) {
            return None;
        }
        match manager.local.lock_for(executor, TABLE_WITHIN) {
            Some(mut latch) => {
                manager.drop_left_waits(&mut latch);
                Some(latch)
            }
            None => {
                self.0.push(executor);
                None
            }
        }
    }
}

/// The lock owners of each transaction that runs in parts, by the owner of the transaction itself. Kept for one walk.
///
/// Read once, when the walk first needs it: a part that begins later is found by a later walk.
#[derive(Debug, Default)]
struct PartOwners(Option<HashMap<u16, SmallVec<[u16; 4]>>>);

impl PartOwners {
    /// The other owners of the transaction of `owner`.
    fn others(&mut self, manager: &LockManager, owner: u16) -> impl Iterator<Item = u16> {
        let part_owners = self.0.get_or_insert_with(|| manager.part_owners());
        let leader = manager.leader_of(owner);
        let followers = part_owners.get(&leader);
        let leader = followers.map(|_| leader);
        let all = leader.into_iter().chain(followers.into_iter().flatten().copied());
        all.filter(move |&other| other != owner)
    }
}

/// A waiter does at most so many searches for others, and then goes on with its own wait.
const SEARCHES_FOR_OTHERS: usize = 8;

impl LockManager {
    /// The owners that keep `owner` waiting for `waits_for`, and the mode that it asks for; `None`: it no longer
    /// waits for that, or the lock table that says so is out.
    pub(super) fn blockers(
        &self,
        owner: u16,
        waits_for: &WaitsFor,
        out: &mut TablesOut,
    ) -> Option<(LockMode, Blockers)> {
        match waits_for {
            WaitsFor::Head(name) => {
                let heads = self.partitions[Self::partition_of(*name)].lock();
                self.blockers_at(&heads, owner, *name)
            }
            WaitsFor::Interval(index, key) => {
                let intervals = self.intervals.lock(IntervalTable::partition_of(*index));
                let holders = intervals.blockers(owner, *index, key)?;
                Some((LockMode::Exclusive, Blockers { holders, ..Blockers::default() }))
            }
            WaitsFor::Local(executor) => Self::blockers_local(&mut *out.latch(self, *executor)?, owner),
        }
    }

    /// The owners that keep `owner` waiting for the lock of `name`. The caller holds the latch of its partition.
    fn blockers_at(&self, heads: &Heads, owner: u16, name: HeadName) -> Option<(LockMode, Blockers)> {
        let (mode, mut blockers) = heads.get(heads.find(name)?).blockers(owner)?;
        if blockers.anonymous
            && let Some(record) = name.as_address()
        {
            for (other, slot) in self.slots[..self.lent_ever()].iter().enumerate() {
                let other = other as u16;
                // The list of another owner may still name a record that this owner is just releasing; but that owner
                // does not wait.
                if other != owner && !blockers.holders.contains(&other) && slot.thin.contains(record) {
                    blockers.holders.push(other);
                }
            }
        }
        Some((mode, blockers))
    }

    /// Searches for cycles through `start` and makes one owner of each the victim. One wait can close several cycles.
    pub(super) fn find_deadlock(&self, start: u16) {
        {
            let mut searches = self.detector.lock();
            if searches.searching {
                // A waiter does not wait for the search: its own request could be granted meanwhile.
                if !searches.asked.contains(&start) {
                    searches.asked.push(start);
                }
                return;
            }
            searches.searching = true;
        }
        let (mut start, mut for_others) = (start, 0);
        loop {
            // A victim's edges do not count any more, so neither this loop nor the next search breaks a cycle twice.
            while let Some(cycle) = self.find_cycle(start)
                && let Some(victim) = self.sacrifice(&cycle)
            {
                self.slots[usize::from(victim)].notify();
            }
            let mut searches = self.detector.lock();
            let next = if for_others < SEARCHES_FOR_OTHERS { searches.asked.pop() } else { None };
            match next {
                Some(asked) => (start, for_others) = (asked, for_others + 1),
                None => {
                    searches.searching = false;
                    return;
                }
            }
        }
    }

    /// Walks the graph from `start`, depth first, until it comes back there.
    fn find_cycle(&self, start: u16) -> Option<Vec<(u16, WaitsFor)>> {
        let mut seen = vec![false; self.slots.len()];
        let (mut out, mut part_owners) = (TablesOut::default(), PartOwners::default());
        let mut path = vec![self.step(start, &mut out, &mut part_owners)?];
        seen[usize::from(start)] = true;
        while let Some(step) = path.last_mut() {
            if step.next == 0 && step.alike.iter().any(|&blocker| self.are_one(blocker, start)) {
                return Some(path.into_iter().map(|step| (step.owner, step.waits_for)).collect());
            }
            let Some(&blocker) = step.blockers.get(step.next) else {
                path.pop();
                continue;
            };
            step.next += 1;
            if self.are_one(blocker, start) {
                return Some(path.into_iter().map(|step| (step.owner, step.waits_for)).collect());
            }
            if !std::mem::replace(&mut seen[usize::from(blocker)], true)
                && let Some(step) = self.step(blocker, &mut out, &mut part_owners)
            {
                path.push(step);
            }
        }
        None
    }

    /// The owner that stands for the transaction of `owner`.
    fn leader_of(&self, owner: u16) -> u16 {
        self.slots[usize::from(owner)].leader().unwrap_or(owner)
    }

    /// Whether both owners are of one transaction.
    fn are_one(&self, one: u16, other: u16) -> bool {
        one == other || self.leader_of(one) == self.leader_of(other)
    }

    /// The owners that run parts of phases, by the owner that stands for their transaction.
    fn part_owners(&self) -> HashMap<u16, SmallVec<[u16; 4]>> {
        let mut part_owners: HashMap<u16, SmallVec<[u16; 4]>> = HashMap::new();
        if self.followers.load(Ordering::Acquire) > 0 {
            for owner in 0..self.lent_ever() as u16 {
                if let Some(leader) = self.slots[usize::from(owner)].leader() {
                    part_owners.entry(leader).or_default().push(owner);
                }
            }
        }
        part_owners
    }

    /// `owner` and the owners that keep it waiting, with all owners of their transactions. `None`: it does not wait,
    /// or is about to stop, or waits at an executor whose lock table is out.
    fn step(&self, owner: u16, out: &mut TablesOut, part_owners: &mut PartOwners) -> Option<WalkStep> {
        let slot = &self.slots[usize::from(owner)];
        let waits_for = slot.wait_record()?.waits_for;
        let (_, Blockers { holders, ahead, alike, .. }) = self.blockers(owner, &waits_for, out)?;
        // The blockers of a request for the same lock are all among these. Those of the rest of its transaction may
        // not be, so these count.
        let mut blockers = Vec::new();
        for blocker in holders.into_iter().chain(ahead) {
            blockers.push(blocker);
            blockers.extend(part_owners.others(self, blocker));
        }
        alike.iter().for_each(|&other| blockers.extend(part_owners.others(self, other)));
        (slot.flags() == 0).then_some(WalkStep { owner, waits_for, blockers, alike, next: 0 })
    }

    /// Reads the cycle again under all its latches. If it is there, marks and returns its victim. None also if a lock
    /// table is out.
    fn sacrifice(&self, cycle: &[(u16, WaitsFor)]) -> Option<u16> {
        let mut latches = Latches::take(self, cycle)?;
        for (at, (owner, waits_for)) in cycle.iter().enumerate() {
            let (next, _) = cycle[(at + 1) % cycle.len()];
            if self.slots[usize::from(*owner)].flags() != 0
                || !latches.blocked_by(self, *owner, waits_for, next)
            {
                return None;
            }
        }
        let slot = |owner: u16| &self.slots[usize::from(owner)];
        let owners = cycle.iter().map(|(owner, _)| *owner);
        let victim = match self.options.victim {
            VictimPolicy::Youngest => owners.max_by_key(|&owner| (slot(owner).started_ns(), owner)),
            VictimPolicy::FewestLocks => owners.min_by_key(|&owner| {
                (slot(owner).held(), std::cmp::Reverse(slot(owner).started_ns()), owner)
            }),
        }?;
        slot(victim).set_victim().then_some(victim)
    }
}

/// The latches of all partitions in which the owners of a cycle wait.
struct Latches<'a> {
    heads: Vec<(usize, MutexGuard<'a, Heads>)>,
    intervals: Vec<(usize, MutexGuard<'a, Intervals>)>,
    locals: Vec<(usize, LockTableGuard<'a>)>,
}

impl<'a> Latches<'a> {
    /// Takes them in ascending order (L4); none if a lock table is out.
    fn take(manager: &'a LockManager, cycle: &[(u16, WaitsFor)]) -> Option<Latches<'a>> {
        let mut heads = Vec::new();
        let mut intervals = Vec::new();
        let mut locals = Vec::new();
        for (_, waits_for) in cycle {
            match waits_for {
                WaitsFor::Head(name) => heads.push(LockManager::partition_of(*name)),
                WaitsFor::Interval(index, _) => intervals.push(IntervalTable::partition_of(*index)),
                WaitsFor::Local(executor) => locals.push(usize::from(*executor)),
            }
        }
        for partitions in [&mut heads, &mut intervals, &mut locals] {
            partitions.sort_unstable();
            partitions.dedup();
        }
        let table_in = |executor: u16| {
            let mut latch = manager.local.lock_if_in(executor)?;
            manager.drop_left_waits(&mut latch);
            Some(latch)
        };
        Some(Latches {
            heads: heads.into_iter().map(|at| (at, manager.partitions[at].lock())).collect(),
            intervals: intervals.into_iter().map(|at| (at, manager.intervals.lock(at))).collect(),
            locals: locals.into_iter().map(|at| Some((at, table_in(at as u16)?))).collect::<Option<_>>()?,
        })
    }

    /// Whether `owner` waits for `waits_for`, and `other` or another owner of its transaction is among the owners
    /// that keep it waiting.
    fn blocked_by(&mut self, manager: &LockManager, owner: u16, waits_for: &WaitsFor, other: u16) -> bool {
        let is_in = |blockers: &[u16]| blockers.iter().any(|&blocker| manager.are_one(blocker, other));
        let is_among = |(_, Blockers { holders, ahead, alike, .. }): (_, Blockers)| {
            is_in(&holders) || is_in(&ahead) || is_in(&alike)
        };
        match waits_for {
            WaitsFor::Head(name) => {
                let heads = find(&self.heads, LockManager::partition_of(*name));
                manager.blockers_at(heads, owner, *name).is_some_and(is_among)
            }
            WaitsFor::Interval(index, key) => find(&self.intervals, IntervalTable::partition_of(*index))
                .blockers(owner, *index, key)
                .is_some_and(|holders| is_in(&holders)),
            WaitsFor::Local(executor) => {
                let locks = self.locals.iter_mut().find(|(at, _)| *at == usize::from(*executor));
                let (_, locks) = locks.expect("every latch of the cycle is taken");
                LockManager::blockers_local(locks, owner).is_some_and(is_among)
            }
        }
    }
}

fn find<'a, T>(latches: &'a [(usize, MutexGuard<'_, T>)], partition: usize) -> &'a T {
    let at = latches.iter().position(|(at, _)| *at == partition).expect("every latch of the cycle is taken");
    &latches[at].1
}
