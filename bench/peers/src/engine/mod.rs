//! The engines, one file each, behind two small traits.
//!
//! Each engine's file says in comments, and in [`EngineName::settings`], how it is set for each guarantee and why that is
//! its best setting for it.

mod fjall;
pub mod lmdb;
mod redb;
mod rialto;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
mod sqlite;

use std::path::Path;
use std::time::Instant;

use clap::ValueEnum;
use serde_json::Value as Json;

use crate::error::{PeerError, Result};
use crate::guarantee::Guarantee;
use crate::tpcb::{Shape, Sums};

/// What each engine may keep of its files in its own cache: more than the bank has.
const CACHE_BYTES: usize = 2 << 30;

/// A bank in an engine, open.
pub trait Engine: Sync {
    /// A client that runs transactions; another seed gives other ones.
    fn client<'a>(&'a self, seed: u64) -> Result<Box<dyn Client + 'a>>;
    /// Reads all rows.
    fn audit(&self) -> Result<Sums>;
    /// Makes a checkpoint, and none in the background for the next half minute at least: what commits then is left to
    /// recovery. An engine without checkpoints has nothing to do.
    fn checkpoint_now_and_not_again(&self) -> Result<()> {
        Ok(())
    }
    /// What its recovery did when it was opened, if it tells.
    fn recovery(&self) -> Option<Json> {
        None
    }
    /// Closes it: what was acknowledged is on disk when this returns.
    fn close(self: Box<Self>) -> Result<()>;
}

/// One client's own state; it moves to the client's thread.
pub trait Client: Send {
    /// Runs one transaction, until it has what its guarantee promises; aborts that an engine asks to repeat are repeated
    /// here. `now` is the time.
    fn transact(&mut self, now: Instant) -> Result<()>;
}

/// Which engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EngineName {
    /// This project's
    Rialto,
    /// SQLite, WAL
    Sqlite,
    /// LMDB, through heed
    Lmdb,
    /// redb
    Redb,
    /// fjall, single-writer transactions
    Fjall,
    /// RocksDB, TransactionDB
    #[cfg(feature = "rocksdb")]
    Rocksdb,
}

impl EngineName {
    /// All that are built.
    pub fn all() -> &'static [EngineName] {
        EngineName::value_variants()
    }

    /// For the table, file names and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            EngineName::Rialto => rialto::NAME,
            EngineName::Sqlite => sqlite::NAME,
            EngineName::Lmdb => lmdb::NAME,
            EngineName::Redb => redb::NAME,
            EngineName::Fjall => fjall::NAME,
            #[cfg(feature = "rocksdb")]
            EngineName::Rocksdb => rocksdb::NAME,
        }
    }

    /// How it is set for a guarantee, and how its clients share it.
    pub const fn settings(self, guarantee: Guarantee) -> &'static str {
        match self {
            EngineName::Rialto => rialto::settings(guarantee),
            EngineName::Sqlite => sqlite::settings(guarantee),
            EngineName::Lmdb => lmdb::settings(guarantee),
            EngineName::Redb => redb::settings(guarantee),
            EngineName::Fjall => fjall::settings(guarantee),
            #[cfg(feature = "rocksdb")]
            EngineName::Rocksdb => rocksdb::settings(guarantee),
        }
    }

    /// Whether an answered commit survives what the guarantee says; its settings say why not.
    pub fn keeps(self, guarantee: Guarantee) -> bool {
        (self, guarantee) != (EngineName::Redb, Guarantee::Process)
    }

    /// Opens the bank in a directory that exists; into an empty one it loads a bank of this shape.
    pub fn open(self, directory: &Path, guarantee: Guarantee, shape: Shape) -> Result<Box<dyn Engine>> {
        Ok(match self {
            EngineName::Rialto => Box::new(rialto::Rialto::open(directory, guarantee, shape)?),
            EngineName::Sqlite => Box::new(sqlite::Sqlite::open(directory, guarantee, shape)?),
            EngineName::Lmdb => Box::new(lmdb::Lmdb::open(directory, guarantee, shape)?),
            EngineName::Redb => Box::new(redb::Redb::open(directory, guarantee, shape)?),
            EngineName::Fjall => Box::new(fjall::Fjall::open(directory, guarantee, shape)?),
            #[cfg(feature = "rocksdb")]
            EngineName::Rocksdb => Box::new(rocksdb::Rocksdb::open(directory, guarantee, shape)?),
        })
    }
}

/// Whether nothing is in a directory.
pub fn is_new(directory: &Path) -> Result<bool> {
    let entries = std::fs::read_dir(directory)
        .map_err(|cause| PeerError::Files { during: format!("reading {}", directory.display()), cause })?;
    Ok(entries.count() == 0)
}

#[cfg(test)]
mod tests;
