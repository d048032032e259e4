//! Pictures: panels of lines and points, and bars, as SVG.

mod axis;

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use self::axis::Axis;
pub use self::axis::{Scale, Unit};

/// The drawing library refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("drawing the picture: {0}")]
pub struct DrawingError(String);

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Measured: points, with a line through them.
    Measured,
    /// The paper's: open points.
    Paper,
    /// A formula: a thin line.
    Formula,
    /// A part of a whole, from the bottom up to the points; what is drawn later covers it.
    Area,
    /// Events: small dots without a line.
    Dots,
    /// A line without points, up to where it leaves the picture.
    Line(Dash),
    /// Points without a line, filled or hollow.
    Points(Shape, Fill),
}

/// How a line is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dash {
    /// ———
    Solid,
    /// – – –
    Dashed,
    /// · · ·
    Dotted,
}

impl Dash {
    /// Of a dash, and of the space behind it; none of a solid line.
    fn lengths(self) -> Option<(i32, i32)> {
        match self {
            Dash::Solid => None,
            Dash::Dashed => Some((9, 5)),
            Dash::Dotted => Some((2, 4)),
        }
    }
}

/// The shape of points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A circle.
    Circle,
    /// A triangle.
    Triangle,
}

/// What is inside points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// Their colour.
    Full,
    /// White.
    Hollow,
}

impl Fill {
    /// What is drawn for a point, one upon the other: sizes and colours.
    fn layers(self, colour: RGBColor) -> Vec<(i32, RGBColor)> {
        match self {
            Fill::Full => vec![(4, colour)],
            Fill::Hollow => vec![(4, colour), (2, WHITE)],
        }
    }
}

/// Where the legend is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Corner {
    /// Above, at the left.
    UpperLeft,
    /// Above, at the right.
    UpperRight,
}

/// A line straight up at a place of the horizontal axis, with a word at its foot.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// Where.
    pub x: f64,
    /// Which colour it has.
    pub colour: usize,
    /// What it is.
    pub label: String,
}

/// Points that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// For the legend; empty for none (and then no words beside the points).
    pub name: String,
    /// How it is drawn.
    pub look: Look,
    /// Which colour it has; series of one colour belong together.
    pub colour: usize,
    /// The points.
    pub points: Vec<(f64, f64)>,
    /// Words beside the points; none, or one for each.
    pub labels: Vec<String>,
}

impl Series {
    /// Without words beside the points.
    pub fn new(name: impl Into<String>, look: Look, colour: usize, points: Vec<(f64, f64)>) -> Series {
        Series { name: name.into(), look, colour, points, labels: Vec::new() }
    }
}

/// Series over common axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// Above it.
    pub title: String,
    /// Below the title, in smaller letters; empty for none.
    pub subtitle: String,
    /// The horizontal axis.
    pub x: String,
    /// The vertical axis; it begins at 0 unless `y_from` says otherwise.
    pub y: String,
    /// Where the vertical axis begins; above 0 unless it is linear.
    pub y_from: f64,
    /// Where the vertical axis ends; by the points if not said.
    pub y_to: Option<f64>,
    /// How the horizontal axis is divided.
    pub x_scale: Scale,
    /// How the vertical axis is divided.
    pub y_scale: Scale,
    /// What is on the vertical axis.
    pub y_unit: Unit,
    /// What is drawn.
    pub series: Vec<Series>,
    /// Places of the horizontal axis that are marked.
    pub marks: Vec<Mark>,
    /// Where the names of the series are.
    pub legend: Corner,
}

impl Panel {
    /// With linear axes.
    pub fn new(title: &str, x: &str, y: &str, series: Vec<Series>) -> Panel {
        Panel {
            title: title.to_owned(),
            subtitle: String::new(),
            x: x.to_owned(),
            y: y.to_owned(),
            y_from: 0.0,
            y_to: None,
            x_scale: Scale::Linear,
            y_scale: Scale::Linear,
            y_unit: Unit::Plain,
            series,
            marks: Vec::new(),
            legend: Corner::UpperRight,
        }
    }
}

/// A row of bars behind each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// Before it.
    pub label: String,
    /// The lengths of its parts.
    pub parts: Vec<f64>,
    /// Behind it.
    pub note: String,
    /// Whether it is the paper's.
    pub is_paper: bool,
}

