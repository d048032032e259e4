//! The simulated cluster: nodes with coordinators, partitions that fail over, and a network between them. A seed chooses
//! everything. Time is simulated, too.
//!
//! Messages between a node and a partition belong to a connection. It breaks where one of them gets lost; both ends
//! learn of it at some time, and what was under way is not delivered afterwards. But any message may be delivered a
//! second time, much later, over a later connection: as from a node that sends again what it does not know to have
//! arrived. Messages between partitions may get lost, come twice, and overtake each other.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use rialto::io::Random;

use super::clients::{Cluster, Node, Run, Session};
use super::model::{Answer, Bank, Model, Told};
use crate::protocol::transactions::{
    Address, Body, Class, Decision, Effect, Message, Opened, Opening, Participant, SendQueue, TransactionId,
};
use crate::protocol::{NodeId, PartitionId};

/// What a simulation is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Faults {
    /// Everything but losses of what was durable at its level.
    WithinGuarantees,
    /// Some promotions are forced, and lose what was.
    ForcedLosses,
}

/// A time, in microseconds.
pub type Time = u64;

#[derive(Debug)]
pub enum Event {
    Deliver { message: Message<Bank>, generation: u64, is_copy: bool },
    Drain(Address, Address),
    Ran { partition: usize, opening: Opening, told: Told },
    Progress(usize),
    PartitionTick(usize),
    NodeTick(usize),
    NodeLearns { node: usize, partition: usize, generation: u64 },
    PartitionLearns { node: usize, partition: usize, generation: u64 },
    Reopen { partition: usize, lost: Option<Opening> },
    NodeStarts(usize),
    ClientWakes(usize),
    Fault,
    FailsOver(usize),
}

struct Due {
    at: Time,
    order: u64,
    event: Event,
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// The ends' views of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct Link {
    pub at_node: u64,
    pub at_partition: u64,
}

/// A partition, and its primary while it has one.
pub struct Partition {
    pub model: Model,
    pub primary: Option<Participant<Bank>>,
    pub opening: Opening,
    pub lost: Option<Opening>,
}

/// Everything.
pub struct World {
    pub random: Random,
    pub now: Time,
    order: u64,
    events: BinaryHeap<Reverse<Due>>,
    pub partitions: Vec<Partition>,
    pub nodes: Vec<Node>,
    pub sessions: Vec<Session>,
    pub cluster: Cluster,
    links: Vec<Vec<Link>>,
    queues: BTreeMap<(Address, Address), (SendQueue<Bank>, Time)>,
    faults: Faults,
    /// The last opening of a partition that another one has heard of.
    heard: BTreeMap<(usize, usize), u64>,
    /// Most transactions read.
    pub reads_more: bool,
    /// From here on there are no faults.
    heals_at: Time,
    /// How often each branch was begun, by its opening.
    begun: BTreeMap<(TransactionId, PartitionId, Opening), ()>,
    operators: BTreeMap<TransactionId, Decision>,
    /// What each transaction has seen, as its actions were run.
    seen: BTreeMap<TransactionId, Answer>,
}

const REQUESTS_MAX: usize = 2;

impl World {
    pub fn new(seed: u64, faults: Faults) -> World {
        let mut random = Random::new(seed);
        let partitions = 2 + random.below(3) as usize;
        let sessions = 2 + random.below(3) as usize;
        let mut world = World {
            now: 0,
            order: 0,
            events: BinaryHeap::new(),
            partitions: (0..partitions).map(|of| Partition::new(of as u32)).collect(),
            nodes: (0..partitions).map(|of| Node::new(of, partitions)).collect(),
            sessions: (0..sessions).map(|_| Session::new(1 + random.below(5))).collect(),
            cluster: Cluster::default(),
            links: vec![vec![Link::default(); partitions]; partitions],
            queues: BTreeMap::new(),
            faults,
            heard: BTreeMap::new(),
            reads_more: random.chance(1, 2),
            heals_at: 100_000 + random.below(500_000),
            begun: BTreeMap::new(),
            operators: BTreeMap::new(),
            seen: BTreeMap::new(),
            random,
        };
        for of in 0..partitions {
            world.after(0, Event::Reopen { partition: of, lost: None });
            world.soon(3_000, Event::Progress(of));
            world.soon(10_000, Event::PartitionTick(of));
            world.soon(10_000, Event::NodeTick(of));
        }
        (0..sessions).for_each(|of| world.soon(5_000, Event::ClientWakes(of)));
        world.soon(60_000, Event::Fault);
        world
    }

