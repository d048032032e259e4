//! The picture of a [`Curve`]: Rialto and the best peer, p50, p99 and p99.9.

use rialto_measure::chart::{Corner, Dash, Fill, Look, Mark, Panel, Picture, Scale, Series, Shape, Unit};
use rialto_measure::histogram::Percentiles;
use rialto_measure::text::thousands;

use crate::curve::{self, Curve};

/// A percentile.
type Pick = fn(&Percentiles) -> f64;

/// The percentiles that are drawn.
const PERCENTILES: [(&str, Dash, Pick); 3] = [
    ("p50", Dash::Solid, |latency| latency.p50_us),
    ("p99", Dash::Dashed, |latency| latency.p99_us),
    ("p99.9", Dash::Dotted, |latency| latency.p999_us),
];
/// The shapes of the points of the two engines; their numbers are their colours.
const SHAPES: [Shape; 2] = [Shape::Circle, Shape::Triangle];
/// The colour of what is of both engines: grey.
const BOTH: usize = 7;
/// The highest latency that is drawn is so many times the highest of an engine that keeps up: what goes on beyond that is
/// a line that leaves the picture.
const ROOM: f64 = 3.0;

/// The least and the most of some figures.
fn range(figures: impl Iterator<Item = f64>) -> Option<[f64; 2]> {
    figures.fold(None, |range, figure| match range {
        None => Some([figure; 2]),
        Some([least, most]) => Some([figure.min(least), figure.max(most)]),
    })
}

/// A percentile of one engine: its line, its points, and those at which it did not keep up.
fn series(line: &curve::Line, number: usize, (dash, of): (Dash, Pick)) -> [Series; 3] {
    let at = |point: &curve::Point| (point.offered_per_s, of(&point.latency));
    let points = |fill: Fill| {
        let is_hollow = fill == Fill::Hollow;
        let points = line.points.iter().filter(|point| point.is_saturated() == is_hollow).map(at).collect();
        Series::new("", Look::Points(SHAPES[number], fill), number, points)
    };
    let all = line.points.iter().map(at).collect();
    [Series::new("", Look::Line(dash), number, all), points(Fill::Full), points(Fill::Hollow)]
}

/// What is drawn; `None` if there is nothing to draw.
fn panel(curve: &Curve) -> Option<Panel> {
    let best = curve.best();
    let points = || best.iter().flat_map(|line| &line.points);
    let [y_low, _] = range(points().map(|point| point.latency.p50_us))?;
    let kept_up = points().filter(|point| !point.is_saturated()).map(|point| point.latency.p999_us);
    let [_, y_high] = range(kept_up).or(range(points().map(|point| point.latency.p50_us)))?;
    let (mut names, mut lines, mut marks) = (Vec::new(), Vec::new(), Vec::new());
    for (number, one) in best.iter().enumerate() {
        let of = match (number, curve.lines.len()) {
            (1, count @ 3..) => format!(", the best of {} peers", count - 1),
            _ => String::new(),
        };
        let look = Look::Points(SHAPES[number], Fill::Full);
        names.push(Series::new(format!("{}{of}", one.engine), look, number, Vec::new()));
        lines.extend(PERCENTILES.into_iter().flat_map(|(_, dash, of)| series(one, number, (dash, of))));
        let label = format!("{} in a closed loop: {}/s", one.engine, thousands(one.peak_per_s));
        marks.push(Mark { x: one.peak_per_s, colour: number, label });
    }
    names.extend(PERCENTILES.map(|(name, dash, _)| Series::new(name, Look::Line(dash), BOTH, Vec::new())));
    Some(Panel {
        subtitle: format!("{}; {}", curve.shape, curve.machine),
        x_scale: Scale::Decades,
        y_scale: Scale::Decades,
        y_unit: Unit::Microseconds,
        y_from: y_low / 1.5,
        y_to: Some(y_high * ROOM),
        marks,
        legend: Corner::UpperLeft,
        ..Panel::new(
            &format!("Latency against offered load: TPC-B on disk, {} clients", curve.clients),
            "offered load, transactions/s (hollow points: the engine did not keep up)",
            "latency from the intended start",
            lines.into_iter().chain(names).collect(),
        )
    })
}

/// Draws it; `None` if there is nothing to draw.
pub fn draw(curve: &Curve) -> Option<Picture> {
    Some(Picture::Panels(vec![panel(curve)?]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::tests::curve;

    #[test]
    fn rialto_and_the_best_peer_are_drawn_with_three_percentiles_each() {
        let panel = panel(&curve()).unwrap();
        let lines = || panel.series.iter().filter(|series| series.name.is_empty());
        assert_eq!((lines().count(), panel.marks.len()), (18, 2));
        assert_eq!([panel.marks[0].x, panel.marks[1].x], [108_000.0, 7_000.0]);
        let svg = draw(&curve()).unwrap().svg().unwrap();
        for word in
            ["p99.9", "sqlite, the best of 2 peers", "a machine", "intended start", "108,000/s", "100k"]
        {
            assert!(svg.contains(word), "{word} is missing in {svg}");
        }
        assert!(!svg.contains("redb"), "{svg}");
        // Engines and percentiles are told apart without colours.
        let mut looks: Vec<_> = lines().map(|series| format!("{:?}", series.look)).collect();
        looks.sort();
        looks.dedup();
        assert_eq!(looks.len(), 3 + 4);
    }

    #[test]
    fn what_does_not_keep_up_is_hollow_and_leaves_the_picture() {
        let panel = panel(&curve()).unwrap();
        let y_to = panel.y_to.unwrap();
        for series in panel.series.iter().filter(|series| series.name.is_empty()) {
            let (first, last) = (series.points.first().unwrap(), series.points.last().unwrap());
            match series.look {
                Look::Line(_) => assert!(first.1 > panel.y_from && first.1 < y_to && last.1 > y_to),
                Look::Points(_, Fill::Full) => assert!(last.1 < y_to, "{series:?}"),
                Look::Points(_, Fill::Hollow) => assert!(first.1 > y_to, "{series:?}"),
                other => panic!("{other:?}"),
            }
        }
        let empty = Curve { lines: Vec::new(), ..curve() };
        assert!(draw(&empty).is_none());
    }
}
