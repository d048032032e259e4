//! Both barriers under a model checker: `in_progress.rs` and `definitions.rs` are compiled a second time, and shuttle
//! schedules each of their steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shuttle::thread;

/// `super::sync`, for the model.
mod sync {
    use std::ops::{Deref, DerefMut};

    pub(super) use shuttle::sync::atomic::{AtomicU8, AtomicU64, fence};

    /// parking_lot's interface.
    pub(super) struct Mutex<T>(shuttle::sync::Mutex<T>);

    /// `None` only while its holder waits.
    pub(super) struct MutexGuard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>);

    const HELD: &str = "a guard holds the latch";

    impl<T> Mutex<T> {
        pub(super) fn new(value: T) -> Mutex<T> {
            Mutex(shuttle::sync::Mutex::new(value))
        }

        pub(super) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().expect("no task panics while it holds a latch")))
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_ref().expect(HELD)
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect(HELD)
        }
    }

    pub(super) struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        pub(super) fn new() -> Condvar {
            Condvar(shuttle::sync::Condvar::new())
        }

        pub(super) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    /// No time passes here.
    pub(super) struct Clock;

    impl Clock {
        pub(super) fn wait<T>(
            &self,
            on: &Condvar,
            guard: &mut MutexGuard<'_, T>,
            _: Option<std::time::Duration>,
        ) {
            let held = guard.0.take().expect(HELD);
            guard.0 = Some(on.0.wait(held).expect("no task panics while it holds a latch"));
        }

        pub(super) fn look_later(&self, _looks: u32) {
            shuttle::thread::yield_now();
        }
    }
}

#[allow(dead_code, clippy::duplicate_mod, reason = "the model uses a part of it, with other atomics")]
#[path = "in_progress.rs"]
mod in_progress;

#[allow(dead_code, clippy::duplicate_mod, reason = "the model uses a part of it, with another mutex")]
#[path = "definitions.rs"]
mod definitions;

use definitions::Definitions;
use in_progress::{CommitBarrier, CommitsInProgress};
use sync::{AtomicU64, Clock};

use crate::ids::Lsn;
use crate::io::FOR_EVER;

const COMMITTERS: usize = 3;
const COMMITS: u64 = 2;
const SCHEDULES: usize = 3_000;

/// A log of places; a table in which each committer has a row of two halves, the place of its last commit; and a
/// catalog of two halves, the place of the last DDL.
struct World {
    in_progress: CommitsInProgress,
    definitions: Definitions,
    head: AtomicU64,
    halves: Vec<[AtomicU64; 2]>,
    catalog: [AtomicU64; 2],
    /// By place: the committer that took it.
    owners: Vec<AtomicU64>,
    /// By place: whether it is DDL's.
    defines: Vec<AtomicBool>,
}

