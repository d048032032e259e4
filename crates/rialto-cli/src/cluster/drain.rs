//! `rialto cluster drain`: all replicas of a node go to other nodes.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use rialto_cluster::node::Standing;

use super::access::Access;
use super::failed::Failed;
use super::moving::{self, AtATime};
use super::say::say;
use crate::output::print;

/// Move all replicas of a node to other nodes; nothing is lost, and the partitions serve meanwhile
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// The node
    #[arg(value_name = "NODE")]
    node: String,
    /// The directory that has the directories of the nodes on this machine, or that of one node
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    #[command(flatten)]
    at_a_time: AtATime,
}

/// Moves them, and waits until the node has none.
pub fn run(args: &DrainArgs) -> Result<ExitCode, Failed> {
    let access = Access::of(&args.data)?;
    let Some(node) = access.node(&args.node)? else {
        if let Some((node, partitions)) = access.left_behind(&args.node)? {
            say(format_args!("{} has left, and {} partitions still name it", node.name, partitions.len()))?;
            moving::drain(&access, &node, None, args.at_a_time)?;
        }
        return Ok(print(format_args!("{} has left the cluster", args.node), ExitCode::SUCCESS));
    };
    let partitions = access.placement()?.on(node.node).len();
    say(format_args!(
        "{}: it gets no new replicas, and those that it has ({partitions}) go to other nodes",
        node.name
    ))?;
    access.set_standing(&node.name, Standing::Draining)?;
    moving::drain(&access, &node, None, args.at_a_time)?;
    let text = format!(
        "{} has no replicas. To take it from the cluster: rialto cluster leave {} --data DIR. To use it again: rialto \
         cluster join, and then rialto cluster balance",
        node.name, node.name
    );
    Ok(print(text, ExitCode::SUCCESS))
}