    /// What a transaction has seen.
    pub fn seen(&self, id: &TransactionId) -> &Answer {
        &self.seen[id]
    }

    pub fn time(&self) -> Duration {
        Duration::from_micros(self.now)
    }

    pub fn after(&mut self, wait: Time, event: Event) {
        self.order += 1;
        self.events.push(Reverse(Due { at: self.now + wait, order: self.order, event }));
    }

    pub fn soon(&mut self, within: Time, event: Event) {
        let wait = self.random.below(within);
        self.after(wait, event);
    }

    pub fn has_healed(&self) -> bool {
        self.now >= self.heals_at
    }

    /// Runs to the end, and checks on the way that nothing takes for ever.
    pub fn run(&mut self) {
        while let Some(Reverse(Due { at, event, .. })) = self.events.pop() {
            self.now = at;
            if self.is_over() {
                return;
            }
            if self.now > self.heals_at + 10_000_000 {
                panic!("something waits for ever:\n{}", self.what_waits());
            }
            self.handle(event);
        }
    }

    fn is_over(&self) -> bool {
        self.has_healed()
            && self.sessions.iter().all(|session| session.is_done())
            && self.nodes.iter().all(|node| node.running.is_empty())
            && self.queues.values().all(|(queue, _)| queue.is_empty())
            && self.partitions.iter().all(|of| {
                let is_quiet =
                    |primary: &Participant<Bank>| primary.unfinished() == 0 && primary.remembered() == 0;
                of.model.is_quiet() && of.primary.as_ref().is_some_and(is_quiet)
            })
    }

