//! The simulated cluster: nodes with coordinators, partitions that fail over, and a network between them. A seed
//! chooses everything. Time is simulated, too.
//!
//! Messages between a node and a partition belong to a connection. It breaks where one of them gets lost; both ends
//! learn of it at some time, and what was under way is not delivered afterwards. But any message may be delivered a
//! second time, much later, over a later connection: as from a node that sends again what it does not know to have
//! arrived. Messages between partitions may get lost, come twice, and overtake each other.
//!
//! A primary that was deposed may go on for a while beside its successor, on a connection of its own to each node. It
//! has its own copy of the kernel. It hears of some messages, and sends some. But none of its steps is known to be
//! durable to it: its driver asks before what may be answered, and no promise holds any more.
//!
//! `network` has the queues and connections, `faults` the failures.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use rialto::io::Random;

use super::clients::{Cluster, Node, Session};
use super::model::{Answer, Bank, Model, Told};
use crate::protocol::PartitionId;
use crate::protocol::transactions::{
    Address, Decision, Effect, Level, Message, Opening, Participant, SendQueue, Sender, TransactionId,
};

/// What a simulation is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Faults {
    /// Everything but losses of what was durable at its level.
    WithinGuarantees,
    /// Some promotions are forced, and lose what was.
    ForcedLosses,
    /// All power is lost now and then: all memories are, and no disk.
    LostPower,
}

/// A time, in microseconds.
pub type Time = u64;

#[derive(Debug)]
pub enum Event {
    Deliver { message: Message<Bank>, generation: u64, is_copy: bool },
    Drain(Sender, Address),
    Ran { partition: usize, opening: Opening, told: Told },
    Progress(usize),
    PartitionTick(usize),
    NodeTick(usize),
    NodeLearns { node: usize, partition: usize, generation: u64 },
    PartitionLearns { node: usize, partition: usize, generation: u64 },
    Reopen(usize),
    DeposedEnds { partition: usize, opening: Opening },
    ThinksOf(TransactionId),
    GivesUp(TransactionId),
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
    pub deposed: Vec<Deposed>,
}

/// A primary that was deposed, and has not ended yet.
pub struct Deposed {
    pub primary: Participant<Bank>,
    pub model: Model,
    /// Its connections to the nodes.
    pub links: Vec<u64>,
}

/// What an operator says of transactions of which no partition knows how they ended.
#[derive(Debug, Clone, Copy)]
enum Operator {
    Commits,
    Aborts,
    SaysAnything,
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
    pub links: Vec<Vec<Link>>,
    pub queues: BTreeMap<(Sender, Address), (SendQueue<Bank>, Time)>,
    pub faults: Faults,
    /// A rule of the driver is left out: steps of a primary are fed though nothing may be answered.
    pub feeds_deposed: bool,
    /// Another one: only the opening that follows a forced loss knows of it.
    pub forgets_losses: bool,
    pub received_by_deposed: u32,
    pub operator_asked: u32,
    /// So many forced losses may come still, the second one also in the same partition.
    pub losses_left: u32,
    /// All clients send their transactions statement by statement.
    pub only_statements: bool,
    /// Most transactions read.
    pub reads_more: bool,
    /// From here on there are no faults.
    heals_at: Time,
    /// How often each branch was begun, by its opening.
    begun: BTreeMap<(TransactionId, PartitionId, Opening), ()>,
    operator: Operator,
    /// What each transaction has seen, as its actions were run.
    seen: BTreeMap<TransactionId, Answer>,
}

