//! [`Action`]: a part of a flow that works on one table, or on one index of it.

use std::fmt;
use std::sync::Arc;

use super::identifier::IdentifierPart;
use super::procedure::{Arguments, Outputs};
use crate::error::{Error, Result};
use crate::isolate::RecordMode;
use crate::row::{Schema, Value, WhichIndex};
use crate::txn::Transaction;

/// The function of an action.
pub(super) type Body =
    Arc<dyn Fn(&mut Transaction, &Arguments<'_>, &mut Outputs) -> Result<()> + Send + Sync>;

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

/// A part of a transaction that works on one table, on the rows that its identifier names; or
/// [on an index](Action::on_index) of the table, on the entries that it names.
///
/// The identifier is the values of the table's first routing fields: the columns of its primary key, or the first
/// columns of a table without one. An action touches only rows that have these values there; without an identifier it
/// may touch the whole table. Other reads and writes are refused, on every engine, with an error that names them and
/// the action. An action may also read by a secondary index whose key begins with the columns of its identifier. (In
/// a table without a primary key, rows are reached by hidden numbers, which do not say to which identifier a row
/// belongs: an action that has an identifier there inserts rows, or scans by an index that begins with its columns.)
/// Two identifiers overlap if one is a prefix of the other.
///
/// A flow is a template. If some calls need an action and others do not, or if the arguments say how often it is
/// needed, the flow has as many actions as a call can need, and each is [left out](Action::when) of calls that do not
/// need it.
#[derive(Clone)]
pub struct Action {
    pub(crate) target: Option<ActionTarget>,
    /// None: the action only locks its identifier.
    pub(super) body: Option<Body>,
}

impl Action {
    /// An action that reads a table.
    pub fn shared(
        table: impl Into<String>,
        body: impl Fn(&mut Transaction, &Arguments<'_>, &mut Outputs) -> Result<()> + Send + Sync + 'static,
    ) -> Action {
        Action::on(table.into(), ActionMode::Shared, Some(Arc::new(body)))
    }

    /// An action that reads and writes a table.
    pub fn exclusive(
        table: impl Into<String>,
        body: impl Fn(&mut Transaction, &Arguments<'_>, &mut Outputs) -> Result<()> + Send + Sync + 'static,
    ) -> Action {
        Action::on(table.into(), ActionMode::Exclusive, Some(Arc::new(body)))
    }

    /// An action without a body, which only locks its identifier for the rest of the transaction, for the use of a
    /// later phase. With local locks its identifier is locked with those of its own phase. So flows that lock their
    /// tables in the same order cannot deadlock, even if a later phase decides what is done in a table. An engine that
    /// locks rows leaves the action out.
    pub fn claim(table: impl Into<String>, mode: ActionMode) -> Action {
        Action::on(table.into(), mode, None)
    }

    /// The action of a plain closure, which may do anything, on any table.
    pub(super) fn anything(body: Body) -> Action {
        Action { target: None, body: Some(body) }
    }

    fn on(name: String, mode: ActionMode, body: Option<Body>) -> Action {
        let target = ActionTarget {
            name,
            mode,
            index: None,
            identifier: Vec::new(),
            condition: None,
            needs: Vec::new(),
        };
        Action { target: Some(target), body }
    }

    fn target(&mut self) -> &mut ActionTarget {
        self.target.as_mut().expect("made by Action::on")
    }

    /// Makes it an action on a secondary index of the table: its identifier is the values of the index's first
    /// columns, and it is routed, and locks, by these.
    ///
    /// It reads the *entries* that its identifier names ([`Transaction::probe`], [`Transaction::entries`]): for each
    /// row that exists and has this key, the columns of the index and of the primary key. It passes these to a later
    /// phase whose actions are identified by them ([`Action::by_output`]). While the identifier is locked, no entry
    /// is added or removed there. So the rows that were found exist, have these keys, and are all that have them. The
    /// other columns of a row are not available: the row belongs to its own executor.
    ///
    /// Only changes of rows change an index, so such an action changes nothing. In exclusive mode it says that a later
    /// phase changes the rows that it finds. An engine that locks rows then locks them exclusively at once, if the
    /// probe asks for it ([`ScanMode::Update`](crate::ScanMode)). The locks on the index are shared even then.
    #[must_use]
    pub fn on_index(mut self, name: impl Into<String>) -> Action {
        self.target().index = Some(name.into());
        self
    }

    /// Adds to the identifier: the next routing field has the value of the argument at this position.
    #[must_use]
    pub fn by_argument(self, position: usize) -> Action {
        self.by_part(IdentifierPart::Argument(position))
    }

    /// Adds to the identifier: the next routing field has this value, which is computed from the arguments and from
    /// nothing else. It may be computed several times in a call; if the results differ, the call ends with an error.
    #[must_use]
    pub fn by(self, compute: fn(&[Value]) -> Value) -> Action {
        self.by_part(IdentifierPart::Computed(compute))
    }

    /// Adds to the identifier: the next routing field has the value at this position of [`Outputs::earlier`], the
    /// outputs of earlier phases. It is an error if there is no such output, unless the action is left out of the
    /// call ([`Action::when_output`]).
    #[must_use]
    pub fn by_output(self, position: usize) -> Action {
        self.by_part(IdentifierPart::Output(position))
    }

    fn by_part(mut self, part: IdentifierPart) -> Action {
        self.target().identifier.push(part);
        self
    }

    /// Leaves the action out of calls for which this is false: it is not routed, takes no locks, does not run and has
    /// no outputs. Its identifier is not computed then. The arguments are of their declared types, or NULL.
    #[must_use]
    pub fn when(mut self, condition: fn(&[Value]) -> bool) -> Action {
        self.target().condition = Some(condition);
        self
    }

    /// Leaves the action out, as [`Action::when`], of calls in which earlier phases have no output at this position,
    /// or NULL there, because they found nothing. If several positions are given, all of them need an output.
    #[must_use]
    pub fn when_output(mut self, position: usize) -> Action {
        self.target().needs.push(position);
        self
    }

    /// Whether the action is part of a call with these arguments and these outputs of earlier phases.
    pub fn is_part_of(&self, arguments: &[Value], earlier: &[Value]) -> bool {
        let Some(target) = &self.target else { return true };
        target.condition.is_none_or(|condition| condition(arguments))
            && target
                .needs
                .iter()
                .all(|&position| earlier.get(position).is_some_and(|value| !value.is_null()))
    }

    /// The condition on the arguments of calls that it is part of; all calls, if none.
    pub(crate) fn condition(&self) -> Option<fn(&[Value]) -> bool> {
        self.target.as_ref().and_then(|target| target.condition)
    }

    /// Whether functions of the user say what it names, or which calls it is part of.
    pub(super) fn has_functions(&self) -> bool {
        let is_computed = |part: &IdentifierPart| matches!(part, IdentifierPart::Computed(_));
        self.condition().is_some() || self.identifier().iter().any(is_computed)
    }

    /// The outputs that it needs to be part of a call.
    pub(crate) fn needs(&self) -> &[usize] {
        self.target.as_ref().map_or(&[], |target| &target.needs)
    }

    /// The name of the table; none for the action of [`Flow::of`](super::Flow::of).
    pub fn table(&self) -> Option<&str> {
        self.target.as_ref().map(|target| target.name.as_str())
    }

    /// The name of the index, for an action on one.
    pub fn index(&self) -> Option<&str> {
        self.target.as_ref().and_then(|target| target.index.as_deref())
    }

    /// Whether it changes rows.
    pub fn mode(&self) -> ActionMode {
        self.target.as_ref().map_or(ActionMode::Exclusive, |target| target.mode)
    }

    /// Whether it may write.
    pub(super) fn writes(&self) -> bool {
        self.mode() == ActionMode::Exclusive
    }

    /// Whether it only locks its identifier.
    pub fn is_claim(&self) -> bool {
        self.body.is_none()
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
            .field("index", &self.index())
            .field("mode", &self.mode())
            .field("identifier", &self.identifier())
            .finish_non_exhaustive()
    }
}

/// The table or index that an action works on.
#[derive(Clone)]
pub(crate) struct ActionTarget {
    name: String,
    mode: ActionMode,
    /// The index that it is on, if it is not on the table itself.
    index: Option<String>,
    identifier: Vec<IdentifierPart>,
    /// The condition on the arguments of calls that the action is part of; all calls, if none.
    condition: Option<fn(&[Value]) -> bool>,
    /// The outputs without which it is left out.
    needs: Vec<usize>,
}

impl ActionTarget {
    /// The table's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn mode(&self) -> ActionMode {
        self.mode
    }

    /// The mode in which its identifier is locked, where identifiers are locked. An index is only written through its
    /// rows, so on an index the mode is shared.
    pub fn lock_mode(&self) -> RecordMode {
        if self.is_on_index() { RecordMode::Shared } else { self.mode.into() }
    }

    /// Whether it works on a secondary index.
    pub fn is_on_index(&self) -> bool {
        self.index.is_some()
    }

    /// The parts of its identifier.
    #[inline]
    pub fn identifier(&self) -> &[IdentifierPart] {
        &self.identifier
    }

    /// How many parts the identifier has.
    pub fn parts(&self) -> usize {
        self.identifier.len()
    }

    /// The index whose keys begin with its identifier.
    pub fn which(&self, schema: &Schema) -> Result<WhichIndex> {
        let Some(name) = &self.index else { return Ok(WhichIndex::Primary) };
        match schema.index_named(name)? {
            WhichIndex::Primary => Err(Error::NoSuchIndex { index: format!("{name} (a secondary one)") }),
            secondary => Ok(secondary),
        }
    }

    /// `action on table "orders"`.
    pub fn describe(&self) -> String {
        match &self.index {
            None => format!("action on table \"{}\"", self.name),
            Some(index) => format!("action on index \"{index}\" of table \"{}\"", self.name),
        }
    }
}
