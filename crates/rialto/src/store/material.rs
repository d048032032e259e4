//! [`Material`]: what a table is built from, together with its description.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::TableStore;
use super::memory::{Heap, MemoryStore, MemoryTable};
use super::paged::DiskTables;
use super::table::{TableParts, TableVersion};
use super::tree::{Full, Index};
use crate::catalog::{Description, Residence, RowNumbers};
use crate::error::{Error, Result};
use crate::ids::IndexId;

/// What tables are built from.
pub(crate) struct Material<'a> {
    pub memory: &'a MemoryStore,
    pub disk_tables: &'a DiskTables,
    /// The first hidden row number that was never handed out.
    pub first_row_number: u64,
}

impl Description {
    /// The description of an existing table.
    pub fn of_version(version: &TableVersion) -> Description {
        Description {
            id: version.id,
            name: version.name().to_owned(),
            fill_percent: version.fill_percent,
            columns: version.schema.stored_columns(),
            primary_id: version.primary_id,
            primary_key: version.schema.primary_key().map(<[usize]>::to_vec),
            indexes: version.schema.indexes().to_vec(),
            heap: version.store.heap(),
            numbered: version.numbered,
            residence: match version.store.pages() {
                Some(_) => Residence::Disk,
                None => Residence::Memory,
            },
        }
    }

    /// An empty table of this description.
    pub fn build(&self, storage: &Material<'_>) -> Result<TableVersion> {
        let MemoryStore { segments, nodes } = storage.memory;
        let budget = segments.budget();
        let full = |_: Full| Error::MemoryLimit { used: budget.used(), limit: budget.limit() };
        let index = || Index::new(nodes.clone()).map(Arc::new).map_err(full);
        let schema = Arc::new(self.schema()?);
        let store = match self.residence {
            Residence::Memory => {
                let heap = Arc::new(Heap::new(segments.clone(), self.heap, self.fill_percent));
                let primary = index()?;
                let secondaries = schema.indexes().iter().map(|_| index()).collect::<Result<_>>()?;
                TableStore::in_memory(MemoryTable::new(heap, primary, secondaries))
            }
            Residence::Disk => {
                let indexes: Vec<IndexId> = schema.indexes().iter().map(|index| index.id).collect();
                TableStore::in_pages(storage.disk_tables.make(self.heap, &indexes)?)
            }
        };
        Ok(TableVersion::new(TableParts {
            id: self.id,
            primary_id: self.primary_id,
            numbered: self.numbered,
            fill_percent: self.fill_percent,
            store,
            numbers: Arc::new(RowNumbers::new(storage.first_row_number)),
            floor: Arc::new(AtomicU64::new(0)),
            lineage: Arc::default(),
            schema,
        }))
    }
}
