//! The atomics and the sleep that the queue and the turn are built on: one place, so that the tests can put a model
//! checker's in their stead (`model.rs` compiles the same source against shuttle).

use std::time::Duration;

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A word that threads can sleep on until it changes.
#[derive(Debug)]
pub(crate) struct Futex {
    word: AtomicU32,
}

impl Futex {
    pub(crate) fn new(value: u32) -> Futex {
        Futex { word: AtomicU32::new(value) }
    }

    pub(crate) fn load(&self) -> u32 {
        self.word.load(Ordering::SeqCst)
    }

    pub(crate) fn fetch_add(&self, by: u32) -> u32 {
        self.word.fetch_add(by, Ordering::SeqCst)
    }

    pub(crate) fn fetch_max(&self, with: u32) -> u32 {
        self.word.fetch_max(with, Ordering::SeqCst)
    }

    /// Returns whether the word was `old` and is now `new`.
    pub(crate) fn exchange(&self, old: u32, new: u32) -> bool {
        self.word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Sleeps while the word is `expected`, at most for `timeout`; may also return early.
    pub(crate) fn wait(&self, expected: u32, timeout: Option<Duration>) {
        use rustix::thread::futex;
        let timeout = timeout.map(|t| futex::Timespec {
            tv_sec: t.as_secs().min(i64::MAX as u64) as i64,
            tv_nsec: t.subsec_nanos().into(),
        });
        // Interrupted, timed out, or changed already: the caller looks at the word again in every case.
        let _ = futex::wait(&self.word, futex::Flags::PRIVATE, expected, timeout.as_ref());
    }

    /// Wakes every sleeper with one system call.
    pub(crate) fn wake_all(&self) {
        use rustix::thread::futex;
        let _ = futex::wake(&self.word, futex::Flags::PRIVATE, i32::MAX as u32);
    }
}
