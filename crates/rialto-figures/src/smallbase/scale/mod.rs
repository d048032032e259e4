//! cluster-scale: a simulation of more nodes than this machine can run.
//!
//! Runs of one to three nodes give the costs (`calibrating`). With these the simulation predicts clusters of 1 to 8 nodes, which are
//! measured, too, between the calibrating runs (`comparison`). What it says of 8 to 1,000 nodes with cores of their own (`beyond`) is
//! told if it has predicted all of them, or if that is asked for.

mod beyond;
mod calibrating;
mod comparison;

use rialto_measure::chart::{Corner, Look, Panel, Picture, Scale, Series};
use rialto_measure::text::{row, say};
use rialto_measure::{RunError, interrupt};
use rialto_smallbase::simulation::simulate;

use self::beyond::{Cluster, simulated};
use self::calibrating::{MEASURED, Runs, calibrate, calibrating};
use self::comparison::{Compared, columns, compare};
use super::super::{Figure, FigureError, Lab, markdown};
use super::run::{Setting, sizes};
use crate::point::machine;

/// A prediction may be so far off, in percent.
const WITHIN_PCT: f64 = 10.0;

/// The figure.
///
/// # Errors
/// A run that fails, or that measured nothing.
pub fn beyond(lab: &Lab) -> Result<Figure, FigureError> {
    let paper = Setting::of_paper("as the paper").in_real_time();
    let setting = match lab.beyond.has_standbys {
        true => Setting { name: "whole transactions, level 2", ..paper }.with_standbys(),
        false => paper,
    };
    let (to_calibrate, to_compare) = (calibrating(lab, &setting), sizes(lab, &setting, &MEASURED));
    let mut runs = Runs::default();
    // One run of each cluster after the other, so that what else the machine does meets all of them.
    for round in 0..lab.rounds {
        say(&format!("round {} of {}", round + 1, lab.rounds));
        for shape in &to_calibrate {
            runs.calibrate(lab, &setting, *shape, round)?;
        }
        for nodes in &to_compare {
            runs.compare(lab, &setting, *nodes, round)?;
        }
    }
    let calibration = calibrate(lab, &setting, &runs)?;
    let mut compared = Vec::new();
    for nodes in to_compare {
        let simulated = simulate(&calibration.setup(nodes, setting.clients, remote_pct(&setting, nodes)));
        compared.extend(compare(nodes, &simulated.map_err(wrong)?, runs.measured(nodes)));
    }
    let missed: Vec<&Compared> = compared.iter().filter(|row| !row.is_within()).collect();
    let verdict = verdict(&missed, lab.beyond.even_if_it_misses);
    say(&verdict);
    let mut told = Vec::new();
    if missed.is_empty() || lab.beyond.even_if_it_misses {
        told = simulated(lab, &calibration)?;
    }
    let text = format!(
        "Section 5.2 expects that the cost of distribution is paid with two nodes, and stays. A simulation by discrete events of clients, \
         readers, workers, cores and messages, with the costs of {}. {} All runs took {} s, {} rounds of all clusters, medians; nodes \
         share this machine{}. On {}.\n\n{}\n\n{verdict}\n{}",
        calibrating::words(&calibration, &runs),
        calibrating::fit(&calibration, &to_calibrate),
        lab.on_the_clock()?.as_secs_f64(),
        lab.rounds,
        if runs.is_real_time() { ", with real-time priority" } else { ", with normal priority" },
        machine(),
        markdown(&comparison::table(&compared)),
        beyond::text(lab, &told),
    );
    Ok(Figure { rows: rows(&compared, &told), picture: picture(&compared, &told), text })
}

/// One node has no other.
fn remote_pct(setting: &Setting, nodes: u32) -> u32 {
    if nodes == 1 { 0 } else { setting.remote_pct }
}

fn wrong(why: String) -> RunError {
    RunError::Usage(format!("cluster-scale: {why}"))
}

fn verdict(missed: &[&Compared], even_so: bool) -> String {
    if missed.is_empty() {
        return format!("Within {WITHIN_PCT}%: yes. The simulation has predicted all measured clusters.");
    }
    let all: Vec<String> = missed.iter().map(|row| row.words()).collect();
    let told = match even_so {
        true => "What it says of more nodes is told because --even-if-it-misses was given",
        false => "What it says of more nodes is not told; --even-if-it-misses tells it",
    };
    format!(
        "Within {WITHIN_PCT}%: no. The simulation is not to be believed. It misses {}. {told}.",
        all.join("; ")
    )
}

/// Both tables as one: of the second, there is nothing measured.
fn rows(compared: &[Compared], told: &[Cluster]) -> Vec<Vec<String>> {
    let mut rows = vec![columns(&["cluster", "nodes", "clients a node"])];
    rows.extend(compared.iter().map(|of| {
        let mut cells = row(["one machine", &of.nodes.to_string(), "1"]);
        cells.extend(of.cells());
        cells
    }));
    for cluster in told {
        for (figure, value) in cluster.figures() {
            let mut cells = row(["own machines", &cluster.nodes.to_string(), &cluster.clients.to_string()]);
            cells.extend([figure.to_owned(), format!("{value:.1}")]);
            cells.resize(rows[0].len(), String::new());
            rows.push(cells);
        }
    }
    rows
}

fn picture(compared: &[Compared], told: &[Cluster]) -> Picture {
    let rates = |of: fn(&Compared) -> f64| {
        compared.iter().filter(|row| row.is_throughput()).map(|row| (f64::from(row.nodes), of(row))).collect()
    };
    let series = vec![
        Series::new("simulated", Look::Measured, 0, rates(|row| row.simulated)),
        Series::new("measured", Look::Measured, 1, rates(|row| row.measured.median)),
    ];
    let panel = Panel::new("1 to 8 nodes on this machine", "nodes", "transactions/s", series);
    let mut panels = vec![Panel { legend: Corner::UpperLeft, ..panel }];
    if !told.is_empty() {
        let of = |clients: u32| {
            let these = told.iter().filter(|cluster| cluster.clients == clients);
            these.map(|cluster| (f64::from(cluster.nodes), cluster.efficiency_pct)).collect()
        };
        let series = beyond::CLIENTS.into_iter().enumerate().map(|(colour, clients)| {
            let name = format!("{clients} clients a node");
            Series::new(name, Look::Measured, colour, of(clients))
        });
        let title = "Simulated: nodes with machines of their own";
        let panel =
            Panel::new(title, "nodes", "throughput of a node, percent of two nodes", series.collect());
        panels.push(Panel { x_scale: Scale::Decades, legend: Corner::UpperRight, ..panel });
    }
    Picture::Panels(panels)
}

/// Whether the run goes on.
fn check() -> Result<(), RunError> {
    interrupt::check()
}
