//! [`View`]: what is seen of a cluster, put together from what answers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rialto_cluster::control::ControlStore;
use rialto_cluster::node::admin::{
    AdminAnswer, AdminRequest, ConfigurationReport, NodeReport, Reached, ReplicaReport, ask,
};
use rialto_cluster::node::{ClusterFacts, Move, Moves, NodeFacts, Standing, read_configurations};
use rialto_cluster::protocol::PartitionId;
use rialto_cluster::protocol::replication::Unprotected;

use super::control::{connect, tls_in};
use super::failed::Failed;
use super::node_file::NodeFile;

/// How long a node has to answer. One that stands still does not. A node that asks others waits less long for them.
const PATIENCE: Duration = Duration::from_secs(3);

/// A cluster, as far as it is seen from this machine at about one moment.
pub struct View {
    /// Why the control store does not answer, if so.
    pub store_away: Option<String>,
    /// What becomes of commits at level 2 in unprotected partitions. None if nothing that answers knows it.
    pub unprotected: Option<Unprotected>,
    /// In the order of their names.
    pub nodes: Vec<NodeView>,
    pub partitions: Vec<PartitionView>,
}

/// A node.
pub struct NodeView {
    /// None if neither the control store nor a node says it.
    pub number: Option<u32>,
    pub name: String,
    pub sql: String,
    /// None if it is not on this machine.
    pub directory: Option<PathBuf>,
    pub state: NodeState,
    /// Its process on this machine.
    pub pid: Option<u32>,
    /// What the control store says of it.
    pub standing: Standing,
    pub report: Option<Box<NodeReport>>,
}

/// Whether a node runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeState {
    /// It answers; if it is on another machine, then to a node of this one.
    Up,
    /// No process runs it.
    Down,
    /// A process runs it, and does not answer.
    Silent,
    /// It is not on this machine, and answers no node of this one.
    Elsewhere,
}

/// A partition.
pub struct PartitionView {
    pub id: u32,
    /// None if nothing that answers knows it.
    pub configuration: Option<ConfigurationReport>,
    /// The node whose replica takes transactions, if that is seen.
    pub serves: Option<u32>,
    /// How far the furthest replica that answers is behind the primary's. None if the primary's or all others do not
    /// answer.
    pub lag_bytes: Option<u64>,
    /// The move of one of its replicas that is under way.
    pub moves: Option<Move>,
}

/// What the control store says.
struct Stored {
    partitions: u32,
    unprotected: Unprotected,
    nodes: Vec<NodeFacts>,
    configurations: BTreeMap<u32, ConfigurationReport>,
    moves: Moves,
}

impl View {
    /// Looks at the cluster of the nodes whose directories are in this one.
    pub fn of(data: &Path) -> Result<View, Failed> {
        let files = NodeFile::all(data)?;
        let (first_directory, first) = files.first().expect("there is one at least");
        let (stored, asked) = std::thread::scope(|threads| {
            let stored = threads.spawn(|| stored(first_directory, first));
            let asked: Vec<_> = files
                .iter()
                .map(|(directory, _)| threads.spawn(move || ask(directory, &AdminRequest::Status, PATIENCE)))
                .collect();
            let asked: Vec<_> = asked.into_iter().map(|thread| thread.join().expect("no panic")).collect();
            (stored.join().expect("no panic"), asked)
        });
        let mut seen = Vec::new();
        for ((directory, file), reached) in files.iter().zip(asked) {
            let reached = reached.map_err(|error| Failed::of_file(directory, &error))?;
            seen.push((directory.as_path(), file, reached));
        }
        let (stored, store_away) = match stored {
            Ok(stored) => (Some(stored), None),
            Err(failed) => (None, Some(failed.text)),
        };
        let mut nodes = nodes(stored.as_ref(), seen);
        ask_others(&mut nodes)?;
        let partitions = partitions(stored.as_ref(), &nodes);
        let mut reports = nodes.iter().filter_map(|node| node.report.as_ref());
        let unprotected = stored.as_ref().map(|stored| stored.unprotected);
        let unprotected = unprotected.or_else(|| reports.next().map(|report| report.unprotected));
        Ok(View { store_away, unprotected, nodes, partitions })
    }

