//! [`Args`]: the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use rialto_workloads::tpcb::Shape;

use crate::disk::args::DiskArgs;
use crate::engine::EngineName;
use crate::error::{PeerError, Result};
use crate::guarantee::Guarantee;

/// The same TPC-B on Rialto and its peers, in one process and one run, in alternating slices
#[derive(Debug, Clone, Parser)]
#[command(
    name = "peers",
    version,
    args_conflicts_with_subcommands = true,
    after_help = "Exit codes: 0 ok; 1 a bank does not add up; 2 anything else."
)]
pub struct Args {
    /// Another measurement than the table of throughputs
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The banks
    #[command(flatten)]
    pub common: Common,
    /// How long one slice is measured, after a tenth of it as warm-up
    #[arg(long, value_name = "S", default_value = "3", value_parser = seconds)]
    pub seconds: Duration,
    /// Slices of each engine for each number of clients
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: u32,
    /// Numbers of clients; each client is a thread that blocks for its commit
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [1, 8, 32, 64],
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub clients: Vec<u32>,
    /// Leaves out the section that is not durable
    #[arg(long)]
    pub durable_only: bool,
    /// What a process of its own does for the run: the engine, the guarantee and the bank's directory are given
    #[arg(long, hide = true, value_enum, requires = "bank")]
    pub step: Option<Step>,
    /// The directory of a step's bank
    #[arg(long, hide = true, requires = "step")]
    pub bank: Option<PathBuf>,
    /// How many transactions the step `work` runs
    #[arg(long, hide = true, default_value_t = 0, requires = "step")]
    pub transactions: u64,
}

/// Other measurements.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Latency against offered load, up to saturation: open loops, durable; a table and a picture
    Curve(CurveArgs),
    /// Memory of a row, recovery after SIGKILL, and the time from an empty directory to the first commit
    Recovery(RecoveryArgs),
    /// Tables much larger than memory: each engine within the same memory limit; needs root
    Disk(DiskArgs),
    /// The figures of docs/performance.md, out of what performance.sh left
    Performance(PerformanceArgs),
}

/// What all measurements take.
#[derive(Debug, Clone, clap::Args)]
pub struct Common {
    /// Accounts in all
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub accounts: u32,
    /// Branches, each with ten tellers
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub branches: u32,
    /// Which engines [default: all that are built]
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',')]
    pub engines: Vec<EngineName>,
    /// Where the banks are made, in a directory of this run's own that is removed at the end
    #[arg(long, value_name = "DIR", default_value = "./peers-data")]
    pub data: PathBuf,
    /// Prints a JSON object behind the table, on one line
    #[arg(long)]
    pub json: bool,
}

/// `peers curve`.
#[derive(Debug, Clone, clap::Args)]
pub struct CurveArgs {
    /// The banks
    #[command(flatten)]
    pub common: Common,
    /// Clients; each is a thread that sleeps until its next transaction is due and blocks for its commit
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub clients: u32,
    /// Offered loads, in transactions a second; each engine gets those up to the second in succession, above its peak in
    /// a closed loop, that it does not keep up with [default: from 1000 on, each 1.41 times the one before]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = rate)]
    pub rates: Vec<f64>,
    /// How long one slice is measured, after a tenth of it as warm-up
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds)]
    pub seconds: Duration,
    /// Slices of each engine for each load
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: u32,
    /// Draws Rialto and the peer that reaches most into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Measures nothing: reads what --json printed, its last line, from this file
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
}

/// `peers recovery`.
#[derive(Debug, Clone, clap::Args)]
pub struct RecoveryArgs {
    /// The banks
    #[command(flatten)]
    pub common: Common,
    /// Transactions between the last checkpoint and the SIGKILL
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub transactions: u64,
    /// How often each engine opens what was left, and an empty directory
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: u32,
}

/// `peers performance`.
#[derive(Debug, Clone, clap::Args)]
pub struct PerformanceArgs {
    /// The directory of performance.sh
    #[arg(value_name = "OUT")]
    pub directory: PathBuf,
    /// Puts them between the marks of this page, instead of printing them
    #[arg(long, value_name = "FILE")]
    pub into: Option<PathBuf>,
}

