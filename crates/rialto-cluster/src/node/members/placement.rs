//! [`Placement`]: where replicas are, and where they are to go.

use std::collections::BTreeMap;
use std::fmt;

use rialto::fault_injection;

use super::moves::{Move, Moves};
use crate::control::{ControlError, ControlStore};
use crate::node::facts::{ClusterFacts, FactsError, NodeFacts, Standing};
use crate::node::replica::read_configurations;
use crate::protocol::replication::{Configuration, Known};
use crate::protocol::{NodeId, PartitionId};

/// Which replicas the nodes have, of all partitions, at about one moment.
#[derive(Debug, Clone)]
pub struct Placement {
    /// How many replicas a partition is to have.
    pub replicas: u32,
    /// The nodes that are in the cluster.
    pub nodes: Vec<NodeFacts>,
    /// The numbers of those that have left it.
    pub left: Vec<u32>,
    /// The configurations of the partitions.
    pub configurations: BTreeMap<PartitionId, Configuration>,
    /// What is under way.
    pub moves: Moves,
}

/// No node can get a replica: each that is a member has one of this partition already, or was tried in vain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoRoom {
    /// The partition.
    pub partition: PartitionId,
    /// The nodes that have none and were tried in vain, with the reasons, in words.
    pub tried: Vec<String>,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} needs one more replica, and each node that could get it has one already{}. Add a node first: rialto cluster join",
            self.partition,
            match self.tried.is_empty() {
                true => String::new(),
                false => format!(", or failed to get it: {}", self.tried.join("; ")),
            }
        )
    }
}

impl std::error::Error for NoRoom {}

impl Placement {
    /// What the control store has.
    ///
    /// # Errors
    /// See [`FactsError`].
    pub fn read(store: &dyn ControlStore, facts: &ClusterFacts) -> Result<Placement, FactsError> {
        let nodes = NodeFacts::with_left(store)?;
        let (known, unreadable) = read_configurations(store)?;
        let placement = Placement::with(store, facts, nodes, known)?;
        // What a command moves, it has to know.
        let wrong = unreadable.iter().chain(placement.moves.unreadable()).next().cloned();
        match wrong {
            Some(what) => Err(FactsError::Wrong(what)),
            None => Ok(placement),
        }
    }

    /// The same, with what was read before: all nodes that the cluster has or had, and the configurations.
    ///
    /// # Errors
    /// Those of the store.
    pub fn with(
        store: &dyn ControlStore,
        facts: &ClusterFacts,
        nodes: Vec<NodeFacts>,
        known: BTreeMap<PartitionId, Known>,
    ) -> Result<Placement, ControlError> {
        let configurations = known.into_iter().map(|(id, known)| (id, known.configuration)).collect();
        let (left, nodes): (Vec<_>, Vec<_>) =
            nodes.into_iter().partition(|node| node.standing == Standing::Left);
        let left = left.into_iter().map(|node| node.node).collect();
        Ok(Placement { replicas: facts.replicas, nodes, left, configurations, moves: Moves::read(store)? })
    }

    /// The node of a name.
    pub fn node(&self, name: &str) -> Option<&NodeFacts> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The name of a node, or its number in words.
    pub fn name(&self, node: u32) -> String {
        let found = self.nodes.iter().find(|found| found.node == node);
        found.map_or_else(|| format!("node {node}"), |found| found.name.clone())
    }

    /// Whether a node may get replicas.
    pub fn is_member(&self, node: u32) -> bool {
        self.nodes.iter().any(|found| found.node == node && found.standing == Standing::Member)
    }

    /// The partitions that have a replica on a node, or are about to.
    pub fn on(&self, node: u32) -> Vec<PartitionId> {
        let has = |(id, configuration): (&PartitionId, &Configuration)| {
            let comes = self.moves.of(*id).is_some_and(|found| found.to == Some(node));
            (configuration.has(NodeId(node)) || comes).then_some(*id)
        };
        self.configurations.iter().filter_map(has).collect()
    }

    /// How many replicas a node has once all that is under way is done.
    fn load(&self, node: u32) -> usize {
        let goes = |id: &PartitionId| self.moves.of(*id).is_some_and(|found| found.from == Some(node));
        self.on(node).iter().filter(|id| !goes(id)).count()
    }

    /// How many partitions a node leads once all that is under way is done.
    fn leads(&self, node: u32) -> usize {
        let leads = |(id, configuration): &(&PartitionId, &Configuration)| {
            let primary = configuration.primary.0;
            let moved = self.moves.of(**id).filter(|found| found.from == Some(primary));
            moved.and_then(|found| found.to).unwrap_or(primary) == node
        };
        self.configurations.iter().filter(leads).count()
    }

