//! [`Slice`]: one engine's clients for some seconds.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use rialto_bench::histogram::{Latencies, Percentiles};

use crate::engine::{Client, Engine};
use crate::error::{PeerError, Result};

const WARMING_UP: u8 = 0;
const MEASURING: u8 = 1;
const OVER: u8 = 2;

/// What one slice measured.
#[derive(Debug, Clone)]
pub struct Slice {
    /// Transactions a second that began and ended in the window.
    pub per_s: f64,
    /// Their latencies.
    pub percentiles: Percentiles,
    /// All that committed, those of the warm-up included.
    pub committed: u64,
}

/// What one client did.
#[derive(Default)]
struct Done {
    latencies: Latencies,
    committed: u64,
}

/// What all clients see.
struct Course {
    phase: AtomicU8,
    failed: AtomicBool,
    failure: Mutex<Option<PeerError>>,
}

impl Course {
    fn fail(&self, error: PeerError) {
        self.failure.lock().expect("nobody panics with it").get_or_insert(error);
        self.failed.store(true, Ordering::Release);
    }

    fn run(&self, client: &mut dyn Client) -> Done {
        let mut done = Done::default();
        loop {
            let phase = self.phase.load(Ordering::Relaxed);
            if phase == OVER || self.failed.load(Ordering::Relaxed) {
                return done;
            }
            let began = Instant::now();
            if let Err(error) = client.transact(began) {
                self.fail(error);
                return done;
            }
            done.committed += 1;
            if phase == MEASURING && self.phase.load(Ordering::Relaxed) == MEASURING {
                done.latencies.record(began.elapsed());
            }
        }
    }

    /// Sleeps, unless a client fails.
    fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            if self.failed.load(Ordering::Acquire) {
                return;
            }
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
    }
}

/// Runs so many clients, each a thread, for a tenth of the time and then for the time. Other seeds give other
/// transactions.
///
/// # Errors
/// If a client fails, or none finishes a transaction in the window.
pub fn slice(engine: &dyn Engine, clients: u32, time: Duration, seed: u64) -> Result<Slice> {
    let course = Course {
        phase: AtomicU8::new(WARMING_UP),
        failed: AtomicBool::new(false),
        failure: Mutex::new(None),
    };
    let mut all = Vec::new();
    for number in 0..u64::from(clients) {
        all.push(engine.client(seed ^ (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))?);
    }
    let (done, took) = std::thread::scope(|scope| {
        let course = &course;
        let threads: Vec<_> =
            all.into_iter().map(|mut client| scope.spawn(move || course.run(&mut *client))).collect();
        course.sleep(time / 10);
        course.phase.store(MEASURING, Ordering::Relaxed);
        let began = Instant::now();
        course.sleep(time);
        course.phase.store(OVER, Ordering::Relaxed);
        let took = began.elapsed();
        let done: Vec<Done> =
            threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).collect();
        (done, took)
    });
    if let Some(error) = course.failure.into_inner().expect("nobody panics with it") {
        return Err(error);
    }
    let mut latencies = Latencies::default();
    done.iter().for_each(|client| latencies.merge(&client.latencies));
    let percentiles = latencies.percentiles().ok_or_else(|| {
        PeerError::Usage(format!(
            "no transaction began and ended within {} s: expected a longer --seconds",
            time.as_secs_f64()
        ))
    })?;
    Ok(Slice {
        per_s: latencies.count() as f64 / took.as_secs_f64(),
        percentiles,
        committed: done.iter().map(|client| client.committed).sum(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::tpcb::Sums;

    /// Counts, and fails at its limit.
    struct Counter {
        begun: AtomicU64,
        limit: u64,
    }

    impl Engine for Counter {
        fn client<'a>(&'a self, _seed: u64) -> Result<Box<dyn Client + 'a>> {
            Ok(Box::new(self))
        }

        fn audit(&self) -> Result<Sums> {
            Ok(Sums { history_rows: self.begun.load(Ordering::Relaxed), ..Sums::default() })
        }

        fn close(self: Box<Self>) -> Result<()> {
            Ok(())
        }
    }

    impl Client for &Counter {
        fn transact(&mut self, _now: Instant) -> Result<()> {
            std::thread::sleep(Duration::from_micros(100));
            if self.begun.fetch_add(1, Ordering::Relaxed) >= self.limit {
                return Err(PeerError::Usage("the limit".to_owned()));
            }
            Ok(())
        }
    }

    #[test]
    fn all_that_committed_is_counted_and_latencies_are_the_clients_own() {
        let engine = Counter { begun: AtomicU64::new(0), limit: u64::MAX };
        let slice = slice(&engine, 3, Duration::from_millis(100), 1).unwrap();
        assert_eq!(engine.audit().unwrap().history_rows, slice.committed);
        assert!(slice.per_s > 0.0 && slice.percentiles.p50_us >= 100.0, "{slice:?}");
    }

    #[test]
    fn a_failure_of_one_client_ends_the_slice() {
        let engine = Counter { begun: AtomicU64::new(0), limit: 5 };
        let error = slice(&engine, 3, Duration::from_secs(3_600), 1).unwrap_err();
        assert_eq!(error.to_string(), "the limit");
    }
}
