//! The coordinator of one transaction over several partitions.
//!
//! Invariants kept here: the deciding partition is one of the branches' and is named in each first message. The
//! decision is asked for once, after each branch that may write has voted and each other branch has been confirmed, and
//! the latter were asked after the last action of any branch was done (C9). A transaction that was given up is never
//! asked to be decided. Only answers under the opening that a branch was sent under count (C10). Nothing waits for
//! ever: there is a time for the actions and votes, and one for the decision (C13). With [`Pace::Statements`] the
//! driver bounds the actions; a branch that is lost ends the transaction at once.
//!
//! A transaction whose branches become known as it runs begins with the branch of its first statement, which is the
//! deciding one; more of them [`Coordinator::join`]. Whether a branch writes may become known as it runs, too: each
//! reply says so. If there is one branch at the commit, nothing is prepared: it commits alone, at whichever level.

use std::time::Duration;

use rialto::fault_injection;

use super::{
    Access, Act, Address, Body, BranchRef, Branches, Level, Message, Opening, Outcome, Pace, Request, Sender,
    TransactionId, Verdict, Work,
};
use crate::protocol::PartitionId;

/// How long the actions and votes of a transaction may take.
pub const ACT_WITHIN: Duration = Duration::from_millis(400);
/// How often a decision is asked for again, once the time for actions and votes is over.
pub const DECIDE_AGAIN: Duration = Duration::from_millis(30);
/// How long after the time for actions and votes the client is told that the outcome is not known.
pub const DECIDE_WITHIN: Duration = Duration::from_millis(1_000);

/// What a coordinator knows of its transaction when it begins.
#[derive(Debug)]
pub struct Plan {
    /// The client's request, if it has a number.
    pub request: Option<Request>,
    /// The deciding partition: a function of the request.
    pub deciding: PartitionId,
    /// The level that the client asks for.
    pub level: Level,
    /// What makes it go on.
    pub pace: Pace,
    /// The branches, with the openings that the coordinator's node believes in: the deciding one at least, and all if
    /// votes are to ride on replies. Then their access is as it will be; else a branch that writes may begin as one
    /// that only reads.
    pub branches: Vec<BranchRef>,
    /// Whether another transaction of the same request may run.
    pub tries: Tries,
    /// Partitions whose primaries are on the coordinator's node. They are sent their actions last.
    pub local: Vec<PartitionId>,
}

/// Whether a request is sent for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tries {
    /// It is.
    First,
    /// It may have been sent before. Then the deciding branch begins alone, and the others once it has replied: a
    /// retry that waits for its running original must hold no lock that the original may need.
    Again,
}

/// Whether an action is known to be the last one of its branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// It is: the vote rides on its reply. All branches are known.
    Last,
    /// It is not known to be.
    Open,
}

/// An action of a phase.
#[derive(Debug, Clone)]
pub struct Action<W: Work> {
    /// The branch's partition.
    pub partition: PartitionId,
    /// What it does.
    pub action: W::Action,
    /// Its place in the branch.
    pub place: Place,
}

