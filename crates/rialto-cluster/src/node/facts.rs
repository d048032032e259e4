//! What the control store has of the cluster besides the partitions' configurations: [`ClusterFacts`] and
//! [`NodeFacts`].

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use rialto::fault_injection;
use serde::{Deserialize, Serialize};

use super::backup::Manifest;
use super::replica::{CONFIGURATIONS, configuration_key, read_configurations};
use crate::control::{ControlError, ControlStore, Swapped, Versioned};
use crate::net::Member as LinkMember;
use crate::protocol::replication::{
    Configuration, LostBefore, Member, ReplicationOptions, StoreIdentity, Unprotected,
};
use crate::protocol::{Epoch, Life, NodeId, PartitionId};

/// The key of [`ClusterFacts`].
const CLUSTER_KEY: &str = "cluster";
/// Before the number of a node in the key of [`NodeFacts`].
const NODES: &str = "nodes/";
/// How many times a change is tried that others have overtaken.
const TRIES: usize = 10;
/// The lengths of a promise that may be chosen, in milliseconds. A shorter one would run out between two heartbeats.
pub const PROMISE_MS: RangeInclusive<u32> = 100..=60_000;
/// How long a promise holds, in milliseconds, unless another length is chosen; and in clusters that were made before there was a
/// choice. It belongs to the format of [`ClusterFacts`]: all builds count with the same length.
pub const PROMISE_MS_USUAL: u32 = 2_000;
/// The most partitions of a cluster.
pub const PARTITIONS_MAX: u32 = 4096;

/// What was chosen when the cluster was made, and never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFacts {
    /// A random number: connections of another cluster are refused. In hexadecimal digits.
    pub id: String,
    /// The number of partitions.
    pub partitions: u32,
    /// How many replicas a partition has, the primary among them.
    pub replicas: u32,
    /// What becomes of a commit at level 2 in a partition that has too few replicas in sync. Clusters that were made before
    /// there was a choice have the first one.
    #[serde(default)]
    pub unprotected: Unprotected,
    /// How long a promise holds, in milliseconds: [`PROMISE_MS`]. A primary counts on the promises of other nodes, so that all
    /// nodes have this length, whatever their options say.
    #[serde(default = "usual_promise")]
    pub promise_ms: u32,
}

fn usual_promise() -> u32 {
    PROMISE_MS_USUAL
}

/// What the cluster does with a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It has replicas, and gets new ones.
    #[default]
    Member,
    /// Its replicas go to other nodes, and it gets no new ones.
    Draining,
    /// It is none of the cluster any more. Its number is not given to another node.
    Left,
}

impl Standing {
    fn is_member(&self) -> bool {
        *self == Standing::Member
    }
}

/// A node, as all others know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeFacts {
    /// Its number.
    pub node: u32,
    /// Its name.
    pub name: String,
    /// Where other nodes reach it: `host:port`.
    pub address: String,
    /// Where clients reach it: `host:port`.
    pub sql: String,
    /// What the cluster does with it.
    #[serde(default, skip_serializing_if = "Standing::is_member")]
    pub standing: Standing,
    /// The random number of the only directory that runs as this node, once one has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

/// What became of a node that was to join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Joined {
    /// It is new.
    New(NodeFacts),
    /// It was there before.
    Before(NodeFacts),
    /// It was there before, and was being drained. It gets replicas again.
    Again(NodeFacts),
}

/// Why the control store does not give what a node needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FactsError {
    /// It gave no answer.
    Store(ControlError),
    /// It has no cluster.
    NoCluster,
    /// It has another cluster than the one that is to be made.
    Another(Box<ClusterFacts>),
    /// It has a key of a cluster that was not made to its end, with other choices.
    LeftOver {
        /// The key.
        key: String,
    },
    /// What it has makes no sense.
    Damaged {
        /// The key.
        key: String,
        /// What is wrong.
        what: String,
    },
    /// What is to be made makes no sense.
    Wrong(String),
}

