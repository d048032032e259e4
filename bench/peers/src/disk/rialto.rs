//! Rialto, with a table on disk.
//!
//! The pool of pages has half of the limit M. The rest is for the log's ring (16 MiB of shared memory), the map of
//! pages (some 10 MB for 1.3 GB), a checkpoint's copies of pages that change while it writes them, and the lists of
//! what it has written. Memory-resident segments have only the catalog here: they get an eighth of M instead of
//! three quarters.

use std::ops::ControlFlow;
use std::path::Path;

use rialto::row::{Column, ColumnType, Value};
use rialto::{Database, Durability, Fields, Options, PageCounts as Counted, Residence, Scan, Table};
use rialto::{TableDef, TxOptions};

use super::change::Sums;
use super::table::{DiskTable, Limit, PageCounts, Updates, parts};
use crate::error::{PeerError, Result};

const NAME: &str = "rialto";

pub const SETTINGS: &str = "level 1 (the log ring outlives the process), Residence::Disk, pages of 4 KiB, cache_bytes M/2, \
    memory_bytes M/8, all else default: value logging, fuzzy checkpoints, record locks, serializable, \
    HTSTE; clients run side by side";

/// A row of the table has 3 to 4 dozen neighbours in its page; a transaction changes one row, so that smaller pages are better.
const PAGE_BYTES: usize = 4096;
/// The filler that makes rows 100 bytes long, as encoded.
const FILLER_BYTES: usize = 82;
/// The position of the balance.
const BALANCE: usize = 2;

/// What is open.
pub struct Rialto {
    database: Database,
    table: Table,
    options: TxOptions,
}

fn at<E: std::fmt::Display>(during: &'static str) -> impl FnOnce(E) -> PeerError {
    PeerError::engine(NAME, during)
}

impl Rialto {
    pub fn load(directory: &Path, rows: u32, limit: Limit) -> Result<Rialto> {
        let options = Options {
            durability: Durability::Memory,
            cache_bytes: limit.cache(),
            page_bytes: PAGE_BYTES,
            memory_bytes: limit.eighth(),
            ..Options::default()
        };
        let database = Database::open_with(directory, options).map_err(at("opening"))?;
        let int4 = |name| Column::new(name, ColumnType::Int4);
        let (balance, filler) =
            (Column::new("balance", ColumnType::Int8), Column::new("filler", ColumnType::Text));
        let definition = TableDef::new("accounts", vec![int4("aid"), int4("bid"), balance, filler])
            .with_primary_key(&["aid"])
            .with_residence(Residence::Disk);
        let table = database.transact(|tx| tx.create_table(&definition)).map_err(at("creating the table"))?;
        let mut values =
            [Value::Int4(0), Value::Int4(0), Value::Int8(0), Value::Text("a".repeat(FILLER_BYTES))];
        for keys in parts(rows) {
            let insert = |tx: &mut rialto::Transaction| {
                keys.clone().try_for_each(|key| {
                    values[0] = Value::Int4(key as i32);
                    tx.insert(&table, &values).map(drop)
                })
            };
            database.transact(insert).map_err(at("loading"))?;
        }
        let options = TxOptions { procedure: Some(database.procedure_id("change")), ..TxOptions::default() };
        Ok(Rialto { database, table, options })
    }
}

impl DiskTable for Rialto {
    fn client<'a>(&'a self, _seed: u64) -> Result<Box<dyn Updates + 'a>> {
        Ok(Box::new(self))
    }

    fn settle(&self) -> Result<()> {
        self.database.checkpoint().map_err(at("making a checkpoint")).map(drop)
    }

    fn audit(&self) -> Result<Option<Sums>> {
        let read = self.database.read(|tx| {
            let mut sums = Sums::default();
            tx.scan(&self.table, &Scan::all(), |_, row| {
                sums.row(row.get_i64(BALANCE)?);
                Ok(ControlFlow::Continue(()))
            })?;
            Ok(sums)
        });
        read.map(Some).map_err(at("reading"))
    }

    fn pages(&self) -> Option<PageCounts> {
        let metrics = self.database.metrics();
        let sum = |of: fn(&Counted) -> u64| {
            metrics.procedures.iter().map(|account| of(&account.pages)).sum::<u64>()
        };
        Some(PageCounts {
            accesses: sum(|pages| pages.accesses),
            misses: sum(|pages| pages.misses),
            reads_by_accesses: sum(|pages| pages.reads),
            reads: metrics.pages.reads,
            writes: metrics.pages.writes,
        })
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.database.close().map_err(at("closing"))
    }
}

impl Updates for &Rialto {
    fn add(&mut self, key: u32, amount: i64) -> Result<()> {
        let is_there = self.database.transact_with(&self.options, |tx| {
            tx.modify(&self.table, key as i32, |fields: &mut Fields<'_>| {
                fields.add_i64(BALANCE, amount).map(drop)
            })
        });
        match is_there.map_err(at("running a transaction"))? {
            true => Ok(()),
            false => Err(PeerError::Row { table: crate::table::Table::Accounts, key }),
        }
    }
}
