//! Which part of the waits for locks is a wait for the disk I/O of the locks' holders (Charm's Table 1).
//!
//! When a transaction releases a lock, it gives each waiter the intervals in which it waited for the disk ([`DiskTimes`]). The
//! waiter keeps those parts that overlap its own wait. Their length is the part of its wait that the disk caused. The waiter then adds
//! these intervals to its own, so that a third transaction that waits for it receives them, too.
//!
//! Each thread keeps the intervals of the transaction that it runs, until that transaction ends. So a transaction whose locks another
//! thread releases reports nothing; and if one thread uses two handles in turn, each of them reports the waits of both. If a wait ends by
//! a deadlock or a time limit, the transactions that still hold the lock report nothing.

use std::cell::{Cell, RefCell};

use smallvec::SmallVec;

use crate::io::Moment;

/// The most intervals that are kept separately. If there are more, the two that are nearest become one, with the gap between them.
const APART_MAX: usize = 64;

/// Intervals of time, in their order; no two of them overlap.
#[derive(Debug, Clone, Default)]
pub(crate) struct DiskTimes(SmallVec<[(Moment, Moment); 4]>);

impl DiskTimes {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an interval, which may overlap others.
    fn add(&mut self, from: Moment, to: Moment) {
        let first = self.0.partition_point(|(_, end)| *end < from);
        let behind = self.0.partition_point(|(begin, _)| *begin <= to);
        let overlapped = &self.0[first..behind.max(first)];
        let from = overlapped.first().map_or(from, |(begin, _)| from.min(*begin));
        let to = overlapped.last().map_or(to, |(_, end)| to.max(*end));
        self.0.drain(first..behind.max(first));
        self.0.insert(first, (from, to));
        if self.0.len() > APART_MAX {
            let gap = |at: &usize| self.0[*at].0.ns_since(self.0[*at - 1].1);
            let least = (1..self.0.len()).min_by_key(gap).expect("there are some");
            let (_, end) = self.0.remove(least);
            self.0[least - 1].1 = end;
        }
    }

    fn add_all(&mut self, others: &DiskTimes) {
        others.0.iter().for_each(|(from, to)| self.add(*from, *to));
    }

    /// The parts that lie between two moments.
    fn within(&self, since: Moment, until: Moment) -> DiskTimes {
        let clipped = self.0.iter().map(|(from, to)| ((*from).max(since), (*to).min(until)));
        DiskTimes(clipped.filter(|(from, to)| from < to).collect())
    }

    fn sum_ns(&self) -> u64 {
        self.0.iter().map(|(from, to)| to.ns_since(*from)).sum()
    }
}

thread_local! {
    /// The waits for the disk of the transaction that this thread runs.
    static TIMES: RefCell<DiskTimes> = RefCell::default();
    /// How much of this thread's waits for locks the disk caused, since [`take_behind_ns`].
    static BEHIND_NS: Cell<u64> = const { Cell::new(0) };
}

/// Runs `work` on this thread's intervals. Does nothing if the thread ends and its intervals have been destroyed.
fn with_times<T: Default>(work: impl FnOnce(&mut DiskTimes) -> T) -> T {
    TIMES.try_with(|times| work(&mut times.borrow_mut())).unwrap_or_default()
}

/// Clears the intervals: a run begins on this thread, or a transaction has ended.
pub(crate) fn forget() {
    with_times(|times| times.0.clear());
}

/// This thread has waited for the disk.
pub(crate) fn note(from: Moment, to: Moment) {
    with_times(|times| times.add(from, to));
}

/// Whether the transaction of this thread has waited for the disk.
pub(crate) fn are_there() -> bool {
    with_times(|times| !times.is_empty())
}

/// This thread's transaction releases a lock: adds its waits for the disk to those that a waiter has been given.
pub(crate) fn add_to(told: &mut DiskTimes) {
    with_times(|times| told.add_all(times));
}

/// This thread's transaction has waited for a lock, and was given these intervals. Gives how much of the wait the disk caused, in
/// nanoseconds.
pub(crate) fn end_lock_wait(told: &DiskTimes, since: Moment, until: Moment) -> u64 {
    let within = told.within(since, until);
    let behind_ns = within.sum_ns();
    if behind_ns > 0 {
        with_times(|times| times.add_all(&within));
        BEHIND_NS.set(BEHIND_NS.get() + behind_ns);
    }
    behind_ns
}

/// How much of this thread's waits for locks the disk caused since the last call.
pub(crate) fn take_behind_ns() -> u64 {
    BEHIND_NS.take()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::io::{Clock, VirtualClock};

    /// The moment of a virtual clock at so many milliseconds.
    fn at(ms: u64) -> Moment {
        let clock = Arc::new(VirtualClock::new());
        clock.advance(Duration::from_millis(ms));
        Clock::from(clock).now()
    }

    fn times(stretches: &[(u64, u64)]) -> DiskTimes {
        let mut times = DiskTimes::default();
        stretches.iter().for_each(|(from, to)| times.add(at(*from), at(*to)));
        times
    }

    fn stretches(times: &DiskTimes) -> Vec<(u64, u64)> {
        let ms = |moment: &Moment| moment.reading().as_millis() as u64;
        times.0.iter().map(|(from, to)| (ms(from), ms(to))).collect()
    }

    #[test]
    fn stretches_that_overlap_become_one() {
        assert_eq!(stretches(&times(&[(5, 7), (1, 2), (9, 12)])), [(1, 2), (5, 7), (9, 12)]);
        assert_eq!(stretches(&times(&[(5, 7), (1, 2), (9, 12), (6, 10)])), [(1, 2), (5, 12)]);
        assert_eq!(stretches(&times(&[(5, 7), (7, 8), (6, 6)])), [(5, 8)]);
        assert_eq!(stretches(&times(&[(1, 20), (5, 7)])), [(1, 20)]);
        let mut many: Vec<_> = (0..64).map(|n| (100 * n, 100 * n + 1)).collect();
        many.push((3_010, 3_020));
        let many = times(&many);
        assert_eq!((many.0.len(), stretches(&many)[30]), (APART_MAX, (3_000, 3_020)));
    }

    #[test]
    fn of_a_wait_for_a_lock_that_part_counts_in_which_the_holder_waited_for_the_disk() {
        let told = times(&[(0, 10), (20, 30), (40, 50)]);
        forget();
        take_behind_ns();
        assert_eq!(end_lock_wait(&told, at(5), at(45)), Duration::from_millis(20).as_nanos() as u64);
        assert_eq!(take_behind_ns(), 20_000_000);
        assert_eq!(take_behind_ns(), 0);
        // The next one that waits for this one: these were waits for the disk, and one of its own.
        note(at(60), at(70));
        let mut handed = DiskTimes::default();
        add_to(&mut handed);
        assert_eq!(stretches(&handed), [(5, 10), (20, 30), (40, 45), (60, 70)]);
        forget();
        assert!(!are_there(), "a new run has waited for nothing");
    }
}