impl fmt::Display for FactsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FactsError::Store(error) => error.fmt(f),
            FactsError::NoCluster => f.write_str(
                "the control store has no cluster under this prefix; make one with `rialto cluster init`",
            ),
            FactsError::Another(facts) => {
                let refuses = match facts.unprotected {
                    Unprotected::WhenOnDisk => "",
                    Unprotected::Refused => ", which refuses commits at level 2 in unprotected ones,",
                };
                write!(
                    f,
                    "the control store has a cluster of {} partitions with {} replicas each and promises of {} ms{refuses} \
                     already; give the same options, or another prefix",
                    facts.partitions, facts.replicas, facts.promise_ms
                )
            }
            FactsError::LeftOver { key } => write!(
                f,
                "the control store has the key {key} of a cluster that was not made to its end, with other choices than \
                 these; give another prefix"
            ),
            FactsError::Damaged { key, what } => write!(f, "the control store's key {key}: {what}"),
            FactsError::Wrong(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for FactsError {}

impl From<ControlError> for FactsError {
    fn from(error: ControlError) -> FactsError {
        FactsError::Store(error)
    }
}

impl ClusterFacts {
    /// The cluster's number.
    pub fn number(&self) -> Option<u128> {
        u128::from_str_radix(&self.id, 16).ok()
    }

    /// Whether the promise is one of [`PROMISE_MS`].
    fn has_a_promise(&self) -> bool {
        PROMISE_MS.contains(&self.promise_ms)
    }

    /// A node's options with what the cluster has: the length of promises, never the node's own one, and what becomes of commits
    /// in unprotected partitions. If the length is another one, the times that have to fit into it change, too.
    pub fn replication(&self, options: ReplicationOptions) -> ReplicationOptions {
        let promise = Duration::from_millis(u64::from(self.promise_ms));
        let is_own = options.promise == promise || fault_injection::is_on("own-length-of-promises");
        let options = if is_own { options } else { options.with_promise(promise) };
        ReplicationOptions { unprotected: self.unprotected, ..options }
    }

    /// All partitions.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> + use<> {
        (0..self.partitions).map(PartitionId)
    }

    /// What the control store has.
    ///
    /// # Errors
    /// See [`FactsError`].
    pub fn read(store: &dyn ControlStore) -> Result<ClusterFacts, FactsError> {
        let found = store.get(CLUSTER_KEY)?.value.ok_or(FactsError::NoCluster)?;
        let facts: ClusterFacts = parse(CLUSTER_KEY, &found.value)?;
        match facts.number() {
            Some(_) if (1..=PARTITIONS_MAX).contains(&facts.partitions) && facts.has_a_promise() => Ok(facts),
            _ => Err(damaged(CLUSTER_KEY, "the numbers are no cluster's")),
        }
    }
}

impl NodeFacts {
    fn key(&self) -> String {
        // With zeros in front the order of the keys is that of the numbers.
        format!("{NODES}{:06}", self.node)
    }

    /// The node, for the links.
    pub fn link_member(&self) -> LinkMember {
        LinkMember { node: NodeId(self.node), name: self.name.clone(), address: self.address.clone() }
    }

    /// All nodes of the cluster, by their numbers, but for those that have left it.
    ///
    /// # Errors
    /// See [`FactsError`].
    pub fn all(store: &dyn ControlStore) -> Result<Vec<NodeFacts>, FactsError> {
        let mut nodes = NodeFacts::with_left(store)?;
        nodes.retain(|node| node.standing != Standing::Left);
        Ok(nodes)
    }

    /// All nodes that the cluster has or had.
    ///
    /// # Errors
    /// See [`FactsError`].
    pub fn with_left(store: &dyn ControlStore) -> Result<Vec<NodeFacts>, FactsError> {
        store.list(NODES)?.keys.iter().map(|(key, found)| parse(key, &found.value)).collect()
    }

