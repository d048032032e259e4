//! A partition's side of the protocol: its branches, under one opening of its primary, and what comes from
//! coordinators.
//!
//! Invariants kept here: a branch runs under the opening that its coordinator named, and no other. A transaction opens
//! one branch here at most, whatever is sent twice (C10). A branch that may write votes only after its commit has room
//! and *Prepared* is durable (C8). The decision is told only when the deciding commit is durable at the transaction's
//! level (C10). Of the transactions of one request at most one runs in the deciding partition at a time, and none once
//! it is answered (C12). A branch that is not prepared ends with its coordinator's connection (C13).
//!
//! [`super::in_doubt`] has what partitions say to each other.

use std::time::Duration;

use rialto::fault_injection;

use super::branch::{Bound, Branch, Committed, Rides, State};
use super::decider::Decider;
use super::ended::{Admission, Ended, EndedTransactions};
use super::in_doubt::Aborting;
use super::{
    Access, Act, Address, Answers, Body, BranchRef, Branches, Decision, Effect, Found, Keeps, Level, Locking,
    Lost, Message, Opening, Outcome, Request, RowChange, Sender, Start, Step, SystemRows, TransactionId,
    Verdict, Work,
};
use crate::protocol::{NodeId, PartitionId};
use std::collections::BTreeMap;

/// How long a branch waits for a decision before it asks, and between two times that it asks.
pub const ASK_AFTER: Duration = Duration::from_millis(30);
/// How many rows of expired answers are removed at a time.
pub(super) const EXPIRED_MAX: usize = 256;
/// While votes are held up, what is in doubt is asked for, and given up, sooner by this factor
/// ([`Participant::hurry`]).
pub const HASTE: u32 = 4;

/// What an opening of a partition begins with. All of it is durable at every level, under the configuration of this
/// opening, before the participant is made: the newest records of a log may be those that only this replica has, and
/// decisions, confirmations and answers are told as soon as it is open.
#[derive(Debug)]
pub struct Opened<W: Work> {
    /// The partition.
    pub partition: PartitionId,
    /// The opening epoch.
    pub opening: Opening,
    /// The rows of the system. The opening that follows a loss has written [`RowChange::Lost`] to them before.
    /// The driver has taken the prepared branches' locks, placeholders and room again.
    pub rows: SystemRows<W>,
}

/// What the kernel tells of an action that it has run.
#[derive(Debug, Clone)]
pub struct Ran<W: Work> {
    /// What it gave.
    pub reply: W::Reply,
    /// Whether its transaction has written by now.
    pub access: Access,
    /// Whether it has failed, and its transaction is not to commit: then the branch does not vote, though it was asked to.
    pub has_failed: bool,
    /// Whether the same request may have another reply if it runs again: then the reply of a whole transaction ends it,
    /// and no row keeps it.
    pub is_passing: bool,
}

/// The primary of a partition, for the protocol.
#[derive(Debug)]
pub struct Participant<W: Work> {
    pub(super) id: PartitionId,
    pub(super) opening: Opening,
    pub(super) lost: Lost,
    pub(super) branches: BTreeMap<TransactionId, Branch<W>>,
    /// Committed branches whose decision may be remembered.
    pub(super) committed: BTreeMap<TransactionId, Committed>,
    /// Branches whose *Prepared* is gone, until that is durable.
    pub(super) aborting: BTreeMap<TransactionId, Aborting>,
    /// The last opening of each partition that a message has come from (C2).
    pub(super) heard: BTreeMap<PartitionId, Opening>,
    pub(super) decider: Decider,
    pub(super) answers: Answers<W>,
    /// Answers that were found in their rows and wait for the level that they are asked for at.
    answering: BTreeMap<TransactionId, W::Reply>,
    /// Rows of answers that have expired are being removed.
    expires: bool,
    /// The time of day, if the driver tells it; else the time of everything else counts.
    time_of_day: Option<Duration>,
    pub(super) ended: EndedTransactions<W>,
    pub(super) effects: Vec<Effect<W>>,
    is_hurried: bool,
}