/// What a picture shows.
#[derive(Debug, Clone, PartialEq)]
pub enum Picture {
    /// Panels, two in a row.
    Panels(Vec<Panel>),
    /// Bars, with the names of their parts.
    Bars {
        /// Above them.
        title: String,
        /// Of the parts; none for bars of one part.
        parts: Vec<String>,
        /// From top to bottom.
        bars: Vec<Bar>,
    },
}

const COLOURS: [RGBColor; 10] = [
    RGBColor(0x1f, 0x77, 0xb4),
    RGBColor(0xd6, 0x5f, 0x0e),
    RGBColor(0x2c, 0x8c, 0x2c),
    RGBColor(0x94, 0x67, 0xbd),
    RGBColor(0xb2, 0x22, 0x22),
    RGBColor(0x17, 0x8a, 0x9a),
    RGBColor(0x8c, 0x56, 0x4b),
    RGBColor(0x55, 0x55, 0x55),
    RGBColor(0xd4, 0xa0, 0x10),
    RGBColor(0xe3, 0x77, 0xc2),
];
const PANEL: (u32, u32) = (620, 400);
const TITLE_FONT: (&str, i32) = ("sans-serif", 15);
const FONT: (&str, i32) = ("sans-serif", 12);
const BAR: i32 = 24;
/// How much higher a panel is than its points, for the legend.
const LEGEND_ROOM: f64 = 1.4;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn colour(number: usize) -> RGBColor {
    COLOURS[number % COLOURS.len()]
}

fn failed(error: impl std::fmt::Display) -> DrawingError {
    DrawingError(error.to_string())
}

impl Picture {
    /// As an SVG document.
    ///
    /// # Errors
    /// What the drawing library refuses.
    pub fn svg(&self) -> Result<String, DrawingError> {
        let mut svg = String::new();
        match self {
            Picture::Panels(panels) => {
                let columns = panels.len().clamp(1, 2);
                let rows = panels.len().div_ceil(columns).max(1);
                let size = (PANEL.0 * columns as u32, PANEL.1 * rows as u32);
                let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
                root.fill(&WHITE).map_err(failed)?;
                for (panel, area) in panels.iter().zip(root.split_evenly((rows, columns))) {
                    panel.draw(&area)?;
                }
                root.present().map_err(failed)?;
            }
            Picture::Bars { title, parts, bars } => {
                let height = 70 + BAR * bars.len() as i32;
                let root = SVGBackend::with_string(&mut svg, (900, height as u32)).into_drawing_area();
                root.fill(&WHITE).map_err(failed)?;
                draw_bars(&root, title, parts, bars)?;
                root.present().map_err(failed)?;
            }
        }
        Ok(svg)
    }
}

/// The least and the most, with some room if there is one only.
fn range(figures: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = figures
        .filter(|figure| figure.is_finite())
        .fold((f64::MAX, f64::MIN), |(low, high), figure| (low.min(figure), high.max(figure)));
    match () {
        () if low > high => (0.0, 1.0),
        () if low == high => (low - 0.5, high + 0.5),
        () => (low, high),
    }
}

/// The part of a line that is not above `high`: with the point at which it leaves the picture.
fn below(points: &[(f64, f64)], high: f64) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    let mut before: Option<(f64, f64)> = None;
    for &(x, y) in points {
        if let Some((x_before, y_before)) = before
            && (y > high) != (y_before > high)
        {
            kept.push((x_before + (x - x_before) * (high - y_before) / (y - y_before), high));
        }
        if y <= high {
            kept.push((x, y));
        }
        before = Some((x, y));
    }
    kept
}

