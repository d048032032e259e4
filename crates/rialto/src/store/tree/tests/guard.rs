//! The guard of a leaf and the interval locks (L6, `isolate/central/interval.rs`) under loom: a scan that finds the
//! leaf guarded reads it without its latch, and an insert that finds no interval clears the guard.

use super::super::latch::Latch;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;
use std::ops::Bound;

use crate::ids::IndexId;

/// The interval locks, compiled a second time.
#[allow(dead_code, clippy::duplicate_mod, reason = "the model uses a part of it, with loom's primitives")]
#[path = "../../../isolate/central/interval.rs"]
mod interval;

use interval::{Admission, IntervalTable};

/// `isolate/sync.rs` as the model sees it.
mod sync {
    use std::cell::Cell;

    pub(super) use loom::sync::MutexGuard;
    pub(super) use loom::sync::atomic::{AtomicU32, Ordering};

    thread_local! {
        /// A bug that a test puts back. (A model runs on one thread.)
        pub(super) static IS_FENCELESS: Cell<bool> = const { Cell::new(false) };
    }

    pub(super) fn fence(order: Ordering) {
        if !IS_FENCELESS.get() {
            loom::sync::atomic::fence(order);
        }
    }

    /// parking_lot's interface.
    #[derive(Debug, Default)]
    pub(super) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(super) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("no thread panics while it holds a latch")
        }
    }
}

const INDEX: IndexId = IndexId(70);

/// A guarded leaf without an entry, in an index without an interval.
struct Scene {
    intervals: IntervalTable,
    latch: Latch<AtomicU64>,
    is_guarded: AtomicBool,
    entry: AtomicBool,
}

impl Scene {
    /// As `LockManager::interval` and `Index::read_leaf` with a guard. Returns whether the scan sees the entry.
    fn scan(&self) -> bool {
        self.intervals.register(1, INDEX, (Bound::Unbounded, Bound::Unbounded), 1);
        loop {
            let word = self.latch.read().expect("the leaf stays");
            if !self.is_guarded.load(Ordering::Relaxed) {
                if !self.latch.upgrade(word) {
                    continue;
                }
                self.is_guarded.store(true, Ordering::Relaxed);
                self.latch.unlock_unchanged();
            }
            let seen = self.entry.load(Ordering::Relaxed);
            if self.latch.validate(word) {
                return seen;
            }
        }
    }

    /// As `Index::insert`. Returns whether the entry was put in.
    fn insert(&self) -> bool {
        assert!(self.latch.lock());
        let admission = match self.is_guarded.load(Ordering::Relaxed) {
            true => self.intervals.admits(2, INDEX, b"key"),
            false => Admission::GoAndUnguard,
        };
        let is_free = admission != Admission::Refuse;
        if admission == Admission::GoAndUnguard {
            self.is_guarded.store(false, Ordering::Relaxed);
        }
        if is_free {
            self.entry.store(true, Ordering::Relaxed);
        }
        self.latch.unlock_changed();
        is_free
    }
}

/// Whether there is a phantom: an entry that was put in and that the scan has not seen.
fn finds_phantom(is_fenceless: bool) -> bool {
    sync::IS_FENCELESS.set(is_fenceless);
    let found = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_found = found.clone();
    loom::model(move || {
        let scene = Arc::new(Scene {
            intervals: IntervalTable::default(),
            latch: Latch::over(AtomicU64::new(0)),
            is_guarded: AtomicBool::new(true),
            entry: AtomicBool::new(false),
        });
        let inserting = {
            let scene = scene.clone();
            thread::spawn(move || scene.insert())
        };
        let seen = scene.scan();
        if inserting.join().unwrap() && !seen {
            found.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    });
    is_found.load(std::sync::atomic::Ordering::Relaxed)
}

#[test]
fn an_insert_that_takes_a_guard_away_is_seen_by_the_scan() {
    assert!(!finds_phantom(false));
}

#[test]
fn without_the_fences_there_are_phantoms() {
    assert!(finds_phantom(true), "the model does not know weak ordering");
}
