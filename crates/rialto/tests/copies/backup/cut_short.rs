//! Backups and restores that are cut short, and disks that fail under them.

use super::*;

/// The disk of a backup crashes at each step, or fails: there is a whole backup or none, and the database goes on.
#[test]
fn a_crash_at_any_step_of_a_backup_leaves_a_whole_one_or_none() {
    let seed = Random::seed_from_environment();
    let db = open(MemoryDisk::new());
    things(&db);
    put(&db, 0..100);
    let full = MemoryDisk::new();
    db.backup_on(full.clone(), BackupKind::Full).unwrap();
    put(&db, 100..200);
    let (mut whole, mut none) = (0, 0);
    for step in 1.. {
        let disk = FaultyDisk::new(seed ^ step);
        disk.crash_at(step);
        let outcome = db.backup_on(disk.clone(), BackupKind::Incremental);
        if outcome.is_ok() && !disk.is_down() {
            break;
        }
        let disk = disk.restart();
        match Backup::on(disk.clone(), "b") {
            Ok(backup) => {
                whole += 1;
                let target = MemoryDisk::new();
                restore(of([backup_on(&full, "f"), backup]), target.clone()).unwrap();
                assert_eq!(count(&open(target)), 200, "RIALTO_SEED={seed}, step {step}");
            }
            Err(OpenError::Missing { .. }) => {
                assert!(outcome.is_err(), "RIALTO_SEED={seed}, step {step}: what was answered is there");
                none += 1;
            }
            Err(error) => panic!("RIALTO_SEED={seed}, step {step}: {error}"),
        }
        // The next one replaces what is left, and is complete.
        if outcome.is_err() && Backup::on(disk.clone(), "b").is_err() {
            let again = FaultyDisk::new(1);
            let mut increment = Vec::new();
            again.fail(FaultKind::Sync, "backup", 0);
            db.backup_on(again, BackupKind::Incremental).unwrap_err();
            db.backup_to(&mut increment, BackupKind::Full).unwrap();
            let target = MemoryDisk::new();
            restore(of([Backup::stream("s", Cursor::new(increment))]), target.clone()).unwrap();
            assert_eq!(count(&open(target)), 200);
            // The chain begins again.
            let fresh = MemoryDisk::new();
            db.backup_on(fresh.clone(), BackupKind::Full).unwrap();
            full.remove(BACKUP_FILE).unwrap();
            let file = full.open(BACKUP_FILE, Open::Create, Caching::Buffered).unwrap();
            file.write_at(&bytes_of(&*fresh), 0).unwrap();
        }
    }
    assert!(none > 3, "the test's own premise: {whole} whole, {none} none");
}

/// A restore crashes at each step: the directory is no database, and says so, until it is a whole one; another restore
/// starts over.
#[test]
fn a_crash_at_any_step_of_a_restore_leaves_no_half_database() {
    let seed = Random::seed_from_environment();
    let db = open(MemoryDisk::new());
    things(&db);
    put(&db, 0..400);
    let full = MemoryDisk::new();
    db.backup_on(full.clone(), BackupKind::Full).unwrap();
    put(&db, 400..450);
    let increment = MemoryDisk::new();
    db.backup_on(increment.clone(), BackupKind::Incremental).unwrap();
    let plan = || of([backup_on(&full, "f"), backup_on(&increment, "i")]);
    let (mut whole, mut none) = (0, 0);
    for step in 1.. {
        let disk = FaultyDisk::new(seed ^ step);
        disk.crash_at(step);
        let outcome: Result<RestoreReport, _> = restore(plan(), disk.clone());
        if outcome.is_ok() && !disk.is_down() {
            break;
        }
        let mut disk = disk.restart();
        if !disk.list().unwrap().contains(&"home".to_owned()) {
            none += 1;
            assert!(outcome.is_err());
            if disk.list().unwrap().iter().any(|name| name != "log-tail" && name != "lock") {
                let error = Database::open_on(disk.clone(), options()).unwrap_err();
                assert!(
                    matches!(error, OpenError::Unsupported { .. }),
                    "RIALTO_SEED={seed}, step {step}: {error}"
                );
                if disk.list().unwrap().contains(&"restore-unfinished".to_owned()) {
                    assert_eq!(
                        error.to_string(),
                        "\"restore-unfinished\" says that a restore to this directory, or the receipt of a copy, was not \
                         completed: do it again, or use an empty directory"
                    );
                }
            }
            // The second attempt crashes too, at some step.
            disk.crash_at(1 + step / 2);
            let _ = restore(plan(), disk.clone());
            disk = disk.restart();
            if !disk.list().unwrap().contains(&"home".to_owned()) {
                restore(plan(), disk.clone())
                    .unwrap_or_else(|error| panic!("RIALTO_SEED={seed}, step {step}: {error}"));
            }
        } else {
            whole += 1;
        }
        assert_eq!(count(&open(disk.clone())), 450, "RIALTO_SEED={seed}, step {step}");
        assert!(
            !disk.list().unwrap().contains(&"restore-unfinished".to_owned()),
            "RIALTO_SEED={seed}, step {step}"
        );
    }
    assert!(none > 20 && whole > 0, "the test's own premise: {whole} whole, {none} none");
}

