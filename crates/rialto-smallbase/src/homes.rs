//! [`Homes`]: which branches lie at which node.

use rialto::io::Random;

use crate::spec::{Data, Shape};

/// The branches of each partition. All nodes find the same ones: a branch is a number whose key lies in the partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Homes {
    /// By partition.
    of_partitions: Vec<Vec<i32>>,
    /// By node, those of its partitions together.
    of_nodes: Vec<Vec<i32>>,
}

impl Homes {
    /// Finds as many branches for each partition as the data has; `partition_of` says where a branch lies.
    pub fn find(shape: Shape, data: Data, partition_of: impl Fn(i32) -> u32) -> Homes {
        let mut of_partitions = vec![Vec::new(); shape.all_partitions() as usize];
        let mut missing = of_partitions.len();
        for branch in 0.. {
            if missing == 0 {
                break;
            }
            let found = &mut of_partitions[partition_of(branch) as usize];
            if found.len() < data.branches as usize {
                found.push(branch);
                missing -= usize::from(found.len() == data.branches as usize);
            }
        }
        let mut of_nodes = vec![Vec::new(); shape.nodes as usize];
        for (partition, branches) in of_partitions.iter().enumerate() {
            of_nodes[shape.home(partition as u32) as usize].extend(branches);
        }
        Homes { of_partitions, of_nodes }
    }

    /// The branches of a partition.
    pub fn of_partition(&self, partition: u32) -> &[i32] {
        &self.of_partitions[partition as usize]
    }

    /// One of the branches of a node, at random.
    pub fn draw(&self, random: &mut Random, node: u32) -> i32 {
        let branches = &self.of_nodes[node as usize];
        branches[random.below(branches.len() as u64) as usize]
    }

    /// One of the branches of the other nodes, each node as likely as the others; `None` if there is no other node.
    pub fn draw_elsewhere(&self, random: &mut Random, node: u32) -> Option<i32> {
        let others = self.of_nodes.len() as u64 - 1;
        if others == 0 {
            return None;
        }
        let drawn = random.below(others) as u32;
        Some(self.draw(random, if drawn < node { drawn } else { drawn + 1 }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Protocol, WorkloadName};

    #[test]
    fn each_partition_has_its_branches_and_another_node_is_never_the_own_one() {
        let shape = Shape { nodes: 3, partitions: 2, replicas: 1 };
        let data =
            Data { workload: WorkloadName::Tpcb, protocol: Protocol::Atomic, branches: 4, accounts: 1 };
        let partition_of = |branch: i32| (branch as u32).wrapping_mul(2_654_435_761) % 6;
        let homes = Homes::find(shape, data, partition_of);
        for partition in 0..6 {
            let branches = homes.of_partition(partition);
            assert_eq!(branches.len(), 4);
            assert!(branches.iter().all(|branch| partition_of(*branch) == partition));
        }
        let mut random = Random::new(7);
        let mut seen = [0; 3];
        for _ in 0..300 {
            assert_eq!(shape.home(partition_of(homes.draw(&mut random, 1))), 1);
            let elsewhere = homes.draw_elsewhere(&mut random, 1).unwrap();
            seen[shape.home(partition_of(elsewhere)) as usize] += 1;
        }
        assert!(seen[1] == 0 && seen[0] > 100 && seen[2] > 100, "{seen:?}");
        let alone = Homes::find(Shape { nodes: 1, partitions: 1, replicas: 1 }, data, |_| 0);
        assert_eq!(alone.draw_elsewhere(&mut random, 0), None);
    }
}
