//! [`Flow`]: phases of actions, the form of every transaction.

use std::sync::Arc;

use super::action::Action;
use super::identifier::IdentifierPart;
use super::procedure::{Arguments, Outputs};
use crate::error::Result;
use crate::txn::Transaction;

/// The most actions of a phase: their positions are kept in 16 bits.
const ACTIONS_MAX: usize = 1 << 16;

/// A transaction's template: phases of [`Action`]s, with a rendezvous point after each phase. It is made once and run
/// many times, with different arguments.
///
/// A flow has one meaning on every engine: an action sees the writes of earlier phases, and of its own phase only
/// those of earlier actions whose identifiers overlap its own. Overlapping actions run in the order in which they
/// stand in the flow; others of one phase may run at the same time.
#[derive(Debug, Clone, Default)]
pub struct Flow {
    phases: Vec<Vec<Action>>,
}

impl Flow {
    /// A flow without phases.
    pub fn new() -> Flow {
        Flow::default()
    }

    /// Adds a phase. Its actions, at most 65,536, run after all those of the phases before it.
    #[must_use]
    pub fn phase(mut self, actions: impl IntoIterator<Item = Action>) -> Flow {
        self.phases.push(actions.into_iter().collect());
        self
    }

    /// The flow of a plain closure: one action, which may do anything.
    pub fn of(
        body: impl Fn(&mut Transaction, &Arguments<'_>, &mut Outputs) -> Result<()> + Send + Sync + 'static,
    ) -> Flow {
        Flow::new().phase([Action::anything(Arc::new(body))])
    }

    /// The phases, in order.
    pub fn phases(&self) -> &[Vec<Action>] {
        &self.phases
    }

    /// What is wrong with this flow for calls with so many arguments, if anything.
    pub(crate) fn problem(&self, arguments: usize) -> Option<String> {
        if self.phases.is_empty() {
            return Some(
                "its flow has no phase: give it at least one (Flow::phase, or Flow::of a closure)".into(),
            );
        }
        for (phase, actions) in self.phases.iter().enumerate() {
            if actions.is_empty() {
                return Some(format!("phase {} of its flow has no action: leave it out", phase + 1));
            }
            if actions.len() > ACTIONS_MAX {
                return Some(format!(
                    "phase {} of its flow has {} actions, expected at most {ACTIONS_MAX}: divide it into several phases",
                    phase + 1,
                    actions.len()
                ));
            }
            for action in actions {
                let problem = action.identifier().iter().find_map(|part| match *part {
                    IdentifierPart::Argument(position) if position >= arguments => Some(format!(
                        "identified by argument {position}, but there are {arguments}, counted from 0"
                    )),
                    IdentifierPart::Output(position) if phase == 0 => Some(format!(
                        "identified by output {position} of earlier phases, but there is none before it"
                    )),
                    _ => None,
                });
                let needed = action.needs().first().filter(|_| phase == 0).map(|position| {
                    format!(
                        "left out without output {position} of earlier phases, but there is none before it"
                    )
                });
                if let Some(problem) = problem.or(needed) {
                    let table = action.table().unwrap_or_default();
                    return Some(format!(
                        "the action on table \"{table}\" in phase {} is {problem}",
                        phase + 1
                    ));
                }
            }
        }
        None
    }
}

impl From<Action> for Flow {
    fn from(action: Action) -> Flow {
        Flow::new().phase([action])
    }
}
