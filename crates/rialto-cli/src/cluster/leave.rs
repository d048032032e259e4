//! `rialto cluster leave`: a node without replicas is none of the cluster any more.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use rialto_cluster::node::Standing;

use super::access::Access;
use super::failed::Failed;
use crate::output::{print, tell};

/// Remove a node without replicas from the cluster
#[derive(Debug, Args)]
pub struct LeaveArgs {
    /// The node
    #[arg(value_name = "NODE")]
    node: String,
    /// The directory that has the directories of the nodes on this machine, or that of one node
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

/// Takes it off, unless it has replicas.
pub fn run(args: &LeaveArgs) -> Result<ExitCode, Failed> {
    let access = Access::of(&args.data)?;
    leave(&access, &args.node)
}

/// Takes a node off the list, unless it has replicas.
pub fn leave(access: &Access, name: &str) -> Result<ExitCode, Failed> {
    let Some(node) = access.node(name)? else {
        if let Some((_, partitions)) = access.left_behind(name)? {
            return Err(Failed::unusable(format_args!(
                "{name} has left already, and {} partitions still name it; their primaries take it off as soon as others are in \
                 sync. To wait for that: rialto cluster drain {name} --data DIR",
                partitions.len()
            )));
        }
        return Ok(print(format_args!("{name} has left the cluster already"), ExitCode::SUCCESS));
    };
    let refused = |partitions: &[String]| {
        Failed::unusable(format_args!(
            "{name} has replicas, of the partitions {}. Move them first: rialto cluster drain {name} --data DIR; or, if its \
             machine is lost for good: rialto cluster replace {name} NEW --data DIR",
            partitions.join(", ")
        ))
    };
    let on_it = || -> Result<Vec<String>, Failed> {
        Ok(access.placement()?.on(node.node).iter().map(|partition| partition.0.to_string()).collect())
    };
    let partitions = on_it()?;
    if !partitions.is_empty() {
        return Err(refused(&partitions));
    }
    tell(format_args!("{name} has no replicas, and is taken from the cluster's list"));
    // From here on it gets none. One that was on its way is seen now.
    access.set_standing(name, Standing::Draining)?;
    let partitions = on_it()?;
    if !partitions.is_empty() {
        return Err(refused(&partitions));
    }
    access.set_standing(name, Standing::Left)?;
    let text = format!("{name} has left. End its process; its directory can be removed");
    Ok(print(text, ExitCode::SUCCESS))
}
