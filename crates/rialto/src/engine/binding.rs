//! [`Binding`]: the table and index of an action, looked up once for a version of its table instead of in each call.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use super::action::ActionTarget;
use super::flow::Flow;
use super::identifier::{self, Given};
use crate::error::Result;
use crate::ids::IndexId;
use crate::row::{Key, Schema, WhichIndex};
use crate::store::{Catalog, Table, TableVersion};

/// The table and index of an action, by one version of the table.
#[derive(Clone)]
pub(super) struct Binding {
    pub table: Table,
    pub which: WhichIndex,
    /// The index in whose keys the action's identifier is a span.
    pub index: IndexId,
    /// The identifier names one key.
    pub is_point: bool,
    /// The identifier is of the first columns of a table without a primary key, whose rows are locked by their numbers.
    pub by_columns: bool,
    schema: Arc<Schema>,
    /// Only compared. While this counts the version, no other version gets its address.
    version: Weak<TableVersion>,
}

impl Binding {
    /// # Errors
    /// [`Error::NoSuchIndex`](crate::Error::NoSuchIndex) if the version lacks the index.
    pub fn new(target: &ActionTarget, table: Table, version: &Arc<TableVersion>) -> Result<Binding> {
        let which = target.which(&version.schema)?;
        let shape = version.schema.key_shape(which);
        Ok(Binding {
            table,
            which,
            index: version.index_id(which),
            is_point: shape.is_whole_key(target.parts()),
            by_columns: shape.is_row_number() && target.parts() > 0,
            schema: version.schema.clone(),
            version: Arc::downgrade(version),
        })
    }

    /// Whether it was made for this version of the table.
    #[inline]
    pub fn is_by(&self, version: &TableVersion) -> bool {
        std::ptr::eq(self.version.as_ptr(), version)
    }

    /// Whether the table has unique keys besides the key that its rows are identified by.
    pub fn has_unique_keys(&self) -> bool {
        self.schema.indexes().iter().any(|index| index.unique)
    }

    /// Replaces `out` by the prefix of the index's keys that the action may touch; for a table without a primary key,
    /// by the first columns of its rows.
    ///
    /// # Errors What is wrong with the identifier, in words.
    #[inline]
    pub fn key_prefix(
        &self,
        target: &ActionTarget,
        given: Given<'_>,
        out: &mut Key,
    ) -> std::result::Result<(), String> {
        match target.identifier() {
            [] => {
                out.clear();
                Ok(())
            }
            parts => identifier::encode(parts, given, &self.schema, self.which, out),
        }
    }
}

/// The binding of an action in a call.
pub(super) enum Bound<'a> {
    /// The procedure's binding.
    There(&'a Binding),
    /// Its own, because the procedure has none, or its is out of date.
    Anew(Box<Binding>),
}

impl Bound<'_> {
    pub fn anew(binding: Binding) -> Self {
        Bound::Anew(Box::new(binding))
    }
}

impl Deref for Bound<'_> {
    type Target = Binding;

    #[inline]
    fn deref(&self) -> &Binding {
        match self {
            Bound::There(binding) => binding,
            Bound::Anew(binding) => binding,
        }
    }
}

/// The bindings of a flow's actions in one version of the catalog. An action finds out that its binding is out of
/// date when it locks its table, and is then bound again.
pub(super) struct Bindings {
    catalog: Option<u64>,
    phases: Vec<Vec<Option<Binding>>>,
}

impl Bindings {
    /// For a flow that has not been called yet.
    pub fn none(flow: &Flow) -> Bindings {
        Bindings {
            catalog: None,
            phases: flow.phases().iter().map(|phase| vec![None; phase.len()]).collect(),
        }
    }

    pub fn new(flow: &Flow, catalog: &Catalog) -> Bindings {
        // Read before any table: a change that comes meanwhile makes a further version.
        let version = catalog.version();
        let bind = |target: &ActionTarget| {
            let table = catalog.table(target.name()).ok()?;
            let version = table.version();
            // If the table or the index is missing, a call gets the error, or finds another version under its lock.
            Binding::new(target, table, &version).ok()
        };
        let phases = flow.phases().iter();
        let phases =
            phases.map(|phase| phase.iter().map(|action| action.target.as_ref().and_then(bind)).collect());
        Bindings { catalog: Some(version), phases: phases.collect() }
    }

    /// Whether the catalog has not changed since.
    #[inline]
    pub fn are_of(&self, catalog: &Catalog) -> bool {
        self.catalog == Some(catalog.version())
    }

    /// The bindings of a phase's actions. There are none for a plain closure, and for tables and indexes that were
    /// missing.
    #[inline]
    pub fn of_phase(&self, phase: usize) -> &[Option<Binding>] {
        &self.phases[phase]
    }
}
