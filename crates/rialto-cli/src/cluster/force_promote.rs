//! `rialto cluster force-promote`: a replica leads whatever the others have.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use rialto_cluster::node::admin::{AdminAnswer, AdminRequest, ConfigurationReport};

use super::failed::Failed;
use super::view::{NodeView, View};
use crate::output::{print, tell};

/// How long the command waits for the change.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the command looks again.
const POLL: Duration = Duration::from_millis(200);

/// Make a replica of a partition lead by force: what only other replicas have is lost
#[derive(Debug, Args)]
pub struct ForcePromoteArgs {
    /// The directory that has the directories of the nodes on this machine, or that of one node
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The partition
    #[arg(long, value_name = "N")]
    partition: u32,
    /// The node whose replica is to lead; it has to run
    #[arg(long, value_name = "NODE")]
    node: String,
    /// A dead node that stays away until this is over. All other nodes with a replica of the partition have to answer
    /// first
    #[arg(long, value_name = "NODE")]
    without: Vec<String>,
    /// Do it; without this option the command only says what would be lost
    #[arg(long)]
    yes: bool,
}

/// Says what may be lost, and does it if that was confirmed.
pub fn run(args: &ForcePromoteArgs) -> Result<ExitCode, Failed> {
    let view = View::of(&args.data)?;
    let node = view.node(&args.node)?;
    let (partition, found) = view.partition(args.partition)?;
    let without: Vec<&NodeView> =
        args.without.iter().map(|name| view.node(name)).collect::<Result<_, _>>()?;
    if without.iter().any(|other| other.name == node.name) {
        return Err(Failed::usage(format_args!("--without {}: it is the one that is to lead", node.name)));
    }
    let number = node.number.filter(|_| node.report.is_some()).ok_or_else(|| {
        Failed::failing(format_args!(
            "{} does not answer; start it first, and make sure that the nodes reach each other",
            node.name
        ))
    })?;
    if found.primary == number && partition.serves == Some(number) {
        let text = format!("partition {}: the replica on {} leads, and serves", args.partition, node.name);
        return Ok(print(text, ExitCode::SUCCESS));
    }
    if node.replica(args.partition).is_none() {
        return Err(Failed::unusable(format_args!(
            "{} has no replica of partition {}",
            node.name, args.partition
        )));
    }
    tell(loss(&view, node, args.partition, found, &without).trim_end());
    if !args.yes {
        return Err(Failed::usage("nothing was done; to do it, give --yes"));
    }
    let numbers = without.iter().filter_map(|other| other.number).collect();
    let request = AdminRequest::Force { partition: args.partition, without: numbers };
    if let AdminAnswer::Refused(why) = view.ask(node, request)? {
        return Err(Failed::failing(format_args!("{} refuses: {why}", node.name)));
    }
    let began = Instant::now();
    loop {
        let view = View::of(&args.data)?;
        let (partition, found) = view.partition(args.partition)?;
        if found.primary == number && partition.serves == Some(number) {
            let text = format!(
                "partition {}: the replica on {} leads, epoch {}",
                args.partition, args.node, found.epoch
            );
            return Ok(print(text, ExitCode::SUCCESS));
        }
        if began.elapsed() > PATIENCE {
            return Err(Failed::failing(format_args!(
                "the replica on {} does not lead after {} s. It waits for the control store, and until all other nodes of \
                 the partition have answered that they are fenced: name those that are dead by --without",
                args.node,
                PATIENCE.as_secs()
            )));
        }
        std::thread::sleep(POLL);
    }
}

/// What may be lost, in words.
fn loss(
    view: &View,
    node: &NodeView,
    partition: u32,
    found: &ConfigurationReport,
    without: &[&NodeView],
) -> String {
    let own = node.replica(partition).and_then(|replica| replica.received).map_or(0, |end| end.position);
    let mut text = format!(
        "partition {partition}: the replica on {} is to lead, by force. The primary is on {}; in sync are {}\n",
        node.name,
        view.name(found.primary),
        view.names(&found.in_sync).join(", ")
    );
    for number in found.in_sync.iter().chain(&found.learners).filter(|other| Some(**other) != node.number) {
        let name = view.name(*number);
        let replica = view.numbered(*number).and_then(|other| other.replica(partition));
        let is_left_out = without.iter().any(|other| other.number == Some(*number));
        let _ = match replica.and_then(|replica| replica.received).map(|end| end.position) {
            Some(position) if position > own => writeln!(
                text,
                "  {name} has {} bytes of log more: the transactions in them, and any later ones, are lost",
                position - own
            ),
            Some(_) => writeln!(text, "  {name} has no more log"),
            None if is_left_out => writeln!(
                text,
                "  {name} is not asked: what only it has is lost, also if it was answered at level 2 or 3"
            ),
            None => writeln!(
                text,
                "  {name} does not answer: the change waits for it, unless you give --without {name}"
            ),
        };
    }
    text
}
