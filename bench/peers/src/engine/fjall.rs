//! fjall: a log-structured merge tree with transactions.
//!
//! Of fjall's two kinds of transaction the single-writer one: the other one checks for conflicts at commit under one lock
//! that is held through the sync, so it groups nothing either, and repeats most transactions of ten hot branches. Either
//! kind writes and syncs the journal for one transaction at a time.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use fjall::{
    KeyspaceCreateOptions, PersistMode, Readable, SingleWriterTxDatabase, SingleWriterTxKeyspace,
    SingleWriterWriteTx,
};

use super::{CACHE_BYTES, Client, Engine, is_new};
use crate::error::{PeerError, Result};
use crate::guarantee::Guarantee;
use crate::record;
use crate::table::Table;
use crate::tpcb::{self, Movement, Rows, Shape, Source, Sums};

pub const NAME: &str = "fjall";

pub const fn settings(guarantee: Guarantee) -> &'static str {
    match guarantee {
        // fdatasync gives what fsync (SyncAll) gives here, for less.
        Guarantee::Machine => {
            "single-writer transactions, PersistMode::SyncData (fdatasync of the journal at every commit), 256 MiB \
             memtables, 2 GiB cache; clients queue on the one writer, no group commit"
        }
        Guarantee::Process => {
            "single-writer transactions, PersistMode::Buffer (the journal is written at every commit, never synced), \
             256 MiB memtables, 2 GiB cache; clients queue on the one writer"
        }
    }
}

const MEMTABLE_BYTES: u64 = 256 << 20;
const JOURNAL_BYTES_MAX: u64 = 4 << 30;

/// What is open.
pub struct Fjall {
    shape: Shape,
    database: SingleWriterTxDatabase,
    tables: [SingleWriterTxKeyspace; 3],
    history: SingleWriterTxKeyspace,
    persist: PersistMode,
    /// The next key of the history; only the writer adds.
    next: AtomicU64,
}

fn at(during: &'static str) -> impl FnOnce(fjall::Error) -> PeerError {
    PeerError::engine(NAME, during)
}

impl Fjall {
    pub fn open(directory: &Path, guarantee: Guarantee, shape: Shape) -> Result<Fjall> {
        let new = is_new(directory)?;
        let database = SingleWriterTxDatabase::builder(directory)
            .cache_size(CACHE_BYTES as u64)
            .max_journaling_size(JOURNAL_BYTES_MAX)
            .open()
            .map_err(at("opening"))?;
        let keyspace = |name: &str| {
            let options = || {
                KeyspaceCreateOptions::default()
                    .max_memtable_size(MEMTABLE_BYTES)
                    .expect_point_read_hits(true)
            };
            database.keyspace(name, options).map_err(at("opening a table"))
        };
        let [branches, tellers, accounts] = Table::ALL.map(|table| keyspace(table.name()));
        let tables = [branches?, tellers?, accounts?];
        let history = keyspace("history")?;
        let last = history.last_key_value().map(fjall::Guard::key).transpose();
        let next = match last.map_err(at("opening the history"))? {
            None => 0,
            Some(key) => {
                let key: [u8; 8] = key
                    .as_ref()
                    .try_into()
                    .map_err(PeerError::engine(NAME, "opening the history: its last key"))?;
                u64::from_be_bytes(key) + 1
            }
        };
        let persist = match guarantee {
            Guarantee::Machine => PersistMode::SyncData,
            Guarantee::Process => PersistMode::Buffer,
        };
        let bank = Fjall { shape, database, tables, history, persist, next: AtomicU64::new(next) };
        if new {
            bank.load()?;
        }
        Ok(bank)
    }
}

struct InTransaction<'a> {
    bank: &'a Fjall,
    transaction: SingleWriterWriteTx<'a>,
}

impl Rows for InTransaction<'_> {
    fn add(&mut self, table: Table, key: u32, delta: i64) -> Result<()> {
        let (rows, bytes) = (&self.bank.tables[table.index()], key.to_be_bytes());
        let found = self.transaction.get(rows, bytes).map_err(at("reading a balance"))?;
        let record = record::added(table, key, delta, found.as_deref())?;
        self.transaction.insert(rows, bytes, record);
        Ok(())
    }

    fn append(&mut self, movement: &Movement, time_us: i64) -> Result<()> {
        let key = self.bank.next.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        self.transaction.insert(&self.bank.history, key, record::history(movement, time_us));
        Ok(())
    }
}

impl Fjall {
    /// Creates all rows.
    fn load(&self) -> Result<()> {
        for rows in tpcb::new_rows(self.shape) {
            let mut transaction = self.database.write_tx();
            for row in rows {
                let into = &self.tables[row.table.index()];
                transaction.insert(into, row.key.to_be_bytes(), record::record(row.branch));
            }
            transaction.commit().map_err(at("loading"))?;
        }
        self.database.persist(PersistMode::SyncAll).map_err(at("loading"))
    }
}

impl Engine for Fjall {
    fn client<'a>(&'a self, seed: u64) -> Result<Box<dyn Client + 'a>> {
        Ok(Box::new(FjallClient { bank: self, source: Source::new(self.shape, seed) }))
    }

    fn audit(&self) -> Result<Sums> {
        let reader = self.database.read_tx();
        let mut sums = Sums::default();
        for table in Table::ALL {
            for (number, row) in reader.iter(&self.tables[table.index()]).enumerate() {
                let row = row.value().map_err(at("reading"))?;
                sums.row(table, record::balance(table, number as u32, Some(&row))?);
            }
        }
        for row in reader.iter(&self.history) {
            let row = row.value().map_err(at("reading"))?;
            let delta = record::delta(&row).ok_or("a history row has another length");
            sums.history(delta.map_err(PeerError::engine(NAME, "reading the history"))?);
        }
        Ok(sums)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.database.persist(PersistMode::SyncAll).map_err(at("closing"))
    }
}

struct FjallClient<'a> {
    bank: &'a Fjall,
    source: Source,
}

impl Client for FjallClient<'_> {
    fn transact(&mut self, now: Instant) -> Result<()> {
        let (movement, time_us) = self.source.next(now);
        let transaction = self.bank.database.write_tx().durability(Some(self.bank.persist));
        let mut rows = InTransaction { bank: self.bank, transaction };
        tpcb::transact(&mut rows, &movement, time_us)?;
        rows.transaction.commit().map_err(at("committing"))
    }
}
