//! Which part of the waits for locks is a wait for the disk I/O of the locks' holders (Charm's Table 1).
//!
//! When a transaction releases a lock, it gives each waiter the intervals in which it waited for the disk ([`DiskTimes`]). The
//! waiter keeps those parts that overlap its own wait. Their length is the part of its wait that the disk caused. The waiter then adds
//! these intervals to its own, so that a third transaction that waits for it receives them, too.
//!
//! A transaction's lock slot keeps its intervals until the transaction ends ([`DiskWaits`]), whichever threads run it. If a wait ends
//! by a deadlock or a time limit, the transactions that still hold the lock report nothing.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
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
    /// When this thread has waited for pages, until the transaction takes it that they are for.
    static WAITED: RefCell<DiskTimes> = RefCell::default();
    /// How much of this thread's waits for locks the disk caused, since [`take_behind_ns`].
    static BEHIND_NS: Cell<u64> = const { Cell::new(0) };
}

/// This thread has waited for the disk.
pub(crate) fn note(from: Moment, to: Moment) {
    // If the thread ends, and this is gone, no transaction takes it.
    let _ = WAITED.try_with(|waited| waited.borrow_mut().add(from, to));
}

/// Takes when this thread has waited for the disk since the last call.
fn take_waited() -> DiskTimes {
    WAITED.try_with(RefCell::take).unwrap_or_default()
}

/// When a transaction has waited for the disk, by itself or behind the locks of others.
#[derive(Debug, Default)]
pub(crate) struct DiskWaits {
    are_there: AtomicBool,
    times: Mutex<DiskTimes>,
}

impl DiskWaits {
    /// Whether there are any.
    pub fn are_there(&self) -> bool {
        self.are_there.load(Ordering::Relaxed)
    }

    /// Forgets them: a run begins, or the transaction has ended.
    pub fn forget(&self) {
        if self.are_there() {
            self.are_there.store(false, Ordering::Relaxed);
            self.times.lock().0.clear();
        }
    }

    fn add(&self, others: &DiskTimes) {
        if !others.is_empty() {
            self.times.lock().add_all(others);
            self.are_there.store(true, Ordering::Relaxed);
        }
    }

    /// The transaction releases a lock: adds its waits to those that a waiter has been given.
    pub fn add_to(&self, told: &mut DiskTimes) {
        told.add_all(&self.times.lock());
    }

    /// The transaction has waited for a lock, on this thread, and was given these intervals. Gives how much of the wait the disk
    /// caused, in nanoseconds.
    pub fn end_lock_wait(&self, told: &DiskTimes, since: Moment, until: Moment) -> u64 {
        let within = told.within(since, until);
        let behind_ns = within.sum_ns();
        if behind_ns > 0 {
            self.add(&within);
            BEHIND_NS.set(BEHIND_NS.get() + behind_ns);
        }
        behind_ns
    }
}

/// Does what may wait for the disk, for the transaction with these waits, or for none.
pub(crate) fn waits_of<T>(transaction: Option<&DiskWaits>, work: impl FnOnce() -> T) -> T {
    // What was not for a transaction.
    drop(take_waited());
    let done = work();
    if let Some(waits) = transaction {
        waits.add(&take_waited());
    }
    done
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
        let waits = DiskWaits::default();
        take_behind_ns();
        assert_eq!(waits.end_lock_wait(&told, at(5), at(45)), Duration::from_millis(20).as_nanos() as u64);
        assert_eq!(take_behind_ns(), 20_000_000);
        assert_eq!(take_behind_ns(), 0);
        // The next one that waits for this one: these were waits for the disk, and one of its own.
        note(at(100), at(110));
        waits_of(Some(&waits), || note(at(60), at(70)));
        let mut handed = DiskTimes::default();
        waits.add_to(&mut handed);
        assert_eq!(stretches(&handed), [(5, 10), (20, 30), (40, 45), (60, 70)], "none that was for another");
        waits.forget();
        assert!(!waits.are_there(), "a new run has waited for nothing");
        waits.add_to(&mut handed);
        assert_eq!(handed.0.len(), 4);
    }
}
