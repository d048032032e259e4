//! The disk has no room for the next log file, and more than enough for the checkpoint that frees most of the log. An allocation that
//! meets the end of the disk keeps the room that it got, as those of ext4 and XFS do.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rialto::io::{Caching, DirectoryLock, Disk, DiskError, DiskResult, File, MemoryDisk, Open, SharedMap};
use rialto::row::{Column, ColumnType, Value};
use rialto::{Database, Error, Options, TableDef};

/// A disk of so many bytes.
#[derive(Debug)]
struct Small {
    inner: Arc<MemoryDisk>,
    bytes: u64,
    /// One file grows at a time.
    latch: Mutex<()>,
}

#[derive(Debug)]
struct Handle(Arc<dyn File>, Arc<Small>);

#[derive(Debug)]
struct Shared(Arc<Small>);

impl Small {
    fn used(&self) -> u64 {
        let length = |name: &String| {
            self.inner.open(name, Open::ReadOnly, Caching::Buffered).and_then(|file| file.length())
        };
        self.inner.list().unwrap().iter().filter_map(|name| length(name).ok()).sum()
    }
}

impl Handle {
    fn grow(&self, to: u64, operation: &'static str) -> DiskResult<()> {
        let _one = self.1.latch.lock();
        let now = self.0.length()?;
        let free = self.1.bytes.saturating_sub(self.1.used());
        if to.saturating_sub(now) <= free {
            return if to > now { self.0.allocate(to) } else { Ok(()) };
        }
        self.0.allocate(now + free)?;
        Err(DiskError::new(self.0.name(), 0, operation, io::Error::from(io::ErrorKind::StorageFull)))
    }
}

impl Disk for Shared {
    fn open(&self, name: &str, open: Open, caching: Caching) -> DiskResult<Arc<dyn File>> {
        Ok(Arc::new(Handle(self.0.inner.open(name, open, caching)?, self.0.clone())))
    }
    fn list(&self) -> DiskResult<Vec<String>> {
        self.0.inner.list()
    }
    fn rename(&self, from: &str, to: &str) -> DiskResult<()> {
        self.0.inner.rename(from, to)
    }
    fn remove(&self, name: &str) -> DiskResult<()> {
        self.0.inner.remove(name)
    }
    fn sync_directory(&self) -> DiskResult<()> {
        self.0.inner.sync_directory()
    }
    fn lock(&self) -> DiskResult<DirectoryLock> {
        self.0.inner.lock()
    }
    fn map_shared(&self, name: &str, bytes: usize) -> DiskResult<SharedMap> {
        self.0.inner.map_shared(name, bytes)
    }
    fn shared_bytes(&self, name: &str) -> DiskResult<Option<usize>> {
        self.0.inner.shared_bytes(name)
    }
    fn boot(&self) -> u128 {
        self.0.inner.boot()
    }
    fn has_speed(&self) -> bool {
        false
    }
    fn describe(&self) -> String {
        self.0.inner.describe()
    }
}

impl File for Handle {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> DiskResult<()> {
        self.0.read_at(buffer, offset)
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> DiskResult<()> {
        self.grow(offset + buffer.len() as u64, "write")?;
        self.0.write_at(buffer, offset)
    }
    fn sync(&self) -> DiskResult<()> {
        self.0.sync()
    }
    fn length(&self) -> DiskResult<u64> {
        self.0.length()
    }
    fn set_length(&self, bytes: u64) -> DiskResult<()> {
        self.0.set_length(bytes)
    }
    fn allocate(&self, bytes: u64) -> DiskResult<()> {
        self.grow(bytes, "allocate")
    }
}

#[test]
fn a_log_file_that_finds_no_room_leaves_the_room_to_the_checkpoint() {
    // Log files of 8 MiB, the first of 4: the fourth one has no room, and 6 MiB are left, of which a checkpoint needs two.
    let small = Small { inner: MemoryDisk::new(), bytes: 26 << 20, latch: Mutex::default() };
    let options = Options {
        memory_bytes: 64 << 20,
        log_bytes_max: 64 << 20,
        log_wait_max: Duration::from_secs(2),
        ..Options::default()
    };
    let db = Database::open_on(Arc::new(Shared(Arc::new(small))), options).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int8), Column::new("text", ColumnType::Text)];
    let definition = TableDef::new("t", columns).with_primary_key(&["id"]);
    let table = db.transact(|tx| tx.create_table(&definition)).unwrap();
    let text = |n: u64| Value::Text(format!("{n:08}").repeat(1_000));
    db.transact(|tx| tx.insert(&table, &[Value::Int8(1), text(0)])).unwrap();
    let (began, mut refused) = (Instant::now(), 0);
    // Four times what the disk has room for.
    for n in 0..13_000 {
        while let Err(error) = db.transact(|tx| tx.update(&table, 1_i64, &[(1, text(n))]).map(drop)) {
            assert!(matches!(error, Error::LogFull { .. } | Error::DiskFull { .. }), "{error}");
            refused += 1;
            let stuck = began.elapsed() > Duration::from_secs(60);
            assert!(!stuck, "no commit any more after {n}, {refused} refusals: {error}");
        }
    }
}
