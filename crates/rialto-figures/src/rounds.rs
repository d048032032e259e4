//! [`Rounds`]: a point of a figure, measured in several rounds.

use rialto_measure::interval::Interval;
use rialto_measure::spread::Spread;

/// The samples of one point, one of each round. In the figures of System M and DORA a round measures every point, so two points of one
/// round are a pair. In Charm's a round is a window of a simulation, which no noise of the machine reaches: the pairing is by its number.
#[derive(Debug, Clone)]
pub struct Rounds<S>(Vec<S>);

impl<S> Rounds<S> {
    /// The point of the first round.
    pub fn begin(sample: S) -> Rounds<S> {
        Rounds(vec![sample])
    }

    /// The sample of one more round.
    pub fn add(&mut self, sample: S) {
        self.0.push(sample);
    }

    /// The sample of the first round.
    pub fn first(&self) -> &S {
        &self.0[0]
    }

    /// The samples, in the order of the rounds.
    pub fn samples(&self) -> &[S] {
        &self.0
    }

    /// A figure's median, least and most over the rounds.
    pub fn spread(&self, figure: impl Fn(&S) -> f64) -> Spread {
        Spread::of(self.0.iter().map(figure)).expect("a point has a round")
    }

    /// A figure's median over the rounds.
    pub fn median(&self, figure: impl Fn(&S) -> f64) -> f64 {
        self.spread(figure).median
    }

    /// A figure's median over the rounds, with its interval.
    pub fn interval(&self, figure: impl Fn(&S) -> f64) -> Interval {
        let figures: Vec<f64> = self.0.iter().map(figure).collect();
        Interval::of_median(&figures).expect("a point has a round")
    }

    /// A figure divided by the same figure of the `base` in the same round: the median of these ratios, with its interval.
    ///
    /// # Panics
    /// If the base has another number of rounds.
    pub fn against(&self, base: &Rounds<S>, figure: impl Fn(&S) -> f64) -> Interval {
        assert_eq!(self.0.len(), base.0.len(), "both have a sample of each round");
        let pairs = self.0.iter().zip(&base.0);
        // Nothing beside nothing is the same.
        let ratio = |ours: f64, theirs: f64| if ours == theirs { 1.0 } else { ours / theirs };
        let ratios: Vec<f64> = pairs.map(|(ours, theirs)| ratio(figure(ours), figure(theirs))).collect();
        Interval::of_median(&ratios).expect("a point has a round")
    }
}

/// What a round takes in turn: every other round in the other order, so that neither side of a pair is always the later.
pub fn in_order<T: Copy>(round: u32, all: &[T]) -> Vec<T> {
    let mut all = all.to_vec();
    if round % 2 == 1 {
        all.reverse();
    }
    all
}

/// For three cells: the median, the least and the most, as whole numbers.
pub fn whole(spread: Spread) -> [String; 3] {
    [spread.median, spread.least, spread.most].map(|figure| format!("{figure:.0}"))
}

/// For three cells: the median of ratios, and the ends of its interval; empty where the base was zero.
pub fn ratios(interval: Interval) -> [String; 3] {
    let cell = |ratio: f64| if ratio.is_finite() { format!("{ratio:.2}") } else { String::new() };
    [interval.median, interval.low, interval.high].map(cell)
}

/// For a sentence: the median of ratios, and its interval.
pub fn ratio(interval: Interval) -> String {
    let [median, low, high] = ratios(interval);
    format!("{median} ({low} to {high})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(figures: &[f64]) -> Rounds<f64> {
        let mut rounds = Rounds::begin(figures[0]);
        figures[1..].iter().for_each(|figure| rounds.add(*figure));
        rounds
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        // The machine was twice as fast in the second round, and half as fast in the third: the ratio is the same in each.
        let (ours, base) = (rounds(&[300.0, 600.0, 150.0]), rounds(&[100.0, 200.0, 50.0]));
        let found = ours.against(&base, |figure| *figure);
        assert_eq!((found.low, found.median, found.high), (3.0, 3.0, 3.0));
        assert_eq!(whole(ours.spread(|figure| *figure)), ["300", "150", "600"]);
        let none = rounds(&[0.0, 0.0, 0.0]);
        assert_eq!(ratios(none.against(&none, |figure| *figure)), ["1.00"; 3]);
        assert_eq!(ratios(base.against(&none, |figure| *figure)), [""; 3]);
    }

    #[test]
    fn every_other_round_is_in_the_other_order() {
        assert_eq!([0, 1, 2].map(|round| in_order(round, &[1, 2])), [[1, 2], [2, 1], [1, 2]]);
    }
}
