//! The primitives of the queue and the turn: atomics, a word to sleep on, a clock. They are in one place so that tests
//! can replace them by a model checker's (`model.rs` compiles the same source against shuttle), and virtual time by a
//! [`Machine`] of its own (`virtual_time/`).

use std::fmt::Debug;
use std::time::Duration;

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub(crate) use parking_lot::Mutex;

use crate::io::{Clock, Moment};

/// A word that threads can sleep on until it changes.
pub(crate) trait Futex: Debug + Send + Sync {
    /// The word.
    fn load(&self) -> u32;

    fn fetch_add(&self, by: u32) -> u32;

    fn fetch_max(&self, with: u32) -> u32;

    /// Returns whether the word was `old` and is now `new`.
    fn exchange(&self, old: u32, new: u32) -> bool;

    /// Sleeps while the word is `expected`, for at most `limit`; may also return early.
    fn wait(&self, expected: u32, limit: Option<Duration>);

    /// Wakes every sleeper with one call. Returns how many it woke, or 0 where the machine cannot tell.
    fn wake_all(&self) -> u32;
}

/// Where committers run: its clock, and how threads sleep there.
pub(crate) trait Machine: Debug + Send + Sync {
    type Futex: Futex;

    fn futex(&self, value: u32) -> Self::Futex;

    /// The time since an arbitrary origin.
    fn now(&self) -> Duration;

    /// A request for the commit lock was granted; called by the thread that was granted it, which holds it. A machine
    /// on which grants are expensive spends their time here.
    fn granted(&self) {}
}

/// The real machine.
#[derive(Debug)]
pub(crate) struct System {
    pub(crate) clock: Clock,
    origin: Moment,
}

impl System {
    pub(crate) fn new(clock: &Clock) -> System {
        System { clock: clock.clone(), origin: clock.now() }
    }

    /// A moment, as [`Machine::now`] would have returned it; zero if it was before the origin.
    pub(crate) fn at(&self, moment: Moment) -> Duration {
        Duration::from_nanos(moment.ns_since(self.origin))
    }
}

impl Machine for System {
    type Futex = SystemFutex;

    fn futex(&self, value: u32) -> SystemFutex {
        SystemFutex { word: AtomicU32::new(value), clock: self.clock.clone() }
    }

    fn now(&self) -> Duration {
        self.at(self.clock.now())
    }
}

/// A word of this process, slept on by the kernel's futex.
#[derive(Debug)]
pub(crate) struct SystemFutex {
    word: AtomicU32,
    clock: Clock,
}

impl Futex for SystemFutex {
    fn load(&self) -> u32 {
        self.word.load(Ordering::SeqCst)
    }

    fn fetch_add(&self, by: u32) -> u32 {
        self.word.fetch_add(by, Ordering::SeqCst)
    }

    fn fetch_max(&self, with: u32) -> u32 {
        self.word.fetch_max(with, Ordering::SeqCst)
    }

    fn exchange(&self, old: u32, new: u32) -> bool {
        self.word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    fn wait(&self, expected: u32, limit: Option<Duration>) {
        use rustix::thread::futex;
        let sleep = |limit: Option<Duration>| {
            let limit = limit.map(|limit| futex::Timespec {
                tv_sec: limit.as_secs().min(i64::MAX as u64) as i64,
                tv_nsec: limit.subsec_nanos().into(),
            });
            // Interrupted, timed out, or changed already: the caller looks at the word again in every case.
            let _ = futex::wait(&self.word, futex::Flags::PRIVATE, expected, limit.as_ref());
        };
        if let Clock::System = self.clock {
            sleep(limit);
        } else if self.load() == expected {
            self.clock.wait_by(limit, sleep);
        }
    }

    fn wake_all(&self) -> u32 {
        use rustix::thread::futex;
        let woken = futex::wake(&self.word, futex::Flags::PRIVATE, i32::MAX as u32);
        woken.map_or(0, |woken| woken as u32)
    }
}
