//! The lock manager under a model checker: the same sources, compiled a second time against primitives whose every
//! step is scheduled by `shuttle`. A sleep never times out here, so a lost wake-up is a hang, which the checker
//! reports.

#![allow(dead_code, unused_imports, clippy::duplicate_mod)]

#[path = "../acquire.rs"]
mod acquire;
#[path = "../central/mod.rs"]
mod central;
#[path = "../counters.rs"]
mod counters;
#[path = "../deadlock.rs"]
mod deadlock;
use crate::isolate::grain;
#[path = "../intent.rs"]
mod intent;
#[path = "../local/mod.rs"]
mod local;
#[path = "../manager.rs"]
mod manager;
#[path = "../mode.rs"]
mod mode;
#[path = "../name.rs"]
mod name;
#[path = "../options.rs"]
mod options;
#[path = "../slot.rs"]
mod slot;
#[path = "../thin/mod.rs"]
mod thin;
#[path = "../view.rs"]
mod view;
#[path = "../wait.rs"]
mod wait;

mod sync {
    //! A model of `isolate/sync.rs`.

    /// Two, so that some owners share a counter and others do not.
    pub(super) const STRIPES: usize = 2;

    /// A spin is no step that another task could wait for.
    pub(super) fn spin_a_while(_is_over: impl Fn() -> bool) {}

    pub(super) fn lock_across_waits<'m, T>(
        _clock: &crate::io::Clock,
        mutex: &'m Mutex<T>,
    ) -> MutexGuard<'m, T> {
        mutex.lock()
    }

    /// Neither is this.
    pub(super) fn give_way(_is_over: impl Fn() -> bool) {}

    use std::time::Duration;

    pub(super) use shuttle::sync::MutexGuard;
    pub(super) use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};

    #[derive(Debug, Default)]
    pub(super) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(super) fn new(value: T) -> Mutex<T> {
            Mutex(shuttle::sync::Mutex::new(value))
        }

        pub(super) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("no task panics while it holds a latch")
        }
    }

    #[derive(Debug, Default)]
    pub(super) struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        /// Never times out.
        pub(super) fn wait_for<'a, T>(
            &self,
            _clock: &crate::io::Clock,
            guard: MutexGuard<'a, T>,
            _limit: Duration,
        ) -> MutexGuard<'a, T> {
            self.0.wait(guard).expect("no task panics while it holds a latch")
        }

        pub(super) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(super) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

use std::cell::Cell;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shuttle::thread;

use super::{INDEX, test_seconds};
use crate::ids::TableId;
use crate::row::Key;
use central::interval::Admission;
use deadlock::VictimPolicy;
use local::{RoutingRule, Span, SpanRef, Wanted};
use manager::LockManager;
use mode::{Acquired, LockMode, RecordMode};
use name::LockName;
use options::{LockForm, LockOptions};
use slot::Owner;
use thin::LockWords;
use wait::{LockError, LockPolicy, Wait};

mod local_locks;

static NOT_CANCELLED: AtomicBool = AtomicBool::new(false);

fn forever() -> Wait<'static> {
    let since = Cell::new(None);
    Wait { policy: LockPolicy::Wait, since, timeout: None, deadline: None, cancelled: &NOT_CANCELLED }
}

/// A wait that leaves the queue as soon as it has entered it, unless the lock was granted meanwhile.
fn impatient() -> Wait<'static> {
    Wait { timeout: Some(Duration::ZERO), ..forever() }
}

/// Whether a wait searches for a deadlock when it begins (`Detect::AtOnce`), or never.
#[derive(Clone, Copy)]
enum Detect {
    AtOnce,
    Never,
}

fn manager(detect: Detect) -> Arc<LockManager> {
    manager_of(LockForm::Thin, detect)
}

fn manager_of(form: LockForm, detect: Detect) -> Arc<LockManager> {
    let deadlock_check_after = match detect {
        Detect::AtOnce => Duration::ZERO,
        Detect::Never => Duration::from_secs(3600),
    };
    Arc::new(LockManager::new(LockOptions {
        form,
        owners_max: 4,
        executors: 2,
        executors_max: 2,
        deadlock_check_after,
        victim: VictimPolicy::Youngest,
        ..LockOptions::default()
    }))
}

/// Runs `body` under random schedules, and under schedules in which one task stands still while the others run far.
/// Each kind gets a share of the test time; a failure prints the schedule that led to it.
fn check(body: impl Fn() + Send + Sync + Clone + 'static) {
    use shuttle::scheduler::{PctScheduler, RandomScheduler};
    let config = || {
        let mut config = shuttle::Config::new();
        config.max_time = Some(test_seconds() / 4);
        config.stack_size = 0x2_0000;
        config
    };
    shuttle::Runner::new(RandomScheduler::new(3000), config()).run(body.clone());
    shuttle::Runner::new(PctScheduler::new(3, 3000), config()).run(body);
}

