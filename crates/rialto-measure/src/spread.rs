//! [`Spread`]: the middle of some measurements, with their range.

use serde_json::{Value as Json, json};

/// The median of some measurements, the least and the most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Half are below; of an even number, the mean of the two in the middle.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// Of these; `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Some(Spread { median, least, most })
    }

    /// For the result.
    pub fn json(&self) -> Json {
        json!({ "median": self.median, "least": self.least, "most": self.most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_odd_and_even_numbers() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, least: 1.0, most: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]), Some(Spread { median: 2.5, least: 1.0, most: 4.0 }));
    }
}
