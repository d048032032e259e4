//! Closed databases that several others are copies of.

use super::*;

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