    /// Adds a node to the cluster, without replicas. It may be run again: a node of the same name and addresses stays as it
    /// is, and one that is being drained is a member again.
    ///
    /// # Errors
    /// See [`FactsError`].
    pub fn join(
        store: &dyn ControlStore,
        name: &str,
        address: &str,
        sql: &str,
    ) -> Result<Joined, FactsError> {
        for _ in 0..TRIES {
            let nodes = NodeFacts::with_left(store)?;
            let mut there = nodes.iter().filter(|node| node.standing != Standing::Left);
            if let Some(found) = there.clone().find(|node| node.name == name) {
                if (found.address.as_str(), found.sql.as_str()) != (address, sql) {
                    return Err(FactsError::Wrong(format!(
                        "the cluster has a node {name} already, with other addresses: {name}={},sql={}",
                        found.address, found.sql
                    )));
                }
                if found.standing == Standing::Member {
                    return Ok(Joined::Before(found.clone()));
                }
                return NodeFacts::set_standing(store, name, Standing::Member).map(Joined::Again);
            }
            if let Some(other) = there.find(|node| node.address == address) {
                return Err(FactsError::Wrong(format!("{address} is the address of {} already", other.name)));
            }
            // A store that was restored may name nodes that are not on its list.
            let named = read_configurations(store)?.0.into_values();
            let named = named.flat_map(|known| known.configuration.nodes().collect::<Vec<_>>());
            let numbers = nodes.iter().map(|node| node.node).chain(named.map(|node| node.0));
            let number = numbers.max().map_or(0, |number| number + 1);
            let (name, address, sql) = (name.to_owned(), address.to_owned(), sql.to_owned());
            let standing = Standing::Member;
            let node = NodeFacts { node: number, name, address, sql, standing, directory: None };
            check_name(&node)?;
            let identity = store.identify(StoreIdentity::draw())?;
            if let Swapped::Done(_) = store.swap(identity, &node.key(), None, &json(&node))? {
                return Ok(Joined::New(node));
            }
        }
        Err(FactsError::Wrong(
            "other commands change the control store's nodes at the same time; run this again".to_owned(),
        ))
    }

    /// Has a directory be that of a node.
    ///
    /// # Errors
    /// See [`FactsError`].
    pub fn set_directory(store: &dyn ControlStore, node: u32, directory: &str) -> Result<(), FactsError> {
        for _ in 0..TRIES {
            let listed = store.list(NODES)?;
            for (key, found) in &listed.keys {
                let facts: NodeFacts = parse(key, &found.value)?;
                if facts.node != node {
                    continue;
                }
                let identity = listed.store.ok_or_else(|| damaged(key, "the store has no identity"))?;
                let next = NodeFacts { directory: Some(directory.to_owned()), ..facts };
                if let Swapped::Done(_) = store.swap(identity, key, Some(found.revision), &json(&next))? {
                    return Ok(());
                }
            }
        }
        Err(FactsError::Wrong(
            "other commands change the control store's nodes at the same time; run this again".to_owned(),
        ))
    }

    /// Gives a node of the cluster another standing.
    ///
    /// # Errors
    /// See [`FactsError`].
    pub fn set_standing(
        store: &dyn ControlStore,
        name: &str,
        standing: Standing,
    ) -> Result<NodeFacts, FactsError> {
        for _ in 0..TRIES {
            let listed = store.list(NODES)?;
            for (key, found) in &listed.keys {
                let node: NodeFacts = parse(key, &found.value)?;
                if node.name != name || node.standing == Standing::Left {
                    continue;
                }
                if node.standing == standing {
                    return Ok(node);
                }
                let identity = listed.store.ok_or_else(|| damaged(key, "the store has no identity"))?;
                let next = NodeFacts { standing, ..node };
                if let Swapped::Done(_) = store.swap(identity, key, Some(found.revision), &json(&next))? {
                    return Ok(next);
                }
            }
            if !NodeFacts::all(store)?.iter().any(|node| node.name == name) {
                return Err(FactsError::Wrong(format!("the cluster has no node {name}")));
            }
        }
        Err(FactsError::Wrong(
            "other commands change the control store's nodes at the same time; run this again".to_owned(),
        ))
    }
}

/// Makes a cluster of these nodes: the first configurations of its partitions, chained over the nodes, the nodes, and
/// the cluster itself last. It may be run again, with the same choices: what is there already stays as it is.
///
/// # Errors
/// See [`FactsError`]. What was made before the error stays, and the next run goes on from there.
pub fn init(store: &dyn ControlStore, facts: &ClusterFacts, nodes: &[NodeFacts]) -> Result<(), FactsError> {
    check(facts, nodes)?;
    match ClusterFacts::read(store) {
        Err(FactsError::NoCluster) => {}
        Ok(found) if ClusterFacts { id: facts.id.clone(), ..found.clone() } != *facts => {
            return Err(FactsError::Another(Box::new(found)));
        }
        Ok(_) => return Ok(()),
        Err(error) => return Err(error),
    }
    for (key, value) in first_keys(facts, nodes, &|_| Epoch(1)) {
        make(store, &key, &value)?;
    }
    match make(store, CLUSTER_KEY, &json(facts)) {
        // Another run with the same choices has made it meanwhile.
        Err(FactsError::LeftOver { .. }) => init(store, facts, nodes),
        made => made,
    }
}

