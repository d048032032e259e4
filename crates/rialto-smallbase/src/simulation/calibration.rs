//! [`Calibration`]: costs out of measured runs of a few nodes.
//!
//! A run tells what a transaction costs in all. A simulation of the same run tells of which parts a transaction is made: of how many
//! switches, and of which kind. Several runs with different mixtures of these parts give each its cost. The counts depend a little on
//! the costs, so that both are found in turns.

use rialto_measure::histogram::Latencies;

use super::least_squares::{Equation, solve};
use super::life::Life;
use super::outcome::Simulated;
use super::service::Service;
use super::setup::{Arrivals, Costs, Machines, Setup, Wire};
use super::simulate;
use crate::spec::Protocol;

/// A run on one machine, without a rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Nodes.
    pub nodes: u32,
    /// Clients of each node.
    pub clients: u32,
    /// Transactions over two nodes, in percent.
    pub remote_pct: u32,
    /// Transactions a second of all nodes.
    pub per_s: f64,
    /// The processor time of one, in microseconds.
    pub cpu_us: f64,
}

/// What the runs have in common.
#[derive(Debug, Clone)]
pub struct Conditions {
    /// How transactions over two nodes are run.
    pub protocol: Protocol,
    /// What a client does between two transactions, in microseconds.
    pub between_us: f64,
    /// The cores of the machine, which all nodes share.
    pub cores: usize,
    /// Bytes of a message, headers included.
    pub message_bytes: f64,
    /// Messages a second that each node sends to each other one for no transaction.
    pub beats_per_s: f64,
    /// A thread that has run for so long lets others run.
    pub slice_us: f64,
    /// The seed of the simulations.
    pub seed: u64,
}

/// Costs, with which runs are simulated.
#[derive(Debug, Clone)]
pub struct Calibration {
    conditions: Conditions,
    /// What was found.
    pub costs: Costs,
    /// The share of the machine's time that nodes have.
    pub available: f64,
    /// By how much the simulated processor time of a transaction differs from the measured one in each run, in percent.
    pub misses_pct: Vec<f64>,
}

/// Turns in which costs and counts are found, and the part of each step that is gone.
const TURNS: usize = 15;
const DAMPING: f64 = 0.6;
/// Simulated for each run, in seconds.
const WINDOW_S: f64 = 0.4;
/// A machine is used up if less than this is idle.
const USED_UP: f64 = 0.95;

impl Calibration {
    /// Finds the costs. The latencies are those of transactions of one node with one client: of work without waits.
    ///
    /// # Errors
    /// In words: no run, or one that measured nothing.
    pub fn find(runs: &[Measured], local: &Latencies, conditions: Conditions) -> Result<Calibration, String> {
        if runs.is_empty() {
            return Err("a calibration needs a measured run".to_owned());
        }
        if let Some(empty) = runs.iter().find(|run| run.per_s <= 0.0 || run.cpu_us <= 0.0) {
            return Err(format!(
                "the calibrating run of {} nodes with {} clients has measured no transaction, or no processor time; give a longer --seconds",
                empty.nodes, empty.clients
            ));
        }
        let least = runs.iter().map(|run| run.cpu_us).fold(f64::INFINITY, f64::min);
        // Any will do to begin with.
        let mut found = [least, 10.0 * least, 2.0 * least, 4.0 * least, least];
        let between_us = conditions.between_us.clamp(0.0, least / 2.0);
        let mut all = Calibration {
            conditions,
            costs: costs(local, between_us, found),
            available: 1.0,
            misses_pct: Vec::new(),
        };
        for _ in 0..TURNS {
            let simulated = all.simulate_each(runs)?;
            let pairs = runs.iter().zip(&simulated);
            let equations: Vec<Equation<5>> = pairs.map(|(run, of)| equation(run, of, between_us)).collect();
            let next = solve(&equations);
            for (cost, next) in found.iter_mut().zip(next) {
                *cost += (next - *cost) * DAMPING;
            }
            all.costs = costs(local, between_us, found);
        }
        let simulated = all.simulate_each(runs)?;
        let pairs = || runs.iter().zip(&simulated);
        all.misses_pct = pairs().map(|(run, of)| (of.cpu_us_per_txn() / run.cpu_us - 1.0) * 100.0).collect();
        let used_up = pairs().filter(|(_, of)| of.utilization() > USED_UP);
        let shares: Vec<f64> =
            used_up.map(|(run, _)| run.per_s * run.cpu_us / 1e6 / all.conditions.cores as f64).collect();
        if !shares.is_empty() {
            all.available = (shares.iter().sum::<f64>() / shares.len() as f64).min(1.0);
        }
        Ok(all)
    }

