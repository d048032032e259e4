//! The network of the simulation: queues, connections, and what happens to messages.

use super::clients::Run;
use super::model::Bank;
use super::world::{Event, Faults, Partition, World};
use crate::protocol::transactions::{Address, Body, Class, Message, Opening, SendQueue, Sender, Standing};
use crate::protocol::{NodeId, PartitionId};

/// Requests that a queue has room for.
pub const REQUESTS_MAX: usize = 2;

impl World {
    /// Puts a message into its queue. A request may find it full, and its coordinator gives up then.
    pub fn send(&mut self, message: Message<Bank>) {
        let (from, to, id) = (message.from, message.to, message.transaction);
        let class = message.class();
        let key = (from, to);
        let (queue, stalls_until) =
            self.queues.entry(key).or_insert_with(|| (SendQueue::new(REQUESTS_MAX), 0));
        let was_empty = queue.is_empty();
        match queue.push(message) {
            Ok(()) if was_empty => {
                let wait = stalls_until.saturating_sub(self.now);
                self.after(wait, Event::Drain(from, to));
            }
            Ok(()) => {}
            Err(full) => {
                assert_eq!(class, Class::Request, "a message of the protocol finds the queue {full:?}");
                self.refused(id);
            }
        }
    }

    pub fn drain(&mut self, from: Sender, to: Address) {
        let Some((queue, stalls_until)) = self.queues.get_mut(&(from, to)) else { return };
        if *stalls_until > self.now {
            let wait = *stalls_until - self.now;
            return self.after(wait, Event::Drain(from, to));
        }
        let mut messages = Vec::new();
        while let Some(message) = queue.pop() {
            messages.push(message);
        }
        messages.into_iter().for_each(|message| self.transmit(message));
    }

    fn transmit(&mut self, message: Message<Bank>) {
        let Some((generation, is_of_its_own)) = self.generation(&message) else { return };
        let has_healed = self.has_healed();
        if !has_healed && self.random.chance(1, 40) {
            return match (message.from, message.to) {
                (Sender::Coordinator(node), Address::Partition(of))
                | (Sender::Partition(of, _), Address::Coordinator(node)) => {
                    self.break_link(node.0 as usize, of.0 as usize);
                }
                _ => {}
            };
        }
        if !has_healed {
            self.fault_just_then(&message);
        }
        if !has_healed && self.random.chance(1, 12) {
            let within = if self.random.chance(1, 2) { 5_000 } else { 200_000 };
            self.soon(within, Event::Deliver { message: message.clone(), generation, is_copy: true });
        }
        let is_late = self.faults == Faults::ForcedLosses && matches!(message.body, Body::Decided(..));
        let within = match self.random.below(20) {
            0 if !has_healed => 100_000,
            3..=14 if is_late && !has_healed => 150_000,
            1 | 2 => 10_000,
            _ => 1_000,
        };
        self.soon(within, Event::Deliver { message, generation, is_copy: is_of_its_own });
    }

    /// The connection that a message goes over, and whether it is one beside that of the partition's primary. `None`:
    /// its sender has ended.
    fn generation(&self, message: &Message<Bank>) -> Option<(u64, bool)> {
        match (message.from, message.to) {
            (Sender::Coordinator(node), Address::Partition(of)) => {
                Some((self.links[node.0 as usize][of.0 as usize].at_node, false))
            }
            (Sender::Partition(of, opening), to) => {
                let partition = &self.partitions[of.0 as usize];
                let is_primarys = partition.primary.as_ref().is_some_and(|of| of.opening() == opening);
                let deposed = partition.deposed.iter().find(|of| of.primary.opening() == opening);
                let Address::Coordinator(node) = to else {
                    return (is_primarys || deposed.is_some()).then_some((0, false));
                };
                if is_primarys {
                    return Some((self.links[node.0 as usize][of.0 as usize].at_partition, false));
                }
                deposed.map(|deposed| (deposed.links[node.0 as usize], true))
            }
            (Sender::Coordinator(_), _) => unreachable!("coordinators do not talk to each other"),
        }
    }

    /// Some failures come just when something depends on what a message says.
    fn fault_just_then(&mut self, message: &Message<Bank>) {
        let is_forced = self.faults == Faults::ForcedLosses;
        let is_vote = matches!(message.body, Body::Voted | Body::Reply { votes: true, .. });
        let one_in = match message.body {
            Body::StillHeld => 6,
            Body::Standing(..) | Body::Decided(..) if is_forced => 3,
            _ if is_forced && is_vote => 8,
            Body::Reply { .. } | Body::Decide { .. } => 25,
            _ => u64::MAX,
        };
        if self.random.chance(1, one_in) {
            let of = match message.from {
                Sender::Partition(..) if is_vote => self.cluster.attempts[&message.transaction].deciding,
                Sender::Partition(of, _) => of.0 as usize,
                Sender::Coordinator(_) => self.random.below(self.partitions.len() as u64) as usize,
            };
            self.soon(4_000, Event::FailsOver(of));
        }
        // Coordinators that hear of votes late, and give up late.
        if let Address::Coordinator(node) = message.to
            && is_forced
            && is_vote
            && self.random.chance(1, 4)
        {
            self.nodes[node.0 as usize].paused_until = self.now + 60_000 + self.random.below(200_000);
        }
        if matches!(message.body, Body::Standing(Standing::Prepared(_), _)) && self.random.chance(1, 2) {
            let within = if self.random.chance(1, 2) { 4_000 } else { 80_000 };
            self.soon(within, Event::GivesUp(message.transaction));
        }
    }

