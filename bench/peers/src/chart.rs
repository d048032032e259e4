//! [`Chart`]: lines over two logarithmic axes, as SVG.
//!
//! Colours are Okabe and Ito's, told apart by colour-blind readers too; what else tells lines apart is their dashes and the
//! shape of their points, so a print without colours can be read.

use std::fmt::Write;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 600.0;
/// The plot's edges.
const LEFT: f64 = 84.0;
const RIGHT: f64 = 936.0;
const TOP: f64 = 120.0;
const BOTTOM: f64 = 530.0;
const GREY: &str = "#555555";

/// The colours of series, in the order in which they should be used.
pub const COLOURS: [&str; 4] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7"];

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
    const fn attribute(self) -> &'static str {
        match self {
            Dash::Solid => "",
            Dash::Dashed => r#" stroke-dasharray="9 5""#,
            Dash::Dotted => r#" stroke-dasharray="2 4""#,
        }
    }
}

/// The shape of a line's points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A circle.
    Circle,
    /// A square.
    Square,
}

/// A point of a line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Across, above 0.
    pub x: f64,
    /// Up, above 0.
    pub y: f64,
    /// Drawn hollow.
    pub hollow: bool,
}

/// A line.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// One of [`COLOURS`].
    pub colour: &'static str,
    /// How it is drawn.
    pub dash: Dash,
    /// How its points are.
    pub shape: Shape,
    /// From left to right.
    pub points: Vec<Point>,
}

/// A line straight up, with a word at its top.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// Where.
    pub x: f64,
    /// One of [`COLOURS`].
    pub colour: &'static str,
    /// What it is.
    pub label: String,
}

/// An axis.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    /// What it measures, with its unit.
    pub label: &'static str,
    /// Where it begins, above 0.
    pub low: f64,
    /// Where it ends.
    pub high: f64,
    /// What a tick is called.
    pub tick: fn(f64) -> String,
    /// In each decade there are ticks at these digits.
    pub digits: &'static [f64],
}

/// A picture.
#[derive(Debug, Clone)]
pub struct Chart {
    /// The first line, in larger letters.
    pub title: String,
    /// The second.
    pub subtitle: String,
    /// Entries of the legend: colour, dash, shape if it has points, and what it says.
    pub legend: Vec<(&'static str, Dash, Option<Shape>, String)>,
    /// Across.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// The lines.
    pub lines: Vec<Line>,
    /// The marks.
    pub marks: Vec<Mark>,
}

impl Axis {
    /// How far along it a value lies: 0 at its begin, 1 at its end.
    fn part(&self, value: f64) -> f64 {
        (value / self.low).ln() / (self.high / self.low).ln()
    }

