//! The failures of the simulation.

use super::network::REQUESTS_MAX;
use super::world::{Deposed, Event, Faults, World};
use crate::protocol::transactions::{Address, Lost, Opened, Opening, Participant, SendQueue, Sender};
use crate::protocol::{NodeId, PartitionId};

impl World {
    pub fn fault(&mut self) {
        if self.has_healed() {
            return;
        }
        let count = self.partitions.len() as u64;
        let of = self.random.below(count) as usize;
        let other = self.random.below(count) as usize;
        match self.random.below(12) {
            0 if self.faults == Faults::LostPower => {
                (0..self.nodes.len()).for_each(|node| self.crash(node));
                (0..self.partitions.len()).for_each(|of| self.lose_memories(of, Vec::clear));
            }
            1 if self.faults == Faults::LostPower => self.lose_memories(of, |_| {}),
            0..=3 => self.fail_over(of, 8),
            4 => self.crash(of),
            5 | 6 => self.nodes[of].paused_until = self.now + self.random.below(300_000),
            7 => self.break_link(of, other),
            8 | 9 => {
                let stalls_until = self.now + self.random.below(80_000);
                let node = Sender::Coordinator(NodeId(of as u32));
                let partition = Sender::Partition(PartitionId(other as u32), self.partitions[other].opening);
                let ends = if self.random.chance(1, 2) { (node, partition) } else { (partition, node) };
                let key = (ends.0, ends.1.address());
                self.queues.entry(key).or_insert_with(|| (SendQueue::new(REQUESTS_MAX), 0)).1 = stalls_until;
            }
            _ => {
                let model = &mut self.partitions[of].model;
                if model.taken == 0 {
                    model.fill();
                } else {
                    model.taken = 0;
                }
            }
        }
        self.soon(40_000, Event::Fault);
    }

    /// A node's process ends.
    fn crash(&mut self, of: usize) {
        let node = &mut self.nodes[of];
        if !node.is_up {
            return;
        }
        node.crash();
        for partition in 0..self.partitions.len() {
            let link = &mut self.links[of][partition];
            let generation = link.at_node.max(link.at_partition) + 1;
            link.at_node = generation;
            self.soon(80_000, Event::PartitionLearns { node: of, partition, generation });
            let to = Address::Partition(PartitionId(partition as u32));
            let from = Sender::Coordinator(NodeId(of as u32));
            if let Some((queue, _)) = self.queues.get_mut(&(from, to)) {
                queue.clear();
            }
        }
        self.soon(50_000, Event::NodeStarts(of));
    }

    /// The machines of a partition's replicas start again: it has what was on its primary's disk. Deposed primaries, which may be
    /// on other machines, end or go on.
    fn lose_memories(&mut self, of: usize, deposed: fn(&mut Vec<Deposed>)) {
        let partition = &mut self.partitions[of];
        deposed(&mut partition.deposed);
        // One that opens just now goes on with what is on its disk.
        let is_opening = partition.primary.take().is_none();
        // The disk may have more than is known.
        let unsure = partition.model.not_on_disk() as u64;
        let lost = self.random.below(unsure + 1) as usize;
        let partition = &mut self.partitions[of];
        partition.model.fail_over(lost);
        let opening = partition.opening;
        partition.model.has_lost(Lost { in_memories: Some(opening), on_disks: None });
        let from = Sender::Partition(PartitionId(of as u32), opening);
        self.queues.retain(|(sender, _), _| *sender != from);
        if !is_opening {
            self.soon(40_000, Event::Reopen(of));
        }
    }

    /// A partition's primary fails. One in so many such failures loses what was durable, where a simulation has losses.
    pub fn fail_over(&mut self, of: usize, one_is_forced_in: u64) {
        let Some(primary) = self.partitions[of].primary.take() else { return };
        let is_forced = self.faults == Faults::ForcedLosses
            && self.losses_left > 0
            && self.random.chance(1, one_is_forced_in);
        // Its process has ended, or it does not know yet.
        let goes_on = !self.has_healed() && self.random.chance(1, 2);
        let partition = &mut self.partitions[of];
        let unreplicated = partition.model.unreplicated() as u64;
        let lost = match self.random.below(3) {
            _ if is_forced => {
                let most = (partition.model.replicated() as u64).min(3);
                let some = unreplicated as usize + self.random.below(most + 1) as usize;
                some.max(partition.model.since_decision())
            }
            // The same process's memory is found again.
            0 => 0,
            1 => unreplicated as usize,
            _ => self.random.below(unreplicated + 1) as usize,
        };
        if goes_on {
            let links = self.links.iter().map(|links| links[of].at_partition).collect();
            let (opening, model) = (primary.opening(), partition.model.clone());
            self.partitions[of].deposed.push(Deposed { primary, model, links });
            self.soon(150_000, Event::DeposedEnds { partition: of, opening });
        } else {
            let from = Sender::Partition(PartitionId(of as u32), primary.opening());
            self.queues.retain(|(sender, _), _| *sender != from);
        }
        let partition = &mut self.partitions[of];
        partition.model.fail_over(lost);
        if is_forced {
            let last = Some(partition.opening);
            partition.model.has_lost(Lost { in_memories: last, on_disks: last });
            self.losses_left -= 1;
        }
        self.soon(40_000, Event::Reopen(of));
    }

    pub fn reopen(&mut self, of: usize) {
        let now = self.time();
        let partition = &mut self.partitions[of];
        if !partition.model.is_durable() {
            return self.after(2_000, Event::Reopen(of));
        }
        partition.opening = Opening(partition.opening.0 + 1);
        let (id, opening) = (PartitionId(of as u32), partition.opening);
        let mut rows = partition.model.rows.clone();
        if self.forgets_losses {
            let is_of_the_last = |lost: &Opening| lost.0 + 1 == opening.0;
            let Lost { in_memories, on_disks } = rows.lost;
            rows.lost = Lost {
                in_memories: in_memories.filter(is_of_the_last),
                on_disks: on_disks.filter(is_of_the_last),
            };
        }
        partition.primary = Some(Participant::open(Opened { partition: id, opening, rows }, now));
        let within = match self.faults {
            Faults::ForcedLosses => 150_000,
            _ if partition.deposed.is_empty() => 30_000,
            Faults::WithinGuarantees | Faults::LostPower => 100_000,
        };
        for node in 0..self.nodes.len() {
            let link = &mut self.links[node][of];
            let generation = link.at_node.max(link.at_partition) + 1;
            link.at_partition = generation;
            self.soon(within, Event::NodeLearns { node, partition: of, generation });
        }
        self.work(of);
    }
}
