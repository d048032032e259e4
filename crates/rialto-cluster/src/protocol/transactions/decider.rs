//! The decisions that a partition remembers for others (C10), and what it does for transactions whose decision it may
//! have lost.
//!
//! Invariants kept here: a decision is told only when its row is durable at its transaction's level. It is forgotten
//! only when each branch that had prepared has confirmed that its own commit is durable, and told to be forgotten only
//! when that is durable, too. After a loss of this partition, nothing is presumed about a transaction whose
//! deciding branch ran under an opening before the loss. The branches are asked instead, then an operator, and what
//! they say is a decision as any other: a row first, an abort, too.

use std::collections::BTreeMap;
use std::time::Duration;

use rialto::fault_injection;

use super::{
    Address, Body, Branches, Decision, Effect, Lost, Message, Opening, RowChange, Sender, Standing, Step,
    TransactionId, Work,
};
use crate::protocol::PartitionId;

/// How often the branches of a transaction that waits for an operator are asked again: a loss of theirs changes what
/// they have.
pub const ASK_ANEW: Duration = Duration::from_secs(1);

/// How often a decision is told again to branches that have not confirmed.
pub const TELL_AGAIN: Duration = Duration::from_millis(20);

#[derive(Debug)]
enum State {
    /// The row is being written, after a loss.
    Recording,
    /// The branches are told, the next time then.
    Telling(Duration),
    /// All have confirmed; the row is being removed.
    Forgetting,
}

#[derive(Debug)]
struct Remembered {
    decision: Decision,
    branches: Branches,
    unconfirmed: Vec<PartitionId>,
    state: State,
}

#[derive(Debug)]
struct Inquiry {
    branches: Branches,
    began: Duration,
    heard: BTreeMap<PartitionId, Standing>,
    ask_at: Duration,
    /// Its coordinator has given it up: it needs no operator.
    is_given_up: bool,
    with_operator: bool,
}

/// A transaction that waits for an operator: after a loss its deciding partition has no decision of it, and no
/// branch knows one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecided {
    /// The transaction.
    pub id: TransactionId,
    /// How long the deciding partition has asked for the decision, in this opening.
    pub age: Duration,
    /// The partitions whose branches are prepared: they keep their locks, and end as the operator says.
    pub prepared: Vec<PartitionId>,
    /// The partitions that have had losses themselves, and have nothing of the transaction any more.
    pub lost: Vec<PartitionId>,
}

/// What is known of a transaction when a branch of it asks, after a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inquirer {
    /// Nothing else.
    InDoubt,
    /// Its coordinator has never asked for a decision, and never will.
    GivenUp,
}

/// The deciding partition's memory.
#[derive(Debug)]
pub(super) struct Decider {
    partition: PartitionId,
    opening: Opening,
    /// What the partition may have lost.
    lost: Lost,
    decisions: BTreeMap<TransactionId, Remembered>,
    inquiries: BTreeMap<TransactionId, Inquiry>,
}

impl Decider {
    pub fn open(
        (partition, opening): (PartitionId, Opening),
        lost: Lost,
        rows: Vec<(TransactionId, Decision, Branches)>,
        now: Duration,
    ) -> Decider {
        let (decisions, inquiries) = (BTreeMap::new(), BTreeMap::new());
        let mut decider = Decider { partition, opening, lost, decisions, inquiries };
        for (id, decision, branches) in rows {
            decider.insert(id, decision, branches, State::Telling(now));
        }
        decider
    }

    /// Whether this partition may have lost what it knew of a transaction.
    pub fn may_have_lost(&self, branches: &Branches) -> bool {
        let may_have = self.lost.has(branches.deciding_opening(), branches.level);
        may_have && !fault_injection::is_on("lost-decisions-presumed-aborted")
    }

    /// The decision that is remembered, told or not.
    pub fn remembers(&self, id: TransactionId) -> Option<Decision> {
        self.decisions.get(&id).map(|remembered| remembered.decision)
    }

    /// Whether the row of its decision is not durable yet.
    pub fn is_recording(&self, id: TransactionId) -> bool {
        self.decisions.get(&id).is_some_and(|remembered| matches!(remembered.state, State::Recording))
    }

    /// Whether there is a decision of it that is not confirmed, or an inquiry.
    pub fn has(&self, id: TransactionId) -> bool {
        self.decisions.contains_key(&id) || self.inquiries.contains_key(&id)
    }

    /// How many decisions and inquiries are open.
    pub fn len(&self) -> usize {
        self.decisions.len() + self.inquiries.len()
    }

    /// Tells a decision to commit whose row is durable.
    pub fn tell<W: Work>(
        &mut self,
        id: TransactionId,
        branches: Branches,
        now: Duration,
        effects: &mut Vec<Effect<W>>,
    ) {
        self.insert(id, Decision::Commit, branches, State::Telling(now + TELL_AGAIN));
        self.send_decision(id, effects);
    }