impl Panel {
    fn draw(&self, area: &Area<'_>) -> Result<(), DrawingError> {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let (x_scale, y_scale) = (self.x_scale, self.y_scale);
        let (x_low, x_high) = range(points().map(|point| x_scale.place(point.0)));
        let y_low = y_scale.place(self.y_from);
        let (_, y_high) = range(points().map(|point| y_scale.place(point.1)));
        let y_high = self.y_to.map_or(y_low + (y_high - y_low) * LEGEND_ROOM, |y_to| y_scale.place(y_to));
        let room = (x_high - x_low) * 0.04;
        let (x_low, x_high) = (x_low - room, x_high + room);
        let mut builder;
        let inner;
        if self.subtitle.is_empty() {
            builder = ChartBuilder::on(area);
            builder.caption(&self.title, TITLE_FONT);
        } else {
            inner = area.titled(&self.title, TITLE_FONT).and_then(|area| area.titled(&self.subtitle, FONT));
            builder = ChartBuilder::on(inner.as_ref().map_err(failed)?);
        }
        let mut chart = builder
            .margin(10)
            .x_label_area_size(38)
            .y_label_area_size(58)
            .build_cartesian_2d(Axis::new(x_scale, x_low..x_high), Axis::new(y_scale, y_low..y_high))
            .map_err(failed)?;
        chart
            .configure_mesh()
            .x_desc(&self.x)
            .y_desc(&self.y)
            .label_style(FONT)
            .axis_desc_style(FONT)
            .light_line_style(WHITE)
            .x_label_formatter(&|x| x_scale.label(*x, Unit::Plain))
            .y_label_formatter(&|y| y_scale.label(*y, self.y_unit))
            .draw()
            .map_err(failed)?;
        for mark in &self.marks {
            let (x, colour) = (x_scale.place(mark.x), colour(mark.colour));
            let line = PathElement::new([(x, y_low), (x, y_high)], colour.mix(0.6).stroke_width(1));
            // Inside the picture near its right edge, too.
            let side = if x > f64::midpoint(x_low, x_high) { HPos::Right } else { HPos::Left };
            let style = FONT.into_font().color(&colour).pos(Pos::new(side, VPos::Bottom));
            let word = Text::new(format!(" {} ", mark.label), (x, y_low), style);
            chart.draw_series([line]).map_err(failed)?;
            chart.draw_series([word]).map_err(failed)?;
        }
        for series in &self.series {
            let colour = colour(series.colour);
            let all: Vec<(f64, f64)> =
                series.points.iter().map(|(x, y)| (x_scale.place(*x), y_scale.place(*y))).collect();
            let inside = |point: &&(f64, f64)| point.1 >= y_low && point.1 <= y_high;
            let at: Vec<(f64, f64)> = all.iter().filter(inside).copied().collect();
            let drawn = match series.look {
                Look::Measured => {
                    let line = LineSeries::new(at.iter().copied(), colour.stroke_width(2)).point_size(3);
                    chart.draw_series(line).map_err(failed)?
                }
                Look::Formula => {
                    let line = DashedLineSeries::new(at.iter().copied(), 5, 4, colour.stroke_width(1));
                    chart.draw_series(line).map_err(failed)?
                }
                Look::Paper => chart
                    .draw_series(at.iter().map(|point| Circle::new(*point, 5, colour.stroke_width(2))))
                    .map_err(failed)?,
                Look::Area => chart.draw_series(area_of(&at, y_low, colour)).map_err(failed)?,
                Look::Dots => chart
                    .draw_series(at.iter().map(|point| Circle::new(*point, 2, colour.filled())))
                    .map_err(failed)?,
                Look::Line(dash) => {
                    let (line, style) = (below(&all, y_high), colour.stroke_width(2));
                    match dash.lengths() {
                        None => chart.draw_series(LineSeries::new(line, style)),
                        Some((size, spacing)) => {
                            chart.draw_series(DashedLineSeries::new(line, size, spacing, style))
                        }
                    }
                    .map_err(failed)?
                }
                Look::Points(shape, fill) => {
                    for (size, colour) in fill.layers(colour) {
                        match shape {
                            Shape::Circle => chart.draw_series(
                                at.iter().map(|point| Circle::new(*point, size, colour.filled())),
                            ),
                            Shape::Triangle => chart.draw_series(
                                at.iter().map(|point| TriangleMarker::new(*point, size, colour.filled())),
                            ),
                        }
                        .map_err(failed)?;
                    }
                    chart.draw_series(std::iter::empty::<Circle<(f64, f64), i32>>()).map_err(failed)?
                }
            };
            if series.name.is_empty() {
                continue;
            }
            drawn.label(&series.name).legend(move |(x, y)| match series.look {
                Look::Paper => Circle::new((x + 9, y), 4, colour.stroke_width(2)).into_dyn(),
                Look::Formula => PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(1)).into_dyn(),
                Look::Measured => PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(3)).into_dyn(),
                Look::Area => Rectangle::new([(x, y - 5), (x + 18, y + 5)], colour.filled()).into_dyn(),
                Look::Dots => Circle::new((x + 9, y), 3, colour.filled()).into_dyn(),
                Look::Line(dash) => {
                    let (ends, style) = ([(x, y), (x + 18, y)], colour.stroke_width(2));
                    match dash.lengths() {
                        None => PathElement::new(ends, style).into_dyn(),
                        Some((size, spacing)) => {
                            DashedPathElement::new(ends, size, spacing, style).into_dyn()
                        }
                    }
                }
                Look::Points(Shape::Circle, _) => Circle::new((x + 9, y), 4, colour.filled()).into_dyn(),
                Look::Points(Shape::Triangle, _) => {
                    TriangleMarker::new((x + 9, y), 4, colour.filled()).into_dyn()
                }
            });
            let words = at.iter().zip(&series.labels);
            let style = FONT.into_font().color(&colour);
            chart
                .draw_series(words.map(|(point, label)| {
                    EmptyElement::at(*point) + Text::new(label.clone(), (6, -14), style.clone())
                }))
                .map_err(failed)?;
        }
        if self.series.iter().all(|series| series.name.is_empty()) {
            return Ok(());
        }
        chart
            .configure_series_labels()
            .position(match self.legend {
                Corner::UpperLeft => SeriesLabelPosition::UpperLeft,
                Corner::UpperRight => SeriesLabelPosition::UpperRight,
            })
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .label_font(FONT)
            .draw()
            .map_err(failed)
    }
}

