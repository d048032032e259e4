//! Tests of the index as a whole: against a model, by many threads, and the latch under a model checker.

mod guard;
mod latch;
mod model;
mod prefetch;
mod shapes;
mod threads;
mod waits;

use super::{Admit, Batch, Direction, Full, Guard, Index, Insert, More, NODE_BYTES, NodePool, ScanRange};
use crate::store::Budget;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

/// A small random generator (splitmix64), seeded and the same on every machine.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// The seed of a test, printed if the test fails; RIALTO_SEED replays one.
pub(super) struct Seed(pub(super) u64);

impl Seed {
    pub(super) fn get() -> Seed {
        let given =
            std::env::var("RIALTO_SEED").ok().map(|seed| seed.parse().expect("RIALTO_SEED is a number"));
        Seed(given.unwrap_or_else(|| {
            std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(1, |now| now.as_nanos() as u64)
        }))
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to replay: RIALTO_SEED={}", self.0);
        }
    }
}

/// When a randomised test ends: all of them are one suite, which shares its time.
pub(super) fn deadline() -> Instant {
    Instant::now() + crate::io::Random::test_time_from_environment() / 5
}

pub(super) fn pool(nodes: usize) -> Arc<NodePool> {
    NodePool::new(nodes * NODE_BYTES, Arc::new(Budget::unbounded())).expect("address space for a test")
}

pub(super) fn index() -> Index {
    Index::new(pool(1 << 16)).expect("a first node")
}

pub(super) fn put(index: &Index, key: &[u8], value: u64) -> Result<Insert, Full> {
    index.insert(key, value, || Admit::Go)
}

/// All entries of a range, by as many steps as it takes; checks that they are in order.
pub(super) fn scan(
    index: &Index,
    range: &ScanRange<'_>,
    direction: Direction,
    batch: &mut Batch,
) -> Vec<(Vec<u8>, u64)> {
    let mut all: Vec<(Vec<u8>, u64)> = Vec::new();
    loop {
        let more = index.read_leaf(range, direction, Guard::Leave, batch);
        for (key, value) in batch.iter() {
            if let Some((last, _)) = all.last() {
                let in_order = match direction {
                    Direction::Forward => last.as_slice() < key,
                    Direction::Backward => last.as_slice() > key,
                };
                assert!(in_order, "{direction:?}: {key:02x?} after {last:02x?}");
            }
            all.push((key.to_vec(), value));
        }
        if more == More::No {
            assert_eq!(batch.next_key(), None);
            return all;
        }
        assert!(batch.next_key().is_some());
    }
}

pub(super) fn from_to<'k>(low: &'k [u8], high: &'k [u8]) -> ScanRange<'k> {
    ScanRange { low: Bound::Included(low), high: Bound::Excluded(high) }
}
