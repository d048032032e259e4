//! What partitions say to each other about a transaction: decisions, confirmations, and questions (C10).
//!
//! Invariants kept here: a branch confirms only what is durable. The deciding partition says "abort" only of a
//! transaction that cannot commit any more: it has aborted its own branch before, or makes sure that none is opened.
//! A partition says nothing about a branch of a later opening: its primary has been deposed, and does not
//! know.
//!
//! After a loss in the deciding partition a branch may hear of two decisions: one that was made before the loss
//! and told to it late, and one that an operator makes afterwards. A prepared branch that has been asked, and has said
//! that it is prepared, is therefore [`Bound`]: it takes only what the opening that asked, or a later one, decides. It
//! does not abort for its coordinator either, since the operator may say "commit". What binds it is a row, and durable
//! before the answer goes; the answer names the opening that it is bound to, and counts for that one alone. Likewise a
//! branch says that it has ended, and will not vote, only when nothing can bring its vote back.
//!
//! A branch that has committed keeps its row until the decision is forgotten, since a loss may take the decision.
//! A deposed primary that has aborted the transaction finds nothing to remember when it hears of the commit, and would
//! say that all is forgotten. So a committed branch is bound, too: to the opening that has told it to commit.

use std::time::Duration;

use rialto::fault_injection;

use super::branch::{Bound, State};
use super::decider::Inquirer;
use super::ended::{Admission, Ended};
use super::{
    Address, Body, Branches, Decision, Effect, Keeps, Level, Opening, Participant, RowChange, Standing, Step,
    TransactionId, Undecided, Work,
};
use crate::protocol::PartitionId;

/// How long a deciding branch may stay open from when a prepared one first asks it for the decision.
pub const UNDECIDED_FOR: Duration = Duration::from_millis(60);

/// A branch whose *Prepared* is gone, while that is being made durable, and what is told afterwards.
#[derive(Debug)]
pub(super) struct Aborting {
    /// [`Body::Ask`] is to be answered.
    is_asked: bool,
    /// [`Body::Decided`] is to be confirmed.
    confirms: bool,
    branches: Branches,
}

impl<W: Work> Participant<W> {
    pub(super) fn receive_from_partition(
        &mut self,
        id: TransactionId,
        (from, opening): (PartitionId, Opening),
        body: Body<W>,
        now: Duration,
    ) {
        let heard = self.heard.entry(from).or_default();
        if opening < *heard && !fault_injection::is_on("older-openings-heard") {
            return;
        }
        *heard = opening;
        if self.is_deposed_by(&body) && !fault_injection::is_on("deposed-answers-for-later-openings") {
            return;
        }
        match body {
            Body::Decided(decision, branches) => self.decided(id, opening, decision, branches, now),
            // It has its place here, and is not known to be durable yet: an opening after this one has told of it.
            Body::Confirmed(..)
                if self.branches.contains_key(&id)
                    && !fault_injection::is_on("forgotten-before-it-is-decided") => {}
            Body::Confirmed(decision, branches) => {
                self.decider.confirmed(id, from, decision, branches, &mut self.effects);
            }
            Body::Forgotten if self.is_told_by(id, opening) => {
                self.committed.remove(&id);
                let (rows, step) = (vec![RowChange::Settled(id)], Step::Rows);
                self.effects.push(Effect::Write { transaction: id, rows, level: Level::Memory, step });
            }
            Body::Inquire(branches) => self.inquired(id, from, branches, now),
            Body::NotYet => {}
            Body::Ask(branches) => self.asked(id, (from, opening), branches, now),
            Body::Standing(standing, _) => self.decider.hear(id, from, standing, &mut self.effects),
            _ => {}
        }
    }

    /// Whether a branch has committed, and this opening of its deciding partition may say that the decision is forgotten.
    fn is_told_by(&self, id: TransactionId, opening: Opening) -> bool {
        let told_by = self.committed.get(&id).map(|committed| committed.told_by);
        told_by.is_some_and(|by| opening >= by || fault_injection::is_on("forgotten-by-older-openings"))
    }

    /// Whether a message speaks of a branch of this partition under a later opening. Then this primary is not the
    /// partition's any more, and knows nothing of the transaction.
    fn is_deposed_by(&self, body: &Body<W>) -> bool {
        let (Body::Decided(_, branches)
        | Body::Confirmed(_, branches)
        | Body::Inquire(branches)
        | Body::Ask(branches)
        | Body::Standing(_, branches)) = body
        else {
            return false;
        };
        branches.of(self.id).is_some_and(|branch| branch.opening > self.opening)
    }

