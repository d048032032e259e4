//! redb: one writer at a time, a copy-on-write B+-tree in one file.
//!
//! redb has one writer at a time, which clients queue for inside it, and no group commit.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use redb::{Database, Durability, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};

use super::{CACHE_BYTES, Client, Engine, is_new};
use crate::error::{PeerError, Result};
use crate::guarantee::Guarantee;
use crate::record::{self, HISTORY_BYTES, RECORD_BYTES};
use crate::table::Table;
use crate::tpcb::{self, Movement, Rows, Shape, Source, Sums};

pub const NAME: &str = "redb";

pub const fn settings(guarantee: Guarantee) -> &'static str {
    match guarantee {
        Guarantee::Machine => {
            "Durability::Immediate, one-phase commit with checksums (the default), fixed-width rows, 2 GiB cache; \
             clients queue on the one writer, no group commit"
        }
        Guarantee::Process => {
            "Durability::None (there is nothing between it and Immediate): WEAKER than asked for, a SIGKILL loses all \
             commits since the last Immediate one; fixed-width rows, 2 GiB cache; clients queue on the one writer"
        }
    }
}

const TABLES: [TableDefinition<'static, u32, &'static [u8; RECORD_BYTES]>; 3] = [
    TableDefinition::new(Table::Branches.name()),
    TableDefinition::new(Table::Tellers.name()),
    TableDefinition::new(Table::Accounts.name()),
];
const HISTORY: TableDefinition<'static, u64, &'static [u8; HISTORY_BYTES]> = TableDefinition::new("history");

/// What is open.
pub struct Redb {
    shape: Shape,
    database: Database,
    durability: Durability,
    /// The next key of the history; only the writer adds.
    next: AtomicU64,
}

fn at<E: std::fmt::Display>(during: &'static str) -> impl FnOnce(E) -> PeerError {
    PeerError::engine(NAME, during)
}

impl Redb {
    pub fn open(directory: &Path, guarantee: Guarantee, shape: Shape) -> Result<Redb> {
        let new = is_new(directory)?;
        let durability = match guarantee {
            Guarantee::Machine => Durability::Immediate,
            Guarantee::Process => Durability::None,
        };
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES);
        let database = builder.create(directory.join("bank.redb")).map_err(at("opening"))?;
        let creation = database.begin_write().map_err(at("creating tables"))?;
        for table in TABLES {
            creation.open_table(table).map_err(at("creating tables"))?;
        }
        let rows = {
            let history = creation.open_table(HISTORY).map_err(at("creating tables"))?;
            history.len().map_err(at("opening the history"))?
        };
        creation.commit().map_err(at("creating tables"))?;
        let bank = Redb { shape, database, durability, next: AtomicU64::new(rows) };
        if new {
            bank.load()?;
        }
        Ok(bank)
    }

    fn begin(&self) -> Result<redb::WriteTransaction> {
        let mut transaction = self.database.begin_write().map_err(at("beginning"))?;
        transaction.set_durability(self.durability).map_err(at("beginning"))?;
        Ok(transaction)
    }
}

struct InTransaction<'a> {
    bank: &'a Redb,
    transaction: &'a redb::WriteTransaction,
}

impl Rows for InTransaction<'_> {
    fn add(&mut self, table: Table, key: u32, delta: i64) -> Result<()> {
        let mut rows = self.transaction.open_table(TABLES[table.index()]).map_err(at("opening a table"))?;
        let mut row =
            rows.get_mut(key).map_err(at("reading a balance"))?.ok_or(PeerError::Row { table, key })?;
        let record = record::added(table, key, delta, Some(row.value()))?;
        row.insert(&record).map_err(at("writing a balance"))
    }

    fn append(&mut self, movement: &Movement, time_us: i64) -> Result<()> {
        let key = self.bank.next.fetch_add(1, Ordering::Relaxed);
        let mut history = self.transaction.open_table(HISTORY).map_err(at("opening the history"))?;
        history
            .insert(key, &record::history(movement, time_us))
            .map_err(at("appending to the history"))
            .map(drop)
    }
}

impl Redb {
    /// Creates all rows.
    fn load(&self) -> Result<()> {
        // Durable at the end only.
        let mut transaction = self.database.begin_write().map_err(at("loading"))?;
        for rows in tpcb::new_rows(self.shape) {
            transaction.set_durability(Durability::None).map_err(at("loading"))?;
            for table in Table::ALL {
                let mut into = transaction.open_table(TABLES[table.index()]).map_err(at("loading"))?;
                for row in rows.iter().filter(|row| row.table == table) {
                    into.insert(row.key, &record::record(row.branch)).map_err(at("loading"))?;
                }
            }
            transaction.commit().map_err(at("loading"))?;
            transaction = self.database.begin_write().map_err(at("loading"))?;
        }
        transaction.commit().map_err(at("loading"))
    }
}

impl Engine for Redb {
    fn client<'a>(&'a self, seed: u64) -> Result<Box<dyn Client + 'a>> {
        Ok(Box::new(RedbClient { bank: self, source: Source::new(self.shape, seed) }))
    }

    fn audit(&self) -> Result<Sums> {
        let reader = self.database.begin_read().map_err(at("reading"))?;
        let mut sums = Sums::default();
        for table in Table::ALL {
            let rows = reader.open_table(TABLES[table.index()]).map_err(at("reading"))?;
            for row in rows.iter().map_err(at("reading"))? {
                let (key, row) = row.map_err(at("reading"))?;
                sums.row(table, record::balance(table, key.value(), Some(row.value()))?);
            }
        }
        let history = reader.open_table(HISTORY).map_err(at("reading"))?;
        for row in history.iter().map_err(at("reading"))? {
            let (_, row) = row.map_err(at("reading"))?;
            let delta = record::delta(row.value()).ok_or("a history row has another length");
            sums.history(delta.map_err(at("reading the history"))?);
        }
        Ok(sums)
    }

    fn close(self: Box<Self>) -> Result<()> {
        // An empty commit that is Immediate makes those before it durable.
        self.database.begin_write().map_err(at("closing"))?.commit().map_err(at("closing"))
    }
}

struct RedbClient<'a> {
    bank: &'a Redb,
    source: Source,
}

impl Client for RedbClient<'_> {
    fn transact(&mut self, now: Instant) -> Result<()> {
        let (movement, time_us) = self.source.next(now);
        let transaction = self.bank.begin()?;
        let mut rows = InTransaction { bank: self.bank, transaction: &transaction };
        tpcb::transact(&mut rows, &movement, time_us)?;
        transaction.commit().map_err(at("committing"))
    }
}