    fn simulate_each(&self, runs: &[Measured]) -> Result<Vec<Simulated>, String> {
        let setup = |run: &Measured| Setup {
            window_s: WINDOW_S,
            ..self.setup(run.nodes, run.clients, run.remote_pct)
        };
        runs.iter().map(|run| simulate(&setup(run))).collect()
    }

    /// A cluster whose nodes share this machine.
    pub fn setup(&self, nodes: u32, clients: u32, remote_pct: u32) -> Setup {
        let Conditions { protocol, cores, message_bytes, beats_per_s, slice_us, seed, .. } = self.conditions;
        Setup {
            nodes,
            clients,
            remote_pct,
            arrivals: Arrivals::Closed,
            machines: Machines::One { cores },
            available: self.available,
            wire: Wire::default(),
            message_bytes,
            beats_per_s,
            costs: self.costs.clone(),
            local: Life::local(protocol),
            remote: Life::remote(protocol),
            slice_us,
            warmup_s: 0.05,
            window_s: 1.0,
            seed,
        }
    }
}

/// Of a local transaction, of one over two nodes, of a switch, of one on an idle core, and of a cold one.
fn costs(
    local: &Latencies,
    between_us: f64,
    [local_us, remote_us, switch_us, idle_us, cold_us]: [f64; 5],
) -> Costs {
    // Nothing may cost nothing: then it would take no time at all.
    let local_us = local_us.max(0.01);
    Costs { local: Service::measured(local, local_us), between_us, remote_us, switch_us, idle_us, cold_us }
}

/// What each transaction costs besides what its client does between two.
fn equation(run: &Measured, simulated: &Simulated, between_us: f64) -> Equation<5> {
    let counts = simulated.per_transaction();
    Equation {
        counts: [counts.local, counts.remote, counts.queued, counts.idle, counts.cold],
        is: run.cpu_us - between_us,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(protocol: Protocol) -> Conditions {
        Conditions {
            protocol,
            between_us: 0.2,
            cores: 2,
            message_bytes: 160.0,
            beats_per_s: 8.0,
            slice_us: 1e5,
            seed: 1,
        }
    }

    /// Runs of the calibration, as a machine with these costs would measure them.
    fn measured(true_costs: &Costs, protocol: Protocol, runs: &[(u32, u32, u32)]) -> Vec<Measured> {
        let conditions = Conditions { seed: 99, ..conditions(protocol) };
        let machine =
            Calibration { conditions, costs: true_costs.clone(), available: 0.95, misses_pct: Vec::new() };
        let run = |&(nodes, clients, remote_pct): &(u32, u32, u32)| {
            let ran = simulate(&machine.setup(nodes, clients, remote_pct)).unwrap();
            Measured { nodes, clients, remote_pct, per_s: ran.per_s(), cpu_us: ran.cpu_us_per_txn() }
        };
        runs.iter().map(run).collect()
    }

    #[test]
    fn costs_of_a_machine_are_found_again_and_predict_runs_that_were_not_measured() {
        for (protocol, alone) in [(Protocol::AsPaper, (1, 1, 0)), (Protocol::Atomic, (2, 1, 0))] {
            let costs = Costs {
                local: Service::Constant(2.0),
                between_us: 0.2,
                remote_us: 30.0,
                switch_us: 8.0,
                idle_us: 25.0,
                cold_us: 9.0,
            };
            let runs = [alone, (2, 1, 15), (2, 2, 15), (2, 4, 15), (3, 1, 15), (3, 2, 15)];
            let runs = measured(&costs, protocol, &runs);
            let found = Calibration::find(&runs, &Latencies::default(), conditions(protocol)).unwrap();
            assert!(found.misses_pct.iter().all(|miss| miss.abs() < 2.0), "{:?}", found.misses_pct);
            assert!((found.available - 0.95).abs() < 0.02, "{}", found.available);
            let truth = &measured(&costs, protocol, &[(8, 1, 15)])[0];
            let predicted = simulate(&found.setup(8, 1, 15)).unwrap();
            for (what, of, is) in [
                ("throughput", predicted.per_s(), truth.per_s),
                ("processor time", predicted.cpu_us_per_txn(), truth.cpu_us),
            ] {
                assert!(
                    (of / is - 1.0).abs() < 0.04,
                    "{protocol:?}, {what}: {of}, is {is}; {:?}",
                    found.costs
                );
            }
        }
    }

    #[test]
    fn a_run_that_has_measured_nothing_is_named() {
        let find = |runs: &[Measured]| {
            Calibration::find(runs, &Latencies::default(), conditions(Protocol::AsPaper)).unwrap_err()
        };
        assert!(find(&[]).contains("needs a measured run"));
        let none = Measured { nodes: 3, clients: 2, remote_pct: 15, per_s: 0.0, cpu_us: 1.0 };
        let why = find(&[none]);
        assert!(why.contains("3 nodes with 2 clients") && why.contains("--seconds"), "{why}");
    }
}
