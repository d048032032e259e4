//! The latch under loom: every interleaving, and every value that a relaxed load may give.

use super::super::latch::{Latch, Word};
use crossbeam_utils::Backoff;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;

impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }

    fn compare_exchange(&self, old: u64, new: u64, success: Ordering, failure: Ordering) -> bool {
        self.compare_exchange(old, new, success, failure).is_ok()
    }

    fn fence(order: Ordering) {
        fence(order);
    }

    fn pause(_: &Backoff) {
        thread::yield_now();
    }
}

/// The known bugs that the model checker must find.
#[derive(Clone, Copy, PartialEq)]
enum Bug {
    /// Fences do nothing.
    Fenceless,
    /// A compare-and-swap does not compare.
    Careless,
}

/// A word with a bug.
struct Broken<const FENCELESS: bool>(AtomicU64);

impl<const FENCELESS: bool> Broken<FENCELESS> {
    const BUG: Bug = if FENCELESS { Bug::Fenceless } else { Bug::Careless };
}

impl<const FENCELESS: bool> Word for Broken<FENCELESS> {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }

    fn compare_exchange(&self, old: u64, new: u64, success: Ordering, failure: Ordering) -> bool {
        if Self::BUG == Bug::Careless {
            self.0.store(new, Ordering::Release);
            return true;
        }
        self.0.compare_exchange(old, new, success, failure).is_ok()
    }

    fn fence(order: Ordering) {
        if Self::BUG != Bug::Fenceless {
            fence(order);
        }
    }

    fn pause(_: &Backoff) {
        thread::yield_now();
    }
}

/// A node of two words that are always equal, as far as a validated reader can tell.
struct Pair<W: Word> {
    latch: Latch<W>,
    words: [AtomicU64; 2],
}

impl<W: Word> Pair<W> {
    fn new(word: W) -> Arc<Pair<W>> {
        Arc::new(Pair { latch: Latch::over(word), words: [AtomicU64::new(0), AtomicU64::new(0)] })
    }

    /// Reads both words once; `None`: a writer got in between.
    fn read(&self) -> Option<[u64; 2]> {
        let version = self.latch.read()?;
        let seen = [self.words[0].load(Ordering::Relaxed), self.words[1].load(Ordering::Relaxed)];
        self.latch.validate(version).then_some(seen)
    }

    /// The same, by a version that was read before.
    fn read_again(&self, version: u64) -> Option<[u64; 2]> {
        if !self.latch.validate(version) {
            return None;
        }
        let seen = [self.words[0].load(Ordering::Relaxed), self.words[1].load(Ordering::Relaxed)];
        self.latch.validate(version).then_some(seen)
    }

    /// Sets both words, if the latch is granted from the version that was read.
    ///
    /// It stores before it loads: loom 0.7 explores almost nothing of a thread that loads a word just before it stores
    /// it, as the tests with a known bug showed.
    fn set(&self, value: u64) -> bool {
        let Some(version) = self.latch.read() else { return false };
        if !self.latch.upgrade(version) {
            return false;
        }
        for word in &self.words {
            word.store(value, Ordering::Relaxed);
        }
        for word in &self.words {
            assert_eq!(word.load(Ordering::Relaxed), value, "two writers at once");
        }
        self.latch.unlock_changed();
        true
    }
}

fn reader_beside_a_writer<W: Word + Send + Sync + 'static>(word: impl Fn() -> W + Send + Sync + 'static) {
    loom::model(move || {
        let pair = Pair::new(word());
        let writer = {
            let pair = pair.clone();
            thread::spawn(move || assert!(pair.set(1)))
        };
        if let Some([first, second]) = pair.read() {
            assert_eq!(first, second, "a torn reading was believed");
        }
        writer.join().expect("the writer does not fail");
        assert_eq!(pair.read(), Some([1, 1]));
    });
}

#[test]
fn a_validated_reading_is_never_torn() {
    reader_beside_a_writer(|| AtomicU64::new(0));
}

#[test]
#[should_panic(expected = "a torn reading was believed")]
fn the_model_finds_missing_fences() {
    reader_beside_a_writer(|| Broken::<true>(AtomicU64::new(0)));
}

fn reader_that_comes_again<W: Word + Send + Sync + 'static>(word: impl Fn() -> W + Send + Sync + 'static) {
    loom::model(move || {
        let pair = Pair::new(word());
        let version = pair.latch.read().expect("in use");
        let writer = {
            let pair = pair.clone();
            thread::spawn(move || assert!(pair.set(1)))
        };
        if let Some(seen) = pair.read_again(version) {
            assert_eq!(seen, [0, 0], "a later reading was taken for that of the version");
        }
        writer.join().expect("the writer does not fail");
        assert_eq!(pair.read_again(version), None);
    });
}

#[test]
fn a_reader_that_comes_again_reads_the_version_that_it_knows() {
    reader_that_comes_again(|| AtomicU64::new(0));
}

#[test]
#[should_panic(expected = "a later reading was taken for that of the version")]
fn the_model_finds_missing_fences_for_a_reader_that_comes_again() {
    reader_that_comes_again(|| Broken::<true>(AtomicU64::new(0)));
}

fn two_writers<W: Word + Send + Sync + 'static>(word: impl Fn() -> W + Send + Sync + 'static) {
    loom::model(move || {
        let pair = Pair::new(word());
        let other = {
            let pair = pair.clone();
            thread::spawn(move || pair.set(2))
        };
        let mine = pair.set(1);
        let others = other.join().expect("two writers at once");
        let last = pair.read();
        match (mine, others) {
            (true, true) => assert!(last == Some([1, 1]) || last == Some([2, 2])),
            (true, false) => assert_eq!(last, Some([1, 1])),
            (false, true) => assert_eq!(last, Some([2, 2])),
            (false, false) => panic!("one of two writers gets the latch"),
        }
    });
}

#[test]
fn an_upgrade_excludes_other_writers() {
    two_writers(|| AtomicU64::new(0));
}

#[test]
#[should_panic(expected = "two writers at once")]
fn the_model_finds_a_careless_swap() {
    two_writers(|| Broken::<false>(AtomicU64::new(0)));
}

#[test]
fn an_unchanged_unlock_keeps_readings_good() {
    loom::model(|| {
        let pair = Pair::new(AtomicU64::new(0));
        let version = pair.latch.read().expect("in use");
        let other = {
            let pair = pair.clone();
            thread::spawn(move || {
                assert!(pair.latch.lock());
                pair.latch.unlock_unchanged();
            })
        };
        other.join().expect("the other thread does not fail");
        assert!(pair.latch.validate(version));
    });
}

#[test]
fn a_reader_never_believes_a_node_that_was_freed_and_used_again() {
    loom::model(|| {
        let pair = Pair::new(AtomicU64::new(0));
        let owner = {
            let pair = pair.clone();
            thread::spawn(move || {
                assert!(pair.latch.lock());
                pair.latch.retire();
                pair.latch.claim();
                pair.words[0].store(7, Ordering::Relaxed);
                pair.words[1].store(7, Ordering::Relaxed);
                pair.latch.unlock_changed();
            })
        };
        if let Some([first, second]) = pair.read() {
            assert_eq!(first, second, "a torn reading was believed");
        }
        owner.join().expect("the owner does not fail");
    });
}