    /// A branch asks: repeats the decision, if it is told already.
    pub fn repeat<W: Work>(&self, id: TransactionId, to: PartitionId, effects: &mut Vec<Effect<W>>) {
        let Some(remembered) = self.decisions.get(&id) else { return };
        if !matches!(remembered.state, State::Recording) {
            let body = Body::Decided(remembered.decision, remembered.branches.clone());
            effects.push(self.message(id, to, body));
        }
    }

    /// A branch's commit, or abort, is durable.
    pub fn confirmed<W: Work>(
        &mut self,
        id: TransactionId,
        from: PartitionId,
        decision: Decision,
        branches: Branches,
        effects: &mut Vec<Effect<W>>,
    ) {
        let Some(remembered) = self.decisions.get_mut(&id) else {
            match decision {
                // The decision was to commit. Other branches may be in doubt still: it is remembered anew.
                Decision::Commit if self.may_have_lost(&branches) => {
                    self.record(id, decision, branches, effects);
                }
                Decision::Commit => effects.push(self.message(id, from, Body::Forgotten)),
                // It was presumed, and nothing remembers it.
                Decision::Abort => {}
            }
            return;
        };
        remembered.unconfirmed.retain(|unconfirmed| *unconfirmed != from);
        self.forget_if_confirmed(id, effects);
    }

    fn forget_if_confirmed<W: Work>(&mut self, id: TransactionId, effects: &mut Vec<Effect<W>>) {
        let remembered = self.decisions.get_mut(&id).expect("it is remembered");
        if remembered.unconfirmed.is_empty() && matches!(remembered.state, State::Telling(_)) {
            remembered.state = State::Forgetting;
            let level = remembered.branches.level;
            let (rows, step) = (vec![RowChange::Forgotten(id)], Step::Rows);
            effects.push(Effect::Write { transaction: id, rows, level, step });
        }
    }

    /// Rows of this transaction that were written here are durable.
    pub fn rows_durable<W: Work>(&mut self, id: TransactionId, now: Duration, effects: &mut Vec<Effect<W>>) {
        let Some(remembered) = self.decisions.get_mut(&id) else { return };
        match remembered.state {
            State::Recording => {
                remembered.state = State::Telling(now + TELL_AGAIN);
                self.send_decision(id, effects);
                // All may have confirmed while the row was written.
                self.forget_if_confirmed(id, effects);
            }
            State::Telling(_) => {}
            State::Forgetting => {
                let Some(Remembered { decision: Decision::Commit, branches, .. }) =
                    self.decisions.remove(&id)
                else {
                    return;
                };
                for branch in branches.prepared() {
                    effects.push(self.message(id, branch.partition, Body::Forgotten));
                }
            }
        }
    }

    /// A branch is in doubt about a transaction whose decision may be lost: asks all that had prepared.
    pub fn inquire<W: Work>(
        &mut self,
        id: TransactionId,
        branches: Branches,
        inquirer: Inquirer,
        now: Duration,
        effects: &mut Vec<Effect<W>>,
    ) {
        if self.inquiries.contains_key(&id) {
            return;
        }
        let is_given_up = inquirer == Inquirer::GivenUp;
        if is_given_up && fault_injection::is_on("given-up-is-never-decided") {
            return self.record(id, Decision::Abort, branches, effects);
        }
        let (heard, ask_at) = (BTreeMap::new(), now + TELL_AGAIN);
        let inquiry = Inquiry { branches, began: now, heard, ask_at, is_given_up, with_operator: false };
        self.inquiries.insert(id, inquiry);
        self.ask(id, effects);
    }

    /// The coordinator of a transaction has given it up, and has never asked for a decision. So no operator has to say how it
    /// ends; but an operator may have said so before a second loss, and then a branch tells.
    pub fn given_up<W: Work>(&mut self, id: TransactionId, effects: &mut Vec<Effect<W>>) {
        if let Some(inquiry) = self.inquiries.get_mut(&id) {
            inquiry.is_given_up = true;
            self.conclude(id, effects);
        }
    }

    /// A branch has answered [`Body::Ask`].
    pub fn hear<W: Work>(
        &mut self,
        id: TransactionId,
        from: PartitionId,
        standing: Standing,
        effects: &mut Vec<Effect<W>>,
    ) {
        let Some(inquiry) = self.inquiries.get_mut(&id) else { return };
        // What binds it to an earlier opening leaves it free to hear of a decision of that one.
        if matches!(standing, Standing::Prepared(to) if to != self.opening)
            && !fault_injection::is_on("bound-to-another-opening-counts")
        {
            return;
        }
        inquiry.heard.insert(from, standing);
        self.conclude(id, effects);
    }