fn record(
    manager: &LockManager,
    owner: &mut Owner,
    key: u8,
    mode: RecordMode,
    wait: &Wait<'_>,
) -> Result<Acquired, LockError> {
    manager.record(owner, LockName { index: INDEX, hash: u64::from(key) }, &[key], mode, wait)
}

type Task = Box<dyn FnOnce(&LockManager) + Send>;

/// Runs the tasks and then checks that nothing is held or waited for.
fn run(manager: &Arc<LockManager>, tasks: Vec<Task>) {
    let handles: Vec<_> = tasks
        .into_iter()
        .map(|task| {
            let manager = manager.clone();
            thread::spawn(move || task(&manager))
        })
        .collect();
    handles.into_iter().for_each(|handle| handle.join().expect("the task does not panic"));
    assert_eq!(manager.locks_now(), 0);
    assert!(manager.waits().is_empty());
}

/// Readers and a writer in one place; a violation is an assertion.
#[derive(Default)]
struct Inside(std::sync::atomic::AtomicI64);

impl Inside {
    fn visit(&self, mode: RecordMode) {
        let (before, step) = match mode {
            RecordMode::Shared => (0..=i64::MAX, 1),
            RecordMode::Exclusive => (0..=0, -1),
        };
        assert!(before.contains(&self.0.fetch_add(step, Ordering::SeqCst)));
        thread::yield_now();
        self.0.fetch_sub(step, Ordering::SeqCst);
    }
}

#[test]
fn every_waiter_is_woken_and_conflicting_owners_are_kept_apart() {
    check(|| {
        let manager = manager(Detect::Never);
        let inside = Arc::new(Inside::default());
        let modes = [RecordMode::Exclusive, RecordMode::Shared, RecordMode::Exclusive, RecordMode::Shared];
        let tasks = modes.map(|mode| {
            let inside = inside.clone();
            let task = move |manager: &LockManager| {
                for _ in 0..2 {
                    let mut owner = manager.begin().unwrap();
                    record(manager, &mut owner, 1, mode, &forever()).unwrap();
                    inside.visit(mode);
                    manager.end(owner);
                }
            };
            Box::new(task) as Task
        });
        run(&manager, tasks.into());
    });
}

#[test]
fn a_waiter_that_leaves_a_queue_leaves_no_gap() {
    check(|| {
        let manager = manager(Detect::Never);
        let inside = Arc::new(Inside::default());
        let tasks = [
            (RecordMode::Shared, forever()),
            (RecordMode::Exclusive, impatient()),
            (RecordMode::Shared, forever()),
            (RecordMode::Exclusive, forever()),
        ]
        .map(|(mode, wait)| {
            let inside = inside.clone();
            let task = move |manager: &LockManager| {
                let mut owner = manager.begin().unwrap();
                match record(manager, &mut owner, 1, mode, &wait) {
                    Ok(_) => inside.visit(mode),
                    Err(error) => assert!(matches!(error, LockError::Timeout { .. })),
                }
                manager.end(owner);
            };
            Box::new(task) as Task
        });
        run(&manager, tasks.into());
    });
}

/// Several exclusive requests for one record: each is told to ask again when the one before it has released. None is
/// forgotten if another request takes the lock first, or leaves just when it is told.
#[test]
fn no_exclusive_request_is_forgotten() {
    check(|| {
        let manager = manager(Detect::Never);
        let inside = Arc::new(Inside::default());
        let tasks = [forever(), forever(), impatient(), forever()].map(|wait| {
            let inside = inside.clone();
            let task = move |manager: &LockManager| {
                for _ in 0..3 {
                    let mut owner = manager.begin().unwrap();
                    match record(manager, &mut owner, 1, RecordMode::Exclusive, &wait) {
                        Ok(_) => inside.visit(RecordMode::Exclusive),
                        Err(error) => assert!(matches!(error, LockError::Timeout { .. })),
                    }
                    manager.end(owner);
                    wait.since.set(None);
                }
            };
            Box::new(task) as Task
        });
        run(&manager, tasks.into());
    });
}

/// The same for locks in records' words, beside another record whose head is in the same pool of heads.
#[test]
fn no_exclusive_request_for_a_word_is_forgotten() {
    check(|| {
        let manager = manager(Detect::Never);
        let words = Words::new();
        let inside = [0, 1].map(|_| Arc::new(Inside::default()));
        let tasks = [(0, forever()), (0, forever()), (1, impatient()), (1, forever())].map(|(at, wait)| {
            let (words, inside) = (words.clone(), inside.clone());
            let task = move |manager: &LockManager| {
                for nth in 0..4 {
                    let at = if nth % 2 == 0 { at } else { 1 - at };
                    let mut owner = manager.begin().unwrap();
                    if words.lock(manager, &mut owner, at, RecordMode::Exclusive, &wait).is_ok() {
                        inside[at as usize].visit(RecordMode::Exclusive);
                    }
                    manager.release_all_thin(&mut owner, &words);
                    manager.end(owner);
                    wait.since.set(None);
                }
            };
            Box::new(task) as Task
        });
        run(&manager, tasks.into());
        words.assert_free();
    });
}

