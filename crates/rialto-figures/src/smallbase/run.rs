//! Clusters of some sizes, measured one after the other.

use std::time::Duration;

use rialto_measure::RunError;
use rialto_measure::machine::memory_available;
use rialto_measure::spread::Spread;
use rialto_measure::text::say;
use rialto_smallbase::outcome::{Point, Ran};
use rialto_smallbase::parent::measure;
use rialto_smallbase::priority;
use rialto_smallbase::report::without_answer;
use rialto_smallbase::spec::{Level, Load, Network, Nodes, Priority, Protocol, Shape, Spec, WorkloadName};

use super::super::Lab;
use crate::point::machine;

/// The paper's Ethernet. A message of some 230 bytes takes 180 us there: the 300 us that a remote transaction of two messages took
/// longer than on FDDI (section 5.7) are that, so no delay is added.
const ETHERNET_MBIT: u32 = 10;

/// What is run on clusters of several sizes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// As in tables and pictures.
    pub name: &'static str,
    pub workload: WorkloadName,
    pub protocol: Protocol,
    pub level: Level,
    pub priority: Priority,
    pub clients: u32,
    /// Transactions that use another node, in percent.
    pub remote_pct: u32,
    pub network: Network,
    pub outliers: bool,
}

impl Setting {
    /// One client a node, with normal priority, as the paper ran it.
    pub const fn of_paper(name: &'static str) -> Setting {
        Setting {
            name,
            workload: WorkloadName::Tpcb,
            protocol: Protocol::AsPaper,
            level: Level::Memory,
            priority: Priority::Normal,
            clients: 1,
            remote_pct: 15,
            network: Network {
                nagle: false,
                mbit: None,
                delay: Duration::ZERO,
                namespaces: rialto_smallbase::spec::Namespaces::IfAllowed,
            },
            outliers: false,
        }
    }

    /// The same with real-time priority.
    pub const fn in_real_time(self) -> Setting {
        Setting { priority: Priority::RealTime, ..self }
    }

    /// The same on the paper's Ethernet.
    pub const fn on_ethernet(self) -> Setting {
        let network = Network { mbit: Some(ETHERNET_MBIT), ..self.network };
        Setting { network, ..self }
    }

    /// The same with whole transactions, which are in the memories of two replicas before they are answered.
    pub const fn with_standbys(self) -> Setting {
        Setting { protocol: Protocol::Atomic, level: Level::Standby, ..self }
    }
}

/// The sizes of clusters, in nodes: the wanted ones, and the smallest alone where points are short. One node has no standby, so
/// that it has no level 2.
pub fn sizes(lab: &Lab, setting: &Setting, wanted: &[u32]) -> Vec<u32> {
    let least = if setting.level == Level::Standby { 2 } else { 1 };
    wanted.iter().copied().filter(|nodes| *nodes >= least && (*nodes <= 2 || !lab.is_small())).collect()
}

/// Measures a setting on a cluster of so many nodes.
///
/// # Errors
/// A run that fails, or whose tables do not hold what the clients were told.
pub fn run(lab: &Lab, setting: &Setting, nodes: u32) -> Result<Point, RunError> {
    run_times(lab, setting, nodes, lab.rounds, lab.seed)
}

/// The same, so many times, with a seed.
///
/// # Errors
/// As [`run`].
pub fn run_times(lab: &Lab, setting: &Setting, nodes: u32, runs: u32, seed: u64) -> Result<Point, RunError> {
    let window = lab.on_the_clock()?;
    say(&format!("  {}: {nodes} nodes", setting.name));
    let (accounts, memory_bytes) = match lab.is_small() {
        true => (Some(100), Some(u64::from(nodes) * (64 << 20))),
        false => (None, memory_available().map(|bytes| bytes / 2)),
    };
    let replicas = if nodes == 1 || setting.protocol == Protocol::AsPaper { 1 } else { 2 };
    let spec = Spec {
        shape: Shape { nodes, partitions: 1, replicas },
        data: Spec::data(setting.workload, setting.protocol, None, accounts),
        network: setting.network,
        priority: setting.priority,
        nodes: Nodes::of_this_program()
            .map_err(|cause| RunError::Io { during: "looking for this program", cause })?,
        directory: lab.data.join("cluster"),
        memory_bytes: memory_bytes.unwrap_or(1 << 30),
    };
    let load = Load {
        clients: setting.clients,
        remote_pct: setting.remote_pct,
        pace: None,
        level: setting.level,
        warmup: window / 10,
        window,
        seed,
        outliers: setting.outliers,
    };
    let point = measure(&spec, &load, runs)?;
    // The directory of the figures was made for it.
    let _ = std::fs::remove_dir(&lab.data);
    match point.problems.is_empty() {
        true => Ok(point),
        false => Err(RunError::Inconsistent(point.problems.join("; "))),
    }
}

