//! The tables of the damaged databases, and their rows.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use crate::row::{Column, ColumnType, Value, WhichIndex};
use crate::{Checkpointing, Database, Options, Residence, Result, Scan, TableDef, Transaction};

/// The rows of the tables.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct State {
    /// The number and the text of a key.
    pub things: BTreeMap<i32, (i64, String)>,
    /// The number of a key.
    pub loaded: BTreeMap<i32, i64>,
    /// The text of a key, on the disk.
    pub paged: BTreeMap<i32, String>,
}

/// Options of a small database, on disk too, without background work.
pub(super) fn options() -> Options {
    Options {
        memory_bytes: 16 << 20,
        log_bytes_max: 16 << 20,
        checkpoint: Checkpointing::None,
        sweep_bytes_per_s: Some(0),
        recovery_threads: 2,
        transactions_max: 8,
        packets_max: 16,
        memory_flush_interval: Duration::from_secs(3600),
        ..Options::default()
    }
}

/// Makes the table `things`, with an index.
pub(super) fn create(tx: &mut Transaction<'_>) -> Result<()> {
    let columns = vec![
        Column::new("id", ColumnType::Int4),
        Column::new("number", ColumnType::Int8),
        Column::new("text", ColumnType::Text),
    ];
    tx.create_table(&TableDef::new("things", columns).with_primary_key(&["id"]))?;
    tx.create_index("things", "things_number", &["number"], false)
}

/// Makes the table `paged`, which is disk-resident, with an index.
pub(super) fn create_paged(tx: &mut Transaction<'_>) -> Result<()> {
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
    let def = TableDef::new("paged", columns).with_primary_key(&["id"]).with_residence(Residence::Disk);
    tx.create_table(&def.with_index("paged_text", &["text"], false)).map(drop)
}

/// The rows of the table `loaded`.
pub(super) fn loaded() -> BTreeMap<i32, i64> {
    (0..300).map(|id| (id, i64::from(id) * 3)).collect()
}

/// Makes the table `loaded` by a bulk load.
pub(super) fn load(tx: &mut Transaction<'_>) -> Result<()> {
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("number", ColumnType::Int8)];
    let table = tx.create_table(&TableDef::new("loaded", columns).with_primary_key(&["id"]))?;
    loaded()
        .into_iter()
        .try_for_each(|(id, number)| tx.insert(&table, &[Value::Int4(id), Value::Int8(number)]))
}

/// The rows of the tables in a database. Both indexes of `things` must agree.
pub(super) fn state_of(db: &Database) -> State {
    let mut state = State::default();
    db.read(|tx| {
        state = State::default();
        if let Ok(table) = tx.table("things") {
            let mut by_number = Vec::new();
            tx.scan(&table, &Scan::all(), |_, row| {
                state.things.insert(row.get_i32(0)?, (row.get_i64(1)?, row.get_str(2)?.to_owned()));
                Ok(ControlFlow::Continue(()))
            })?;
            if !table.schema().indexes().is_empty() {
                let scan = Scan { index: WhichIndex::Secondary(0), ..Scan::all() };
                tx.scan(&table, &scan, |_, row| {
                    by_number.push((row.get_i64(1)?, row.get_i32(0)?));
                    Ok(ControlFlow::Continue(()))
                })?;
                let mut expected: Vec<_> = state.things.iter().map(|(id, row)| (row.0, *id)).collect();
                expected.sort_unstable();
                assert_eq!(by_number, expected, "the secondary index");
            }
        }
        if let Ok(table) = tx.table("loaded") {
            tx.scan(&table, &Scan::all(), |_, row| {
                state.loaded.insert(row.get_i32(0)?, row.get_i64(1)?);
                Ok(ControlFlow::Continue(()))
            })?;
        }
        if let Ok(table) = tx.table("paged") {
            tx.scan(&table, &Scan::all(), |_, row| {
                state.paged.insert(row.get_i32(0)?, row.get_str(1)?.to_owned());
                Ok(ControlFlow::Continue(()))
            })?;
        }
        Ok(())
    })
    .unwrap();
    state
}
