//! Moves of many replicas, with their progress.

use std::time::{Duration, Instant};

use clap::Args;
use rialto_cluster::control::ControlError;
use rialto_cluster::node::{
    FactsError, Move, NodeFacts, Purpose, Round, RoundError, Standing, balance_round, drain_round,
};
use rialto_cluster::protocol::PartitionId;

use super::access::Access;
use super::failed::Failed;
use super::say::say;
use crate::output::tell;

/// How often the command looks again.
const POLL: Duration = Duration::from_millis(500);
/// After so long without progress it tells for what it waits.
const TELL: Duration = Duration::from_secs(30);

/// How many replicas move at a time.
#[derive(Debug, Clone, Copy, Args)]
pub struct AtATime {
    /// The command begins no move while the cluster has so many; each copies a partition
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    at_a_time: u32,
}

/// Has all replicas leave a node, and waits for that. With a preferred node, that one takes their places where it can.
pub fn drain(
    access: &Access,
    node: &NodeFacts,
    preferred: Option<u32>,
    at_a_time: AtATime,
) -> Result<(), Failed> {
    access.forget_failed()?;
    let drained = follow(access, || {
        drain_round(&access.store, &access.facts, node.node, preferred, at_a_time.at_a_time as usize)
    });
    drained
        .map_err(|failed| Failed { text: format!("{}{}", failed.text, still_drains(access, node)), ..failed })
}

/// What is to be said of a node whose drain has ended before its time.
fn still_drains(access: &Access, node: &NodeFacts) -> String {
    match access.node(&node.name) {
        Ok(Some(now)) if now.standing == Standing::Draining => format!(
            ". {} is still being drained, and gets no replicas. To take that back: rialto cluster join --data DIR --node \
             {}={},sql={}",
            now.name, now.name, now.address, now.sql
        ),
        _ => String::new(),
    }
}

/// Makes the numbers of replicas on the nodes equal, and waits for that.
pub fn balance(access: &Access, at_a_time: AtATime) -> Result<(), Failed> {
    access.forget_failed()?;
    follow(access, || balance_round(&access.store, &access.facts, at_a_time.at_a_time as usize))
}

/// Takes steps until nothing is left, and says what has begun and what is done.
fn follow(access: &Access, step: impl Fn() -> Result<Round, RoundError>) -> Result<(), Failed> {
    let mut names = NodeFacts::with_left(&access.store)?;
    names.reverse();
    let name = |number: u32| {
        let found = names.iter().find(|node| node.node == number);
        found.map_or_else(|| format!("node {number}"), |node| node.name.clone())
    };
    let mut moves: Vec<(PartitionId, Move)> = Vec::new();
    let (mut no_room, mut failures) = (Vec::new(), Vec::new());
    let mut progress_at = Instant::now();
    loop {
        let round = match step() {
            Ok(round) => Some(round),
            // What is under way goes on meanwhile, or waits, too.
            Err(RoundError::Facts(FactsError::Store(ControlError::Unavailable(why)))) => {
                if progress_at.elapsed() > TELL {
                    tell(format_args!("waiting for the control store: {why}"));
                    progress_at = Instant::now();
                }
                None
            }
            Err(RoundError::Facts(error)) => return Err(error.into()),
            Err(error @ (RoundError::NoRoom(_) | RoundError::NotDraining(_))) => {
                return Err(Failed::unusable(error));
            }
        };
        if let Some(round) = round {
            let now: Vec<_> = round.under_way.iter().chain(&round.begun).copied().collect();
            for (partition, found) in moves.iter().filter(|found| !now.contains(found)) {
                let became = became(*found, *partition, &round);
                say(format_args!("{partition}: {}: {became}", in_words(*found, &name)))?;
            }
            for (partition, found) in now.iter().filter(|found| !moves.contains(found)) {
                say(format_args!("{partition}: {}", in_words(*found, &name)))?;
            }
            for found in round.failed.iter().filter(|found| !failures.contains(*found)) {
                let (partition, failed) = found;
                tell(format_args!(
                    "{partition}: {} got no replica: {}; it is tried again after ten minutes, or by another command",
                    name(failed.to),
                    failed.why
                ));
            }
            failures = round.failed.clone();
            // What is under way may make room, and the operator hears of it at once.
            for error in round.no_room.iter().filter(|error| !no_room.contains(*error)) {
                tell(error);
            }
            no_room = round.no_room.clone();
            if now != moves {
                progress_at = Instant::now();
            }
            moves = now;
            if round.left == 0 {
                return Ok(());
            }
        }
        if progress_at.elapsed() > TELL {
            progress_at = Instant::now();
            let waiting: Vec<String> = moves
                .iter()
                .map(|(partition, found)| format!("{partition} ({})", in_words(*found, &name)))
                .collect();
            tell(format_args!(
                "waiting for {}. A copy takes its time; a partition without a primary waits until it has one: see rialto \
                 cluster status. This command can be ended, and run again",
                waiting.join(", ")
            ));
        }
        std::thread::sleep(POLL);
    }
}

/// What became of a move that is not under way any more.
fn became(found: Move, partition: PartitionId, round: &Round) -> String {
    let is_done = round.configurations.get(&partition).is_some_and(|now| found.is_done(now));
    let failed = round.failed.iter().find(|(of, failed)| *of == partition && Some(failed.to) == found.to);
    match (is_done, failed) {
        (true, _) => "done".to_owned(),
        (false, Some((_, failed))) => format!("ended: {}", failed.why),
        (false, None) => "taken back, or another move has taken its place".to_owned(),
    }
}

fn in_words(found: Move, name: &impl Fn(u32) -> String) -> String {
    match (found.from, found.to) {
        (Some(from), None) if found.purpose == Purpose::TakenBack => {
            format!("the replica that {} was to get is taken back", name(from))
        }
        (Some(from), Some(to)) => format!("a replica moves from {} to {}", name(from), name(to)),
        (Some(from), None) => format!("the replica on {} goes, since there are enough others", name(from)),
        (None, Some(to)) => format!("{} gets a replica", name(to)),
        (None, None) => "nothing moves".to_owned(),
    }
}