/// Measures settings on clusters of several sizes in rounds. Each round has one run of each, on a new cluster, so that what else the
/// machine does meets all alike.
///
/// # Errors
/// As [`run`].
pub fn in_rounds(lab: &Lab, settings: &[(Setting, Vec<u32>)]) -> Result<Vec<Vec<Point>>, RunError> {
    let mut all: Vec<Vec<Point>> = settings.iter().map(|_| Vec::new()).collect();
    for round in 0..lab.rounds {
        say(&format!("round {} of {}", round + 1, lab.rounds));
        let seed = lab.seed.wrapping_add(u64::from(round));
        for ((setting, sizes), points) in settings.iter().zip(&mut all) {
            for (nth, nodes) in sizes.iter().enumerate() {
                let point = run_times(lab, setting, *nodes, 1, seed)?;
                match points.get_mut(nth) {
                    None => points.push(point),
                    Some(before) => {
                        before.is_real_time &= point.is_real_time;
                        before.runs.extend(point.runs);
                    }
                }
            }
        }
    }
    Ok(all)
}

/// A figure of each round's run beside that of another point in the same round: their ratios in percent.
pub fn percent(point: &Point, base: &Point, figure: impl Fn(&Point, &Ran) -> f64) -> Spread {
    let pairs = point.runs.iter().zip(&base.runs);
    let ratio = |(ran, of_base): (&Ran, &Ran)| 100.0 * figure(point, ran) / figure(base, of_base);
    Spread::of(pairs.map(ratio)).expect("a point has a run")
}

/// The throughput of the runs of a point.
pub fn per_s(point: &Point) -> Spread {
    Spread::of(point.runs.iter().map(Ran::per_s)).expect("a point has a run")
}

/// The name of a measured series: one whose real-time priority was refused says so.
pub fn name_of(setting: &Setting, points: &[Point]) -> String {
    match setting.priority == Priority::RealTime && !points.iter().all(|point| point.is_real_time) {
        true => format!("{} (refused: normal priority)", setting.name),
        false => setting.name.to_owned(),
    }
}

/// What all experiments have in common, for their paragraphs.
pub fn common(lab: &Lab, settings: &[Setting], points: &[Point]) -> String {
    let seconds = lab.seconds.map_or(0.0, |seconds| seconds.as_secs_f64());
    let networks = match points.iter().all(|point| point.has_networks) {
        true => "a network namespace each",
        false => "one loopback network",
    };
    let is_asked = settings.iter().any(|setting| setting.priority == Priority::RealTime);
    let priority = match points.iter().any(|point| point.is_real_time) {
        true => {
            priority::stops().map_or_else(String::new, |stops| format!(" Of real-time priority: {stops}."))
        }
        false if is_asked => {
            " This process may not choose real-time priority, so all is of normal priority.".to_owned()
        }
        false => String::new(),
    };
    let proxies = match settings.iter().any(|setting| setting.network.mbit.is_some()) {
        true => {
            " The slow network is made by proxies, which use the same processors and are in no node's processor time."
        }
        false => "",
    };
    let told = points.iter().map(|point| (point.shape.nodes, without_answer(point.median())));
    let told = told.filter(|(_, told)| !told.is_empty());
    let told: String = told.map(|(nodes, told)| format!(" Of {nodes} nodes: {told}.")).collect();
    format!(
        "Medians of {} runs of {seconds} s (the paper: of 120 s, the mean of five); nodes are processes on one machine, with {networks}, and \
         share its processors, so that efficiency by throughput falls once they are used up; efficiency by processor time is what it \
         would be if each node had processors of its own, as far as waits do not keep them idle. Rates are medians; all else of a row \
         is of the run with the median rate.{priority}{proxies}{told} On {}.",
        lab.rounds,
        machine()
    )
}
