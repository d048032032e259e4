//! [`Cluster`]: a simulated cluster whose nodes have machines of their own.

use rialto_measure::RunError;
use rialto_measure::text::{row, say};
use rialto_smallbase::simulation::calibration::Calibration;
use rialto_smallbase::simulation::outcome::Simulated;
use rialto_smallbase::simulation::setup::{Machines, Setup, Wire};
use rialto_smallbase::simulation::simulate;

use super::super::super::{Lab, markdown};
use super::wrong;

/// Clients of each node.
pub const CLIENTS: [u32; 2] = [1, 4];
/// What efficiency is compared with, as in the paper.
const BASE_NODES: u32 = 2;
/// Transactions that use another node, in percent.
const REMOTE_PCT: u32 = 15;
/// What is simulated, in seconds times nodes; at least, and at most.
const NODE_SECONDS: f64 = 60.0;
const WINDOW_S: (f64, f64) = (0.03, 0.5);

/// A cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    pub nodes: u32,
    pub clients: u32,
    per_s: f64,
    /// The throughput of a node, in percent of that of a node of two.
    pub efficiency_pct: f64,
    cpu_us: f64,
    mean_us: f64,
    remote_mean_us: f64,
    p99_us: f64,
    used_pct: f64,
}

impl Cluster {
    fn of((nodes, clients): (u32, u32), of: &Simulated, base: &Simulated) -> Cluster {
        let of_node = |simulated: &Simulated, nodes: u32| simulated.per_s() / f64::from(nodes);
        Cluster {
            nodes,
            clients,
            per_s: of.per_s(),
            efficiency_pct: of_node(of, nodes) / of_node(base, BASE_NODES) * 100.0,
            cpu_us: of.cpu_us_per_txn(),
            mean_us: of.mean_us(),
            remote_mean_us: of.remote_mean_us(),
            p99_us: of.p99_us(),
            used_pct: of.utilization() * 100.0,
        }
    }

    /// Each with its name.
    pub fn figures(&self) -> [(&'static str, f64); 7] {
        [
            ("transactions/s", self.per_s),
            ("efficiency %", self.efficiency_pct),
            ("processor us a transaction", self.cpu_us),
            ("mean us", self.mean_us),
            ("remote: mean us", self.remote_mean_us),
            ("p99 us", self.p99_us),
            ("cores used %", self.used_pct),
        ]
    }
}

fn cores(lab: &Lab) -> usize {
    let of_machine = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
    lab.beyond.cores.unwrap_or_else(of_machine)
}

/// The clusters that were asked for.
pub fn simulated(lab: &Lab, calibration: &Calibration) -> Result<Vec<Cluster>, RunError> {
    let run = |nodes: u32, clients: u32| {
        super::check()?;
        say(&format!("  simulating {nodes} nodes with {clients} clients each"));
        let setup = Setup {
            machines: Machines::Each { cores: cores(lab) },
            available: 1.0,
            wire: Wire { delay_us: lab.beyond.delay.as_secs_f64() * 1e6, mbit: Some(lab.beyond.mbit) },
            warmup_s: 0.02,
            window_s: (NODE_SECONDS / f64::from(nodes)).clamp(WINDOW_S.0, WINDOW_S.1),
            ..calibration.setup(nodes, clients, if nodes == 1 { 0 } else { REMOTE_PCT })
        };
        simulate(&setup).map_err(wrong)
    };
    let mut all = Vec::new();
    for clients in CLIENTS {
        let base = run(BASE_NODES, clients)?;
        for nodes in &lab.beyond.nodes {
            all.push(Cluster::of((*nodes, clients), &run(*nodes, clients)?, &base));
        }
    }
    Ok(all)
}

/// The table, with what it is of; nothing if nothing is told.
pub fn text(lab: &Lab, told: &[Cluster]) -> String {
    let Some(first) = told.first() else { return String::new() };
    let mut header = row(["nodes", "clients a node"]);
    header.extend(first.figures().map(|(name, _)| name.to_owned()));
    let mut table = vec![header];
    for cluster in told {
        let mut cells = vec![cluster.nodes.to_string(), cluster.clients.to_string()];
        cells.extend(cluster.figures().map(|(_, value)| format!("{value:.1}")));
        table.push(cells);
    }
    format!(
        "\nSimulated: nodes with {} cores of their own, a message {} us on its way, and {} Mbit/s for each node; efficiency is the throughput \
         of a node against that of a node of two.\n\n{}",
        cores(lab),
        lab.beyond.delay.as_micros(),
        lab.beyond.mbit,
        markdown(&table)
    )
}