    /// The transactions that wait for an operator, after a loss.
    pub fn undecided(&self, now: Duration) -> Vec<Undecided> {
        self.decider.undecided(now)
    }

    /// After a loss, an operator says how a transaction ends of which no partition knows. False, and without an
    /// effect, if it does not wait for an operator: it has ended, or a branch may still tell.
    pub fn operator_decides(&mut self, id: TransactionId, decision: Decision) -> bool {
        let waits = self.decider.waits_for_operator(id);
        if waits {
            self.decider.settle(id, decision, &mut self.effects);
        }
        waits
    }

    /// The decision of a transaction that this deciding partition remembers, since a branch has not confirmed it.
    pub fn remembers(&self, id: TransactionId) -> Option<Decision> {
        self.decider.remembers(id)
    }

    /// Whether such a decision is not on record yet.
    pub fn is_recording(&self, id: TransactionId) -> bool {
        self.decider.is_recording(id)
    }

    /// Whether this partition knows anything of a transaction that has not ended everywhere: it has a branch of it, or a
    /// decision that is not confirmed, or asks for one.
    pub fn has(&self, id: TransactionId) -> bool {
        self.branches.contains_key(&id) || self.aborting.contains_key(&id) || self.decider.has(id)
    }

    /// The coordinator has given the transaction up.
    pub(super) fn given_up(&mut self, id: TransactionId, now: Duration) {
        match self.branches.get(&id).map(|branch| &branch.state) {
            None => {
                self.ended.end(id, Ended::Aborted);
                self.decider.given_up(id, &mut self.effects);
            }
            Some(State::Prepared { bound: Bound::No, .. }) => self.abort(id, now),
            Some(State::Prepared { .. }) if fault_injection::is_on("bound-branch-hears-its-coordinator") => {
                self.abort(id, now);
            }
            Some(state) if state.may_abort() => self.abort(id, now),
            Some(_) => {}
        }
    }

    /// The deciding partition says how it ended.
    fn decided(
        &mut self,
        id: TransactionId,
        opening: Opening,
        decision: Decision,
        branches: Branches,
        now: Duration,
    ) {
        let Some(branch) = self.branches.get_mut(&id) else {
            match self.aborting.get_mut(&id) {
                Some(aborting) => aborting.confirms = true,
                // It has ended before, or was lost. That it has committed it says only if it knows: the decision may be
                // one that was lost since, and this branch may have ended by a later one.
                None => {
                    let has_committed = self.committed.contains_key(&id)
                        || fault_injection::is_on("absent-branch-confirms-anything");
                    let ended = if has_committed { decision } else { Decision::Abort };
                    let to = Address::Partition(branches.deciding);
                    self.send(id, to, Body::Confirmed(ended, branches));
                }
            }
            return;
        };
        let State::Prepared { bound, .. } = &branch.state else { return };
        if opening < bound.least() && !fault_injection::is_on("bound-branch-hears-older-openings") {
            return;
        }
        match decision {
            Decision::Abort => {
                self.abort(id, now);
                self.aborting.get_mut(&id).expect("it was prepared").confirms = true;
            }
            Decision::Commit => {
                let mut rows = vec![RowChange::NotPrepared(id), RowChange::Committed(id, branches.clone())];
                // An opening before this one may be going on, and not know of the commit.
                if opening > branches.deciding_opening() {
                    rows.push(RowChange::Bound(id, opening));
                }
                let (keeps, level) = (Keeps::Effects, branches.level);
                branch.state = State::Committing { branches: branches.clone(), told_by: opening };
                self.effects.push(Effect::Commit { transaction: id, keeps, rows, level });
                if fault_injection::is_on("confirm-before-durable") {
                    let to = Address::Partition(branches.deciding);
                    self.send(id, to, Body::Confirmed(decision, branches));
                }
            }
        }
    }