    /// Where the ticks are.
    fn ticks(&self) -> Vec<f64> {
        let mut ticks = Vec::new();
        let mut decade = 10f64.powf(self.low.log10().floor());
        while decade <= self.high {
            let inside = |tick: &f64| (self.low * 0.999..=self.high * 1.001).contains(tick);
            ticks.extend(self.digits.iter().map(|digit| digit * decade).filter(inside));
            decade *= 10.0;
        }
        ticks
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Writes elements, one a line.
struct Svg(String);

impl Svg {
    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{element}").expect("a string takes all");
    }

    fn line(&mut self, [x1, y1, x2, y2]: [f64; 4], style: &str) {
        self.put(format_args!(r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" {style}/>"#));
    }

    fn text(&mut self, [x, y]: [f64; 2], style: &str, text: &str) {
        self.put(format_args!(r#"<text x="{x:.1}" y="{y:.1}" {style}>{}</text>"#, escaped(text)));
    }

    fn point(&mut self, [x, y]: [f64; 2], shape: Shape, colour: &str, hollow: bool) {
        let fill = if hollow { "white" } else { colour };
        let style = format!(r#"fill="{fill}" stroke="{colour}" stroke-width="1.5""#);
        match shape {
            Shape::Circle => self.put(format_args!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.6" {style}/>"#)),
            Shape::Square => self.put(format_args!(
                r#"<rect x="{:.1}" y="{:.1}" width="6.6" height="6.6" {style}/>"#,
                x - 3.3,
                y - 3.3
            )),
        }
    }
}

impl Chart {
    fn across(&self, x: f64) -> f64 {
        LEFT + self.x.part(x) * (RIGHT - LEFT)
    }

    fn up(&self, y: f64) -> f64 {
        BOTTOM - self.y.part(y) * (BOTTOM - TOP)
    }

    /// The picture as an SVG document.
    pub fn svg(&self) -> String {
        let mut svg = Svg(String::new());
        svg.put(format_args!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="Helvetica, Arial, sans-serif" font-size="13">"#
        ));
        svg.put(format_args!("<title>{}</title>", escaped(&self.title)));
        svg.put(format_args!(r#"<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>"#));
        svg.put(format_args!(
            r#"<clipPath id="plot"><rect x="{LEFT}" y="{TOP}" width="{:.1}" height="{:.1}"/></clipPath>"#,
            RIGHT - LEFT,
            BOTTOM - TOP
        ));
        svg.text([LEFT, 28.0], r#"font-size="18" font-weight="bold""#, &self.title);
        svg.text([LEFT, 48.0], &format!(r#"fill="{GREY}""#), &self.subtitle);
        self.axes(&mut svg);
        self.marks(&mut svg);
        for line in &self.lines {
            self.line(&mut svg, line);
        }
        self.legend(&mut svg);
        svg.put(format_args!("</svg>"));
        svg.0
    }

    fn axes(&self, svg: &mut Svg) {
        let grid = r##"stroke="#e4e4e4""##;
        for tick in self.x.ticks() {
            let x = self.across(tick);
            svg.line([x, TOP, x, BOTTOM], grid);
            svg.text([x, BOTTOM + 20.0], r#"text-anchor="middle""#, &(self.x.tick)(tick));
        }
        for tick in self.y.ticks() {
            let y = self.up(tick);
            svg.line([LEFT, y, RIGHT, y], grid);
            svg.text([LEFT - 8.0, y + 4.5], r#"text-anchor="end""#, &(self.y.tick)(tick));
        }
        let axis = format!(r#"stroke="{GREY}""#);
        svg.line([LEFT, BOTTOM, RIGHT, BOTTOM], &axis);
        svg.line([LEFT, TOP, LEFT, BOTTOM], &axis);
        let middle = f64::midpoint(LEFT, RIGHT);
        svg.text([middle, BOTTOM + 46.0], r#"text-anchor="middle" font-size="14""#, self.x.label);
        let middle = f64::midpoint(TOP, BOTTOM);
        let turned = format!(r#"text-anchor="middle" font-size="14" transform="rotate(-90 18 {middle:.1})""#);
        svg.text([18.0, middle], &turned, self.y.label);
    }

    fn marks(&self, svg: &mut Svg) {
        for Mark { x, colour, label } in &self.marks {
            let part = self.x.part(*x);
            let x = self.across(*x);
            svg.line([x, TOP, x, BOTTOM], &format!(r#"stroke="{colour}" stroke-width="1" opacity="0.6""#));
            // Inside the picture near its edges, too.
            let anchor = match part {
                ..0.15 => "start",
                0.85.. => "end",
                _ => "middle",
            };
            svg.text(
                [x, TOP - 7.0],
                &format!(r#"fill="{colour}" font-size="12" text-anchor="{anchor}""#),
                label,
            );
        }
    }

    fn line(&self, svg: &mut Svg, line: &Line) {
        let at = |point: &Point| [self.across(point.x), self.up(point.y)];
        let path: Vec<String> = line.points.iter().map(at).map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
        let dash = line.dash.attribute();
        svg.put(format_args!(
            r#"<polyline clip-path="url(#plot)" fill="none" stroke="{}" stroke-width="2"{dash} points="{}"/>"#,
            line.colour,
            path.join(" ")
        ));
        for point in line.points.iter().filter(|point| point.y <= self.y.high) {
            svg.point(at(point), line.shape, line.colour, point.hollow);
        }
    }

    fn legend(&self, svg: &mut Svg) {
        let mut x = LEFT;
        for (colour, dash, shape, label) in &self.legend {
            let y = 80.0;
            let style = format!(r#"stroke="{colour}" stroke-width="2"{}"#, dash.attribute());
            svg.line([x, y, x + 34.0, y], &style);
            if let Some(shape) = shape {
                svg.point([x + 17.0, y], *shape, colour, false);
            }
            svg.text([x + 42.0, y + 4.5], "", label);
            // About the width of the letters.
            x += 42.0 + label.chars().count() as f64 * 6.6 + 26.0;
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Checks that elements are closed in the order in which they were opened, and counts them by name.
    pub fn elements(svg: &str) -> std::collections::BTreeMap<String, usize> {
        let mut open: Vec<String> = Vec::new();
        let mut counts = std::collections::BTreeMap::new();
        for tag in svg.split('<').skip(1) {
            let (tag, _) = tag.split_once('>').unwrap_or_else(|| panic!("a tag is not closed: {tag}"));
            let name =
                tag.split([' ', '/']).find(|name| !name.is_empty()).expect("a tag has a name").to_owned();
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name), "closed in another order");
                continue;
            }
            assert_eq!(tag.matches('"').count() % 2, 0, "a value is not closed: {tag}");
            *counts.entry(name.clone()).or_insert(0) += 1;
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
        assert!(open.is_empty(), "never closed: {open:?}");
        counts
    }

    fn axis(low: f64, high: f64) -> Axis {
        Axis { label: "an axis", low, high, tick: |value| format!("{value:.0}"), digits: &[1.0, 2.0, 5.0] }
    }

    fn chart() -> Chart {
        let point = |x, y, hollow| Point { x, y, hollow };
        let points = vec![point(10.0, 10.0, false), point(100.0, 100.0, true), point(1_000.0, 5_000.0, true)];
        let line = |dash, shape| Line { colour: COLOURS[0], dash, shape, points: points.clone() };
        Chart {
            title: "a < b & c".to_owned(),
            subtitle: String::new(),
            legend: vec![(COLOURS[0], Dash::Solid, Some(Shape::Circle), "one".to_owned())],
            x: axis(10.0, 1_000.0),
            y: axis(10.0, 1_000.0),
            lines: vec![line(Dash::Solid, Shape::Circle), line(Dash::Dotted, Shape::Square)],
            marks: vec![Mark { x: 100.0, colour: COLOURS[1], label: "the middle".to_owned() }],
        }
    }

    #[test]
    fn ticks_lie_inside_the_axis_at_its_digits() {
        assert_eq!(axis(20.0, 1_000.0).ticks(), [20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0]);
        assert!(axis(30.0, 45.0).ticks().is_empty());
    }

    #[test]
    fn a_decade_is_as_long_as_any_other_and_up_is_up() {
        let chart = chart();
        assert_eq!(
            [10.0, 100.0, 1_000.0].map(|x| chart.across(x)),
            [LEFT, f64::midpoint(LEFT, RIGHT), RIGHT]
        );
        assert_eq!([10.0, 100.0, 1_000.0].map(|y| chart.up(y)), [BOTTOM, f64::midpoint(TOP, BOTTOM), TOP]);
    }

    #[test]
    fn the_document_is_well_formed_and_has_every_line_point_and_mark() {
        let svg = chart().svg();
        let counts = elements(&svg);
        assert_eq!(counts["polyline"], 2);
        // Two of each line; the third lies beyond the top. One more in the legend.
        assert_eq!((counts["circle"], svg.matches(r#"width="6.6""#).count()), (3, 2));
        // Hollow ones are white inside.
        assert_eq!(svg.matches(r#"r="3.6" fill="white""#).count(), 1);
        assert_eq!(svg.matches("stroke-dasharray").count(), 1);
        assert!(svg.contains("a &lt; b &amp; c") && svg.contains(">the middle<"));
        // The first point is in the plot's lower left corner.
        assert!(svg.contains(&format!("points=\"{LEFT:.1},{BOTTOM:.1} ")), "{svg}");
    }
}
