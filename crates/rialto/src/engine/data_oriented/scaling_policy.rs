//! [`ScalingPolicy`]: how many executors, or threads that own them, there should be. A policy: it gets samples and
//! returns a number, and does nothing itself.
//!
//! It is damped. It raises the number after two samples in a row that ask for more, and lowers it after eight in a row
//! that ask for fewer. After each change it begins to count again.

use std::ops::RangeInclusive;

/// How often in a row an adjustment to more, or to fewer, has to come before it is followed.
const MORE_AFTER: u32 = 2;
const FEWER_AFTER: u32 = 8;

/// If each queue has at least so many tasks on average, and all threads are busy, there are too few threads.
const QUEUED_MIN: f64 = 1.0;
const BUSY_MIN: f64 = 0.9;
/// If with one thread fewer the threads would be busy for at most this share of their time, there are too many.
const BUSY_MAX: f64 = 0.6;

/// If at least this share of requests finds a lock table out, there are too few tables; if less than the second
/// share, there are too many.
const OUT_MAX: f64 = 0.02;
const OUT_MIN: f64 = 0.000_5;
/// The fewest requests for a decision.
const REQUESTS_MIN: u64 = 2_000;

/// Whether more would be better, or fewer would be no worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Adjustment {
    More,
    Same,
    Fewer,
}

impl Adjustment {
    /// For threads: `queued` tasks were on their queues, and they were busy in this share of the samples, on average.
    pub fn of_threads(threads: usize, queued: f64, busy: f64) -> Adjustment {
        let with_one_fewer = busy * threads as f64 / threads.saturating_sub(1).max(1) as f64;
        match () {
            () if queued >= QUEUED_MIN && busy >= BUSY_MIN => Adjustment::More,
            () if queued < QUEUED_MIN && with_one_fewer <= BUSY_MAX => Adjustment::Fewer,
            () => Adjustment::Same,
        }
    }

    /// For executors, by how many requests they had and how many of these found a lock table out.
    pub fn of_executors(requests: u64, found_out: u64) -> Adjustment {
        let share = found_out as f64 / requests.max(1) as f64;
        match () {
            () if requests < REQUESTS_MIN => Adjustment::Same,
            () if share > OUT_MAX => Adjustment::More,
            () if share < OUT_MIN => Adjustment::Fewer,
            () => Adjustment::Same,
        }
    }
}

/// How a number is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepSize {
    /// By one.
    One,
    /// To twice as many, or half.
    Twofold,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct ScalingPolicy {
    step: StepSize,
    /// The last adjustment, and how often it came in a row.
    last: (Adjustment, u32),
}

impl ScalingPolicy {
    pub fn new(step: StepSize) -> ScalingPolicy {
        ScalingPolicy { step, last: (Adjustment::Same, 0) }
    }

    /// Returns the new number, if it is another one than `now`. It stays within the bounds.
    pub fn decide(
        &mut self,
        now: usize,
        bounds: &RangeInclusive<usize>,
        adjustment: Adjustment,
    ) -> Option<usize> {
        let (last, times) = self.last;
        let times = if adjustment == last { times + 1 } else { 1 };
        self.last = (adjustment, times);
        let wanted = match adjustment {
            Adjustment::More if times >= MORE_AFTER => match self.step {
                StepSize::One => now + 1,
                StepSize::Twofold => now * 2,
            },
            Adjustment::Fewer if times >= FEWER_AFTER => match self.step {
                StepSize::One => now - 1,
                StepSize::Twofold => now / 2,
            },
            _ => return None,
        };
        let wanted = wanted.clamp(*bounds.start(), *bounds.end());
        if wanted == now {
            return None;
        }
        self.last = (Adjustment::Same, 0);
        Some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_follows_what_lasts_within_its_bounds_and_no_blip() {
        let (mut threads, mut executors) =
            (ScalingPolicy::new(StepSize::One), ScalingPolicy::new(StepSize::Twofold));
        for _ in 0..20 {
            for adjustment in [
                Adjustment::More,
                Adjustment::Same,
                Adjustment::Fewer,
                Adjustment::Fewer,
                Adjustment::More,
                Adjustment::Fewer,
            ] {
                assert_eq!(threads.decide(4, &(1..=8), adjustment), None);
            }
        }
        let mut grown = vec![(4, 64)];
        for _ in 0..12 {
            let (now, tables) = *grown.last().unwrap();
            let more = threads.decide(now, &(1..=6), Adjustment::More).unwrap_or(now);
            grown.push((more, executors.decide(tables, &(16..=256), Adjustment::More).unwrap_or(tables)));
        }
        grown.dedup();
        assert_eq!(grown, [(4, 64), (5, 128), (6, 256)]);
        let (mut now, mut samples) = (6, 0);
        while now > 1 {
            now = threads.decide(now, &(1..=6), Adjustment::Fewer).unwrap_or(now);
            samples += 1;
        }
        assert_eq!(samples, 5 * FEWER_AFTER);
        assert_eq!((0..50).find_map(|_| threads.decide(1, &(1..=6), Adjustment::Fewer)), None);
    }

    #[test]
    fn what_is_adjusted_follows_from_queues_and_from_tables_in_others_hands() {
        assert_eq!(Adjustment::of_threads(2, 5.0, 1.0), Adjustment::More);
        // A thread always runs, but no task waits; work for one and a half; work for half of one; none at all.
        assert_eq!(Adjustment::of_threads(2, 0.2, 1.0), Adjustment::Same);
        assert_eq!(Adjustment::of_threads(2, 0.2, 0.75), Adjustment::Same);
        assert_eq!(Adjustment::of_threads(2, 0.0, 0.25), Adjustment::Fewer);
        assert_eq!(Adjustment::of_threads(1, 0.0, 0.0), Adjustment::Fewer);
        assert_eq!(Adjustment::of_executors(100_000, 5_000), Adjustment::More);
        assert_eq!(Adjustment::of_executors(100_000, 500), Adjustment::Same);
        assert_eq!(Adjustment::of_executors(100_000, 5), Adjustment::Fewer);
        assert_eq!(Adjustment::of_executors(100, 100), Adjustment::Same);
    }

    /// Work for three and a half threads comes and goes. The number of threads follows it, and does not oscillate
    /// meanwhile.
    #[test]
    fn threads_come_with_work_and_go_with_it() {
        let mut scaling_policy = ScalingPolicy::new(StepSize::One);
        let (mut now, mut changes) = (1, 0);
        for (work, samples) in [(3.5, 40), (0.5, 60), (3.5, 40)] {
            for _ in 0..samples {
                let busy = f64::min(work / now as f64, 1.0);
                let queued = if work > now as f64 { 10.0 } else { 0.1 };
                if let Some(wanted) =
                    scaling_policy.decide(now, &(1..=8), Adjustment::of_threads(now, queued, busy))
                {
                    (now, changes) = (wanted, changes + 1);
                }
            }
            assert_eq!(now, if work > 1.0 { 4 } else { 1 });
        }
        assert_eq!(changes, 9);
    }
}
