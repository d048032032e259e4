//! The runs, and the costs that are found in those of one to three nodes.

use std::collections::BTreeMap;

use rialto_measure::RunError;
use rialto_measure::histogram::Latencies;
use rialto_measure::spread::Spread;
use rialto_smallbase::outcome::Ran;
use rialto_smallbase::simulation::calibration::{Calibration, Conditions, Measured};
use rialto_smallbase::spec::Protocol;

use super::super::super::Lab;
use super::super::run::{Setting, run_times, sizes};
use super::wrong;

/// The nodes of the clusters that are predicted and measured.
pub const MEASURED: [u32; 5] = [1, 2, 4, 6, 8];
/// Headers of a message on its way, in bytes: TCP, IP, Ethernet and its preamble and gap.
const HEADER_BYTES: f64 = 78.0;
/// How long a thread runs until others of its priority do, in microseconds: the kernel's round robin, and its fair scheduler.
const REAL_TIME_SLICE_US: f64 = 100_000.0;
const FAIR_SLICE_US: f64 = 3_000.0;

/// A cluster of the calibration: nodes, clients of each, and remote transactions in percent.
pub type Shape = (u32, u32, u32);

/// The clusters that give the costs. One node alone has local transactions; more clients have fewer switches for each transaction, and
/// fewer on idle cores; with a third node cores are cold. Whole transactions have standbys, which one node has not.
pub fn calibrating(lab: &Lab, setting: &Setting) -> Vec<Shape> {
    let share = setting.remote_pct;
    let alone = if setting.protocol == Protocol::AsPaper { (1, 1, 0) } else { (2, 1, 0) };
    let all = [alone, (2, 1, share), (2, 2, share), (2, 4, share), (3, 1, share), (3, 2, share)];
    let possible = sizes(lab, setting, &[1, 2, 3]);
    all.into_iter().filter(|(nodes, ..)| possible.contains(nodes)).collect()
}

/// What was measured.
#[derive(Default)]
pub struct Runs {
    calibrating: BTreeMap<Shape, Vec<Ran>>,
    compared: BTreeMap<u32, Vec<Ran>>,
    is_real_time: bool,
}

impl Runs {
    /// Runs a cluster of the calibration once.
    pub fn calibrate(
        &mut self,
        lab: &Lab,
        setting: &Setting,
        shape: Shape,
        round: u32,
    ) -> Result<(), RunError> {
        let (nodes, clients, remote_pct) = shape;
        let setting = Setting { name: "calibration", clients, remote_pct, ..*setting };
        let ran = self.once(lab, &setting, nodes, round)?;
        self.calibrating.entry(shape).or_default().extend(ran);
        Ok(())
    }

    /// Runs a cluster that is predicted, once. It draws other transactions than those of the calibration.
    pub fn compare(&mut self, lab: &Lab, setting: &Setting, nodes: u32, round: u32) -> Result<(), RunError> {
        let ran = self.once(lab, setting, nodes, round + 1_000)?;
        self.compared.entry(nodes).or_default().extend(ran);
        Ok(())
    }

    fn once(&mut self, lab: &Lab, setting: &Setting, nodes: u32, nth: u32) -> Result<Vec<Ran>, RunError> {
        super::check()?;
        let point = run_times(lab, setting, nodes, 1, lab.seed.wrapping_add(u64::from(nth)))?;
        self.is_real_time = point.is_real_time;
        Ok(point.runs)
    }

    pub fn measured(&self, nodes: u32) -> &[Ran] {
        &self.compared[&nodes]
    }

    pub fn is_real_time(&self) -> bool {
        self.is_real_time
    }
}

fn median(runs: &[Ran], of: fn(&Ran) -> f64) -> f64 {
    Spread::of(runs.iter().map(of)).map_or(0.0, |spread| spread.median)
}

/// The latencies of the run whose throughput is in the middle.
fn in_the_middle(runs: &[Ran]) -> Option<Latencies> {
    let mut runs: Vec<&Ran> = runs.iter().collect();
    runs.sort_by(|one, other| one.per_s().total_cmp(&other.per_s()));
    runs.get(runs.len() / 2).map(|ran| ran.local.clone())
}

