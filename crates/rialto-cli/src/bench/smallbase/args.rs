//! [`SmallbaseArgs`]: the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rialto_measure::RunError;
use rialto_measure::machine::memory_available;
use rialto_smallbase::spec::{
    Level, Load, Namespaces, Network, Nodes, Pace, Priority, Protocol, Shape, Spec, WorkloadName,
};

use super::super::args::Rate;
use super::super::cluster::args::LevelName;
use crate::args::seconds;

/// The most nodes of a cluster.
const NODES_MAX: i64 = 64;

/// Run a cluster of processes on this machine, with clients in each node that call procedures over the partitions, as
/// in Smallbase's experiments, and verify that the tables agree with what the clients were told
///
/// The command starts the nodes and ends them. Each node has a network namespace of its own if this user may make them;
/// otherwise all share the loopback network. Results are of the run with the median throughput. Several numbers of
/// nodes are measured one after the other; efficiency compares the throughput of a node, and the processor time of a
/// transaction, with those of the cluster of two nodes. Exit code 1: the tables do not agree with what the clients were
/// told.
#[derive(Debug, Clone, Args)]
pub struct SmallbaseArgs {
    /// The number of nodes; several numbers, with commas, are measured one after the other
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "2", value_parser = clap::value_parser!(u32).range(1..=NODES_MAX))]
    pub nodes: Vec<u32>,
    /// The clients of each node: threads of its process, with one transaction at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub clients: u32,
    /// The percentage of transactions whose account (for scp: number or card) lies at another node
    #[arg(long, value_name = "PCT", default_value_t = 15, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub remote_pct: u32,
    /// The rate of an open loop: transactions a second of all nodes together, or a percentage of the peak, which is
    /// measured first. Latencies count from the time at which a transaction was due [default: a closed loop]
    #[arg(long, value_name = "TPS|PCT%")]
    pub rate: Option<Rate>,
    /// When a transaction is answered. One over two nodes waits at least for the standbys, except with --as-paper
    #[arg(long, visible_alias = "level", value_enum, default_value = "memory")]
    pub durability: LevelName,
    /// As the paper ran TPC-B: a transaction over two nodes is two transactions, without a commit protocol; a branch
    /// has one history row, a partition one branch and one replica. Locks and the log remain: they cannot be left out
    #[arg(long)]
    pub as_paper: bool,
    /// Run the same transactions on one database in this process, without a cluster, for comparison with a node. It
    /// needs
    /// --nodes 1
    #[arg(long)]
    pub alone: bool,
    /// The replicas of each partition, the primary among them [default: 2; 1 with one node, and with --as-paper]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=8))]
    pub replicas: Option<u32>,
    /// The partitions whose primaries are on each node
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub partitions_per_node: u32,
    /// The branches (for scp: areas) of each partition [default: 10; 1 with --as-paper]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub branches: Option<u32>,
    /// The accounts of each branch; for scp the numbers of each area, and as many cards and subscribers [default:
    /// 100000 divided by --branches]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub accounts: Option<u32>,
    /// How long each run is measured, in seconds
    #[arg(long, value_name = "S", default_value = "20", value_parser = seconds)]
    pub seconds: Duration,
    /// How long each run warms up before it is measured, in seconds
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    pub warmup: Duration,
    /// How many runs are measured on each cluster
    #[arg(long, visible_alias = "runs", value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeat: u32,
    /// Run the nodes with real-time priority (SCHED_RR, 10), as the paper did by rtprio. It needs CAP_SYS_NICE; without
    /// that a warning is printed, and the priority is the normal one
    #[arg(long)]
    pub real_time: bool,
    /// Leave Nagle's algorithm on between nodes: the kernel may hold small messages back
    #[arg(long)]
    pub nagle: bool,
    /// Let all nodes share a network of so many megabits a second, which proxies in this process simulate
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub link_mbit: Option<u32>,
    /// How many microseconds longer each message takes, through proxies in this process
    #[arg(long, value_name = "US", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub link_delay_us: u32,
    /// Let all nodes share the loopback network, without namespaces
    #[arg(long)]
    pub no_namespaces: bool,
    /// Print where the time of transactions over 10 ms went; each transaction then reads a file of the operating system
    #[arg(long)]
    pub outliers: bool,
    /// The directory of the nodes' data, empty or not there; it is removed at the end
    #[arg(long, value_name = "DIR", default_value = "./rialto-data/smallbase")]
    pub data: PathBuf,
    /// The bound on the memory of all nodes' tables together, in bytes; each replica has the same share [default: half
    /// of what is free]
    #[arg(long, value_name = "N")]
    pub memory_bytes: Option<u64>,
    /// The seed of the random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Also print the result as one JSON object, on the last line
    #[arg(long)]
    pub json: bool,
}

/// Run as a node of `rialto bench smallbase`, which starts it
#[derive(Debug, Clone, Args)]
#[command(hide = true)]
pub struct NodeArgs {
    /// The node's number
    pub number: u32,
    /// The socket of the process that has started it
    pub parent: PathBuf,
}

