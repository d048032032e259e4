//! [`Scratch`]: tables for binding in a transaction that has changed definitions.
//!
//! The catalog of a session over partitions has what is committed. After a definition, the statements of the same
//! transaction are bound by the definitions that a branch gives, as tables of a small database in memory that has no
//! rows.

use std::sync::Arc;

use hashbrown::HashMap;
use rialto::io::MemoryDisk;
use rialto::row::Column;
use rialto::{Checkpointing, Database, Durability, NewIndex, Options, Table, TableDef};

use super::known::KnownTable;
use super::message::Definition;
use crate::error::Result;

/// The memory of the database.
const MEMORY_BYTES: u64 = 16 << 20;

/// The definitions that a transaction sees.
pub(super) struct Scratch {
    database: Database,
    tables: HashMap<String, (Definition, Table, Arc<KnownTable>)>,
}

impl Scratch {
    pub(super) fn new() -> Result<Scratch> {
        let options = Options {
            memory_bytes: MEMORY_BYTES,
            checkpoint: Checkpointing::None,
            durability: Durability::Memory,
            transactions_max: 4,
            packets_max: 8,
            ..Options::default()
        };
        let database = Database::open_on(MemoryDisk::new(), options)
            .map_err(|error| crate::SqlError::new(crate::SqlState::OutOfMemory, error.to_string()))?;
        Ok(Scratch { database, tables: HashMap::new() })
    }

    /// The table of this definition.
    pub(super) fn table(&mut self, definition: Definition) -> Result<Table> {
        let name = definition.name.clone();
        if let Some((known, table, _)) = self.tables.get(&name) {
            if *known == definition {
                return Ok(table.clone());
            }
            self.tables.remove(&name);
            self.database.transact(|tx| tx.drop_table(&name))?;
        }
        let columns = definition.columns.iter().map(|column| {
            Ok(Column {
                name: column.name.clone(),
                ty: column.column_type.parse()?,
                nullable: column.nullable,
            })
        });
        let indexes = definition.indexes.iter().map(|index| NewIndex {
            name: index.name.clone(),
            columns: index.columns.clone(),
            unique: index.unique,
        });
        let def = TableDef {
            primary_key: definition.primary_key.clone(),
            indexes: indexes.collect(),
            ..TableDef::new(&name, columns.collect::<Result<_>>()?)
        };
        let table = self.database.transact(|tx| tx.create_table(&def))?;
        let known = Arc::new(KnownTable::new(&table.schema(), definition.placement.clone()));
        self.tables.insert(name, (definition, table.clone(), known));
        Ok(table)
    }

    /// What is known of a table that [`Scratch::table`] has made.
    pub(super) fn known(&self, table: &Table) -> Option<Arc<KnownTable>> {
        let (_, found, known) = self.tables.get(&table.name())?;
        (found.id() == table.id()).then(|| known.clone())
    }
}
