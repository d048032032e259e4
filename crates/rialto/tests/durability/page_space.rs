//! The page file stays short: a checkpoint begins when the places that only the last one needs have become many.

use std::sync::Arc;
use std::time::Duration;

use rialto::io::{Disk, MemoryDisk, Random};
use rialto::row::{Column, ColumnType, Value};
use rialto::{Background, Checkpointing, Database, Options, Residence, Table, TableDef};

const ROWS: i32 = 20_000;

/// Pages of 4 KiB with a few rows each, and a cache of a fifth of them.
fn options() -> Options {
    Options {
        memory_bytes: 32 << 20,
        cache_bytes: 4 << 20,
        page_bytes: 4_096,
        checkpoint: Checkpointing::Fuzzy,
        // Never because of the time.
        checkpoint_interval: Duration::from_secs(1 << 30),
        background: Background::Driven,
        ..Options::default()
    }
}

/// A database with a table of 5,000 pages, after a checkpoint.
fn load(disk: &Arc<MemoryDisk>, options: Options) -> (Database, Table) {
    let db = Database::open_on(disk.clone(), options).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
    let definition =
        TableDef::new("things", columns).with_primary_key(&["id"]).with_residence(Residence::Disk);
    let table = db.transact(|tx| tx.create_table(&definition)).unwrap();
    for from in (0..ROWS).step_by(100) {
        db.transact(|tx| {
            (from..from + 100).try_for_each(|key| tx.insert(&table, &[Value::Int4(key), text(0)]))
        })
        .unwrap();
    }
    db.checkpoint().unwrap();
    (db, table)
}

fn text(nth: u64) -> Value {
    Value::Text(format!("{nth:0900}"))
}

/// Changes so many random rows, a row each time.
fn change(db: &Database, table: &Table, random: &mut Random, times: u64) {
    for nth in 0..times {
        let key = random.below(ROWS as u64) as i32;
        db.transact(|tx| tx.update(table, key, &[(1, text(nth))])).unwrap();
    }
}

/// The cache has room for all pages, so that it is the checkpoints that write them.
#[test]
fn what_a_checkpoint_writes_itself_makes_no_other_one_due() {
    let (db, table) = load(&MemoryDisk::new(), Options { cache_bytes: 64 << 20, ..options() });
    let mut random = Random::new(1);
    change(&db, &table, &mut random, ROWS as u64);
    db.checkpoint().unwrap();
    let completed = db.metrics().checkpoints.completed;
    for _ in 0..10 {
        db.drive().unwrap();
        change(&db, &table, &mut random, 2_000);
    }
    assert_eq!(db.metrics().checkpoints.completed, completed);
    assert!(db.metrics().pages.changed > 1_000, "they are written with the next one");
    db.close().unwrap();
}

#[test]
fn the_page_file_has_at_most_one_and_a_half_times_the_places_of_its_pages() {
    let disk = MemoryDisk::new();
    let (db, table) = load(&disk, options());
    let before = db.metrics().checkpoints.completed;
    let (mut random, mut most) = (Random::new(1), 0.0_f64);
    for _ in 0..3 * ROWS / 100 {
        change(&db, &table, &mut random, 100);
        db.drive().unwrap();
        let pages = db.metrics().pages;
        most = most.max(pages.used_bytes as f64 / (pages.pages * pages.page_bytes) as f64);
    }
    let made = db.metrics().checkpoints.completed - before;
    let pages = db.metrics().pages;
    let file = disk.open("pages", rialto::io::Open::Existing, rialto::io::Caching::Buffered).unwrap();
    let file = file.length().unwrap() as f64 / (pages.pages * pages.page_bytes) as f64;
    println!("{made} checkpoints, at most {most:.2} places for each page, a file of {file:.2}");
    // It is looked at after every hundred changes, which is a fiftieth of the pages.
    assert!(most <= 1.55, "{most:.2} places for each page");
    // The file grows, and is cut, by a sixteenth and more at a time.
    assert!(file <= 1.8, "a file of {file:.2} times the pages");
    // About as many page writes as updates, and a checkpoint with a quarter of the 5,000 pages.
    assert!((12..=60).contains(&made), "{made} checkpoints");
    db.close().unwrap();
}
