//! [`Over`]: a try of a call over several partitions.

use std::collections::BTreeMap;
use std::time::Duration;

use super::called::is_too_long;
use super::calling::{Tried, Trying, of_outcome};
use super::cluster::Transactions;
use super::coordinators::{Coordinated, Ended};
use super::counts::Counters;
use super::work::{Answer, SqlWork};
use crate::net::SendError;
use crate::node::calls::{CallError, Failure, Outputs, Part, ProcedureAction};
use crate::protocol::PartitionId;
use crate::protocol::transactions::{Access, Action, Coordinator, Place};

/// A try over several partitions, while it runs.
pub struct Over<'t> {
    pub node: &'t Transactions,
    pub trying: &'t Trying<'t>,
    pub accesses: &'t BTreeMap<PartitionId, Access>,
    pub deciding: PartitionId,
    pub coordinated: &'t Coordinated,
}

/// The actions of a phase by partition, each with its place among the phase's actions.
type OfPhase = BTreeMap<PartitionId, Vec<u16>>;

impl Over<'_> {
    /// Runs all phases, and ends the transaction.
    pub fn run(&self) -> Tried {
        let phases: Vec<OfPhase> =
            self.trying.procedure.phases().iter().map(|phase| self.split(phase)).collect();
        let is_numbered = self.trying.call.request.is_some();
        let mut outputs = Outputs::new();
        for (nth, phase) in phases.iter().enumerate() {
            let later = &phases[nth + 1..];
            let actions = phase.iter().map(|(partition, actions)| {
                let part = Part::Some {
                    phase: nth as u16,
                    actions: actions.clone(),
                    arguments: self.trying.call.arguments.clone(),
                    earlier: outputs.clone(),
                };
                let is_last = later.iter().all(|phase| !phase.contains_key(partition));
                let place = if is_last { Place::Last } else { Place::Open };
                Action {
                    partition: *partition,
                    action: self.trying.action(self.accesses[partition], part),
                    place,
                }
            });
            let replies = match self.act(actions.collect()) {
                Ok(replies) => replies,
                Err(tried) => return tried,
            };
            match gather(phase, replies) {
                Gathered::Outputs(own) => outputs.extend(own),
                Gathered::Failed(failure, _) if failure.is_passing() => {
                    return self.give_up(self.trying.failed(failure));
                }
                Gathered::Failed(failure, in_partitions) => {
                    return self.fail(failure, (&phases[..=nth], later), &in_partitions);
                }
                Gathered::Missing => return self.give_up(Tried::NoEffect(None)),
            }
            if is_too_long(&outputs, is_numbered) {
                return self.fail(Failure::TooLong, (&phases[..=nth], later), &[]);
            }
        }
        if is_numbered {
            return self.end(|coordinator, now| coordinator.commit(Answer::Called(Ok(outputs)), now));
        }
        // Only this node needs to know them.
        match self.end(|coordinator, now| coordinator.commit(Answer::Nothing, now)) {
            Tried::Committed => Tried::Done(Ok(outputs)),
            tried => tried,
        }
    }

    fn split(&self, phase: &[ProcedureAction]) -> OfPhase {
        let mut split = OfPhase::new();
        for (nth, action) in phase.iter().enumerate() {
            split.entry(self.trying.partition(action.key())).or_default().push(nth as u16);
        }
        split
    }

    /// Runs the actions of a phase.
    fn act(&self, actions: Vec<Action<SqlWork>>) -> Result<Vec<(PartitionId, Answer)>, Tried> {
        let low = self.node.coordinators().low();
        let messages = {
            let mut progress = self.coordinated.state.lock();
            if progress.ended.is_none() {
                progress.replies = None;
                progress.coordinator.as_mut().expect("it has one").phase(actions, low);
            }
            self.coordinated.take_effects(&mut progress)
        };
        self.node.request_all(messages).run();
        let mut progress = self.coordinated.state.lock();
        loop {
            if let Some(replies) = progress.replies.take() {
                return Ok(replies);
            }
            if let Some(ended) = progress.ended.clone() {
                drop(progress);
                return Err(self.of_ended(ended));
            }
            Counters::add(&self.node.counters().waits);
            self.coordinated.changed.wait(&mut progress);
        }
    }

    fn of_ended(&self, ended: Ended) -> Tried {
        match ended {
            Ended::As(outcome) => of_outcome(self.trying, outcome),
            Ended::NotSent(SendError::TooLong) => self.trying.refused(CallError::TooLong),
            Ended::NotSent(_) | Ended::NotOpened => Tried::NoEffect(None),
        }
    }

    /// An action has failed. With a number that is the call's answer for good. What the other branches have read led to
    /// it, too, so it is durable before it is told.
    fn fail(
        &self,
        failure: Failure,
        (sent, later): (&[OfPhase], &[OfPhase]),
        failed: &[PartitionId],
    ) -> Tried {
        let has_voted = |of: &PartitionId| {
            let is_last = later.iter().all(|phase| !phase.contains_key(of));
            is_last && self.accesses[of] == Access::Writes && *of != self.deciding
        };
        let others = self.accesses.keys().filter(|of| {
            sent.iter().any(|phase| phase.contains_key(of)) && !failed.contains(of) && !has_voted(of)
        });
        let settle = |of: &PartitionId| Action {
            partition: *of,
            action: self.trying.action(self.accesses[of], Part::Settle),
            place: Place::Open,
        };
        let settles: Vec<_> = others.map(settle).collect();
        if !settles.is_empty()
            && let Err(tried) = self.act(settles)
        {
            return tried;
        }
        if self.trying.call.request.is_some() {
            return self.end(|coordinator, now| coordinator.fail(Answer::Called(Err(failure.clone())), now));
        }
        self.give_up(self.trying.failed(failure))
    }

    fn give_up(&self, tried: Tried) -> Tried {
        self.tell(|coordinator, _| coordinator.give_up());
        tried
    }

    /// Ends the transaction, and waits for its outcome.
    fn end(&self, act: impl FnOnce(&mut Coordinator<SqlWork>, Duration)) -> Tried {
        self.tell(act);
        // The time for votes and the decision ends it.
        match self.node.wait_end(self.coordinated, None) {
            Some(ended) => self.of_ended(ended),
            None => Tried::Unknown,
        }
    }

    fn tell(&self, act: impl FnOnce(&mut Coordinator<SqlWork>, Duration)) {
        let now = self.node.now();
        let messages = {
            let mut progress = self.coordinated.state.lock();
            if progress.ended.is_none() {
                act(progress.coordinator.as_mut().expect("it has one"), now);
            }
            self.coordinated.take_effects(&mut progress)
        };
        self.node.request_all(messages).run();
    }
}

