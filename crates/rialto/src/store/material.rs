//! [`Material`]: what tables are built from, as their descriptions say.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::memory::index::{Full, Index, NodePool};
use super::memory::{Heap, Segments};
use super::table::{TableParts, TableVersion};
use crate::catalog::{Description, RowNumbers};
use crate::error::{Error, Result};

/// What tables are built from.
pub(crate) struct Material<'a> {
    pub segments: &'a Arc<Segments>,
    pub nodes: &'a Arc<NodePool>,
    /// The first hidden row number that was never handed out.
    pub first_row_number: u64,
}

impl Description {
    /// The description of a table that is there.
    pub fn of_version(version: &TableVersion) -> Description {
        Description {
            id: version.id,
            name: version.name().to_owned(),
            fill_percent: version.fill_percent,
            columns: version.schema.stored_columns(),
            primary_id: version.primary_id,
            primary_key: version.schema.primary_key().map(<[usize]>::to_vec),
            indexes: version.schema.indexes().to_vec(),
            heap: version.heap.id(),
            numbered: version.numbered,
        }
    }

    /// An empty table of this description.
    pub fn build(&self, storage: &Material<'_>) -> Result<TableVersion> {
        let budget = storage.segments.budget();
        let full = |_: Full| Error::MemoryLimit { used: budget.used(), limit: budget.limit() };
        let index = || Index::new(storage.nodes.clone()).map(Arc::new).map_err(full);
        let schema = Arc::new(self.schema()?);
        Ok(TableVersion::new(TableParts {
            id: self.id,
            primary_id: self.primary_id,
            numbered: self.numbered,
            fill_percent: self.fill_percent,
            heap: Arc::new(Heap::new(storage.segments.clone(), self.heap, self.fill_percent)),
            primary: index()?,
            secondaries: schema.indexes().iter().map(|_| index()).collect::<Result<_>>()?,
            numbers: Arc::new(RowNumbers::new(storage.first_row_number)),
            floor: Arc::new(AtomicU64::new(0)),
            lineage: Arc::default(),
            schema,
        }))
    }
}
