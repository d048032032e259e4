//! [`Binding`]: what an action works on, found once for a version of its table instead of in each call.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use super::action::Target;
use super::flow::Flow;
use super::identifier::{self, Given};
use crate::error::Result;
use crate::ids::IndexId;
use crate::row::{Key, Schema, WhichIndex};
use crate::store::{Catalog, Table, TableVersion};

/// What an action works on by one version of its table.
#[derive(Clone)]
pub(super) struct Binding {
    pub table: Table,
    pub which: WhichIndex,
    /// The index, in whose keys the action's identifier is a span.
    pub index: IndexId,
    /// The identifier names one key.
    pub is_point: bool,
    /// The identifier is of the first columns of a table without a primary key, whose rows are locked by their numbers.
    pub by_columns: bool,
    schema: Arc<Schema>,
    /// It is only compared. No other version gets its address as long as this counts it.
    version: Weak<TableVersion>,
}

impl Binding {
    /// # Errors
    /// [`Error::NoSuchIndex`](crate::Error::NoSuchIndex) if the version lacks the index.
    pub fn new(target: &Target, table: Table, version: &Arc<TableVersion>) -> Result<Binding> {
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

    /// Whether it is by this version of the table.
    #[inline]
    pub fn is_by(&self, version: &TableVersion) -> bool {
        std::ptr::eq(self.version.as_ptr(), version)
    }

    /// Whether rows of the table have keys that no other row may have, beside those of their own index.
    pub fn has_unique_keys(&self) -> bool {
        self.schema.indexes().iter().any(|index| index.unique)
    }

    /// Replaces `out` by what the keys of the index begin with that the action may touch; of a table without a primary key,
    /// by its rows' first columns.
    ///
    /// # Errors
    /// In words, what is wrong with the identifier.
    #[inline]
    pub fn key_prefix(
        &self,
        target: &Target,
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
    /// Its procedure's.
    There(&'a Binding),
    /// Its own: there was none, or it was out of date.
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

/// The bindings of a flow's actions in one version of the catalog. One that is out of date is noticed where its table is locked, and its
/// action is bound anew.
pub(super) struct Bindings {
    catalog: Option<u64>,
    phases: Vec<Vec<Option<Binding>>>,
}

impl Bindings {
    /// Of a flow that has not been called yet.
    pub fn none(flow: &Flow) -> Bindings {
        Bindings {
            catalog: None,
            phases: flow.phases().iter().map(|phase| vec![None; phase.len()]).collect(),
        }
    }

    pub fn new(flow: &Flow, catalog: &Catalog) -> Bindings {
        // Before any table: what changes meanwhile is a version of its own.
        let version = catalog.version();
        let bind = |target: &Target| {
            let table = catalog.table(target.name()).ok()?;
            let version = table.version();
            // Without its table or its index a call has the error, or another version under its lock.
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

    /// Those of the actions of a phase; none for a plain closure, and for what was not there.
    #[inline]
    pub fn of_phase(&self, phase: usize) -> &[Option<Binding>] {
        &self.phases[phase]
    }
}
