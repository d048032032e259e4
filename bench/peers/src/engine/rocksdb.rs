//! RocksDB's TransactionDB: a log-structured merge tree with pessimistic row locks.
//!
//! Clients run side by side: rows are locked by GetForUpdate in the order account, teller, branch, and concurrent commits
//! share a write and a sync of the WAL (RocksDB's own group commit).

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rocksdb::{
    BlockBasedOptions, Cache, DBCompressionType, Direction, Error, ErrorKind, IteratorMode, Options,
    Transaction, TransactionDB, TransactionDBOptions, TransactionOptions, WriteOptions,
};

use super::{CACHE_BYTES, Client, Engine, is_new};
use crate::error::{PeerError, Result};
use crate::guarantee::Guarantee;
use crate::record;
use crate::table::Table;
use crate::tpcb::{self, Movement, Rows, Shape, Source, Sums};

pub const NAME: &str = "rocksdb";

pub const fn settings(guarantee: Guarantee) -> &'static str {
    match guarantee {
        Guarantee::Machine => {
            "7.8.3 (Debian's), TransactionDB, write option sync, recycled WAL files, 256 MiB memtables, bloom \
             filter, 2 GiB cache, no compression; clients run side by side under row locks, group commit is the \
             engine's own"
        }
        Guarantee::Process => {
            "7.8.3 (Debian's), TransactionDB, write option sync off (the WAL is written at every commit), 256 \
             MiB memtables, bloom filter, 2 GiB cache, no compression; clients run side by side under row locks"
        }
    }
}

const MEMTABLE_BYTES: usize = 256 << 20;
const MEMTABLES: i32 = 4;
const WAL_FILES_RECYCLED: usize = 4;
/// No two transactions can deadlock here, so that a long wait is a long queue.
const LOCK_TIMEOUT_MS: i64 = 10_000;
/// All tables are in one tree, so that a commit is one batch for one memtable; the first byte of a key is the table.
const HISTORY_PREFIX: u8 = Table::ALL.len() as u8;

/// What is open.
pub struct Rocksdb {
    shape: Shape,
    database: TransactionDB,
    guarantee: Guarantee,
    /// The next key of the history.
    next: AtomicU64,
}

fn at(during: &'static str) -> impl FnOnce(Error) -> PeerError {
    PeerError::engine(NAME, during)
}

fn key(table: Table, key: u32) -> [u8; 5] {
    let mut bytes = [table.index() as u8; 5];
    bytes[1..].copy_from_slice(&key.to_be_bytes());
    bytes
}

fn history_key(number: u64) -> [u8; 9] {
    let mut bytes = [HISTORY_PREFIX; 9];
    bytes[1..].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Syncs the WAL, which is written at every commit. The crate has no call for it on a TransactionDB.
///
/// # Errors
/// If a file cannot be synced.
pub fn sync_wal(database: &TransactionDB) -> Result<()> {
    let sync = || {
        for entry in std::fs::read_dir(database.path())? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                std::fs::File::open(&path)?.sync_data()?;
            }
        }
        Ok(())
    };
    sync().map_err(|error: std::io::Error| PeerError::engine(NAME, "syncing the WAL")(error))
}

impl Rocksdb {
    pub fn open(directory: &Path, guarantee: Guarantee, shape: Shape) -> Result<Rocksdb> {
        let new = is_new(directory)?;
        let mut tables = BlockBasedOptions::default();
        tables.set_block_cache(&Cache::new_lru_cache(CACHE_BYTES).map_err(at("making the cache"))?);
        tables.set_bloom_filter(10.0, false);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&tables);
        options.set_write_buffer_size(MEMTABLE_BYTES);
        options.set_max_write_buffer_number(MEMTABLES);
        options.set_recycle_log_file_num(WAL_FILES_RECYCLED);
        options.set_compression_type(DBCompressionType::None);
        options.set_max_background_jobs(2);
        let mut locks = TransactionDBOptions::new();
        locks.set_default_lock_timeout(LOCK_TIMEOUT_MS);
        locks.set_txn_lock_timeout(LOCK_TIMEOUT_MS);
        let database = TransactionDB::open(&options, &locks, directory).map_err(at("opening"))?;
        let last =
            database.iterator(IteratorMode::End).next().transpose().map_err(at("opening the history"))?;
        let next = match last.as_ref().and_then(|(key, _)| key.strip_prefix(&[HISTORY_PREFIX])) {
            None => 0,
            Some(number) => {
                let number = number
                    .try_into()
                    .map_err(PeerError::engine(NAME, "opening the history: its last key"))?;
                u64::from_be_bytes(number) + 1
            }
        };
        let bank = Rocksdb { shape, database, guarantee, next: AtomicU64::new(next) };
        if new {
            bank.load()?;
        }
        Ok(bank)
    }

    fn begin(&self, sync: bool) -> Transaction<'_, TransactionDB> {
        let mut write = WriteOptions::default();
        write.set_sync(sync);
        self.database.transaction_opt(&write, &TransactionOptions::default())
    }

    /// Creates all rows.
    fn load(&self) -> Result<()> {
        for rows in tpcb::new_rows(self.shape) {
            let transaction = self.begin(false);
            for row in rows {
                transaction
                    .put(key(row.table, row.key), record::record(row.branch))
                    .map_err(at("loading"))?;
            }
            transaction.commit().map_err(at("loading"))?;
        }
        sync_wal(&self.database)
    }
}

