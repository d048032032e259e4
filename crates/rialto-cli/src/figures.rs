//! `rialto figures`: the papers' experiments.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rialto_figures::Lab;
use rialto_measure::RunError;

/// Run the papers' experiments, each to a table, a picture and a paragraph with the paper's figures beside ours
#[derive(Debug, Clone, Args)]
pub struct FiguresArgs {
    /// Which ones; all if none is named
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
    /// Where ID.csv, ID.svg and ID.md are written; made if it is not there
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Where the runs on the disk have their files, which are gone at the end
    #[arg(long, value_name = "DIR", default_value = "./rialto-data/figures")]
    pub data: PathBuf,
    /// How long each point on the disk, or on the clock, is measured (m-4.1: each of 20 intervals; m-4.2, m-4.3: a fifth, a
    /// fourth of each row); 0 for virtual time alone
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub seconds: f64,
    /// Of the figures dora-…: how many times each point is measured, in rounds that take the systems in turn; five are the fewest
    /// of which a ratio has an interval
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Of the figures dora-…: how large their tables are, in percent of the paper's
    #[arg(long, value_name = "PCT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub scale: u32,
    /// Commits that each point in virtual time measures
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    pub commits: u64,
    /// Where the random choices come from
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
    };
    rialto_figures::run(&args.ids, &lab, &args.out, out)
}