    /// The move by which a partition leaves a node. Another replica takes the place of the one there, on the preferred
    /// node or on the least loaded one that has none, unless enough others are in sync. Those on nodes that drain, and
    /// on lost nodes, do not count. If enough others are there and one of them only catches up, the replica waits for
    /// that one. A node to which a move has failed lately is not tried.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn leave(
        &self,
        partition: PartitionId,
        from: u32,
        lost: &[NodeId],
        preferred: Option<u32>,
    ) -> Result<Move, NoRoom> {
        let mut no_room = NoRoom { partition, tried: Vec::new() };
        let Some(configuration) = self.configurations.get(&partition) else { return Err(no_room) };
        let stays = |node: &NodeId| node.0 != from && self.is_member(node.0) && !lost.contains(node);
        let from = Some(from);
        let in_sync = configuration.in_sync.iter().filter(|member| stays(&member.node)).count();
        let counts_all = fault_injection::is_on("learners-count-as-enough");
        if in_sync >= self.replicas as usize
            || (counts_all && configuration.nodes().filter(stays).count() >= self.replicas as usize)
        {
            return Ok(Move::new(from, None));
        }
        let is_tried = |node: u32| self.moves.why_avoided(node).is_some();
        let learners = configuration.learners.iter().map(|member| member.node);
        let catches_up: Vec<NodeId> = learners.filter(|node| stays(node) && !is_tried(node.0)).collect();
        if in_sync + catches_up.len() >= self.replicas as usize
            && let Some(to) = catches_up.first()
        {
            return Ok(Move::new(from, Some(to.0)));
        }
        let free: Vec<u32> = self
            .nodes
            .iter()
            .map(|node| node.node)
            .filter(|node| {
                self.is_member(*node) && !configuration.has(NodeId(*node)) && !lost.contains(&NodeId(*node))
            })
            .collect();
        let why = |node: &u32| {
            let failed = self.moves.why_avoided(*node)?;
            Some(format!("{}: {}", self.name(*node), failed.why))
        };
        no_room.tried = free.iter().filter_map(why).collect();
        let free: Vec<u32> = free.into_iter().filter(|node| !is_tried(*node)).collect();
        let count = self.nodes.len() as u32;
        // Of several that have the least, different partitions prefer different ones.
        let turn = |node: u32| (node + count - partition.0 % count.max(1)) % count.max(1);
        let preferred = preferred.filter(|node| free.contains(node));
        let least = free.iter().copied().min_by_key(|node| (self.load(*node), turn(*node)));
        preferred.or(least).map(|to| Move::new(from, Some(to))).ok_or(no_room)
    }

    /// A move that makes the numbers of replicas on the nodes more equal: from the node that has the most to the one that
    /// has the least. It takes a primary if the first node leads more partitions than the second one would.
    pub fn balance(&self) -> Option<(PartitionId, Move)> {
        let mut nodes: Vec<(usize, u32)> = self
            .nodes
            .iter()
            .filter(|node| node.standing == Standing::Member)
            .filter(|node| self.moves.why_avoided(node.node).is_none())
            .map(|node| (self.load(node.node), node.node))
            .collect();
        nodes.sort_unstable();
        let (&(least, to), &(most, from)) = (nodes.first()?, nodes.last()?);
        if most <= least + 1 {
            return None;
        }
        let may_go = |(id, configuration): &(&PartitionId, &Configuration)| {
            configuration.has(NodeId(from)) && !configuration.has(NodeId(to)) && self.moves.of(**id).is_none()
        };
        let wants_primary = self.leads(from) > self.leads(to) + 1;
        let candidates = self.configurations.iter().filter(may_go);
        let (id, _) = candidates.min_by_key(|(_, found)| (found.primary == NodeId(from)) != wants_primary)?;
        Some((*id, Move::new(Some(from), Some(to))))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::control::MemoryStore;
    use crate::protocol::replication::{LostBefore, Member};
    use crate::protocol::{Epoch, Life};

    /// Nodes from 0 on, and partitions with these nodes, the primary first.
    pub fn placement(nodes: u32, partitions: &[&[u32]]) -> Placement {
        let node = |node| NodeFacts {
            node,
            name: format!("n{node}"),
            address: String::new(),
            sql: String::new(),
            standing: Standing::Member,
            directory: None,
        };
        let configuration = |nodes: &&[u32]| Configuration {
            epoch: Epoch(1),
            primary: NodeId(nodes[0]),
            in_sync: nodes.iter().map(|node| Member { node: NodeId(*node), life: Life(1) }).collect(),
            learners: Vec::new(),
            lost_before: LostBefore::default(),
        };
        Placement {
            replicas: 2,
            left: Vec::new(),
            nodes: (0..nodes).map(node).collect(),
            configurations: (0..).map(PartitionId).zip(partitions.iter().map(configuration)).collect(),
            moves: Moves::default(),
        }
    }

    #[test]
    fn a_replica_goes_to_the_least_loaded_node_that_has_none() {
        let mut found = placement(4, &[&[0, 1], &[1, 2], &[2, 0], &[1, 2]]);
        let leave = |found: &Placement, lost: &[NodeId]| found.leave(PartitionId(0), 0, lost, None);
        assert_eq!(leave(&found, &[]), Ok(Move::new(Some(0), Some(3))));
        assert_eq!(found.leave(PartitionId(0), 0, &[], Some(2)), Ok(Move::new(Some(0), Some(2))));
        // Neither to one that drains, nor to a lost one.
        assert_eq!(leave(&found, &[NodeId(3)]), Ok(Move::new(Some(0), Some(2))));
        found.nodes[3].standing = Standing::Draining;
        assert_eq!(leave(&found, &[]), Ok(Move::new(Some(0), Some(2))));
        assert_eq!(leave(&found, &[NodeId(2)]), Err(NoRoom { partition: PartitionId(0), tried: Vec::new() }));
        // With enough others none takes its place.
        found.replicas = 1;
        assert_eq!(leave(&found, &[]), Ok(Move::new(Some(0), None)));
        found.nodes[1].standing = Standing::Draining;
        assert_eq!(leave(&found, &[]), Ok(Move::new(Some(0), Some(2))));
    }

    #[test]
    fn a_replica_that_catches_up_counts_for_nothing() {
        // The last replica is lost, and the one in its place is half made.
        let mut found = placement(4, &[&[0]]);
        let learner = |node| Member { node: NodeId(node), life: Life(0) };
        found.configurations.get_mut(&PartitionId(0)).unwrap().learners = vec![learner(1), learner(2)];
        let lost = [NodeId(1)];
        let waits_for = |to| Ok(Move::new(Some(1), Some(to)));
        assert_eq!(found.leave(PartitionId(0), 1, &lost, None), waits_for(2));
        // If that one is lost, too, a third one is made.
        assert_eq!(found.leave(PartitionId(0), 1, &[NodeId(1), NodeId(2)], None), waits_for(3));
        // A primary is not taken from where too few others are in sync: a dead learner never will be.
        let mut found = placement(4, &[&[0, 1]]);
        found.configurations.get_mut(&PartitionId(0)).unwrap().learners = vec![learner(2)];
        let leave = |found: &Placement| found.leave(PartitionId(0), 0, &[], None);
        assert_eq!(leave(&found), Ok(Move::new(Some(0), Some(2))));
        let store = MemoryStore::new();
        let failed = |node| (node, "it is not heard".to_owned());
        assert!(found.moves.fail(&store, PartitionId(0), None, failed(2)).unwrap());
        assert_eq!(leave(&found), Ok(Move::new(Some(0), Some(3))));
        assert!(found.moves.fail(&store, PartitionId(0), None, failed(3)).unwrap());
        let no_room = leave(&found).unwrap_err();
        assert_eq!(no_room.tried, ["n3: it is not heard"]);
        // A command tries them again.
        found.moves.forget_failed(&store).unwrap();
        assert_eq!(leave(&found), Ok(Move::new(Some(0), Some(2))));
    }

    #[test]
    fn moves_balance_replicas_and_primaries_and_come_to_an_end() {
        let mut found = placement(4, &[&[0, 1], &[1, 2], &[2, 0], &[0, 1], &[1, 2], &[2, 0]]);
        let store = MemoryStore::new();
        let mut moved = 0;
        while let Some((id, next)) = found.balance() {
            assert_eq!(next.to, Some(3));
            assert!(found.moves.set(&store, id, Some(next)).unwrap());
            moved += 1;
            assert!(moved < 20, "it comes to no end");
        }
        assert_eq!((moved, found.load(3), found.load(0)), (3, 3, 3));
        assert!((1..=2).contains(&found.leads(3)), "{}", found.leads(3));
        assert_eq!(found.on(3).len(), 3);
    }
}
