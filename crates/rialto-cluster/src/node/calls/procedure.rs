//! [`Procedure`]: what calls run; [`Procedures`]: those that a node's program has.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rialto::{Error, Result, Transaction};

use crate::protocol::transactions::Access;

/// What the actions of a call gave: one output each, in the order of the procedure's phases and their actions.
pub type Outputs = Vec<Vec<u8>>;

type Body = dyn Fn(&mut Transaction<'_>, &ActionInput<'_>, &mut Vec<u8>) -> Result<()> + Send + Sync;

/// What the body of an action gets.
#[derive(Debug, Clone, Copy)]
pub struct ActionInput<'a> {
    /// The arguments of the call.
    pub arguments: &'a [u8],
    /// What the actions of earlier phases gave, in the order of the procedure.
    pub earlier: &'a [Vec<u8>],
}

/// An action of a procedure: what it does in one partition.
#[derive(Clone)]
pub struct ProcedureAction {
    body: Arc<Body>,
    access: Access,
    key: usize,
}

impl ProcedureAction {
    /// An action that may write. It runs in the partition of the call's first key, unless [`ProcedureAction::by_key`]
    /// names another one.
    ///
    /// The body runs in a transaction of the partition's database, and may run several times for one call: after a
    /// deadlock, a lock time-out or a change of the primary. Of these runs at most one has an effect. It gives its
    /// output as bytes. An error ends the call, which then has no effect.
    pub fn writes(
        body: impl Fn(&mut Transaction<'_>, &ActionInput<'_>) -> Result<Vec<u8>> + Send + Sync + 'static,
    ) -> ProcedureAction {
        ProcedureAction::writes_into(gives(body))
    }

    /// As [`ProcedureAction::writes`], of a body that puts its output into a buffer, which is empty. Buffers are used again
    /// ([`Transactions::call_into`](crate::node::Transactions::call_into)), so that a body need not allocate one.
    pub fn writes_into(
        body: impl Fn(&mut Transaction<'_>, &ActionInput<'_>, &mut Vec<u8>) -> Result<()> + Send + Sync + 'static,
    ) -> ProcedureAction {
        ProcedureAction { body: Arc::new(body), access: Access::Writes, key: 0 }
    }

    /// As [`ProcedureAction::writes`], of an action that only reads. A write in it fails, unless another action of the
    /// call writes in the same partition.
    pub fn reads(
        body: impl Fn(&mut Transaction<'_>, &ActionInput<'_>) -> Result<Vec<u8>> + Send + Sync + 'static,
    ) -> ProcedureAction {
        ProcedureAction::reads_into(gives(body))
    }

    /// As [`ProcedureAction::writes_into`], of an action that only reads.
    pub fn reads_into(
        body: impl Fn(&mut Transaction<'_>, &ActionInput<'_>, &mut Vec<u8>) -> Result<()> + Send + Sync + 'static,
    ) -> ProcedureAction {
        ProcedureAction { body: Arc::new(body), access: Access::Reads, key: 0 }
    }

    /// The same action, in the partition of the call's key at this position, counted from 0.
    #[must_use]
    pub fn by_key(mut self, position: usize) -> ProcedureAction {
        self.key = position;
        self
    }

    pub(in crate::node) fn access(&self) -> Access {
        self.access
    }

    pub(in crate::node) fn key(&self) -> usize {
        self.key
    }
}

/// A body that gives its output, as one that puts it into a buffer.
fn gives(
    body: impl Fn(&mut Transaction<'_>, &ActionInput<'_>) -> Result<Vec<u8>> + Send + Sync + 'static,
) -> impl Fn(&mut Transaction<'_>, &ActionInput<'_>, &mut Vec<u8>) -> Result<()> + Send + Sync + 'static {
    move |tx, input, output| {
        *output = body(tx, input)?;
        Ok(())
    }
}

impl fmt::Debug for ProcedureAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProcedureAction({:?} by key {})", self.access, self.key)
    }
}

/// A procedure: actions in phases, under a name and a version.
///
/// The actions of a phase run at the same time where they lie in several partitions, else in their order. A phase
/// begins when the one before it has ended everywhere, and its actions get the outputs of the earlier ones.
#[derive(Debug, Clone)]
pub struct Procedure {
    name: Arc<str>,
    version: u32,
    phases: Vec<Vec<ProcedureAction>>,
}

impl Procedure {
    /// Version 1 of a procedure that has no phase yet.
    pub fn new(name: impl Into<Arc<str>>) -> Procedure {
        Procedure { name: name.into(), version: 1, phases: Vec::new() }
    }

    /// The same procedure as another version.
    #[must_use]
    pub fn with_version(mut self, version: u32) -> Procedure {
        self.version = version;
        self
    }

