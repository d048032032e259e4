//! What a driver does over the kernel and the network, with the models of them.

use rialto_cluster::control::Revision;
use rialto_cluster::protocol::replication::{
    At, Effect, Envelope, Event, Message, ReadOutcome, Replica, Report, SwapOutcome,
};
use rialto_cluster::protocol::{Epoch, Life};

use crate::log::ModelLog;
use crate::node::{Appends, Database, Kernel, Node, Openings, Redoes, Running, Swaps};
use crate::world::{Arrival, HEARTBEAT, PARTITION, PROMISE, Swap, Tells, World, seen};

impl World {
    pub fn swap(&mut self, node: usize, swap: Swap) -> Option<Revision> {
        let Swap { store, expected, configuration } = swap;
        let revision = self.store.swap(store, expected, configuration)?;
        let next = self.store.now().configuration.clone();
        if self.trace {
            println!("{:6} node {node} swaps in {next:?}", self.time);
        }
        let is_forced = self.forced_configurations.contains(&next);
        if is_forced || next.epoch > self.oracle.in_force.epoch {
            let seen = seen(&self.nodes, self.time);
            self.oracle.configured(&next, &seen, is_forced);
        }
        self.check();
        for other in 0..self.nodes.len() {
            let is_told = match self.tells {
                Tells::None => false,
                Tells::Some => self.random.chance(1, 2),
                Tells::All => true,
            };
            if is_told && !self.nodes[other].cut_off_store {
                let (process, delay) = (self.nodes[other].process, 1 + self.random.below(20));
                self.put(delay, other, Arrival::Outcome { process, event: Event::StoreChanged });
            }
        }
        Some(revision)
    }

    pub fn sync(&mut self, node: usize) {
        let log = &mut self.nodes[node].log;
        log.on_disk = log.len();
    }

