//! [`Compared`]: a figure as it was simulated, and as it was measured.

use rialto_measure::spread::Spread;
use rialto_measure::text::row;
use rialto_smallbase::outcome::Ran;
use rialto_smallbase::simulation::outcome::Simulated;

use super::WITHIN_PCT;

/// A figure of one cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    pub nodes: u32,
    figure: &'static str,
    pub simulated: f64,
    pub measured: Spread,
}

const THROUGHPUT: &str = "transactions/s";

/// A figure: its name, as it was simulated, and as it is measured.
type Of = (&'static str, fn(&Simulated) -> f64, fn(&Ran) -> f64);

const FIGURES: [Of; 4] = [
    (THROUGHPUT, Simulated::per_s, Ran::per_s),
    ("processor us a transaction", Simulated::cpu_us_per_txn, Ran::cpu_us_per_txn),
    ("mean us", Simulated::mean_us, |ran| ran.all().mean_us()),
    ("p99 us", Simulated::p99_us, |ran| ran.all().percentiles().map_or(0.0, |all| all.p99_us)),
];

/// Compares all figures of a cluster. There is a run.
pub fn compare(nodes: u32, simulated: &Simulated, runs: &[Ran]) -> Vec<Compared> {
    let compared = |(figure, of_simulated, of_run): Of| Compared {
        nodes,
        figure,
        simulated: of_simulated(simulated),
        measured: Spread::of(runs.iter().map(of_run)).expect("a cluster that is compared has a run"),
    };
    FIGURES.into_iter().map(compared).collect()
}

impl Compared {
    /// How far the simulation is off, in percent of what was measured.
    fn off_pct(&self) -> f64 {
        (self.simulated / self.measured.median - 1.0) * 100.0
    }

    pub fn is_within(&self) -> bool {
        self.off_pct().abs() <= WITHIN_PCT
    }

    pub fn is_throughput(&self) -> bool {
        self.figure == THROUGHPUT
    }

    pub fn words(&self) -> String {
        format!("{} of {} by {:+.1}%", self.figure, counted(self.nodes), self.off_pct())
    }

    /// The figure, both numbers, the range, the difference, and whether it is small.
    pub fn cells(&self) -> Vec<String> {
        let places = if self.is_throughput() { 0 } else { 2 };
        let mut cells = row([self.figure]);
        let Spread { median, least, most } = self.measured;
        cells.extend([self.simulated, median, least, most].map(|number| format!("{number:.places$}")));
        cells.push(format!("{:+.1}", self.off_pct()));
        cells.push(if self.is_within() { "yes" } else { "no" }.to_owned());
        cells
    }
}

fn counted(nodes: u32) -> String {
    if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") }
}

/// The columns of a comparison, behind these.
pub fn columns(first: &[&str]) -> Vec<String> {
    const OF_A_FIGURE: [&str; 7] =
        ["figure", "simulated", "measured", "least", "most", "difference %", "within 10%"];
    first.iter().chain(&OF_A_FIGURE).map(|&name| name.to_owned()).collect()
}

/// For the paragraph.
pub fn table(compared: &[Compared]) -> Vec<Vec<String>> {
    let mut table = vec![columns(&["nodes"])];
    for of in compared {
        let mut cells = vec![of.nodes.to_string()];
        cells.extend(of.cells());
        table.push(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_within_ten_percent_of_the_median_or_named() {
        let measured = Spread { median: 100.0, least: 80.0, most: 130.0 };
        let of = |simulated| Compared { nodes: 4, figure: THROUGHPUT, simulated, measured };
        assert_eq!(
            [89.0, 91.0, 109.0, 111.0].map(|simulated| of(simulated).is_within()),
            [false, true, true, false]
        );
        assert_eq!(of(125.0).words(), "transactions/s of 4 nodes by +25.0%");
        assert_eq!(of(90.5).cells(), ["transactions/s", "90", "100", "80", "130", "-9.5", "yes"]);
        // Nothing measured is never within.
        let none = Compared { measured: Spread { median: 0.0, least: 0.0, most: 0.0 }, ..of(1.0) };
        assert!(!none.is_within());
        let text = super::super::verdict(&[&of(125.0)], false);
        assert!(text.contains("not to be believed") && text.contains("by +25.0%"), "{text}");
        assert!(super::super::verdict(&[], false).contains("yes"));
    }
}