#[test]
fn the_wait_that_closes_a_cycle_finds_it() {
    check(|| {
        let manager = manager(Detect::AtOnce);
        let tasks = (0..3).map(|at| {
            let task = move |manager: &LockManager| {
                let mut owner = manager.begin().unwrap();
                record(manager, &mut owner, at, RecordMode::Exclusive, &forever())
                    .and_then(|_| {
                        record(manager, &mut owner, (at + 1) % 3, RecordMode::Exclusive, &forever())
                    })
                    .map_or_else(|error| assert_eq!(error, LockError::Deadlock), drop);
                manager.end(owner);
            };
            Box::new(task) as Task
        });
        run(&manager, tasks.collect());
        assert!(manager.counters().deadlocks <= 1, "one victim is enough for one cycle");
    });
}

#[test]
fn upgraders_do_not_hang() {
    check(|| {
        let manager = manager(Detect::AtOnce);
        let tasks = (0..3).map(|_| {
            let task = move |manager: &LockManager| {
                let mut owner = manager.begin().unwrap();
                record(manager, &mut owner, 1, RecordMode::Shared, &forever())
                    .and_then(|_| record(manager, &mut owner, 1, RecordMode::Exclusive, &forever()))
                    .map_or_else(|error| assert_eq!(error, LockError::Deadlock), drop);
                manager.end(owner);
            };
            Box::new(task) as Task
        });
        run(&manager, tasks.collect());
    });
}

#[test]
fn a_cancelled_sleeper_wakes() {
    check(|| {
        let manager = manager(Detect::Never);
        let cancelled = Arc::new(AtomicBool::new(false));
        let mut holder = manager.begin().unwrap();
        record(&manager, &mut holder, 1, RecordMode::Exclusive, &forever()).unwrap();
        let mut waiter = manager.begin().unwrap();
        let id = waiter.id();
        let sleeper = {
            let (manager, cancelled) = (manager.clone(), cancelled.clone());
            thread::spawn(move || {
                let wait = Wait { cancelled: &cancelled, ..forever() };
                let answer = record(&manager, &mut waiter, 1, RecordMode::Shared, &wait);
                manager.end(waiter);
                answer
            })
        };
        thread::yield_now();
        cancelled.store(true, Ordering::Release);
        manager.interrupt(id);
        assert_eq!(sleeper.join().unwrap(), Err(LockError::Cancelled));
        manager.end(holder);
        assert_eq!(manager.locks_now(), 0);
    });
}

/// An index of one leaf, with what the store has: its latch, its guard, its entries.
#[derive(Default)]
struct Leaf {
    guarded: bool,
    keys: Vec<u8>,
}

type LatchedLeaf = Arc<shuttle::sync::Mutex<Leaf>>;

/// The steps of the store's scan: register, mark, read, lock what was read.
fn scan(manager: &LockManager, owner: &mut Owner, leaf: &LatchedLeaf) -> Result<Vec<u8>, LockError> {
    manager.interval(owner, INDEX, Bound::Unbounded, Bound::Unbounded);
    let keys = {
        let mut leaf = leaf.lock().unwrap();
        leaf.guarded = true;
        leaf.keys.clone()
    };
    for &key in &keys {
        record(manager, owner, key, RecordMode::Shared, &forever())?;
    }
    Ok(keys)
}

/// The steps of the store's insert: lock the name, ask if the leaf is guarded, wait outside the latch.
fn insert(manager: &LockManager, owner: &mut Owner, leaf: &LatchedLeaf, key: u8) -> Result<(), LockError> {
    record(manager, owner, key, RecordMode::Exclusive, &forever())?;
    loop {
        {
            let mut leaf = leaf.lock().unwrap();
            let admission = if leaf.guarded { manager.admits(owner, INDEX, &[key]) } else { Admission::Go };
            leaf.guarded &= admission != Admission::GoAndUnguard;
            if admission != Admission::Refuse {
                leaf.keys.push(key);
                return Ok(());
            }
        }
        manager.wait_interval(owner, INDEX, &[key], &forever())?;
    }
}

