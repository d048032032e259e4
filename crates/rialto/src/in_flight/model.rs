//! The gate under a model checker: `gate.rs` a second time, its every step scheduled by shuttle.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use shuttle::thread;

/// `super::sync` as the model sees it.
mod sync {
    pub(super) use shuttle::sync::atomic::{AtomicU8, AtomicU64, fence};

    /// parking_lot's interface.
    pub(super) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(super) fn new(value: T) -> Mutex<T> {
            Mutex(shuttle::sync::Mutex::new(value))
        }

        pub(super) fn lock(&self) -> Option<shuttle::sync::MutexGuard<'_, T>> {
            Some(self.0.lock().expect("no task panics while it holds a latch"))
        }
    }

    pub(super) struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        pub(super) fn new() -> Condvar {
            Condvar(shuttle::sync::Condvar::new())
        }

        pub(super) fn wait<T>(&self, guard: &mut Option<shuttle::sync::MutexGuard<'_, T>>) {
            let held = guard.take().expect("a waiter holds the latch");
            *guard = Some(self.0.wait(held).expect("no task panics while it holds a latch"));
        }

        pub(super) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    pub(super) fn look_later(_looks: u32) {
        shuttle::thread::yield_now();
    }
}

#[allow(dead_code, clippy::duplicate_mod, reason = "the model uses a part of it, with other atomics")]
#[path = "gate.rs"]
mod gate;

use gate::{Gate, InFlight};
use sync::AtomicU64;

use crate::ids::Lsn;

const COMMITTERS: usize = 3;
const COMMITS: u64 = 2;
const SCHEDULES: usize = 3_000;

/// A log of places, and a table in which each committer has a row of two halves: the place of its last commit.
struct World {
    in_flight: InFlight,
    head: AtomicU64,
    halves: Vec<[AtomicU64; 2]>,
    /// By place: whose it is.
    owners: Vec<AtomicU64>,
}

impl World {
    fn new() -> World {
        let places = COMMITTERS * COMMITS as usize + 1;
        World {
            in_flight: InFlight::new(COMMITTERS),
            head: AtomicU64::new(0),
            halves: (0..COMMITTERS).map(|_| [AtomicU64::new(0), AtomicU64::new(0)]).collect(),
            owners: (0..places).map(|_| AtomicU64::new(u64::MAX)).collect(),
        }
    }

    fn place(&self) -> Lsn {
        Lsn(self.head.load(Ordering::SeqCst))
    }

    /// As `Context::commit` does it.
    fn commit(&self, committer: usize) {
        while self.in_flight.enter(committer, self.place()) == Gate::Closed {
            self.in_flight.leave(committer);
            self.in_flight.wait_at_gate();
        }
        let place = self.head.fetch_add(1, Ordering::SeqCst) + 1;
        self.owners[place as usize].store(committer as u64, Ordering::SeqCst);
        for half in &self.halves[committer] {
            half.store(place, Ordering::SeqCst);
        }
        self.in_flight.leave(committer);
    }

    /// The last place at or before `to` that is each committer's.
    fn last_places(&self, to: Lsn) -> Vec<u64> {
        let last = |committer: usize| {
            let mine = |&place: &u64| self.owners[place as usize].load(Ordering::SeqCst) == committer as u64;
            (1..=to.0).rev().find(mine).unwrap_or(0)
        };
        (0..COMMITTERS).map(last).collect()
    }

    fn cut(&self) {
        self.in_flight.close_gate();
        self.in_flight.drain();
        let cut = self.place();
        let expected = self.last_places(cut);
        for (halves, place) in self.halves.iter().zip(expected) {
            let found = halves.each_ref().map(|half| half.load(Ordering::SeqCst));
            assert_eq!(found, [place; 2], "the state at the cut is the log's prefix up to {cut:?}");
        }
        assert_eq!(self.place(), cut, "no commit takes its place while a cut is being made");
        self.in_flight.open_gate(Gate::Snapshots);
    }

    /// What a fuzzy sweep begins with: places before its redo start are applied whole.
    fn begin_fuzzy(&self) {
        let start = self.in_flight.oldest(self.place());
        for (committer, place) in self.last_places(Lsn(start.0 - 1)).into_iter().enumerate() {
            for half in &self.halves[committer] {
                let found = half.load(Ordering::SeqCst);
                assert!(found >= place, "{place} is before the redo start {start:?} and not applied");
            }
        }
    }
}

fn committers_beside(checkpointer: fn(&World)) {
    let world = Arc::new(World::new());
    let committers = (0..COMMITTERS).map(|committer| {
        let world = Arc::clone(&world);
        thread::spawn(move || (0..COMMITS).for_each(|_| world.commit(committer)))
    });
    let committers: Vec<_> = committers.collect();
    checkpointer(&world);
    for committer in committers {
        committer.join().expect("it does not panic");
    }
    assert_eq!(world.place().0, COMMITTERS as u64 * COMMITS, "nobody is left at the gate");
}

fn check(checkpointer: fn(&World)) {
    shuttle::check_random(move || committers_beside(checkpointer), SCHEDULES);
    shuttle::check_pct(move || committers_beside(checkpointer), SCHEDULES, 3);
}

#[test]
fn a_cut_is_a_prefix_of_the_log_and_leaves_nobody_at_the_gate() {
    check(|world| (0..2).for_each(|_| world.cut()));
}

#[test]
fn what_is_before_a_redo_start_is_applied_whole() {
    check(|world| (0..3).for_each(|_| world.begin_fuzzy()));
}