    /// A branch in doubt asks this deciding partition.
    fn inquired(&mut self, id: TransactionId, from: PartitionId, branches: Branches, now: Duration) {
        let to = Address::Partition(from);
        let undecided_for = self.in_haste(UNDECIDED_FOR);
        if self.decider.remembers(id).is_some() {
            return self.decider.repeat(id, from, &mut self.effects);
        }
        let decision = match self.branches.get_mut(&id) {
            Some(branch) => {
                let since = if fault_injection::is_on("undecided-since-it-was-opened") {
                    branch.opened_at
                } else {
                    *branch.asked_at.get_or_insert(now)
                };
                let is_late = since + undecided_for <= now;
                if !(is_late && branch.state.may_abort()) {
                    return self.send(id, to, Body::NotYet);
                }
                // Its own branch first.
                if !fault_injection::is_on("abort-told-before-branch-is-dead") {
                    self.abort(id, now);
                }
                Decision::Abort
            }
            None if self.decider.may_have_lost(&branches) => {
                let inquirer = match self.ended.admit(id) {
                    Admission::Ended(Ended::Aborted) => Inquirer::GivenUp,
                    _ => Inquirer::InDoubt,
                };
                return self.decider.inquire(id, branches, inquirer, now, &mut self.effects);
            }
            None => match self.ended.admit(id) {
                Admission::Ended(Ended::Decided(decision, _)) => decision,
                // An earlier opening may have decided and forgotten it. Then all branches have confirmed, and the one that asks
                // is deposed, or has asked long ago. But its coordinator may not have heard, and must not hear of an abort.
                _ if branches.deciding_opening() != self.opening
                    && !fault_injection::is_on("forgotten-taken-for-aborted") =>
                {
                    Decision::Abort
                }
                // Nothing opens it from now on: what is under way names a number that is refused.
                _ => {
                    self.ended.end(id, Ended::Aborted);
                    Decision::Abort
                }
            },
        };
        self.send(id, to, Body::Decided(decision, branches));
    }

    /// The deciding partition has lost its record of a transaction, and asks.
    fn asked(
        &mut self,
        id: TransactionId,
        (from, opening): (PartitionId, Opening),
        branches: Branches,
        now: Duration,
    ) {
        let of = branches.of(self.id).map(|branch| branch.opening);
        let standing = match self.branches.get_mut(&id).map(|branch| &mut branch.state) {
            Some(State::Prepared { bound, .. }) => match bound {
                Bound::Durable(by) if *by == opening => Standing::Prepared(opening),
                bound if *bound != Bound::No && bound.least() >= opening => return,
                _ if fault_injection::is_on("bound-in-memory") => {
                    *bound = Bound::Durable(opening);
                    Standing::Prepared(opening)
                }
                _ => {
                    *bound = Bound::Writing(opening);
                    let (level, rows) = (branches.level, vec![RowChange::Bound(id, opening)]);
                    let step = Step::Bound(opening);
                    return self.effects.push(Effect::Write { transaction: id, rows, level, step });
                }
            },
            // It says so once that is durable.
            Some(State::Committing { .. } | State::ReservingDecision { .. } | State::Deciding { .. }) => {
                return;
            }
            Some(_) => {
                self.abort(id, now);
                Standing::Ended
            }
            None if self.committed.contains_key(&id) => Standing::Committed,
            None if of.is_some_and(|of| self.lost.has(of, branches.level)) => Standing::Lost,
            None => {
                self.ended.end(id, Ended::Aborted);
                Standing::Ended
            }
        };
        match self.aborting.get_mut(&id) {
            Some(aborting) if !fault_injection::is_on("ended-in-memory") => aborting.is_asked = true,
            _ => self.send(id, Address::Partition(from), Body::Standing(standing, branches)),
        }
    }

    /// The row that binds a prepared branch is durable: the deciding partition's question is answered.
    pub(super) fn is_bound(&mut self, id: TransactionId, by: Opening) {
        let Some(branch) = self.branches.get_mut(&id) else { return };
        if let State::Prepared { branches, bound, .. } = &mut branch.state
            && *bound == Bound::Writing(by)
        {
            *bound = Bound::Durable(by);
            let (to, branches) = (Address::Partition(branches.deciding), branches.clone());
            self.send(id, to, Body::Standing(Standing::Prepared(by), branches));
        }
    }

    /// A branch that may have left *Prepared* aborts.
    pub(super) fn begin_aborting(&mut self, id: TransactionId, branches: Branches) {
        self.aborting.insert(id, Aborting { is_asked: false, confirms: false, branches });
    }

    /// Nothing brings *Prepared* back.
    pub(super) fn has_aborted(&mut self, id: TransactionId) {
        let Some(Aborting { is_asked, confirms, branches }) = self.aborting.remove(&id) else { return };
        let to = Address::Partition(branches.deciding);
        if is_asked {
            self.send(id, to, Body::Standing(Standing::Ended, branches.clone()));
        }
        if confirms {
            self.send(id, to, Body::Confirmed(Decision::Abort, branches));
        }
    }
}
