//! The picture of a [`Curve`]: Rialto and the best peer, p50, p99 and p99.9.

use rialto_measure::histogram::Percentiles;
use rialto_measure::text::thousands;

use crate::chart::{Axis, COLOURS, Chart, Dash, Line, Mark, Point, Shape};
use crate::curve::{self, Curve};

/// A percentile.
type Pick = fn(&Percentiles) -> f64;

/// The percentiles that are drawn.
const PERCENTILES: [(&str, Dash, Pick); 3] = [
    ("p50", Dash::Solid, |latency| latency.p50_us),
    ("p99", Dash::Dashed, |latency| latency.p99_us),
    ("p99.9", Dash::Dotted, |latency| latency.p999_us),
];
/// The highest latency that is drawn is so many times the highest of an engine that keeps up: what goes on beyond that is
/// a line that leaves the picture.
const ROOM: f64 = 3.0;

fn load(value: f64) -> String {
    if value < 1_000.0 { format!("{value:.0}") } else { format!("{:.0}k", value / 1e3) }
}

fn latency(us: f64) -> String {
    match us {
        us if us < 999.5 => format!("{us:.0} us"),
        us if us < 999_500.0 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.0} s", us / 1e6),
    }
}

/// The least and the most of some figures.
fn range(figures: impl Iterator<Item = f64>) -> Option<[f64; 2]> {
    figures.fold(None, |range, figure| match range {
        None => Some([figure; 2]),
        Some([least, most]) => Some([figure.min(least), figure.max(most)]),
    })
}

fn line(line: &curve::Line, number: usize, (dash, of): (Dash, Pick)) -> Line {
    let point = |point: &curve::Point| Point {
        x: point.offered_per_s,
        y: of(&point.latency),
        hollow: point.is_saturated(),
    };
    Line {
        colour: COLOURS[number],
        dash,
        shape: [Shape::Circle, Shape::Square][number],
        points: line.points.iter().map(point).collect(),
    }
}

/// Draws it; `None` if there is nothing to draw.
pub fn draw(curve: &Curve) -> Option<Chart> {
    let best = curve.best();
    let points = || best.iter().flat_map(|line| &line.points);
    let [x_low, x_high] = range(points().map(|point| point.offered_per_s))?;
    let [y_low, _] = range(points().map(|point| point.latency.p50_us))?;
    let kept_up = points().filter(|point| !point.is_saturated()).map(|point| point.latency.p999_us);
    let [_, y_high] = range(kept_up).or(range(points().map(|point| point.latency.p50_us)))?;
    let mut legend = Vec::new();
    let mut lines = Vec::new();
    let mut marks = Vec::new();
    for (number, one) in best.iter().enumerate() {
        let shape = [Shape::Circle, Shape::Square][number];
        let of = match (number, curve.lines.len()) {
            (1, count @ 3..) => format!(", the best of {} peers", count - 1),
            _ => String::new(),
        };
        legend.push((COLOURS[number], Dash::Solid, Some(shape), format!("{}{of}", one.engine)));
        lines.extend(PERCENTILES.map(|(_, dash, of)| line(one, number, (dash, of))));
        let label = format!("{} in a closed loop: {}/s", one.engine, thousands(one.peak_per_s));
        marks.push(Mark { x: one.peak_per_s, colour: COLOURS[number], label });
    }
    let black = "#333333";
    legend.extend(PERCENTILES.map(|(name, dash, _)| (black, dash, None, name.to_owned())));
    Some(Chart {
        title: format!("Latency against offered load: TPC-B on disk, {} clients", curve.clients),
        subtitle: format!("{}; {}", curve.shape, curve.machine),
        legend,
        x: Axis {
            label: "offered load, transactions/s (hollow points: the engine did not keep up)",
            low: x_low / 1.15,
            high: x_high * 1.15,
            tick: load,
            digits: &[1.0, 2.0, 5.0],
        },
        y: Axis {
            label: "latency from the intended start",
            low: y_low / 1.5,
            high: y_high * ROOM,
            tick: latency,
            digits: &[1.0, 2.0, 5.0],
        },
        lines,
        marks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::tests::elements;
    use crate::curve::tests::curve;

    #[test]
    fn rialto_and_the_best_peer_are_drawn_with_three_percentiles_each() {
        let curve = curve();
        let chart = draw(&curve).unwrap();
        assert_eq!((chart.lines.len(), chart.marks.len()), (6, 2));
        assert_eq!([chart.marks[0].x, chart.marks[1].x], [108_000.0, 7_000.0]);
        let svg = chart.svg();
        assert_eq!(elements(&svg)["polyline"], 6);
        for word in
            ["p99.9", "sqlite, the best of 2 peers", "a machine", "intended start", "108,000/s", "100k"]
        {
            assert!(svg.contains(word), "{word} is missing in {svg}");
        }
        assert!(!svg.contains("redb"), "{svg}");
        // Engines and percentiles are told apart without colours.
        let mut looks: Vec<_> =
            chart.lines.iter().map(|line| format!("{:?} {:?}", line.dash, line.shape)).collect();
        looks.sort();
        looks.dedup();
        assert_eq!(looks.len(), 6);
    }

    #[test]
    fn what_does_not_keep_up_is_hollow_and_leaves_the_picture() {
        let chart = draw(&curve()).unwrap();
        for line in &chart.lines {
            let (first, last) = (line.points.first().unwrap(), line.points.last().unwrap());
            assert!(!first.hollow && last.hollow && last.y > chart.y.high, "{line:?}");
            assert!(first.y < chart.y.high && first.y > chart.y.low, "{line:?}");
        }
        let empty = Curve { lines: Vec::new(), ..curve() };
        assert!(draw(&empty).is_none());
    }
}
