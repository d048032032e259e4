//! The clients of the simulation, and the drivers of coordinators on their nodes. `requests` has what they ask for.

use std::collections::BTreeMap;
use std::time::Duration;

use super::model::{Answer, Bank};
use super::requests::Spec;
use super::world::{Event, Time, World};
use crate::protocol::transactions::{
    Access, Action, Address, Body, BranchRef, Coordinator, CoordinatorEffect, Level, Message, Opening,
    Outcome, Pace, Place, Plan, Request, Running, Sender, Start, TransactionId, Tries,
};
use crate::protocol::{NodeId, PartitionId};

/// A transaction that was tried for a request.
#[derive(Debug)]
pub struct Attempt {
    pub request: (usize, u64),
    pub deciding: usize,
    pub fails: bool,
    pub spec: Spec,
    pub began: Duration,
    /// What it has seen, if a client was told.
    pub told: Option<Answer>,
    /// A client was told that it has no effects.
    pub is_told_aborted: bool,
}

impl Attempt {
    pub fn writes_in(&self, of: usize) -> bool {
        self.spec.writes_in(of)
    }

    /// Whether it is durable on disks when its client is told.
    pub fn is_on_disks(&self) -> bool {
        self.spec.level == Level::Disk
    }

    /// Whether it fails for a reason of its own, or its client rolls it back.
    pub fn ends_without_effects(&self) -> bool {
        self.fails || self.spec.rolls_back
    }
}

/// What is known of all clients together.
#[derive(Debug, Default)]
pub struct Cluster {
    pub attempts: BTreeMap<TransactionId, Attempt>,
    /// When the client of a request was told, and what.
    pub answered: BTreeMap<(usize, u64), (Duration, Answer)>,
}

/// A client's session.
#[derive(Debug)]
pub struct Session {
    left: u64,
    number: u64,
    issued: Duration,
    current: Option<Spec>,
    /// The client tries again at this time.
    again_at: Time,
    /// What was sent last, until it has ended.
    outstanding: Option<TransactionId>,
    was_tried: bool,
}

impl Session {
    pub fn new(requests: u64) -> Session {
        Session {
            left: requests,
            number: 0,
            issued: Duration::ZERO,
            current: None,
            again_at: 0,
            outstanding: None,
            was_tried: false,
        }
    }

    pub fn is_done(&self) -> bool {
        self.left == 0 && self.current.is_none()
    }
}

/// A transaction over several partitions, at its coordinator.
#[derive(Debug)]
pub struct OverPartitions {
    pub coordinator: Coordinator<Bank>,
    /// The partitions that have branches.
    joined: Vec<usize>,
    phase: usize,
    answer: Answer,
}

/// What runs at a node.
#[derive(Debug)]
pub enum Run {
    Over(Box<OverPartitions>),
    Whole { until: Time },
}

/// A node.
#[derive(Debug)]
pub struct Node {
    node: usize,
    pub start: Start,
    pub numbers: Running,
    pub is_up: bool,
    pub paused_until: Time,
    pub running: BTreeMap<u64, Run>,
    /// The openings of partitions that it knows of.
    pub openings: Vec<Opening>,
    ticks: u64,
}

impl Node {
    pub fn new(node: usize, partitions: usize) -> Node {
        Node {
            node,
            start: Start(1),
            numbers: Running::default(),
            is_up: true,
            paused_until: 0,
            running: BTreeMap::new(),
            openings: vec![Opening(1); partitions],
            ticks: 0,
        }
    }

    pub fn name(&self, number: u64) -> TransactionId {
        TransactionId { node: NodeId(self.node as u32), start: self.start, number }
    }

    /// A branch under the opening that this node knows.
    fn branch(&self, of: usize, access: Access) -> BranchRef {
        BranchRef { partition: PartitionId(of as u32), opening: self.openings[of], access }
    }

    /// A transaction has ended here.
    fn end(&mut self, number: u64) {
        self.running.remove(&number);
        self.numbers.end(number);
    }

