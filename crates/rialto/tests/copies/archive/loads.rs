//! The files of bulk loads in an archive.

use super::*;

/// The file of a bulk load goes to the archive, and stays for an older checkpoint, also if the process was killed after
/// the checkpoint that has the load: redo does not reach its packet any more.
#[test]
fn a_load_file_from_before_the_redo_start_is_archived_before_it_goes() {
    let archive: Arc<dyn Disk> = MemoryDisk::new();
    let (disk, backup) = killed_behind_a_load(&archive, |_| {});
    let db = Database::open_on(disk.clone(), archiving(&archive)).unwrap();
    put(&db, 0..10);
    db.checkpoint().unwrap();
    assert_eq!(db.metrics().archive.unwrap().failure, None);
    assert!(!disk.list().unwrap().iter().any(|name| name.starts_with("load-")), "the test's own premise");
    db.close().unwrap();
    let (db, ..) = restored(plan(&backup, &archive, RestoreTo::End));
    assert_eq!((count(&db), db.table("loaded").unwrap().rows_estimate()), (10, 400));
}

/// Without logging no record names the file of a bulk load, so there is none: neither for the archive, which would keep
/// it for good, nor in the directory. The numbers of lost loads may be used again.
#[test]
fn a_bulk_load_that_is_not_logged_has_no_load_file() {
    let archive: Arc<dyn Disk> = MemoryDisk::new();
    let disk = FaultyDisk::new(Random::seed_from_environment());
    let db = Database::open_on(disk.clone(), archiving(&archive)).unwrap();
    things(&db);
    put(&db, 0..10);
    db.close().unwrap();
    let unlogged = || Options { logging: Logging::None, ..archiving(&archive) };
    let has_load = |disk: &dyn Disk| disk.list().unwrap().iter().any(|name| name.starts_with("load-"));
    let db = Database::open_on(disk.clone(), unlogged()).unwrap();
    loaded(&db, "lost");
    db.archive_log().unwrap();
    assert_eq!((has_load(&*disk), has_load(&*archive)), (false, false));
    disk.kill();
    drop(db);
    // A close keeps what was loaded: a checkpoint has it.
    let disk = disk.restart();
    let db = Database::open_on(disk.clone(), unlogged()).unwrap();
    loaded(&db, "loaded");
    db.close().unwrap();
    let db = Database::open_on(disk, archiving(&archive)).unwrap();
    assert_eq!((count(&db), db.table("loaded").unwrap().rows_estimate()), (10, 400));
    loaded(&db, "logged");
    db.archive_log().unwrap();
    assert!(has_load(&*archive));
    db.close().unwrap();
}

/// A load file that the archive cannot take, or that cannot be read for it, is reported like a log file. It and the log
/// that names it stay until it is taken.
#[test]
fn a_load_file_that_is_not_archived_is_told_of_and_stays() {
    let archive = FaultyDisk::new(Random::seed_from_environment());
    let shared: Arc<dyn Disk> = archive.clone();
    let (disk, backup) = killed_behind_a_load(&shared, |_| {});
    let db = Database::open_on(disk.clone(), archiving(&shared)).unwrap();
    let failure = || db.metrics().archive.unwrap().failure;
    let loads = || disk.list().unwrap().iter().filter(|name| name.starts_with("load-")).count();
    archive.fail_always(FaultKind::Write, "load-", 0);
    let error = db.archive_log().unwrap_err();
    assert_eq!(failure(), Some(error.to_string()));
    archive.mend();
    disk.fail_always(FaultKind::Read, "load-", 0);
    for n in 0..2 {
        put(&db, n * 10..n * 10 + 10);
        db.checkpoint().unwrap();
        let told = failure().expect("it is told of");
        assert!(told.starts_with("read of \"load-"), "{told}");
        assert_eq!(loads(), 1);
    }
    disk.mend();
    put(&db, 20..30);
    db.checkpoint().unwrap();
    assert_eq!((failure(), loads()), (None, 0));
    db.close().unwrap();
    let (db, ..) = restored(plan(&backup, &shared, RestoreTo::End));
    assert_eq!((count(&db), db.table("loaded").unwrap().rows_estimate()), (30, 400));
}

/// A load file whose removal was cut short does not replace the whole one in the archive.
#[test]
fn a_cut_load_file_does_not_reach_the_archive() {
    let archive: Arc<dyn Disk> = MemoryDisk::new();
    let (disk, backup) = killed_behind_a_load(&archive, |db| db.archive_log().unwrap());
    let name = disk.list().unwrap().into_iter().find(|name| name.starts_with("load-")).unwrap();
    disk.open(&name, Open::Existing, Caching::Buffered).unwrap().set_length(5000).unwrap();
    let db = Database::open_on(disk.clone(), archiving(&archive)).unwrap();
    put(&db, 0..10);
    db.checkpoint().unwrap();
    assert_eq!(db.metrics().archive.unwrap().failure, None);
    assert!(!disk.list().unwrap().contains(&name), "it is removed all the same");
    db.close().unwrap();
    let (db, ..) = restored(plan(&backup, &archive, RestoreTo::End));
    assert_eq!(db.table("loaded").unwrap().rows_estimate(), 400);
}

/// The disk of a process that was killed after a checkpoint that has a bulk load, and a backup from before the load.
/// `last` runs before the kill.
fn killed_behind_a_load(archive: &Arc<dyn Disk>, last: impl FnOnce(&Database)) -> (Arc<FaultyDisk>, Vec<u8>) {
    let disk = FaultyDisk::new(Random::seed_from_environment());
    let db = Database::open_on(disk.clone(), archiving(archive)).unwrap();
    things(&db);
    let (backup, _) = full(&db);
    loaded(&db, "loaded");
    db.checkpoint().unwrap();
    last(&db);
    disk.kill();
    drop(db);
    (disk.restart(), backup)
}