impl<W: Work> Participant<W> {
    /// Opens the partition.
    pub fn open(opened: Opened<W>, now: Duration) -> Participant<W> {
        let Opened { partition: id, opening, rows } = opened;
        let bound: BTreeMap<_, _> = rows.bound.into_iter().collect();
        let prepared = rows.prepared.into_iter().map(|(of, branches)| {
            let bound = bound.get(&of).map_or(Bound::No, |by| Bound::Durable(*by));
            (of, Branch::new(State::Prepared { branches, bound, ask_at: now }, now))
        });
        let committed = rows.committed.into_iter().map(|(of, branches)| {
            let told_by = bound.get(&of).copied().unwrap_or_else(|| branches.deciding_opening());
            (of, Committed { branches, told_by, confirm_at: now })
        });
        Participant {
            id,
            opening,
            lost: rows.lost,
            branches: prepared.collect(),
            committed: committed.collect(),
            aborting: BTreeMap::new(),
            heard: BTreeMap::new(),
            decider: Decider::open((id, opening), rows.lost, rows.decisions, now),
            answers: Answers::open(rows.answers),
            answering: BTreeMap::new(),
            expires: false,
            time_of_day: None,
            ended: EndedTransactions::new(),
            effects: Vec::new(),
            is_hurried: false,
        }
    }

    /// Tells the time of day, as the time since 1970: the clock that requests are numbered and that answers expire by. It may
    /// go back, and may differ from that of other nodes by [`super::CLOCK_MARGIN`].
    pub fn tell_time_of_day(&mut self, time: Duration) {
        self.time_of_day = Some(time);
    }

    fn find_answer(&self, request: Request, now: Duration) -> Found<W> {
        self.answers.find(request, self.time_of_day.unwrap_or(now))
    }

    /// Votes are held up from now on in all partitions, or not any more. Meanwhile a transaction that has only some of
    /// its votes does not get the others: so it is soon given up, and its branches are not in doubt any more.
    pub fn hurry(&mut self, is_hurried: bool, now: Duration) {
        self.is_hurried = is_hurried;
        let soon = now + self.in_haste(ASK_AFTER);
        for branch in self.branches.values_mut() {
            if let State::Prepared { ask_at, .. } = &mut branch.state {
                *ask_at = soon.min(*ask_at);
            }
        }
    }

    /// A time for what is in doubt, shorter while votes are held up.
    pub(super) fn in_haste(&self, time: Duration) -> Duration {
        if self.is_hurried { time / HASTE } else { time }
    }

    /// What is to be done, in order.
    pub fn take_effects(&mut self) -> Vec<Effect<W>> {
        std::mem::take(&mut self.effects)
    }

    /// The opening epoch.
    pub fn opening(&self) -> Opening {
        self.opening
    }

    /// How many transactions the partition has open, prepared, unconfirmed or not forgotten.
    pub fn unfinished(&self) -> usize {
        self.branches.len() + self.aborting.len() + self.committed.len() + self.decider.len()
    }

    /// How many transactions that have ended are remembered, so that duplicates open none of them.
    pub fn remembered(&self) -> usize {
        self.ended.len()
    }

    /// How long the branch that is in doubt for longest has been so, for the operator (C13).
    pub fn in_doubt_for(&self, now: Duration) -> Option<Duration> {
        let in_doubt = |branch: &&Branch<W>| matches!(branch.state, State::Prepared { .. });
        self.branches.values().filter(in_doubt).map(|branch| now.saturating_sub(branch.opened_at)).max()
    }

