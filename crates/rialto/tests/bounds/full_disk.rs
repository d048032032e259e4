//! The disk has no room for the next log file, and more than enough for the checkpoint that frees most of the log. An
//! allocation that reaches the end of the disk keeps the room that it got, as on ext4 and XFS.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::until;
use parking_lot::Mutex;
use rialto::io::{
    Caching, DirectoryLock, Disk, DiskError, DiskResult, FaultyDisk, File, MemoryDisk, Open, SharedMap,
};
use rialto::row::{Column, ColumnType, Value};
use rialto::{Checkpointing, Database, Durability, Error, Options, Table, TableDef};

/// A disk of this many bytes.
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
    // Log files of 8 MiB, the first of 4 MiB: the fourth one has no room, and 6 MiB are left, of which a checkpoint
    // needs two.
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

/// Rows of 30,000 bytes; one transaction changes all of them.
const ROWS: i32 = 10;

fn change(db: &Database, table: &Table, letter: char) -> Result<(), Error> {
    let text = || Value::Text(letter.to_string().repeat(30_000));
    db.transact(|tx| (0..ROWS).try_for_each(|id| tx.update(table, id, &[(1, text())]).map(drop)))
}

/// The log ends before a last file with this many bytes after its header, and the next opening would measure writes
/// there.
fn opens_behind_a_short_log_file(log_bytes_max: u64, room: u64, short: u64) {
    let disk = FaultyDisk::new(1);
    disk.pretend_speed();
    let options = Options {
        memory_bytes: 64 << 20,
        durability: Durability::Disk,
        checkpoint: Checkpointing::None,
        log_bytes_max,
        log_wait_max: Duration::from_millis(300),
        ..Options::default()
    };
    let db = Database::open_on(disk.clone(), options.clone()).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
    let definition = TableDef::new("t", columns).with_primary_key(&["id"]);
    let table = db.transact(|tx| tx.create_table(&definition)).unwrap();
    db.transact(|tx| {
        let row = |id| [Value::Int4(id), Value::Text("a".repeat(30_000))];
        (0..ROWS).try_for_each(|id| tx.insert(&table, &row(id)))
    })
    .unwrap();
    for letter in ['b', 'c'] {
        db.checkpoint().unwrap();
        change(&db, &table, letter).unwrap();
    }
    disk.leave_room(room);
    let mut letters = 'd'..='y';
    let refused = letters.by_ref().find(|letter| change(&db, &table, *letter).is_err());
    let committed = char::from(refused.expect("the next log file has no room") as u8 - 1);
    db.checkpoint().unwrap();
    change(&db, &table, 'z').expect_err("the short log file has no room for it either");
    // The log's own thread makes it, perhaps only now.
    until("the log goes on in a short file", || {
        let last = disk.list().unwrap().into_iter().rfind(|name| name.starts_with("log-0")).unwrap();
        let last = disk.open(&last, Open::ReadOnly, Caching::Buffered).unwrap();
        last.length().unwrap() == 4_096 + short
    });
    disk.crash();
    drop((table, db));
    // The record of speed is of another boot. Bytes that this opening writes are not taken for log by the next one.
    let disk = disk.restart();
    for _ in 0..2 {
        let db = Database::open_on(disk.clone(), options.clone()).unwrap();
        let table = db.table("t").unwrap();
        let row = db.transact(|tx| tx.get(&table, 3_i32)).unwrap().expect("it was inserted");
        assert!(row.view().get_str(1).unwrap().starts_with(committed));
    }
}

#[test]
fn a_database_opens_behind_a_log_file_that_is_too_short_to_be_measured() {
    opens_behind_a_short_log_file(16 << 20, 40 << 10, 32 << 10);
    // A file whose header would lie where writes are measured.
    opens_behind_a_short_log_file(30 << 20, 70 << 10, 60 << 10);
}
