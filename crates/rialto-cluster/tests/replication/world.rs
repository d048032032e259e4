//! A simulated partition: replicas on nodes with clocks, disks and a network that all fail, and a control store.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rialto::io::Random;
use rialto_cluster::control::Revision;
use rialto_cluster::protocol::replication::{
    At, Configuration, Effect, Envelope, Event, Member, Message, ReadOutcome, Replica, ReplicationOptions,
    Report, RoleKind, Saved, StoreIdentity, SwapOutcome, Ticket, Unprotected,
};
use rialto_cluster::protocol::{Epoch, Life, Moment, NodeId, PartitionId};

use crate::log::ModelLog;
use crate::oracle::{Oracle, Seen};
use crate::store::ModelStore;

pub const PARTITION: PartitionId = PartitionId(3);

/// The time of a promise, in the simulation's milliseconds.
pub const PROMISE: u64 = 1000;

/// The time between heartbeats, as a rule.
pub const HEARTBEAT: u64 = PROMISE / 8;

/// A transaction that ran at a primary and is not answered yet.
#[derive(Debug, Clone, Copy)]
struct Running {
    place: usize,
    level: u8,
    /// For a read: how much was answered when it began.
    read_after: Option<usize>,
}

/// Whether a node's database takes transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    Follows,
    BeginsToLead,
    Leads,
    Drains,
}

pub struct Node {
    pub id: NodeId,
    pub life: Life,
    /// None while the process is dead.
    pub replica: Option<Replica>,
    /// How many processes it had: what was begun for an earlier one is void.
    process: u64,
    saved: Saved,
    pub log: ModelLog,
    kernel: Kernel,
    bound: usize,
    /// The log before this is not there any more to be shipped.
    trimmed: usize,
    running: Vec<Running>,
    pub log_stopped: bool,
    paused_until: u64,
    /// How fast its clock runs, in thousandths, and where it began.
    rate: u64,
    offset: u64,
    /// How probable it is at a tick that the disk has got what is there, of 100.
    disk: u64,
    /// The process dies after so many effects.
    dies_after: Option<u64>,
    /// The process dies when it has sent its next swap, which is then done late.
    pub dies_at_swap: bool,
    pub cut_off_store: bool,
}

impl Node {
    pub fn member(&self) -> Member {
        Member { node: self.id, life: self.life }
    }

    fn now(&self, time: u64) -> Moment {
        Moment(Duration::from_micros(self.offset + time * self.rate))
    }

    fn is_paused(&self, time: u64) -> bool {
        time < self.paused_until
    }
}

/// What comes to a node, or to the store.
#[derive(Debug)]
enum Arrival {
    Tick { process: u64 },
    Message { envelope: Envelope, blocks: Vec<u64> },
    Outcome { process: u64, event: Event },
    Synced { process: u64 },
    Restart,
    Read { process: u64, servers: u64, ticket: Ticket },
    Swap { process: u64, servers: u64, ticket: Ticket, swap: Swap, answer: bool },
}

#[derive(Debug)]
struct Swap {
    store: StoreIdentity,
    expected: Revision,
    configuration: Configuration,
}

struct Timed {
    time: u64,
    order: u64,
    node: usize,
    /// In a box, since the queue moves it often.
    arrival: Box<Arrival>,
}

impl PartialEq for Timed {
    fn eq(&self, other: &Timed) -> bool {
        self.order == other.order
    }
}

impl Eq for Timed {}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Timed) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timed {
    fn cmp(&self, other: &Timed) -> std::cmp::Ordering {
        (self.time, self.order).cmp(&(other.time, other.order))
    }
}

/// How bad the network and the room for logs are. Probabilities are of 1000.
#[derive(Debug, Clone, Copy, Default)]
pub struct Weather {
    pub drop: u64,
    pub duplicate: u64,
    pub long_delay: u64,
    pub unknown_swap: u64,
    /// How probable it is at a tick that a log is trimmed, up to a random place.
    pub trim: u64,
}

