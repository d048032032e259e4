//! [`Replica`]: the state machine of one replica.

use rialto::fault_injection;

use super::changes::Command;
use super::common::Common;
use super::configuration::{Known, Member};
use super::event::{At, Contents, Effect, Event, LogState, Report, Saved};
use super::following::Following;
use super::forcing::Forcing;
use super::leading::{Answers, Leading};
use super::message::{Envelope, Fitness, Message};
use super::options::ReplicationOptions;
use super::status::ReplicaStatus;
use super::store::PendingRequests;
use crate::protocol::{Epoch, Moment, NodeId, PartitionId};

/// What a replica does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleKind {
    /// It takes the log of another one, or waits until it may lead.
    Following,
    /// It leads, and serves while the promises hold.
    Leading,
}

#[derive(Debug)]
pub(super) enum Role {
    Following(Following),
    Leading(Leading),
}

/// The state machine of one replica of one partition. Each step takes an event and appends effects; it blocks on nothing,
/// and the same events give the same effects.
///
/// 1. The saved epoch never goes back, and no message or configuration of a lower one has an effect.
/// 2. It leads only under a configuration that names it primary in its life and that this process has swapped in. So no
///    swap of an earlier process is open while it leads.
/// 3. While a swap of its own may still be done, it gives no promise and takes no block.
/// 4. At most one swap is open. It is concluded by a configuration of its epoch or a later one, and by nothing else.
/// 5. While its database is not whole, it promises nothing and leads nothing, also after its process has begun again.
#[derive(Debug)]
pub struct Replica {
    pub(super) common: Common,
    pub(super) role: Role,
}

impl Replica {
    /// A replica whose process begins, with what is in its file.
    pub fn open(
        partition: PartitionId,
        me: Member,
        saved: Saved,
        options: ReplicationOptions,
        now: Moment,
    ) -> Replica {
        let common = Common {
            partition,
            me,
            options,
            saved,
            fenced: Epoch(0),
            copied_in: Epoch(0),
            known: None,
            fitness: Fitness::Fit,
            lead_failures: 0,
            refused: None,
            store: PendingRequests::none(),
            out: Vec::new(),
        };
        let role = Role::Following(Following::new(&common, now));
        Replica { common, role }
    }

    /// What it does.
    pub fn role(&self) -> RoleKind {
        match self.role {
            Role::Following(_) => RoleKind::Following,
            Role::Leading(_) => RoleKind::Leading,
        }
    }

    /// The newest configuration that it knows.
    pub fn known(&self) -> Option<&Known> {
        self.common.known.as_deref()
    }

    /// Whether the newest configuration that was heard of is without this replica.
    pub fn is_removed(&self) -> bool {
        self.common.current().is_some_and(|known| !known.configuration.has(self.common.me.node))
    }

    /// The highest epoch that it has seen.
    pub fn epoch(&self) -> Epoch {
        self.common.saved.epoch
    }

    /// Whether it serves at this moment.
    pub fn serves(&self, now: Moment) -> bool {
        match &self.role {
            Role::Leading(leading) => leading.serves(&self.common, now),
            Role::Following(_) => false,
        }
    }

    /// What may be answered at this moment; nothing if it does not serve. At level 1 everything that ran may be answered
    /// while this is something. A driver runs a transaction, asks here, and answers it at once (C1). What may not be answered
    /// yet is asked for again after each step: more replicas may have it, its disk may have it, or a promise may have come.
    pub fn answers(&self, now: Moment, log: LogState) -> Option<Answers> {
        match &self.role {
            Role::Leading(leading) => leading.answers(&self.common, now, log),
            Role::Following(_) => None,
        }
    }

    /// Whether everything that ran may be answered at level 1 at this moment: [`Replica::answers`] is something.
    pub fn answers_level_1(&self, now: Moment) -> bool {
        match &self.role {
            Role::Leading(leading) => leading.answers_level_1(&self.common, now),
            Role::Following(_) => false,
        }
    }

    /// Whether answers at level 2 need this replica's disk, since too few replicas are in sync.
    pub fn needs_disk_for_level_2(&self) -> bool {
        let least = self.common.options.min_in_sync.max(2);
        self.common.known.as_ref().is_none_or(|known| known.configuration.in_sync.len() < least)
    }

    /// Whether a new transaction at level 2 may run.
    pub fn admits_level_2(&self) -> bool {
        match &self.role {
            Role::Leading(leading) => leading.admits_level_2(&self.common),
            Role::Following(_) => false,
        }
    }

