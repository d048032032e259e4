//! [`Interval`]: a median of ratios with its confidence interval, by the sign test.
//!
//! Each ratio lies above the true median with probability one half, whatever their distribution. So of n sorted ratios
//! the k-th and the k-th from the end enclose the median unless fewer than k lie on one side of it. This has twice the
//! probability of fewer than k heads in n throws of a coin. The narrowest such interval with at least 90% confidence
//! is taken, and its confidence is printed with it. Fewer than five ratios have no such interval; then the least and
//! the largest ratio are given, with the confidence of that interval.

use std::fmt;

use serde_json::{Value as Json, json};

/// The least probability that an interval should hold with.
const CONFIDENCE: f64 = 0.9;

/// A median with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The median of the ratios.
    pub median: f64,
    /// The interval's lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// The probability that it holds the true median.
    pub confidence: f64,
}

/// How likely fewer than `k` heads are in `n` throws.
fn fewer_than(k: usize, n: usize) -> f64 {
    let (mut sum, mut ways) = (0.0, 1.0);
    for heads in 0..k {
        sum += ways;
        ways = ways * (n - heads) as f64 / (heads + 1) as f64;
    }
    sum / 2f64.powi(n as i32)
}

impl Interval {
    /// Of some ratios; `None` if there are none.
    pub fn of_median(ratios: &[f64]) -> Option<Interval> {
        let mut sorted = ratios.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let (first, last) = (*sorted.first()?, *sorted.last()?);
        let middle = |offset: usize| sorted[(n - offset) / 2];
        let confidence = |k| 1.0 - 2.0 * fewer_than(k, n);
        let narrowest = (1..=n / 2).rev().find(|k| confidence(*k) >= CONFIDENCE);
        let (low, high, confidence) = match narrowest {
            Some(k) => (sorted[k - 1], sorted[n - k], confidence(k)),
            None => (first, last, confidence(1).max(0.0)),
        };
        Some(Interval { median: f64::midpoint(middle(0).min(last), middle(1)), low, high, confidence })
    }

    /// For the result.
    pub fn json(&self) -> Json {
        json!({
            "median": self.median,
            "low": self.low,
            "high": self.high,
            "confidence": self.confidence,
        })
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Interval { median, low, high, confidence } = self;
        write!(f, "{median:.3}, {low:.3} to {high:.3} with {:.1}%", confidence * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_the_sign_tests() {
        let upto = |n: usize| (1..=n).rev().map(|ratio| ratio as f64).collect::<Vec<_>>();
        // The binomial tables: n, k-th from each end, confidence.
        for (n, low, high, confidence) in [
            (6, 1.0, 6.0, 0.968_75),
            (8, 2.0, 7.0, 0.929_687_5),
            (20, 6.0, 15.0, 0.958_610_5),
            (5, 1.0, 5.0, 0.9375),
        ] {
            let interval = Interval::of_median(&upto(n)).unwrap();
            assert_eq!((interval.low, interval.high), (low, high), "{n}");
            assert!((interval.confidence - confidence).abs() < 1e-6, "{n}: {interval:?}");
            assert_eq!(interval.median, (n + 1) as f64 / 2.0);
        }
    }

    #[test]
    fn few_ratios_say_how_little_they_hold() {
        let interval = Interval::of_median(&[1.0, 3.0]).unwrap();
        assert_eq!((interval.median, interval.low, interval.high, interval.confidence), (2.0, 1.0, 3.0, 0.5));
        assert_eq!(Interval::of_median(&[2.0]).unwrap().confidence, 0.0);
        assert_eq!(Interval::of_median(&[]), None);
    }

    #[test]
    fn an_interval_holds_as_often_as_it_says() {
        let mut random = rialto::io::Random::new(7);
        let trials = 4_000;
        let mut held = 0;
        for _ in 0..trials {
            // Skewed, with a true median of one half.
            let ratios: Vec<f64> =
                (0..8).map(|_| (random.below(1 << 20) as f64 / f64::from(1 << 20)).powi(3)).collect();
            let interval = Interval::of_median(&ratios).unwrap();
            held += u32::from((interval.low..=interval.high).contains(&0.125));
        }
        let share = f64::from(held) / f64::from(trials);
        assert!((0.915..0.945).contains(&share), "held in {share}, expected 0.93");
    }
}