    /// A message has come.
    pub fn receive(&mut self, message: Message<W>, now: Duration) {
        let id = message.transaction;
        match (message.from, message.body) {
            (_, Body::Call { opening, low, request, level, action }) => {
                self.hear_low(id, low, &[], now);
                let vote = None;
                let deciding = self.id;
                let act = Act { opening, low, deciding, request, level, sequence: 0, action, vote };
                self.act(id, act, Some(level), now);
            }
            (_, Body::Act(act)) => {
                self.hear_low(id, act.low, &[], now);
                self.act(id, act, None, now);
            }
            (_, Body::Prepare { opening, branches }) => self.prepare(id, opening, branches),
            (_, Body::Confirm { opening, level }) => self.confirm(id, opening, level, now),
            (_, Body::Decide { branches, request, verdict }) => {
                self.decide(id, branches, request, verdict, now);
            }
            (_, Body::Abort) => self.given_up(id, now),
            (_, Body::Low { low, older }) => self.hear_low(id, low, &older, now),
            (Sender::Partition(from, opening), body) => {
                self.receive_from_partition(id, (from, opening), body, now);
            }
            (Sender::Coordinator(_), _) => {}
        }
    }

    /// The connection of a node has ended: its coordinators' branches that are not prepared abort (C13).
    pub fn connection_ended(&mut self, node: NodeId, now: Duration) {
        let those = self.those_that_may_abort(|id| id.node == node);
        those.into_iter().for_each(|id| self.abort(id, now));
    }

    /// Some time has passed.
    pub fn tick(&mut self, now: Duration) {
        let mut messages = Vec::new();
        let ask_after = self.in_haste(ASK_AFTER);
        for (id, branch) in &mut self.branches {
            if let State::Prepared { branches, ask_at, .. } = &mut branch.state
                && *ask_at <= now
            {
                *ask_at = now + ask_after;
                messages.push((*id, branches.deciding, Body::Inquire(branches.clone())));
            }
        }
        for (id, Committed { branches, confirm_at, .. }) in &mut self.committed {
            if *confirm_at <= now {
                *confirm_at = now + ASK_AFTER;
                messages.push((*id, branches.deciding, Body::Confirmed(Decision::Commit, branches.clone())));
            }
        }
        for (id, to, body) in messages {
            self.send(id, Address::Partition(to), body);
        }
        self.decider.tick(now, &mut self.effects);
        self.expire(self.time_of_day.unwrap_or(now));
    }

    /// Has the rows of answers that have expired removed: some of them at a time, however many have expired together.
    fn expire(&mut self, now: Duration) {
        if self.expires {
            return;
        }
        let expired = std::iter::from_fn(|| self.answers.expire(now)).take(EXPIRED_MAX);
        let gone = |Request { session, number, .. }| RowChange::Expired { session, number };
        let rows: Vec<_> = expired.map(gone).collect();
        if !rows.is_empty() {
            self.expires = true;
            let transaction = TransactionId { node: NodeId(0), start: Start(0), number: 0 };
            self.effects.push(Effect::Write { transaction, rows, level: Level::Memory, step: Step::Expired });
        }
    }

    /// An action was run. `None`: it was not, because a wait took too long, say, and its branch aborts. A statement
    /// that has failed, and whose transaction goes on, was run: its error is the reply.
    pub fn ran(&mut self, id: TransactionId, sequence: u32, ran: Option<Ran<W>>, now: Duration) {
        let opening = self.opening;
        let Some(branch) = self.branches.get_mut(&id) else { return };
        let State::Running { sequence: running, vote } = &mut branch.state else { return };
        if *running != sequence {
            return;
        }
        let vote = vote.take();
        let Some(Ran { reply, access, has_failed, is_passing }) = ran else {
            let body = match branch.whole {
                Some(_) => Body::Outcome(Outcome::Aborted),
                None => Body::Reply { sequence, reply: None, access: branch.access, votes: false },
            };
            self.abort(id, now);
            return self.answer(id, body);
        };
        branch.access = branch.access.max(access);
        match (vote.filter(|_| !has_failed), branch.whole) {
            (Some(branches), _) => self.reserve(id, branches, Some(Rides { sequence, reply })),
            (None, Some(_)) if is_passing => {
                self.abort(id, now);
                self.answer(id, Body::Outcome(Outcome::Answered(reply)));
            }
            (None, Some(level)) => {
                let of = BranchRef { partition: self.id, opening, access: Access::Writes };
                let branches = Branches { deciding: self.id, all: [of].into(), level };
                branch.state = State::ReservingDecision { branches, verdict: Verdict::Commit(reply) };
                self.effects.push(Effect::Reserve { transaction: id, level });
            }
            (None, None) => {
                branch.state = State::Idle;
                let access = branch.access;
                self.answer(id, Body::Reply { sequence, reply: Some(reply), access, votes: false });
                self.run_next(id);
            }
        }
    }

