//! fjall, a log-structured merge tree, with optimistic transactions.
//!
//! Rows are read before the commit's lock is taken, so that the reads of the clients overlap; with a single writer
//! each would hold the lock. Two clients meet at the same row once in some 100,000 transactions: such a transaction
//! is repeated.
//!
//! By default the lower levels are compressed (LZ4), and then most of this table would fit into memory: its filler
//! is one letter. No engine compresses here.

use std::path::Path;

use fjall::config::CompressionPolicy;
use fjall::{
    CompressionType, KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace, PersistMode, Readable,
};

use super::change::Sums;
use super::table::{DiskTable, Limit, Updates, parts};
use crate::error::{PeerError, Result};
use crate::record;
use crate::table::Table;

const NAME: &str = "fjall";

pub const SETTINGS: &str = "optimistic transactions, PersistMode::Buffer (the journal is written at every commit, never \
    synced), a cache of M/4, memtables of M/16, no compression, bloom filters (its default); clients \
    run side by side up to the commit";

const TABLE: Table = Table::Accounts;

/// The cache has this part of the limit. With half of it, and memtables of an eighth, the kernel kills the process: memtables
/// that wait to be written come on top, and nothing bounds them.
const CACHE_SHARE: u64 = 4;
/// A memtable has this part of the limit.
const MEMTABLE_SHARE: u64 = 16;

/// What is open.
pub struct Fjall {
    database: OptimisticTxDatabase,
    rows: OptimisticTxKeyspace,
}

fn at(during: &'static str) -> impl FnOnce(fjall::Error) -> PeerError {
    PeerError::engine(NAME, during)
}

impl Fjall {
    pub fn load(directory: &Path, rows: u32, limit: Limit) -> Result<Fjall> {
        let database = OptimisticTxDatabase::builder(directory)
            .cache_size(limit.0 / CACHE_SHARE)
            .open()
            .map_err(at("opening"))?;
        let options = || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(limit.0 / MEMTABLE_SHARE)
                .data_block_compression_policy(CompressionPolicy::all(CompressionType::None))
        };
        let table = database.keyspace(TABLE.name(), options).map_err(at("opening the table"))?;
        let loaded = Fjall { database, rows: table };
        for keys in parts(rows) {
            let mut transaction = loaded.database.write_tx().map_err(at("loading"))?;
            for key in keys {
                transaction.insert(&loaded.rows, key.to_be_bytes(), record::record(0));
            }
            if transaction.commit().map_err(at("loading"))?.is_err() {
                return Err(PeerError::engine(NAME, "loading")("a conflict of the only transaction"));
            }
        }
        Ok(loaded)
    }
}

impl DiskTable for Fjall {
    fn client<'a>(&'a self, _seed: u64) -> Result<Box<dyn Updates + 'a>> {
        Ok(Box::new(self))
    }

    fn settle(&self) -> Result<()> {
        self.database.persist(PersistMode::SyncAll).map_err(at("syncing"))
    }

    fn audit(&self) -> Result<Option<Sums>> {
        let reader = self.database.read_tx();
        let mut sums = Sums::default();
        for (key, row) in (0..).zip(reader.iter(&self.rows)) {
            let row = row.value().map_err(at("reading"))?;
            sums.row(record::balance(TABLE, key, Some(&row))?);
        }
        Ok(Some(sums))
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.database.persist(PersistMode::SyncAll).map_err(at("closing"))
    }
}

impl Updates for &Fjall {
    fn add(&mut self, key: u32, amount: i64) -> Result<()> {
        let bytes = key.to_be_bytes();
        loop {
            let transaction = self.database.write_tx().map_err(at("beginning"))?;
            let mut transaction = transaction.durability(Some(PersistMode::Buffer));
            let found = transaction.get(&self.rows, bytes).map_err(at("reading a balance"))?;
            let record = record::added(TABLE, key, amount, found.as_deref())?;
            transaction.insert(&self.rows, bytes, record);
            if transaction.commit().map_err(at("committing"))?.is_ok() {
                return Ok(());
            }
        }
    }
}
