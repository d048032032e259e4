//! [`Action`]: a part of a flow that works on one table, or on one index of it.

use std::fmt;
use std::sync::Arc;

use super::identifier::IdentifierPart;
use super::procedure::{Arguments, Outputs};
use crate::error::{Error, Result};
use crate::isolate::RecordMode;
use crate::row::{Schema, Value, WhichIndex};
use crate::txn::Transaction;

/// What an action does.
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
/// The identifier is the values of the table's first routing fields: the columns of its primary key, or the first columns
/// of a table without one. An action touches only rows that have these values there; without any, it may touch the whole
/// table. What it reads or writes elsewhere is refused with an error that names both, on every engine. It may also read
/// by a secondary index whose key begins with the columns of its identifier. (In a table without a primary key, rows
/// are reached by hidden numbers, which say nothing of where a row belongs: an action that has an identifier there
/// inserts rows, or scans by an index that begins with its columns.) Two identifiers overlap if one is a prefix of the
/// other.
///
/// A flow is a template, so what some calls do and others do not, or do a number of times that their arguments say, is as
/// many actions as there can be, each [left out](Action::when) of the calls that it is not of.
#[derive(Clone)]
pub struct Action {
    pub(crate) target: Option<Target>,
    /// None: it only locks its identifier.
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

    /// An action that does nothing but claim its identifier for the rest of the transaction: a later phase does what it is
    /// claimed for. With local locks it locks its identifier with those of its own phase, so that flows that visit their tables
    /// in one order cannot deadlock, whatever the phases are in which they come to know what to do there. An engine that
    /// locks rows leaves it out.
    pub fn claim(table: impl Into<String>, mode: ActionMode) -> Action {
        Action::on(table.into(), mode, None)
    }

    /// An action that may do anything, on any table.
    pub(super) fn anything(body: Body) -> Action {
        Action { target: None, body: Some(body) }
    }

    fn on(name: String, mode: ActionMode, body: Option<Body>) -> Action {
        let target =
            Target { name, mode, index: None, identifier: Vec::new(), condition: None, needs: Vec::new() };
        Action { target: Some(target), body }
    }

    fn target(&mut self) -> &mut Target {
        self.target.as_mut().expect("made by Action::on")
    }

    /// Makes it an action on a secondary index of the table: its identifier is the values of the index's first columns, and
    /// it is routed, and locks, by these (DESIGN section 5: an index that does not carry the routing fields is routed by
    /// its own key).
    ///
    /// It reads the *entries* that its identifier names ([`Transaction::probe`], [`Transaction::entries`]): of each row that
    /// is there and has this key, the columns of the index and of the primary key, which it gives to a later phase whose
    /// actions are identified by them ([`Action::by_output`]). While the identifier is locked no entry comes or goes there,
    /// so the rows found are there, have these keys, and are all that have them. The rest of a row is not to be had:
    /// it belongs to the row's own place.
    ///
    /// Nothing changes an index but changes of rows, so such an action changes nothing. In exclusive mode it says that a
    /// later phase changes what it finds: an engine that locks rows locks them so at once, if the probe asks for it
    /// ([`ScanMode::Update`](crate::ScanMode)); what is locked of the index is shared all the same.
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

    /// Adds to the identifier: the next routing field has this value, worked out from the arguments, and from nothing else: it may be
    /// asked for several times in a call, which ends with an error if it is not the same.
    #[must_use]
    pub fn by(self, compute: fn(&[Value]) -> Value) -> Action {
        self.by_part(IdentifierPart::Computed(compute))
    }

    /// Adds to the identifier: the next routing field has the value at this position of [`Outputs::earlier`], what earlier
    /// phases gave. In a call in which they gave less it is an error, unless the action is left out of it
    /// ([`Action::when_output`]).
    #[must_use]
    pub fn by_output(self, position: usize) -> Action {
        self.by_part(IdentifierPart::Output(position))
    }

    fn by_part(mut self, part: IdentifierPart) -> Action {
        self.target().identifier.push(part);
        self
    }

    /// Leaves the action out of calls of which this is false: it is not routed, locks nothing, runs nothing and gives
    /// nothing. Its identifier is not looked at then. The arguments are of their declared types, or NULL.
    #[must_use]
    pub fn when(mut self, condition: fn(&[Value]) -> bool) -> Action {
        self.target().condition = Some(condition);
        self
    }

    /// Leaves the action out, as [`Action::when`], of calls in which earlier phases gave no output at this position, or gave
    /// NULL there: of those that found nothing to go on with. Of several all have to be there.
    #[must_use]
    pub fn when_output(mut self, position: usize) -> Action {
        self.target().needs.push(position);
        self
    }

    /// Whether it is part of a call with these arguments in which earlier phases gave these outputs.
    pub fn is_part_of(&self, arguments: &[Value], earlier: &[Value]) -> bool {
        let Some(target) = &self.target else { return true };
        target.condition.is_none_or(|condition| condition(arguments))
            && target
                .needs
                .iter()
                .all(|&position| earlier.get(position).is_some_and(|value| !value.is_null()))
    }

    /// Which calls it is part of by their arguments; all, if none.
    pub(crate) fn condition(&self) -> Option<fn(&[Value]) -> bool> {
        self.target.as_ref().and_then(|target| target.condition)
    }

    /// Whether functions of the user's tell what it names, or which calls it is part of.
    pub(super) fn has_functions(&self) -> bool {
        let is_computed = |part: &IdentifierPart| matches!(part, IdentifierPart::Computed(_));
        self.condition().is_some() || self.identifier().iter().any(is_computed)
    }

    /// The outputs that it needs to be part of a call.
    pub(crate) fn needs(&self) -> &[usize] {
        self.target.as_ref().map_or(&[], |target| &target.needs)
    }

    /// The name of the table; none of the one action of [`Flow::of`](super::Flow::of).
    pub fn table(&self) -> Option<&str> {
        self.target.as_ref().map(|target| target.name.as_str())
    }

    /// The name of the index, of an action on one.
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

/// What an action works on.
#[derive(Clone)]
pub(crate) struct Target {
    name: String,
    mode: ActionMode,
    /// The index that it is on, if it is not on the table itself.
    index: Option<String>,
    identifier: Vec<IdentifierPart>,
    /// Which calls the action is part of by their arguments; all, if none.
    condition: Option<fn(&[Value]) -> bool>,
    /// The outputs without which it is left out.
    needs: Vec<usize>,
}

impl Target {
    /// The table's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn mode(&self) -> ActionMode {
        self.mode
    }

    /// How its identifier is locked where identifiers are: nothing writes an index but through its rows.
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

    /// The index whose keys its identifier begins.
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
