//! What partitions say to each other about a transaction: decisions, confirmations, and questions (C10).
//!
//! Invariants kept here: a branch confirms only what is durable (hole 6). The deciding partition says "abort" only of a
//! transaction that cannot commit any more: it has aborted its own branch before, or makes sure that none is opened
//! (hole 7).

use std::time::Duration;

use rialto::fault_injection;

use super::branch::State;
use super::ended::{Admission, Ended};
use super::{
    Address, Body, Branches, Decision, Effect, Keeps, Level, Participant, RowChange, Standing, TransactionId,
    Work,
};
use crate::protocol::PartitionId;

/// How long a deciding branch may stay open once a prepared one asks for the decision.
pub const UNDECIDED_FOR: Duration = Duration::from_millis(60);

impl<W: Work> Participant<W> {
    pub(super) fn receive_from_partition(
        &mut self,
        id: TransactionId,
        from: PartitionId,
        body: Body<W>,
        now: Duration,
    ) {
        match body {
            Body::Decided(decision, branches) => self.decided(id, decision, branches, now),
            Body::Confirmed(branches) => self.decider.confirmed(id, from, branches, &mut self.effects),
            Body::Forgotten if self.committed.remove(&id).is_some() => {
                let rows = vec![RowChange::Settled(id)];
                self.effects.push(Effect::Write { transaction: id, rows, level: Level::Memory });
            }
            Body::Inquire(branches) => self.inquired(id, from, branches, now),
            Body::NotYet => {}
            Body::Ask(branches) => self.asked(id, from, branches, now),
            Body::Standing(standing, _) => self.decider.hear(id, from, standing, &mut self.effects),
            _ => {}
        }
    }

    /// After a forced loss, an operator says how a transaction ends of which no partition knows.
    pub fn operator_decides(&mut self, id: TransactionId, decision: Decision) {
        self.decider.settle(id, decision, &mut self.effects);
    }

    /// The deciding partition says how it ended.
    fn decided(&mut self, id: TransactionId, decision: Decision, branches: Branches, now: Duration) {
        let Some(branch) = self.branches.get_mut(&id) else {
            // It has confirmed, and says so again. What is not here was committed and settled before, or was lost by
            // force.
            if decision == Decision::Commit {
                self.send(id, Address::Partition(branches.deciding), Body::Confirmed(branches));
            }
            return;
        };
        if !matches!(branch.state, State::Prepared { .. }) {
            return;
        }
        match decision {
            Decision::Abort => self.abort(id, now),
            Decision::Commit => {
                let rows = vec![RowChange::NotPrepared(id), RowChange::Committed(id, branches.clone())];
                let (keeps, level) = (Keeps::Effects, branches.level);
                branch.state = State::Committing { branches: branches.clone() };
                self.effects.push(Effect::Commit { transaction: id, keeps, rows, level });
                if fault_injection::is_on("confirm-before-durable") {
                    self.send(id, Address::Partition(branches.deciding), Body::Confirmed(branches));
                }
            }
        }
    }

    /// A branch in doubt asks this deciding partition.
    fn inquired(&mut self, id: TransactionId, from: PartitionId, branches: Branches, now: Duration) {
        if branches.deciding_opening() > self.opening {
            // This primary is not the partition's any more.
            return;
        }
        let to = Address::Partition(from);
        if self.decider.remembers(id) {
            return self.decider.repeat(id, from, &mut self.effects);
        }
        let decision = match self.branches.get(&id) {
            Some(branch) => {
                let is_late = branch.opened_at + UNDECIDED_FOR <= now;
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
                return self.decider.inquire(id, branches, now, &mut self.effects);
            }
            None => match self.ended.admit(id) {
                Admission::Ended(Ended::Decided(decision, _)) => decision,
                // Nothing opens it from now on: what is under way names an opening or a number that is refused.
                _ => {
                    self.ended.end(id, Ended::Aborted);
                    Decision::Abort
                }
            },
        };
        self.send(id, to, Body::Decided(decision, branches));
    }

    /// The deciding partition has lost its record of a transaction, and asks.
    fn asked(&mut self, id: TransactionId, from: PartitionId, branches: Branches, now: Duration) {
        let of = branches.of(self.id).map(|branch| branch.opening);
        let standing = match self.branches.get(&id).map(|branch| &branch.state) {
            Some(State::Prepared { .. }) => Standing::Prepared,
            // It says so once that is durable.
            Some(State::Committing { .. } | State::ReservingDecision { .. } | State::Deciding { .. }) => {
                return;
            }
            Some(_) => {
                self.abort(id, now);
                Standing::Ended
            }
            None if self.committed.contains_key(&id) => Standing::Committed,
            None if self.lost.is_some_and(|lost| of.is_some_and(|of| of <= lost)) => Standing::Lost,
            None => {
                self.ended.end(id, Ended::Aborted);
                Standing::Ended
            }
        };
        self.send(id, Address::Partition(from), Body::Standing(standing, branches));
    }
}