/// As [`init`], for a cluster whose partitions are those of a backup: each begins above the epoch in which its
/// primary led then.
///
/// # Errors
/// See [`check_restored`]. What was made before the error stays, and another run with the same choices goes on from
/// there.
pub fn init_restored(
    store: &dyn ControlStore,
    facts: &ClusterFacts,
    nodes: &[NodeFacts],
    manifest: &Manifest,
) -> Result<(), FactsError> {
    check_restored(store, facts, nodes, manifest)?;
    for (key, value) in first_keys(facts, nodes, &restored_epoch(manifest)) {
        make(store, &key, &value)?;
    }
    // Another cluster that was made meanwhile is not this one, whatever its choices are.
    make(store, CLUSTER_KEY, &json(facts))
}

fn restored_epoch(manifest: &Manifest) -> impl Fn(PartitionId) -> Epoch {
    |PartitionId(partition)| Epoch(manifest.partitions[partition as usize].epoch).next()
}

/// Refuses what [`init_restored`] would refuse. It makes nothing.
///
/// # Errors
/// See [`FactsError`]; [`FactsError::Another`] also if there is a cluster already, even one like this, and
/// [`FactsError::LeftOver`] for any other node or configuration than those that are to be made: a partition's node
/// would be another one than the one that has its database.
pub fn check_restored(
    store: &dyn ControlStore,
    facts: &ClusterFacts,
    nodes: &[NodeFacts],
    manifest: &Manifest,
) -> Result<(), FactsError> {
    check(facts, nodes)?;
    match ClusterFacts::read(store) {
        Err(FactsError::NoCluster) => {}
        Ok(found) => return Err(FactsError::Another(Box::new(found))),
        Err(error) => return Err(error),
    }
    if manifest.partitions.len() != facts.partitions as usize {
        return Err(FactsError::Wrong(format!(
            "the backup has {} partitions, and the cluster is to have {}",
            manifest.partitions.len(),
            facts.partitions
        )));
    }
    if fault_injection::is_on("restore-beside-left-overs") {
        return Ok(());
    }
    let wanted: BTreeMap<_, _> = first_keys(facts, nodes, &restored_epoch(manifest)).into_iter().collect();
    for prefix in [NODES, CONFIGURATIONS] {
        let is_another = |(key, found): &(String, Versioned)| wanted.get(key) != Some(&found.value);
        if let Some((key, _)) = store.list(prefix)?.keys.into_iter().find(is_another) {
            return Err(FactsError::LeftOver { key });
        }
    }
    Ok(())
}

/// The node on which a partition has its primary at first.
pub fn first_primary(nodes: &[NodeFacts], partition: PartitionId) -> &NodeFacts {
    &nodes[partition.0 as usize % nodes.len()]
}

/// The keys of a cluster that is made, but for its own, with their first values.
fn first_keys(
    facts: &ClusterFacts,
    nodes: &[NodeFacts],
    first_epoch: &dyn Fn(PartitionId) -> Epoch,
) -> Vec<(String, Vec<u8>)> {
    let configuration = |partition: PartitionId| {
        let first = first_configuration(facts, nodes, partition);
        let first = Configuration { epoch: first_epoch(partition), ..first };
        (configuration_key(partition), first.to_bytes())
    };
    let nodes = nodes.iter().map(|node| (node.key(), json(node)));
    nodes.chain(facts.partitions().map(configuration)).collect()
}

