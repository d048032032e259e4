//! [`HookedDisk`]: a disk that calls the test before each write and sync (and after syncs), so that a test can act at
//! exactly that moment: change rows in the middle of a sweep, hold a group's write up, count. The kernel's own tests
//! include this file, too.

#![allow(dead_code, reason = "each test program uses its part")]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use rialto::io::{Caching, DirectoryLock, Disk, DiskResult, File, MemoryDisk, Open, SharedMap};

/// What is about to happen to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// A write at this offset.
    Write(u64),
    Sync,
}

type Hook = Arc<dyn Fn(&str, About) + Send + Sync>;
type SyncHook = Arc<dyn Fn(&str, bool) + Send + Sync>;
type ReadHook = Arc<dyn Fn(&str, u64) + Send + Sync>;

/// Another disk, and the hook. The hook runs on the thread that writes, and may use the database: no lock of the disk
/// is held.
pub struct HookedDisk {
    inner: Arc<dyn Disk>,
    hook: Arc<Mutex<Option<Hook>>>,
    read_hook: Arc<Mutex<Option<ReadHook>>>,
    sync_hook: Arc<Mutex<Option<SyncHook>>>,
}

impl HookedDisk {
    pub fn new(inner: Arc<dyn Disk>) -> Arc<HookedDisk> {
        Arc::new(HookedDisk {
            inner,
            hook: Arc::default(),
            read_hook: Arc::default(),
            sync_hook: Arc::default(),
        })
    }

    /// A disk in memory, and how many writes to backup copies there were: how far sweeps are.
    pub fn counting() -> (Arc<HookedDisk>, Arc<AtomicU64>) {
        let (disk, swept) = (HookedDisk::new(MemoryDisk::new()), Arc::new(AtomicU64::new(0)));
        disk.before({
            let swept = swept.clone();
            move |file: &str, _| {
                if file.starts_with("backup") {
                    swept.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        (disk, swept)
    }

    pub fn before(&self, hook: impl Fn(&str, About) + Send + Sync + 'static) {
        *self.hook.lock() = Some(Arc::new(hook));
    }

    /// The same before each read at an offset.
    pub fn before_reads(&self, hook: impl Fn(&str, u64) + Send + Sync + 'static) {
        *self.read_hook.lock() = Some(Arc::new(hook));
    }

    /// After each sync, before its caller is told: whether it succeeded.
    pub fn behind_syncs(&self, hook: impl Fn(&str, bool) + Send + Sync + 'static) {
        *self.sync_hook.lock() = Some(Arc::new(hook));
    }

    pub fn unhook(&self) {
        *self.hook.lock() = None;
        *self.read_hook.lock() = None;
        *self.sync_hook.lock() = None;
    }
}

struct HookedFile {
    inner: Arc<dyn File>,
    hook: Arc<Mutex<Option<Hook>>>,
    read_hook: Arc<Mutex<Option<ReadHook>>>,
    sync_hook: Arc<Mutex<Option<SyncHook>>>,
}

impl HookedFile {
    fn call(&self, about: About) {
        let hook = self.hook.lock().clone();
        if let Some(hook) = hook {
            hook(self.inner.name(), about);
        }
    }
}

impl fmt::Debug for HookedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HookedDisk({:?})", self.inner)
    }
}

impl fmt::Debug for HookedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HookedFile({:?})", self.inner)
    }
}

impl Disk for HookedDisk {
    fn open(&self, name: &str, open: Open, caching: Caching) -> DiskResult<Arc<dyn File>> {
        let inner = self.inner.open(name, open, caching)?;
        Ok(Arc::new(HookedFile {
            inner,
            hook: self.hook.clone(),
            read_hook: self.read_hook.clone(),
            sync_hook: self.sync_hook.clone(),
        }))
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

    fn has_speed(&self) -> bool {
        self.inner.has_speed()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

impl File for HookedFile {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> DiskResult<()> {
        let hook = self.read_hook.lock().clone();
        if let Some(hook) = hook {
            hook(self.inner.name(), offset);
        }
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> DiskResult<()> {
        self.call(About::Write(offset));
        self.inner.write_at(buffer, offset)
    }

    fn sync(&self) -> DiskResult<()> {
        self.call(About::Sync);
        let synced = self.inner.sync();
        let hook = self.sync_hook.lock().clone();
        if let Some(hook) = hook {
            hook(self.inner.name(), synced.is_ok());
        }
        synced
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