/// What the partitions have replied to a phase.
enum Gathered {
    /// The outputs of its actions, in their order.
    Outputs(Outputs),
    /// Actions in these partitions have failed; this is the first one's reason.
    Failed(Failure, Vec<PartitionId>),
    /// A partition has replied something else.
    Missing,
}

fn gather(phase: &OfPhase, replies: Vec<(PartitionId, Answer)>) -> Gathered {
    let mut replies: BTreeMap<PartitionId, Answer> = replies.into_iter().collect();
    let mut outputs: Vec<(u16, Vec<u8>)> = Vec::new();
    let (mut first, mut failed): (Option<(u16, Failure)>, _) = (None, Vec::new());
    for (partition, actions) in phase {
        match replies.remove(partition) {
            Some(Answer::Called(Ok(own))) if own.len() == actions.len() => {
                outputs.extend(actions.iter().copied().zip(own));
            }
            Some(Answer::Called(Err(failure))) => {
                failed.push(*partition);
                if first.as_ref().is_none_or(|(nth, _)| actions[0] < *nth) {
                    first = Some((actions[0], failure));
                }
            }
            _ => return Gathered::Missing,
        }
    }
    if let Some((_, failure)) = first {
        return Gathered::Failed(failure, failed);
    }
    outputs.sort_by_key(|(nth, _)| *nth);
    Gathered::Outputs(outputs.into_iter().map(|(_, output)| output).collect())
}
