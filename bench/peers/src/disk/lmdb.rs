//! LMDB through heed: one writer at a time, a copy-on-write B+-tree in a mapped file. Its only cache is the page
//! cache, which has all of the limit.
//!
//! A client reads its row in a transaction for reading before it queues for the one writer. So the faults of the
//! clients' reads overlap; otherwise each of them would hold the writer's mutex. Read-ahead would fill the memory
//! with pages that nothing asks for: it is off (`MDB_NORDAHEAD`).
#![allow(unsafe_code)]

use std::path::Path;

use heed::{Env, EnvFlags, EnvOpenOptions, PutFlags};

use super::change::Sums;
use super::table::{DiskTable, Updates, parts};
use crate::engine::lmdb::{MAP_BYTES, NAME, Tree, tree};
use crate::error::{PeerError, Result};
use crate::record;
use crate::table::Table;

pub const SETTINGS: &str = "MDB_NOSYNC and MDB_WRITEMAP (pages are changed in the shared map), MDB_NORDAHEAD, integer keys; \
    the page cache has all of M; a client reads its row before it queues for the one writer";

const TABLE: Table = Table::Accounts;
/// A slot for each client that reads, and for the audit.
const READERS_MAX: u32 = 512;

/// What is open.
pub struct Lmdb {
    env: &'static Env,
    tree: Tree,
}

fn at(during: &'static str) -> impl FnOnce(heed::Error) -> PeerError {
    PeerError::engine(NAME, during)
}

impl Lmdb {
    pub fn load(directory: &Path, rows: u32) -> Result<Lmdb> {
        let flags = EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP | EnvFlags::NO_READ_AHEAD;
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES).max_dbs(1).max_readers(READERS_MAX);
        // SAFETY: the directory is this run's own, so that no other process changes the file that is mapped; the flags weaken
        // durability and nothing that memory safety needs: only this program's code writes to the map.
        let env = unsafe { options.flags(flags).open(directory) }.map_err(at("opening"))?;
        // Its table borrows it. There is one in the life of the process.
        let env: &'static Env = Box::leak(Box::new(env));
        let tree = tree(env, TABLE.name())?;
        for keys in parts(rows) {
            let mut transaction = env.write_txn().map_err(at("loading"))?;
            for key in keys {
                tree.put_with_flags(
                    &mut transaction,
                    PutFlags::APPEND,
                    &key.to_ne_bytes(),
                    &record::record(0),
                )
                .map_err(at("loading"))?;
            }
            transaction.commit().map_err(at("loading"))?;
        }
        Ok(Lmdb { env, tree })
    }
}

impl DiskTable for Lmdb {
    fn client<'a>(&'a self, _seed: u64) -> Result<Box<dyn Updates + 'a>> {
        Ok(Box::new(self))
    }

    fn settle(&self) -> Result<()> {
        self.env.force_sync().map_err(at("syncing"))
    }

    fn audit(&self) -> Result<Option<Sums>> {
        let reader = self.env.read_txn().map_err(at("reading"))?;
        let mut sums = Sums::default();
        for (key, row) in (0..).zip(self.tree.iter(&reader).map_err(at("reading"))?) {
            let (_, row) = row.map_err(at("reading"))?;
            sums.row(record::balance(TABLE, key, Some(row))?);
        }
        Ok(Some(sums))
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.env.force_sync().map_err(at("closing"))
    }
}

impl Updates for &Lmdb {
    fn add(&mut self, key: u32, amount: i64) -> Result<()> {
        let bytes = key.to_ne_bytes();
        let reader = self.env.read_txn().map_err(at("reading ahead"))?;
        let ahead = self.tree.get(&reader, &bytes).map_err(at("reading ahead"))?;
        record::balance(TABLE, key, ahead)?;
        drop(reader);
        let mut transaction = self.env.write_txn().map_err(at("beginning"))?;
        let found = self.tree.get(&transaction, &bytes).map_err(at("reading a balance"))?;
        let record = record::added(TABLE, key, amount, found)?;
        self.tree.put(&mut transaction, &bytes, &record).map_err(at("writing a balance"))?;
        transaction.commit().map_err(at("committing"))
    }
}
