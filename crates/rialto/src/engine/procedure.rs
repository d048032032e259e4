//! [`Procedure`]: a flow with a name and typed arguments, registered in a database and called by its name.

use std::borrow::Cow;
use std::fmt;
use std::mem::discriminant;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hashbrown::HashMap;
use parking_lot::RwLock;

use super::action::Action;
use super::binding::Bindings;
use super::data_oriented::{ActionRuns, Counted, Plan, Plans};
use super::flow::Flow;
use super::prepared::Prepared;
use crate::account::{Accounts, ProcedureId};
use crate::error::{Error, Result};
use crate::row::{Column, ColumnType, Field, Value, ValueRef, WhichIndex};
use crate::store::{Catalog, Table};
use crate::txn::core::Core;
use crate::txn::options::TxOptions;

/// A flow that can be called by name.
///
/// The database's files do not have its procedures: register them each time it is opened. Those that a log of calls
/// needs are given by [`Options::procedures`](crate::Options::procedures). A body may run several times for one call,
/// after a deadlock or in a fetch stage ([`TwoStage`](crate::TwoStage)); it must not keep a [`Database`](crate::Database) handle, which would keep the database open.
#[derive(Debug, Clone)]
pub struct Procedure {
    /// Its name.
    pub name: String,
    /// Its version; a higher one may be registered in place of a lower.
    pub version: u32,
    /// The types of its arguments. Each may be NULL.
    pub arguments: Vec<ColumnType>,
    /// What it does.
    pub flow: Flow,
    /// What it writes follows only from its arguments and from the rows that it reads: see
    /// [`Procedure::deterministic`].
    pub deterministic: bool,
}

impl Procedure {
    /// Version 1 of a procedure.
    pub fn new(
        name: impl Into<String>,
        arguments: impl IntoIterator<Item = ColumnType>,
        flow: impl Into<Flow>,
    ) -> Procedure {
        Procedure {
            name: name.into(),
            version: 1,
            arguments: arguments.into_iter().collect(),
            flow: flow.into(),
            deterministic: false,
        }
    }

    /// The same procedure as another version.
    #[must_use]
    pub fn with_version(mut self, version: u32) -> Procedure {
        self.version = version;
        self
    }

    /// The same procedure as this version, declared to be deterministic: whenever it runs on the same rows with the
    /// same arguments, it writes the same. So it uses no clock, no random number, no file, nothing of the process:
    /// what it needs of these has to be an argument. With [`Logging::Transaction`](crate::Logging::Transaction) the
    /// log keeps its calls instead of what they wrote, and recovery runs them again.
    ///
    /// A procedure that is changed so that it writes something else has to have another version: a log holds calls of
    /// the version that made them, and is recovered only by that version. So a program with a new version also gives
    /// [`Options::procedures`](crate::Options::procedures) the one before it. (After a checkpoint the old one is no
    /// longer needed.) From the identifiers of a flow's actions recovery finds out which calls may run at the same
    /// time. A call that has an action on an index, or one whose identifier begins with an output, waits for all
    /// calls that change that table. [`Options::check_determinism`](crate::Options::check_determinism) finds
    /// procedures that are wrongly declared.
    #[must_use]
    pub fn deterministic(mut self, version: u32) -> Procedure {
        (self.version, self.deterministic) = (version, true);
        self
    }
}

/// What the body of an action gets: the arguments of the call, and its table.
#[derive(Debug, Clone, Copy)]
pub struct Arguments<'a> {
    pub(crate) procedure: &'a Registered,
    pub(crate) values: &'a [Value],
    pub(crate) table: Option<&'a Table>,
    /// The index that it works on.
    pub(crate) which: WhichIndex,
}

impl<'a> Arguments<'a> {
    /// The argument at a position, counted from 0, as a Rust value.
    ///
    /// # Errors
    /// [`Error::Procedure`] if there is none, or it is of another type, or NULL and `T` is no `Option`.
    pub fn get<T: Field>(&self, position: usize) -> Result<T> {
        self.read(position, T::RUST_TYPE, T::from_ref)
    }