    /// All that a commit needs is reserved, or there is no room for it: then it aborts, while it may. Also if *Prepared* could
    /// not be written, or a commit has failed without an effect.
    pub fn reserved(&mut self, id: TransactionId, has_room: bool, now: Duration) {
        let partition = self.id;
        let Some(branch) = self.branches.get_mut(&id) else { return };
        match (std::mem::replace(&mut branch.state, State::Idle), has_room) {
            (State::Reserving { branches, rides }, true) => self.write_prepared(id, branches, rides),
            (State::Reserving { rides, .. }, false) => {
                let access = branch.access;
                self.abort(id, now);
                let body = match rides {
                    Some(Rides { sequence, .. }) => {
                        Body::Reply { sequence, reply: None, access, votes: false }
                    }
                    None => Body::NoBranch,
                };
                self.answer(id, body);
            }
            (State::ReservingDecision { branches, verdict }, true) => {
                let (keeps, answer) = match &verdict {
                    Verdict::Commit(answer) => (Keeps::Effects, answer),
                    Verdict::Fail(answer) => (Keeps::AnswerOnly, answer),
                };
                let mut rows = Vec::new();
                let has_others = branches.prepared().any(|of| of.partition != partition);
                if keeps == Keeps::Effects && has_others && !fault_injection::is_on("decisions-in-memory") {
                    rows.push(RowChange::Decision(id, Decision::Commit, branches.clone()));
                }
                if let Some(request) = branch.request
                    && !fault_injection::is_on("answers-in-memory")
                {
                    rows.push(RowChange::Answer(request, answer.clone()));
                }
                let level = branches.level;
                branch.state = State::Deciding { branches, verdict };
                self.effects.push(Effect::Commit { transaction: id, keeps, rows, level });
            }
            (State::ReservingDecision { .. }, false) => {
                self.abort(id, now);
                self.answer(id, Body::Outcome(Outcome::Aborted));
            }
            // Its commit has failed, and has no effect: it cannot commit any more.
            (State::Deciding { branches, verdict }, false) => {
                self.branches.get_mut(&id).expect("it is here").state = State::Deciding { branches, verdict };
                self.abort(id, now);
                self.answer(id, Body::Outcome(Outcome::Aborted));
            }
            // *Prepared* could not be written. It may be there all the same: its row goes.
            (State::Preparing { branches, rides }, false) => {
                self.branches.get_mut(&id).expect("it is here").state = State::Preparing { branches, rides };
                self.abort(id, now);
                self.refuse(id);
            }
            (state, _) => branch.state = state,
        }
    }

