//! Reads and writes that are interrupted, or move fewer bytes than they were asked to.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use fuser::Errno;
use rialto::io::Random;

/// One call in so many is interrupted, and one is short.
const ONE_IN: u64 = 16;

/// Draws what becomes of reads and writes, and counts.
#[derive(Debug)]
pub struct Reluctance {
    random: Mutex<Random>,
    interrupted: AtomicU64,
    short: AtomicU64,
}

impl Reluctance {
    pub fn new(seed: u64) -> Reluctance {
        let random = Mutex::new(Random::new(seed));
        Reluctance { random, interrupted: AtomicU64::new(0), short: AtomicU64::new(0) }
    }

    /// How many of so many bytes a call moves: all, or fewer in whole blocks of this size, but at least one. `EINTR` if it is
    /// interrupted, and moves none.
    pub fn moves(&self, bytes: usize, block: usize) -> Result<usize, Errno> {
        let mut random = self.random.lock().unwrap();
        if random.chance(1, ONE_IN) {
            self.interrupted.fetch_add(1, Ordering::Relaxed);
            return Err(Errno::EINTR);
        }
        let blocks = bytes.div_ceil(block) as u64;
        if blocks < 2 || !random.chance(1, ONE_IN) {
            return Ok(bytes);
        }
        self.short.fetch_add(1, Ordering::Relaxed);
        Ok((1 + random.below(blocks - 1)) as usize * block)
    }

    /// How many calls were interrupted, and how many were short.
    pub fn counts(&self) -> (u64, u64) {
        (self.interrupted.load(Ordering::Relaxed), self.short.load(Ordering::Relaxed))
    }
}
