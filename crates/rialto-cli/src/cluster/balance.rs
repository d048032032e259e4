//! `rialto cluster balance`: replicas and primaries go to nodes that have fewer of them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use rialto_cluster::node::{Standing, next_primary};
use rialto_cluster::protocol::{NodeId, PartitionId};

use super::access::Access;
use super::failed::Failed;
use super::moving::{self, AtATime};
use super::say::say;
use super::switchover;
use super::view::{NodeState, View};
use crate::output::{print, tell};

/// How long the command waits until the replicas of a partition whose primary has changed are in sync again.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the command looks again.
const POLL: Duration = Duration::from_millis(500);

/// Move replicas to nodes that have fewer of them, then primaries, until all nodes have about equally many of both
#[derive(Debug, Args)]
pub struct BalanceArgs {
    /// The directory that has the directories of the nodes on this machine, or that of one node
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Move no replicas, only change which of them lead
    #[arg(long)]
    primaries_only: bool,
    #[command(flatten)]
    at_a_time: AtATime,
}

/// Moves them, and waits for that.
pub fn run(args: &BalanceArgs) -> Result<ExitCode, Failed> {
    let access = Access::of(&args.data)?;
    if !args.primaries_only {
        say(
            "replicas move until the numbers of replicas on any two nodes differ by one at most; nodes that drain get none",
        )?;
        moving::balance(&access, args.at_a_time)?;
        say("the replicas are balanced")?;
    }
    say(
        "primaries change, one after the other, until all nodes lead about equally many partitions, as far as their replicas \
         allow that; nodes that drain or do not answer take no part",
    )?;
    let stayed = balance_primaries(&access, args)?;
    if !stayed.is_empty() {
        let stayed: Vec<String> = stayed.iter().map(|partition| partition.0.to_string()).collect();
        return Err(Failed::failing(format_args!(
            "the primaries of partitions {} have not changed; the others are balanced. Run this again",
            stayed.join(", ")
        )));
    }
    Ok(print("the primaries are balanced", ExitCode::SUCCESS))
}

/// Changes primaries until no change helps. Gives the partitions whose primaries were to change, and have not.
fn balance_primaries(access: &Access, args: &BalanceArgs) -> Result<BTreeSet<PartitionId>, Failed> {
    let mut stayed = BTreeSet::new();
    loop {
        let (placement, view) = (access.placement()?, View::of(&args.data)?);
        let takes_part = |number: &u32| {
            let found = view.numbered(*number);
            found.is_some_and(|node| node.state == NodeState::Up && node.standing == Standing::Member)
        };
        let numbers = placement.nodes.iter().map(|node| node.node);
        let nodes: BTreeSet<NodeId> = numbers.filter(takes_part).map(NodeId).collect();
        let Some((partition, to)) = next_primary(&placement, &nodes, &stayed) else { return Ok(stayed) };
        let to = view.numbered(to.0).expect("it takes part");
        let from = placement.configurations[&partition].primary;
        say(format_args!("{partition}: the primary moves from {} to {}", view.name(from.0), to.name))?;
        match switchover::change(&view, partition.0, to, &args.data) {
            Ok(epoch) => {
                say(format_args!("{partition}: the primary is on {}, epoch {epoch}", to.name))?;
                let in_sync = placement.configurations[&partition].in_sync.len();
                wait_in_sync(partition, in_sync, args)?;
            }
            Err(failed) => {
                tell(format_args!("{partition}: {}", failed.text));
                stayed.insert(partition);
            }
        }
    }
}

/// Waits until as many replicas are in sync as before: the one that led comes back as one that catches up.
fn wait_in_sync(partition: PartitionId, before: usize, args: &BalanceArgs) -> Result<(), Failed> {
    let began = Instant::now();
    while View::of(&args.data)?.partition(partition.0)?.1.in_sync.len() < before {
        if began.elapsed() > PATIENCE {
            tell(format_args!(
                "{partition}: fewer replicas are in sync than before, after {} s: see rialto cluster status",
                PATIENCE.as_secs()
            ));
            return Ok(());
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}
