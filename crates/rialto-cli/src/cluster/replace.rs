//! `rialto cluster replace`: a node takes the place of one that is lost for good.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use rialto_cluster::node::Standing;

use super::access::Access;
use super::failed::Failed;
use super::leave::leave;
use super::moving::{self, AtATime};
use super::say::say;

/// Give the replicas of a node that is lost for good to another node, and remove the lost node from the cluster
#[derive(Debug, Args)]
pub struct ReplaceArgs {
    /// The node that is lost; it may be dead
    #[arg(value_name = "OLD")]
    old: String,
    /// The node that gets its replicas; it has joined, and runs
    #[arg(value_name = "NEW")]
    new: String,
    /// The directory that has the directories of the nodes on this machine, or that of one node
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    #[command(flatten)]
    at_a_time: AtATime,
}

/// Makes the replicas of the old node again on the new one, and takes the old one off the list.
pub fn run(args: &ReplaceArgs) -> Result<ExitCode, Failed> {
    let access = Access::of(&args.data)?;
    let new = access.node(&args.new)?.filter(|node| node.standing == Standing::Member);
    let new = new.ok_or_else(|| {
        Failed::usage(format_args!(
            "{} has left the cluster, or is being drained; it joins again by rialto cluster join",
            args.new
        ))
    })?;
    let Some(old) = access.node(&args.old)? else { return leave(&access, &args.old) };
    if old.node == new.node {
        return Err(Failed::usage(format_args!("{} cannot take its own place", args.old)));
    }
    let partitions = access.placement()?.on(old.node).len();
    say(format_args!(
        "the replicas of {} ({partitions}) are made again on {}, where it has none of the same partition; then {} leaves the \
         cluster",
        old.name, new.name, old.name
    ))?;
    access.set_standing(&old.name, Standing::Draining)?;
    moving::drain(&access, &old, Some(new.node), args.at_a_time)?;
    leave(&access, &old.name)
}