impl World {
    fn new() -> World {
        let places = COMMITTERS * COMMITS as usize + 1;
        World {
            in_progress: CommitsInProgress::new(COMMITTERS),
            definitions: Definitions::new(),
            head: AtomicU64::new(0),
            halves: (0..COMMITTERS).map(|_| [AtomicU64::new(0), AtomicU64::new(0)]).collect(),
            catalog: [AtomicU64::new(0), AtomicU64::new(0)],
            owners: (0..places).map(|_| AtomicU64::new(u64::MAX)).collect(),
            defines: (0..places).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    fn place(&self) -> Lsn {
        Lsn(self.head.load(Ordering::SeqCst))
    }

    /// As `Context::commit` takes a place, with DDL or without: while it waits at one barrier, it has passed no other.
    fn take_place(&self, committer: usize, defines: bool) -> u64 {
        loop {
            while defines && !self.definitions.try_enter() {
                self.definitions.wait(&Clock, FOR_EVER);
            }
            if self.in_progress.enter(committer, self.place()) != CommitBarrier::Closed {
                break;
            }
            self.in_progress.leave(committer);
            if defines {
                self.definitions.leave();
            }
            self.in_progress.wait_at_barrier(&Clock, FOR_EVER);
        }
        let place = self.head.fetch_add(1, Ordering::SeqCst) + 1;
        self.owners[place as usize].store(committer as u64, Ordering::SeqCst);
        place
    }

    /// As `Context::commit` does it.
    fn commit(&self, committer: usize) {
        let place = self.take_place(committer, false);
        for half in &self.halves[committer] {
            half.store(place, Ordering::SeqCst);
        }
        self.in_progress.leave(committer);
    }

    /// As `Context::commit` does it with DDL.
    fn define(&self, committer: usize) {
        let place = self.take_place(committer, true);
        self.defines[place as usize].store(true, Ordering::SeqCst);
        for half in self.halves[committer].iter().chain(&self.catalog) {
            half.store(place, Ordering::SeqCst);
        }
        self.in_progress.leave(committer);
        self.definitions.leave();
    }

    /// As `Checkpointer::checkpoint` begins: a copy of the catalog, and then the redo start, by a cut if one is made.
    /// Returns the redo start and the copy.
    fn begin_with_catalog(&self, cuts: bool) -> (Lsn, [u64; 2]) {
        self.definitions.hold(&Clock);
        let catalog = || self.catalog.each_ref().map(|half| half.load(Ordering::SeqCst));
        let held = self.in_progress.outlast_until(&Clock, Lsn(catalog()[1]), || self.place());
        let copied = catalog();
        let start = if cuts {
            self.in_progress.close_barrier();
            self.in_progress.drain(&Clock);
            let cut = self.place().next();
            self.in_progress.open_barrier(CommitBarrier::Snapshots);
            cut
        } else {
            self.in_progress.oldest(self.place())
        };
        self.definitions.release();
        (start.max(held), copied)
    }

    /// For each committer, its last place at or before `to`.
    fn last_places(&self, to: Lsn) -> Vec<u64> {
        let last = |committer: usize| {
            let mine = |&place: &u64| self.owners[place as usize].load(Ordering::SeqCst) == committer as u64;
            (1..=to.0).rev().find(mine).unwrap_or(0)
        };
        (0..COMMITTERS).map(last).collect()
    }

    fn cut(&self) {
        self.in_progress.close_barrier();
        self.in_progress.drain(&Clock);
        let cut = self.place();
        let expected = self.last_places(cut);
        for (halves, place) in self.halves.iter().zip(expected) {
            let found = halves.each_ref().map(|half| half.load(Ordering::SeqCst));
            assert_eq!(found, [place; 2], "the state at the cut is the log's prefix up to {cut:?}");
        }
        assert_eq!(self.place(), cut, "no commit takes its place while a cut is being made");
        self.in_progress.open_barrier(CommitBarrier::Snapshots);
    }

    /// What a fuzzy sweep begins with: all places before its redo start are wholly applied.
    fn begin_fuzzy(&self) {
        let start = self.in_progress.oldest(self.place());
        for (committer, place) in self.last_places(Lsn(start.0 - 1)).into_iter().enumerate() {
            for half in &self.halves[committer] {
                let found = half.load(Ordering::SeqCst);
                assert!(found >= place, "{place} is before the redo start {start:?} and not applied");
            }
        }
    }
}

fn check_with(scenario: fn()) {
    shuttle::check_random(scenario, SCHEDULES);
    shuttle::check_pct(scenario, SCHEDULES, 3);
}

/// Runs the committers beside a checkpointer, each `work` so often; returns the world at the end, and what the
/// checkpointer returned.
fn beside<T>(
    work: impl Fn(&World, usize, u64) + Copy + Send + 'static,
    checkpointer: impl FnOnce(&World) -> T,
) -> (Arc<World>, T) {
    let world = Arc::new(World::new());
    let committers = (0..COMMITTERS).map(|committer| {
        let world = Arc::clone(&world);
        thread::spawn(move || (0..COMMITS).for_each(|nth| work(&world, committer, nth)))
    });
    let committers: Vec<_> = committers.collect();
    let given = checkpointer(&world);
    for committer in committers {
        committer.join().expect("it does not panic");
    }
    assert_eq!(world.place().0, COMMITTERS as u64 * COMMITS, "no thread is left at a barrier");
    (world, given)
}

fn commit(world: &World, committer: usize, _: u64) {
    world.commit(committer);
}

#[test]
fn a_cut_is_a_prefix_of_the_log_and_leaves_no_thread_at_the_barrier() {
    check_with(|| drop(beside(commit, |world| (0..2).for_each(|_| world.cut()))));
}

#[test]
fn what_is_before_a_redo_start_is_applied_whole() {
    check_with(|| drop(beside(commit, |world| (0..3).for_each(|_| world.begin_fuzzy()))));
}

/// Two of the committers commit DDL, and other commits beside it.
fn catalogs_beside_ddl(cuts: bool) {
    let work = |world: &World, committer: usize, nth: u64| match committer < 2 && committer as u64 + nth > 0 {
        true => world.define(committer),
        false => world.commit(committer),
    };
    let (world, begun) = beside(work, |world| [(); 2].map(|()| world.begin_with_catalog(cuts)));
    for (start, copied) in begun {
        let defines = |&place: &u64| world.defines[place as usize].load(Ordering::SeqCst);
        let last = (1..start.0).rev().find(defines).unwrap_or(0);
        assert_eq!(copied, [last; 2], "the catalog that is copied is the one at the redo start {start:?}");
    }
}

#[test]
fn the_catalog_in_a_copy_is_that_of_its_redo_start() {
    check_with(|| catalogs_beside_ddl(false));
    check_with(|| catalogs_beside_ddl(true));
}
