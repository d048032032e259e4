//! Processor time of the servers (System M, section 4.1: "the total processor time consumed by each of the servers"):
//! the transaction server's executors, the log server, the checkpoint server, the message servers.
//!
//! A server's thread reads its own processor clock in laps: before it sleeps, and now and then while it does not. What
//! other threads read is therefore less than a lap behind, and nothing is read while nothing runs. A caller's thread
//! that commits, and writes the log for itself, is no server: its time is the caller's.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The processor time that the servers have used since the database was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerTimes {
    /// The executors of all transaction servers.
    pub transaction: Duration,
    /// The log server: its groups, the responses that it forwards, and the preparation of log files.
    pub log: Duration,
    /// The checkpoint server.
    pub checkpoint: Duration,
    /// The message servers: all that their threads do from the first to the last call.
    pub message: Duration,
}

impl ServerTimes {
    /// What was used since an earlier sample.
    #[must_use]
    pub fn since(&self, earlier: &ServerTimes) -> ServerTimes {
        ServerTimes {
            transaction: self.transaction.saturating_sub(earlier.transaction),
            log: self.log.saturating_sub(earlier.log),
            checkpoint: self.checkpoint.saturating_sub(earlier.checkpoint),
            message: self.message.saturating_sub(earlier.message),
        }
    }

    /// The time of all servers together.
    pub fn total(&self) -> Duration {
        self.transaction + self.log + self.checkpoint + self.message
    }
}

/// A sum of processor time that threads add their laps to.
#[derive(Debug, Default)]
pub(crate) struct ProcessorTime {
    ns: AtomicU64,
}

thread_local! {
    /// The thread's clock when its last lap ended.
    static LAP_ENDED_NS: Cell<u64> = const { Cell::new(0) };
}

/// Begins a thread's first lap: what the thread has used before belongs to no server.
pub(crate) fn begin() {
    LAP_ENDED_NS.set(thread_ns());
}

impl ProcessorTime {
    /// Adds what the calling thread has used since its last lap.
    pub fn lap(&self) {
        let now = thread_ns();
        let since = LAP_ENDED_NS.replace(now);
        self.ns.fetch_add(now.saturating_sub(since), Ordering::Relaxed);
    }

    /// The sum.
    pub fn read(&self) -> Duration {
        Duration::from_nanos(self.ns.load(Ordering::Relaxed))
    }
}

/// The calling thread's processor clock.
fn thread_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn work_for(time: Duration) {
        let began = Instant::now();
        while began.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn laps_add_up_and_a_sleep_is_none() {
        let sum = ProcessorTime::default();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    work_for(Duration::from_millis(2));
                    begin();
                    // Its waits for a processor count nothing either, so this may be less than it seems.
                    let before = thread_ns();
                    while thread_ns() < before + 3_000_000 {
                        work_for(Duration::from_micros(100));
                    }
                    sum.lap();
                    std::thread::sleep(Duration::from_millis(300));
                    sum.lap();
                });
            }
        });
        let found = sum.read();
        assert!(found >= Duration::from_millis(6), "{found:?} of two threads with 3 ms each");
        assert!(found < Duration::from_millis(300), "{found:?}: a sleep uses no processor");
    }

    #[test]
    fn a_window_is_the_difference_of_two_looks() {
        let ms = Duration::from_millis;
        let earlier = ServerTimes { transaction: ms(5), log: ms(1), ..ServerTimes::default() };
        let later = ServerTimes { transaction: ms(9), log: ms(2), checkpoint: ms(3), message: ms(4) };
        let window = later.since(&earlier);
        assert_eq!((window.transaction, window.log, window.total()), (ms(4), ms(1), ms(12)));
    }
}
