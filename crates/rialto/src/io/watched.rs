//! [`WatchedDisk`]: for tests, a disk in memory whose transfers a function sees before they are made.

use std::fmt;
use std::sync::Arc;

use super::{Caching, DirectoryLock, Disk, DiskResult, File, MemoryDisk, Open, SharedMap};

/// Transfers that are about to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transfers {
    /// So many reads, in one call.
    Reads(usize),
    /// So many writes, in one call.
    Writes(usize),
}

/// Sees the transfers of a file of this name. It may panic.
type Watch = Arc<dyn Fn(&str, Transfers) + Send + Sync>;

/// See the [module's documentation](self).
pub(crate) struct WatchedDisk {
    inner: Arc<MemoryDisk>,
    watch: Watch,
}

impl WatchedDisk {
    /// Over a disk in memory.
    pub fn over(
        inner: Arc<MemoryDisk>,
        watch: impl Fn(&str, Transfers) + Send + Sync + 'static,
    ) -> Arc<WatchedDisk> {
        Arc::new(WatchedDisk { inner, watch: Arc::new(watch) })
    }
}

impl fmt::Debug for WatchedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WatchedDisk")
    }
}

struct WatchedFile {
    inner: Arc<dyn File>,
    watch: Watch,
}

impl fmt::Debug for WatchedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WatchedFile").field(&self.inner).finish()
    }
}

impl WatchedFile {
    fn see(&self, transfers: Transfers) {
        (self.watch)(self.inner.name(), transfers);
    }
}

impl File for WatchedFile {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> DiskResult<()> {
        self.see(Transfers::Reads(1));
        self.inner.read_at(buffer, offset)
    }

    fn read_each(&self, reads: &mut [(u64, &mut [u8])]) -> DiskResult<()> {
        self.see(Transfers::Reads(reads.len()));
        self.inner.read_each(reads)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> DiskResult<()> {
        self.see(Transfers::Writes(1));
        self.inner.write_at(buffer, offset)
    }

    fn write_each(&self, writes: &[(u64, &[u8])]) -> DiskResult<()> {
        self.see(Transfers::Writes(writes.len()));
        self.inner.write_each(writes)
    }

    fn sync(&self) -> DiskResult<()> {
        self.inner.sync()
    }

    fn length(&self) -> DiskResult<u64> {
        self.inner.length()
    }

    fn set_length(&self, bytes: u64) -> DiskResult<()> {
        self.inner.set_length(bytes)
    }

    fn allocate(&self, bytes: u64) -> DiskResult<()> {
        self.inner.allocate(bytes)
    }
}

impl Disk for WatchedDisk {
    fn open(&self, name: &str, open: Open, caching: Caching) -> DiskResult<Arc<dyn File>> {
        let inner = self.inner.open(name, open, caching)?;
        Ok(Arc::new(WatchedFile { inner, watch: self.watch.clone() }))
    }

    fn list(&self) -> DiskResult<Vec<String>> {
        self.inner.list()
    }

    fn rename(&self, from: &str, to: &str) -> DiskResult<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> DiskResult<()> {
        self.inner.remove(name)
    }

    fn sync_directory(&self) -> DiskResult<()> {
        self.inner.sync_directory()
    }

    fn lock(&self) -> DiskResult<DirectoryLock> {
        self.inner.lock()
    }

    fn map_shared(&self, name: &str, bytes: usize) -> DiskResult<SharedMap> {
        self.inner.map_shared(name, bytes)
    }

    fn shared_bytes(&self, name: &str) -> DiskResult<Option<usize>> {
        self.inner.shared_bytes(name)
    }

    fn boot(&self) -> u128 {
        self.inner.boot()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}