    pub fn crash(&mut self) {
        self.is_up = false;
        self.start = Start(self.start.0 + 1);
        self.numbers = Running::default();
        self.running.clear();
        self.paused_until = 0;
    }
}

impl World {
    pub fn client_wakes(&mut self, of: usize) {
        if self.sessions[of].current.is_none() {
            if self.sessions[of].left == 0 {
                return;
            }
            let spec = self.draw_spec();
            let now = self.time();
            let session = &mut self.sessions[of];
            session.left -= 1;
            session.number += 1;
            session.issued = now;
            session.current = Some(spec);
            session.again_at = 0;
            session.was_tried = false;
        }
        if self.sessions[of].again_at <= self.now {
            let session = &self.sessions[of];
            let is_numbered = session.current.as_ref().is_some_and(|spec| spec.is_numbered);
            if session.outstanding.is_some() && !is_numbered {
                // Its client knows that it does not know. Its connection may end.
                if let Some(id) = session.outstanding
                    && self.random.chance(1, 2)
                {
                    self.after(0, Event::GivesUp(id));
                }
                return self.end_request(of);
            }
            self.try_request(of);
            let wait = if self.random.chance(1, 4) { 40_000 } else { 300_000 };
            let wait = wait + self.random.below(100_000);
            self.sessions[of].again_at = self.now + wait;
            self.after(wait, Event::ClientWakes(of));
        }
    }

    /// Sends the current request of a session to a node.
    fn try_request(&mut self, of: usize) {
        let node = self.random.below(self.nodes.len() as u64) as usize;
        let now = self.time();
        let session = &self.sessions[of];
        let spec = session.current.clone().expect("it has a request");
        let numbered = Request { session: of as u64, number: session.number, issued: session.issued };
        let request = spec.is_numbered.then_some(numbered);
        if !self.nodes[node].is_up || self.nodes[node].paused_until > self.now {
            return;
        }
        let number = self.nodes[node].numbers.begin(spec.pace);
        let id = self.nodes[node].name(number);
        let attempt = Attempt {
            request: (of, session.number),
            deciding: spec.deciding(),
            fails: spec.fails && !spec.is_whole(),
            spec: spec.clone(),
            began: now,
            told: None,
            is_told_aborted: false,
        };
        self.cluster.attempts.insert(id, attempt);
        self.sessions[of].outstanding = Some(id);
        let is_first = !std::mem::replace(&mut self.sessions[of].was_tried, true);
        if spec.is_whole() {
            self.nodes[node].running.insert(id.number, Run::Whole { until: self.now + 400_000 });
            let (low, to) = (self.nodes[node].numbers.low(), spec.deciding());
            let opening = self.nodes[node].openings[to];
            let action = spec.phases[0][0].1.clone();
            let body = Body::Call { opening, low, request, level: spec.level, action };
            let (from, to) = (Sender::Coordinator(id.node), Address::Partition(PartitionId(to as u32)));
            return self.send(Message { from, to, transaction: id, body });
        }
        let branch = |of: usize| {
            let access = if spec.writes_in(of) { Access::Writes } else { Access::Reads };
            self.nodes[node].branch(of, access)
        };
        let branches = match spec.pace {
            Pace::Call => spec.partitions().into_iter().map(branch).collect(),
            Pace::Statements => vec![self.nodes[node].branch(spec.deciding(), Access::Reads)],
        };
        let plan = Plan {
            request,
            deciding: PartitionId(spec.deciding() as u32),
            level: spec.level,
            tries: if is_first { Tries::First } else { Tries::Again },
            pace: spec.pace,
            branches,
            local: vec![PartitionId(node as u32)],
        };
        let coordinator = Coordinator::new(id, plan, now);
        let joined = match spec.pace {
            Pace::Call => spec.partitions(),
            Pace::Statements => vec![spec.deciding()],
        };
        let run = OverPartitions { coordinator, joined, phase: 0, answer: Answer::default() };
        self.nodes[node].running.insert(id.number, Run::Over(Box::new(run)));
        self.next_phase(node, id);
        self.coordinate(node, id.number);
    }