/// One sync of the directory fails, and the machine crashes at some step. A directory with a home file is a whole
/// database; a directory without accepts another restore.
#[test]
fn a_restore_that_is_cut_short_while_it_takes_back_can_begin_anew() {
    let db = open(MemoryDisk::new());
    things(&db);
    put(&db, 0..100);
    let full = MemoryDisk::new();
    db.backup_on(full.clone(), BackupKind::Full).unwrap();
    let plan = || of([backup_on(&full, "f")]);
    let mut failures = 0;
    for nth in 0.. {
        let disk = FaultyDisk::new(nth);
        disk.fail(FaultKind::Sync, ".", nth);
        let uncrashed = restore(plan(), disk.clone());
        let steps = disk.steps();
        failures += u64::from(uncrashed.is_err());
        if uncrashed.is_ok() && nth > failures {
            break;
        }
        for step in 1..=steps {
            let disk = FaultyDisk::new(1_000 * nth + step);
            disk.fail(FaultKind::Sync, ".", nth);
            disk.crash_at(step);
            let outcome = restore(plan(), disk.clone());
            let disk = disk.restart();
            let left = disk.list().unwrap();
            let about = format!("sync {nth}, step {step}: {outcome:?} leaves {left:?}");
            if !left.contains(&"home".to_owned()) {
                assert!(outcome.is_err(), "{about}");
                restore(plan(), disk.clone()).unwrap_or_else(|error| panic!("{about}: {error}"));
            }
            let db = Database::open_on(disk, options()).unwrap_or_else(|error| panic!("{about}: {error}"));
            assert_eq!(count(&db), 100, "{about}");
        }
    }
    assert!(failures >= 3, "the test's own premise: {failures}");
}

/// A restore that was cut short leaves its mark. Other files beside it stay, and no backup goes there.
#[test]
fn a_directory_with_half_a_restore_takes_a_restore_and_keeps_what_is_not_of_one() {
    let db = open(MemoryDisk::new());
    things(&db);
    put(&db, 0..100);
    let full = MemoryDisk::new();
    db.backup_on(full.clone(), BackupKind::Full).unwrap();
    let disk = MemoryDisk::new();
    let make = |name| drop(disk.open(name, Open::CreateNew, Caching::Buffered).unwrap());
    ["restore-unfinished", "backup-0", "home.new", "log-0000000001", "log-unfinished"]
        .into_iter()
        .for_each(&make);
    let refused = db.backup_on(disk.clone(), BackupKind::Full).unwrap_err().to_string();
    assert!(refused.contains("it holds a restore that was not completed"), "{refused}");
    for theirs in ["backup.rialto", "log-0000000002", "log-notes", "z"] {
        make(theirs);
        let before = disk.list().unwrap();
        let refused = restore(of([backup_on(&full, "f")]), disk.clone()).unwrap_err().to_string();
        assert!(refused.contains(&format!("it is not empty (it holds \"{theirs}\")")), "{refused}");
        assert_eq!(disk.list().unwrap(), before);
        disk.remove(theirs).unwrap();
    }
    restore(of([backup_on(&full, "f")]), disk.clone()).unwrap();
    assert_eq!(count(&open(disk)), 100);
}

/// An incomplete backup leaves nothing: the next one goes to the same directory.
#[test]
fn a_disk_that_fails_under_a_backup_is_left_empty() {
    let db = open(MemoryDisk::new());
    things(&db);
    put(&db, 0..100);
    for (kind, spared) in
        [(FaultKind::Write, 0), (FaultKind::Write, 1), (FaultKind::Full, 0), (FaultKind::Sync, 0)]
    {
        let disk = FaultyDisk::new(1);
        disk.fail(kind, "backup", spared);
        let error = db.backup_on(disk.clone(), BackupKind::Full).unwrap_err();
        assert!(matches!(error, Error::Io { .. } | Error::DiskFull { .. }), "{kind:?}: {error}");
        assert!(disk.list().unwrap().is_empty(), "{kind:?}: {:?}", disk.list());
        db.backup_on(disk.clone(), BackupKind::Full).unwrap();
        assert_eq!(disk.list().unwrap(), [BACKUP_FILE], "{kind:?}");
    }
}

#[test]
fn a_backup_that_is_cancelled_leaves_nothing_and_changes_nothing() {
    let db = open(MemoryDisk::new());
    things(&db);
    put(&db, 0..400);
    let path = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("backup-cancelled-{}", std::process::id()));
    db.backup_on(MemoryDisk::new(), BackupKind::Full).unwrap();
    put(&db, 400..450);
    let cancelled = AtomicBool::new(true);
    let kind = BackupKind::Incremental;
    let options = || BackupOptions { kind, cancelled: Some(&cancelled), ..BackupOptions::default() };
    let error = db.backup(&path, options()).unwrap_err();
    assert_eq!(error, Error::Cancelled);
    assert!(!path.join("backup.unfinished").exists());
    cancelled.store(false, Ordering::Relaxed);
    let report = db.backup(&path, options()).unwrap();
    std::fs::remove_dir_all(&path).unwrap();
    assert!(report.base.is_some() && report.segments > 0, "{report}");
}

/// A failed write is reported, and leaves an empty directory.
#[test]
fn a_disk_that_fails_under_a_restore_is_left_empty() {
    let db = open(MemoryDisk::new());
    things(&db);
    put(&db, 0..100);
    let full = MemoryDisk::new();
    db.backup_on(full.clone(), BackupKind::Full).unwrap();
    for (kind, prefix) in [
        (FaultKind::Write, "backup-0"),
        (FaultKind::Sync, "backup-0"),
        (FaultKind::Full, "backup-0"),
        (FaultKind::Write, "log-"),
        (FaultKind::Write, "home"),
        (FaultKind::Sync, "home"),
        (FaultKind::Sync, "restore-unfinished"),
        (FaultKind::Sync, "."),
    ] {
        let disk = FaultyDisk::new(1);
        disk.fail(kind, prefix, 0);
        let error = restore(of([backup_on(&full, "f")]), disk.clone()).unwrap_err();
        assert_eq!(error.exit_code(), 4, "{kind:?} {prefix}: {error}");
        assert!(disk.list().unwrap().is_empty(), "{kind:?} {prefix}: {:?}", disk.list());
    }
}
