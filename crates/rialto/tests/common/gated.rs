//! A disk that holds the writes of a sweep, so that transactions run while it is half done.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rialto::io::{Caching, DirectoryLock, Disk, DiskResult, File, MemoryDisk, Open, SharedMap};

/// One that is open.
pub fn disk() -> Arc<GatedDisk> {
    let gate = Gate { at: Mutex::new((u64::MAX, false)), changed: Condvar::new() };
    Arc::new(GatedDisk { disk: MemoryDisk::new(), gate: Arc::new(gate) })
}

/// A disk in memory whose backup copies can be written only up to a place, and that can be cut off.
#[derive(Debug)]
pub struct GatedDisk {
    pub disk: Arc<MemoryDisk>,
    pub gate: Arc<Gate>,
}

#[derive(Debug)]
pub struct Gate {
    /// Writes at or behind this byte of a backup copy wait; and whether one does.
    at: Mutex<(u64, bool)>,
    changed: Condvar,
}

impl Gate {
    pub fn set(&self, at: u64) {
        *self.at.lock() = (at, false);
        self.changed.notify_all();
    }

    pub fn wait_until_reached(&self) {
        let mut at = self.at.lock();
        while !at.1 {
            assert!(
                !self.changed.wait_for(&mut at, Duration::from_secs(60)).timed_out(),
                "the sweep does not come by"
            );
        }
    }

    fn pass(&self, offset: u64) {
        let mut at = self.at.lock();
        while offset >= at.0 {
            at.1 = true;
            self.changed.notify_all();
            self.changed.wait(&mut at);
        }
    }
}

#[derive(Debug)]
struct GatedFile {
    file: Arc<dyn File>,
    gate: Option<Arc<Gate>>,
}

impl Disk for GatedDisk {
    fn open(&self, name: &str, open: Open, caching: Caching) -> DiskResult<Arc<dyn File>> {
        let gate = name.starts_with("backup").then(|| self.gate.clone());
        Ok(Arc::new(GatedFile { file: self.disk.open(name, open, caching)?, gate }))
    }
    fn list(&self) -> DiskResult<Vec<String>> {
        self.disk.list()
    }
    fn rename(&self, from: &str, to: &str) -> DiskResult<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, name: &str) -> DiskResult<()> {
        self.disk.remove(name)
    }
    fn sync_directory(&self) -> DiskResult<()> {
        self.disk.sync_directory()
    }
    fn lock(&self) -> DiskResult<DirectoryLock> {
        self.disk.lock()
    }
    fn map_shared(&self, name: &str, bytes: usize) -> DiskResult<SharedMap> {
        self.disk.map_shared(name, bytes)
    }
    fn shared_bytes(&self, name: &str) -> DiskResult<Option<usize>> {
        self.disk.shared_bytes(name)
    }
    fn boot(&self) -> u128 {
        self.disk.boot()
    }
    fn has_speed(&self) -> bool {
        false
    }
    fn describe(&self) -> String {
        "a gated disk".to_owned()
    }
}

impl File for GatedFile {
    fn name(&self) -> &str {
        self.file.name()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> DiskResult<()> {
        self.file.read_at(buffer, offset)
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> DiskResult<()> {
        if let Some(gate) = &self.gate {
            gate.pass(offset);
        }
        self.file.write_at(buffer, offset)
    }
    fn sync(&self) -> DiskResult<()> {
        self.file.sync()
    }
    fn length(&self) -> DiskResult<u64> {
        self.file.length()
    }
    fn set_length(&self, bytes: u64) -> DiskResult<()> {
        self.file.set_length(bytes)
    }
    fn allocate(&self, bytes: u64) -> DiskResult<()> {
        self.file.allocate(bytes)
    }
}
