//! Interval locks: shared locks, per index, on the set of keys that exist in a range.
//!
//! Invariant **L6**: a scan registers its interval before it marks and reads any leaf, and an insert into a marked
//! leaf asks under that leaf's latch. So either the insert sees the interval, or the scan sees the inserted entry and
//! waits for the record's lock, which the inserter took first: no phantom. On processors that let a load pass an
//! earlier store this takes a fence on either side; [`IntervalTable::admits`] has the argument, and
//! `store/tree/tests/guard.rs` a model.

use std::cmp::Ordering as Order;
use std::ops::Bound;
use std::sync::atomic::Ordering;

use crossbeam_utils::CachePadded;
use hashbrown::HashMap;

use super::sync::{AtomicU32, Mutex, MutexGuard, fence};
use crate::ids::IndexId;

/// The answer of the interval locks to an insert into a guarded leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Admission {
    /// No other owner holds an interval around the key.
    Go,
    /// No owner holds any interval in the index: the leaf's guard may be dropped, too.
    GoAndUnguard,
    /// Another owner holds one: leave the leaf, then call
    /// [`LockManager::wait_interval`](super::LockManager::wait_interval).
    Refuse,
}

/// If an owner has more intervals in one index than this, they are replaced by the one that spans them all. A
/// transaction of very many small scans then excludes more inserts than necessary, but no request has to search a
/// long list.
pub(in super::super) const INTERVALS_PER_OWNER_MAX: usize = 256;

/// If an owner has intervals in more indexes than this, it gets only one in each further index, because its intervals
/// take memory that the database's budget does not count.
pub(in super::super) const INDEXES_IN_DETAIL: usize = 64;

/// How many unused intervals a partition keeps for later ones; also the room that the lists of unused intervals keep.
pub(in super::super) const SPARE_MAX: usize = 16;

/// Which end of an interval's buffer a bound is, and whether its key belongs to the interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edge {
    Unbounded,
    Included,
    Excluded,
}

impl Edge {
    fn of(bound: &Bound<&[u8]>) -> Edge {
        match bound {
            Bound::Unbounded => Edge::Unbounded,
            Bound::Included(_) => Edge::Included,
            Bound::Excluded(_) => Edge::Excluded,
        }
    }

    fn with(self, key: &[u8]) -> Bound<&[u8]> {
        match self {
            Edge::Unbounded => Bound::Unbounded,
            Edge::Included => Bound::Included(key),
            Edge::Excluded => Bound::Excluded(key),
        }
    }
}

/// One owner's interval. Its two keys share a buffer, which is reused.
#[derive(Debug)]
struct Interval {
    owner: u16,
    lower: Edge,
    upper: Edge,
    split: usize,
    keys: Vec<u8>,
}

impl Interval {
    fn fill(&mut self, owner: u16, lower: Bound<&[u8]>, upper: Bound<&[u8]>) {
        self.owner = owner;
        (self.lower, self.upper) = (Edge::of(&lower), Edge::of(&upper));
        self.keys.clear();
        self.keys.extend_from_slice(key_of(&lower));
        self.split = self.keys.len();
        self.keys.extend_from_slice(key_of(&upper));
    }

    fn lower(&self) -> Bound<&[u8]> {
        self.lower.with(&self.keys[..self.split])
    }

    fn upper(&self) -> Bound<&[u8]> {
        self.upper.with(&self.keys[self.split..])
    }

    fn contains(&self, key: &[u8]) -> bool {
        starts_by(&self.lower(), key) && ends_after(&self.upper(), key)
    }

    fn covers(&self, lower: &Bound<&[u8]>, upper: &Bound<&[u8]>) -> bool {
        order_lower(&self.lower(), lower).is_le() && order_upper(&self.upper(), upper).is_ge()
    }
}

fn key_of<'a>(bound: &Bound<&'a [u8]>) -> &'a [u8] {
    match *bound {
        Bound::Unbounded => &[],
        Bound::Included(key) | Bound::Excluded(key) => key,
    }
}

fn starts_by(lower: &Bound<&[u8]>, key: &[u8]) -> bool {
    match lower {
        Bound::Unbounded => true,
        Bound::Included(first) => *first <= key,
        Bound::Excluded(before) => *before < key,
    }
}