    /// The text argument at a position, borrowed.
    ///
    /// # Errors
    /// As [`Arguments::get`].
    pub fn get_str(&self, position: usize) -> Result<&'a str> {
        self.read(position, "&str", |value| match value {
            ValueRef::Text(text) => Some(text),
            _ => None,
        })
    }

    fn read<T>(
        &self,
        position: usize,
        rust_type: &str,
        read: impl FnOnce(ValueRef<'a>) -> Option<T>,
    ) -> Result<T> {
        let value = self.values.get(position);
        if let Some(value) = value
            && let Some(read) = read(value.borrow())
        {
            return Ok(read);
        }
        let reason = match value {
            Some(value) => {
                format!("its body reads argument {position} as {rust_type}, but it is {}", value.type_name())
            }
            None => format!(
                "its body reads argument {position}, but it has {}, counted from 0",
                self.values.len()
            ),
        };
        Err(self.procedure.error(reason))
    }

    /// All arguments, each of its declared type or NULL.
    pub fn values(&self) -> &'a [Value] {
        self.values
    }

    /// The table that the action works on.
    ///
    /// # Errors
    /// [`Error::Procedure`] in the action of [`Flow::of`], which names no table.
    pub fn table(&self) -> Result<&'a Table> {
        self.table.ok_or_else(|| {
            let reason =
                "its action is a plain closure, which has no table of its own: use Transaction::table";
            self.procedure.error(reason.to_owned())
        })
    }

    /// The index that the action works on: the secondary one of [`Action::on_index`](super::Action::on_index),
    /// otherwise the primary one.
    pub fn index(&self) -> WhichIndex {
        self.which
    }
}

/// The outputs of the actions of one run: what the call returns, and how later phases get the results of earlier
/// ones.
///
/// A body gets them by reference, and cannot put others in their place.
#[derive(Debug)]
pub struct Outputs {
    values: Vec<Value>,
    /// The number of outputs of earlier phases.
    earlier: usize,
}

impl Outputs {
    /// For a call that has not run.
    pub(crate) fn none() -> Outputs {
        Outputs { values: Vec::new(), earlier: 0 }
    }

    /// Adds an output. The call returns all outputs in the order of the flow: phase by phase, action by action.
    pub fn push(&mut self, value: impl Into<Value>) {
        self.values.push(value.into());
    }

    /// The outputs of earlier phases. Those of the action's own phase, even its own outputs, are not among them.
    pub fn earlier(&self) -> &[Value] {
        &self.values[..self.earlier]
    }

    /// The value at a position of [`Outputs::earlier`], as a Rust value; `None` if there is none, or it is of another
    /// type.
    pub fn get<T: Field>(&self, position: usize) -> Option<T> {
        self.earlier().get(position).and_then(|value| T::from_ref(value.borrow()))
    }

    /// Ends a phase.
    pub(crate) fn rendezvous(&mut self) {
        self.earlier = self.values.len();
    }

    /// All outputs.
    pub(crate) fn values(&self) -> &[Value] {
        &self.values
    }

    /// For a part of a phase, with the outputs of earlier phases.
    pub(crate) fn after(earlier: Vec<Value>) -> Outputs {
        Outputs { earlier: earlier.len(), values: earlier }
    }

    /// All outputs.
    pub(crate) fn into_values(self) -> Vec<Value> {
        self.values
    }

    /// Takes out the outputs of the present phase, by action; `ends` is where the outputs of each action end.
    pub(crate) fn take_own(&mut self, actions: &[u16], ends: &[usize]) -> Vec<(u16, Vec<Value>)> {
        let mut own = self.values.drain(self.earlier..);
        let mut from = self.earlier;
        let by_action = actions.iter().zip(ends).map(|(&action, &end)| {
            let count = end - std::mem::replace(&mut from, end);
            (action, own.by_ref().take(count).collect())
        });
        by_action.collect()
    }

