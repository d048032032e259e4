//! A simulated partition: replicas on nodes with clocks, disks and a network that all fail, and a control store.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rialto::io::Random;
use rialto_cluster::control::Revision;
use rialto_cluster::protocol::replication::{
    Configuration, Contents, Effect, Envelope, Event, LostBefore, Member, ReadOutcome, Replica,
    ReplicationOptions, RoleKind, Saved, StoreIdentity, SwapOutcome, Ticket, Unprotected,
};
use rialto_cluster::protocol::{Epoch, Life, NodeId, PartitionId};

use crate::log::ModelLog;
use crate::node::{Appends, Database, Kernel, Memory, Node, Openings, Redoes, Swaps};
use crate::oracle::{Oracle, Seen};
use crate::store::ModelStore;

pub const PARTITION: PartitionId = PartitionId(3);

/// The time of a promise, in the simulation's milliseconds.
pub const PROMISE: u64 = 1000;

/// The time between heartbeats, as a rule.
pub const HEARTBEAT: u64 = PROMISE / 8;

/// What comes to a node, or to the store.
#[derive(Debug)]
pub enum Arrival {
    Tick {
        process: u64,
    },
    Message {
        envelope: Envelope,
        blocks: Vec<u64>,
    },
    Outcome {
        process: u64,
        event: Event,
    },
    /// An opening of the database that is to lead has got further, or has ended.
    Opening {
        process: u64,
        leads_begun: u64,
        event: Event,
    },
    Synced {
        process: u64,
    },
    Opened {
        process: u64,
    },
    StartedOver {
        process: u64,
        from: usize,
    },
    Restart,
    Read {
        process: u64,
        servers: u64,
        ticket: Ticket,
    },
    Swap {
        process: u64,
        servers: u64,
        ticket: Ticket,
        swap: Swap,
        answer: bool,
    },
}

#[derive(Debug)]
pub struct Swap {
    pub store: StoreIdentity,
    pub expected: Revision,
    pub configuration: Configuration,
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
    /// How probable it is that a database which is to lead does not.
    pub lead_fails: u64,
}