fn ends_after(upper: &Bound<&[u8]>, key: &[u8]) -> bool {
    match upper {
        Bound::Unbounded => true,
        Bound::Included(last) => key <= *last,
        Bound::Excluded(behind) => key < *behind,
    }
}

/// The order of lower bounds: `Less` begins earlier.
fn order_lower(one: &Bound<&[u8]>, other: &Bound<&[u8]>) -> Order {
    let rank = |bound: &Bound<&[u8]>| matches!(bound, Bound::Excluded(_));
    match (one, other) {
        (Bound::Unbounded, Bound::Unbounded) => Order::Equal,
        (Bound::Unbounded, _) => Order::Less,
        (_, Bound::Unbounded) => Order::Greater,
        _ => key_of(one).cmp(key_of(other)).then(rank(one).cmp(&rank(other))),
    }
}

/// The order of upper bounds: `Greater` ends later.
fn order_upper(one: &Bound<&[u8]>, other: &Bound<&[u8]>) -> Order {
    let rank = |bound: &Bound<&[u8]>| matches!(bound, Bound::Included(_));
    match (one, other) {
        (Bound::Unbounded, Bound::Unbounded) => Order::Equal,
        (Bound::Unbounded, _) => Order::Greater,
        (_, Bound::Unbounded) => Order::Less,
        _ => key_of(one).cmp(key_of(other)).then(rank(one).cmp(&rank(other))),
    }
}

/// An insert that waits.
#[derive(Debug)]
struct WaitingInsert {
    owner: u16,
    key: Vec<u8>,
}

/// The intervals of one index, by lower bound, and the inserts that wait until one of them is released.
#[derive(Debug, Default)]
struct IndexIntervals {
    intervals: Vec<Interval>,
    waiters: Vec<WaitingInsert>,
    /// The index was dropped: this is removed with the last interval and waiter.
    forgotten: bool,
}

impl IndexIntervals {
    /// Whether it can be removed.
    fn is_over(&self) -> bool {
        self.forgotten && self.intervals.is_empty() && self.waiters.is_empty()
    }

    fn conflict(&self, owner: u16, key: &[u8]) -> bool {
        self.around(key).any(|interval| interval.owner != owner)
    }

    /// The intervals that contain `key`.
    fn around<'a>(&'a self, key: &'a [u8]) -> impl Iterator<Item = &'a Interval> {
        let begun = self.intervals.partition_point(|interval| starts_by(&interval.lower(), key));
        self.intervals[..begun].iter().filter(move |interval| interval.contains(key))
    }
}

/// The indexes that fall into one partition.
#[derive(Debug, Default)]
pub(in super::super) struct Intervals {
    indexes: HashMap<IndexId, IndexIntervals>,
    /// A few unused intervals, kept for their buffers.
    spare: Vec<Interval>,
}

