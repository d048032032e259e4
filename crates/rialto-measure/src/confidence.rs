//! [`Confidence`]: a mean with its confidence interval, by the method of batch means.
//!
//! Response times that follow each other are correlated, because they waited in the same queue or for the same sweep.
//! So their variance alone gives too narrow an interval. The window is cut into batches of equal time that are long
//! against that; the batches' means are nearly independent and normal, and Student's t gives the interval that holds
//! the true mean with 90% (System M, table 4.3).

use std::fmt;

use serde_json::{Value as Json, json};

/// Batches of a window.
pub const BATCHES: usize = 20;

/// A mean with its 90% confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Confidence {
    /// Of everything.
    pub mean: f64,
    /// The interval's lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// How many batches it is of.
    pub batches: usize,
}

/// The 95th percentiles of Student's t, for 1 to 29 degrees of freedom.
const T_95: [f64; 29] = [
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753,
    1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699,
];
/// For more.
const NORMAL_95: f64 = 1.645;

impl Confidence {
    /// Of the means of batches, of which `mean` is the mean of everything; `None` for fewer than two.
    pub fn of(mean: f64, batches: &[f64]) -> Option<Confidence> {
        let n = batches.len();
        let degrees = n.checked_sub(1).filter(|degrees| *degrees > 0)?;
        let center = batches.iter().sum::<f64>() / n as f64;
        let variance = batches.iter().map(|batch| (batch - center).powi(2)).sum::<f64>() / degrees as f64;
        let t = T_95.get(degrees - 1).copied().unwrap_or(NORMAL_95);
        let half = t * (variance / n as f64).sqrt();
        Some(Confidence { mean, low: mean - half, high: mean + half, batches: n })
    }

    /// Of means that count alike.
    pub fn of_means(means: &[f64]) -> Option<Confidence> {
        Confidence::of(means.iter().sum::<f64>() / means.len().max(1) as f64, means)
    }

    /// For the result.
    pub fn json(&self) -> Json {
        json!({
            "mean": self.mean,
            "low": self.low,
            "high": self.high,
            "confidence": 0.9,
            "batches": (self.batches as u64),
        })
    }
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Confidence { mean, low, high, batches } = self;
        write!(f, "mean {mean:.1} us, {low:.1} to {high:.1} us with 90% ({batches} batch means)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_students() {
        // By hand: the mean 12, the variance 10, t of 4 degrees 2.132, so 2.132 times the root of 2.
        let found = Confidence::of_means(&[8.0, 10.0, 12.0, 14.0, 16.0]).unwrap();
        assert!(
            (found.mean - 12.0).abs() < 1e-9 && (found.high - found.mean - 3.0151).abs() < 1e-3,
            "{found:?}"
        );
        assert_eq!(Confidence::of(1.0, &[1.0]), None);
        assert_eq!(Confidence::of_means(&[]), None);
    }

    #[test]
    fn an_interval_holds_as_often_as_it_says() {
        let mut random = rialto::io::Random::new(3);
        let trials = 4_000;
        let mut held = 0;
        for _ in 0..trials {
            // Nearly normal, with a mean of 6.
            let mut batch =
                || (0..12).map(|_| random.below(1 << 20) as f64 / f64::from(1 << 20)).sum::<f64>();
            let batches: [f64; BATCHES] = std::array::from_fn(|_| batch());
            let found = Confidence::of_means(&batches).unwrap();
            held += u32::from((found.low..=found.high).contains(&6.0));
        }
        let share = f64::from(held) / f64::from(trials);
        assert!((0.88..0.92).contains(&share), "held in {share}, expected 0.9");
    }
}
