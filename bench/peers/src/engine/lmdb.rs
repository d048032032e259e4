//! LMDB through heed: one writer at a time, readers without locks, a copy-on-write B+-tree in a mapped file.
//!
//! LMDB has one writer at a time, whose mutex clients queue on, and no group commit. Keys are native integers
//! (MDB_INTEGERKEY), history rows are appended (MDB_APPEND).
#![allow(unsafe_code)]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, IntegerComparator, PutFlags, RwTxn};

use super::{Client, Engine, is_new};
use crate::error::{PeerError, Result};
use crate::guarantee::Guarantee;
use crate::record;
use crate::table::Table;
use crate::tpcb::{self, Movement, Rows, Shape, Source, Sums};

pub const NAME: &str = "lmdb";

pub const fn settings(guarantee: Guarantee) -> &'static str {
    match guarantee {
        Guarantee::Machine => {
            "default sync (a commit writes its pages, syncs, writes the root), MDB_NOMEMINIT, integer keys, appended \
             history; clients queue on the one writer, no group commit"
        }
        Guarantee::Process => {
            "MDB_NOSYNC and MDB_WRITEMAP (pages are changed in the shared map), integer keys, appended history; \
             clients queue on the one writer"
        }
    }
}

/// The largest bank; the file is sparse.
pub const MAP_BYTES: usize = 64 << 30;
const HISTORY: &str = "history";

/// A table.
pub type Tree = Database<'static, Bytes, Bytes, IntegerComparator>;

/// What is open.
pub struct Lmdb {
    shape: Shape,
    env: &'static Env,
    tables: [Tree; 3],
    history: Tree,
    /// The next key of the history; only the writer adds.
    next: AtomicU64,
}

fn at(during: &'static str) -> impl FnOnce(heed::Error) -> PeerError {
    PeerError::engine(NAME, during)
}

/// Opens a table, or creates it.
///
/// # Errors
/// LMDB's.
pub fn tree(env: &'static Env, name: &str) -> Result<Tree> {
    let transaction = env.write_txn().map_err(at("opening a table"))?;
    env.create_databases_and_commit(transaction, |opener, transaction| {
        let mut options =
            opener.database_options().types::<Bytes, Bytes>().key_comparator::<IntegerComparator>();
        options.name(name);
        options.create(transaction).map(CommitOrAbort::<_, ()>::Commit)
    })
    .map(CommitOrAbort::unwrap_commit)
    .map_err(at("opening a table"))
}

impl Lmdb {
    pub fn open(directory: &Path, guarantee: Guarantee, shape: Shape) -> Result<Lmdb> {
        let new = is_new(directory)?;
        let flags = match guarantee {
            // MDB_WRITEMAP makes a durable commit three to eight times slower here: it syncs by msync.
            Guarantee::Machine => EnvFlags::NO_MEM_INIT,
            Guarantee::Process => EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP,
        };
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES).max_dbs(4);
        // SAFETY: the directory is this run's own, so nobody else changes the file that is mapped; the flags weaken
        // durability and nothing that memory safety needs: only this program's code writes to the map.
        let env = unsafe { options.flags(flags).open(directory) }.map_err(at("opening"))?;
        // Its tables borrow it. There are two in the life of the process.
        let env: &'static Env = Box::leak(Box::new(env));
        let history = tree(env, HISTORY)?;
        let reader = env.read_txn().map_err(at("opening the history"))?;
        let rows = history.len(&reader).map_err(at("opening the history"))?;
        let mut tables = Vec::new();
        for table in Table::ALL {
            tables.push(tree(env, table.name())?);
        }
        let tables = <[Tree; 3]>::try_from(tables).unwrap_or_else(|_| unreachable!("three were made"));
        let bank = Lmdb { shape, env, tables, history, next: AtomicU64::new(rows) };
        if new {
            bank.load()?;
        }
        Ok(bank)
    }
}

struct InTransaction<'a> {
    bank: &'a Lmdb,
    transaction: RwTxn<'a>,
}

impl Rows for InTransaction<'_> {
    fn add(&mut self, table: Table, key: u32, delta: i64) -> Result<()> {
        let (tree, bytes) = (&self.bank.tables[table.index()], key.to_ne_bytes());
        let found = tree.get(&self.transaction, &bytes).map_err(at("reading a balance"))?;
        let record = record::added(table, key, delta, found)?;
        tree.put(&mut self.transaction, &bytes, &record).map_err(at("writing a balance"))
    }

    fn append(&mut self, movement: &Movement, time_us: i64) -> Result<()> {
        let key = self.bank.next.fetch_add(1, Ordering::Relaxed).to_ne_bytes();
        let row = record::history(movement, time_us);
        self.bank
            .history
            .put_with_flags(&mut self.transaction, PutFlags::APPEND, &key, &row)
            .map_err(at("appending to the history"))
    }
}

impl Lmdb {
    /// Creates all rows.
    fn load(&self) -> Result<()> {
        for rows in tpcb::new_rows(self.shape) {
            let mut transaction = self.env.write_txn().map_err(at("loading"))?;
            for row in rows {
                let (tree, key) = (&self.tables[row.table.index()], row.key.to_ne_bytes());
                tree.put_with_flags(&mut transaction, PutFlags::APPEND, &key, &record::record(row.branch))
                    .map_err(at("loading"))?;
            }
            transaction.commit().map_err(at("loading"))?;
        }
        Ok(())
    }
}

impl Engine for Lmdb {
    fn client<'a>(&'a self, seed: u64) -> Result<Box<dyn Client + 'a>> {
        Ok(Box::new(LmdbClient { bank: self, source: Source::new(self.shape, seed) }))
    }

    fn audit(&self) -> Result<Sums> {
        let reader = self.env.read_txn().map_err(at("reading"))?;
        let mut sums = Sums::default();
        for table in Table::ALL {
            for (number, row) in self.tables[table.index()].iter(&reader).map_err(at("reading"))?.enumerate()
            {
                let (_, row) = row.map_err(at("reading"))?;
                sums.row(table, record::balance(table, number as u32, Some(row))?);
            }
        }
        for row in self.history.iter(&reader).map_err(at("reading"))? {
            let (_, row) = row.map_err(at("reading"))?;
            let delta = record::delta(row).ok_or("a history row has another length");
            sums.history(delta.map_err(PeerError::engine(NAME, "reading the history"))?);
        }
        Ok(sums)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.env.force_sync().map_err(at("closing"))
    }
}

struct LmdbClient<'a> {
    bank: &'a Lmdb,
    source: Source,
}

impl Client for LmdbClient<'_> {
    fn transact(&mut self, now: Instant) -> Result<()> {
        let (movement, time_us) = self.source.next(now);
        let transaction = self.bank.env.write_txn().map_err(at("beginning"))?;
        let mut rows = InTransaction { bank: self.bank, transaction };
        tpcb::transact(&mut rows, &movement, time_us)?;
        rows.transaction.commit().map_err(at("committing"))
    }
}