    /// Transactions at a node whose database takes them: they run, and those that may be answered are.
    pub fn clients(&mut self, node: usize) {
        let answered = self.oracle.answered_to();
        let (level, kind, unique) =
            (1 + self.random.below(3) as u8, self.random.below(4), self.random.next());
        let this = &mut self.nodes[node];
        let Some(replica) = &this.replica else { return };
        if this.kernel == Kernel::Leads && !this.log_stopped {
            let is_admitted = !self.admits_strictly || replica.serves(this.now(self.time));
            let writes = kind != 0 && (level != 2 || replica.admits_level_2()) && is_admitted;
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
        let Some(log) = this.log_state() else { return };
        let Some(answers) = replica.answers(this.now(self.time), log) else { return };
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
                Some(before) => self.oracle.read(id, epoch, log, running.place, before),
                None => self.oracle.answer(id, epoch, log, running.place, running.level),
            }
            false
        });
        self.oracle.note(self.time);
    }

    pub fn step(&mut self, node: usize, event: Event, blocks: &[u64]) {
        let time = self.time;
        let this = &mut self.nodes[node];
        let at = At { now: this.now(time), log: this.log_state() };
        let Some(replica) = &mut this.replica else { return };
        if self.trace && !matches!(event, Event::Tick) {
            println!("{time:6} node {node} <- {event:?}");
        }
        self.steps += 1;
        assert!(self.steps < 300_000, "replicas that keep each other busy for ever");
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
                match self.nodes[node].appends {
                    Appends::Work => {}
                    Appends::Fail => {
                        self.nodes[node].needs_opening = true;
                        self.put(1, node, Arrival::Outcome { process, event: Event::AppendFailed });
                        return false;
                    }
                    Appends::Stick => return false,
                }
                let log = &mut self.nodes[node].log;
                log.blocks.extend_from_slice(blocks);
                assert_eq!(log.point(log.len()), end, "blocks that are not those that were named");
                self.redo(node);
                return true;
            }
            Effect::RedoUpTo(place) => {
                let this = &mut self.nodes[node];
                this.bound = place.0 as usize;
                self.redo(node);
            }
            Effect::EndKnown { asked_at, end } => {
                let this = &mut self.nodes[node];
                let asked = this.time_of(asked_at);
                this.ends.push((asked, end.position.0 as usize));
                self.redo(node);
            }
            Effect::SyncDisk => {
                let delay = 1 + self.random.below(if self.nodes[node].disk < 10 { 300 } else { 30 });
                self.put(delay, node, Arrival::Synced { process });
            }
            Effect::Lead { epoch, lost_before } => {
                self.promotions += 1;
                self.nodes[node].leads_begun += 1;
                assert_eq!(self.nodes[node].database, Database::Open, "node {node} leads without a database");
                self.oracle.leads(self.nodes[node].id, epoch, &self.nodes[node].log, lost_before);
                self.nodes[node].kernel = Kernel::BeginsToLead;
                let fails =
                    self.random.chance(self.weather.lead_fails, 1000) || self.nodes[node].fails_to_lead;
                let (leads_begun, openings) = (self.nodes[node].leads_begun, self.nodes[node].openings);
                let delay = match openings {
                    Openings::Usual => 1 + self.random.below(60),
                    Openings::Slow | Openings::Stuck => 2 * PROMISE + self.random.below(3 * PROMISE),
                };
                if openings == Openings::Slow {
                    for moved in (0..delay).step_by(HEARTBEAT as usize) {
                        let event = Event::OpeningMoved;
                        self.put(moved, node, Arrival::Opening { process, leads_begun, event });
                    }
                }
                let event = if fails { Event::LeadFailed } else { Event::Led };
                self.put(delay, node, Arrival::Opening { process, leads_begun, event });
            }
            Effect::Follow => {
                let this = &mut self.nodes[node];
                (this.kernel, this.database) = (Kernel::Follows, Database::Closed);
                this.running.clear();
                this.ends.clear();
                let delay = 1 + self.random.below(PROMISE / 10);
                self.put(delay, node, Arrival::Opened { process });
            }
            Effect::Drain => {
                self.nodes[node].kernel = Kernel::Drains;
                let delay = 1 + self.random.below(30);
                self.put(delay, node, Arrival::Outcome { process, event: Event::Drained });
            }
            Effect::GoOn => self.nodes[node].kernel = Kernel::Leads,
            Effect::StartOver { primary } => {
                let this = &mut self.nodes[node];
                assert!(this.kernel == Kernel::Follows, "node {node} starts over while it leads");
                (this.database, this.is_half) = (Database::Closed, true);
                this.ends.clear();
                this.log.cut(self.random.below(this.log.len() as u64 + 1) as usize);
                let delay = 1 + self.random.below(PROMISE);
                self.put(delay, node, Arrival::StartedOver { process, from: primary.0 as usize });
                self.check();
            }
            Effect::Read(ticket) => {
                self.nodes[node].reads += 1;
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
                    self.forced_configurations.push(configuration.clone());
                }
                let swap = Swap { store, expected, configuration };
                let swaps = self.nodes[node].swaps;
                let is_unknown = swaps != Swaps::Usual
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
                if swaps == Swaps::LateAndDies {
                    let delay = self.random.below(PROMISE / 4);
                    self.restart_process(node, delay);
                }
            }
            Effect::Report(Report::Removed { .. }) => self.nodes[node].says_removed = true,
            Effect::AnswersGrew
            | Effect::Report(
                Report::StoreRefused { .. } | Report::CannotLead { .. } | Report::ForceRefused,
            ) => {}
            Effect::Report(Report::CutOffRefused) => {
                panic!("C5: node {node} is in sync, and is to start over")
            }
            Effect::Report(Report::ForcedLoss { .. }) => self.begins_forced = true,
        }
        false
    }

    /// The directory is that of another node's replica now, or gone back to before where their logs part; or that has failed.
    pub fn started_over(&mut self, node: usize, from: usize) {
        let other = &self.nodes[from];
        let is_there = other.replica.is_some() && other.database == Database::Open && !other.is_half;
        if !is_there || self.down[from][node] || self.random.chance(1, 10) {
            return self.step(node, Event::StartOverFailed, &[]);
        }
        let common = self.nodes[node].log.common(&other.log.blocks);
        // An older checkpoint may have what differs.
        let goes_back = common >= other.trimmed && self.random.chance(1, 2) && !self.nodes[node].differs;
        if goes_back {
            self.nodes[node].log.cut(common);
        } else {
            let least = other.trimmed.min(other.log.on_disk);
            let copied = least + self.random.below((other.log.on_disk - least) as u64 + 1) as usize;
            let blocks = other.log.blocks[..copied].to_vec();
            self.nodes[node].log = ModelLog { blocks, on_disk: copied, redone: copied };
            self.nodes[node].life = Life(self.random.next());
            self.nodes[node].differs = self.nodes[from].differs;
        }
        let this = &mut self.nodes[node];
        (this.is_half, this.trimmed, this.bound) = (false, 0, 0);
        self.opened(node);
    }

    /// The database is open.
    pub fn opened(&mut self, node: usize) {
        let this = &mut self.nodes[node];
        this.database = Database::Open;
        (this.log_stopped, this.needs_opening) = (false, false);
        let life = this.life;
        self.step(node, Event::Opened { life }, &[]);
    }

    /// What may be redone is.
    pub fn redo(&mut self, node: usize) {
        let this = &mut self.nodes[node];
        if this.kernel == Kernel::Follows && this.redoes == Redoes::Usual {
            this.log.redone = this.log.redone.max(this.bound.min(this.log.len()));
        }
        let Node { id, log, ends, kernel, .. } = this;
        if *kernel != Kernel::Follows {
            return ends.clear();
        }
        let before = ends.len();
        ends.retain(|(asked, end)| {
            let is_redone = log.redone >= *end;
            if is_redone {
                self.oracle.is_as_old_as(*id, log, *asked);
            }
            !is_redone
        });
        self.ages += (before - ends.len()) as u64;
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
            let delay = self.latency + self.slow[from][to] + 1 + self.random.below(most);
            let (envelope, blocks) = (envelope.clone(), blocks.clone());
            self.put(delay, to, Arrival::Message { envelope, blocks });
        }
    }
}