pub struct World {
    pub random: Random,
    pub time: u64,
    order: u64,
    queue: BinaryHeap<Reverse<Timed>>,
    pub nodes: Vec<Node>,
    pub store: ModelStore,
    pub oracle: Oracle,
    pub weather: Weather,
    /// `down[from][to]`.
    pub down: Vec<Vec<bool>>,
    pub options: ReplicationOptions,
    effects: Vec<Effect>,
    pub steps: u64,
    /// How often each thing came about.
    pub answers: u64,
    pub promotions: u64,
    pub was_restored: bool,
    pub forced: u64,
    begins_forced: bool,
    /// The configuration of the last promotion by force.
    forced_configuration: Option<Configuration>,
    pub trace: bool,
}

impl World {
    /// A partition of 2 to 5 replicas, some of them in sync.
    pub fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let replicas = 2 + random.below(4) as usize;
        let in_sync = 1 + random.below(replicas as u64) as usize;
        let heartbeat = if random.chance(1, 2) { PROMISE / 3 } else { HEARTBEAT };
        World::of(random, replicas, in_sync, heartbeat)
    }

    /// A partition of so many replicas, the first ones in sync, and the very first one primary.
    pub fn of(mut random: Random, replicas: usize, in_sync: usize, heartbeat: u64) -> World {
        let members: Vec<Member> = (0..replicas)
            .map(|node| Member { node: NodeId(node as u32), life: Life(random.next()) })
            .collect();
        let first = Configuration {
            epoch: Epoch(1),
            primary: NodeId(0),
            in_sync: members[..in_sync].to_vec(),
            learners: members[in_sync..].to_vec(),
        };
        let ms = Duration::from_millis;
        let options = ReplicationOptions {
            promise: ms(PROMISE),
            drift_margin: ms(PROMISE / 10),
            heartbeat: ms(heartbeat),
            silent_after: ms(heartbeat * (2 + random.below(3))),
            retry: ms(PROMISE / 8),
            min_in_sync: if random.chance(1, 4) { 3 } else { 2 },
            unprotected: match random.chance(1, 3) {
                true => Unprotected::Refused,
                false => Unprotected::WhenOnDisk,
            },
        };
        let slow = random.chance(1, 2);
        let nodes = members
            .iter()
            .map(|member| Node {
                id: member.node,
                life: member.life,
                replica: None,
                process: 0,
                saved: Saved::default(),
                log: ModelLog::default(),
                kernel: Kernel::Follows,
                bound: 0,
                trimmed: 0,
                running: Vec::new(),
                log_stopped: false,
                paused_until: 0,
                rate: 955 + random.below(90),
                offset: random.below(1 << 40),
                disk: if slow { 1 + random.below(10) } else { 10 + random.below(90) },
                dies_after: None,
                dies_at_swap: false,
                cut_off_store: false,
            })
            .collect();
        let mut world = World {
            random,
            time: 0,
            order: 0,
            queue: BinaryHeap::new(),
            nodes,
            store: ModelStore::new(first.clone()),
            oracle: Oracle::new(first),
            weather: Weather::default(),
            down: vec![vec![false; replicas]; replicas],
            options,
            effects: Vec::new(),
            steps: 0,
            answers: 0,
            promotions: 0,
            was_restored: false,
            forced: 0,
            begins_forced: false,
            forced_configuration: None,
            trace: std::env::var("RIALTO_TRACE").is_ok(),
        };
        (0..replicas).for_each(|node| world.begin_process(node));
        world
    }

    fn put(&mut self, delay: u64, node: usize, arrival: Arrival) {
        self.order += 1;
        let (time, order) = (self.time + delay, self.order);
        self.queue.push(Reverse(Timed { time, order, node, arrival: Box::new(arrival) }));
    }

    fn begin_process(&mut self, node: usize) {
        let (time, options) = (self.time, self.options);
        let this = &mut self.nodes[node];
        this.process += 1;
        (this.kernel, this.bound, this.log_stopped, this.dies_after) = (Kernel::Follows, 0, false, None);
        this.dies_at_swap = false;
        let replica = Replica::open(PARTITION, this.member(), this.saved, options, this.now(time));
        this.replica = Some(replica);
        let process = this.process;
        let delay = self.random.below(20);
        self.put(delay, node, Arrival::Tick { process });
    }

    /// The process dies: what is in memory stays.
    pub fn kill_process(&mut self, node: usize) {
        if self.nodes[node].replica.take().is_none() {
            return;
        }
        self.tell(node, "process dies");
        self.nodes[node].running.clear();
        self.nodes[node].process += 1;
        let most = if self.random.chance(1, 2) { PROMISE / 10 } else { 2 * PROMISE };
        let delay = self.random.below(most);
        self.put(delay, node, Arrival::Restart);
    }

    /// The machine loses its power: what is not on the disk is lost.
    pub fn lose_power(&mut self, node: usize) {
        self.kill_process(node);
        self.tell(node, "loses its memory");
        let life = Life(self.random.next());
        let this = &mut self.nodes[node];
        let on_disk = this.log.on_disk;
        this.log.cut(on_disk);
        this.trimmed = this.trimmed.min(on_disk);
        (this.life, this.paused_until) = (life, 0);
        self.check();
    }

    pub fn die_amid_a_step(&mut self, node: usize) {
        let effects = self.random.below(4);
        self.nodes[node].dies_after = Some(effects);
    }

    pub fn pause(&mut self, node: usize, time: u64) {
        self.tell(node, "paused");
        self.nodes[node].paused_until = self.time + time;
    }

    /// An operator has a replica lead by force, which waits until all others are fenced.
    pub fn force(&mut self, node: usize) {
        self.forced += 1;
        self.tell_replica(node, Event::Force { without: Vec::new() });
    }

    /// Gives an event to a replica from outside.
    pub fn tell_replica(&mut self, node: usize, event: Event) {
        self.step(node, event, &[]);
    }

    fn tell(&self, node: usize, what: &str) {
        if self.trace {
            println!("{:6} node {node} {what}", self.time);
        }
    }

    /// Lets time pass.
    pub fn run_until(&mut self, time: u64) {
        while self.queue.peek().is_some_and(|Reverse(timed)| timed.time <= time) {
            let Some(Reverse(timed)) = self.queue.pop() else { return };
            self.time = timed.time;
            self.arrive(timed.node, *timed.arrival);
        }
        self.time = time;
    }

    fn arrive(&mut self, node: usize, arrival: Arrival) {
        let is_of_process = matches!(
            arrival,
            Arrival::Tick { .. } | Arrival::Message { .. } | Arrival::Outcome { .. } | Arrival::Synced { .. }
        );
        let paused_until = self.nodes[node].paused_until;
        if is_of_process && self.nodes[node].is_paused(self.time) {
            return self.put(paused_until - self.time, node, arrival);
        }
        match arrival {
            Arrival::Tick { process } if process == self.nodes[node].process => {
                self.clients(node);
                let flushes = self.nodes[node].disk;
                if self.random.chance(flushes, 100) {
                    self.sync(node);
                }
                if self.random.chance(self.weather.trim, 1000) {
                    let on_disk = self.nodes[node].log.on_disk as u64;
                    let trimmed = self.random.below(on_disk + 1) as usize;
                    self.nodes[node].trimmed = self.nodes[node].trimmed.max(trimmed);
                }
                self.step(node, Event::Tick, &[]);
                let delay = 30 + self.random.below(40);
                self.put(delay, node, Arrival::Tick { process });
            }
            Arrival::Message { envelope, blocks } => {
                self.step(node, Event::Received(envelope), &blocks);
            }
            Arrival::Outcome { process, event } if process == self.nodes[node].process => {
                match event {
                    Event::Led | Event::LeadFailed if self.nodes[node].kernel != Kernel::BeginsToLead => {
                        return;
                    }
                    Event::Led => {
                        self.nodes[node].kernel = Kernel::Leads;
                        let unique = self.random.next();
                        self.nodes[node].log.write(unique);
                    }
                    Event::LogMoved if self.nodes[node].replica.is_none() => return,
                    _ => {}
                }
                self.step(node, event, &[]);
            }
            Arrival::Synced { process } if process == self.nodes[node].process => {
                self.sync(node);
                self.step(node, Event::LogMoved, &[]);
            }
            Arrival::Restart if self.nodes[node].replica.is_none() => self.begin_process(node),
            Arrival::Read { process, servers, ticket } => {
                let is_there = servers == self.store.servers && !self.store.is_away;
                let outcome = match is_there {
                    true => ReadOutcome::Is(self.store.now().clone()),
                    false => ReadOutcome::Unavailable,
                };
                let delay = 1 + self.random.below(10);
                let event = Event::ReadEnded(ticket, outcome);
                self.put(delay, node, Arrival::Outcome { process, event });
            }
            Arrival::Swap { process, servers, ticket, swap, answer } => {
                let is_there = servers == self.store.servers && !self.store.is_away;
                let outcome = if !is_there {
                    SwapOutcome::Unknown
                } else if let Some(revision) = self.swap(node, swap) {
                    SwapOutcome::Done(revision)
                } else {
                    SwapOutcome::Lost
                };
                if answer {
                    let delay = 1 + self.random.below(10);
                    let event = Event::SwapEnded(ticket, outcome);
                    self.put(delay, node, Arrival::Outcome { process, event });
                }
            }
            _ => {}
        }
    }

    fn swap(&mut self, node: usize, swap: Swap) -> Option<Revision> {
        let Swap { store, expected, configuration } = swap;
        let revision = self.store.swap(store, expected, configuration)?;
        let next = self.store.now().configuration.clone();
        if self.trace {
            println!("{:6} node {node} swaps in {next:?}", self.time);
        }
        let is_forced = self.forced_configuration.as_ref() == Some(&next);
        if is_forced || next.epoch > self.oracle.in_force.epoch {
            let seen = seen(&self.nodes, self.time);
            self.oracle.configured(&next, &seen, is_forced);
        }
        self.check();
        Some(revision)
    }

    fn sync(&mut self, node: usize) {
        let log = &mut self.nodes[node].log;
        log.on_disk = log.len();
    }

    /// Transactions at a node whose database takes them: they run, and those that may be answered are.
    fn clients(&mut self, node: usize) {
        let answered = self.oracle.answered.len();
        let (level, kind, unique) =
            (1 + self.random.below(3) as u8, self.random.below(4), self.random.next());
        let this = &mut self.nodes[node];
        let Some(replica) = &this.replica else { return };
        if this.kernel == Kernel::Leads && !this.log_stopped {
            let writes = kind != 0 && (level != 2 || replica.admits_level_2());
            if writes {
                this.log.write(unique);
            }
            let place = this.log.len();
            let (read_after, level) = if writes { (None, level) } else { (Some(answered), 2) };
            this.running.push(Running { place, level, read_after });
        }
        self.answer(node);
    }

    fn answer(&mut self, node: usize) {
        let this = &mut self.nodes[node];
        let Some(replica) = &this.replica else { return };
        if this.running.is_empty() {
            return;
        }
        let Some(answers) = replica.answers(this.now(self.time), this.log.state()) else { return };
        let epoch = replica.known().map_or(Epoch(0), |known| known.configuration.epoch);
        let (log, id) = (&this.log, this.id);
        this.running.retain(|running| {
            let up_to = match running.level {
                1 => log.len(),
                2 => answers.level_2.position.0 as usize,
                _ => answers.level_3.position.0 as usize,
            };
            if running.place > up_to {
                return true;
            }
            self.answers += 1;
            match running.read_after {
                Some(before) => self.oracle.read(id, epoch, running.place, before),
                None => self.oracle.answer(id, epoch, log, running.place, running.level),
            }
            false
        });
    }

    fn step(&mut self, node: usize, event: Event, blocks: &[u64]) {
        let time = self.time;
        let this = &mut self.nodes[node];
        let at = At { now: this.now(time), log: this.log.state() };
        let Some(replica) = &mut this.replica else { return };
        if self.trace && !matches!(event, Event::Tick) {
            println!("{time:6} node {node} <- {event:?}");
        }
        self.steps += 1;
        let mut effects = std::mem::take(&mut self.effects);
        replica.step(at, event, &mut effects);
        let dies_after = this.dies_after;
        let mut moved = false;
        for (done, effect) in effects.drain(..).enumerate() {
            if dies_after.is_some_and(|after| after == done as u64) {
                self.kill_process(node);
                break;
            }
            if self.trace {
                println!("{time:6} node {node}   {effect:?}");
            }
            moved |= self.carry_out(node, effect, blocks);
            if self.nodes[node].replica.is_none() {
                break;
            }
        }
        self.effects = effects;
        self.effects.clear();
        self.answer(node);
        self.check();
        if moved {
            self.step(node, Event::LogMoved, &[]);
        }
    }

    /// True if the log has moved.
    fn carry_out(&mut self, node: usize, effect: Effect, blocks: &[u64]) -> bool {
        let process = self.nodes[node].process;
        match effect {
            Effect::Save(saved) => {
                assert!(saved.epoch >= self.nodes[node].saved.epoch, "a saved epoch goes back");
                self.nodes[node].saved = saved;
            }
            Effect::Send(envelope) => self.send(node, envelope, Vec::new()),
            Effect::Ship { to, stream, begin, end } => {
                let this = &self.nodes[node];
                let trimmed = (begin.position.0 as usize) < this.trimmed;
                if trimmed || !this.log.goes_through(begin) {
                    let event = Event::CannotShip { to: to.node, stream };
                    self.put(1, node, Arrival::Outcome { process, event });
                    return false;
                }
                let range = begin.position.0 as usize..end.position.0 as usize;
                let blocks = this.log.blocks[range].to_vec();
                let epoch = this.replica.as_ref().map_or(Epoch(0), Replica::epoch);
                let envelope = Envelope {
                    partition: PARTITION,
                    epoch,
                    from: this.member(),
                    to: to.node,
                    to_life: Some(to.life),
                    message: Message::Blocks { stream, begin, end },
                };
                self.send(node, envelope, blocks);
            }
            Effect::Append { end } => {
                let log = &mut self.nodes[node].log;
                log.blocks.extend_from_slice(blocks);
                assert_eq!(log.point(log.len()), end, "blocks that are not those that were named");
                self.redo(node);
                return true;
            }
            Effect::RedoUpTo(place) => {
                let this = &mut self.nodes[node];
                this.bound = this.bound.max(place.0 as usize);
                self.redo(node);
            }
            Effect::SyncDisk => {
                let delay = 1 + self.random.below(if self.nodes[node].disk < 10 { 300 } else { 30 });
                self.put(delay, node, Arrival::Synced { process });
            }
            Effect::Lead { epoch } => {
                self.promotions += 1;
                self.oracle.leads(self.nodes[node].id, epoch, &self.nodes[node].log);
                self.nodes[node].kernel = Kernel::BeginsToLead;
                let fails = self.random.chance(1, 40);
                let event = if fails { Event::LeadFailed } else { Event::Led };
                let delay = 1 + self.random.below(60);
                self.put(delay, node, Arrival::Outcome { process, event });
            }
            Effect::Follow => {
                let this = &mut self.nodes[node];
                this.kernel = Kernel::Follows;
                this.running.clear();
            }
            Effect::Drain => {
                self.nodes[node].kernel = Kernel::Drains;
                let delay = 1 + self.random.below(30);
                self.put(delay, node, Arrival::Outcome { process, event: Event::Drained });
            }
            Effect::GoOn => self.nodes[node].kernel = Kernel::Leads,
            Effect::StartOver { primary } => {
                let other = &self.nodes[primary.0 as usize];
                let common = self.nodes[node].log.common(&other.log.blocks);
                if common >= other.trimmed && self.random.chance(1, 2) {
                    self.nodes[node].log.cut(common);
                } else {
                    let least = other.trimmed.min(other.log.on_disk);
                    let copied = least + self.random.below((other.log.on_disk - least) as u64 + 1) as usize;
                    let blocks = other.log.blocks[..copied].to_vec();
                    self.nodes[node].log = ModelLog { blocks, on_disk: copied, redone: copied };
                }
                self.nodes[node].trimmed = 0;
                self.nodes[node].bound = 0;
                return true;
            }
            Effect::Read(ticket) => {
                let servers = self.store.servers;
                if self.nodes[node].cut_off_store {
                    let event = Event::ReadEnded(ticket, ReadOutcome::Unavailable);
                    self.put(100, node, Arrival::Outcome { process, event });
                } else {
                    let delay = 1 + self.random.below(20);
                    self.put(delay, node, Arrival::Read { process, servers, ticket });
                }
            }
            Effect::Swap { ticket, store, expected, configuration } => {
                let servers = self.store.servers;
                if std::mem::take(&mut self.begins_forced) {
                    self.forced_configuration = Some(configuration.clone());
                }
                let swap = Swap { store, expected, configuration };
                let dies = self.nodes[node].dies_at_swap;
                let is_unknown = dies
                    || self.nodes[node].cut_off_store
                    || self.random.chance(self.weather.unknown_swap, 1000);
                // One without an answer may be done all the same, and late.
                let reaches = !self.nodes[node].cut_off_store;
                if is_unknown {
                    let event = Event::SwapEnded(ticket, SwapOutcome::Unknown);
                    self.put(100, node, Arrival::Outcome { process, event });
                }
                if reaches {
                    let late = if is_unknown { 3 * PROMISE } else { 20 };
                    let delay = 1 + self.random.below(late);
                    let answer = !is_unknown;
                    self.put(delay, node, Arrival::Swap { process, servers, ticket, swap, answer });
                }
                if dies {
                    self.kill_process(node);
                }
            }
            Effect::AnswersGrew | Effect::Report(Report::StoreRefused { .. }) => {}
            Effect::Report(Report::CutOffRefused) => {
                panic!("C5: node {node} is in sync, and is to start over")
            }
            Effect::Report(Report::ForcedLoss { .. }) => self.begins_forced = true,
        }
        false
    }

    fn redo(&mut self, node: usize) {
        let this = &mut self.nodes[node];
        if this.kernel == Kernel::Follows {
            this.log.redone = this.log.redone.max(this.bound.min(this.log.len()));
        }
    }

    fn send(&mut self, from: usize, envelope: Envelope, blocks: Vec<u64>) {
        let to = envelope.to.0 as usize;
        let (weather, is_down) = (self.weather, self.down[from][to]);
        if is_down || self.random.chance(weather.drop, 1000) {
            return;
        }
        let copies = if self.random.chance(weather.duplicate, 1000) { 2 } else { 1 };
        for _ in 0..copies {
            let most = match self.random.chance(weather.long_delay, 1000) {
                true if self.random.chance(1, 2) => PROMISE / 2,
                true => 3 * PROMISE,
                false => 20,
            };
            let delay = 1 + self.random.below(most);
            let (envelope, blocks) = (envelope.clone(), blocks.clone());
            self.put(delay, to, Arrival::Message { envelope, blocks });
        }
    }

    pub fn check(&self) {
        self.oracle.check(&seen(&self.nodes, self.time));
    }

    /// The node whose replica serves at this moment.
    pub fn serving(&self) -> Option<usize> {
        self.nodes.iter().position(|node| {
            let serves = |replica: &Replica| replica.serves(node.now(self.time));
            !node.is_paused(self.time) && node.replica.as_ref().is_some_and(serves)
        })
    }

    /// Whether all replicas that have no other life than recorded have seen the configuration in force.
    pub fn have_all_seen(&self) -> bool {
        self.nodes.iter().all(|node| node.saved.epoch >= self.oracle.in_force.epoch)
    }

    /// Takes back the store to an older state; with the same identity if the operator has forgotten to change it.
    pub fn restore_store(&mut self) {
        let keep = 1 + self.random.below(self.store.history.len() as u64) as usize;
        let identity = match self.have_all_seen() && self.random.chance(3, 4) {
            true => self.store.identity,
            false => StoreIdentity(self.random.next()),
        };
        if self.trace {
            println!("{:6} the store goes back to {keep} of {}", self.time, self.store.history.len());
        }
        self.was_restored = true;
        self.store.restore(keep, identity);
    }

    pub fn role(&self, node: usize) -> Option<RoleKind> {
        self.nodes[node].replica.as_ref().map(Replica::role)
    }

    /// Ends all faults: links, store, pauses, slow disks, dead processes.
    pub fn heal(&mut self) {
        self.weather = Weather::default();
        self.store.is_away = false;
        self.down.iter_mut().flatten().for_each(|down| *down = false);
        for node in 0..self.nodes.len() {
            self.nodes[node].cut_off_store = false;
            self.nodes[node].paused_until = self.nodes[node].paused_until.min(self.time);
            self.nodes[node].dies_after = None;
            self.nodes[node].dies_at_swap = false;
            self.nodes[node].disk = self.nodes[node].disk.max(20);
            if self.nodes[node].replica.is_none() {
                self.begin_process(node);
            }
        }
    }
}

/// What the oracle sees of the nodes.
fn seen(nodes: &[Node], time: u64) -> smallvec::SmallVec<[Seen<'_>; 5]> {
    let see = |node: &'_ Node| {
        let serves = |replica: &Replica| replica.serves(node.now(time));
        (node.member(), !node.is_paused(time) && node.replica.as_ref().is_some_and(serves))
    };
    nodes
        .iter()
        .map(|node| {
            let (member, serves) = see(node);
            Seen { member, log: &node.log, serves }
        })
        .collect()
}
