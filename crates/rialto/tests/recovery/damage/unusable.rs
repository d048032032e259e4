//! Directories that cannot be opened: of another version, in use, not there.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use rialto::io::{Disk, FaultKind, FaultyDisk};
use rialto::{Database, OpenError, Options};
use xxhash_rust::xxh3::xxh3_64;

use super::{change, database, refused};
use crate::common::quiet::{count, open, options, things};

#[test]
fn data_of_another_version_is_refused() {
    let directory = "\"memory (lost when the process ends)\"";
    for (version, expected) in [
        (4u32, format!("{directory} has format version 4, this program reads up to 3: use a newer one")),
        (
            2,
            format!(
                "{directory} has format version 2, this program reads version 3: open it with the Rialto that wrote it, and \
                 copy its tables to a new directory"
            ),
        ),
    ] {
        let disk = database(2);
        for block in [0, 4096] {
            change(&*disk, "home", block, 4096, |bytes| {
                bytes[8..12].copy_from_slice(&version.to_le_bytes());
                let checksum = xxh3_64(&bytes[..4088]);
                bytes[4088..].copy_from_slice(&checksum.to_le_bytes());
            });
        }
        assert_eq!(refused(disk), (expected, 3));
    }
    let disk = database(2);
    change(&*disk, "log-0000000001", 0, 64, |bytes| {
        bytes[8..12].copy_from_slice(&1u32.to_le_bytes());
        let checksum = xxh3_64(&bytes[..56]);
        bytes[56..].copy_from_slice(&checksum.to_le_bytes());
    });
    assert_eq!(
        refused(disk.clone()),
        (
            "\"log-0000000001\" has log format 1, this program reads formats 2 and 3: use a matching version"
                .to_owned(),
            3
        )
    );
    let shared: Arc<dyn Disk> = disk;
    let error = rialto::recovery::check::check(&shared, 64 << 20, 1).unwrap_err();
    assert!(error.to_string().ends_with("use a matching version"), "a check calls nothing damaged: {error}");
}

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // The next run finds what is left over, and removes it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const CHILD: &str = "RIALTO_DAMAGE_DIRECTORY";

/// The second process of the next test. As a test of its own it does nothing.
#[test]
fn child_that_opens() {
    let Ok(directory) = std::env::var(CHILD) else { return };
    let error = Database::open_with(directory, options()).expect_err("another process has it open");
    println!("child: {} {error}", error.exit_code());
}

#[test]
fn a_directory_is_open_once() {
    let directory = Directory::new("locked");
    let db = Database::open_with(&directory.0, options()).unwrap();
    let path = directory.0.canonicalize().unwrap();
    let program = std::env::current_exe().unwrap();
    let expected = |whose: &str| {
        let (path, process, program) = (path.display(), std::process::id(), program.display());
        format!("\"file {path}\" is in use by {whose} {process} ({program}")
    };
    let error = Database::open_with(&directory.0, options()).unwrap_err();
    assert!(error.to_string().starts_with(&expected("this process")), "{error}");
    assert_eq!(error.exit_code(), 3);
    let child = Command::new(&program)
        .args(["damage::unusable::child_that_opens", "--exact", "--nocapture"])
        .env(CHILD, &directory.0)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(said.contains(&format!("child: 3 {}", expected("process"))), "{said}");
    things(&db);
    db.close().unwrap();
    assert_eq!(count(&Database::open_with(&directory.0, options()).unwrap()), 0);
}

/// A directory with other programs' files: logs that are named by the hour, for instance.
#[test]
fn a_database_is_not_made_over_files_of_others_whose_names_a_log_uses() {
    let line = b"a line of another program's log\n".repeat(400);
    let names = [
        "log-2026112410",
        "log-0000000001",
        "log-spare-0000000001",
        "log-unfinished",
        "log-writes",
        "log-tail",
        "home.new",
    ];
    for name in names {
        let directory = Directory::new("others");
        std::fs::create_dir_all(&directory.0).unwrap();
        // What a creation may have left is removed only with all the rest.
        std::fs::write(directory.0.join("log-unfinished"), vec![0; 4096]).unwrap();
        std::fs::write(directory.0.join(name), &line).unwrap();
        let listed = || {
            let entries = std::fs::read_dir(&directory.0).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.retain(|name| name != "lock");
            names.sort();
            names
        };
        let before = listed();
        let error = Database::open_with(&directory.0, options()).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with(&format!("\"{name}\" ")) && text.contains("move "), "{name}: {text}");
        assert_eq!((error.exit_code(), listed()), (3, before), "{name}");
        assert_eq!(std::fs::read(directory.0.join(name)).unwrap(), line, "{name}");
        // Without it the database is made, and it does not touch a file that only looks like one of a log.
        std::fs::rename(directory.0.join(name), directory.0.join("log-spare-keys.txt")).unwrap();
        for _ in 0..2 {
            Database::open_with(&directory.0, options()).unwrap().close().unwrap();
        }
        assert_eq!(std::fs::read(directory.0.join("log-spare-keys.txt")).unwrap(), line, "{name}");
    }
}

#[test]
fn a_missing_directory_or_database_is_named() {
    let directory = Directory::new("missing");
    let without = || Options { create: false, ..options() };
    let error = Database::open_with(&directory.0, without()).unwrap_err();
    let expected = format!("the directory is missing in \"{}\"", directory.0.display());
    assert_eq!((error.to_string(), error.exit_code()), (expected, 3));
    std::fs::create_dir_all(&directory.0).unwrap();
    let error = Database::open_with(&directory.0, without()).unwrap_err();
    let path = directory.0.canonicalize().unwrap();
    let expected = format!("a database is missing in \"file {}\"", path.display());
    assert_eq!((error.to_string(), error.exit_code()), (expected, 3));
    let error = Database::open_with(&directory.0, Options { recovery_threads: 0, ..options() }).unwrap_err();
    assert_eq!(
        (error.to_string(), error.exit_code()),
        ("bad option: recovery_threads is 0, expected 1 to 1024".to_owned(), 2)
    );
}

#[test]
fn an_unreadable_file_is_an_error_of_io() {
    let disk = FaultyDisk::new(3);
    let db = open(disk.clone());
    things(&db);
    db.close().unwrap();
    disk.kill();
    let disk = disk.restart();
    disk.fail(FaultKind::Read, "log-0", 0);
    let error = Database::open_on(disk.clone(), options()).unwrap_err();
    assert_eq!(
        error,
        OpenError::Io(
            "read of \"log-0000000001\" at offset 0 failed: Input/output error (os error 5)".to_owned()
        )
    );
    assert_eq!(error.exit_code(), 4);
    open(disk);
}
