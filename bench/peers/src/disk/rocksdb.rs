//! RocksDB's TransactionDB: a log-structured merge tree with pessimistic row locks.
//!
//! Indexes and filters of the files are in the block cache, so that they count within its part of the limit. Reads,
//! flushes and compactions are direct: buffered ones would keep a second copy of the same blocks in the page cache,
//! which counts too.

use std::path::Path;

use rocksdb::{
    BlockBasedOptions, Cache, DBCompressionType, Error, ErrorKind, IteratorMode, Options, ReadOptions,
    Transaction, TransactionDB, TransactionDBOptions, TransactionOptions, WriteOptions,
};

use super::change::Sums;
use super::table::{DiskTable, Limit, Updates, parts};
use crate::engine::rocksdb::{NAME, sync_wal};
use crate::error::{PeerError, Result};
use crate::record;
use crate::table::Table;

pub const SETTINGS: &str = "7.8.3 (Debian's), TransactionDB, write option sync off (the WAL is written at every commit), a \
    block cache of M/2 with indexes and filters in it, two memtables of M/8, none kept after its \
    flush, direct reads, flushes and compactions, bloom filter, no compression, two background jobs; \
    clients run side by side under row locks";

const TABLE: Table = Table::Accounts;
const MEMTABLES: i32 = 2;
/// By default a TransactionDB keeps as many memtables again after they are flushed, to find conflicts with snapshots. These
/// transactions have none.
const MEMTABLES_KEPT_BYTES: i64 = 1;
const WAL_FILES_RECYCLED: usize = 4;

/// What is open.
pub struct Rocksdb {
    database: TransactionDB,
}

fn at(during: &'static str) -> impl FnOnce(Error) -> PeerError {
    PeerError::engine(NAME, during)
}

impl Rocksdb {
    pub fn load(directory: &Path, rows: u32, limit: Limit) -> Result<Rocksdb> {
        let cache = Cache::new_lru_cache(limit.cache() as usize).map_err(at("making the cache"))?;
        let mut tables = BlockBasedOptions::default();
        tables.set_block_cache(&cache);
        tables.set_bloom_filter(10.0, false);
        tables.set_cache_index_and_filter_blocks(true);
        tables.set_pin_l0_filter_and_index_blocks_in_cache(true);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&tables);
        options.set_write_buffer_size(limit.eighth() as usize);
        options.set_max_write_buffer_number(MEMTABLES);
        options.set_max_write_buffer_size_to_maintain(MEMTABLES_KEPT_BYTES);
        options.set_recycle_log_file_num(WAL_FILES_RECYCLED);
        options.set_compression_type(DBCompressionType::None);
        options.set_max_background_jobs(2);
        options.set_use_direct_reads(true);
        options.set_use_direct_io_for_flush_and_compaction(true);
        let database =
            TransactionDB::open(&options, &TransactionDBOptions::new(), directory).map_err(at("opening"))?;
        let loaded = Rocksdb { database };
        for keys in parts(rows) {
            let transaction = loaded.begin();
            for key in keys {
                transaction.put(key.to_be_bytes(), record::record(0)).map_err(at("loading"))?;
            }
            transaction.commit().map_err(at("loading"))?;
        }
        Ok(loaded)
    }

    fn begin(&self) -> Transaction<'_, TransactionDB> {
        let mut write = WriteOptions::default();
        write.set_sync(false);
        self.database.transaction_opt(&write, &TransactionOptions::default())
    }

    fn attempt(&self, key: u32, amount: i64) -> std::result::Result<(), Attempt> {
        let (transaction, bytes) = (self.begin(), key.to_be_bytes());
        let found =
            transaction.get_pinned_for_update(bytes, true).map_err(Attempt::of("reading a balance"))?;
        let record = record::added(TABLE, key, amount, found.as_deref()).map_err(Attempt::Failed)?;
        drop(found);
        transaction.put(bytes, record).map_err(Attempt::of("writing a balance"))?;
        transaction.commit().map_err(Attempt::of("committing"))
    }
}

/// Why a transaction was not committed.
enum Attempt {
    /// RocksDB asks to repeat it.
    Repeat,
    Failed(PeerError),
}

impl Attempt {
    fn of(during: &'static str) -> impl FnOnce(Error) -> Attempt {
        move |error| match error.kind() {
            ErrorKind::Busy | ErrorKind::TryAgain => Attempt::Repeat,
            _ => Attempt::Failed(at(during)(error)),
        }
    }
}

impl DiskTable for Rocksdb {
    fn client<'a>(&'a self, _seed: u64) -> Result<Box<dyn Updates + 'a>> {
        Ok(Box::new(self))
    }

    fn settle(&self) -> Result<()> {
        sync_wal(&self.database)
    }

    fn audit(&self) -> Result<Option<Sums>> {
        let mut sums = Sums::default();
        let mut reads = ReadOptions::default();
        reads.fill_cache(false);
        for (key, row) in (0..).zip(self.database.iterator_opt(IteratorMode::Start, reads)) {
            let (_, row) = row.map_err(at("reading"))?;
            sums.row(record::balance(TABLE, key, Some(&row))?);
        }
        Ok(Some(sums))
    }

    fn close(self: Box<Self>) -> Result<()> {
        sync_wal(&self.database)
    }
}

impl Updates for &Rocksdb {
    fn add(&mut self, key: u32, amount: i64) -> Result<()> {
        loop {
            match self.attempt(key, amount) {
                Ok(()) => return Ok(()),
                Err(Attempt::Repeat) => {}
                Err(Attempt::Failed(error)) => return Err(error),
            }
        }
    }
}
