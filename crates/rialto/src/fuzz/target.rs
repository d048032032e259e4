//! [`Target`]: a property of arbitrary bytes, and the ways in which tests try it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use super::corpus::Corpus;
use crate::io::Random;

/// A property that holds of any bytes.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, and that of its corpus.
    pub name: &'static str,
    /// Panics if the property does not hold of these bytes.
    pub check: fn(&[u8]),
    /// The longest input that is of use, in bytes.
    pub longest: usize,
    /// The most inputs that its corpus has for what they cover: as many as a test tries in a second or two.
    pub kept: usize,
}

impl Target {
    /// Tries bytes from a seed, and from those that follow it, for as long as `RIALTO_TEST_SECONDS` says.
    ///
    /// # Panics
    /// If the property does not hold. The seed that replays the failure is printed.
    pub fn try_seeds(&self) {
        let seed = Random::seed_from_environment();
        let (began, time) = (Instant::now(), Random::test_time_from_environment());
        let mut inputs = 0;
        while inputs == 0 || began.elapsed() < time {
            // Each input has a seed of its own, which alone runs it again.
            let seed = seed.wrapping_add(inputs);
            let input = input(&mut Random::new(seed), self.longest);
            self.try_input(&input, &format!("RIALTO_SEED={seed} replays this failure"));
            inputs += 1;
        }
        println!("tally: fuzz {}, {inputs} inputs, RIALTO_SEED={seed}", self.name);
    }

    /// Tries the inputs that are kept of it.
    ///
    /// # Panics
    /// If the property does not hold of one, which is printed, or if there are none.
    pub fn try_kept(&self) {
        let corpus = Corpus::load(self.name).unwrap_or_else(|error| panic!("{error}"));
        let inputs = || corpus.failed.iter().chain(&corpus.covering);
        inputs().for_each(|input| self.try_input(input, "a kept input"));
        assert!(inputs().next().is_some(), "fuzz target {} has no kept inputs", self.name);
        println!("tally: fuzz {}, {} kept inputs", self.name, inputs().count());
    }

    fn try_input(&self, input: &[u8], origin: &str) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.check)(input))) {
            let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
            eprintln!("fuzz target {} fails on {hex} ({origin})", self.name);
            resume_unwind(panic);
        }
    }
}

/// Some bytes: of few values or of all, and often much shorter than they may be.
fn input(random: &mut Random, most: usize) -> Vec<u8> {
    let length = random.below(most as u64 + 1);
    let length = if random.chance(1, 2) { random.below(length + 1) } else { length };
    let few = random.chance(1, 3);
    (0..length)
        .map(|_| if few && random.chance(1, 2) { random.below(4) as u8 } else { random.next() as u8 })
        .collect()
}
