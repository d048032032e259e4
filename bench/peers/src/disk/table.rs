//! [`DiskTable`]: the table in an engine, open; [`DiskEngine`]: which engine.
//!
//! Each engine's file says in comments, and in [`DiskEngine::settings`], how it is set and why. All are set for a memory
//! limit M. Where an engine stays within M, its own cache gets half of it ([`Limit::cache`]) and a memtable an eighth
//! ([`Limit::eighth`]); the rest is for the page cache, logs, indexes and what an engine does in the background.

use std::path::Path;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::change::Sums;
#[cfg(feature = "rocksdb")]
use super::rocksdb;
use super::{bare, fjall, lmdb, rialto};
use crate::error::Result;

/// A table that is open. Its rows have the keys from 0 on.
pub trait DiskTable: Sync {
    /// A client; the seed is for what it draws beside its changes.
    fn client<'a>(&'a self, seed: u64) -> Result<Box<dyn Updates + 'a>>;
    /// Brings to disk what the load has left in memory, if the engine has a call for that.
    fn settle(&self) -> Result<()>;
    /// Reads all rows; `None` if it has none.
    fn audit(&self) -> Result<Option<Sums>>;
    /// What has been counted of pages so far, by an engine that tells.
    fn pages(&self) -> Option<PageCounts> {
        None
    }
    /// How many pages a transaction of the next clients reads and writes. Only bare pages do what they are told.
    fn set_mix(&self, _mix: Mix) {}
    /// Closes it: what was acknowledged is on disk when this returns.
    fn close(self: Box<Self>) -> Result<()>;
}

/// One client's own state; it moves to the client's thread.
pub trait Updates: Send {
    /// Runs one transaction: reads a row, adds to its balance, writes it back, and commits. When this returns, the commit
    /// survives SIGKILL of the process. What an engine asks to repeat is repeated here.
    fn add(&mut self, key: u32, amount: i64) -> Result<()>;
}

/// Pages that a transaction reads and writes, on the average.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mix {
    /// Read.
    pub reads: f64,
    /// Written.
    pub writes: f64,
}

impl Mix {
    /// That of a pool with a tenth of the pages, without any other work.
    pub const POOL_OF_A_TENTH: Mix = Mix { reads: 0.9, writes: 0.9 };
}

/// Pages, as an engine counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageCounts {
    /// Data accesses.
    pub accesses: u64,
    /// Those of them that have read the disk.
    pub misses: u64,
    /// Pages that they have read.
    pub reads_by_accesses: u64,
    /// Pages that were read, for whatever reason.
    pub reads: u64,
    /// Pages that were written.
    pub writes: u64,
}

impl PageCounts {
    /// What was counted since an earlier moment.
    pub fn since(&self, earlier: &PageCounts) -> PageCounts {
        PageCounts {
            accesses: self.accesses - earlier.accesses,
            misses: self.misses - earlier.misses,
            reads_by_accesses: self.reads_by_accesses - earlier.reads_by_accesses,
            reads: self.reads - earlier.reads,
            writes: self.writes - earlier.writes,
        }
    }
}

/// The memory limit of an engine.
#[derive(Debug, Clone, Copy)]
pub struct Limit(pub u64);

impl Limit {
    /// For the engine's own cache.
    pub const fn cache(self) -> u64 {
        self.0 / 2
    }

    /// For a memtable, and for other memory of an engine's own.
    pub const fn eighth(self) -> u64 {
        self.0 / 8
    }
}

/// Which engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DiskEngine {
    /// This project's
    Rialto,
    /// LMDB, through heed
    Lmdb,
    /// fjall, optimistic transactions
    Fjall,
    /// RocksDB, TransactionDB
    #[cfg(feature = "rocksdb")]
    Rocksdb,
    /// Bare pages: no engine, the lower bound
    Bare,
}

impl DiskEngine {
    /// All that are built.
    pub fn all() -> &'static [DiskEngine] {
        DiskEngine::value_variants()
    }

    /// For the table, file names and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            DiskEngine::Rialto => "rialto",
            DiskEngine::Lmdb => "lmdb",
            DiskEngine::Fjall => "fjall",
            #[cfg(feature = "rocksdb")]
            DiskEngine::Rocksdb => "rocksdb",
            DiskEngine::Bare => bare::NAME,
        }
    }

    /// How it is set, and how its clients share it.
    pub const fn settings(self) -> &'static str {
        match self {
            DiskEngine::Rialto => rialto::SETTINGS,
            DiskEngine::Lmdb => lmdb::SETTINGS,
            DiskEngine::Fjall => fjall::SETTINGS,
            #[cfg(feature = "rocksdb")]
            DiskEngine::Rocksdb => rocksdb::SETTINGS,
            DiskEngine::Bare => bare::SETTINGS,
        }
    }

    /// Makes a table of so many rows in a directory that is empty.
    pub fn load(self, directory: &Path, rows: u32, limit: Limit) -> Result<Box<dyn DiskTable>> {
        Ok(match self {
            DiskEngine::Rialto => Box::new(rialto::Rialto::load(directory, rows, limit)?),
            DiskEngine::Lmdb => Box::new(lmdb::Lmdb::load(directory, rows)?),
            DiskEngine::Fjall => Box::new(fjall::Fjall::load(directory, rows, limit)?),
            #[cfg(feature = "rocksdb")]
            DiskEngine::Rocksdb => Box::new(rocksdb::Rocksdb::load(directory, rows, limit)?),
            DiskEngine::Bare => Box::new(bare::Bare::load(directory, rows)?),
        })
    }
}

/// Rows that are loaded in one transaction.
const ROWS_PER_TRANSACTION: u32 = 500;

/// The keys of a table, in the parts that are loaded in one transaction each.
pub fn parts(rows: u32) -> impl Iterator<Item = std::ops::Range<u32>> {
    (0..rows)
        .step_by(ROWS_PER_TRANSACTION as usize)
        .map(move |first| first..first.saturating_add(ROWS_PER_TRANSACTION).min(rows))
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
