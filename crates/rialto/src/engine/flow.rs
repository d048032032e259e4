//! [`Flow`]: phases of actions, the form of every transaction.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::procedure::{Arguments, Outputs};
use crate::catalog::{Catalog, Table};
use crate::error::Result;
use crate::lock::RecordMode;
use crate::row::{IntoKey, Key, KeyPart, KeyShape, Value};
use crate::txn::Transaction;

/// What an action does.
type Body = Arc<dyn Fn(&mut Transaction, &Arguments<'_>, &mut Outputs) -> Result<()> + Send + Sync>;

/// A transaction's template: phases of [`Action`]s, with a rendezvous point after each phase. It is made once and run
/// many times, with other arguments.
///
/// A flow has one meaning on every engine: an action sees the writes of earlier phases, and of its own phase only those
/// of earlier actions whose identifiers overlap its own. Those run in the order in which they stand in the flow; others
/// of one phase may run at the same time.
#[derive(Debug, Clone, Default)]
pub struct Flow {
    phases: Vec<Vec<Action>>,
}

impl Flow {
    /// A flow without phases.
    pub fn new() -> Flow {
        Flow::default()
    }

    /// Adds a phase. Its actions run after all those of the phases before it.
    #[must_use]
    pub fn phase(mut self, actions: impl IntoIterator<Item = Action>) -> Flow {
        self.phases.push(actions.into_iter().collect());
        self
    }

    /// The flow that a plain closure is: of one action, which may do anything.
    pub fn of(
        body: impl Fn(&mut Transaction, &Arguments<'_>, &mut Outputs) -> Result<()> + Send + Sync + 'static,
    ) -> Flow {
        Flow::new().phase([Action { target: None, body: Arc::new(body) }])
    }

    /// The phases, in order.
    pub fn phases(&self) -> &[Vec<Action>] {
        &self.phases
    }

    /// What keeps this from being a flow of so many arguments, if anything.
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
            for target in actions.iter().filter_map(|action| action.target.as_ref()) {
                for part in &target.identifier {
                    if let IdentifierPart::Argument(position) = part
                        && *position >= arguments
                    {
                        return Some(format!(
                            "the action on table \"{}\" in phase {} is identified by argument {position}, but there \
                             are {arguments}, counted from 0",
                            target.name,
                            phase + 1
                        ));
                    }
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

/// Whether an action changes rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ActionMode {
    /// It only reads. Actions in this mode do not wait for each other.
    Shared,
    /// It reads and writes.
    Exclusive,
}

impl From<ActionMode> for RecordMode {
    fn from(mode: ActionMode) -> RecordMode {
        match mode {
            ActionMode::Shared => RecordMode::Shared,
            ActionMode::Exclusive => RecordMode::Exclusive,
        }
    }
}

/// Where one part of an action's identifier comes from.
#[derive(Debug, Clone, Copy)]
pub enum IdentifierPart {
    /// It is the argument at this position, counted from 0.
    Argument(usize),
    /// It is worked out from the arguments.
    Computed(fn(&[Value]) -> Value),
}

impl IdentifierPart {
    /// The part, for these arguments.
    pub(crate) fn value(self, arguments: &[Value]) -> Value {
        match self {
            IdentifierPart::Argument(position) => arguments[position].clone(),
            IdentifierPart::Computed(compute) => compute(arguments),
        }
    }
}

/// A part of a transaction that works on one table, on the rows that its identifier names.
///
/// The identifier is the values of the table's first routing fields: the columns of its primary key, or the first columns
/// of a table without one. An action touches only rows that have these values there; without any, it may touch the whole
/// table. Two identifiers overlap if one is a prefix of the other.
///
/// A flow is a template, so what some calls do and others do not, or do a number of times that their arguments say, is as
/// many actions as there can be, each [left out](Action::when) of the calls that it is not of.
#[derive(Clone)]
pub struct Action {
    pub(crate) target: Option<Target>,
    pub(crate) body: Body,
}

impl Action {
    /// An action that reads a table.
    pub fn shared(
        table: impl Into<String>,
        body: impl Fn(&mut Transaction, &Arguments<'_>, &mut Outputs) -> Result<()> + Send + Sync + 'static,
    ) -> Action {
        Action::on(table.into(), ActionMode::Shared, Arc::new(body))
    }

    /// An action that reads and writes a table.
    pub fn exclusive(
        table: impl Into<String>,
        body: impl Fn(&mut Transaction, &Arguments<'_>, &mut Outputs) -> Result<()> + Send + Sync + 'static,
    ) -> Action {
        Action::on(table.into(), ActionMode::Exclusive, Arc::new(body))
    }

    fn on(name: String, mode: ActionMode, body: Body) -> Action {
        let target = Target {
            name,
            mode,
            identifier: Vec::new(),
            condition: None,
            table: OnceLock::new(),
            checked: AtomicU64::new(0),
        };
        Action { target: Some(target), body }
    }

    /// Adds to the identifier: the next routing field has the value of the argument at this position.
    #[must_use]
    pub fn by_argument(self, position: usize) -> Action {
        self.by_part(IdentifierPart::Argument(position))
    }

    /// Adds to the identifier: the next routing field has this value, worked out from the arguments.
    #[must_use]
    pub fn by(self, compute: fn(&[Value]) -> Value) -> Action {
        self.by_part(IdentifierPart::Computed(compute))
    }

    fn by_part(mut self, part: IdentifierPart) -> Action {
        self.target.as_mut().expect("made by Action::on").identifier.push(part);
        self
    }

    /// Leaves the action out of calls of which this is false: it is not routed, locks nothing, runs nothing and gives
    /// nothing. Its identifier is not looked at then. The arguments are of their declared types, or NULL.
    #[must_use]
    pub fn when(mut self, condition: fn(&[Value]) -> bool) -> Action {
        self.target.as_mut().expect("made by Action::on").condition = Some(condition);
        self
    }

    /// Whether it is part of a call with these arguments.
    pub fn is_part_of(&self, arguments: &[Value]) -> bool {
        self.condition().is_none_or(|condition| condition(arguments))
    }

    /// Which calls it is part of; all, if none.
    pub(crate) fn condition(&self) -> Option<fn(&[Value]) -> bool> {
        self.target.as_ref().and_then(|target| target.condition)
    }

    /// The name of the table; none of the one action of [`Flow::of`].
    pub fn table(&self) -> Option<&str> {
        self.target.as_ref().map(|target| target.name.as_str())
    }

    /// Whether it changes rows.
    pub fn mode(&self) -> ActionMode {
        self.target.as_ref().map_or(ActionMode::Exclusive, |target| target.mode)
    }

    /// The parts of its identifier.
    pub fn identifier(&self) -> &[IdentifierPart] {
        self.target.as_ref().map_or(&[], |target| &target.identifier)
    }
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Action")
            .field("table", &self.table())
            .field("mode", &self.mode())
            .field("identifier", &self.identifier())
            .finish_non_exhaustive()
    }
}

/// What an action works on.
pub(crate) struct Target {
    pub name: String,
    pub mode: ActionMode,
    identifier: Vec<IdentifierPart>,
    /// Which calls the action is part of; all, if none.
    condition: Option<fn(&[Value]) -> bool>,
    /// The table that had the name when the action ran first.
    table: OnceLock<Table>,
    /// The version of the catalog, plus one, in which it was last seen to have it still.
    checked: AtomicU64,
}

impl Clone for Target {
    /// The copy knows no table yet: it may be for another database.
    fn clone(&self) -> Target {
        let Target { name, mode, identifier, condition, .. } = self;
        Target {
            name: name.clone(),
            mode: *mode,
            identifier: identifier.clone(),
            condition: *condition,
            table: OnceLock::new(),
            checked: AtomicU64::new(0),
        }
    }
}

impl Target {
    /// The table, without a look at the catalog's map (whose lock is a line that all threads write) unless the catalog
    /// has changed.
    pub fn table(&self, catalog: &Catalog) -> Result<Cow<'_, Table>> {
        let version = catalog.version() + 1;
        if self.checked.load(Ordering::Acquire) == version
            && let Some(table) = self.table.get()
        {
            return Ok(Cow::Borrowed(table));
        }
        let current = catalog.table(&self.name)?;
        let table = self.table.get_or_init(|| current.clone());
        if table.id() != current.id() {
            // Another table by now.
            return Ok(Cow::Owned(current));
        }
        self.checked.store(version, Ordering::Release);
        Ok(Cow::Borrowed(table))
    }

    /// How many parts the identifier has.
    pub fn parts(&self) -> usize {
        self.identifier.len()
    }

    /// Replaces `out` by what the keys of all rows begin with that the action may touch. Nothing, for a table without a
    /// primary key: its rows' identity says nothing of their columns.
    pub fn key_prefix(&self, arguments: &[Value], shape: &KeyShape, out: &mut Key) -> Result<()> {
        out.clear();
        if self.identifier.is_empty() || shape.is_row_number() {
            return Ok(());
        }
        Identifier { parts: &self.identifier, arguments }.encode_prefix_into(shape, out)
    }
}

/// An action's identifier, for these arguments.
struct Identifier<'a> {
    parts: &'a [IdentifierPart],
    arguments: &'a [Value],
}

impl IntoKey for Identifier<'_> {
    fn parts(&self) -> usize {
        self.parts.len()
    }

    fn append_parts(&self, shape: &KeyShape, out: &mut Key) -> Result<()> {
        self.parts.iter().enumerate().try_for_each(|(nth, part)| match part {
            IdentifierPart::Argument(position) => self.arguments[*position].append_part(shape, nth, out),
            IdentifierPart::Computed(compute) => compute(self.arguments).append_part(shape, nth, out),
        })
    }
}