    /// Something is durable at the level that was asked for.
    pub fn durable(&mut self, id: TransactionId, step: Step, now: Duration) {
        match step {
            Step::Rows => return self.decider.rows_durable(id, now, &mut self.effects),
            Step::Bound(by) => return self.is_bound(id, by),
            Step::Aborted => return self.has_aborted(id),
            Step::Expired => return self.expires = false,
            Step::Answer => {
                if let Some(reply) = self.answering.remove(&id) {
                    self.answer(id, Body::Outcome(Outcome::Answered(reply)));
                }
                return;
            }
            Step::Prepared | Step::Reads | Step::Commit => {}
        }
        let ask_at = now + self.in_haste(ASK_AFTER);
        let Some(branch) = self.branches.get_mut(&id) else { return };
        match (std::mem::replace(&mut branch.state, State::Idle), step) {
            (State::Preparing { branches, rides }, Step::Prepared) => {
                branch.state = State::Prepared { branches, bound: Bound::No, ask_at };
                let access = branch.access;
                let body = match rides {
                    Some(Rides { sequence, reply }) => {
                        Body::Reply { sequence, reply: Some(reply), access, votes: true }
                    }
                    None => Body::Voted,
                };
                self.answer(id, body);
            }
            (State::Confirming, Step::Reads) => {
                self.end(id, Ended::StillHeld, now);
                self.effects.push(Effect::Release { transaction: id });
                self.answer(id, Body::StillHeld);
            }
            (State::Committing { branches, told_by }, Step::Commit) => {
                self.end(id, Ended::Decided(Decision::Commit, None), now);
                let to = Address::Partition(branches.deciding);
                let confirm_at = now + ASK_AFTER;
                self.committed.insert(id, Committed { branches: branches.clone(), told_by, confirm_at });
                self.send(id, to, Body::Confirmed(Decision::Commit, branches));
            }
            (State::Deciding { branches, verdict }, Step::Commit) => {
                let (decision, answer) = match verdict {
                    Verdict::Commit(answer) => (Decision::Commit, answer),
                    Verdict::Fail(answer) => (Decision::Abort, answer),
                };
                if let Some(request) = branch.request {
                    self.answers.put(request, answer.clone());
                }
                self.answer(id, Body::Outcome(Outcome::Answered(answer.clone())));
                if decision == Decision::Commit && branches.prepared().next().is_some() {
                    self.decider.tell(id, branches, now, &mut self.effects);
                }
                self.end(id, Ended::Decided(decision, Some(answer)), now);
            }
            (state, _) => branch.state = state,
        }
    }

    /// Takes note of what does not run at a coordinator any more.
    fn hear_low(&mut self, id: TransactionId, low: u64, older: &[u64], now: Duration) {
        if self.ended.hear_low(id, low, older) {
            let mut those = self.those_that_may_abort(|of| of.node == id.node);
            those.retain(|of| self.ended.is_stale(*of));
            those.into_iter().for_each(|of| self.abort(of, now));
        }
    }

    /// An action for a branch, which it may open.
    fn act(&mut self, id: TransactionId, act: Act<W>, whole: Option<Level>, now: Duration) {
        match self.ended.admit(id) {
            Admission::Stale => return,
            Admission::Ended(_) if fault_injection::is_on("duplicates-open-branches") => {}
            Admission::Ended(Ended::Decided(_, Some(answer))) => {
                return self.answer(id, Body::Outcome(Outcome::Answered(answer)));
            }
            Admission::Ended(Ended::Aborted) if whole.is_some() => {
                return self.answer(id, Body::Outcome(Outcome::Aborted));
            }
            Admission::Ended(Ended::Aborted) => return self.answer(id, Body::NoBranch),
            Admission::Ended(_) => return,
            Admission::Open => {}
        }
        if act.opening < self.opening {
            return self.answer(id, Body::NoBranch);
        } else if act.opening > self.opening {
            // This primary is not the partition's any more.
            return;
        }
        if let Some(branch) = self.branches.get_mut(&id) {
            if act.sequence >= branch.next {
                branch.waiting.insert(act.sequence, act);
                self.run_next(id);
            }
            return;
        }
        let mut branch = Branch::new(State::Parked, now);
        branch.request = act.request.filter(|_| act.deciding == self.id);
        branch.level = act.level;
        branch.whole = whole;
        branch.waiting.insert(act.sequence, act);
        self.branches.insert(id, branch);
        self.begin(id, now);
    }

