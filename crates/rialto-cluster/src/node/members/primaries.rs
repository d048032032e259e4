//! [`next_primary`]: which primaries are to change, so that nodes lead about as many partitions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::placement::Placement;
use crate::protocol::{NodeId, PartitionId};

/// The next planned change of a primary that makes the numbers of partitions that nodes lead more equal, and the node that
/// is to lead; none if no changes can make them more equal. Only nodes of this set take part, and only partitions that are
/// not among the others, have no move under way, and have a replica in sync there.
///
/// A node that leads too many may share no partition with one that leads too few. Then a chain of changes helps: each node
/// on it hands one partition on to the next. The last change of the shortest chain is given first, so that no node leads
/// more on the way than before.
pub fn next_primary(
    placement: &Placement,
    nodes: &BTreeSet<NodeId>,
    without: &BTreeSet<PartitionId>,
) -> Option<(PartitionId, NodeId)> {
    let mut leads: BTreeMap<NodeId, usize> = nodes.iter().map(|node| (*node, 0)).collect();
    for configuration in placement.configurations.values() {
        leads.entry(configuration.primary).and_modify(|number| *number += 1);
    }
    let mut starts: Vec<(usize, NodeId)> = leads.iter().map(|(node, number)| (*number, *node)).collect();
    starts.sort_unstable_by(|one, other| other.cmp(one));
    // Of the nodes that lead most and have a chain, the one with the shortest.
    for with_as_many in starts.chunk_by(|one, other| one.0 == other.0) {
        let chains =
            with_as_many.iter().filter_map(|(_, start)| shortest(placement, &leads, without, *start));
        if let Some((_, change)) = chains.min_by_key(|(length, _)| *length) {
            return Some(change);
        }
    }
    None
}

/// The length of the shortest chain from a node to one that leads fewer by two at least, and the last change of it.
fn shortest(
    placement: &Placement,
    leads: &BTreeMap<NodeId, usize>,
    without: &BTreeSet<PartitionId>,
    start: NodeId,
) -> Option<(usize, (PartitionId, NodeId))> {
    let mut reached = BTreeMap::from([(start, 0)]);
    let mut next = VecDeque::from([start]);
    while let Some(from) = next.pop_front() {
        let length = reached[&from] + 1;
        for (partition, configuration) in &placement.configurations {
            let may_change = configuration.primary == from
                && !without.contains(partition)
                && placement.moves.is_known(*partition)
                && placement.moves.of(*partition).is_none();
            if !may_change {
                continue;
            }
            for to in configuration.standbys().map(|standby| standby.node) {
                let Some(number) = leads.get(&to).filter(|_| !reached.contains_key(&to)) else { continue };
                if number + 2 <= leads[&start] {
                    return Some((length, (*partition, to)));
                }
                reached.insert(to, length);
                next.push_back(to);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use rialto::io::Random;

    use super::super::moves::Move;
    use super::super::placement::tests::placement;
    use super::*;
    use crate::control::MemoryStore;

    fn all(nodes: u32) -> BTreeSet<NodeId> {
        (0..nodes).map(NodeId).collect()
    }

    fn change(found: &mut Placement, (partition, to): (PartitionId, NodeId)) {
        found.configurations.get_mut(&partition).unwrap().primary = to;
    }

    /// The sum of the squares of how many partitions nodes lead: the less, the more equal.
    fn inequality(found: &Placement, nodes: u32) -> usize {
        let leads = |node| found.configurations.values().filter(|of| of.primary == NodeId(node)).count();
        (0..nodes).map(|node| leads(node).pow(2)).sum()
    }

    #[test]
    fn a_chain_of_changes_helps_nodes_that_share_no_partition() {
        // Node 0 leads three, node 1 two, node 2 one; 0 and 2 share none.
        let mut found = placement(3, &[&[0, 1], &[0, 1], &[0, 1], &[1, 2], &[1, 2], &[2, 1]]);
        let none = BTreeSet::new();
        let first = next_primary(&found, &all(3), &none).unwrap();
        assert_eq!(first, (PartitionId(3), NodeId(2)));
        change(&mut found, first);
        let second = next_primary(&found, &all(3), &none).unwrap();
        assert_eq!(second, (PartitionId(0), NodeId(1)));
        change(&mut found, second);
        assert_eq!(next_primary(&found, &all(3), &none), None);
    }

    #[test]
    fn what_takes_no_part_is_left_as_it_is() {
        let found = placement(2, &[&[0, 1], &[0, 1]]);
        let none = BTreeSet::new();
        assert_eq!(next_primary(&found, &all(2), &none), Some((PartitionId(0), NodeId(1))));
        let without = BTreeSet::from([PartitionId(0)]);
        assert_eq!(next_primary(&found, &all(2), &without), Some((PartitionId(1), NodeId(1))));
        assert_eq!(next_primary(&found, &all(1), &none), None);
        // One that moves, and one whose other replica catches up.
        let mut moves = found.clone();
        assert!(
            moves.moves.set(&MemoryStore::new(), PartitionId(0), Some(Move::new(Some(0), None))).unwrap()
        );
        assert_eq!(next_primary(&moves, &all(2), &none), Some((PartitionId(1), NodeId(1))));
        let mut catches_up = found;
        for configuration in catches_up.configurations.values_mut() {
            configuration.learners = configuration.in_sync.split_off(1);
        }
        assert_eq!(next_primary(&catches_up, &all(2), &none), None);
    }

    #[test]
    fn primaries_become_as_equal_as_they_can_be() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let nodes = 2 + random.below(3) as u32;
            let partitions: Vec<Vec<u32>> = (0..1 + random.below(6))
                .map(|_| {
                    let mut of: Vec<u32> = (0..nodes).collect();
                    (1..of.len()).for_each(|at| of.swap(at, random.below(at as u64 + 1) as usize));
                    of.truncate(1 + random.below(3) as usize);
                    of
                })
                .collect();
            let partitions: Vec<&[u32]> = partitions.iter().map(Vec::as_slice).collect();
            let mut found = placement(nodes, &partitions);
            let mut least = usize::MAX;
            let choices: usize = partitions.iter().map(|of| of.len()).product();
            for choice in 0..choices {
                let (mut tried, mut rest) = (found.clone(), choice);
                for (partition, of) in (0..).zip(&partitions) {
                    change(&mut tried, (PartitionId(partition), NodeId(of[rest % of.len()])));
                    rest /= of.len();
                }
                least = least.min(inequality(&tried, nodes));
            }
            let (mut steps, mut before) = (0, inequality(&found, nodes));
            while let Some(next) = next_primary(&found, &all(nodes), &BTreeSet::new()) {
                change(&mut found, next);
                let now = inequality(&found, nodes);
                assert!(now <= before, "seed {seed}: {next:?} makes it less equal");
                (steps, before) = (steps + 1, now);
                assert!(steps < 100, "seed {seed}: it comes to no end");
            }
            assert_eq!(before, least, "seed {seed}: {found:?}");
        }
    }
}
