//! Checking and inspecting a directory, and recovery's messages about damaged files.

use std::collections::BTreeMap;
use std::sync::Arc;

use rialto::io::{Caching, Disk, FaultKind, FaultyDisk, MemoryDisk, Open};
use rialto::recovery::check::{CheckReport, Severity, check};
use rialto::recovery::inspect::inspect;
use rialto::row::{Column, ColumnType, Value};
use rialto::{Action, Checkpointing, Database, Logging, OpenError, Options, Procedure, TableDef};

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
        let shared: Arc<dyn Disk> = disk.clone();
        let text = inspect(&shared, MEMORY, 2).unwrap();
        let db = Database::open_on(disk, options()).unwrap();
        let fell_back = db.recovery().unwrap().fell_back.clone().expect("it falls back");
        assert_eq!((fell_back.file.as_str(), fell_back.offset), (file, offset));
        assert!(
            text.contains("recovery   from checkpoint 3\n")
                && text.contains(&format!("damaged    {fell_back}\n"))
                && text.contains("1600 rows"),
            "inspect recovers as an opening does: {text}"
        );
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
    let text = &report.findings[0].what;
    assert!(
        text.contains("\"backup-1\" is corrupt at offset 65536") && text.contains("checkpoint 3"),
        "{text}"
    );
    Database::open_on(disk, options()).unwrap();
}

/// Whole images of an earlier checkpoint are not accepted for those of the one in force: of a file that was replaced,
/// or of one write that a device has lost.
#[test]
fn an_older_copy_that_was_put_back_is_damage() {
    for (images, newest_alone) in [(None, false), (Some(1), false), (None, true), (Some(1), true)] {
        let disk = FaultyDisk::new(1);
        let db = Database::open_on(disk.clone(), options()).unwrap();
        db.transact(|tx| {
            let columns = vec![Column::new("id", ColumnType::Int4), Column::new("name", ColumnType::Text)];
            tx.create_table(&TableDef::new("things", columns).with_primary_key(&["id"])).map(drop)
        })
        .unwrap();
        let renew = |name: &str| {
            let table = db.table("things").unwrap();
            let text = Value::Text(name.to_owned());
            db.transact(|tx| {
                (0..500).try_for_each(|id| tx.update(&table, id, &[(1, text.clone())]).map(drop))
            })
            .unwrap();
            db.checkpoint().unwrap();
        };
        put(&db, 0..500, "thing");
        renew("two");
        let earlier = files(&*disk).remove("backup-0").unwrap();
        renew("three");
        renew("four");
        if newest_alone {
            // The next checkpoint has begun.
            put(&db, 500..501, "late");
            disk.fail(FaultKind::Write, "backup-1", 0);
            db.checkpoint().unwrap_err();
        }
        disk.kill();
        drop(db);
        let disk = disk.restart();
        // The image with the rows, or all of them.
        let file = disk.open("backup-0", Open::Existing, Caching::Buffered).unwrap();
        let rows = (0..earlier.len() / 65_536).find(|at| {
            let mut now = vec![0; 65_536];
            file.read_at(&mut now, *at as u64 * 65_536).unwrap();
            *at > 0 && now[64..] != earlier[at * 65_536..][64..65_536]
        });
        let at = rows.expect("an image has changed") * 65_536;
        let (from, to) = if images.is_some() { (at, at + 65_536) } else { (0, earlier.len()) };
        file.write_at(&earlier[from..to], from as u64).unwrap();
        let shared: Arc<dyn Disk> = disk.clone();
        let report = check(&shared, MEMORY, 2).unwrap();
        let text = report.to_string();
        assert!(
            !report.is_sound()
                && text.contains(
                    "it names checkpoint 4 in \"backup-0\", whose images are whole, but not all of that checkpoint"
                ),
            "{text}"
        );
        let error = Database::open_on(disk.clone(), options()).unwrap_err().to_string();
        assert!(error.contains("put the right file back, or remove it"), "{error}");
        disk.remove("backup-0").unwrap();
        match Database::open_on(disk, options()) {
            Ok(db) => {
                let fell_back = db.recovery().unwrap().fell_back.clone().expect("it falls back");
                assert!(!newest_alone && (fell_back.newest, fell_back.older) == (4, 3), "{fell_back}");
                let table = db.table("things").unwrap();
                let row = db.transact(|tx| tx.get(&table, 7)).unwrap().unwrap();
                assert_eq!(row.get(1).unwrap(), Value::Text("four".into()));
            }
            Err(error) => assert!(newest_alone, "{error}"),
        }
    }
}

/// A program without the procedure of a call redoes nothing after it, but reads the load files that the log names
/// there.
#[test]
fn a_load_file_behind_a_call_is_verified() {
    let add = Action::exclusive("things", |tx, arguments, _| {
        tx.insert(arguments.table()?, &[Value::Int4(arguments.get(0)?)])
    });
    let add = Procedure::new("add", [ColumnType::Int4], add.by_argument(0)).deterministic(1);
    let options = || Options { logging: Logging::Transaction, procedures: vec![add.clone()], ..options() };
    let disk = FaultyDisk::new(1);
    let db = Database::open_on(disk.clone(), options()).unwrap();
    let table =
        |name| TableDef::new(name, vec![Column::new("id", ColumnType::Int4)]).with_primary_key(&["id"]);
    db.transact(|tx| tx.create_table(&table("things")).map(drop)).unwrap();
    db.call("add", &[Value::Int4(1)]).unwrap();
    db.transact(|tx| {
        let loaded = tx.create_table(&table("loaded"))?;
        (0..1000).try_for_each(|id| tx.insert(&loaded, &[Value::Int4(id)]))
    })
    .unwrap();
    disk.kill();
    drop(db);
    let disk = disk.restart();
    let name = disk.list().unwrap().into_iter().find(|name| name.starts_with("load-")).unwrap();
    let shared: Arc<dyn Disk> = disk.clone();
    let report = check(&shared, MEMORY, 2).unwrap();
    assert!(report.is_sound() && report.to_string().contains("\"add\" version 1"), "{report}");
    let damages: [(&dyn Fn(), &str); 2] = [
        (&|| flip(&*disk, &name, 4096 + 100), "corrupt at offset 4096"),
        (&|| disk.remove(&name).unwrap(), "and it is missing"),
    ];
    for (damage, expected) in damages {
        damage();
        let report = check(&shared, MEMORY, 2).unwrap().to_string();
        let described = inspect(&shared, MEMORY, 2).unwrap();
        assert!(described.contains("not recoverable: "), "{described}");
        for told in [report, described] {
            assert!(told.contains(&name) && told.contains(expected), "{told}");
        }
        assert!(matches!(Database::open_on(disk.clone(), options()), Err(OpenError::Corrupt { .. })));
    }
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
