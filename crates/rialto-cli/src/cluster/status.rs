//! `rialto cluster status`: the nodes and partitions of a cluster.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use rialto_cluster::node::Standing;
use rialto_cluster::protocol::replication::{ReplicationOptions, Unprotected};
use rialto_cluster::protocol::transactions::Decision;
use serde_json::{Value, json};

use super::decide;
use super::failed::Failed;
use super::view::{NodeState, NodeView, PartitionView, View};
use crate::output::print;

/// Show the nodes and partitions of a cluster, also if nodes or the control store are dead
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The directory that has the directories of the nodes on this machine, or that of one node
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Print a JSON object, on the last line
    #[arg(long)]
    json: bool,
}

/// Shows it.
pub fn run(args: &StatusArgs) -> Result<ExitCode, Failed> {
    let view = View::of(&args.data)?;
    Ok(match args.json {
        true => print(in_json(&view, &args.data), ExitCode::SUCCESS),
        false => print(in_words(&view, &args.data).trim_end(), ExitCode::SUCCESS),
    })
}

impl NodeState {
    fn word(self) -> &'static str {
        match self {
            NodeState::Up => "up",
            NodeState::Down => "down",
            NodeState::Silent => "silent",
            NodeState::Elsewhere => "elsewhere",
        }
    }
}

impl View {
    /// The partitions whose newest answers one failure may take, or make wait for the disk.
    fn unprotected(&self) -> impl Iterator<Item = &PartitionView> {
        let least = ReplicationOptions::default().min_in_sync;
        self.partitions.iter().filter(move |partition| partition.protected_by(self) < least)
    }

    /// What comparisons of partitions came to last, at the nodes of this machine that lead these.
    fn comparisons(&self) -> Vec<Value> {
        let reports = self.nodes.iter().filter_map(|node| node.report.as_ref());
        let all = reports.flat_map(|report| &report.comparisons);
        all.map(|last| {
            json!({
                "partition": last.found.partition,
                "ended_at": last.ended_at,
                "replicas": last.found.replicas,
                "rows": last.found.rows,
                "entries": last.found.entries,
                "left_out": last.found.left_out,
            })
        })
        .collect()
    }

    /// What comparisons have found, at the nodes of this machine.
    fn differences(&self) -> Vec<&str> {
        let reports = self.nodes.iter().filter_map(|node| node.report.as_ref());
        reports.flat_map(|report| report.differences.iter().map(String::as_str)).collect()
    }

    /// Branches of transactions over several partitions that have voted, and do not know the decision.
    fn in_doubt(&self) -> u64 {
        self.nodes.iter().filter_map(|node| node.report.as_ref()).map(|report| report.in_doubt).sum()
    }
}

fn in_json(view: &View, data: &Path) -> Value {
    let nodes: Vec<Value> = view
        .nodes
        .iter()
        .map(|node| {
            json!({
                "name": node.name,
                "pid": node.pid,
                "sql": node.sql,
                "state": node.state.word(),
                "drains": node.standing == Standing::Draining,
            })
        })
        .collect();
    let partitions: Vec<Value> = view
        .partitions
        .iter()
        .map(|partition| {
            let found = partition.configuration.as_ref();
            let names = |of: Option<&Vec<u32>>| of.map_or_else(Vec::new, |numbers| view.names(numbers));
            json!({
                "id": partition.id,
                "epoch": found.map(|found| found.epoch),
                "primary": found.map(|found| view.name(found.primary)),
                "in_sync": names(found.map(|found| &found.in_sync)),
                "learners": names(found.map(|found| &found.learners)),
                "lag_bytes": partition.lag_bytes,
                "moves": partition.moves.map(|found| {
                    let name = |number: Option<u32>| number.map(|number| view.name(number));
                    json!({"from": name(found.from), "to": name(found.to)})
                }),
                "serves": partition.serves.is_some(),
            })
        })
        .collect();
    let undecided: Vec<Value> = view
        .undecided()
        .map(|(_, undecided)| {
            json!({
                "id": undecided.transaction,
                "partition": undecided.partition,
                "age_ms": undecided.age_ms,
                "prepared": undecided.prepared,
                "lost": undecided.lost,
                "commit_command": decide::command(&undecided.transaction, Decision::Commit, data),
                "abort_command": decide::command(&undecided.transaction, Decision::Abort, data),
            })
        })
        .collect();
    json!({
        "nodes": nodes,
        "partitions": partitions,
        "comparisons": view.comparisons(),
        "differences": view.differences(),
        "in_doubt": view.in_doubt(),
        "undecided": undecided,
        "unprotected": view.unprotected().count(),
    })
}

