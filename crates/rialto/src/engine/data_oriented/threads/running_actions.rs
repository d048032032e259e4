//! [`RunningActions`]: actions of a phase that one thread runs.

use smallvec::SmallVec;

use crate::engine::action::Action;
use crate::engine::binding::Binding;
use crate::engine::data_oriented::plans::PhaseCounts;
use crate::engine::phase::BoundAction;
use crate::engine::prepared::Prepared;
use crate::engine::procedure::Outputs;
use crate::error::Result;
use crate::row::Value;
use crate::txn::Transaction;

/// Actions that are being run, on one thread.
pub(super) struct RunningActions<'a> {
    pub procedure: &'a Prepared,
    pub transaction: &'a mut Transaction<'static>,
    pub arguments: &'a [Value],
    pub outputs: &'a mut Outputs,
    pub counts: PhaseCounts<'a>,
}

impl RunningActions<'_> {
    /// Runs one, and counts how it ends.
    pub fn action(&mut self, action: &mut BoundAction<'_>, position: u16) -> Result<()> {
        self.transaction.begin_action(position);
        let ended = action.run(self.procedure, self.transaction, self.arguments, self.outputs);
        self.counts.ran(position, ended.as_ref().err());
        ended
    }

    /// Runs them in this order; their outputs and choices stand in the flow's all the same.
    pub fn in_turn(
        &mut self,
        actions: &mut [BoundAction<'_>],
        positions: &[u16],
        order: &[u16],
    ) -> Result<()> {
        let (mut ran, mut ends): (SmallVec<[u16; 16]>, SmallVec<[usize; 16]>) = Default::default();
        self.transaction.begin_turns();
        for &nth in order {
            let position = positions[usize::from(nth)];
            let ended = self.action(&mut actions[usize::from(nth)], position);
            if self.transaction.needs_whole() {
                // Whatever its body made of the error.
                return ended;
            }
            if ended.is_err() {
                self.transaction.end_split(Some(position));
                return ended;
            }
            ran.push(position);
            ends.push(self.outputs.values().len());
        }
        self.transaction.end_split(None);
        let given = self.outputs.take_own(&ran, &ends);
        give(self.outputs, given);
        Ok(())
    }
}

/// The actions at these positions.
pub(super) fn actions_at<'a>(
    phase: &'a [Action],
    bindings: &'a [Option<Binding>],
    positions: &[u16],
) -> impl Iterator<Item = (&'a Action, Option<&'a Binding>)> {
    positions.iter().map(|&at| usize::from(at)).map(|at| (&phase[at], bindings[at].as_ref()))
}

/// Puts what actions of the phase under way have given into the flow's order.
pub(super) fn give(outputs: &mut Outputs, mut given: Vec<(u16, Vec<Value>)>) {
    given.sort_by_key(|(action, _)| *action);
    given.into_iter().flat_map(|(_, values)| values).for_each(|value| outputs.push(value));
}
