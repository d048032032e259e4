//! Routing rules that a user sets.

use std::sync::Arc;

use super::Database;
use crate::error::{Error, Result};
use crate::inside::InBody;
use crate::isolate::RoutingRule;
use crate::row::{IntoKey, Key, Value, WhichIndex};
use crate::store::TableVersion;

impl Database {
    /// The number of executors that the keys of an index are shared out over now. It is 1 on the
    /// [conventional](crate::Engine::Conventional) engine, and for an index that is only read, all of which belongs to
    /// the read-only executor.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`].
    pub fn executors_of(&self, table: &str, index: WhichIndex) -> Result<usize> {
        let version = self.core().storage.catalog.table(table)?.version();
        Ok(self.core().locks.executors_of(version.index_id(index)))
    }

    /// Shares the keys of an index out over the executors ([`Database::executors`]) by datasets side by side (the DORA
    /// paper, section 4.1.1). `bounds` has the values of the index's first columns at which each dataset but the first
    /// begins. The datasets go to the executors in their order, as evenly as possible. So the same fraction of the
    /// datasets of two indexes belongs to one executor, and tables that are used together are best divided alike. Locks
    /// that are held or waited for move along with their keys; no transaction waits for the change.
    ///
    /// Rules are not kept in the files; an opened database makes its own. It makes a rule anew when a table has grown
    /// to twice the size that the rule was made for, or shrunk to a quarter of it (where a user's rule was made for
    /// fewer than 500 entries, when the table has come to 1,000), and when the number of executors changes. When an
    /// executor becomes busier than the others, the database moves datasets, and an index that is only read goes to the
    /// read-only executor. In all of these cases a rule that a user has set is replaced.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on the [conventional](crate::Engine::Conventional) engine; [`Error::NoSuchTable`];
    /// [`Error::BadDefinition`] if the bounds do not ascend; the error of a value that does not fit the index;
    /// [`Error::Nested`] inside a body, which may have executors leased.
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

    /// Deals the keys of an index out over the executors by the hash of their first `columns` columns. Keys that have
    /// the same values there belong to the same executor, which can be any, and no skew of the values themselves makes
    /// one executor busier than another. An identifier or a scan without these columns goes to all executors. Else as
    /// [`Database::set_routing`]; but such a rule stays as the table grows.
    ///
    /// # Errors
    /// As [`Database::set_routing`]; [`Error::BadDefinition`] if `columns` is 0 or more than the index has.
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