fn in_words(view: &View, data: &Path) -> String {
    let mut text = String::new();
    match &view.store_away {
        None => text += "the control store answers\n",
        Some(why) => {
            text += &format!(
                "the control store does not answer: {why}\n  A partition serves as long as all its replicas in sync are \
                 alive. If one fails, the partition stops until the control store answers.\n"
            );
        }
    }
    for node in &view.nodes {
        node_in_words(&mut text, node);
    }
    for partition in &view.partitions {
        partition_in_words(&mut text, view, partition);
    }
    let serving = view.partitions.iter().filter(|partition| partition.serves.is_some()).count();
    let _ = writeln!(text, "{serving} of {} partitions are seen to serve", view.partitions.len());
    if serving < view.partitions.len() && view.nodes.iter().any(|node| node.state == NodeState::Elsewhere) {
        text += "  Whether partitions serve whose primaries do not answer is not seen from here.\n";
    }
    let unprotected: Vec<String> = view.unprotected().map(|partition| partition.id.to_string()).collect();
    if !unprotected.is_empty() {
        let _ = writeln!(
            text,
            "unprotected: {} ({})\n  Each has one replica that is in sync and not dead: its commits {}, and while that node is \
             away it does not serve.",
            unprotected.len(),
            unprotected.join(", "),
            match view.unprotected {
                Some(Unprotected::Refused) =>
                    "at level 2 are refused (53000), those at level 3 are answered once they are on that replica's disk",
                Some(Unprotected::WhenOnDisk) | None => "are answered once they are on that replica's disk",
            }
        );
    }
    let _ = writeln!(text, "in doubt: {}", view.in_doubt());
    for (_, undecided) in view.undecided() {
        let _ = writeln!(
            text,
            "{}\n  Its decision was lost. Decide it by one of these:\n{}",
            decide::in_words(undecided),
            decide::commands(undecided, data)
        );
    }
    text
}

fn node_in_words(text: &mut String, node: &NodeView) {
    let pid = node.pid.map_or_else(String::new, |pid| format!(", pid {pid}"));
    let drains = if node.standing == Standing::Draining { ", drains" } else { "" };
    let _ = writeln!(text, "{}: {}{pid}{drains}, clients at {}", node.name, node.state.word(), node.sql);
    let directory = || node.directory.as_ref().map_or_else(String::new, |path| path.display().to_string());
    match node.state {
        NodeState::Up => {}
        NodeState::Down => {
            let _ =
                writeln!(text, "  No process runs it. Start it: rialto cluster node --data {}", directory());
        }
        NodeState::Silent => {
            *text += "  Its process does not answer: it was stopped (SIGSTOP), or its machine is overloaded. Others lead in \
                      its place after some seconds; once it goes on it comes back by itself.\n";
        }
        NodeState::Elsewhere => {
            *text += "  It is on another machine, and does not answer the nodes of this one: see there.\n"
        }
    }
    let Some(report) = &node.report else { return };
    if let Some(trouble) = &report.trouble {
        let _ = writeln!(text, "  {trouble}");
    }
    for difference in &report.differences {
        let _ = writeln!(text, "  {difference}");
    }
    for replica in &report.replicas {
        if let Some(trouble) = &replica.trouble {
            let _ = writeln!(text, "  partition {}: {trouble}", replica.partition);
        }
    }
}

fn partition_in_words(text: &mut String, view: &View, partition: &PartitionView) {
    let Some(found) = &partition.configuration else {
        let _ = writeln!(text, "partition {}: nothing that answers knows it", partition.id);
        return;
    };
    let serves = match partition.serves {
        Some(_) => "serves",
        None => "is not seen to serve",
    };
    let _ = write!(
        text,
        "partition {}: {serves}; epoch {}, primary {}, in sync {}",
        partition.id,
        found.epoch,
        view.name(found.primary),
        view.names(&found.in_sync).join(", ")
    );
    if !found.learners.is_empty() {
        let _ = write!(text, ", catching up {}", view.names(&found.learners).join(", "));
    }
    if let Some(found) = partition.moves {
        let name = |number: Option<u32>| number.map_or_else(|| "none".to_owned(), |number| view.name(number));
        let _ = write!(text, ", a replica moves from {} to {}", name(found.from), name(found.to));
    }
    let _ = match partition.lag_bytes {
        Some(bytes) => writeln!(text, ", behind by {bytes} bytes"),
        None => writeln!(text),
    };
}