/// Finds the costs.
pub fn calibrate(lab: &Lab, setting: &Setting, runs: &Runs) -> Result<Calibration, RunError> {
    let measured = |(shape, runs): (&Shape, &Vec<Ran>)| Measured {
        nodes: shape.0,
        clients: shape.1,
        remote_pct: shape.2,
        per_s: median(runs, Ran::per_s),
        cpu_us: median(runs, Ran::cpu_us_per_txn),
    };
    // Work alone: one client, and nothing remote.
    let alone = runs.calibrating.iter().find(|((.., remote_pct), _)| *remote_pct == 0);
    let local = alone.filter(|((nodes, ..), _)| *nodes == 1).and_then(|(_, runs)| in_the_middle(runs));
    let between_us = alone.map_or(0.0, |((nodes, clients, _), runs)| {
        let at_once = f64::from(nodes * clients);
        let between = |ran: &Ran| at_once * 1e6 / ran.per_s().max(1.0) - ran.local.mean_us();
        Spread::of(runs.iter().map(between)).map_or(0.0, |spread| spread.median)
    });
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let ((nodes, ..), largest) = runs.calibrating.last_key_value().expect("a calibration has a run");
    let conditions = Conditions {
        protocol: setting.protocol,
        between_us,
        cores,
        message_bytes: median(largest, Ran::bytes_of_a_message) + HEADER_BYTES,
        beats_per_s: beats_per_s(setting, *nodes, largest),
        slice_us: if runs.is_real_time { REAL_TIME_SLICE_US } else { FAIR_SLICE_US },
        seed: lab.seed,
    };
    let all: Vec<Measured> = runs.calibrating.iter().map(measured).collect();
    Calibration::find(&all, &local.unwrap_or_default(), conditions).map_err(wrong)
}

/// Messages a second between two nodes, one way, that are of no transaction. Those of replication are counted with transactions, so
/// that they are not told apart with standbys.
fn beats_per_s(setting: &Setting, nodes: u32, runs: &[Ran]) -> f64 {
    if nodes < 2 || setting.protocol != Protocol::AsPaper {
        return BEATS_PER_S;
    }
    let links = f64::from(nodes * (nodes - 1));
    let of_none = |ran: &Ran| ran.messages_sent_per_s() - ran.messages_per_remote() * remote_per_s(ran);
    Spread::of(runs.iter().map(of_none)).map_or(0.0, |spread| (spread.median / links).max(0.0))
}

/// So many were counted without standbys.
const BEATS_PER_S: f64 = 8.0;

fn remote_per_s(ran: &Ran) -> f64 {
    ran.per_s() * ran.remote_pct() / 100.0
}

/// The costs, in words.
pub fn words(calibration: &Calibration, runs: &Runs) -> String {
    let costs = &calibration.costs;
    let of = calibration.setup(1, 1, 0);
    format!(
        "{} calibrating clusters, in microseconds of processor time: a transaction of one node {:.2}, with {:.2} of its client before it, one over two nodes {:.1} without its \
         switches, a switch {:.1}, one on an idle core or to a thread of another core {:.1}, and {:.1} more if the core has run two \
         other nodes since; a message has {:.0} bytes with headers, and a node sends each other one {:.1} a second for no transaction; nodes \
         have {:.1}% of a machine that is used up",
        runs.calibrating.len(),
        costs.local.mean_us(),
        costs.between_us,
        costs.remote_us,
        costs.switch_us,
        costs.idle_us,
        costs.cold_us,
        of.message_bytes,
        of.beats_per_s,
        calibration.available * 100.0,
    )
}

/// How well the costs explain the runs that they are found in.
pub fn fit(calibration: &Calibration, shapes: &[Shape]) -> String {
    let mut shapes = shapes.to_vec();
    // As the runs are kept.
    shapes.sort_unstable();
    let all = shapes.iter().zip(&calibration.misses_pct);
    let all: Vec<String> = all
        .map(|((nodes, clients, remote), miss)| {
            format!("{nodes} x {clients} clients, {remote}% remote: {miss:+.1}%")
        })
        .collect();
    format!("Of these clusters it gives the processor time of a transaction back within: {}.", all.join(", "))
}
