//! `rialto figures`: the papers' experiments.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rialto_figures::{Beyond, Lab};
use rialto_measure::RunError;

/// Run the papers' experiments, each to a table, a picture and a paragraph with the paper's figures beside ours
#[derive(Debug, Clone, Args)]
pub struct FiguresArgs {
    /// The figures to make, such as koda-6, m-4.1, dora-1, charm-2 or cluster-t1 [default: all, which takes hours]. An
    /// unknown ID is answered with all IDs and their titles
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
    /// The directory for ID.csv, ID.svg and ID.md; created if it does not exist
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// The directory for the files of runs on a disk; the files are removed at the end
    #[arg(long, value_name = "DIR", default_value = "./rialto-data/figures")]
    pub data: PathBuf,
    /// How long each point in real time is measured, in seconds; with 0 only points in virtual time are measured. In
    /// each round a row of m-4.1 and m-4.3 takes 4 times as long, a row of m-4.2 takes 5 times as long
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub seconds: f64,
    /// The number of rounds, each of which measures all points of a figure m-… or dora-… in turn; of windows of each
    /// point of a figure charm-…; and of runs of each cluster of a figure cluster-…. A ratio of fewer than five has no
    /// 90% interval
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// The size of the tables of the figures dora-…, in percent of the paper's
    #[arg(long, value_name = "PCT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub scale: u32,
    /// The number of commits that each point in virtual time measures; for the figures charm-…, each window
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    pub commits: u64,
    /// The numbers of nodes of the clusters that cluster-scale simulates
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "8,64,256,1000", value_parser = clap::value_parser!(u32).range(1..=2_000))]
    pub nodes: Vec<u32>,
    /// The cores of each simulated node of cluster-scale [default: those of this machine]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub node_cores: Option<u32>,
    /// How long a message between two simulated nodes of cluster-scale takes, in microseconds
    #[arg(long, value_name = "US", default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    pub link_delay_us: u64,
    /// How fast each simulated node of cluster-scale can send, in megabits a second
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub link_mbit: u32,
    /// For cluster-scale: simulate whole transactions, which commit in both nodes or in none and wait for standbys,
    /// instead of transactions as the paper ran them
    #[arg(long)]
    pub with_standbys: bool,
    /// For cluster-scale: print the results for --nodes even if the simulation has not predicted the measured clusters
    /// within 10%
    #[arg(long)]
    pub even_if_it_misses: bool,
    /// The seed of the random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Runs the experiments and writes them; what was written goes to `out`.
///
/// # Errors
/// [`RunError`], each with its exit code.
pub fn run(args: &FiguresArgs, out: &mut dyn Write) -> Result<(), RunError> {
    if !(0.0..=3600.0).contains(&args.seconds) {
        return Err(RunError::Usage(format!("--seconds is {}, expected 0 to 3600", args.seconds)));
    }
    let lab = Lab {
        data: args.data.clone(),
        seconds: (args.seconds > 0.0).then(|| Duration::from_secs_f64(args.seconds)),
        commits: args.commits,
        rounds: args.rounds,
        scale: args.scale,
        seed: args.seed,
        beyond: Beyond {
            nodes: args.nodes.clone(),
            cores: args.node_cores.map(|cores| cores as usize),
            delay: Duration::from_micros(args.link_delay_us),
            mbit: f64::from(args.link_mbit),
            has_standbys: args.with_standbys,
            even_if_it_misses: args.even_if_it_misses,
        },
    };
    rialto_figures::run(&args.ids, &lab, &args.out, out)
}