/// What the driver of a coordinator does.
#[derive(Debug, Clone)]
pub enum CoordinatorEffect<W: Work> {
    /// Send this; it may get lost.
    Send(Message<W>),
    /// All actions of the phase are done: begin the next one, or end the transaction.
    Rendezvous(Vec<(PartitionId, W::Reply)>),
    /// The transaction has ended for the client. The coordinator is done with.
    Done(Outcome<W>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vote {
    NotAsked,
    Asked,
    Given,
}

#[derive(Debug)]
struct Part {
    of: BranchRef,
    next: u32,
    outstanding: Vec<u32>,
    vote: Vote,
}

#[derive(Debug)]
enum State<W: Work> {
    Acting { replies: Vec<(PartitionId, W::Reply)>, until: Option<Duration> },
    Voting { verdict: Verdict<W>, until: Duration },
    Deciding { verdict: Verdict<W>, again_at: Duration, until: Duration },
    Done,
}

/// The coordinator of one transaction.
#[derive(Debug)]
pub struct Coordinator<W: Work> {
    id: TransactionId,
    request: Option<Request>,
    deciding: PartitionId,
    level: Level,
    local: Vec<PartitionId>,
    tries: Tries,
    /// What waits for the reply of the deciding branch.
    held_back: Vec<(PartitionId, Body<W>)>,
    parts: Vec<Part>,
    state: State<W>,
    effects: Vec<CoordinatorEffect<W>>,
}

impl<W: Work> Coordinator<W> {
    /// Begins a transaction. Nothing is sent before its first phase.
    pub fn new(id: TransactionId, plan: Plan, now: Duration) -> Coordinator<W> {
        let mut coordinator = Coordinator {
            id,
            request: plan.request,
            deciding: plan.deciding,
            level: plan.level,
            local: plan.local,
            tries: plan.tries,
            held_back: Vec::new(),
            parts: Vec::new(),
            state: State::Acting {
                replies: Vec::new(),
                until: (plan.pace == Pace::Call).then_some(now + ACT_WITHIN),
            },
            effects: Vec::new(),
        };
        plan.branches.into_iter().for_each(|branch| coordinator.join(branch));
        assert!(coordinator.part(coordinator.deciding).is_some(), "the deciding partition is a branch's");
        coordinator
    }

    /// Adds a branch, for a transaction whose partitions become known as it runs.
    ///
    /// # Panics
    /// If the partition has a branch, or a branch has been asked for its vote.
    pub fn join(&mut self, of: BranchRef) {
        assert!(self.part(of.partition).is_none(), "{}: {} has a branch", self.id, of.partition);
        assert!(
            self.parts.iter().all(|part| part.vote == Vote::NotAsked),
            "{}: votes are asked for",
            self.id
        );
        self.parts.push(Part { of, next: 0, outstanding: Vec::new(), vote: Vote::NotAsked });
    }

    /// What is to be done.
    pub fn take_effects(&mut self) -> Vec<CoordinatorEffect<W>> {
        std::mem::take(&mut self.effects)
    }

    /// The opening that the branch of a partition runs under, if there is one.
    pub fn opening_of(&self, partition: PartitionId) -> Option<Opening> {
        self.parts.iter().find(|part| part.of.partition == partition).map(|part| part.of.opening)
    }

    /// Whether the client has been told, or is being told, how it ended.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Sends the actions of a phase, those of other nodes first, and that of the deciding partition after others. `low`
    /// is the lowest number of a transaction that runs at this node.
    ///
    /// # Panics
    /// If another phase is running, a partition has no branch, or the deciding one has no action in the first phase of
    /// a request that is sent again.
    pub fn phase(&mut self, mut actions: Vec<Action<W>>, low: u64) {
        let is_acting = matches!(&self.state, State::Acting { replies, .. } if replies.is_empty());
        assert!(is_acting && self.outstanding() == 0, "{}: a phase is running", self.id);
        actions.sort_by_key(|action| {
            (self.local.contains(&action.partition), action.partition == self.deciding)
        });
        let branches = self.branches();
        let (deciding, level) = (self.deciding, self.level());
        let waits = self.tries == Tries::Again;
        assert!(!waits || actions.iter().any(|action| action.partition == deciding), "{}: a retry", self.id);
        for Action { partition, action, place } in actions {
            let request = self.request;
            let part = self.part(partition).expect("an action is for a branch");
            let votes = place == Place::Last && part.of.access == Access::Writes && partition != deciding;
            if votes {
                part.vote = Vote::Asked;
            }
            let sequence = part.next;
            part.next += 1;
            part.outstanding.push(sequence);
            let vote = votes.then(|| branches.clone());
            let act = Act { opening: part.of.opening, low, deciding, request, level, sequence, action, vote };
            if waits && partition != deciding {
                self.held_back.push((partition, Body::Act(act)));
            } else {
                self.send(partition, Body::Act(act));
            }
        }
        self.tries = Tries::First;
    }

    /// The level that its client asks for, if it has changed its mind since the transaction began.
    pub fn set_level(&mut self, level: Level) {
        self.level = level;
    }

    /// All actions are done: the transaction is to commit with this answer.
    ///
    /// # Panics
    /// If it has ended, a phase is running, or a branch was sent nothing.
    pub fn commit(&mut self, answer: W::Reply, now: Duration) {
        let State::Acting { until, .. } = self.state else { panic!("{}: it has ended", self.id) };
        assert!(self.outstanding() == 0, "{}: a phase is running", self.id);
        assert!(self.parts.iter().all(|part| part.next > 0), "{}: a branch was sent nothing", self.id);
        let until = until.unwrap_or(now + ACT_WITHIN);
        self.state = State::Voting { verdict: Verdict::Commit(answer), until };
        let (branches, level, only_reads) = (self.branches(), self.level(), self.only_reads());
        for at in 0..self.parts.len() {
            let part = &mut self.parts[at];
            let BranchRef { partition, opening, access } = part.of;
            let is_deciding = partition == self.deciding;
            if part.vote != Vote::NotAsked {
                continue;
            }
            part.vote = Vote::Asked;
            match access {
                // Its commit is the decision; as long as it is open under its opening it holds its locks.
                _ if is_deciding && !only_reads => part.vote = Vote::Given,
                Access::Reads if fault_injection::is_on("reads-not-confirmed") => part.vote = Vote::Given,
                Access::Reads => self.send(partition, Body::Confirm { opening, level }),
                Access::Writes => {
                    self.send(partition, Body::Prepare { opening, branches: branches.clone() });
                }
            }
        }
        self.go_on_if_all_voted(until);
    }

    /// The transaction has failed for a reason of its own, and its client is to be told this answer for good.
    ///
    /// # Panics
    /// If it has ended, a phase is running, or the deciding branch was sent nothing.
    pub fn fail(&mut self, answer: W::Reply, now: Duration) {
        let State::Acting { until, .. } = self.state else { panic!("{}: it has ended", self.id) };
        assert!(self.outstanding() == 0, "{}: a phase is running", self.id);
        let deciding = self.deciding;
        self.send_abort(|part| part.of.partition != deciding);
        self.decide(Verdict::Fail(answer), until.unwrap_or(now + ACT_WITHIN));
    }

    /// Gives the transaction up: its client rolls it back or is gone, or an action takes too long. If the decision was
    /// asked for, its outcome is not known.
    pub fn give_up(&mut self) {
        match self.state {
            State::Acting { .. } | State::Voting { .. } => self.end(Outcome::Aborted),
            State::Deciding { .. } => self.done(Outcome::Unknown),
            State::Done => {}
        }
    }

    /// The connection to a partition's primary has ended: a branch that has not voted will abort there.
    pub fn connection_ended(&mut self, partition: PartitionId) {
        let is_open = matches!(self.state, State::Acting { .. } | State::Voting { .. });
        let is_deciding = partition == self.deciding;
        let lost = |part: &Part| part.next > 0 && (is_deciding || part.vote != Vote::Given);
        if is_open && self.part(partition).is_some_and(|part| lost(part)) {
            self.end(Outcome::Aborted);
        }
    }

    /// Some time has passed.
    pub fn tick(&mut self, now: Duration) {
        match &mut self.state {
            State::Acting { until: Some(until), .. } | State::Voting { until, .. } if *until <= now => {
                self.end(Outcome::Aborted);
            }
            State::Deciding { until, .. } if *until + DECIDE_WITHIN <= now => self.done(Outcome::Unknown),
            State::Deciding { again_at, .. } if *again_at <= now => {
                *again_at = now + DECIDE_AGAIN;
                self.send_decide();
            }
            _ => {}
        }
    }

    /// A message of a partition about this transaction has come.
    pub fn receive(&mut self, message: Message<W>) {
        let Sender::Partition(from, opening) = message.from else { return };
        let is_deciding = from == self.deciding;
        match message.body {
            Body::Reply { sequence, reply, access, votes } => {
                let State::Acting { replies, .. } = &mut self.state else { return };
                let Some(part) = self.parts.iter_mut().find(|part| part.of.partition == from) else { return };
                let Some(at) = part.outstanding.iter().position(|of| *of == sequence) else { return };
                if part.of.opening != opening {
                    return;
                }
                let Some(reply) = reply else { return self.end(Outcome::Aborted) };
                part.outstanding.swap_remove(at);
                if votes {
                    part.vote = Vote::Given;
                }
                let is_news = access > part.of.access && !fault_injection::is_on("writes-come-unheard");
                if is_news {
                    part.of.access = access;
                }
                replies.push((from, reply));
                if is_news && self.parts.iter().any(|part| part.vote != Vote::NotAsked) {
                    // The votes are for a branch that only reads.
                    return self.end(Outcome::Aborted);
                }
                if is_deciding {
                    let held_back = std::mem::take(&mut self.held_back);
                    held_back.into_iter().for_each(|(to, body)| self.send(to, body));
                }
                let State::Acting { replies, .. } = &mut self.state else { return };
                let replies = replies.len();
                if self.outstanding() == 0
                    && replies > 0
                    && let State::Acting { replies, .. } = &mut self.state
                {
                    let replies = std::mem::take(replies);
                    self.effects.push(CoordinatorEffect::Rendezvous(replies));
                }
            }
            Body::Voted | Body::StillHeld => {
                let State::Voting { until, .. } = self.state else { return };
                if let Some(part) = self.part(from)
                    && part.of.opening == opening
                    && part.vote == Vote::Asked
                {
                    part.vote = Vote::Given;
                    self.go_on_if_all_voted(until);
                }
            }
            Body::NoBranch => {
                if matches!(self.state, State::Acting { .. } | State::Voting { .. }) {
                    self.end(Outcome::Aborted);
                }
            }
            Body::Outcome(outcome) if is_deciding => match (&self.state, outcome) {
                (State::Done, _) => {}
                // A retry whose request was answered: its other branches are not wanted. A failed one: the same.
                (State::Acting { .. } | State::Voting { .. }, outcome) => self.end(outcome),
                (State::Deciding { .. }, Outcome::Aborted) => self.end(Outcome::Aborted),
                (State::Deciding { .. }, outcome) => self.done(outcome),
            },
            _ => {}
        }
    }

    fn go_on_if_all_voted(&mut self, until: Duration) {
        if self.parts.iter().any(|part| part.vote != Vote::Given) {
            return;
        }
        let State::Voting { verdict, .. } = std::mem::replace(&mut self.state, State::Done) else { return };
        match verdict {
            // There is nothing to decide.
            Verdict::Commit(answer) if self.only_reads() => self.done(Outcome::Answered(answer)),
            verdict => self.decide(verdict, until),
        }
    }

    fn decide(&mut self, verdict: Verdict<W>, until: Duration) {
        self.state = State::Deciding { verdict, again_at: until, until };
        self.send_decide();
    }

    fn send_decide(&mut self) {
        let State::Deciding { verdict, .. } = &self.state else { return };
        let body =
            Body::Decide { branches: self.branches(), request: self.request, verdict: verdict.clone() };
        self.send(self.deciding, body);
    }

    /// Tells all branches that the transaction will not be decided, or is decided not to be, then the client.
    fn end(&mut self, outcome: Outcome<W>) {
        self.send_abort(|_| true);
        self.done(outcome);
    }

    fn send_abort(&mut self, to: impl Fn(&Part) -> bool) {
        for at in 0..self.parts.len() {
            if self.parts[at].next > 0 && to(&self.parts[at]) {
                self.send(self.parts[at].of.partition, Body::Abort);
            }
        }
    }

    fn done(&mut self, outcome: Outcome<W>) {
        self.state = State::Done;
        self.effects.push(CoordinatorEffect::Done(outcome));
    }

    fn send(&mut self, to: PartitionId, body: Body<W>) {
        let (from, to) = (Sender::Coordinator(self.id.node), Address::Partition(to));
        self.effects.push(CoordinatorEffect::Send(Message { from, to, transaction: self.id, body }));
    }

    fn only_reads(&self) -> bool {
        self.parts.iter().all(|part| part.of.access == Access::Reads)
    }

    fn outstanding(&self) -> usize {
        self.parts.iter().map(|part| part.outstanding.len()).sum()
    }

    fn branches(&self) -> Branches {
        let all = self.parts.iter().map(|part| part.of).collect();
        Branches { deciding: self.deciding, all, level: self.level() }
    }

    fn level(&self) -> Level {
        if self.parts.len() == 1 { self.level } else { self.level.over_partitions() }
    }

    fn part(&mut self, partition: PartitionId) -> Option<&mut Part> {
        self.parts.iter_mut().find(|part| part.of.partition == partition)
    }
}