fn check(facts: &ClusterFacts, nodes: &[NodeFacts]) -> Result<(), FactsError> {
    let wrong = |what: String| Err(FactsError::Wrong(what));
    if nodes.is_empty() {
        return wrong("a cluster has at least one node".to_owned());
    }
    if !(1..=PARTITIONS_MAX).contains(&facts.partitions) {
        return wrong(format!("a cluster has 1 to {PARTITIONS_MAX} partitions, not {}", facts.partitions));
    }
    if facts.replicas == 0 || facts.replicas as usize > nodes.len() {
        return wrong(format!(
            "a partition has 1 to {} replicas, each on a node of its own, not {}",
            nodes.len(),
            facts.replicas
        ));
    }
    if facts.replicas < 2 && facts.unprotected == Unprotected::Refused {
        return wrong(
            "with one replica, partitions are always unprotected, and each commit at level 2 would be refused".to_owned(),
        );
    }
    if !facts.has_a_promise() {
        return wrong(format!(
            "a promise holds for {} to {} ms, not {}",
            PROMISE_MS.start(),
            PROMISE_MS.end(),
            facts.promise_ms
        ));
    }
    for (at, node) in nodes.iter().enumerate() {
        check_name(node)?;
        if nodes[..at].iter().any(|other| other.name == node.name || other.node == node.node) {
            return wrong(format!("two nodes have the name {} or the number {}", node.name, node.node));
        }
    }
    Ok(())
}

fn check_name(node: &NodeFacts) -> Result<(), FactsError> {
    if crate::net::is_a_name(&node.name) {
        return Ok(());
    }
    let what =
        format!("{:?} cannot be the name of a node: a name has letters, digits, - and . only", node.name);
    Err(FactsError::Wrong(what))
}

/// The first configuration of a partition: its primary is alone in sync, and the nodes that follow in the ring are
/// learners.
fn first_configuration(facts: &ClusterFacts, nodes: &[NodeFacts], partition: PartitionId) -> Configuration {
    let member = |at: u32| {
        let node = &nodes[(partition.0 + at) as usize % nodes.len()];
        // A life that no replica has: the primary swaps in its own.
        Member { node: NodeId(node.node), life: Life(0) }
    };
    let primary = member(0);
    let learners = (1..facts.replicas).map(member).collect();
    Configuration {
        epoch: Epoch(1),
        primary: primary.node,
        in_sync: vec![primary],
        learners,
        lost_before: LostBefore::default(),
    }
}

fn json<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("facts have no maps with other keys than strings")
}

fn parse<'b, T: Deserialize<'b>>(key: &str, bytes: &'b [u8]) -> Result<T, FactsError> {
    serde_json::from_slice(bytes).map_err(|error| damaged(key, &error.to_string()))
}

fn damaged(key: &str, what: &str) -> FactsError {
    FactsError::Damaged { key: key.to_owned(), what: what.to_owned() }
}

