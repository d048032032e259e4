//! `rialto cluster switchover`: a planned change of a partition's primary.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use rialto_cluster::node::admin::{AdminAnswer, AdminRequest};

use super::failed::Failed;
use super::view::{NodeState, View};
use crate::output::{print, tell};

/// How long it waits for the change.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(200);

/// Have another replica of a partition lead, which is in sync; nothing is lost
#[derive(Debug, Args)]
pub struct SwitchoverArgs {
    /// The directory that has the directories of the nodes on this machine
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The partition
    #[arg(long, value_name = "N")]
    partition: u32,
    /// The node whose replica is to lead
    #[arg(long, value_name = "NODE")]
    to: String,
}

/// Changes it, and waits until the other replica serves.
pub fn run(args: &SwitchoverArgs) -> Result<ExitCode, Failed> {
    let view = View::of(&args.data)?;
    let to = view.node(&args.to)?;
    let (_, found) = view.partition(args.partition)?;
    let Some(number) = to.number else {
        return Err(Failed::failing(format_args!("nothing that answers knows the number of {}", to.name)));
    };
    if found.primary == number {
        let text = format!("partition {}: the primary is on {} already", args.partition, to.name);
        return Ok(print(text, ExitCode::SUCCESS));
    }
    if !found.in_sync.contains(&number) {
        return Err(Failed::unusable(format_args!(
            "{}'s replica of partition {} is not in sync; in sync are those of {}",
            to.name,
            args.partition,
            view.names(&found.in_sync).join(", ")
        )));
    }
    let from = view.name(found.primary);
    tell(format_args!(
        "partition {}: the primary moves from {from} to {}. Transactions wait meanwhile; nothing is lost",
        args.partition, to.name
    ));
    let Some(primary) = view.numbered(found.primary) else {
        return Err(Failed::failing(format_args!("nothing that answers knows {from}")));
    };
    let request = AdminRequest::Switchover { partition: args.partition, to: number };
    if let AdminAnswer::Refused(why) = view.ask(primary, request)? {
        return Err(Failed::failing(format_args!("{from} refuses: {why}")));
    }
    let began = Instant::now();
    loop {
        let view = View::of(&args.data)?;
        let (partition, found) = view.partition(args.partition)?;
        let is_elsewhere = view.node(&args.to)?.state == NodeState::Elsewhere;
        if found.primary == number && (is_elsewhere || partition.serves == Some(number)) {
            let text =
                format!("partition {}: the primary is on {}, epoch {}", args.partition, args.to, found.epoch);
            return Ok(print(text, ExitCode::SUCCESS));
        }
        if began.elapsed() > PATIENCE {
            return Err(Failed::failing(format_args!(
                "the primary of partition {} is not on {} after {} s; it is on {}. See rialto cluster status",
                args.partition,
                args.to,
                PATIENCE.as_secs(),
                view.name(found.primary)
            )));
        }
        std::thread::sleep(LOOK);
    }
}
