//! [`Service`]: how long some work takes, drawn anew each time.

use rialto::io::Random;
use rialto_measure::histogram::Latencies;

/// The distribution of processor times, in microseconds.
#[derive(Debug, Clone, PartialEq)]
pub enum Service {
    /// Always the same.
    Constant(f64),
    /// Exponential, of this mean.
    Exponential(f64),
    /// As often as measured: times, each with the share of all that are as long or shorter. The last share is 1.
    Measured(Vec<(f64, f64)>),
}

/// Of what was measured, the longest thousandth is left out: interrupts and stops, which are no work.
const KEPT: f64 = 0.999;

impl Service {
    /// The distribution of these latencies, stretched so that its mean is `mean_us`.
    pub fn measured(latencies: &Latencies, mean_us: f64) -> Service {
        let parts = latencies.parts();
        let all: u64 = parts.counts.iter().map(|(_, count)| u64::from(*count)).sum();
        let kept = ((all as f64 * KEPT) as u64).max(1);
        let (mut seen, mut sum_us, mut steps) = (0_u64, 0.0, Vec::new());
        for (ns, count) in parts.counts {
            let count = u64::from(count).min(kept - seen);
            if count == 0 {
                break;
            }
            seen += count;
            sum_us += ns as f64 / 1e3 * count as f64;
            steps.push((ns as f64 / 1e3, seen as f64 / kept as f64));
        }
        if steps.is_empty() || sum_us == 0.0 {
            return Service::Constant(mean_us);
        }
        let stretch = mean_us / (sum_us / seen as f64);
        steps.iter_mut().for_each(|(us, _)| *us *= stretch);
        if let Some((_, share)) = steps.last_mut() {
            *share = 1.0;
        }
        Service::Measured(steps)
    }

    /// The mean, in microseconds.
    pub fn mean_us(&self) -> f64 {
        match self {
            Service::Constant(us) | Service::Exponential(us) => *us,
            Service::Measured(steps) => {
                let before = std::iter::once(0.0).chain(steps.iter().map(|(_, share)| *share));
                steps.iter().zip(before).map(|((us, share), before)| us * (share - before)).sum()
            }
        }
    }

    /// A time, in microseconds.
    pub fn draw(&self, random: &mut Random) -> f64 {
        match self {
            Service::Constant(us) => *us,
            Service::Exponential(mean_us) => exponential(*mean_us, random),
            Service::Measured(steps) => {
                let share = uniform(random);
                let at = steps.partition_point(|(_, upto)| *upto < share);
                steps[at.min(steps.len() - 1)].0
            }
        }
    }
}

/// From 0, exclusive, to 1, inclusive.
pub(super) fn uniform(random: &mut Random) -> f64 {
    const STEPS: u64 = 1 << 53;
    (random.below(STEPS) + 1) as f64 / STEPS as f64
}

/// A time of a Poisson process to its next event.
pub(super) fn exponential(mean: f64, random: &mut Random) -> f64 {
    -uniform(random).ln() * mean
}

/// A time of this mean that varies as the sum of two such times.
pub(super) fn erlang(mean: f64, random: &mut Random) -> f64 {
    exponential(mean / 2.0, random) + exponential(mean / 2.0, random)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn mean_of_many(service: &Service) -> f64 {
        let mut random = Random::new(7);
        (0..100_000).map(|_| service.draw(&mut random)).sum::<f64>() / 1e5
    }

    #[test]
    fn draws_have_the_mean_of_their_distribution() {
        let mut latencies = Latencies::default();
        for (us, count) in [(1, 900), (10, 99), (1_000_000, 1)] {
            (0..count).for_each(|_| latencies.record(Duration::from_micros(us)));
        }
        let measured = Service::measured(&latencies, 3.0);
        let Service::Measured(steps) = &measured else { panic!("{measured:?}") };
        assert_eq!(steps.len(), 2, "the longest thousandth is left out: {steps:?}");
        for service in [Service::Constant(3.0), Service::Exponential(3.0), measured] {
            assert!((service.mean_us() - 3.0).abs() < 0.01, "{service:?}");
            assert!((mean_of_many(&service) - 3.0).abs() < 0.05, "{service:?}: {}", mean_of_many(&service));
        }
        assert_eq!(Service::measured(&Latencies::default(), 2.0), Service::Constant(2.0));
    }
}