impl Intervals {
    /// Registers an interval. Says whether it is the owner's first in the index, and how the partition's number of
    /// intervals changes.
    fn register(
        &mut self,
        owner: u16,
        index: IndexId,
        (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
        own_max: usize,
    ) -> IntervalRegistration {
        let list = &mut self.indexes.entry(index).or_default().intervals;
        let mut own = 0;
        for interval in list.iter().filter(|interval| interval.owner == owner) {
            if interval.covers(&lower, &upper) {
                return IntervalRegistration { first: false, added: 0 };
            }
            own += 1;
        }
        let mut fresh = self.spare.pop().unwrap_or_else(|| Interval {
            owner,
            lower: Edge::Unbounded,
            upper: Edge::Unbounded,
            split: 0,
            keys: Vec::new(),
        });
        fresh.fill(owner, lower, upper);
        let mut added = 1;
        if own >= own_max {
            let old: Vec<Interval> = list.extract_if(.., |interval| interval.owner == owner).collect();
            added -= old.len() as isize;
            let mut first = fresh.lower();
            let mut last = fresh.upper();
            for interval in &old {
                if order_lower(&interval.lower(), &first).is_lt() {
                    first = interval.lower();
                }
                if order_upper(&interval.upper(), &last).is_gt() {
                    last = interval.upper();
                }
            }
            let mut hull = Interval {
                owner,
                lower: Edge::Unbounded,
                upper: Edge::Unbounded,
                split: 0,
                keys: Vec::new(),
            };
            hull.fill(owner, first, last);
            fresh = hull;
            self.spare.extend(old.into_iter().take(SPARE_MAX - self.spare.len()));
        }
        let at = list.partition_point(|interval| order_lower(&interval.lower(), &fresh.lower()).is_le());
        list.insert(at, fresh);
        IntervalRegistration { first: own == 0, added }
    }

    /// Releases `owner`'s intervals in `index`. Returns their number, and tells `woken` of the inserts that are worth
    /// another try.
    fn release(&mut self, owner: u16, index: IndexId, mut woken: impl FnMut(u16)) -> usize {
        let Some(of_index) = self.indexes.get_mut(&index) else { return 0 };
        let before = of_index.intervals.len();
        for interval in of_index.intervals.extract_if(.., |interval| interval.owner == owner) {
            if self.spare.len() < SPARE_MAX {
                self.spare.push(interval);
            }
        }
        let IndexIntervals { intervals, waiters, .. } = of_index;
        if intervals.is_empty() && intervals.capacity() > SPARE_MAX {
            *intervals = Vec::new();
        }
        if !waiters.is_empty() {
            let mut at = 0;
            while at < waiters.len() {
                let waiter = &waiters[at];
                let blocked = intervals.iter().any(|i| i.owner != waiter.owner && i.contains(&waiter.key));
                if blocked {
                    at += 1;
                } else {
                    woken(waiters.remove(at).owner);
                }
            }
        }
        let gone = before - of_index.intervals.len();
        self.drop_if_over(index);
        gone
    }

    fn drop_if_over(&mut self, index: IndexId) {
        if self.indexes.get(&index).is_some_and(IndexIntervals::is_over) {
            self.indexes.remove(&index);
        }
    }

    /// Forgets an index that was dropped: now, or with the last interval and waiter in it.
    fn forget(&mut self, index: IndexId) {
        if let Some(of_index) = self.indexes.get_mut(&index) {
            of_index.forgotten = true;
            self.drop_if_over(index);
        }
    }

    /// Queues an insert; false: no interval of another owner contains its key any more.
    pub(in super::super) fn enqueue(&mut self, owner: u16, index: IndexId, key: &[u8]) -> bool {
        let Some(of_index) = self.indexes.get_mut(&index) else { return false };
        if !of_index.conflict(owner, key) {
            return false;
        }
        of_index.waiters.push(WaitingInsert { owner, key: key.to_vec() });
        true
    }

    /// Withdraws a waiting insert; false: it was woken before.
    pub(in super::super) fn withdraw(&mut self, owner: u16, index: IndexId) -> bool {
        let Some(of_index) = self.indexes.get_mut(&index) else { return false };
        let Some(at) = of_index.waiters.iter().position(|waiter| waiter.owner == owner) else { return false };
        of_index.waiters.swap_remove(at);
        self.drop_if_over(index);
        true
    }

    /// The owners whose intervals keep `owner`'s waiting insert out; `None`: it does not wait here.
    pub(in super::super) fn blockers(&self, owner: u16, index: IndexId, key: &[u8]) -> Option<Vec<u16>> {
        let of_index = self.indexes.get(&index)?;
        of_index.waiters.iter().find(|waiter| waiter.owner == owner)?;
        let mut owners: Vec<u16> =
            of_index.around(key).map(|i| i.owner).filter(|&other| other != owner).collect();
        owners.sort_unstable();
        owners.dedup();
        Some(owners)
    }
}

struct IntervalRegistration {
    /// The owner had no interval in this index before.
    first: bool,
    /// The growth of the number of intervals.
    added: isize,
}

/// Interval locks of all indexes, partitioned by index.
#[derive(Debug)]
pub(in super::super) struct IntervalTable {
    partitions: Box<[CachePadded<IntervalPartition>]>,
}

#[derive(Debug, Default)]
struct IntervalPartition {
    /// The number of intervals in this partition. If it is 0, an insert needs only this one load. Changed under the
    /// latch.
    count: AtomicU32,
    intervals: Mutex<Intervals>,
}

const PARTITIONS: usize = 64;

impl Default for IntervalTable {
    fn default() -> IntervalTable {
        IntervalTable { partitions: (0..PARTITIONS).map(|_| CachePadded::default()).collect() }
    }
}

impl IntervalTable {
    /// The partition that an index falls into; neighbours fall into different ones.
    pub(in super::super) fn partition_of(index: IndexId) -> usize {
        index.0 as usize % PARTITIONS
    }

