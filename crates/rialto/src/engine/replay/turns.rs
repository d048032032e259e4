//! [`ReplayTurns`]: which calls of a replay are done, and which worker runs which call.
//!
//! Calls are numbered from 1, and at most [`WINDOW`] are in progress at a time. So a ring of `WINDOW` numbers tells
//! which calls are done, and each worker writes the entries of its own calls. All calls up to call *c* are done if the
//! lowest call that is not done comes after *c*.
//!
//! Invariant kept here: call *c* is given to a worker only when all calls up to *c* - [`WINDOW`] are done. So if the
//! ring's entry for *c* holds *c* or more, then *c* is done; if it holds less, *c* is not done.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

/// The most calls in progress.
pub(super) const WINDOW: u64 = 4096;
/// How many more calls than another worker one may have before a call that conflicts with its last goes to the other
/// one.
const MORE: u64 = 64;

/// What the workers and the reader know about progress.
pub(super) struct ReplayTurns {
    done: Box<[AtomicU64]>,
    /// All calls up to this one are done; it may lag behind.
    low: CachePadded<AtomicU64>,
    /// The number of calls that each worker has done.
    counts: Box<[CachePadded<AtomicU64>]>,
}

impl ReplayTurns {
    pub fn new(workers: usize) -> ReplayTurns {
        ReplayTurns {
            done: (0..WINDOW).map(|_| AtomicU64::new(0)).collect(),
            low: CachePadded::new(AtomicU64::new(0)),
            counts: (0..workers).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
        }
    }

    fn entry(&self, call: u64) -> &AtomicU64 {
        &self.done[(call % WINDOW) as usize]
    }

    /// Whether this call is done; 0 is none.
    pub fn is_done(&self, call: u64) -> bool {
        self.entry(call).load(Ordering::Acquire) >= call
    }

    /// Whether all calls up to this one are done.
    pub fn are_done(&self, call: u64) -> bool {
        let mut low = self.low.load(Ordering::Acquire);
        if low >= call {
            return true;
        }
        while low < call && self.is_done(low + 1) {
            low += 1;
        }
        self.low.fetch_max(low, Ordering::AcqRel);
        low >= call
    }

    /// Notes that this worker has done this call.
    pub fn note(&self, worker: usize, call: u64) {
        self.entry(call).store(call, Ordering::Release);
        let count = &self.counts[worker];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// The assignment of calls to workers, kept by the reader of the log.
pub(super) struct Assignment {
    /// The worker of each call, in a ring as in [`ReplayTurns`].
    workers: Box<[u16]>,
    /// The number of calls that each worker was given.
    given: Box<[u64]>,
}

impl Assignment {
    pub fn new(workers: usize) -> Assignment {
        Assignment { workers: vec![0; WINDOW as usize].into(), given: vec![0; workers].into() }
    }

    /// Gives a call to the worker of the last call that it has to wait for, if that one is in progress: there it need
    /// not wait for it. So the calls on a hot row go to one worker, and those on another hot row to another one. A
    /// call that waits for none goes to the worker that has the fewest; so does a call whose worker has too many.
    pub fn next(&mut self, turns: &ReplayTurns, call: u64, last_before: u64) -> usize {
        let on_way = |worker: usize| self.given[worker] - turns.counts[worker].load(Ordering::Relaxed);
        let fewest = (0..self.given.len()).min_by_key(|&worker| on_way(worker)).expect("there is a worker");
        let entry = |call: u64| (call % WINDOW) as usize;
        let of_last = usize::from(self.workers[entry(last_before)]);
        let follows = !turns.is_done(last_before) && on_way(of_last) <= on_way(fewest) + MORE;
        let worker = if follows { of_last } else { fewest };
        self.workers[entry(call)] = worker as u16;
        self.given[worker] += 1;
        worker
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_is_told_call_by_call_and_up_to_the_first_that_is_not() {
        let turns = ReplayTurns::new(2);
        assert!(turns.is_done(0) && turns.are_done(0) && !turns.is_done(1));
        for call in [1, 2, 4, 5] {
            turns.note(call as usize % 2, call);
        }
        assert!(turns.is_done(4) && !turns.is_done(3));
        assert!(turns.are_done(2) && !turns.are_done(3) && !turns.are_done(5));
        turns.note(0, 3);
        assert!(turns.are_done(5) && !turns.are_done(6));
        // Around the ring: an entry tells about the call that it stands for now, and about all earlier calls that it
        // stood for.
        (6..=WINDOW + 10).for_each(|call| turns.note(0, call));
        assert!(turns.is_done(7) && turns.are_done(WINDOW + 10) && !turns.is_done(WINDOW + 11));
    }

    #[test]
    fn calls_on_one_hot_row_are_one_workers_and_each_row_has_its_own() {
        let (turns, mut assignment) = (ReplayTurns::new(2), Assignment::new(2));
        // Two hot rows in turn, each call after the last one on its row. None is done.
        let mut last = [0; 2];
        let workers: Vec<_> = (1..=100u64)
            .map(|call| {
                let row = call as usize % 2;
                let worker = assignment.next(&turns, call, last[row]);
                last[row] = call;
                (row, worker)
            })
            .collect();
        let of_row = |row: usize| workers.iter().filter(move |(at, _)| *at == row).map(|(_, worker)| *worker);
        for row in 0..2 {
            assert!(of_row(row).all(|worker| Some(worker) == of_row(row).next()));
        }
        assert_ne!(of_row(0).next(), of_row(1).next());
        // With one hot row, the other worker gets calls, too, in the end.
        let (turns, mut assignment) = (ReplayTurns::new(2), Assignment::new(2));
        let given: Vec<_> = (1..=200u64).map(|call| assignment.next(&turns, call, call - 1)).collect();
        assert!(given[..MORE as usize].iter().all(|worker| *worker == given[0]));
        assert!(given.iter().any(|worker| *worker != given[0]));
    }
}