/// What a process of its own does: so that its memory can be measured, or so that it can be killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Step {
    /// Makes a bank
    Load,
    /// Opens a bank, reads all of it, and prints the resident bytes that this took
    Memory,
    /// Opens a bank, and runs one client until it is killed; prints the count of its commits after each
    Churn,
    /// Opens a bank, checks that it adds up, and prints how many rows the history has
    Check,
    /// Opens a bank, makes a checkpoint, runs transactions, prints how fast, and waits to be killed
    Work,
    /// Opens a bank and runs a transaction, prints how long each took, and waits to be killed
    Open,
}

/// Reads seconds.
///
/// # Errors
/// If they are out of bounds.
pub fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| (0.01..=3_600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected seconds, 0.01 to 3600".to_owned())
}

fn rate(text: &str) -> std::result::Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| (1.0..=1e9).contains(rate));
    rate.ok_or_else(|| "expected transactions a second, 1 to 1000000000".to_owned())
}

impl Common {
    /// The bank's size.
    ///
    /// # Errors
    /// If there are not enough accounts.
    pub fn shape(&self) -> Result<Shape> {
        if self.accounts < self.branches {
            return Err(PeerError::Usage(format!(
                "{} accounts for {} branches: expected at least one each (--accounts, --branches)",
                self.accounts, self.branches
            )));
        }
        Ok(Shape { branches: self.branches, accounts: self.accounts })
    }

    /// The engines, each once.
    pub fn engines(&self) -> Vec<EngineName> {
        let all = EngineName::all().iter().copied();
        all.filter(|engine| self.engines.is_empty() || self.engines.contains(engine)).collect()
    }
}

impl CurveArgs {
    /// The loads that are given, ascending.
    pub fn loads(&self) -> Vec<f64> {
        let mut loads = self.rates.clone();
        loads.sort_by(f64::total_cmp);
        loads
    }
}

impl Args {
    /// The sections.
    pub fn guarantees(&self) -> &'static [Guarantee] {
        if self.durable_only { &[Guarantee::Machine] } else { &[Guarantee::Machine, Guarantee::Process] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> std::result::Result<Args, String> {
        let words = ["peers"].into_iter().chain(line.split_whitespace());
        Args::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn lists_are_read_and_engines_come_once() {
        let args = parse("--clients 1,8 --engines lmdb,sqlite,lmdb --seconds 0.5").unwrap();
        assert_eq!(args.clients, [1, 8]);
        assert_eq!(args.common.engines(), [EngineName::Sqlite, EngineName::Lmdb]);
        assert_eq!(args.guarantees().len(), 2);
        let all = parse("--durable-only").unwrap();
        assert_eq!(all.common.engines(), EngineName::all());
        assert_eq!(all.guarantees(), [Guarantee::Machine]);
        let few = parse("--accounts 5").unwrap();
        assert!(few.common.shape().unwrap_err().to_string().contains("5 accounts for 10 branches"));
    }

    #[test]
    fn measurements_have_their_own_options_and_take_no_others() {
        let Some(Command::Curve(curve)) =
            parse("curve --rates 2e3,1000 --engines redb --json").unwrap().command
        else {
            panic!("a curve was asked for");
        };
        assert_eq!((curve.loads(), curve.clients, curve.common.json), (vec![1_000.0, 2_000.0], 32, true));
        assert_eq!(curve.common.engines(), [EngineName::Redb]);
        let Some(Command::Recovery(recovery)) =
            parse("recovery --accounts 20 --transactions 0").unwrap().command
        else {
            panic!("a recovery was asked for");
        };
        assert_eq!((recovery.common.accounts, recovery.transactions, recovery.rounds), (20, 0, 3));
        for (line, named) in [
            ("curve --rates 0", "1 to 1000000000"),
            ("curve --durable-only", "--durable-only"),
            ("recovery --seconds 1", "--seconds"),
            ("--seconds 1 recovery", "recovery"),
            ("--transactions 1", "--step"),
        ] {
            let refusal = parse(line).unwrap_err();
            assert!(refusal.contains(named), "{line}: {refusal}");
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }
}