    pub(in super::super) fn lock(&self, partition: usize) -> MutexGuard<'_, Intervals> {
        self.partitions[partition].intervals.lock()
    }

    /// Registers an interval; true: the owner's first in this index. If the owner would have more than `own_max`,
    /// they become one.
    pub(in super::super) fn register(
        &self,
        owner: u16,
        index: IndexId,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        own_max: usize,
    ) -> bool {
        let partition = &self.partitions[Self::partition_of(index)];
        let mut intervals = partition.intervals.lock();
        let registered = intervals.register(owner, index, bounds, own_max);
        let count = partition.count.load(Ordering::Relaxed);
        partition.count.store(count.wrapping_add_signed(registered.added as i32), Ordering::Release);
        drop(intervals);
        // Orders the count before the scan's first read of a leaf: see `admits`.
        fence(Ordering::SeqCst);
        registered.first
    }

    /// Whether an insert of `key` may go on.
    #[inline]
    pub(in super::super) fn admits(&self, owner: u16, index: IndexId, key: &[u8]) -> Admission {
        let partition = &self.partitions[Self::partition_of(index)];
        // A scan that finds a leaf guarded reads it without its latch. So the two sides are: a scan counts its
        // interval, then reads the leaf's latch; an insert latches the leaf, then reads the count. Each has a
        // sequentially consistent fence in between. If the scan's fence comes first, the insert sees the interval
        // counted. If this one comes first, the scan sees the leaf latched, or sees what the insert has made of it,
        // without its guard. (Where the count is not 0, the order in which the two take the lock on the intervals
        // gives the same result.)
        fence(Ordering::SeqCst);
        if partition.count.load(Ordering::Acquire) == 0 {
            return Admission::GoAndUnguard;
        }
        match partition.intervals.lock().indexes.get(&index) {
            None => Admission::GoAndUnguard,
            Some(of_index) if of_index.intervals.is_empty() => Admission::GoAndUnguard,
            Some(of_index) if of_index.conflict(owner, key) => Admission::Refuse,
            Some(_) => Admission::Go,
        }
    }

    /// Releases `owner`'s intervals in `index` and tells `woken`, under the latch, of the inserts that are worth
    /// another try.
    pub(in super::super) fn release(&self, owner: u16, index: IndexId, woken: impl FnMut(u16)) {
        let partition = &self.partitions[Self::partition_of(index)];
        let mut intervals = partition.intervals.lock();
        let gone = intervals.release(owner, index, woken);
        let count = partition.count.load(Ordering::Relaxed);
        partition.count.store(count - gone as u32, Ordering::Release);
    }

    /// Forgets an index that was dropped, as soon as no interval or waiter is left in it.
    pub(in super::super) fn forget(&self, index: IndexId) {
        self.lock(Self::partition_of(index)).forget(index);
    }

    /// The number of unused intervals that there is room for.
    #[cfg(test)]
    pub(in super::super) fn spare_room(&self) -> usize {
        let room_in = |intervals: &Intervals| {
            let lists = intervals.indexes.values().map(|of_index| &of_index.intervals);
            intervals.spare.len() + lists.map(|list| list.capacity() - list.len()).sum::<usize>()
        };
        (0..PARTITIONS).map(|partition| room_in(&self.lock(partition))).sum()
    }

    /// The number of indexes that have an entry.
    #[cfg(test)]
    pub(in super::super) fn indexes(&self) -> usize {
        (0..PARTITIONS).map(|partition| self.lock(partition).indexes.len()).sum()
    }
}
