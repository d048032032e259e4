//! [`Storage`]: the tables of an open database, and the directory that they are kept in.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use super::Catalog;
use super::memory::index::NodePool;
use super::memory::{LoadFile, Segments};
use crate::catalog::first_row_number;
use crate::error::{Error, Result};
use crate::ids::Lsn;
use crate::io::Disk;

/// See the [module](self).
pub(crate) struct Storage {
    pub disk: Arc<dyn Disk>,
    pub database_id: u128,
    pub segments: Arc<Segments>,
    pub nodes: Arc<NodePool>,
    pub catalog: Catalog,
    /// Load files that redo would need.
    pub loads: Arc<Mutex<Vec<LoadFile>>>,
    /// Held by transactions that write or remove load files ([`Storage::pass_to_load_files`]).
    pub load_passes: RwLock<()>,
    /// The first place of this opening: hidden row numbers begin anew behind those of earlier ones.
    pub opened_at: Lsn,
    pub closed: AtomicBool,
}

impl Storage {
    pub fn check_open(&self) -> Result<()> {
        if self.is_open() { Ok(()) } else { Err(Error::Closed) }
    }

    #[inline]
    pub fn is_open(&self) -> bool {
        !self.closed.load(Ordering::SeqCst)
    }

    /// What a transaction holds while it writes or removes load files. Invariant: **a transaction touches load files only while
    /// its opening has the directory**, so the number of a file that it names is no other load's. A close waits for the passes
    /// that are out; after it there are none ([`Error::Closed`]), and a file that is left is recovery's.
    pub fn pass_to_load_files(&self) -> Result<RwLockReadGuard<'_, ()>> {
        let pass = self.load_passes.read();
        self.check_open()?;
        Ok(pass)
    }

    /// Refuses new work, and waits for transactions that write or remove load files.
    pub fn shut(&self) {
        self.closed.store(true, Ordering::SeqCst);
        drop(self.load_passes.write());
    }

    /// A hidden row number above those of the rows that earlier openings have inserted, for the most part; recovery begins above all
    /// rows that there are.
    pub fn first_row_number(&self) -> u64 {
        first_row_number(self.opened_at)
    }
}