    /// Removes the outputs of an earlier run, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.values.clear();
        self.earlier = 0;
    }
}

/// A procedure that has been checked.
pub(crate) struct Registered {
    procedure: Procedure,
    /// The arguments as columns, which check values.
    arguments: Vec<Column>,
    account: ProcedureId,
    /// The most outputs that a call has had: the next call makes room for as many.
    outputs_max: AtomicUsize,
    /// How threads that own executors run its phases.
    plans: Plans,
    /// The tables and indexes of its actions, by the newest version of the catalog that a caller has used.
    bindings: RwLock<Arc<Bindings>>,
    /// A higher version has been registered.
    superseded: AtomicBool,
    /// Functions of the user say what actions of it name, or which calls they are part of.
    has_functions: bool,
    /// A body or function of it uses further transactions, which have met its executor lease. So it gets no lease any
    /// more.
    has_handles: AtomicBool,
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.procedure.fmt(f)
    }
}

impl Registered {
    pub fn new(procedure: Procedure, accounts: &Accounts) -> Result<Registered> {
        let column = |(nth, ty): (usize, &ColumnType)| Column::nullable(format!("argument {nth}"), *ty);
        let arguments = procedure.arguments.iter().enumerate().map(column).collect();
        let account = accounts.id(&procedure.name);
        let plans = Plans::new(&procedure.flow);
        let bindings = RwLock::new(Arc::new(Bindings::none(&procedure.flow)));
        let mut actions = procedure.flow.phases().iter().flatten();
        let has_functions = actions.any(Action::has_functions);
        let registered = Registered {
            procedure,
            arguments,
            account,
            outputs_max: AtomicUsize::new(0),
            superseded: AtomicBool::new(false),
            has_functions,
            has_handles: AtomicBool::new(false),
            plans,
            bindings,
        };
        match registered.flow().problem(registered.arguments.len()) {
            _ if registered.procedure.name.is_empty() => {
                Err(registered.error("a procedure needs a name".to_owned()))
            }
            Some(problem) => Err(registered.error(problem)),
            None => Ok(registered),
        }
    }

    /// All versions of each name, ascending.
    ///
    /// # Errors
    /// [`Error::Procedure`] if a flow is not valid, or a version is there twice.
    pub fn all(
        procedures: &[Procedure],
        accounts: &Accounts,
    ) -> Result<HashMap<String, Vec<Arc<Registered>>>> {
        let mut all: HashMap<String, Vec<Arc<Registered>>> = HashMap::new();
        for procedure in procedures {
            let registered = Registered::new(procedure.clone(), accounts)?;
            let versions = all.entry(procedure.name.clone()).or_default();
            match versions.binary_search_by_key(&procedure.version, |there| there.procedure.version) {
                Ok(_) => {
                    let version = procedure.version;
                    return Err(registered.error(format!("version {version} is there twice")));
                }
                Err(at) => versions.insert(at, Arc::new(registered)),
            }
        }
        Ok(all)
    }

    /// These options, with the procedure's own account unless they name another.
    pub(crate) fn options(&self, options: &TxOptions) -> TxOptions {
        TxOptions { procedure: options.procedure.or(Some(self.account)), ..options.clone() }
    }

    /// Whether its calls go to threads that own executors, if there are any: one of its actions has an identifier. A
    /// call that is logged as a call is one body, and runs on the thread that calls.
    pub(crate) fn travels(&self, core: &Core) -> bool {
        let mut actions = self.flow().phases().iter().flatten();
        !(self.procedure.deterministic && core.commits.tracks_calls())
            && actions.any(|action| !action.identifier().is_empty())
    }

    /// Whether a higher version has been registered.
    #[inline]
    pub(crate) fn is_superseded(&self) -> bool {
        self.superseded.load(Ordering::Acquire)
    }

    /// Makes room for the outputs of a call.
    pub(crate) fn new_outputs(&self) -> Outputs {
        Outputs { values: Vec::with_capacity(self.outputs_max.load(Ordering::Relaxed)), earlier: 0 }
    }

