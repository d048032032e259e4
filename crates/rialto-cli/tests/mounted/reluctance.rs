//! Calls that are interrupted, and reads and writes that move fewer bytes than requested.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use fuser::Errno;
use rialto::io::Random;

/// One call in this many is interrupted, and one is short.
const ONE_IN: u64 = 16;

/// Draws the outcomes of calls, and counts them.
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

    /// `EINTR` if this call is interrupted, and has no effect.
    pub fn lets_pass(&self) -> Result<(), Errno> {
        if !self.random.lock().unwrap().chance(1, ONE_IN) {
            return Ok(());
        }
        self.interrupted.fetch_add(1, Ordering::Relaxed);
        Err(Errno::EINTR)
    }

    /// How many bytes a call moves: all of them, or fewer in whole blocks of this size, but at least one block. `EINTR`
    /// if it is interrupted, and moves none.
    pub fn moves(&self, bytes: usize, block: usize) -> Result<usize, Errno> {
        self.lets_pass()?;
        let mut random = self.random.lock().unwrap();
        let blocks = bytes.div_ceil(block) as u64;
        if blocks < 2 || !random.chance(1, ONE_IN) {
            return Ok(bytes);
        }
        self.short.fetch_add(1, Ordering::Relaxed);
        Ok((1 + random.below(blocks - 1)) as usize * block)
    }

    /// The numbers of interrupted and of short calls.
    pub fn counts(&self) -> (u64, u64) {
        (self.interrupted.load(Ordering::Relaxed), self.short.load(Ordering::Relaxed))
    }
}
