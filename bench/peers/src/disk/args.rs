//! [`DiskArgs`]: the options of `peers disk`.

use std::path::PathBuf;
use std::time::Duration;

use super::table::DiskEngine;
use crate::args::seconds;

/// `peers disk`.
#[derive(Debug, Clone, clap::Args)]
pub struct DiskArgs {
    /// Rows of the table, each of 100 bytes
    #[arg(long, value_name = "N", default_value_t = 13_000_000,
          value_parser = clap::value_parser!(u32).range(1_000..=1_000_000_000))]
    pub rows: u32,
    /// The memory that each engine may have, page cache included
    #[arg(long, value_name = "M", default_value_t = 256 << 20,
          value_parser = clap::value_parser!(u64).range(128 << 20..))]
    pub memory_bytes: u64,
    /// Clients; each is a thread that blocks for its commit
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub clients: u32,
    /// How long one slice is measured, after a tenth of it as warm-up
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds)]
    pub seconds: Duration,
    /// Slices of each engine in a closed loop, and then at half of what it reached
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: u32,
    /// Which engines [default: all that are built]
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',')]
    pub engines: Vec<DiskEngine>,
    /// Where the tables are made, in a directory of this run's own that is removed at the end
    #[arg(long, value_name = "DIR", default_value = "./peers-data")]
    pub data: PathBuf,
    /// Prints a JSON object behind the table, on one line
    #[arg(long)]
    pub json: bool,
    /// What a process of its own does for the run: it serves one engine, with its table in this directory
    #[arg(long, hide = true, requires = "engines")]
    pub serve: Option<PathBuf>,
}

impl DiskArgs {
    /// The engines, each once.
    pub fn engines(&self) -> Vec<DiskEngine> {
        let all = DiskEngine::all().iter().copied();
        all.filter(|engine| self.engines.is_empty() || self.engines.contains(engine)).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    fn parse(line: &str) -> Result<DiskArgs, String> {
        let words = ["peers", "disk"].into_iter().chain(line.split_whitespace());
        match Args::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Some(Command::Disk(args)) => Ok(args),
            other => panic!("a table on disk was asked for, not {other:?}"),
        }
    }

    #[test]
    fn the_table_is_ten_times_half_of_the_memory_by_default() {
        let args = parse("").unwrap();
        assert_eq!((args.clients, args.rounds, args.memory_bytes), (64, 5, 268_435_456));
        assert!(u64::from(args.rows) * 100 > 9 * args.memory_bytes / 2);
        assert_eq!(args.engines(), DiskEngine::all());
    }

    #[test]
    fn options_are_read_and_impossible_ones_are_refused() {
        let args = parse("--rows 20000 --engines lmdb,bare,lmdb --seconds 0.5 --json").unwrap();
        assert_eq!((args.rows, args.json), (20_000, true));
        assert_eq!(args.engines(), [DiskEngine::Lmdb, DiskEngine::Bare]);
        for (line, named) in [
            ("--memory-bytes 1000", "134217728"),
            ("--engines sqlite", "sqlite"),
            ("--rows 1", "1000"),
            ("--serve x", "--engines"),
            ("--accounts 5", "--accounts"),
        ] {
            let refusal = parse(line).unwrap_err();
            assert!(refusal.contains(named), "{line}: {refusal}");
        }
    }
}
