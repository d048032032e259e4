//! [`Sweep`]: every strategy at several values of one thing that varies.

use rialto::TwoStage;
use rialto_measure::RunError;
use rialto_measure::chart::{Corner, Look, Panel, Series};

use super::super::rounds::{ratios, whole};
use super::run::{Runs, Sample, Setting};
use super::{ByStrategy, STRATEGIES};

/// The two strategies that the paper compares in its tables 2, 3 and 5.
pub const COMPARED: [TwoStage; 2] = [TwoStage::TwoPhaseLocking, TwoStage::Htste];

/// The colour of a strategy's curves, the same in all pictures.
pub fn colour_of(strategy: TwoStage) -> usize {
    STRATEGIES.iter().position(|one| *one == strategy).unwrap_or_default()
}

/// A value, as it is drawn, and what was measured there.
pub struct Point {
    /// The value.
    pub x: f64,
    /// What was measured.
    pub found: ByStrategy,
}

/// What was measured at several values of one thing.
pub struct Sweep {
    /// What varies, for the axis.
    axis: &'static str,
    /// By value.
    pub points: Vec<Point>,
}

/// A further column: its heading, and its cell.
pub type Column = (&'static str, fn(&Sample) -> f64, usize);

impl Sweep {
    /// Measures each of these values, which changes the setting so.
    pub fn measure<V: Copy>(
        runs: Runs<'_>,
        axis: &'static str,
        values: impl IntoIterator<Item = (f64, V)>,
        change: impl Fn(Setting, V) -> Setting,
    ) -> Result<Sweep, RunError> {
        let one = |(x, value): (f64, V)| {
            let found = ByStrategy::measure(runs, |setting| change(setting, value))?;
            Ok(Point { x, found })
        };
        let points = values.into_iter().map(one).collect::<Result<_, RunError>>()?;
        Ok(Sweep { axis, points })
    }

    /// A panel with a curve for each of these strategies.
    pub fn panel(
        &self,
        (title, unit): (&str, &str),
        strategies: &[TwoStage],
        figure: fn(&Sample) -> f64,
    ) -> Panel {
        let curve = |strategy: &TwoStage| {
            let at = |point: &Point| (point.x, point.found.of(*strategy).median(figure));
            let points = self.points.iter().map(at).collect();
            Series::new(strategy.name(), Look::Measured, colour_of(*strategy), points)
        };
        Panel::new(title, self.axis, unit, strategies.iter().map(curve).collect())
    }

    /// As [`Sweep::panel`], of a figure that grows along the axis.
    pub fn rising_panel(
        &self,
        title: (&str, &str),
        strategies: &[TwoStage],
        figure: fn(&Sample) -> f64,
    ) -> Panel {
        Panel { legend: Corner::UpperLeft, ..self.panel(title, strategies, figure) }
    }

    /// A table of throughput: a row for each value and strategy, with the ratio to two-phase locking, and these columns, each with so many
    /// digits.
    pub fn throughput(&self, what: &str, columns: &[Column]) -> Vec<Vec<String>> {
        let mut header: Vec<String> =
            [what, "strategy", "new orders a minute", "least", "most", "ratio to 2pl", "low", "high"]
                .map(str::to_owned)
                .into();
        header.extend(columns.iter().map(|(heading, ..)| (*heading).to_owned()));
        let mut table = vec![header];
        for Point { x, found } in &self.points {
            let base = found.of(TwoStage::TwoPhaseLocking);
            for (strategy, windows) in &found.0 {
                let mut cells = vec![format!("{x:.0}"), strategy.name().to_owned()];
                cells.extend(whole(windows.spread(Sample::per_minute)));
                cells.extend(ratios(windows.against(base, Sample::per_minute)));
                cells.extend(columns.iter().map(|(_, figure, digits)| {
                    let median = windows.median(figure);
                    format!("{median:.digits$}")
                }));
                table.push(cells);
            }
        }
        table
    }

    /// A table of the two strategies of [`COMPARED`], with the paper's figures beside each, where there are some.
    pub fn compared(
        &self,
        what: &str,
        figure: fn(&Sample) -> f64,
        paper: impl IntoIterator<Item = Option<(f64, f64)>>,
    ) -> Vec<Vec<String>> {
        let mut header = vec![what.to_owned()];
        for strategy in COMPARED {
            header.extend([strategy.name(), "least", "most", "the paper's"].map(str::to_owned));
        }
        let mut table = vec![header];
        for (Point { x, found }, paper) in self.points.iter().zip(paper) {
            let mut cells = vec![format!("{x:.0}")];
            let theirs = [paper.map(|of| of.0), paper.map(|of| of.1)];
            for (strategy, theirs) in COMPARED.into_iter().zip(theirs) {
                let spread = found.of(strategy).spread(figure);
                cells.extend([spread.median, spread.least, spread.most].map(|found| format!("{found:.2}")));
                cells.push(theirs.map_or_else(String::new, |found| format!("{found:.2}")));
            }
            table.push(cells);
        }
        table
    }
}
