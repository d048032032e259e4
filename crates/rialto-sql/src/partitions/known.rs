//! [`KnownTable`]: what a session or a branch knows of a table beside its schema: the placement and the digest of the
//! whole definition.

use std::sync::Arc;

use hashbrown::HashMap;
use rialto::row::Schema;
use rialto::{Table, TableId};
use xxhash_rust::xxh3::Xxh3;

use super::message::Definition;
use super::placement::Placement;
use super::wire::{ColumnDefinition, IndexDefinition};
use crate::error::Result;

/// Tables that are kept. When there are more, all are forgotten.
const KEPT_MAX: usize = 1_000;

/// A table's placement and digest.
#[derive(Debug)]
pub(crate) struct KnownTable {
    pub(crate) placement: Placement,
    /// The digest of the definition with the placement: both sides of a request compare it.
    pub(crate) digest: u64,
}

impl KnownTable {
    pub(super) fn new(schema: &Schema, placement: Placement) -> KnownTable {
        let digest = digest(schema, &placement);
        KnownTable { placement, digest }
    }

    /// Whether the columns of these places are among those that say where a row lies.
    pub(crate) fn routes_by(&self, column: usize) -> bool {
        self.placement.columns().is_some_and(|columns| columns.contains(&(column as u32)))
    }
}

/// The tables that were looked at, while their definitions stay as they were.
#[derive(Default)]
pub(super) struct KnownTables {
    tables: HashMap<TableId, (Arc<Schema>, Arc<KnownTable>)>,
}

impl KnownTables {
    /// The table, with the placement that `read` gives if it is not known yet.
    pub(super) fn get(
        &mut self,
        table: &Table,
        schema: &Arc<Schema>,
        read: impl FnOnce() -> Result<Placement>,
    ) -> Result<Arc<KnownTable>> {
        if let Some((known, found)) = self.tables.get(&table.id())
            && Arc::ptr_eq(known, schema)
        {
            return Ok(found.clone());
        }
        let known = Arc::new(KnownTable::new(schema, read()?));
        if self.tables.len() >= KEPT_MAX {
            self.tables.clear();
        }
        self.tables.insert(table.id(), (schema.clone(), known.clone()));
        Ok(known)
    }

    pub(super) fn forget(&mut self) {
        self.tables.clear();
    }
}

fn digest(schema: &Schema, placement: &Placement) -> u64 {
    let mut hash = Xxh3::new();
    let mut put = |bytes: &[u8]| {
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    let places = |columns: &[usize]| -> Vec<u8> {
        columns.iter().flat_map(|column| (*column as u32).to_le_bytes()).collect()
    };
    put(schema.table().as_bytes());
    for column in schema.columns() {
        put(column.name.as_bytes());
        put(column.ty.to_string().as_bytes());
        put(&[u8::from(column.nullable)]);
    }
    put(&schema.primary_key().map(places).unwrap_or_default());
    for index in schema.indexes() {
        put(index.name.as_bytes());
        put(&[u8::from(index.unique)]);
        put(&places(&index.columns));
    }
    match placement {
        Placement::By(columns) => {
            put(b"by");
            columns.iter().for_each(|column| put(&column.to_le_bytes()));
        }
        Placement::Anywhere => put(b"anywhere"),
        Placement::Replicated => put(b"replicated"),
    }
    hash.digest()
}

/// The definition of a table as plain data.
pub(super) fn definition(schema: &Schema, placement: Placement) -> Definition {
    let names =
        |columns: &[usize]| columns.iter().map(|&column| schema.columns()[column].name.clone()).collect();
    Definition {
        name: schema.table().to_owned(),
        columns: schema
            .columns()
            .iter()
            .map(|column| ColumnDefinition {
                name: column.name.clone(),
                column_type: column.ty.to_string(),
                nullable: column.nullable,
            })
            .collect(),
        primary_key: schema.primary_key().map(names),
        indexes: schema
            .indexes()
            .iter()
            .map(|index| IndexDefinition {
                name: index.name.clone(),
                columns: names(&index.columns),
                unique: index.unique,
            })
            .collect(),
        placement,
    }
}