    pub fn flow(&self) -> &Flow {
        &self.procedure.flow
    }

    pub(crate) fn plans(&self) -> &Plans {
        &self.plans
    }

    pub fn name(&self) -> &str {
        &self.procedure.name
    }

    pub fn procedure(&self) -> &Procedure {
        &self.procedure
    }

    #[cold]
    pub fn error(&self, reason: String) -> Error {
        Error::Procedure { name: self.procedure.name.clone(), reason }
    }

    /// The arguments as values of their declared types: the same values, unless one is of a type or form that stands
    /// for it (an int4 for an int8, a decimal of another scale).
    #[inline]
    pub fn check<'a>(&self, values: &'a [Value]) -> Result<Cow<'a, [Value]>> {
        let of_type = |(value, ty): (&Value, &ColumnType)| value.borrow().is_plainly(*ty);
        if values.len() == self.arguments.len() && values.iter().zip(&self.procedure.arguments).all(of_type) {
            return Ok(Cow::Borrowed(values));
        }
        self.check_each(values)
    }

    #[inline(never)]
    fn check_each<'a>(&self, values: &'a [Value]) -> Result<Cow<'a, [Value]>> {
        if values.len() != self.arguments.len() {
            return Err(self.wrong_arguments(values, None));
        }
        let mut checked = Cow::Borrowed(values);
        for (nth, (value, column)) in values.iter().zip(&self.arguments).enumerate() {
            let value = value.borrow();
            let coerced = value.coerce(&self.procedure.name, column);
            let coerced = coerced.map_err(|error| self.wrong_arguments(values, Some(&error)))?;
            if !is_same(value, coerced) {
                checked.to_mut()[nth] = coerced.to_value();
            }
        }
        Ok(checked)
    }

    #[cold]
    fn wrong_arguments(&self, values: &[Value], cause: Option<&Error>) -> Error {
        let expected: Vec<_> = self.procedure.arguments.iter().map(ToString::to_string).collect();
        let found: Vec<_> = values.iter().map(Value::type_name).collect();
        let mut reason =
            format!("expected arguments ({}), found ({})", expected.join(", "), found.join(", "));
        if let Some(cause) = cause {
            // An error of a column, whose name is the argument's.
            reason += &format!(": {}", cause.to_string().replace("column \"argument", "argument \"argument"));
        }
        self.error(reason)
    }

    /// Whether functions of the user say what actions of it name, or which calls they are part of.
    #[inline]
    pub(crate) fn has_functions(&self) -> bool {
        self.has_functions
    }

    /// Whether a transaction that one of its bodies or functions uses beside its own has met its executor lease.
    #[inline]
    pub(crate) fn has_handles(&self) -> bool {
        self.has_handles.load(Ordering::Relaxed)
    }

    /// Notes that it has handles.
    pub(crate) fn note_handles(&self) {
        self.has_handles.store(true, Ordering::Relaxed);
    }

    /// Notes the outputs of a call: the next one makes room for as many.
    pub(super) fn note_outputs(&self, outputs: &Outputs) {
        if outputs.values.len() > self.outputs_max.load(Ordering::Relaxed) {
            self.outputs_max.fetch_max(outputs.values.len(), Ordering::Relaxed);
        }
    }

    /// The tables and indexes of its actions, by the present catalog.
    pub(super) fn bindings(&self, catalog: &Catalog) -> Arc<Bindings> {
        let newest = self.bindings.read().clone();
        if newest.are_of(catalog) {
            return newest;
        }
        let bindings = Arc::new(Bindings::new(self.flow(), catalog));
        // The bindings that were there before are dropped without the latch.
        let _before = std::mem::replace(&mut *self.bindings.write(), bindings.clone());
        bindings
    }
}