    /// Whether commits at level 2 are refused, since too few replicas are in sync and the operator has chosen
    /// [`Unprotected::Refused`](super::Unprotected::Refused). Unlike [`Replica::admits_level_2`], it says nothing of a
    /// primary that drains: what began before ends as it would have.
    pub fn refuses_level_2(&self) -> bool {
        match &self.role {
            Role::Leading(leading) => leading.refuses_level_2(&self.common),
            Role::Following(_) => false,
        }
    }

    /// The replicas of a primary that are not in sync and are not heard: their nodes are away. Nothing if it does not serve.
    pub fn unheard(&self, now: Moment) -> Vec<NodeId> {
        match &self.role {
            Role::Leading(leading) if leading.serves(&self.common, now) => leading.unheard(&self.common, now),
            _ => Vec::new(),
        }
    }

    /// What an operator is shown of it.
    pub fn status(&self, now: Moment) -> ReplicaStatus {
        let configuration = self.common.known.as_ref().map(|known| &known.configuration);
        ReplicaStatus {
            role: self.role(),
            fitness: self.common.fitness,
            epoch: self.epoch(),
            primary: configuration.map(|configuration| configuration.primary),
            in_sync: configuration.map_or_else(Vec::new, |configuration| configuration.in_sync.clone()),
            learners: configuration.map_or_else(Vec::new, |configuration| configuration.learners.clone()),
            serves: self.serves(now),
            peers: match &self.role {
                Role::Leading(leading) => leading.peers(now),
                Role::Following(_) => Vec::new(),
            },
            open_swap: self.common.store.open_swap().map(|swap| swap.to.epoch),
            store_seen: self.common.store.seen_at(),
        }
    }

    /// Takes a step.
    pub fn step(&mut self, at: At, event: Event, effects: &mut Vec<Effect>) {
        std::mem::swap(&mut self.common.out, effects);
        self.take(at, event);
        self.advance(at);
        std::mem::swap(&mut self.common.out, effects);
    }

    fn take(&mut self, at: At, event: Event) {
        match event {
            Event::Tick | Event::LogMoved => {}
            Event::Received(envelope) => self.receive(at, envelope),
            Event::ReadEnded(ticket, outcome) => {
                if self.common.store.answered(ticket) {
                    self.read(at, outcome);
                }
            }
            Event::StoreChanged => self.common.store.changed(),
            Event::SwapEnded(ticket, outcome) => {
                if self.common.store.answered(ticket) {
                    self.swapped(at, outcome);
                }
            }
            Event::OpeningMoved => self.if_leading(|leading, _| leading.opening_moved(at.now)),
            Event::Led => {
                self.common.lead_failures = 0;
                self.if_leading(|leading, _| leading.led());
            }
            Event::Drained => self.if_leading(|leading, _| leading.drained()),
            Event::LeadFailed => self.lead_failed(at.now),
            Event::Opened { life } => {
                (self.common.me.life, self.common.fitness) = (life, Fitness::Fit);
                if self.common.saved.contents != Contents::Whole {
                    self.common.saved.contents = Contents::Whole;
                    self.common.saved.agrees = self.common.saved.agrees.max(self.common.copied_in);
                    self.common.save();
                }
                if let Role::Following(following) = &mut self.role {
                    following.opened(at.now);
                }
            }
            Event::StartOverFailed => {
                if let Role::Following(following) = &mut self.role {
                    following.start_over_failed(&self.common, at.now);
                }
            }
            Event::CannotShip { to, stream } => {
                self.if_leading(|leading, common| leading.cannot_ship(common, to, stream));
            }
            Event::LogStopped => {
                self.common.fitness = Fitness::Unfit;
                self.if_leading(|leading, _| leading.stopped(at.now));
            }
            Event::AskEnd => {
                if let Role::Following(following) = &mut self.role {
                    following.ask_end(&mut self.common, at);
                }
            }
            Event::RedoFailed => self.common.fitness = Fitness::Unfit,
            Event::AppendFailed => {
                if !fault_injection::is_on("append-failure-untold") {
                    self.common.fitness = Fitness::Unfit;
                }
            }
            Event::Differs { member } => self.if_leading(|leading, _| leading.differs(member)),
            Event::Switchover { to } => {
                self.if_leading(|leading, common| leading.switch_over(common, at.now, to));
            }
            Event::AddLearner { member } => {
                self.if_leading(|leading, _| leading.command(Command::Add(member), at.now))
            }
            Event::Remove { node, once } => {
                self.if_leading(|leading, _| leading.command(Command::Remove(node, once), at.now));
            }
            Event::Force { .. } if !self.common.is_whole() || !self.common.is_member() => {
                self.common.effect(Effect::Report(Report::ForceRefused));
            }
            Event::Force { without } => {
                self.follow(at.now);
                if let Role::Following(following) = &mut self.role {
                    following.forcing = Some(Forcing::new(without, at.now));
                }
                self.common.store.conclude();
                self.common.store.read_soon();
            }
        }
    }

