//! `rialto cluster balance`: replicas go to nodes that have fewer of them.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::access::Access;
use super::failed::Failed;
use super::moving::{self, AtATime};
use super::say::say;
use crate::output::print;

/// Move replicas to nodes that have fewer of them, until all nodes have about as many
#[derive(Debug, Args)]
pub struct BalanceArgs {
    /// The directory that has the directories of the nodes on this machine, or that of one node
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    #[command(flatten)]
    at_a_time: AtATime,
}

/// Moves them, and waits for that.
pub fn run(args: &BalanceArgs) -> Result<ExitCode, Failed> {
    let access = Access::of(&args.data)?;
    say(
        "replicas move until the numbers of replicas on any two nodes differ by one at most; nodes that drain get none",
    )?;
    moving::balance(&access, args.at_a_time)?;
    Ok(print("the replicas are balanced", ExitCode::SUCCESS))
}