    fn next_phase(&mut self, node: usize, id: TransactionId) {
        let low = self.nodes[node].numbers.low();
        let spec = &self.cluster.attempts[&id].spec;
        let branches = (0..self.partitions.len()).map(|of| self.nodes[node].branch(of, Access::Reads));
        let branches: Vec<_> = branches.collect();
        let Some(Run::Over(run)) = self.nodes[node].running.get_mut(&id.number) else { return };
        for (of, _) in &spec.phases[run.phase] {
            if !run.joined.contains(of) {
                run.joined.push(*of);
                run.coordinator.join(branches[*of]);
            }
        }
        let later = &spec.phases[run.phase + 1..];
        let actions = spec.phases[run.phase].iter().map(|(of, ops)| {
            let is_last = !later.iter().flatten().any(|(other, _)| other == of);
            let place = if is_last && spec.rides && !spec.fails { Place::Last } else { Place::Open };
            Action { partition: PartitionId(*of as u32), action: ops.clone(), place }
        });
        run.coordinator.phase(actions.collect(), low);
        run.phase += 1;
    }

    /// Does what the coordinator of a transaction wants.
    pub fn coordinate(&mut self, node: usize, number: u64) {
        let id = self.nodes[node].name(number);
        loop {
            let Some(Run::Over(run)) = self.nodes[node].running.get_mut(&number) else { return };
            let effects = run.coordinator.take_effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    CoordinatorEffect::Send(message) => self.send(message),
                    CoordinatorEffect::Rendezvous(replies) => self.rendezvous(node, id, replies),
                    CoordinatorEffect::Done(outcome) => {
                        self.nodes[node].end(number);
                        self.outcome(id, outcome);
                    }
                }
            }
        }
    }

    fn rendezvous(&mut self, node: usize, id: TransactionId, replies: Vec<(PartitionId, Answer)>) {
        let Some(Run::Over(run)) = self.nodes[node].running.get_mut(&id.number) else { return };
        replies.into_iter().for_each(|(_, reply)| run.answer.seen.extend(reply.seen));
        match self.cluster.attempts[&id].spec.pace {
            Pace::Call => self.go_on(node, id),
            Pace::Statements => {
                let thinks_for = if self.random.chance(1, 8) { 150_000 } else { 5_000 };
                self.soon(thinks_for, Event::ThinksOf(id));
            }
        }
    }

    /// The client of a transaction has thought of its next statement.
    pub fn next_statement(&mut self, id: TransactionId) {
        let node = id.node.0 as usize;
        let of = &self.nodes[node];
        if of.paused_until > self.now {
            let wait = of.paused_until - self.now;
            self.after(wait, Event::ThinksOf(id));
        } else if of.is_up && of.start == id.start {
            self.go_on(node, id);
            self.coordinate(node, id.number);
        }
    }

    /// The next phase, or the end.
    fn go_on(&mut self, node: usize, id: TransactionId) {
        let now = self.time();
        let Some(Run::Over(run)) = self.nodes[node].running.get_mut(&id.number) else { return };
        let attempt = &self.cluster.attempts[&id];
        if run.phase < attempt.spec.phases.len() {
            self.next_phase(node, id);
        } else if attempt.spec.rolls_back {
            run.coordinator.give_up();
        } else if attempt.fails {
            run.coordinator.fail(Answer { seen: Vec::new(), has_failed: true }, now);
        } else {
            run.coordinator.commit(run.answer.clone(), now);
        }
    }

    pub fn coordinator_receives(&mut self, node: usize, message: Message<Bank>) {
        let (id, now_up) = (message.transaction, self.nodes[node].is_up);
        if let (Body::NoBranch, Sender::Partition(from, opening)) = (&message.body, message.from) {
            let known = &mut self.nodes[node].openings[from.0 as usize];
            *known = (*known).max(opening);
        }
        if !now_up || id.start != self.nodes[node].start {
            return;
        }
        match self.nodes[node].running.get_mut(&id.number) {
            None => {}
            Some(Run::Over(run)) => {
                run.coordinator.receive(message);
                self.coordinate(node, id.number);
            }
            Some(Run::Whole { .. }) => {
                let outcome = match message.body {
                    Body::Outcome(outcome) => outcome,
                    // An earlier copy of the call may have run.
                    Body::NoBranch => Outcome::Unknown,
                    _ => return,
                };
                self.nodes[node].end(id.number);
                self.outcome(id, outcome);
            }
        }
    }

    /// The client of a transaction is gone, or waits no longer. (A node that is paused has sent this before.)
    pub fn gives_up(&mut self, id: TransactionId) {
        let node = id.node.0 as usize;
        let of = &mut self.nodes[node];
        if of.is_up
            && of.start == id.start
            && let Some(Run::Over(run)) = of.running.get_mut(&id.number)
        {
            run.coordinator.give_up();
            self.coordinate(node, id.number);
        }
    }

    /// A request has found no room in a queue.
    pub fn refused(&mut self, id: TransactionId) {
        let node = id.node.0 as usize;
        match self.nodes[node].running.get_mut(&id.number) {
            Some(Run::Over(run)) => {
                run.coordinator.give_up();
                self.coordinate(node, id.number);
            }
            Some(Run::Whole { .. }) => {
                self.nodes[node].end(id.number);
                self.outcome(id, Outcome::Aborted);
            }
            None => {}
        }
    }

    pub fn node_tick(&mut self, of: usize) {
        if !self.nodes[of].is_up || self.nodes[of].paused_until > self.now {
            return;
        }
        let now = self.time();
        let numbers: Vec<_> = self.nodes[of].running.keys().copied().collect();
        for number in numbers {
            match self.nodes[of].running.get_mut(&number) {
                Some(Run::Over(run)) => {
                    run.coordinator.tick(now);
                    self.coordinate(of, number);
                }
                Some(Run::Whole { until }) if *until <= self.now => {
                    self.nodes[of].end(number);
                    let id = self.nodes[of].name(number);
                    self.outcome(id, Outcome::Unknown);
                }
                _ => {}
            }
        }
        self.nodes[of].ticks += 1;
        if self.nodes[of].ticks.is_multiple_of(4) {
            self.send_low(of);
        }
    }

    /// A node tells a client how its request has ended.
    fn outcome(&mut self, id: TransactionId, outcome: Outcome<Bank>) {
        let now = self.time();
        let attempt = self.cluster.attempts.get_mut(&id).expect("it was tried");
        let (of, number) = attempt.request;
        let is_current = self.sessions[of].number == number && self.sessions[of].current.is_some();
        let is_numbered = attempt.spec.is_numbered;
        attempt.is_told_aborted |= matches!(outcome, Outcome::Aborted);
        match outcome {
            Outcome::Answered(answer) => {
                if is_current && !attempt.spec.writes() {
                    attempt.told = Some(answer.clone());
                }
                if is_current {
                    self.cluster.answered.entry((of, number)).or_insert((now, answer));
                    self.end_request(of);
                }
            }
            Outcome::TooOld => {
                assert!(!is_current, "{id}: a request that was not answered is too old");
            }
            // Without a number it is not sent again: the client knows that it does not know.
            Outcome::Unknown if !is_numbered && is_current => self.end_request(of),
            Outcome::Aborted if attempt.spec.rolls_back && is_current => self.end_request(of),
            Outcome::Aborted | Outcome::Unknown => {
                if self.sessions[of].outstanding == Some(id) {
                    self.sessions[of].outstanding = None;
                }
                if is_current && self.sessions[of].again_at > self.now {
                    let wait = self.random.below(20_000);
                    self.sessions[of].again_at = self.now + wait;
                    self.after(wait, Event::ClientWakes(of));
                }
            }
        }
    }

    fn end_request(&mut self, of: usize) {
        self.sessions[of].current = None;
        self.sessions[of].outstanding = None;
        self.soon(10_000, Event::ClientWakes(of));
    }
}