    /// Begins a branch, unless its request is answered, or another transaction of it runs (C12).
    fn begin(&mut self, id: TransactionId, now: Duration) {
        let branch = &self.branches[&id];
        if let Some(request) = branch.request {
            let level = branch.level;
            let found = self.find_answer(request, now);
            if !matches!(found, Found::New) {
                self.branches.remove(&id);
                self.ended.end(id, Ended::Aborted);
            }
            match found {
                Found::New => {}
                Found::Answered(reply) => return self.answer_at(level, id, reply),
                Found::TooOld => return self.answer(id, Body::Outcome(Outcome::TooOld)),
            }
            let is_original = |(of, other): (&TransactionId, &Branch<W>)| {
                *of != id
                    && other.request.is_some_and(|of| of.session == request.session)
                    && !matches!(other.state, State::Parked)
            };
            if self.branches.iter().any(is_original) && !fault_injection::is_on("retries-run-beside") {
                return;
            }
        }
        let is_alone =
            self.branches[&id].whole.is_some() || fault_injection::is_on("unlocked-reads-over-partitions");
        let locking = if is_alone { Locking::AsAlone } else { Locking::ReadsLock };
        self.effects.push(Effect::Begin { transaction: id, locking });
        self.branches.get_mut(&id).expect("it is here").state = State::Idle;
        self.run_next(id);
    }

    /// Runs the next action of an idle branch, if it has come.
    fn run_next(&mut self, id: TransactionId) {
        let Some(branch) = self.branches.get_mut(&id) else { return };
        if !matches!(branch.state, State::Idle) {
            return;
        }
        let Some(act) = branch.waiting.remove(&branch.next) else { return };
        branch.next += 1;
        branch.state = State::Running { sequence: act.sequence, vote: act.vote };
        self.effects.push(Effect::Run { transaction: id, sequence: act.sequence, action: act.action });
    }

    fn prepare(&mut self, id: TransactionId, opening: Opening, branches: Branches) {
        match self.branches.get(&id).map(|branch| &branch.state) {
            Some(State::Idle) if opening == self.opening => self.reserve(id, branches, None),
            Some(_) => {}
            None => self.refuse(id),
        }
    }

    fn confirm(&mut self, id: TransactionId, opening: Opening, level: Level, now: Duration) {
        match self.branches.get_mut(&id) {
            // What it has written would be lost: its coordinator is wrong.
            Some(branch) if branch.access == Access::Writes && branch.state.may_abort() => {
                self.abort(id, now);
                self.refuse(id);
            }
            Some(branch) if opening == self.opening && matches!(branch.state, State::Idle) => {
                branch.state = State::Confirming;
                if fault_injection::is_on("reads-depend-on-level-one") {
                    return self.effects.push(Effect::AwaitReads { transaction: id, level: Level::Memory });
                }
                self.effects.push(Effect::AwaitReads { transaction: id, level });
            }
            Some(_) => {}
            None => match self.ended.admit(id) {
                Admission::Ended(Ended::StillHeld) => self.answer(id, Body::StillHeld),
                _ => self.refuse(id),
            },
        }
    }

    fn decide(
        &mut self,
        id: TransactionId,
        branches: Branches,
        request: Option<Request>,
        verdict: Verdict<W>,
        now: Duration,
    ) {
        let opening = branches.deciding_opening();
        let (Verdict::Commit(answer) | Verdict::Fail(answer)) = &verdict;
        let outcome = match self.ended.admit(id) {
            Admission::Stale => return,
            Admission::Ended(Ended::Decided(_, Some(answer))) => Outcome::Answered(answer),
            Admission::Ended(_) => Outcome::Aborted,
            Admission::Open if opening > self.opening => return,
            Admission::Open => match self.branches.get_mut(&id) {
                Some(branch) => {
                    if matches!(branch.state, State::Idle) {
                        let level = branches.level;
                        branch.state = State::ReservingDecision { branches, verdict };
                        self.effects.push(Effect::Reserve { transaction: id, level });
                    }
                    return;
                }
                // What an earlier opening has decided.
                None if self.decider.remembers(id) == Some(Decision::Commit)
                    && !self.decider.may_have_lost(&branches) =>
                {
                    Outcome::Answered(answer.clone())
                }
                None => match request.map(|request| self.find_answer(request, now)) {
                    Some(Found::Answered(reply)) => return self.answer_at(branches.level, id, reply),
                    Some(Found::New) if !self.decider.may_have_lost(&branches) => Outcome::Aborted,
                    // Its decision may have been forgotten.
                    _ => Outcome::Unknown,
                },
            },
        };
        self.answer(id, Body::Outcome(outcome));
    }

