//! Closed databases that several others are copies of.

use super::*;
use crate::log::{LogPoint, RING_NAME};

/// A closed database.
pub fn base(options: &Options, create: impl FnOnce(&Database)) -> Arc<MemoryDisk> {
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options.clone()).unwrap();
    create(&db);
    db.close().unwrap();
    disk
}

/// A table "t" of one row.
pub fn with_a_row(db: &Database) {
    db.transact(|tx| {
        let table = tx.create_table(&two_columns("t"))?;
        tx.insert(&table, &[Value::Int4(1), Value::Int8(0)])
    })
    .unwrap();
}

/// A commit that adds to that row.
pub fn count(db: &Database, by: i64) {
    add(db, &db.table("t").unwrap(), 1, by).unwrap();
}

/// The options of a primary whose commits fill no page: what they write is in its ring, block after block.
pub fn in_memory(options: Options) -> Options {
    let memory_flush_interval = Duration::from_secs(600);
    Options { durability: Durability::Memory, memory_flush_interval, ..options }
}

/// A log of small files.
pub fn small_log(options: Options) -> Options {
    Options { log_bytes_max: 1 << 20, ..options }
}

/// Waits until it is so.
pub fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < SOON, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// How an opening ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Close,
    Kill,
    Crash,
    /// It is closed, and the file of its ring is removed.
    Remove,
}

/// An opening of either kind.
pub enum Opened {
    Database(Database),
    Follower(Follower),
}

impl Opened {
    pub fn life(&self) -> u64 {
        match self {
            Opened::Database(db) => db.life(),
            Opened::Follower(follower) => follower.life(),
        }
    }

    /// The last place that is in memory which outlives the process.
    pub fn place(&self) -> Lsn {
        match self {
            Opened::Database(db) => db.core().commits.log.memory_position(),
            Opened::Follower(follower) => follower.received(),
        }
    }

    pub fn database(&self) -> &Database {
        match self {
            Opened::Database(db) => db,
            Opened::Follower(follower) => follower.database(),
        }
    }

    /// Where its log is on the disk, and where it ends.
    pub fn points(&self) -> (LogPoint, LogPoint) {
        match self {
            Opened::Database(db) => (db.on_disk_point(), db.log_end()),
            Opened::Follower(follower) => (follower.on_disk_point(), follower.point()),
        }
    }

    pub fn sync(&self) {
        match self {
            Opened::Database(db) => db.sync().unwrap(),
            Opened::Follower(follower) => follower.sync().unwrap(),
        }
    }

    /// A commit more.
    pub fn work(&self, primary: &Database) {
        match self {
            Opened::Database(db) => count(db, 1),
            Opened::Follower(follower) => {
                count(primary, 1);
                ship(primary, follower, 1 << 20).unwrap();
            }
        }
    }

    /// Ends it; gives the disk that the next opening finds.
    pub fn end(self, end: End, disk: &Arc<FaultyDisk>) -> Arc<FaultyDisk> {
        match end {
            End::Kill => {
                disk.kill();
                drop(self);
            }
            End::Crash => {
                disk.crash();
                drop(self);
            }
            End::Close | End::Remove => match self {
                Opened::Database(db) => db.close().unwrap(),
                Opened::Follower(follower) => follower.close().unwrap(),
            },
        }
        match end {
            End::Kill | End::Crash => disk.restart(),
            End::Close => disk.clone(),
            End::Remove => {
                disk.remove(RING_NAME).unwrap();
                disk.clone()
            }
        }
    }
}