    /// Ends an inquiry if what was heard tells how, or has an operator asked if all were heard.
    fn conclude<W: Work>(&mut self, id: TransactionId, effects: &mut Vec<Effect<W>>) {
        let inquiry = self.inquiries.get_mut(&id).expect("it is open");
        let says = |standing| inquiry.heard.values().any(|heard| *heard == standing);
        let all_heard = inquiry.heard.len() == inquiry.branches.prepared().count();
        if says(Standing::Committed) {
            self.settle(id, Decision::Commit, effects);
        } else if says(Standing::Ended) {
            // It had not voted, so the decision was not to commit; and it will not vote.
            self.settle(id, Decision::Abort, effects);
        } else if all_heard && (inquiry.is_given_up || !says(Standing::Prepared(self.opening))) {
            // None was told of a commit, or none is left that waits to be told.
            self.settle(id, Decision::Abort, effects);
        } else if all_heard && !inquiry.with_operator {
            inquiry.with_operator = true;
            effects.push(Effect::AskOperator { transaction: id });
        }
    }

    /// The transactions that wait for an operator.
    pub fn undecided(&self, now: Duration) -> Vec<Undecided> {
        let asked = self.inquiries.iter().filter(|(_, inquiry)| inquiry.with_operator);
        let show = |(id, inquiry): (&TransactionId, &Inquiry)| {
            let that_say = |standing| {
                let heard = inquiry.heard.iter().filter(move |(_, heard)| **heard == standing);
                heard.map(|(partition, _)| *partition).collect()
            };
            let age = now.saturating_sub(inquiry.began);
            Undecided {
                id: *id,
                age,
                prepared: that_say(Standing::Prepared(self.opening)),
                lost: that_say(Standing::Lost),
            }
        };
        asked.map(show).collect()
    }

    /// Whether a transaction waits for an operator.
    pub fn waits_for_operator(&self, id: TransactionId) -> bool {
        self.inquiries.get(&id).is_some_and(|inquiry| inquiry.with_operator)
    }

    /// Ends an inquiry.
    pub fn settle<W: Work>(&mut self, id: TransactionId, decision: Decision, effects: &mut Vec<Effect<W>>) {
        let Some(inquiry) = self.inquiries.remove(&id) else { return };
        if decision == Decision::Abort && fault_injection::is_on("inquiry-aborts-in-memory") {
            for branch in inquiry.branches.prepared() {
                let body = Body::Decided(decision, inquiry.branches.clone());
                effects.push(self.message(id, branch.partition, body));
            }
            return;
        }
        self.record(id, decision, inquiry.branches, effects);
    }

    /// Sends again what was not confirmed.
    pub fn tick<W: Work>(&mut self, now: Duration, effects: &mut Vec<Effect<W>>) {
        let mut due = Vec::new();
        for (id, remembered) in &mut self.decisions {
            if let State::Telling(at) = &mut remembered.state
                && *at <= now
            {
                *at = now + TELL_AGAIN;
                due.push(*id);
            }
        }
        due.drain(..).for_each(|id| self.send_decision(id, effects));
        for (id, inquiry) in &mut self.inquiries {
            if inquiry.ask_at <= now {
                let asks_anew = inquiry.with_operator && !fault_injection::is_on("operators-list-grows-old");
                inquiry.ask_at = now + if inquiry.with_operator { ASK_ANEW } else { TELL_AGAIN };
                if asks_anew || !inquiry.with_operator {
                    due.push(*id);
                }
            }
        }
        due.into_iter().for_each(|id| self.ask(id, effects));
    }

    fn insert(&mut self, id: TransactionId, decision: Decision, branches: Branches, state: State) {
        let unconfirmed = branches.prepared().map(|branch| branch.partition).collect();
        self.decisions.insert(id, Remembered { decision, branches, unconfirmed, state });
    }

    fn record<W: Work>(
        &mut self,
        id: TransactionId,
        decision: Decision,
        branches: Branches,
        effects: &mut Vec<Effect<W>>,
    ) {
        let (level, rows) = (branches.level, vec![RowChange::Decision(id, decision, branches.clone())]);
        self.inquiries.remove(&id);
        self.insert(id, decision, branches, State::Recording);
        effects.push(Effect::Write { transaction: id, rows, level, step: Step::Rows });
    }

    fn send_decision<W: Work>(&self, id: TransactionId, effects: &mut Vec<Effect<W>>) {
        self.decisions[&id].unconfirmed.iter().for_each(|to| self.repeat(id, *to, effects));
    }

    fn ask<W: Work>(&self, id: TransactionId, effects: &mut Vec<Effect<W>>) {
        let inquiry = &self.inquiries[&id];
        for branch in inquiry.branches.prepared() {
            if inquiry.with_operator || !inquiry.heard.contains_key(&branch.partition) {
                effects.push(self.message(id, branch.partition, Body::Ask(inquiry.branches.clone())));
            }
        }
    }

    fn message<W: Work>(&self, transaction: TransactionId, to: PartitionId, body: Body<W>) -> Effect<W> {
        let (from, to) = (Sender::Partition(self.partition, self.opening), Address::Partition(to));
        Effect::Send(Message { from, to, transaction, body })
    }
}
