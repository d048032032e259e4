//! Routing rules, given by hand.

use std::sync::Arc;

use super::Database;
use crate::error::{Error, Result};
use crate::inside::InBody;
use crate::isolate::RoutingRule;
use crate::row::{IntoKey, Key, Value, WhichIndex};
use crate::store::TableVersion;

impl Database {
    /// How many executors an index's keys are shared out over now; 1 where it is only read, and so all of it belongs to the
    /// readers' executor, and on the [conventional](crate::Engine::Conventional)
    /// engine.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`].
    pub fn executors_of(&self, table: &str, index: WhichIndex) -> Result<usize> {
        let version = self.core().storage.catalog.table(table)?.version();
        Ok(self.core().locks.executors_of(version.index_id(index)))
    }

    /// Shares an index's keys out over the executors ([`Database::executors`]) by datasets side by side (the DORA paper,
    /// section 4.1.1): `bounds` has the values of the index's first columns at which each dataset but the first begins. They
    /// are shared out among the executors in their order, as evenly as can be: the same part of the datasets of two indexes is
    /// one executor's, so what is used together is best divided alike. Locks that are held or waited for go along with their
    /// keys; nobody waits for a change.
    ///
    /// Rules are not kept in the files; a database that is opened makes its own. It makes them anew as tables grow to twice the
    /// size that they were made for, or shrink to a quarter (one by hand of fewer than 500 entries when it has come to 1,000),
    /// and when the number of executors changes; when an executor becomes busier than the others it moves datasets; and an
    /// index that is only read goes to the read-only executor. A rule by hand is replaced in all of these cases.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on the [conventional](crate::Engine::Conventional) engine; [`Error::NoSuchTable`]; [`Error::BadDefinition`] if the
    /// bounds do not ascend; values that do not fit the index; [`Error::Nested`] inside of a body, which may have executors in
    /// its hands.
    pub fn set_routing(&self, table: &str, index: WhichIndex, bounds: &[Vec<Value>]) -> Result<()> {
        let _in_body = InBody::enter(self.core().storage.catalog.opening())?;
        let (core, version) = (self.core(), self.routed(table, index)?);
        let shape = version.schema.key_shape(index);
        let mut keys = Vec::with_capacity(bounds.len());
        for bound in bounds {
            let mut key = Key::new();
            bound.as_slice().encode_prefix_into(shape, &mut key)?;
            if key.is_empty() || keys.last().is_some_and(|last| *last >= key) {
                let reason =
                    format!("the bound {bound:?} of its routing rule is not above the one before it");
                return Err(Error::BadDefinition { name: table.to_owned(), reason });
            }
            keys.push(key);
        }
        let entries = version.store.entries_estimate(index);
        let rule = RoutingRule::side_by_side(keys, core.locks.executors_in_use() as u16).by_hand(entries);
        core.locks.route(version.index_id(index), Some(rule));
        Ok(())
    }

    /// Deals an index's keys out over the executors by the hash of their first so many columns: keys that have the same values
    /// there are one executor's, whichever that is, and no skew of the values themselves makes one busier than another. An
    /// identifier, or a scan, that does not have these columns goes to all executors. Otherwise as [`Database::set_routing`];
    /// such a rule stays as a table grows.
    ///
    /// # Errors
    /// As [`Database::set_routing`]; [`Error::BadDefinition`] if the index does not have so many columns, or none is asked
    /// for.
    pub fn set_routing_by_hash(&self, table: &str, index: WhichIndex, columns: usize) -> Result<()> {
        let _in_body = InBody::enter(self.core().storage.catalog.opening())?;
        let (core, version) = (self.core(), self.routed(table, index)?);
        let shape = version.schema.key_shape(index);
        let Some(leading) = shape.leading(columns) else {
            let has = if shape.is_row_number() { 1 } else { shape.columns().len() };
            let reason = format!(
                "a routing rule by the hash of {columns} columns of \"{}\", which has {has}: give 1 to {has}",
                shape.name()
            );
            return Err(Error::BadDefinition { name: table.to_owned(), reason });
        };
        let index = version.index_id(index);
        let executors = core.locks.executors_in_use() as u16;
        core.locks.route(index, Some(RoutingRule::hashed(index, leading, executors)));
        Ok(())
    }

    /// The table, if keys of this index of it can be routed.
    fn routed(&self, table: &str, index: WhichIndex) -> Result<Arc<TableVersion>> {
        if !self.runtime().engine.is_data_oriented() {
            let what = "routing rules without executors: open the database with Options::engine DataOriented";
            return Err(Error::Unsupported { what: what.to_owned() });
        }
        let version = self.core().storage.catalog.table(table)?.version();
        if let WhichIndex::Secondary(position) = index
            && position >= version.schema.indexes().len()
        {
            let reason =
                format!("it has no secondary index {position}, it has {}", version.schema.indexes().len());
            return Err(Error::BadDefinition { name: table.to_owned(), reason });
        }
        Ok(version)
    }
}