    fn advance(&mut self, at: At) {
        let goes_on = match &mut self.role {
            Role::Following(following) => {
                following.advance(&mut self.common, at);
                true
            }
            Role::Leading(leading) => leading.advance(&mut self.common, at),
        };
        if !goes_on {
            self.follow(at.now);
        }
        // While a swap is open its outcome is asked for.
        if self.common.store.open_swap().is_some() || self.common.store.has_change() {
            self.common.want_read(at.now);
        }
    }

    fn if_leading(&mut self, act: impl FnOnce(&mut Leading, &mut Common)) {
        if let Role::Leading(leading) = &mut self.role {
            act(leading, &mut self.common);
        }
    }

    /// The database was to lead, and does not.
    fn lead_failed(&mut self, now: Moment) {
        let Role::Leading(_) = self.role else { return };
        if !fault_injection::is_on("leads-again-at-once") {
            self.common.lead_failures = self.common.lead_failures.saturating_add(1);
        }
        let epoch = self.common.saved.epoch;
        self.common.effect(Effect::Report(Report::CannotLead { epoch }));
        self.follow(now);
    }

    /// Stops leading, if it leads.
    pub(super) fn follow(&mut self, now: Moment) {
        if let Role::Leading(_) = self.role {
            self.common.effect(Effect::Follow);
            self.role = Role::Following(Following::new(&self.common, now));
        }
    }

    fn receive(&mut self, at: At, envelope: Envelope) {
        let Envelope { partition, epoch, from, to, to_life, message } = envelope;
        let is_for_me = partition == self.common.partition
            && to == self.common.me.node
            && to_life.is_none_or(|life| life == self.common.me.life);
        if !is_for_me {
            return;
        }
        let before = self.common.saved;
        if epoch < before.epoch {
            if !matches!(message, Message::Newer { .. }) {
                let known = self.common.current().map(|known| (*known).clone());
                self.common.send(from.node, None, Message::Newer { known });
            }
            return;
        }
        self.common.raise(epoch);
        match &message {
            Message::Heartbeat { known, .. } | Message::Newer { known: Some(known) } => {
                self.learn(at, known);
            }
            _ => {}
        }
        let is_of_primary = self.common.current().is_some_and(|known| {
            let primary = known.configuration.primary;
            primary == from.node && known.configuration.life_in_sync(primary) == Some(from.life)
        });
        match (&mut self.role, message) {
            (Role::Leading(leading), Message::Status { promise, stream, received, fitness }) => {
                let status = (promise, stream, received, fitness);
                leading.status(&mut self.common, at.now, from, status);
            }
            (Role::Leading(leading), Message::AskEnd { asked_at }) => {
                leading.tell_end(&mut self.common, at, from, asked_at);
            }
            (Role::Following(following), Message::EndIs { asked_at, began, end, redo }) if is_of_primary => {
                following.end_is(&mut self.common, at, asked_at, (began, end, redo));
            }
            (Role::Following(following), Message::Heartbeat { ask, redo, .. }) if is_of_primary => {
                following.heartbeat(&mut self.common, at, ask, redo);
            }
            (Role::Following(following), Message::Blocks { stream, begin, end }) if is_of_primary => {
                following.blocks(&mut self.common, at, stream, (begin, end));
            }
            (Role::Following(following), Message::StartOver { stream, end }) if is_of_primary => {
                following.start_over(&mut self.common, at, stream, end);
            }
            (Role::Following(following), Message::Handover { end, with }) if is_of_primary => {
                following.handed_over(end, with);
            }
            (_, Message::AskLife { revision }) => {
                self.common.send(from.node, Some(from.life), Message::LifeIs { revision });
            }
            (Role::Following(following), Message::LifeIs { revision }) => {
                following.declared(&self.common, from, revision);
            }
            // A fence ends the epochs below its own, so it has to be above all that the replica has seen or sent a swap for.
            (_, Message::Fence) => {
                if epoch > before.epoch.max(before.proposed) {
                    self.common.fenced = epoch;
                }
                let answer = match self.common.fenced == epoch {
                    true => Message::Fenced { received: at.log.map(|log| log.received) },
                    false => Message::FenceRefused { above: epoch.max(before.proposed) },
                };
                self.common.send(from.node, Some(from.life), answer);
            }
            (Role::Following(Following { forcing: Some(forcing), .. }), Message::FenceRefused { above }) => {
                forcing.refused(above);
            }
            (Role::Following(following), Message::Fenced { received }) => {
                if let Some(forcing) = &mut following.forcing {
                    forcing.fenced(from.node, epoch, received);
                }
            }
            _ => {}
        }
    }
}
