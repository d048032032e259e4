//! Checking and inspecting a directory, and what recovery says of damaged files.

use std::collections::BTreeMap;
use std::sync::Arc;

use rialto::io::{Caching, Disk, MemoryDisk, Open};
use rialto::recovery::check::{CheckReport, Severity, check};
use rialto::recovery::inspect::inspect;
use rialto::row::{Column, ColumnType, Value};
use rialto::{Checkpointing, Database, OpenError, Options, TableDef};

const MEMORY: u64 = 64 << 20;

fn options() -> Options {
    Options {
        memory_bytes: MEMORY,
        checkpoint: Checkpointing::None,
        recovery_threads: 2,
        ..Options::default()
    }
}

fn put(db: &Database, ids: std::ops::Range<i32>, name: &str) {
    let table = db.table("things").unwrap();
    db.transact(|tx| {
        for id in ids.clone() {
            let values = [Value::Int4(id), Value::Text(format!("{name} {id} {}", "x".repeat(400)))];
            tx.insert(&table, &values)?;
        }
        Ok(())
    })
    .unwrap();
}

/// A database with rows in both copies and in the log.
fn database() -> Arc<MemoryDisk> {
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    db.transact(|tx| {
        let columns = vec![Column::new("id", ColumnType::Int4), Column::new("name", ColumnType::Text)];
        tx.create_table(&TableDef::new("things", columns).with_primary_key(&["id"]))?;
        tx.create_index("things", "by_name", &["name"], true)
    })
    .unwrap();
    for round in 0..3 {
        put(&db, round * 1000..round * 1000 + 500, "thing");
        assert!(!db.checkpoint().unwrap().skipped);
    }
    put(&db, 5000..5100, "late");
    db.close().unwrap();
    disk
}

fn files(disk: &dyn Disk) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for name in disk.list().unwrap() {
        let Ok(file) = disk.open(&name, Open::ReadOnly, Caching::Buffered) else { continue };
        let mut bytes = vec![0; file.length().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        files.insert(name, bytes);
    }
    files
}

fn flip(disk: &dyn Disk, name: &str, at: u64) {
    let file = disk.open(name, Open::Existing, Caching::Buffered).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, at).unwrap();
    file.write_at(&[byte[0] ^ 0x10], at).unwrap();
}

fn checked(disk: &Arc<MemoryDisk>) -> CheckReport {
    let disk: Arc<dyn Disk> = disk.clone();
    check(&disk, MEMORY, 2).unwrap()
}

#[test]
fn a_sound_database_is_verified_and_left_as_it_is() {
    let disk = database();
    let before = files(&*disk);
    let report = checked(&disk);
    assert!(report.is_sound() && report.findings.is_empty(), "{report}");
    let text = report.to_string();
    assert!(text.contains("table \"things\": 1600 rows in 2 indexes") && text.ends_with("sound"), "{text}");
    let shared: Arc<dyn Disk> = disk.clone();
    let text = inspect(&shared, MEMORY, 2).unwrap();
    assert!(
        text.contains("things (table")
            && text.contains("1600 rows")
            && text.contains("unique index by_name (name)")
    );
    assert!(text.contains("(in force)") && text.contains("backup-1"), "{text}");
    assert_eq!(files(&*disk), before);
    let db = Database::open_on(disk, options()).unwrap();
    let report = db.recovery().unwrap();
    assert_eq!((report.checkpoint, report.tables, report.rows), (4, 1, 1600));
    assert_eq!(report.packets, 1);
}

#[test]
fn damage_is_named_by_file_and_offset() {
    // Checkpoint 4 is in force, in backup-0.
    for (file, at, offset) in [("backup-0", 65_536 + 70, 65_536), ("backup-0", 70, 0)] {
        let disk = database();
        flip(&*disk, file, at);
        let report = checked(&disk);
        assert!(!report.is_sound());
        let text = report.to_string();
        assert!(text.contains(&format!("\"{file}\" is corrupt at offset {offset}")), "{text}");
        assert!(
            text.contains("note: an opening falls back to checkpoint 3, which is in force too"),
            "{text}"
        );
        let db = Database::open_on(disk, options()).unwrap();
        let fell_back = db.recovery().unwrap().fell_back.clone().expect("it falls back");
        assert_eq!((fell_back.file.as_str(), fell_back.offset), (file, offset));
    }
}

#[test]
fn damage_of_what_is_not_in_force_is_a_note() {
    let disk = database();
    flip(&*disk, "backup-1", 65_536 + 70);
    let report = checked(&disk);
    assert!(report.is_sound());
    assert_eq!(report.findings.len(), 1);
    assert_eq!(report.findings[0].severity, Severity::Note);
    Database::open_on(disk, options()).unwrap();
}

#[test]
fn a_missing_log_is_corruption() {
    let disk = database();
    let log: Vec<String> = disk.list().unwrap().into_iter().filter(|name| name.starts_with("log")).collect();
    assert!(!log.is_empty());
    for name in log {
        let _ = disk.remove(&name);
    }
    assert!(!checked(&disk).is_sound());
    assert!(matches!(Database::open_on(disk, options()), Err(OpenError::Corrupt { .. })));
}

#[test]
fn a_directory_without_a_database_is_said_to_be_one() {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let error = check(&disk, MEMORY, 1).unwrap_err();
    assert!(error.to_string().contains("there is no database"));
    let options = Options { create: false, ..options() };
    assert!(matches!(Database::open_on(disk, options), Err(OpenError::Missing { .. })));
}
