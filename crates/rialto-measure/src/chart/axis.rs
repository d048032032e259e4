//! The axes of a panel: how figures lie along them, where ticks are, and what is written there.

use std::ops::Range;

use plotters::coord::ranged1d::{BoldPoints, DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;

/// The most labels on a linear axis; on one of doublings they are at doublings, where there are some.
const LABELS: usize = 11;
/// The digits of each decade that have ticks.
const DIGITS: [f64; 3] = [1.0, 2.0, 5.0];

/// How figures lie along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences are equally far apart.
    Linear,
    /// Each step is a doubling.
    Doublings,
    /// Each decade is as long as any other; ticks are at 1, 2 and 5.
    Decades,
}

/// What the figures on an axis are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Numbers, or of a unit that the axis names.
    Plain,
    /// Microseconds, shown in a unit that fits.
    Microseconds,
}

impl Scale {
    /// Where a figure lies: on an axis on which equal steps are equally long.
    pub(super) fn place(self, figure: f64) -> f64 {
        match self {
            Scale::Linear => figure,
            Scale::Doublings => figure.max(f64::MIN_POSITIVE).log2(),
            Scale::Decades => figure.max(f64::MIN_POSITIVE).log10(),
        }
    }

    /// The figure at a place.
    fn figure(self, place: f64) -> f64 {
        match self {
            Scale::Linear => place,
            Scale::Doublings => place.exp2(),
            Scale::Decades => 10f64.powf(place),
        }
    }

    /// The places of ticks between two places.
    fn ticks(self, low: f64, high: f64) -> Vec<f64> {
        let even = |most| Ranged::key_points(&RangedCoordf64::from(low..high), BoldPoints(most));
        match self {
            Scale::Linear => even(LABELS),
            Scale::Doublings => even(((high - low) as usize + 1).max(4)),
            Scale::Decades => {
                let decades = low.floor() as i32..=high.floor() as i32;
                let ticks = decades.flat_map(|decade| DIGITS.map(|digit| digit.log10() + f64::from(decade)));
                ticks.filter(|tick| (low - 1e-9..=high + 1e-9).contains(tick)).collect()
            }
        }
    }

    /// What is written at a place.
    pub(super) fn label(self, place: f64, unit: Unit) -> String {
        let figure = self.figure(place);
        match (unit, self) {
            (Unit::Microseconds, _) => latency(figure),
            (Unit::Plain, Scale::Doublings) => doubling(figure),
            (Unit::Plain, _) => number(figure),
        }
    }
}

/// The places of an axis, with ticks of its own.
pub(super) struct Axis {
    places: RangedCoordf64,
    ticks: Vec<f64>,
}

impl Axis {
    /// From one place to another.
    pub fn new(scale: Scale, places: Range<f64>) -> Axis {
        let ticks = scale.ticks(places.start, places.end);
        Axis { places: places.into(), ticks }
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, limit: (i32, i32)) -> i32 {
        self.places.map(place, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.places.range()
    }
}

/// A number for an axis of doublings, between which there are labels, too.
fn doubling(value: f64) -> String {
    number(if value >= 10.0 { value.round() } else { value })
}

/// Microseconds, for an axis.
fn latency(us: f64) -> String {
    match us {
        us if us < 999.5 => format!("{} us", short(us)),
        us if us < 999_500.0 => format!("{} ms", short(us / 1e3)),
        us => format!("{} s", short(us / 1e6)),
    }
}

/// A number for an axis.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1e6 => format!("{}M", short(value / 1e6)),
        size if size >= 1e4 => format!("{}k", short(value / 1e3)),
        _ => short(value),
    }
}

/// With at most two digits behind the point, and no zeros there.
fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_on_axes_are_short() {
        let found = [0.0, 0.25, 30.0, 999.5, 12_000.0, 2_500_000.0].map(number);
        assert_eq!(found, ["0", "0.25", "30", "999.5", "12k", "2.5M"]);
        assert_eq!([0.5, 1.414, 90.51, 128.0].map(doubling), ["0.5", "1.41", "91", "128"]);
    }

    #[test]
    fn a_decade_is_as_long_as_any_other_and_has_its_ticks() {
        let ticks = |low: f64, high: f64| {
            let ticks = Scale::Decades.ticks(low.log10(), high.log10());
            ticks.into_iter().map(|tick| Scale::Decades.label(tick, Unit::Plain)).collect::<Vec<_>>()
        };
        assert_eq!(ticks(20.0, 1_000.0), ["20", "50", "100", "200", "500", "1000"]);
        assert!(ticks(30.0, 45.0).is_empty());
        let place = |figure| Scale::Decades.place(figure);
        assert!((place(100.0) - place(10.0) - (place(1_000.0) - place(100.0))).abs() < 1e-9);
        assert_eq!([85.0, 2_000.0, 2e6].map(latency), ["85 us", "2 ms", "2 s"]);
    }
}