    /// Answers a request from its row, once the row is durable at the level that it is asked for at now. The request
    /// may have been answered at a lower one.
    fn answer_at(&mut self, level: Level, id: TransactionId, reply: W::Reply) {
        if fault_injection::is_on("rows-answer-below-their-level") {
            return self.answer(id, Body::Outcome(Outcome::Answered(reply)));
        }
        self.answering.insert(id, reply);
        self.effects.push(Effect::AwaitAnswer { transaction: id, level });
    }

    fn reserve(&mut self, id: TransactionId, branches: Branches, rides: Option<Rides<W>>) {
        if fault_injection::is_on("prepare-without-room") {
            return self.write_prepared(id, branches, rides);
        }
        let branch = self.branches.get_mut(&id).expect("it is here");
        let level = branches.level;
        branch.state = State::Reserving { branches, rides };
        self.effects.push(Effect::Reserve { transaction: id, level });
    }

    fn write_prepared(&mut self, id: TransactionId, branches: Branches, rides: Option<Rides<W>>) {
        let (level, rows) = (branches.level, vec![RowChange::Prepared(id, branches.clone())]);
        self.branches.get_mut(&id).expect("it is here").state = State::Preparing { branches, rides };
        self.effects.push(Effect::Prepare { transaction: id, rows, level });
    }

    /// There is no such branch; the coordinator is told so if it still waits.
    fn refuse(&mut self, id: TransactionId) {
        if !matches!(self.ended.admit(id), Admission::Stale) {
            self.answer(id, Body::NoBranch);
        }
    }

    /// Those branches of some coordinators that are not prepared.
    fn those_that_may_abort(&self, of: impl Fn(&TransactionId) -> bool) -> Vec<TransactionId> {
        let may_abort =
            |(id, branch): (&TransactionId, &Branch<W>)| (of(id) && branch.state.may_abort()).then_some(*id);
        self.branches.iter().filter_map(may_abort).collect()
    }

    /// Aborts a branch that has not ended, and sees to it that nothing opens it again.
    pub(super) fn abort(&mut self, id: TransactionId, now: Duration) {
        let branch = &self.branches[&id];
        let (rows, level) = match &branch.state {
            State::Preparing { branches, .. } | State::Prepared { branches, .. } => {
                let branches = branches.clone();
                let level = branches.level;
                self.begin_aborting(id, branches);
                (vec![RowChange::NotPrepared(id)], level)
            }
            _ => (Vec::new(), Level::Memory),
        };
        if !matches!(self.branches[&id].state, State::Parked) {
            self.effects.push(Effect::Abort { transaction: id, rows, level });
        }
        self.end(id, Ended::Aborted, now);
    }

    /// Takes a branch out, and begins one that has waited for it.
    pub(super) fn end(&mut self, id: TransactionId, how: Ended<W>, now: Duration) {
        self.ended.end(id, how);
        let branch = self.branches.remove(&id).expect("it is here");
        let Some(request) = branch.request else { return };
        let waits = |(_, other): &(&TransactionId, &Branch<W>)| {
            matches!(other.state, State::Parked)
                && other.request.is_some_and(|of| of.session == request.session)
        };
        // Each that begins keeps the others waiting, or is answered as they will be.
        let waiting: Vec<_> = self.branches.iter().filter(waits).map(|(id, _)| *id).collect();
        waiting.into_iter().for_each(|id| self.begin(id, now));
    }

    pub(super) fn answer(&mut self, id: TransactionId, body: Body<W>) {
        self.send(id, Address::Coordinator(id.node), body);
    }

    pub(super) fn send(&mut self, transaction: TransactionId, to: Address, body: Body<W>) {
        let from = Sender::Partition(self.id, self.opening);
        self.effects.push(Effect::Send(Message { from, to, transaction, body }));
    }
}
