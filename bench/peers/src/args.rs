//! [`Args`]: the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use rialto_bench::tpcb::Shape;

use crate::engine::EngineName;
use crate::error::{PeerError, Result};
use crate::guarantee::Guarantee;

/// The same TPC-B on Rialto and its peers, in one process and one run, in alternating slices
#[derive(Debug, Clone, Parser)]
#[command(
    name = "peers",
    version,
    after_help = "Exit codes: 0 ok; 1 a bank does not add up; 2 anything else."
)]
pub struct Args {
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
    /// Leaves out the section that is not durable
    #[arg(long)]
    pub durable_only: bool,
    /// Prints a JSON object behind the table, on one line
    #[arg(long)]
    pub json: bool,
    /// What a process of its own does for the run: the engine, the guarantee and the bank's directory are given
    #[arg(long, hide = true, value_enum, requires = "bank")]
    pub step: Option<Step>,
    /// The directory of a step's bank
    #[arg(long, hide = true, requires = "step")]
    pub bank: Option<PathBuf>,
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
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| (0.01..=3_600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected seconds, 0.01 to 3600".to_owned())
}

impl Args {
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

    /// The sections.
    pub fn guarantees(&self) -> &'static [Guarantee] {
        if self.durable_only { &[Guarantee::Machine] } else { &[Guarantee::Machine, Guarantee::Process] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_engines_come_once() {
        let line = ["peers", "--clients", "1,8", "--engines", "lmdb,sqlite,lmdb", "--seconds", "0.5"];
        let args = Args::try_parse_from(line).unwrap();
        assert_eq!(args.clients, [1, 8]);
        assert_eq!(args.engines(), [EngineName::Sqlite, EngineName::Lmdb]);
        assert_eq!(args.guarantees().len(), 2);
        let all = Args::try_parse_from(["peers", "--durable-only"]).unwrap();
        assert_eq!(all.engines(), EngineName::all());
        assert_eq!(all.guarantees(), [Guarantee::Machine]);
        let few = Args::try_parse_from(["peers", "--accounts", "5"]).unwrap();
        assert!(few.shape().unwrap_err().to_string().contains("5 accounts for 10 branches"));
    }

    #[test]
    fn the_command_line_is_well_formed() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }
}