struct InTransaction<'a> {
    bank: &'a Rocksdb,
    transaction: &'a Transaction<'a, TransactionDB>,
    /// Set by an error after which RocksDB asks to repeat the transaction.
    repeat: bool,
}

impl InTransaction<'_> {
    fn failed<T>(&mut self, during: &'static str, result: std::result::Result<T, Error>) -> Result<T> {
        result.map_err(|error| {
            self.repeat = asks_to_repeat(&error);
            at(during)(error)
        })
    }
}

fn asks_to_repeat(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Busy | ErrorKind::TryAgain)
}

impl Rows for InTransaction<'_> {
    fn add(&mut self, table: Table, number: u32, delta: i64) -> Result<()> {
        let bytes = key(table, number);
        let found = self.transaction.get_pinned_for_update(bytes, true);
        let found = self.failed("reading a balance", found)?;
        let record = record::added(table, number, delta, found.as_deref())?;
        let put = self.transaction.put(bytes, record);
        self.failed("writing a balance", put)
    }

    fn append(&mut self, movement: &Movement, time_us: i64) -> Result<()> {
        let number = self.bank.next.fetch_add(1, Ordering::Relaxed);
        let put = self.transaction.put(history_key(number), record::history(movement, time_us));
        self.failed("appending to the history", put)
    }
}

impl Engine for Rocksdb {
    fn client<'a>(&'a self, seed: u64) -> Result<Box<dyn Client + 'a>> {
        Ok(Box::new(RocksdbClient { bank: self, source: Source::new(self.shape, seed) }))
    }

    fn audit(&self) -> Result<Sums> {
        let mut sums = Sums::default();
        for row in self.database.iterator(IteratorMode::From(&[0], Direction::Forward)) {
            let (key, row) = row.map_err(at("reading"))?;
            let number = u32::from_be_bytes(key[1..].try_into().unwrap_or_default());
            match Table::ALL.get(usize::from(key[0])) {
                Some(&table) => sums.row(table, record::balance(table, number, Some(&row))?),
                None => {
                    let delta = record::delta(&row).ok_or("a history row has another length");
                    sums.history(delta.map_err(PeerError::engine(NAME, "reading the history"))?);
                }
            }
        }
        Ok(sums)
    }

    fn close(self: Box<Self>) -> Result<()> {
        sync_wal(&self.database)
    }
}

struct RocksdbClient<'a> {
    bank: &'a Rocksdb,
    source: Source,
}

impl RocksdbClient<'_> {
    /// Whether it is done; it is not if RocksDB asks to repeat it.
    fn attempt(&self, movement: &Movement, time_us: i64) -> Result<bool> {
        let transaction = self.bank.begin(self.bank.guarantee == Guarantee::Machine);
        let mut rows = InTransaction { bank: self.bank, transaction: &transaction, repeat: false };
        let outcome = tpcb::transact(&mut rows, movement, time_us);
        let repeat = rows.repeat;
        match outcome {
            Err(_) if repeat => return Ok(false),
            other => other?,
        }
        match transaction.commit() {
            Ok(()) => Ok(true),
            Err(error) if asks_to_repeat(&error) => Ok(false),
            Err(error) => Err(at("committing")(error)),
        }
    }
}

impl Client for RocksdbClient<'_> {
    fn transact(&mut self, now: Instant) -> Result<()> {
        let (movement, time_us) = self.source.next(now);
        while !self.attempt(&movement, time_us)? {}
        Ok(())
    }
}
