//! A disk that holds a sync of the log, so that definitions change while a session waits for it.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rialto::io::{Caching, DirectoryLock, Disk, DiskResult, FaultKind, FaultyDisk, File, Open, SharedMap};

/// Where a sync of the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    /// Syncs pass.
    No,
    /// The next one is to wait.
    Next,
    /// One waits.
    Waiting,
    /// It may go on, and those behind it fail.
    Last,
}

#[derive(Debug)]
pub struct HeldDisk {
    disk: Arc<FaultyDisk>,
    gate: Arc<Gate>,
}

#[derive(Debug)]
struct Gate {
    disk: Arc<FaultyDisk>,
    held: Mutex<Held>,
    changed: Condvar,
}

impl HeldDisk {
    pub fn new() -> Arc<HeldDisk> {
        let disk = FaultyDisk::new(7);
        let gate = Gate { disk: disk.clone(), held: Mutex::new(Held::No), changed: Condvar::new() };
        Arc::new(HeldDisk { disk, gate: Arc::new(gate) })
    }

    /// Has the next sync of the log wait.
    pub fn hold(&self) {
        self.gate.set(Held::Next);
    }

    /// Waits until a sync of the log does.
    pub fn wait_until_held(&self) {
        self.gate.wait_for(Held::Waiting);
    }

    /// Lets it go on; no other one succeeds.
    pub fn let_the_last_one_go(&self) {
        self.gate.set(Held::Last);
    }
}

impl Gate {
    fn set(&self, held: Held) {
        *self.held.lock().unwrap() = held;
        self.changed.notify_all();
    }

    fn wait_for(&self, wanted: Held) {
        let held = self.held.lock().unwrap();
        let (held, _) =
            self.changed.wait_timeout_while(held, Duration::from_secs(60), |held| *held != wanted).unwrap();
        assert_eq!(*held, wanted);
    }

    fn pass(&self) {
        let mut held = self.held.lock().unwrap();
        if *held == Held::Next {
            *held = Held::Waiting;
            self.changed.notify_all();
            drop(held);
            self.wait_for(Held::Last);
            // After this one, which is spared.
            self.disk.fail_always(FaultKind::Sync, "log-0", 1);
        }
    }
}

#[derive(Debug)]
struct HeldFile {
    file: Arc<dyn File>,
    gate: Option<Arc<Gate>>,
}

impl Disk for HeldDisk {
    fn open(&self, name: &str, open: Open, caching: Caching) -> DiskResult<Arc<dyn File>> {
        let gate = name.starts_with("log-").then(|| self.gate.clone());
        Ok(Arc::new(HeldFile { file: self.disk.open(name, open, caching)?, gate }))
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
        "a disk whose syncs are held".to_owned()
    }
}

impl File for HeldFile {
    fn name(&self) -> &str {
        self.file.name()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> DiskResult<()> {
        self.file.read_at(buffer, offset)
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> DiskResult<()> {
        self.file.write_at(buffer, offset)
    }
    fn sync(&self) -> DiskResult<()> {
        if let Some(gate) = &self.gate {
            gate.pass();
        }
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