impl World {
    pub fn new(seed: u64, faults: Faults) -> World {
        let mut random = Random::new(seed);
        let partitions = match faults {
            Faults::WithinGuarantees | Faults::LostPower => 2 + random.below(3) as usize,
            // A branch that ends otherwise than another one: the deciding partition is a third.
            Faults::ForcedLosses => 3 + random.below(2) as usize,
        };
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
            feeds_deposed: false,
            forgets_losses: false,
            only_statements: false,
            losses_left: if random.chance(1, 4) { 2 } else { 1 },
            received_by_deposed: 0,
            operator_asked: 0,
            reads_more: random.chance(1, 2),
            heals_at: 100_000 + random.below(500_000),
            begun: BTreeMap::new(),
            operator: [Operator::Commits, Operator::Aborts, Operator::SaysAnything][random.below(3) as usize],
            seen: BTreeMap::new(),
            random,
        };
        for of in 0..partitions {
            world.after(0, Event::Reopen(of));
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
                let is_alone = of.deposed.is_empty();
                is_alone && of.model.is_quiet() && of.primary.as_ref().is_some_and(is_quiet)
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
                if let Some((primary, _)) = self.at(partition, opening) {
                    tell(primary, told, now);
                    self.work_at(partition, opening);
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
                for opening in self.deposed(of) {
                    let (primary, model) = self.at(of, opening).expect("it is there");
                    model.tick(now);
                    primary.tick(now);
                    self.work_at(of, opening);
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
            Event::Reopen(of) => self.reopen(of),
            Event::DeposedEnds { partition, opening } => {
                self.partitions[partition].deposed.retain(|of| of.primary.opening() != opening);
            }
            Event::ThinksOf(id) => self.next_statement(id),
            Event::GivesUp(id) => self.gives_up(id),
            Event::NodeStarts(of) => {
                self.nodes[of].is_up = true;
                self.send_low(of);
            }
            Event::ClientWakes(of) => self.client_wakes(of),
            Event::Fault => self.fault(),
            Event::FailsOver(of) => self.fail_over(of, 2),
        }
    }

    /// The primary of an opening, if there is one still, and its kernel.
    pub fn at(&mut self, of: usize, opening: Opening) -> Option<(&mut Participant<Bank>, &mut Model)> {
        let Partition { model, primary, deposed, .. } = &mut self.partitions[of];
        match primary {
            Some(primary) if primary.opening() == opening => Some((primary, model)),
            _ => {
                let deposed = deposed.iter_mut().find(|of| of.primary.opening() == opening)?;
                Some((&mut deposed.primary, &mut deposed.model))
            }
        }
    }

    /// The openings of a partition whose primaries have been deposed, and have not ended.
    pub fn deposed(&self, of: usize) -> Vec<Opening> {
        self.partitions[of].deposed.iter().map(|of| of.primary.opening()).collect()
    }

    pub fn is_deposed(&self, of: usize, opening: Opening) -> bool {
        self.partitions[of].primary.as_ref().is_none_or(|primary| primary.opening() != opening)
    }

    /// Does what a partition's participant wants, until it wants no more.
    pub fn work(&mut self, of: usize) {
        if let Some(primary) = &self.partitions[of].primary {
            self.work_at(of, primary.opening());
        }
    }

    /// The same for the primary of an opening.
    pub fn work_at(&mut self, of: usize, opening: Opening) {
        loop {
            let now = self.time();
            let is_deposed = self.is_deposed(of, opening);
            let Some((_, model)) = self.at(of, opening) else { return };
            let told = model.take_told();
            for told in told {
                if let Told::Ran(id, _, Some(ran)) = &told {
                    self.seen.entry(*id).or_default().seen.extend(&ran.reply.seen);
                }
                if is_deposed && matches!(told, Told::Durable(..)) && !self.feeds_deposed {
                    continue;
                }
                // Some results of actions come later.
                let is_late = matches!(told, Told::Ran(..)) && self.random.chance(1, 3);
                if is_late {
                    self.soon(3_000, Event::Ran { partition: of, opening, told });
                } else {
                    tell(self.at(of, opening).expect("it is there").0, told, now);
                }
            }
            let effects = self.at(of, opening).expect("it is there").0.take_effects();
            if effects.is_empty() {
                return;
            }
            effects.into_iter().for_each(|effect| self.effect(of, opening, effect));
        }
    }

    fn effect(&mut self, of: usize, opening: Opening, effect: Effect<Bank>) {
        let now = self.time();
        let id = PartitionId(of as u32);
        let is_deposed = self.is_deposed(of, opening);
        let drawn = if self.random.chance(1, 2) { Decision::Commit } else { Decision::Abort };
        let says = match self.operator {
            Operator::Commits => Decision::Commit,
            Operator::Aborts => Decision::Abort,
            Operator::SaysAnything => drawn,
        };
        if let Effect::Begin { transaction, .. } = &effect {
            let is_first = self.begun.insert((*transaction, id, opening), ()).is_none();
            assert!(is_first, "{transaction} is opened again in {id}");
        }
        if let Effect::AskOperator { transaction } = &effect {
            assert!(!self.is_kept(*transaction), "{transaction} waits for an operator, and no disk was lost");
        }
        let (primary, model) = self.at(of, opening).expect("it works");
        match effect {
            Effect::Send(message) => self.send(message),
            Effect::Begin { transaction, locking } => model.begin(transaction, locking),
            Effect::Run { transaction, sequence, action } => model.run(transaction, sequence, action, now),
            Effect::Reserve { transaction, .. } => {
                let has_room = model.reserve(transaction);
                primary.reserved(transaction, has_room, now);
            }
            Effect::Prepare { transaction, rows, level } => model.prepare(transaction, rows, level),
            Effect::AwaitReads { transaction, level } => model.await_reads(transaction, level),
            Effect::AwaitAnswer { transaction, level } => model.await_answer(transaction, level),
            Effect::Commit { transaction, keeps, rows, level } => {
                model.commit(transaction, keeps, rows, level);
                if !is_deposed {
                    self.check_commit(transaction, of);
                }
            }
            Effect::Abort { transaction, rows, level } => {
                model.abort(transaction, rows, level);
                if !is_deposed {
                    self.check_abort(transaction, of);
                }
            }
            Effect::Release { transaction } => model.abort(transaction, Vec::new(), Level::Memory),
            Effect::Write { transaction, rows, level, step } => model.write(transaction, rows, level, step),
            Effect::AskOperator { transaction } => {
                assert!(primary.operator_decides(transaction, says), "{transaction} waits for its operator");
                self.operator_asked += 1;
            }
        }
    }

    /// Whether its operator does not only abort.
    pub fn operator_may_commit(&self) -> bool {
        !matches!(self.operator, Operator::Aborts)
    }

    /// Whether no failure of this simulation takes what the transaction has made durable.
    fn is_kept(&self, id: TransactionId) -> bool {
        self.faults == Faults::LostPower && self.cluster.attempts[&id].is_on_disks()
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
        let writes = attempt.writes_in(of) && !attempt.ends_without_effects();
        if self.faults == Faults::WithinGuarantees && writes {
            let is_decided = self.partitions[attempt.deciding].model.has_durable_commit(id);
            assert!(!is_decided, "{id} aborts in partition {of}, and is decided durably");
        }
    }
}

impl Partition {
    fn new(of: u32) -> Partition {
        let model = Model::new(PartitionId(of));
        Partition { model, primary: None, opening: Opening(0), deposed: Vec::new() }
    }
}

fn tell(primary: &mut Participant<Bank>, told: Told, now: Duration) {
    match told {
        Told::Ran(id, sequence, answer) => primary.ran(id, sequence, answer, now),
        Told::Durable(id, step) => primary.durable(id, step, now),
    }
}