/// What lies under the points; nothing under one alone.
fn area_of(points: &[(f64, f64)], bottom: f64, colour: RGBColor) -> Option<Polygon<(f64, f64)>> {
    let (first, last) = (points.first()?, points.last()?);
    let mut corners = points.to_vec();
    corners.extend([(last.0, bottom), (first.0, bottom)]);
    Some(Polygon::new(corners, colour.filled()))
}

/// Parts of a whole over a common axis, one upon the other from the first: for each point its place on the axis and its
/// parts. The series are in the order in which they are to be drawn.
pub fn stacked<const N: usize>(names: [&str; N], points: &[(f64, [f64; N])]) -> Vec<Series> {
    let top = |parts: &[f64; N], number: usize| parts[..=number].iter().sum::<f64>();
    let series = |(number, name)| {
        let tops = points.iter().map(|(x, parts)| (*x, top(parts, number))).collect();
        Series::new(name, Look::Area, number, tops)
    };
    names.into_iter().enumerate().rev().map(series).collect()
}

fn draw_bars(area: &Area<'_>, title: &str, parts: &[String], bars: &[Bar]) -> Result<(), DrawingError> {
    let (left, width) = (250, 480.0);
    let most = bars.iter().map(|bar| bar.parts.iter().sum::<f64>()).fold(f64::MIN_POSITIVE, f64::max);
    let text = |words: &str, at: (i32, i32), h: HPos, size: i32| {
        let style = ("sans-serif", size).into_font().color(&BLACK).pos(Pos::new(h, VPos::Center));
        area.draw(&Text::new(words.to_owned(), at, style)).map_err(failed)
    };
    text(title, (10, 18), HPos::Left, 15)?;
    let width_of = |part: &String| 40 + 7 * part.len() as i32;
    // Above the bars, or as far to the left as it takes.
    let mut at = left.min(900 - parts.iter().map(width_of).sum::<i32>()).max(10);
    for (number, part) in parts.iter().enumerate() {
        let square = Rectangle::new([(at, 36), (at + 12, 48)], colour(number).filled());
        area.draw(&square).map_err(failed)?;
        text(part, (at + 17, 43), HPos::Left, 12)?;
        at += width_of(part);
    }
    for (row, bar) in bars.iter().enumerate() {
        let y = 60 + BAR * row as i32;
        text(&bar.label, (left - 8, y + BAR / 2), HPos::Right, 12)?;
        let mut from = 0.0;
        for (number, part) in bar.parts.iter().enumerate() {
            let x = |length: f64| left + (length / most * width) as i32;
            let corners = [(x(from), y + 4), (x(from + part), y + BAR - 4)];
            let shown = colour(if parts.is_empty() { usize::from(bar.is_paper) } else { number });
            let style = if bar.is_paper { shown.mix(0.55).filled() } else { shown.mix(1.0).filled() };
            area.draw(&Rectangle::new(corners, style)).map_err(failed)?;
            from += part;
        }
        let end = left + (from / most * width) as i32;
        text(&bar.note, (end + 8, y + BAR / 2), HPos::Left, 12)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_its_series_and_their_names() {
        let series = vec![
            Series::new("measured", Look::Measured, 0, vec![(1.0, 10.0), (2.0, 20.0), (4.0, 15.0)]),
            Series::new("the paper's", Look::Paper, 1, vec![(2.0, 18.0)]),
            Series::new("a formula", Look::Formula, 2, vec![(1.0, 9.0), (4.0, 90.0)]),
            Series::new("events", Look::Dots, 3, vec![(1.0, 3.0), (3.0, 4.0)]),
        ];
        let panel = Panel { x_scale: Scale::Doublings, ..Panel::new("A title", "servers", "TPS", series) };
        let svg = Picture::Panels(vec![panel.clone(), panel]).svg().unwrap();
        for word in
            ["<svg", "A title", "measured", "paper", "a formula", "events", "servers", "TPS", "<circle"]
        {
            assert!(svg.contains(word), "{word} is missing in {svg}");
        }
        // Nothing at all, and a single point, are pictures, too.
        for points in [vec![], vec![(1.0, 1.0)]] {
            let series = vec![Series::new("few", Look::Measured, 0, points)];
            Picture::Panels(vec![Panel::new("t", "x", "y", series)]).svg().unwrap();
        }
    }

    #[test]
    fn parts_are_stacked_from_the_first_and_drawn_from_the_last() {
        let series = stacked(["work", "waits"], &[(1.0, [80.0, 20.0]), (2.0, [30.0, 70.0])]);
        let drawn: Vec<_> = series.iter().map(|series| (&*series.name, series.points.clone())).collect();
        let whole = ("waits", vec![(1.0, 100.0), (2.0, 100.0)]);
        assert_eq!(drawn, [whole, ("work", vec![(1.0, 80.0), (2.0, 30.0)])]);
        let svg = Picture::Panels(vec![Panel::new("t", "x", "y", series)]).svg().unwrap();
        assert_eq!(svg.matches("<polygon").count(), 2, "{svg}");
    }

    #[test]
    fn bars_have_their_labels_and_notes() {
        let bar = |label: &str, is_paper| Bar {
            label: label.to_owned(),
            parts: vec![1.0, 2.0],
            note: format!("{label} note"),
            is_paper,
        };
        let bars = vec![bar("ours", false), bar("theirs", true)];
        let parts = vec!["start".to_owned(), "commit".to_owned()];
        let svg = Picture::Bars { title: "Phases".to_owned(), parts, bars }.svg().unwrap();
        for word in ["Phases", "ours", "theirs note", "start", "commit"] {
            assert!(svg.contains(word), "{word} is missing in {svg}");
        }
    }

    #[test]
    fn a_line_ends_where_it_leaves_the_picture() {
        assert_eq!(below(&[(0.0, 1.0), (2.0, 5.0), (3.0, 9.0)], 3.0), [(0.0, 1.0), (1.0, 3.0)]);
        assert_eq!(below(&[(0.0, 1.0), (1.0, 2.0)], 3.0), [(0.0, 1.0), (1.0, 2.0)]);
        assert_eq!(below(&[], 3.0), []);
    }

    #[test]
    fn lines_points_and_marks_are_drawn_over_decades() {
        let points = vec![(10.0, 10.0), (100.0, 100.0), (1_000.0, 5_000.0)];
        let of = |look| Series::new("", look, 0, points.clone());
        let panel = Panel {
            subtitle: "of a test".to_owned(),
            x_scale: Scale::Decades,
            y_scale: Scale::Decades,
            y_unit: Unit::Microseconds,
            y_from: 10.0,
            y_to: Some(1_000.0),
            marks: vec![Mark { x: 100.0, colour: 1, label: "the middle".to_owned() }],
            legend: Corner::UpperLeft,
            ..Panel::new(
                "A title",
                "load",
                "latency",
                vec![
                    of(Look::Line(Dash::Dotted)),
                    of(Look::Points(Shape::Circle, Fill::Full)),
                    of(Look::Points(Shape::Triangle, Fill::Hollow)),
                    Series::new("p50", Look::Line(Dash::Solid), 1, Vec::new()),
                ],
            )
        };
        let svg = Picture::Panels(vec![panel]).svg().unwrap();
        for word in ["A title", "of a test", "the middle", "p50", "500 us"] {
            assert!(svg.contains(word), "{word} is missing in {svg}");
        }
        // The third point is above the picture; a hollow one is of two.
        assert_eq!((svg.matches("<circle").count(), svg.matches("<polygon").count()), (2, 4), "{svg}");
    }
}
