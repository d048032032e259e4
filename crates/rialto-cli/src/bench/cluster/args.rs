//! [`ClusterBenchArgs`]: the command line.

use std::time::Duration;

use clap::{Args, ValueEnum};
use rialto_measure::RunError;

use super::bank::ACCOUNTS_PER_BRANCH;
use crate::args::seconds;

/// The accounts that are loaded, unless told otherwise.
pub const ACCOUNTS: u32 = 10_000;
const ACCOUNTS_MAX: u32 = 1_000_000;

/// Run transfers of money on a cluster, also while nodes fail, and verify that no answered commit is lost
///
/// The clients connect to all nodes. After 40001, 40P01, 57P03 and 55P03 a client goes on in its session, after other
/// errors at the next node. The tables bench_accounts and bench_ledger are made and loaded if they are not there. A
/// server of one database can be measured, too. Exit code 1: an answered commit is lost, or the data are inconsistent.
#[derive(Debug, Clone, Args)]
pub struct ClusterBenchArgs {
    /// Where nodes take clients; these nodes are asked for the addresses of the others
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', required = true)]
    pub connect: Vec<String>,
    /// The number of clients, each a thread that waits for each commit
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub clients: u32,
    /// When a commit is answered. A failover may lose commits that were answered at level memory
    #[arg(long, value_enum, default_value = "disk")]
    pub durability: LevelName,
    /// How long the clients run, in seconds
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    pub seconds: Duration,
    /// The number of accounts, a multiple of 10: each branch of the bank has 10. Tables that are there already are
    /// used; with this option they are refused if they have another number [default: 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(20..=i64::from(ACCOUNTS_MAX)))]
    pub accounts: Option<u32>,
    /// The percentage of transfers between two branches, which lie in two partitions, or by chance in the same one; the
    /// others stay within one branch, and so within one partition. Without this option both accounts are drawn from all
    #[arg(long, value_name = "PCT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub remote_pct: Option<u8>,
    /// The seed of the random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Also print the result as one JSON object, on the last line
    #[arg(long)]
    pub json: bool,
}

/// When a commit is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LevelName {
    /// Level 1: once it is in the memory of the primary
    Memory,
    /// Level 2: once it is in the memory of each replica in sync
    Standby,
    /// Level 3: once it is on the primary's disk, too
    Disk,
}

impl LevelName {
    /// The name, on the command line and in SQL.
    pub const fn name(self) -> &'static str {
        match self {
            LevelName::Memory => "memory",
            LevelName::Standby => "standby",
            LevelName::Disk => "disk",
        }
    }
}

impl ClusterBenchArgs {
    /// Refuses what clap cannot see.
    ///
    /// # Errors
    /// [`RunError::Usage`], naming the option and what is available.
    pub fn check(&self) -> Result<(), RunError> {
        if self.seconds.is_zero() {
            return Err(RunError::Usage("--seconds 0 measures nothing; give a time above zero".to_owned()));
        }
        if let Some(accounts) = self.accounts
            && accounts % ACCOUNTS_PER_BRANCH != 0
        {
            return Err(RunError::Usage(format!(
                "--accounts {accounts} is no multiple of {ACCOUNTS_PER_BRANCH}, the accounts of a branch"
            )));
        }
        match self.connect.iter().find(|address| !is_address(address)) {
            Some(wrong) => Err(RunError::Usage(format!("--connect: \"{wrong}\"; expected HOST:PORT"))),
            None => Ok(()),
        }
    }
}

fn is_address(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ClusterBenchArgs,
    }

    fn read(line: &str) -> Result<ClusterBenchArgs, String> {
        let words = ["cluster"].into_iter().chain(line.split_whitespace());
        let args = Line::try_parse_from(words).map_err(|error| error.to_string())?.args;
        args.check().map_err(|error| error.to_string())?;
        Ok(args)
    }

    #[test]
    fn several_addresses_and_a_level_are_read() {
        let args = read("--connect a:1,[::1]:2 --connect c:3 --durability standby --remote-pct 0").unwrap();
        assert_eq!(args.connect, ["a:1", "[::1]:2", "c:3"]);
        assert_eq!((args.durability, args.remote_pct), (LevelName::Standby, Some(0)));
        assert_eq!((args.clients, args.seconds, args.accounts), (32, Duration::from_secs(10), None));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, named) in [
            ("", "--connect"),
            ("--connect host", "\"host\"; expected HOST:PORT"),
            ("--connect :5", "expected HOST:PORT"),
            ("--connect a:1,", "expected HOST:PORT"),
            ("--connect a:1 --accounts 10", "10 is not in 20..=1000000"),
            ("--connect a:1 --accounts 25", "no multiple of 10"),
            ("--connect a:1 --remote-pct 101", "101 is not in 0..=100"),
            ("--connect a:1 --seconds 0", "--seconds 0"),
            ("--connect a:1 --durability paper", "standby"),
        ] {
            let error = read(line).err().unwrap_or_else(|| panic!("{line} is taken"));
            assert!(error.contains(named), "{line}: {error}");
        }
    }
}