    /// The node of a name.
    pub fn node(&self, name: &str) -> Result<&NodeView, Failed> {
        self.nodes.iter().find(|node| node.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
            Failed::usage(format_args!("the cluster has no node {name}; it has {}", names.join(", ")))
        })
    }

    /// The node of a number.
    pub fn numbered(&self, number: u32) -> Option<&NodeView> {
        self.nodes.iter().find(|node| node.number == Some(number))
    }

    /// The name of the node of a number.
    pub fn name(&self, number: u32) -> String {
        self.numbered(number).map_or_else(|| format!("node {number}"), |node| node.name.clone())
    }

    /// The names of these nodes.
    pub fn names(&self, numbers: &[u32]) -> Vec<String> {
        numbers.iter().map(|number| self.name(*number)).collect()
    }

    /// The partition of a number, with its configuration.
    pub fn partition(&self, id: u32) -> Result<(&PartitionView, &ConfigurationReport), Failed> {
        let Some(partition) = self.partitions.iter().find(|partition| partition.id == id) else {
            return Err(match (self.partitions.len(), &self.store_away) {
                (0, Some(why)) => Failed::failing(format_args!("no node answers, and {why}")),
                (partitions, _) => Failed::usage(format_args!(
                    "the cluster has no partition {id}; it has {partitions}, from 0 on"
                )),
            });
        };
        let configuration = partition.configuration.as_ref().ok_or_else(|| {
            Failed::failing(format_args!(
                "neither the control store nor a node that answers knows partition {id}; start one of these"
            ))
        })?;
        Ok((partition, configuration))
    }

    /// Asks a node: by its socket if it is on this machine, else through a node that is.
    pub fn ask(&self, node: &NodeView, request: AdminRequest) -> Result<AdminAnswer, Failed> {
        let Some(directory) = &node.directory else { return self.ask_through(node, request) };
        match ask(directory, &request, PATIENCE).map_err(|error| Failed::of_file(directory, &error))? {
            Reached::Answered { answer, .. } => Ok(answer),
            Reached::Down => Err(Failed::failing(format_args!("{} does not run", node.name))),
            Reached::Silent { .. } => Err(Failed::failing(format_args!("{} does not answer", node.name))),
        }
    }

    fn ask_through(&self, node: &NodeView, request: AdminRequest) -> Result<AdminAnswer, Failed> {
        let here = self.nodes.iter().find(|here| here.directory.is_some() && here.state == NodeState::Up);
        let (Some(here), Some(number)) = (here, node.number) else {
            return Err(Failed::failing(format_args!(
                "{} is on another machine, and is asked through a node of this one, of which none answers: start one, or run this \
                 there",
                node.name
            )));
        };
        match self.ask(here, AdminRequest::At { node: number, request: Box::new(request) })? {
            AdminAnswer::Unreached(why) => {
                Err(Failed::failing(format_args!("{} was asked through {}: {why}", node.name, here.name)))
            }
            answer => Ok(answer),
        }
    }
}

impl PartitionView {
    /// How many of the replicas in sync are on nodes that are not known to be dead.
    pub fn protected_by(&self, view: &View) -> usize {
        let is_there =
            |number: &&u32| view.numbered(**number).is_none_or(|node| node.state != NodeState::Down);
        self.configuration.as_ref().map_or(0, |found| found.in_sync.iter().filter(is_there).count())
    }
}

impl NodeView {
    /// What it says of its replica of a partition.
    pub fn replica(&self, partition: u32) -> Option<&ReplicaReport> {
        let report = self.report.as_ref()?;
        report.replicas.iter().find(|replica| replica.partition == partition)
    }
}

fn stored(directory: &Path, file: &NodeFile) -> Result<Stored, Failed> {
    let store = connect(&file.control, &file.prefix, tls_in(directory)?)?;
    let store: &dyn ControlStore = &store;
    let facts = ClusterFacts::read(store)?;
    if facts.id != file.cluster {
        return Err(Failed::unusable("the control store has another cluster"));
    }
    let nodes = NodeFacts::all(store)?;
    // What cannot be read there, a node may know.
    let read = read_configurations(store)?.0.into_iter();
    let configurations =
        read.map(|(id, known)| (id.0, ConfigurationReport::from(&known.configuration))).collect();
    let moves = Moves::read(store)?;
    let (partitions, unprotected) = (facts.partitions, facts.unprotected);
    Ok(Stored { partitions, unprotected, nodes, configurations, moves })
}

