//! [`Target`]: a property of arbitrary bytes, and the ways in which tests try it.

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use super::corpus::Corpus;
use crate::io::Random;

/// A property that holds for any bytes.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, and the name of its corpus.
    pub name: &'static str,
    /// Panics if the property does not hold of these bytes.
    pub check: fn(&[u8]),
    /// The longest useful input, in bytes.
    pub longest: usize,
    /// The most inputs that its corpus has for what they cover: as many as a test tries in a second or two.
    pub kept: usize,
}

impl Target {
    /// Tries inputs from a seed, and from the seeds that follow it, for as long as `RIALTO_TEST_SECONDS` says. Most are
    /// made from the kept inputs, so a seed stands for the same input only as long as these do not change.
    ///
    /// # Panics
    /// If the property does not hold. Prints the seed that replays the failure, and the input.
    pub fn try_seeds(&self) {
        let corpus = match Corpus::load(self.name) {
            // A new target has no corpus.
            Err(error) if error.kind() == ErrorKind::NotFound => Corpus::default(),
            loaded => loaded.unwrap_or_else(|error| panic!("{error}")),
        };
        let kept: Vec<&[u8]> = corpus.failed.iter().chain(&corpus.covering).map(Vec::as_slice).collect();
        let seed = Random::seed_from_environment();
        let (began, time) = (Instant::now(), Random::test_time_from_environment());
        let mut inputs = 0;
        while inputs == 0 || began.elapsed() < time {
            // Each input has a seed of its own, which alone runs it again.
            let seed = seed.wrapping_add(inputs);
            let input = self.input(&mut Random::new(seed), &kept);
            self.try_input(&input, &format!("RIALTO_SEED={seed} replays this failure"));
            inputs += 1;
        }
        println!("tally: fuzz {}, {inputs} inputs, RIALTO_SEED={seed}", self.name);
    }

    /// Tries the target's kept inputs.
    ///
    /// # Panics
    /// If the property does not hold for one, which is printed, or if there are none.
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

    /// Some bytes, or kept inputs with changes.
    fn input(&self, random: &mut Random, kept: &[&[u8]]) -> Vec<u8> {
        if kept.is_empty() || random.chance(1, 4) {
            return bytes(random, self.longest);
        }
        let mut input = pick(random, kept).to_vec();
        for _ in 0..1 + random.below(4) {
            change(random, &mut input, kept);
        }
        input.truncate(self.longest);
        input
    }
}

fn pick<'k>(random: &mut Random, kept: &[&'k [u8]]) -> &'k [u8] {
    kept[random.below(kept.len() as u64) as usize]
}

/// Changes a byte or a part, or inserts other bytes.
fn change(random: &mut Random, input: &mut Vec<u8>, kept: &[&[u8]]) {
    let mut place = || random.below(input.len() as u64 + 1) as usize;
    let (one, other, at) = (place(), place(), place());
    let part = one.min(other)..one.max(other);
    match random.below(6) {
        0 => input.insert(at, random.next() as u8),
        1 if at < input.len() => input[at] = random.next() as u8,
        1 => input.push(random.next() as u8),
        2 => drop(input.drain(part)),
        // The same part once more.
        3 => {
            let part = input[part].to_vec();
            input.splice(at..at, part);
        }
        4 => {
            let end = pick(random, kept);
            input.truncate(at);
            input.extend_from_slice(&end[at.min(end.len())..]);
        }
        _ => input.extend_from_slice(pick(random, kept)),
    }
}

/// Some bytes: of few values or of all, and often much shorter than the bound.
fn bytes(random: &mut Random, most: usize) -> Vec<u8> {
    let length = random.below(most as u64 + 1);
    let length = if random.chance(1, 2) { random.below(length + 1) } else { length };
    let few = random.chance(1, 3);
    (0..length)
        .map(|_| if few && random.chance(1, 2) { random.below(4) as u8 } else { random.next() as u8 })
        .collect()
}
