//! [`Rounds`]: a point of a figure, measured in several rounds.

use rialto_measure::interval::Interval;
use rialto_measure::profile::Profile;
use rialto_measure::spread::Spread;

use super::run::Sample;

/// The samples of one system, workload and number of clients: one of each round. A round measures every system, so two
/// points of one round are a pair.
#[derive(Debug, Clone)]
pub struct Rounds {
    /// Clients.
    pub clients: u32,
    samples: Vec<Sample>,
}

impl Rounds {
    /// The point of the first round.
    pub fn begin(sample: Sample) -> Rounds {
        Rounds { clients: sample.clients, samples: vec![sample] }
    }

    /// The sample of one more round.
    ///
    /// # Panics
    /// If it has another number of clients.
    pub fn add(&mut self, sample: Sample) {
        assert_eq!(self.clients, sample.clients, "a point has one number of clients");
        self.samples.push(sample);
    }

    /// A figure's median, least and most over the rounds.
    pub fn spread(&self, figure: impl Fn(&Sample) -> f64) -> Spread {
        Spread::of(self.samples.iter().map(figure)).expect("a point has a round")
    }

    /// A figure's median over the rounds.
    pub fn median(&self, figure: impl Fn(&Sample) -> f64) -> f64 {
        self.spread(figure).median
    }

    /// The median of the transactions a second.
    pub fn per_s(&self) -> f64 {
        self.median(Sample::per_s)
    }

    /// A figure divided by the same figure of the `base` in the same round: the median of these ratios, with its interval.
    ///
    /// # Panics
    /// If the base has another number of rounds.
    pub fn against(&self, base: &Rounds, figure: impl Fn(&Sample) -> f64) -> Interval {
        assert_eq!(self.samples.len(), base.samples.len(), "both have a sample of each round");
        let pairs = self.samples.iter().zip(&base.samples);
        let ratios: Vec<f64> = pairs.map(|(ours, theirs)| figure(ours) / figure(theirs)).collect();
        Interval::of_median(&ratios).expect("a point has a round")
    }

    /// The stacks sampled in all rounds.
    pub fn profile(&self) -> Profile {
        let mut all = Profile::default();
        self.samples.iter().for_each(|sample| all.add(sample.profile.clone()));
        all
    }
}

/// For three cells: the median, the least and the most, as whole numbers.
pub fn whole(spread: Spread) -> [String; 3] {
    [spread.median, spread.least, spread.most].map(|figure| format!("{figure:.0}"))
}

/// For three cells: the median of ratios, and the ends of its interval.
pub fn ratios(interval: Interval) -> [String; 3] {
    [interval.median, interval.low, interval.high].map(|ratio| format!("{ratio:.2}"))
}

/// For a sentence: the median of ratios, and its interval.
pub fn ratio(interval: Interval) -> String {
    let [median, low, high] = ratios(interval);
    format!("{median} ({low} to {high})")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rialto::isolate::LockCounters;

    use super::*;

    fn sample(committed: u64) -> Sample {
        Sample {
            clients: 2,
            committed,
            failed: 0,
            window: Duration::from_secs(1),
            cpu: Duration::ZERO,
            waiting: None,
            cores: 2,
            response_us: 0.0,
            response_p50_us: 0.0,
            locks: LockCounters::default(),
            profile: Profile::default(),
        }
    }

    fn rounds(committed: &[u64]) -> Rounds {
        let mut samples = committed.iter().map(|count| sample(*count));
        let mut rounds = Rounds::begin(samples.next().unwrap());
        samples.for_each(|sample| rounds.add(sample));
        rounds
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        // The machine was twice as fast in the second round, and half as fast in the third: the ratio is the same in each.
        let (ours, base) = (rounds(&[300, 600, 150]), rounds(&[100, 200, 50]));
        let found = ours.against(&base, Sample::per_s);
        assert_eq!((found.low, found.median, found.high), (3.0, 3.0, 3.0));
        assert_eq!(ours.per_s(), 300.0);
        assert_eq!(whole(ours.spread(Sample::per_s)), ["300", "150", "600"]);
    }
}
