//! The only source of chance in the kernel's simulations and tests: the same seed gives the same choices.

use std::time::Duration;

/// A SplitMix64 generator: small, fast, and good enough to choose what fails next, or the ranks of a tree. Not for
/// secrets.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator that always makes the same choices for the same seed.
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// The seed of a randomised test: `RIALTO_SEED` if it is set, else one from the clock. Print it on failure.
    pub fn seed_from_environment() -> u64 {
        match std::env::var("RIALTO_SEED") {
            Ok(text) => text.trim().parse().unwrap_or_else(|_| {
                panic!("RIALTO_SEED is \"{text}\"; expected a decimal number below 2^64, as a failed test printed it")
            }),
            Err(_) => {
                let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                Random::new(since.map_or(0, |time| time.as_nanos() as u64)).next()
            }
        }
    }

    /// How long a randomised test runs: `RIALTO_TEST_SECONDS` seconds, 2 if it is not set.
    pub fn test_time_from_environment() -> Duration {
        let text = std::env::var("RIALTO_TEST_SECONDS").unwrap_or_else(|_| "2".to_owned());
        let seconds = text.trim().parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        seconds.unwrap_or_else(|| panic!("RIALTO_TEST_SECONDS is \"{text}\"; expected a number of seconds"))
    }

    /// 64 random bits.
    #[allow(clippy::should_implement_trait, reason = "an endless generator is no useful iterator")]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below zero");
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// True `of` times out of `per`.
    pub fn chance(&mut self, of: u64, per: u64) -> bool {
        self.below(per) < of
    }

    /// Puts the items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    /// Another generator, independent of this one's later output.
    pub fn fork(&mut self) -> Random {
        Random::new(self.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_for_a_seed_and_covers_its_range() {
        let draw = |seed| (0..1000).scan(Random::new(seed), |r, _| Some(r.below(10))).collect::<Vec<_>>();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let counts = draw(3).into_iter().fold([0; 10], |mut counts, n| {
            counts[n as usize] += 1;
            counts
        });
        assert!(counts.iter().all(|&count| (60..140).contains(&count)), "{counts:?}");
    }

    #[test]
    fn shuffle_keeps_all_items() {
        let mut items: Vec<u32> = (0..100).collect();
        Random::new(4).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
