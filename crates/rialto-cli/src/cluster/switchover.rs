//! `rialto cluster switchover`: a planned change of a partition's primary.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use rialto_cluster::node::admin::{AdminAnswer, AdminRequest};

use super::failed::Failed;
use super::view::{NodeState, NodeView, View};
use crate::output::{print, tell};

/// How long the command waits for the change.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the command looks again.
const POLL: Duration = Duration::from_millis(200);

/// Make another replica of a partition, one that is in sync, its primary; nothing is lost
#[derive(Debug, Args)]
pub struct SwitchoverArgs {
    /// The directory that has the directories of the nodes on this machine, or that of one node
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The partition
    #[arg(long, value_name = "N")]
    partition: u32,
    /// The node whose replica becomes the primary
    #[arg(long, value_name = "NODE")]
    to: String,
}

/// Changes it, and waits until the other replica serves.
pub fn run(args: &SwitchoverArgs) -> Result<ExitCode, Failed> {
    let view = View::of(&args.data)?;
    let to = view.node(&args.to)?;
    let (_, found) = view.partition(args.partition)?;
    if to.number == Some(found.primary) {
        let text = format!("partition {}: the primary is on {} already", args.partition, to.name);
        return Ok(print(text, ExitCode::SUCCESS));
    }
    tell(format_args!(
        "partition {}: the primary moves from {} to {}. Transactions wait meanwhile; nothing is lost",
        args.partition,
        view.name(found.primary),
        to.name
    ));
    let epoch = change(&view, args.partition, to, &args.data)?;
    let text = format!("partition {}: the primary is on {}, epoch {epoch}", args.partition, args.to);
    Ok(print(text, ExitCode::SUCCESS))
}

/// Has another replica lead, and waits until it serves. Gives its epoch.
pub fn change(view: &View, partition: u32, to: &NodeView, data: &Path) -> Result<u64, Failed> {
    let (_, found) = view.partition(partition)?;
    let Some(number) = to.number else {
        return Err(Failed::failing(format_args!(
            "neither the control store nor a node that answers knows the number of {}; start one of these",
            to.name
        )));
    };
    if !found.in_sync.contains(&number) {
        return Err(Failed::unusable(format_args!(
            "{}'s replica of partition {partition} is not in sync; in sync are those of {}",
            to.name,
            view.names(&found.in_sync).join(", ")
        )));
    }
    let from = view.name(found.primary);
    let Some(primary) = view.numbered(found.primary) else {
        return Err(Failed::failing(format_args!(
            "neither the control store nor a node that answers knows {from}; start one of these"
        )));
    };
    if let AdminAnswer::Refused(why) =
        view.ask(primary, AdminRequest::Switchover { partition, to: number })?
    {
        return Err(Failed::failing(format_args!("{from} refuses: {why}")));
    }
    let began = Instant::now();
    loop {
        let view = View::of(data)?;
        let (seen, found) = view.partition(partition)?;
        let is_elsewhere = view.node(&to.name)?.state == NodeState::Elsewhere;
        if found.primary == number && (is_elsewhere || seen.serves == Some(number)) {
            return Ok(found.epoch);
        }
        if began.elapsed() > PATIENCE {
            return Err(Failed::failing(format_args!(
                "the primary of partition {partition} is not on {} after {} s; it is on {}. See rialto cluster status",
                to.name,
                PATIENCE.as_secs(),
                view.name(found.primary)
            )));
        }
        std::thread::sleep(POLL);
    }
}