#[test]
fn a_scan_sees_no_phantom() {
    check(|| {
        let manager = manager(Detect::AtOnce);
        let leaf = LatchedLeaf::default();
        let mut tasks: Vec<Task> = Vec::new();
        for _ in 0..2 {
            let leaf = leaf.clone();
            tasks.push(Box::new(move |manager| {
                let mut owner = manager.begin().unwrap();
                if let Ok(first) = scan(manager, &mut owner, &leaf) {
                    thread::yield_now();
                    assert_eq!(scan(manager, &mut owner, &leaf), Ok(first), "a phantom");
                }
                manager.end(owner);
            }));
        }
        for key in [1, 2] {
            let leaf = leaf.clone();
            tasks.push(Box::new(move |manager| {
                let mut owner = manager.begin().unwrap();
                insert(manager, &mut owner, &leaf, key).unwrap();
                manager.end(owner);
            }));
        }
        run(&manager, tasks);
        assert_eq!(leaf.lock().unwrap().keys.len(), 2);
    });
}

/// Records' words. The checker schedules their steps, too.
#[derive(Clone)]
struct Words(Arc<[shuttle::sync::atomic::AtomicU64; 2]>);

impl Words {
    fn new() -> Words {
        Words(Arc::new([0; 2].map(shuttle::sync::atomic::AtomicU64::new)))
    }

    fn lock(
        &self,
        manager: &LockManager,
        owner: &mut Owner,
        record: u64,
        mode: RecordMode,
        wait: &Wait<'_>,
    ) -> Result<Acquired, LockError> {
        manager.record_thin(owner, self.lock_word(record), record, INDEX, b"key", mode, wait)
    }

    fn assert_free(&self) {
        assert!(self.0.iter().all(|word| word.load(Ordering::SeqCst) == 0));
    }
}

impl LockWords for Words {
    fn lock_word(&self, record: u64) -> &shuttle::sync::atomic::AtomicU64 {
        &self.0[record as usize]
    }
}

#[test]
fn thin_locks_inflate_and_deflate_without_losing_an_owner() {
    check(|| {
        let manager = manager(Detect::Never);
        let words = Words::new();
        let inside = Arc::new(Inside::default());
        let tasks = [
            (RecordMode::Exclusive, forever()),
            (RecordMode::Shared, forever()),
            (RecordMode::Exclusive, impatient()),
            (RecordMode::Shared, forever()),
        ]
        .map(|(mode, wait)| {
            let (inside, words) = (inside.clone(), words.clone());
            let task = move |manager: &LockManager| {
                for _ in 0..2 {
                    let mut owner = manager.begin().unwrap();
                    if words.lock(manager, &mut owner, 0, mode, &wait).is_ok() {
                        inside.visit(mode);
                    }
                    manager.release_all_thin(&mut owner, &words);
                    manager.end(owner);
                }
            };
            Box::new(task) as Task
        });
        run(&manager, tasks.into());
        words.assert_free();
    });
}

#[test]
fn thin_upgraders_and_rings_do_not_hang() {
    check(|| {
        let manager = manager(Detect::AtOnce);
        let words = Words::new();
        let tasks = [[0, 0], [0, 1], [1, 0]].map(|[first, second]| {
            let words = words.clone();
            let task = move |manager: &LockManager| {
                let mut owner = manager.begin().unwrap();
                words
                    .lock(manager, &mut owner, first, RecordMode::Shared, &forever())
                    .and_then(|_| words.lock(manager, &mut owner, second, RecordMode::Exclusive, &forever()))
                    .map_or_else(|error| assert_eq!(error, LockError::Deadlock), drop);
                manager.release_all_thin(&mut owner, &words);
                manager.end(owner);
            };
            Box::new(task) as Task
        });
        run(&manager, tasks.into());
        words.assert_free();
    });
}

#[test]
fn thin_intentions_and_whole_tables_exclude_each_other() {
    check(|| {
        let manager = manager(Detect::AtOnce);
        let inside = Arc::new(Inside::default());
        let tasks = [
            (LockMode::IntentExclusive, RecordMode::Shared, true),
            (LockMode::Shared, RecordMode::Exclusive, false),
            (LockMode::IntentExclusive, RecordMode::Shared, false),
            (LockMode::Exclusive, RecordMode::Exclusive, false),
        ]
        .map(|(mode, role, raised)| {
            let inside = inside.clone();
            let task = move |manager: &LockManager| {
                for _ in 0..2 {
                    let mut owner = manager.begin().unwrap();
                    if raised {
                        manager.table(&mut owner, TableId(1), LockMode::IntentShared, &forever()).unwrap();
                    }
                    match manager.table(&mut owner, TableId(1), mode, &forever()) {
                        Ok(acquired) => {
                            let expected = if raised { Acquired::Upgraded } else { Acquired::New };
                            assert_eq!(acquired, expected, "an intention was lost");
                            inside.visit(role);
                        }
                        Err(error) => assert_eq!(error, LockError::Deadlock),
                    }
                    manager.end(owner);
                }
            };
            Box::new(task) as Task
        });
        run(&manager, tasks.into());
    });
}