/// Whether a value was not changed when it was converted to its column's type.
fn is_same(value: ValueRef<'_>, coerced: ValueRef<'_>) -> bool {
    match (value, coerced) {
        (ValueRef::Decimal(value), ValueRef::Decimal(coerced)) => value.scale() == coerced.scale(),
        (ValueRef::Text(value), ValueRef::Text(coerced)) => value.len() == coerced.len(),
        _ => discriminant(&value) == discriminant(&coerced),
    }
}

/// How threads that own executors run a phase of a procedure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhasePlan {
    /// The procedure's name.
    pub procedure: String,
    /// Which phase, counted from 0.
    pub phase: usize,
    /// How it is run now.
    pub plan: Plan,
    /// How often it was begun since the procedure was registered.
    pub calls: u64,
    /// The calls whose actions ran in parts, at the same time, each on the thread that owns its rows.
    pub in_parts: u64,
    /// How often each of its actions was run, and aborted, since then; in the flow's order.
    pub actions: Vec<ActionRuns>,
}

/// The procedures of an open database.
#[derive(Default)]
pub(crate) struct Procedures {
    by_name: RwLock<HashMap<String, Arc<Registered>>>,
}

impl Procedures {
    /// The procedures of an opening. There may be several versions of a name, for recovery; the highest is the one
    /// that is called.
    ///
    /// # Errors
    /// As [`Registered::all`].
    pub fn of(procedures: &[Procedure], accounts: &Accounts) -> Result<Procedures> {
        let all = Registered::all(procedures, accounts)?;
        let highest = |(name, mut versions): (String, Vec<_>)| Some((name, versions.pop()?));
        Ok(Procedures { by_name: RwLock::new(all.into_iter().filter_map(highest).collect()) })
    }

    pub fn register(&self, procedure: Procedure, accounts: &Accounts) -> Result<()> {
        let registered = Registered::new(procedure, accounts)?;
        let (name, version) = (&registered.procedure.name, registered.procedure.version);
        let mut by_name = self.by_name.write();
        if let Some(there) = by_name.get(name)
            && there.procedure.version >= version
        {
            return Err(registered.error(format!(
                "version {} is registered already, so version {version} is not: give it a higher one",
                there.procedure.version
            )));
        }
        let before = by_name.insert(name.clone(), Arc::new(registered));
        drop(by_name);
        // Without the latch: values that its bodies have captured may call this when they are dropped.
        if let Some(before) = before {
            before.superseded.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Adapts the plans of all procedures to how often their actions abort.
    pub fn adapt_plans(&self) {
        self.by_name.read().values().for_each(|registered| registered.plans.adapt());
    }

    /// How threads that own executors run the phases, by name and phase; only for phases that they have run.
    pub fn plans(&self) -> Vec<PhasePlan> {
        let mut plans = Vec::new();
        for (name, registered) in &*self.by_name.read() {
            for (phase, (plan, counted)) in registered.plans.read().enumerate() {
                let Counted { calls, in_parts, actions } = counted;
                if calls > 0 {
                    plans.push(PhasePlan { procedure: name.clone(), phase, plan, calls, in_parts, actions });
                }
            }
        }
        plans.sort_by(|one, other| (&one.procedure, one.phase).cmp(&(&other.procedure, other.phase)));
        plans
    }

    /// The procedure of this name, if there is one.
    pub fn get(&self, name: &str) -> Option<Arc<Registered>> {
        self.by_name.read().get(name).cloned()
    }

    pub(crate) fn find(&self, name: &str, catalog: &Catalog) -> Result<Prepared> {
        let by_name = self.by_name.read();
        let found = by_name.get(name).cloned().ok_or_else(|| {
            let mut names: Vec<_> = by_name.keys().map(|name| format!("\"{name}\"")).collect();
            names.sort();
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let reason = format!(
                "no procedure of this name, expected one of those registered since the database was opened: {there} \
                 (Database::register)"
            );
            Error::Procedure { name: name.to_owned(), reason }
        });
        drop(by_name);
        Ok(Prepared::new(found?, catalog))
    }
}