/// The nodes that the control store has, or else those that the nodes know, and those whose directories are here.
fn nodes(stored: Option<&Stored>, seen: Vec<(&Path, &NodeFile, Reached)>) -> Vec<NodeView> {
    let mut nodes: BTreeMap<String, NodeView> = BTreeMap::new();
    for (directory, file, reached) in seen {
        let (state, pid, report) = match reached {
            Reached::Down => (NodeState::Down, None, None),
            Reached::Silent { pid } => (NodeState::Silent, pid, None),
            Reached::Answered { pid, answer: AdminAnswer::Status(report) } => {
                (NodeState::Up, Some(pid), Some(report))
            }
            Reached::Answered { pid, .. } => (NodeState::Silent, Some(pid), None),
        };
        let view = NodeView {
            number: report.as_ref().map(|report| report.node),
            name: file.name.clone(),
            sql: file.sql.clone(),
            directory: Some(directory.to_owned()),
            state,
            pid,
            standing: Standing::Member,
            report,
        };
        nodes.insert(file.name.clone(), view);
    }
    let known: Vec<NodeFacts> = match stored {
        Some(stored) => stored.nodes.clone(),
        None => {
            nodes.values().filter_map(|node| node.report.as_ref()).flat_map(|of| of.nodes.clone()).collect()
        }
    };
    for facts in known {
        let node = nodes.entry(facts.name.clone()).or_insert_with(|| NodeView {
            number: None,
            name: facts.name,
            sql: facts.sql,
            directory: None,
            state: NodeState::Elsewhere,
            pid: None,
            standing: Standing::Member,
            report: None,
        });
        node.number = Some(facts.node);
        node.standing = facts.standing;
    }
    if let Some(stored) = stored {
        // The directory of a node that has left may still be here.
        let is_one = |name: &str| stored.nodes.iter().any(|node| node.name == name);
        nodes.retain(|name, node| is_one(name) || node.state != NodeState::Down);
    }
    nodes.into_values().collect()
}

/// Has the first node of this machine that answers ask those on other machines.
fn ask_others(nodes: &mut [NodeView]) -> Result<(), Failed> {
    if nodes.iter().all(|node| node.directory.is_some()) {
        return Ok(());
    }
    let here =
        nodes.iter().filter(|node| node.state == NodeState::Up).find_map(|node| node.directory.clone());
    let Some(here) = here else { return Ok(()) };
    let reached = ask(&here, &AdminRequest::StatusOfAll, PATIENCE);
    let Reached::Answered { answer: AdminAnswer::StatusOfAll(reports), .. } =
        reached.map_err(|error| Failed::of_file(&here, &error))?
    else {
        return Ok(());
    };
    for report in reports {
        let is_it = |node: &&mut NodeView| node.directory.is_none() && node.number == Some(report.node);
        if let Some(node) = nodes.iter_mut().find(is_it) {
            (node.state, node.report) = (NodeState::Up, Some(Box::new(report)));
        }
    }
    Ok(())
}

fn partitions(stored: Option<&Stored>, nodes: &[NodeView]) -> Vec<PartitionView> {
    let reports = || nodes.iter().filter_map(|node| node.report.as_ref());
    let count = stored.map(|stored| stored.partitions);
    let count = count.or_else(|| reports().map(|report| report.partitions).max()).unwrap_or(0);
    (0..count)
        .map(|id| {
            let replicas: Vec<(u32, &ReplicaReport)> = reports()
                .flat_map(|report| report.replicas.iter().map(|replica| (report.node, replica)))
                .filter(|(_, replica)| replica.partition == id)
                .collect();
            // The newest that a replica knows may be newer than what was read before.
            let configuration = replicas
                .iter()
                .filter_map(|(_, replica)| replica.configuration.as_ref())
                .chain(stored.and_then(|stored| stored.configurations.get(&id)))
                .max_by_key(|configuration| configuration.epoch)
                .cloned();
            let serves = replicas.iter().find(|(_, replica)| replica.serves).map(|(node, _)| *node);
            let lag_bytes = configuration.as_ref().and_then(|configuration| lag(configuration, &replicas));
            let moves = stored.and_then(|stored| stored.moves.of(PartitionId(id)));
            PartitionView { id, configuration, serves, lag_bytes, moves }
        })
        .collect()
}

fn lag(configuration: &ConfigurationReport, replicas: &[(u32, &ReplicaReport)]) -> Option<u64> {
    let position = |number: u32| {
        let found = replicas.iter().find(|(node, _)| *node == number);
        found.and_then(|(_, replica)| Some(replica.received?.position))
    };
    let primary = position(configuration.primary)?;
    let members = configuration.in_sync.iter().chain(&configuration.learners);
    let others = members.filter(|member| **member != configuration.primary);
    let furthest = others.filter_map(|member| position(*member)).min()?;
    // The others were asked at other moments.
    Some(primary.saturating_sub(furthest))
}