impl SmallbaseArgs {
    /// The clusters, and the load on each.
    ///
    /// # Errors
    /// [`RunError::Usage`], naming the option.
    pub fn specs(&self, workload: WorkloadName) -> Result<(Vec<Spec>, Load), RunError> {
        let program = |cause| RunError::Io { during: "looking for this program", cause };
        let nodes = if self.alone { Nodes::Alone } else { Nodes::of_this_program().map_err(program)? };
        let protocol = if self.as_paper { Protocol::AsPaper } else { Protocol::Atomic };
        let load = Load {
            clients: self.clients,
            remote_pct: self.remote_pct,
            pace: self.rate.map(|rate| match rate {
                Rate::PerSecond(rate) => Pace::PerSecond(rate),
                Rate::PercentOfPeak(percent) => Pace::PercentOfPeak(percent),
            }),
            level: match self.durability {
                LevelName::Memory => Level::Memory,
                LevelName::Standby => Level::Standby,
                LevelName::Disk => Level::Disk,
            },
            warmup: self.warmup,
            window: self.seconds,
            seed: self.seed,
            outliers: self.outliers,
        };
        let network = Network {
            nagle: self.nagle,
            mbit: self.link_mbit,
            delay: Duration::from_micros(self.link_delay_us.into()),
            namespaces: if self.no_namespaces { Namespaces::Never } else { Namespaces::IfAllowed },
        };
        let memory_bytes = self.memory_bytes.or_else(|| memory_available().map(|bytes| bytes / 2));
        let spec = |number: &u32| {
            let replicas = self.replicas.unwrap_or(if *number == 1 || self.as_paper { 1 } else { 2 });
            Spec {
                shape: Shape { nodes: *number, partitions: self.partitions_per_node, replicas },
                data: Spec::data(workload, protocol, self.branches, self.accounts),
                network,
                priority: if self.real_time { Priority::RealTime } else { Priority::Normal },
                nodes: nodes.clone(),
                directory: self.data.clone(),
                memory_bytes: memory_bytes.unwrap_or(1 << 30),
            }
        };
        let specs: Vec<Spec> = self.nodes.iter().map(spec).collect();
        specs.iter().try_for_each(|spec| spec.check(&load)).map_err(RunError::Usage)?;
        Ok((specs, load))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SmallbaseArgs,
    }

    fn read(line: &str, workload: WorkloadName) -> Result<(Vec<Spec>, Load), String> {
        let words = ["smallbase"].into_iter().chain(line.split_whitespace());
        let args = Line::try_parse_from(words).map_err(|error| error.to_string())?.args;
        args.specs(workload).map_err(|error| error.to_string())
    }

    #[test]
    fn options_become_clusters() {
        let (specs, load) = read("", WorkloadName::Tpcb).unwrap();
        assert_eq!((specs[0].shape.nodes, specs[0].shape.replicas, specs[0].data.branches), (2, 2, 10));
        assert_eq!(
            (specs[0].data.accounts, load.remote_pct, load.window),
            (10_000, 15, Duration::from_secs(20))
        );
        let line = "--nodes 1,2,8 --as-paper --level disk --link-mbit 10 --link-delay-us 150 --nagle --real-time --no-namespaces --rate 50%";
        let (specs, load) = read(line, WorkloadName::Tpcb).unwrap();
        assert_eq!(specs.iter().map(|spec| spec.shape.nodes).collect::<Vec<_>>(), [1, 2, 8]);
        assert!(specs.iter().all(|spec| spec.shape.replicas == 1 && spec.data.branches == 1));
        let spec = &specs[2];
        assert_eq!((spec.data.accounts, spec.data.protocol), (100_000, Protocol::AsPaper));
        let delay = Duration::from_micros(150);
        let network = Network { nagle: true, mbit: Some(10), delay, namespaces: Namespaces::Never };
        assert_eq!((spec.network, spec.priority, load.level), (network, Priority::RealTime, Level::Disk));
        assert_eq!(load.pace, Some(Pace::PercentOfPeak(50.0)));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, named) in [
            ("--nodes 0", "--nodes"),
            ("--nodes 65", "65 is not in 1..=64"),
            ("--nodes 2 --replicas 3", "--replicas 3"),
            ("--seconds 0", "--seconds 0"),
            ("--durability paper", "standby"),
            ("--remote-pct 101", "101"),
            ("--alone", "--nodes 1"),
            ("--alone --nodes 1 --rate 50%", "--rate"),
            ("--alone --nodes 1 --real-time", "--real-time"),
            ("--alone --nodes 1 --link-mbit 10", "--link-mbit"),
            ("--as-paper --replicas 2", "--replicas"),
            ("--as-paper --durability standby", "--as-paper"),
            ("--memory-bytes 1000", "--memory-bytes 1000"),
        ] {
            let error = read(line, WorkloadName::Tpcb).err().unwrap_or_else(|| panic!("{line} is taken"));
            assert!(error.contains(named), "{line}: {error}");
        }
        assert!(read("--as-paper", WorkloadName::Scp).unwrap_err().contains("--as-paper"));
    }
}
