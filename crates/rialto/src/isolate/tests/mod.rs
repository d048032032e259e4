//! Tests of the lock manager, by subject.

mod deadlocks;
mod grants;
mod intervals;
mod local;
mod model;
mod modes;
mod spans;
mod stress;
mod thin;
mod waits;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::{LockManager, LockName, LockOptions, LockPolicy, Wait};
use crate::ids::IndexId;

/// Never set.
static NOT_CANCELLED: AtomicBool = AtomicBool::new(false);

/// Waits for as long as any sound test may take.
fn patient() -> Wait<'static> {
    within(Duration::from_secs(120))
}

/// Waits for `timeout`.
fn within(timeout: Duration) -> Wait<'static> {
    Wait {
        policy: LockPolicy::Wait,
        since: Cell::new(None),
        timeout: Some(timeout),
        deadline: None,
        cancelled: &NOT_CANCELLED,
    }
}

/// Does not wait.
fn refusing() -> Wait<'static> {
    Wait { policy: LockPolicy::Refuse, timeout: None, ..patient() }
}

fn manager() -> Arc<LockManager> {
    Arc::new(LockManager::new(LockOptions { owners_max: 64, ..LockOptions::default() }))
}

const INDEX: IndexId = IndexId(7);

fn name(key: &[u8]) -> LockName {
    LockName { index: INDEX, hash: xxhash_rust::xxh3::xxh3_64(key) }
}

/// Waits until `count` transactions wait.
fn until_waiting(manager: &LockManager, count: usize) {
    let start = Instant::now();
    while manager.waits().len() != count {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "expected {count} waits, found {:?}",
            manager.waits()
        );
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// How long a randomised test may run.
fn test_seconds() -> Duration {
    let seconds = std::env::var("RIALTO_TEST_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(2.0);
    Duration::from_secs_f64(seconds)
}

/// The seed of a randomised test: `RIALTO_SEED`, or the time.
fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    std::env::var("RIALTO_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(now.as_nanos() as u64)
}

/// A small random number generator (xorshift with a multiplication), enough for tests.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }
}