/// Which replicas the store tells that their configuration has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tells {
    None,
    Some,
    All,
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
    /// What each message takes at least, the same way.
    pub slow: Vec<Vec<u64>>,
    pub options: ReplicationOptions,
    pub tells: Tells,
    /// What each message takes at least.
    pub latency: u64,
    /// Whether nothing runs at a primary that does not serve. Else what was admitted before may run there.
    pub admits_strictly: bool,
    pub effects: Vec<Effect>,
    pub steps: u64,
    /// How often each thing came about.
    pub answers: u64,
    pub promotions: u64,
    /// How often the age of a replica's tables was known.
    pub ages: u64,
    pub was_restored: bool,
    pub forced: u64,
    pub begins_forced: bool,
    /// The configurations of promotions by force.
    pub forced_configurations: Vec<Configuration>,
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
            lost_before: LostBefore::default(),
        };
        let ms = Duration::from_millis;
        let options = ReplicationOptions {
            promise: ms(PROMISE),
            drift_margin: ms(PROMISE / 10),
            heartbeat: ms(heartbeat),
            silent_after: ms(heartbeat * (2 + random.below(3))),
            lag_max: ms(PROMISE),
            window: 1 + random.below(30),
            retry: ms(PROMISE / 8),
            retry_max: ms(PROMISE),
            poll: ms(PROMISE),
            opening_patience: ms(PROMISE / 2),
            redo_waits_max: ms(PROMISE),
            min_in_sync: if random.chance(1, 4) { 3 } else { 2 },
            unprotected: match random.chance(1, 3) {
                true => Unprotected::Refused,
                false => Unprotected::WhenOnDisk,
            },
        };
        let (slow, admits_strictly) = (random.chance(1, 2), random.chance(1, 2));
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
                database: Database::Open,
                is_half: false,
                appends: Appends::Work,
                fails_to_lead: false,
                openings: Openings::Usual,
                redoes: Redoes::Usual,
                differs: false,
                needs_opening: false,
                says_removed: false,
                leads_begun: 0,
                reads: 0,
                bound: 0,
                trimmed: 0,
                running: Vec::new(),
                ends: Vec::new(),
                log_stopped: false,
                paused_until: 0,
                // The clocks drift apart by nearly the margin at most, and often by that.
                rate: match random.below(3) {
                    0 => 948,
                    1 => 1052,
                    _ => 948 + random.below(105),
                },
                offset: random.below(1 << 40),
                disk: if slow { 1 + random.below(10) } else { 10 + random.below(90) },
                dies_after: None,
                swaps: Swaps::Usual,
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
            slow: vec![vec![0; replicas]; replicas],
            options,
            tells: Tells::Some,
            latency: 0,
            admits_strictly,
            effects: Vec::new(),
            steps: 0,
            answers: 0,
            promotions: 0,
            ages: 0,
            was_restored: false,
            forced: 0,
            begins_forced: false,
            forced_configurations: Vec::new(),
            trace: std::env::var("RIALTO_TRACE").is_ok(),
        };
        (0..replicas).for_each(|node| world.begin_process(node));
        world
    }

    pub fn put(&mut self, delay: u64, node: usize, arrival: Arrival) {
        self.order += 1;
        let (time, order) = (self.time + delay, self.order);
        self.queue.push(Reverse(Timed { time, order, node, arrival: Box::new(arrival) }));
    }

    fn begin_process(&mut self, node: usize) {
        let (time, options) = (self.time, self.options);
        let this = &mut self.nodes[node];
        this.process += 1;
        (this.kernel, this.bound, this.log_stopped, this.dies_after) = (Kernel::Follows, 0, false, None);
        (this.swaps, this.needs_opening) = (Swaps::Usual, false);
        let replica = Replica::open(PARTITION, this.member(), this.saved, options, this.now(time));
        this.replica = Some(replica);
        let process = this.process;
        this.database = Database::Closed;
        // What may be half a copy is not opened.
        if this.saved.contents == Contents::Whole {
            let is_slow = process > 1 && self.random.chance(1, 2);
            let delay = if is_slow { self.random.below(PROMISE / 5) } else { 0 };
            self.put(delay, node, Arrival::Opened { process });
        }
        let delay = self.random.below(20);
        self.put(delay, node, Arrival::Tick { process });
    }

    /// The process dies: what is in memory stays. Another one begins in a while.
    pub fn kill_process(&mut self, node: usize) {
        let most = if self.random.chance(1, 2) { PROMISE / 10 } else { 2 * PROMISE };
        let delay = self.random.below(most);
        self.restart_process(node, delay);
    }

    /// The process dies, and another one begins after this time.
    pub fn restart_process(&mut self, node: usize, delay: u64) {
        if self.nodes[node].replica.take().is_none() {
            return;
        }
        self.tell(node, "process dies");
        self.nodes[node].running.clear();
        self.nodes[node].ends.clear();
        self.nodes[node].process += 1;
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

    /// The node of a replica that was removed deletes its directory, as the driver does: the replica's process has ended, and
    /// the store still has no replica there.
    pub fn give_up(&mut self, node: usize) {
        let this = &self.nodes[node];
        let is_removed = this.replica.as_ref().is_some_and(Replica::is_removed);
        if !is_removed || self.store.now().configuration.has(this.id) {
            return;
        }
        let pause = self.random.below(2 * PROMISE);
        self.restart_process(node, pause);
        self.tell(node, "deletes its directory");
        let life = Life(self.random.next());
        let this = &mut self.nodes[node];
        this.log = ModelLog::default();
        this.saved = Saved { contents: Contents::AmidACopy, ..Saved::default() };
        (this.life, this.trimmed, this.is_half, this.says_removed) = (life, 0, true, false);
        self.check();
    }

    /// The driver closes a database that follows, and opens it again.
    pub fn reopen(&mut self, node: usize, memory: Memory) {
        let life = Life(self.random.next());
        let delay = 1 + self.random.below(PROMISE / 5);
        let this = &mut self.nodes[node];
        let is_open = this.replica.is_some() && this.database == Database::Open;
        if !is_open || this.kernel != Kernel::Follows {
            return;
        }
        this.database = Database::Closed;
        this.ends.clear();
        if memory == Memory::Lost {
            let on_disk = this.log.on_disk;
            this.log.cut(on_disk);
            this.trimmed = this.trimmed.min(on_disk);
            this.life = life;
        }
        let process = this.process;
        self.tell(node, "closes its database");
        self.put(delay, node, Arrival::Opened { process });
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

    /// Whether a node's replica takes an operator's force: it has a whole database, and is one of the partition's as far as
    /// it can know.
    pub fn can_be_forced(&self, node: usize) -> bool {
        let Node { id, saved, .. } = &self.nodes[node];
        let stored = &self.store.now().configuration;
        let is_in_store = stored.has(*id) || saved.epoch > stored.epoch;
        saved.contents == Contents::Whole && self.oracle.in_force.has(*id) && is_in_store
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
            Arrival::Tick { .. }
                | Arrival::Message { .. }
                | Arrival::Outcome { .. }
                | Arrival::Opening { .. }
                | Arrival::Synced { .. }
                | Arrival::Opened { .. }
                | Arrival::StartedOver { .. }
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
                if self.random.chance(1, 4) {
                    self.step(node, Event::AskEnd, &[]);
                }
                let delay = 30 + self.random.below(40);
                self.put(delay, node, Arrival::Tick { process });
            }
            Arrival::Message { envelope, blocks } => {
                self.step(node, Event::Received(envelope), &blocks);
            }
            Arrival::Opening { process, leads_begun, event } if process == self.nodes[node].process => {
                let this = &mut self.nodes[node];
                // It may have been taken back.
                if this.kernel != Kernel::BeginsToLead || this.leads_begun != leads_begun {
                    return;
                }
                if event == Event::Led {
                    this.kernel = Kernel::Leads;
                    let unique = self.random.next();
                    this.log.write(unique);
                }
                self.step(node, event, &[]);
            }
            Arrival::Outcome { process, event } if process == self.nodes[node].process => {
                if event == Event::LogMoved && self.nodes[node].replica.is_none() {
                    return;
                }
                self.step(node, event, &[]);
            }
            Arrival::Synced { process } if process == self.nodes[node].process => {
                self.sync(node);
                self.step(node, Event::LogMoved, &[]);
            }
            Arrival::Opened { process } if process == self.nodes[node].process => self.opened(node),
            Arrival::StartedOver { process, from } if process == self.nodes[node].process => {
                self.started_over(node, from);
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
    pub fn restore_store(&mut self, keep: usize) {
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

    /// All links work again.
    pub fn end_link_faults(&mut self) {
        self.down.iter_mut().flatten().for_each(|down| *down = false);
        self.slow.iter_mut().flatten().for_each(|slow| *slow = 0);
    }

    /// Ends all faults: links, store, pauses, slow disks, dead processes.
    pub fn heal(&mut self) {
        self.weather = Weather::default();
        self.store.is_away = false;
        self.end_link_faults();
        for node in 0..self.nodes.len() {
            self.nodes[node].cut_off_store = false;
            self.nodes[node].paused_until = self.nodes[node].paused_until.min(self.time);
            self.nodes[node].dies_after = None;
            self.nodes[node].swaps = Swaps::Usual;
            self.nodes[node].appends = Appends::Work;
            self.nodes[node].fails_to_lead = false;
            self.nodes[node].openings = Openings::Usual;
            self.nodes[node].disk = self.nodes[node].disk.max(20);
            if self.nodes[node].replica.is_none() {
                self.begin_process(node);
            }
        }
    }
}

/// What the oracle sees of the nodes.
pub fn seen(nodes: &[Node], time: u64) -> smallvec::SmallVec<[Seen<'_>; 5]> {
    let see = |node: &'_ Node| {
        let serves = |replica: &Replica| replica.serves(node.now(time));
        (node.member(), !node.is_paused(time) && node.replica.as_ref().is_some_and(serves))
    };
    nodes
        .iter()
        .map(|node| {
            let (member, serves) = see(node);
            Seen { member, log: &node.log, serves, is_half: node.is_half }
        })
        .collect()
}