    /// The same procedure with one more phase after those that it has.
    #[must_use]
    pub fn phase(mut self, actions: impl IntoIterator<Item = ProcedureAction>) -> Procedure {
        self.phases.push(actions.into_iter().collect());
        self
    }

    /// The name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The version.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// How many keys a call has to have at least.
    pub fn keys(&self) -> usize {
        self.actions().map(|action| action.key + 1).max().unwrap_or(0)
    }

    pub(in crate::node) fn phases(&self) -> &[Vec<ProcedureAction>] {
        &self.phases
    }

    pub(in crate::node) fn actions(&self) -> impl Iterator<Item = &ProcedureAction> {
        self.phases.iter().flatten()
    }

    pub(in crate::node) fn access(&self) -> Access {
        self.actions().map(ProcedureAction::access).max().unwrap_or(Access::Reads)
    }

    /// Runs all actions in one transaction, into one output each. Buffers that are there are used again.
    ///
    /// # Errors
    /// That of the first action that fails.
    pub(in crate::node) fn run(
        &self,
        tx: &mut Transaction<'_>,
        arguments: &[u8],
        outputs: &mut Outputs,
    ) -> Result<()> {
        outputs.resize_with(self.actions().count(), Vec::new);
        let mut done = 0;
        for phase in &self.phases {
            let (earlier, own) = outputs.split_at_mut(done);
            for (action, output) in phase.iter().zip(own) {
                self.run_one(action, tx, &ActionInput { arguments, earlier }, output)?;
            }
            done += phase.len();
        }
        Ok(())
    }

    /// Runs some actions of a phase.
    ///
    /// # Errors
    /// That of the first one that fails.
    pub(in crate::node) fn run_some(
        &self,
        tx: &mut Transaction<'_>,
        (phase, actions): (usize, &[u16]),
        input: ActionInput<'_>,
    ) -> Result<Outputs> {
        let mut outputs = Outputs::with_capacity(actions.len());
        for nth in actions {
            let action = self.phases.get(phase).and_then(|phase| phase.get(usize::from(*nth)));
            let Some(action) = action else {
                let what = format!("procedure {}: phase {phase} has no action {nth}", self.name);
                return Err(Error::aborted(what));
            };
            let mut output = Vec::new();
            self.run_one(action, tx, &input, &mut output)?;
            outputs.push(output);
        }
        Ok(outputs)
    }

    /// Runs one action. A panic of its body becomes an error.
    fn run_one(
        &self,
        action: &ProcedureAction,
        tx: &mut Transaction<'_>,
        input: &ActionInput<'_>,
        output: &mut Vec<u8>,
    ) -> Result<()> {
        output.clear();
        let ran = catch_unwind(AssertUnwindSafe(|| (action.body)(&mut *tx, input, output)));
        ran.unwrap_or_else(|_| {
            Err(Error::aborted(format!("procedure {}: the body of an action has panicked", self.name)))
        })
    }
}

/// The procedures that a node's program has, by name and version. All nodes of a cluster should have the same ones.
#[derive(Debug, Clone, Default)]
pub struct Procedures {
    all: BTreeMap<Arc<str>, BTreeMap<u32, Arc<Procedure>>>,
}

impl Procedures {
    /// None.
    pub fn new() -> Procedures {
        Procedures::default()
    }

    /// These and one more. Several versions of a name may be installed: while nodes are upgraded one after the other, a
    /// call that one of them begins with an older version runs on all of them.
    ///
    /// # Panics
    /// If this version of the name is there, or the procedure has no action, or more than 65,535 in a phase; or if no
    /// action of its first phase is by the first key, whose partition keeps the answers of calls with numbers, whatever
    /// their version.
    #[must_use]
    pub fn with(mut self, procedure: Procedure) -> Procedures {
        let (name, version) = (procedure.name.clone(), procedure.version);
        assert!(procedure.phases.iter().all(|phase| !phase.is_empty()), "procedure {name}: a phase is empty");
        assert!(!procedure.phases.is_empty(), "procedure {name} has no phase");
        let is_small = procedure.phases.iter().all(|phase| u16::try_from(phase.len()).is_ok());
        assert!(is_small && u16::try_from(procedure.phases.len()).is_ok(), "procedure {name} is too large");
        let is_by_first = procedure.phases[0].iter().any(|action| action.key == 0);
        assert!(is_by_first, "procedure {name}: no action of its first phase is by the first key");
        let versions = self.all.entry(name.clone()).or_default();
        let before = versions.insert(version, Arc::new(procedure));
        assert!(before.is_none(), "procedure {name} has version {version} twice");
        self
    }

    /// The procedure of this name: this version of it, or the highest one.
    pub fn find(&self, name: &str, version: Option<u32>) -> Option<&Arc<Procedure>> {
        let versions = self.all.get(name)?;
        match version {
            Some(version) => versions.get(&version),
            None => versions.last_key_value().map(|(_, procedure)| procedure),
        }
    }
}
