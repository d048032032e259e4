//! [`Placement`]: where replicas are, and where they are to go.

use std::collections::BTreeMap;
use std::fmt;

use super::moves::{Move, Moves};
use crate::control::{ControlError, ControlStore};
use crate::node::facts::{ClusterFacts, FactsError, NodeFacts, Standing};
use crate::node::replica::read_configurations;
use crate::protocol::replication::{Configuration, Known};
use crate::protocol::{NodeId, PartitionId};

/// What all partitions have where, at about one moment.
#[derive(Debug, Clone)]
pub struct Placement {
    /// How many replicas a partition is to have.
    pub replicas: u32,
    /// The nodes that are in the cluster.
    pub nodes: Vec<NodeFacts>,
    /// The configurations of the partitions.
    pub configurations: BTreeMap<PartitionId, Configuration>,
    /// What is under way.
    pub moves: Moves,
}

/// No node can get a replica: each that is a member has one of this partition already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom {
    /// The partition.
    pub partition: PartitionId,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} needs one more replica, and each node that could get it has one already. Add a node first: rialto cluster join",
            self.partition
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
        let nodes = NodeFacts::all(store)?;
        Ok(Placement::with(store, facts, nodes, read_configurations(store)?)?)
    }

    /// The same, with what was read before.
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
        Ok(Placement { replicas: facts.replicas, nodes, configurations, moves: Moves::read(store)? })
    }

    /// The node of a name.
    pub fn node(&self, name: &str) -> Option<&NodeFacts> {
        self.nodes.iter().find(|node| node.name == name)
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

    /// Which move has a partition leave a node: another replica takes the place of the one there, on the preferred node or
    /// on the least loaded one that has none; unless there are enough others. Those on nodes that drain, and on lost nodes,
    /// do not count.
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
        let no_room = NoRoom { partition };
        let configuration = self.configurations.get(&partition).ok_or(no_room)?;
        let stays = |node: &NodeId| node.0 != from && self.is_member(node.0) && !lost.contains(node);
        let from = Some(from);
        if configuration.nodes().filter(stays).count() >= self.replicas as usize {
            return Ok(Move { from, to: None });
        }
        let free: Vec<u32> = self
            .nodes
            .iter()
            .map(|node| node.node)
            .filter(|node| {
                self.is_member(*node) && !configuration.has(NodeId(*node)) && !lost.contains(&NodeId(*node))
            })
            .collect();
        let count = self.nodes.len() as u32;
        // Of several that have the least, different partitions prefer different ones.
        let turn = |node: u32| (node + count - partition.0 % count.max(1)) % count.max(1);
        let preferred = preferred.filter(|node| free.contains(node));
        let least = free.iter().copied().min_by_key(|node| (self.load(*node), turn(*node)));
        preferred.or(least).map(|to| Move { from, to: Some(to) }).ok_or(no_room)
    }

    /// A move that makes the numbers of replicas on the nodes more equal: from the node that has the most to the one that
    /// has the least. It takes a primary if the first node leads more partitions than the second one would.
    pub fn balance(&self) -> Option<(PartitionId, Move)> {
        let mut nodes: Vec<(usize, u32)> = self
            .nodes
            .iter()
            .filter(|node| node.standing == Standing::Member)
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
        Some((*id, Move { from: Some(from), to: Some(to) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::MemoryStore;
    use crate::protocol::replication::Member;
    use crate::protocol::{Epoch, Life};

    /// Nodes from 0 on, and partitions with these nodes, the primary first.
    fn placement(nodes: u32, partitions: &[&[u32]]) -> Placement {
        let node = |node| NodeFacts {
            node,
            name: format!("n{node}"),
            address: String::new(),
            sql: String::new(),
            standing: Standing::Member,
        };
        let configuration = |nodes: &&[u32]| Configuration {
            epoch: Epoch(1),
            primary: NodeId(nodes[0]),
            in_sync: nodes.iter().map(|node| Member { node: NodeId(*node), life: Life(1) }).collect(),
            learners: Vec::new(),
            lost_before: Epoch(0),
        };
        Placement {
            replicas: 2,
            nodes: (0..nodes).map(node).collect(),
            configurations: (0..).map(PartitionId).zip(partitions.iter().map(configuration)).collect(),
            moves: Moves::default(),
        }
    }

    #[test]
    fn a_replica_goes_to_the_least_loaded_node_that_has_none() {
        let mut found = placement(4, &[&[0, 1], &[1, 2], &[2, 0], &[1, 2]]);
        let leave = |found: &Placement, lost: &[NodeId]| found.leave(PartitionId(0), 0, lost, None);
        assert_eq!(leave(&found, &[]), Ok(Move { from: Some(0), to: Some(3) }));
        assert_eq!(found.leave(PartitionId(0), 0, &[], Some(2)), Ok(Move { from: Some(0), to: Some(2) }));
        // Neither to one that drains, nor to a lost one.
        assert_eq!(leave(&found, &[NodeId(3)]), Ok(Move { from: Some(0), to: Some(2) }));
        found.nodes[3].standing = Standing::Draining;
        assert_eq!(leave(&found, &[]), Ok(Move { from: Some(0), to: Some(2) }));
        assert_eq!(leave(&found, &[NodeId(2)]), Err(NoRoom { partition: PartitionId(0) }));
        // With enough others none takes its place.
        found.replicas = 1;
        assert_eq!(leave(&found, &[]), Ok(Move { from: Some(0), to: None }));
        found.nodes[1].standing = Standing::Draining;
        assert_eq!(leave(&found, &[]), Ok(Move { from: Some(0), to: Some(2) }));
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