    fn what_waits(&self) -> String {
        let sessions: Vec<_> = self.sessions.iter().map(|session| session.is_done()).collect();
        let primaries: Vec<_> = self.partitions.iter().map(|of| &of.primary).collect();
        format!("sessions {sessions:?}, partitions {primaries:#?}")
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Deliver { message, generation, is_copy } => self.deliver(message, generation, is_copy),
            Event::Drain(from, to) => self.drain(from, to),
            Event::Ran { partition, opening, told } => {
                let now = self.time();
                let of = &mut self.partitions[partition];
                if of.opening == opening
                    && let Some(primary) = &mut of.primary
                {
                    tell(primary, told, now);
                    self.work(partition);
                }
            }
            Event::Progress(of) => {
                let (replicated, on_disk) = (self.random.below(4) as usize, self.random.below(4) as usize);
                if self.has_healed() {
                    self.partitions[of].model.taken = 0;
                }
                self.partitions[of].model.progress(replicated, on_disk);
                self.work(of);
                let within = if self.reads_more { 12_000 } else { 6_000 };
                self.soon(within, Event::Progress(of));
            }
            Event::PartitionTick(of) => {
                let now = self.time();
                let partition = &mut self.partitions[of];
                if let Some(primary) = &mut partition.primary {
                    partition.model.tick(now);
                    primary.tick(now);
                    self.work(of);
                }
                self.after(10_000, Event::PartitionTick(of));
            }
            Event::NodeTick(of) => {
                self.node_tick(of);
                self.after(10_000, Event::NodeTick(of));
            }
            Event::NodeLearns { node, partition, generation } => {
                self.node_learns(node, partition, generation);
            }
            Event::PartitionLearns { node, partition, generation } => {
                self.partition_learns(node, partition, generation);
                self.work(partition);
            }
            Event::Reopen { partition, lost } => self.reopen(partition, lost),
            Event::NodeStarts(of) => {
                self.nodes[of].is_up = true;
                self.send_low(of);
            }
            Event::ClientWakes(of) => self.client_wakes(of),
            Event::Fault => self.fault(),
            Event::FailsOver(of) => self.fail_over(of),
        }
    }

    /// Does what a partition's participant wants, until it wants no more.
    pub fn work(&mut self, of: usize) {
        loop {
            let now = self.time();
            let partition = &mut self.partitions[of];
            let Some(primary) = &mut partition.primary else { return };
            let mut told = partition.model.take_told();
            // Some results of actions come later.
            for told in told.drain(..) {
                if let Told::Ran(id, _, Some(answer)) = &told {
                    self.seen.entry(*id).or_default().seen.extend(&answer.seen);
                }
                let is_late = matches!(told, Told::Ran(..)) && self.random.chance(1, 3);
                if is_late {
                    let wait = self.random.below(3_000);
                    let opening = partition.opening;
                    self.order += 1;
                    let event = Event::Ran { partition: of, opening, told };
                    self.events.push(Reverse(Due { at: self.now + wait, order: self.order, event }));
                } else {
                    tell(primary, told, now);
                }
            }
            let effects = primary.take_effects();
            if effects.is_empty() {
                return;
            }
            effects.into_iter().for_each(|effect| self.effect(of, effect));
        }
    }

    fn effect(&mut self, of: usize, effect: Effect<Bank>) {
        let now = self.time();
        let id = PartitionId(of as u32);
        let opening = self.partitions[of].opening;
        let model = &mut self.partitions[of].model;
        match effect {
            Effect::Send(message) => self.send(message),
            Effect::Begin { transaction, locking } => {
                let is_first = self.begun.insert((transaction, id, opening), ()).is_none();
                assert!(is_first, "{transaction} is opened again in {id}");
                model.begin(transaction, locking);
            }
            Effect::Run { transaction, sequence, action } => model.run(transaction, sequence, action, now),
            Effect::Reserve { transaction } => {
                let has_room = model.reserve(transaction);
                let primary = self.partitions[of].primary.as_mut().expect("it works");
                primary.reserved(transaction, has_room, now);
            }
            Effect::Prepare { transaction, rows, level } => model.prepare(transaction, rows, level),
            Effect::AwaitReads { transaction, level } => model.await_reads(transaction, level),
            Effect::Commit { transaction, keeps, rows, level } => {
                model.commit(transaction, keeps, rows, level);
                self.check_commit(transaction, of);
            }
            Effect::Abort { transaction, rows } => {
                model.abort(transaction, rows);
                self.check_abort(transaction, of);
            }
            Effect::Release { transaction } => model.abort(transaction, Vec::new()),
            Effect::Write { transaction, rows, level } => model.write(transaction, rows, level),
            Effect::AskOperator { transaction } => {
                let drawn = if self.random.chance(1, 2) { Decision::Commit } else { Decision::Abort };
                let decision = *self.operators.entry(transaction).or_insert(drawn);
                let primary = self.partitions[of].primary.as_mut().expect("it works");
                primary.operator_decides(transaction, decision);
            }
        }
    }

    /// A branch that is not the deciding one commits only after the deciding one's commit is durable.
    fn check_commit(&self, id: TransactionId, of: usize) {
        let deciding = self.cluster.attempts[&id].deciding;
        if self.faults == Faults::WithinGuarantees && deciding != of {
            let is_decided = self.partitions[deciding].model.has_durable_commit(id);
            assert!(is_decided, "{id} commits in partition {of}, and is not decided durably");
        }
    }

    /// No branch aborts once the deciding one's commit is durable, unless it only read.
    fn check_abort(&self, id: TransactionId, of: usize) {
        let attempt = &self.cluster.attempts[&id];
        let writes = attempt.writes_in(of) && !attempt.fails;
        if self.faults == Faults::WithinGuarantees && writes {
            let is_decided = self.partitions[attempt.deciding].model.has_durable_commit(id);
            assert!(!is_decided, "{id} aborts in partition {of}, and is decided durably");
        }
    }

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

    fn drain(&mut self, from: Address, to: Address) {
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
        let has_healed = self.has_healed();
        if !has_healed && self.random.chance(1, 40) {
            return match (message.from, message.to) {
                (Address::Coordinator(node), Address::Partition(of))
                | (Address::Partition(of), Address::Coordinator(node)) => {
                    self.break_link(node.0 as usize, of.0 as usize);
                }
                _ => {}
            };
        }
        // Just when something depends on what a partition has said.
        let one_in = match message.body {
            Body::StillHeld { .. } => 6,
            Body::Reply { .. } | Body::Decide { .. } => 25,
            _ => u64::MAX,
        };
        if !has_healed && self.random.chance(1, one_in) {
            let of = match message.from {
                Address::Partition(of) => of.0 as usize,
                Address::Coordinator(_) => self.random.below(self.partitions.len() as u64) as usize,
            };
            self.soon(4_000, Event::FailsOver(of));
        }
        let generation = match (message.from, message.to) {
            (Address::Coordinator(node), Address::Partition(of)) => {
                self.links[node.0 as usize][of.0 as usize].at_node
            }
            (Address::Partition(of), Address::Coordinator(node)) => {
                self.links[node.0 as usize][of.0 as usize].at_partition
            }
            (Address::Partition(of), _) => self.partitions[of.0 as usize].opening.0,
            (Address::Coordinator(_), _) => 0,
        };
        if !has_healed && self.random.chance(1, 12) {
            let within = if self.random.chance(1, 2) { 5_000 } else { 200_000 };
            self.soon(within, Event::Deliver { message: message.clone(), generation, is_copy: true });
        }
        let within = match self.random.below(20) {
            0 if !has_healed => 100_000,
            1 | 2 => 10_000,
            _ => 1_000,
        };
        self.soon(within, Event::Deliver { message, generation, is_copy: false });
    }

    fn deliver(&mut self, message: Message<Bank>, generation: u64, is_copy: bool) {
        match (message.from, message.to) {
            (from, Address::Partition(to)) => {
                let to = to.0 as usize;
                if let Address::Coordinator(node) = from {
                    let node = node.0 as usize;
                    let link = &mut self.links[node][to];
                    if is_copy {
                        // A process sends nothing again after its end.
                        if message.transaction.start != self.nodes[node].start {
                            return;
                        }
                    } else if generation < link.at_partition {
                        return;
                    }
                    self.partition_learns(node, to, generation);
                }
                if let Address::Partition(from) = from {
                    // C2: a message of an opening before one that was heard is refused.
                    let heard = self.heard.entry((from.0 as usize, to)).or_default();
                    if generation < *heard {
                        return;
                    }
                    *heard = generation;
                }
                let now = self.time();
                // Just when some branches have committed, and others not yet.
                let is_confirmed = matches!(message.body, Body::Confirmed(_));
                if self.faults == Faults::ForcedLosses
                    && is_confirmed
                    && !self.has_healed()
                    && self.random.chance(1, 3)
                {
                    return self.fail_over(to);
                }
                if let Some(primary) = &mut self.partitions[to].primary {
                    primary.receive(message, now);
                    self.work(to);
                }
            }
            (Address::Partition(from), Address::Coordinator(to)) => {
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
            _ => unreachable!("coordinators do not talk to each other"),
        }
    }

    /// The connection of a node to a partition is broken. Both ends learn of it at some time.
    fn break_link(&mut self, node: usize, partition: usize) {
        let link = self.links[node][partition];
        let generation = link.at_node.max(link.at_partition) + 1;
        self.soon(60_000, Event::NodeLearns { node, partition, generation });
        self.soon(60_000, Event::PartitionLearns { node, partition, generation });
    }

    fn node_learns(&mut self, node: usize, partition: usize, generation: u64) {
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

    fn partition_learns(&mut self, node: usize, partition: usize, generation: u64) {
        if self.links[node][partition].at_partition >= generation {
            return;
        }
        self.links[node][partition].at_partition = generation;
        let now = self.time();
        if let Some(primary) = &mut self.partitions[partition].primary {
            primary.connection_ended(NodeId(node as u32), now);
        }
    }

    pub fn send_low(&mut self, of: usize) {
        let id = TransactionId { number: self.nodes[of].low(), ..self.nodes[of].id() };
        for to in 0..self.partitions.len() {
            let (from, to) = (Address::Coordinator(id.node), Address::Partition(PartitionId(to as u32)));
            self.send(Message { from, to, transaction: id, body: Body::Low(id.number) });
        }
    }

    fn fault(&mut self) {
        if self.has_healed() {
            return;
        }
        let count = self.partitions.len() as u64;
        let of = self.random.below(count) as usize;
        let other = self.random.below(count) as usize;
        match self.random.below(12) {
            0..=3 => self.fail_over(of),
            4 => {
                let node = &mut self.nodes[of];
                if node.is_up {
                    node.crash();
                    for partition in 0..self.partitions.len() {
                        let link = &mut self.links[of][partition];
                        let generation = link.at_node.max(link.at_partition) + 1;
                        link.at_node = generation;
                        self.soon(80_000, Event::PartitionLearns { node: of, partition, generation });
                        let to = Address::Partition(PartitionId(partition as u32));
                        let from = Address::Coordinator(NodeId(of as u32));
                        if let Some((queue, _)) = self.queues.get_mut(&(from, to)) {
                            queue.clear();
                        }
                    }
                    self.soon(50_000, Event::NodeStarts(of));
                }
            }
            5 | 6 => self.nodes[of].paused_until = self.now + self.random.below(300_000),
            7 => self.break_link(of, other),
            8 | 9 => {
                let stalls_until = self.now + self.random.below(80_000);
                let (node, partition) =
                    (Address::Coordinator(NodeId(of as u32)), Address::Partition(PartitionId(other as u32)));
                let key = if self.random.chance(1, 2) { (node, partition) } else { (partition, node) };
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

    fn fail_over(&mut self, of: usize) {
        let partition = &mut self.partitions[of];
        if partition.primary.take().is_none() {
            return;
        }
        let unreplicated = partition.model.unreplicated() as u64;
        let from = Address::Partition(PartitionId(of as u32));
        for (_, (queue, _)) in self.queues.iter_mut().filter(|((sender, _), _)| *sender == from) {
            queue.clear();
        }
        let is_forced = self.faults == Faults::ForcedLosses
            && partition.lost.is_none()
            && self.random.chance(1, 2)
            && self.partitions.iter().all(|partition| partition.lost.is_none());
        let partition = &mut self.partitions[of];
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
        partition.model.fail_over(lost);
        let lost = if is_forced { Some(partition.opening) } else { partition.lost };
        partition.lost = lost;
        self.soon(40_000, Event::Reopen { partition: of, lost });
    }

    fn reopen(&mut self, of: usize, lost: Option<Opening>) {
        let now = self.time();
        let partition = &mut self.partitions[of];
        if !partition.model.is_durable() {
            return self.after(2_000, Event::Reopen { partition: of, lost });
        }
        partition.opening = Opening(partition.opening.0 + 1);
        let (id, opening) = (PartitionId(of as u32), partition.opening);
        let rows = partition.model.rows.clone();
        partition.primary = Some(Participant::open(Opened { partition: id, opening, lost, rows }, now));
        for node in 0..self.nodes.len() {
            let link = &mut self.links[node][of];
            let generation = link.at_node.max(link.at_partition) + 1;
            link.at_partition = generation;
            self.soon(30_000, Event::NodeLearns { node, partition: of, generation });
        }
        self.work(of);
    }
}

impl Partition {
    fn new(of: u32) -> Partition {
        let model = Model::new(PartitionId(of));
        Partition { model, primary: None, opening: Opening(0), lost: None }
    }
}

fn tell(primary: &mut Participant<Bank>, told: Told, now: Duration) {
    match told {
        Told::Ran(id, sequence, answer) => primary.ran(id, sequence, answer, now),
        Told::Durable(id, step) => primary.durable(id, step, now),
    }
}