/// Gives a key its first value, unless it has this one already.
fn make(store: &dyn ControlStore, key: &str, value: &[u8]) -> Result<(), FactsError> {
    let identity = store.identify(StoreIdentity::draw())?;
    match store.swap(identity, key, None, value)? {
        Swapped::Done(_) => Ok(()),
        Swapped::Lost => match store.get(key)?.value {
            Some(found) if found.value == value => Ok(()),
            _ if fault_injection::is_on("restore-beside-left-overs") => Ok(()),
            _ => Err(FactsError::LeftOver { key: key.to_owned() }),
        },
        Swapped::AnotherStore => {
            Err(FactsError::Wrong("the control store was restored meanwhile; run this again".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::MemoryStore;
    use crate::node::PartitionBackup;

    fn nodes(names: &[&str]) -> Vec<NodeFacts> {
        let node = |(node, name): (u32, &&str)| NodeFacts {
            node,
            name: (*name).to_owned(),
            address: format!("127.0.0.1:{}", 7000 + node),
            sql: format!("127.0.0.1:{}", 8000 + node),
            standing: Standing::Member,
            directory: None,
        };
        (0..).zip(names).map(node).collect()
    }

    fn facts(id: u32) -> ClusterFacts {
        let unprotected = Unprotected::default();
        let promise_ms = PROMISE_MS_USUAL;
        ClusterFacts { id: format!("{id:032x}"), partitions: 3, replicas: 2, unprotected, promise_ms }
    }

    fn manifest() -> Manifest {
        let of = |partition: u32| PartitionBackup {
            partition,
            file: String::new(),
            place: 1,
            epoch: 5,
            bytes: 0,
            checksum: String::new(),
        };
        Manifest::new("77", 1, (0..3).map(of).collect())
    }

    /// What is there after a run that was interrupted before the last key.
    fn interrupted(nodes: &[NodeFacts], epoch: u64) -> MemoryStore {
        let store = MemoryStore::new();
        for (key, value) in first_keys(&facts(1), nodes, &|_| Epoch(epoch)) {
            make(&store, &key, &value).unwrap();
        }
        store
    }

    #[test]
    fn a_restore_takes_nothing_that_is_left_of_another_cluster() {
        // Partition 2 of the old choices is on another node than the one that has its database.
        let more = nodes(&["a", "b", "c"]);
        for left in [interrupted(&nodes(&["a", "b"]), 1), interrupted(&more, 1), interrupted(&more, 9)] {
            let refused = init_restored(&left, &facts(2), &more, &manifest());
            assert!(matches!(refused, Err(FactsError::LeftOver { .. })), "{refused:?}");
            assert_eq!(ClusterFacts::read(&left), Err(FactsError::NoCluster));
        }
        // A node too many is none of the new cluster.
        let refused = init_restored(&interrupted(&more, 6), &facts(2), &nodes(&["a", "b"]), &manifest());
        assert!(matches!(refused, Err(FactsError::LeftOver { .. })), "{refused:?}");
        // Its own that was interrupted goes on.
        let own = interrupted(&more, 6);
        init_restored(&own, &facts(2), &more, &manifest()).unwrap();
        assert_eq!(ClusterFacts::read(&own), Ok(facts(2)));
        let again = init_restored(&own, &facts(2), &more, &manifest());
        assert_eq!(again, Err(FactsError::Another(Box::new(facts(2)))));
    }

    #[test]
    fn the_length_of_promises_is_always_written_and_one_without_it_has_the_usual_one() {
        let store = MemoryStore::new();
        init(&store, &facts(1), &nodes(&["a", "b"])).unwrap();
        let written = store.get(CLUSTER_KEY).unwrap().value.unwrap().value;
        assert!(String::from_utf8_lossy(&written).contains("\"promise_ms\":2000"), "{written:?}");
        let old = MemoryStore::new();
        let text = format!("{{\"id\":\"{:032x}\",\"partitions\":3,\"replicas\":2}}", 1);
        make(&old, CLUSTER_KEY, text.as_bytes()).unwrap();
        assert_eq!(ClusterFacts::read(&old), Ok(facts(1)));
        let other = ClusterFacts { promise_ms: 500, ..facts(1) };
        let refused = init(&old, &other, &nodes(&["a", "b"])).unwrap_err().to_string();
        assert!(refused.contains("promises of 2000 ms"), "{refused}");
    }

    #[test]
    fn all_nodes_count_with_the_promise_of_the_cluster_whatever_their_options_say() {
        let shorter = ReplicationOptions::default().with_promise(Duration::from_millis(200));
        for (own, ms) in [(shorter, PROMISE_MS_USUAL), (ReplicationOptions::default(), 500)] {
            let counted = ClusterFacts { promise_ms: ms, ..facts(1) }.replication(own);
            assert_eq!(counted.promise, Duration::from_millis(u64::from(ms)));
            assert!(counted.silent_after < counted.counted_promise(), "{counted:?}");
        }
        let meant = ReplicationOptions { lag_max: Duration::from_secs(9), ..ReplicationOptions::default() };
        assert_eq!(facts(1).replication(meant), meant);
    }

    #[test]
    fn a_cluster_that_was_interrupted_goes_on_with_the_same_choices() {
        let store = interrupted(&nodes(&["a", "b"]), 1);
        let refused = init(&store, &facts(2), &nodes(&["b", "a"]));
        assert_eq!(refused, Err(FactsError::LeftOver { key: "nodes/000000".to_owned() }));
        init(&store, &facts(2), &nodes(&["a", "b"])).unwrap();
        init(&store, &facts(3), &nodes(&["a", "b"])).unwrap();
        assert_eq!(ClusterFacts::read(&store), Ok(facts(2)));
    }
}