    pub fn deliver(&mut self, message: Message<Bank>, generation: u64, is_copy: bool) {
        match (message.from, message.to) {
            (Sender::Coordinator(node), Address::Partition(to)) => {
                let (node, to) = (node.0 as usize, to.0 as usize);
                // A process sends nothing again after its end.
                if is_copy && message.transaction.start != self.nodes[node].start {
                    return;
                }
                let of_deposed = self.partitions[to].deposed.iter();
                let mut of_deposed = of_deposed
                    .filter(|of| is_copy || of.links[node] == generation)
                    .map(|of| of.primary.opening());
                let deposed = of_deposed.next().filter(|_| !is_copy || self.random.chance(1, 2));
                if let Some(opening) = deposed {
                    return self.partition_receives(to, opening, message);
                }
                if !is_copy && generation < self.links[node][to].at_partition {
                    return;
                }
                self.partition_learns(node, to, generation);
                self.primary_receives(to, message);
            }
            (Sender::Partition(..), Address::Partition(to)) => {
                let to = to.0 as usize;
                // Just when some branches have committed, and others not yet.
                let is_confirmed = matches!(message.body, Body::Confirmed(..));
                if self.faults == Faults::ForcedLosses
                    && is_confirmed
                    && !self.has_healed()
                    && self.random.chance(1, 3)
                {
                    return self.fail_over(to, 2);
                }
                match self.deposed(to).first() {
                    Some(opening) if self.random.chance(1, 3) => {
                        self.partition_receives(to, *opening, message);
                    }
                    _ => self.primary_receives(to, message),
                }
            }
            (Sender::Partition(from, _), Address::Coordinator(to)) => {
                let (node, from) = (to.0 as usize, from.0 as usize);
                if !is_copy && generation < self.links[node][from].at_node {
                    return;
                }
                if self.nodes[node].paused_until > self.now {
                    let wait = self.nodes[node].paused_until - self.now;
                    return self.after(wait, Event::Deliver { message, generation, is_copy });
                }
                self.node_learns(node, from, generation);
                self.coordinator_receives(node, message);
            }
            (Sender::Coordinator(_), _) => unreachable!("coordinators do not talk to each other"),
        }
    }

    fn primary_receives(&mut self, to: usize, message: Message<Bank>) {
        if let Some(primary) = &self.partitions[to].primary {
            self.partition_receives(to, primary.opening(), message);
        }
    }

    fn partition_receives(&mut self, to: usize, opening: Opening, message: Message<Bank>) {
        let now = self.time();
        let is_deposed = self.is_deposed(to, opening);
        self.received_by_deposed += u32::from(is_deposed);
        self.at(to, opening).expect("it is there").0.receive(message, now);
        self.work_at(to, opening);
    }

    /// The connection of a node to a partition is broken. Both ends learn of it at some time.
    pub fn break_link(&mut self, node: usize, partition: usize) {
        let link = self.links[node][partition];
        let generation = link.at_node.max(link.at_partition) + 1;
        self.soon(60_000, Event::NodeLearns { node, partition, generation });
        self.soon(60_000, Event::PartitionLearns { node, partition, generation });
    }

    pub fn node_learns(&mut self, node: usize, partition: usize, generation: u64) {
        if self.links[node][partition].at_node >= generation {
            return;
        }
        if self.nodes[node].paused_until > self.now {
            let wait = self.nodes[node].paused_until - self.now;
            return self.after(wait, Event::NodeLearns { node, partition, generation });
        }
        self.links[node][partition].at_node = generation;
        let opening = self.partitions[partition].opening;
        self.nodes[node].openings[partition] = opening;
        let of = PartitionId(partition as u32);
        let numbers: Vec<_> = self.nodes[node].running.keys().copied().collect();
        for number in numbers {
            if let Some(Run::Over(run)) = self.nodes[node].running.get_mut(&number) {
                run.coordinator.connection_ended(of);
            }
            self.coordinate(node, number);
        }
    }

    pub fn partition_learns(&mut self, node: usize, partition: usize, generation: u64) {
        if self.links[node][partition].at_partition >= generation {
            return;
        }
        self.links[node][partition].at_partition = generation;
        let now = self.time();
        let Partition { primary, deposed, .. } = &mut self.partitions[partition];
        for primary in primary.iter_mut().chain(deposed.iter_mut().map(|of| &mut of.primary)) {
            primary.connection_ended(NodeId(node as u32), now);
        }
    }

    pub fn send_low(&mut self, of: usize) {
        for to in 0..self.partitions.len() {
            let node = &self.nodes[of];
            let (from, to) =
                (Sender::Coordinator(NodeId(of as u32)), Address::Partition(PartitionId(to as u32)));
            let (transaction, body) = (node.name(0), node.numbers.heartbeat());
            self.send(Message { from, to, transaction, body });
        }
    }
}
