//! What an archive holds of a log.

use super::*;
use crate::io::Caching;
use crate::log::Archiver;
use crate::log::files::FileTable;

/// Commits packets of this many bytes in all; returns how far the log is durable then.
fn filled(log: &Log, bytes: usize) -> LogPosition {
    for _ in 0..bytes / 50_000 {
        let lsn = commit(log, &[7; 50_000]);
        log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
    }
    log.durable_bytes()
}

/// The files in an archive, by name, and their bytes.
fn files(archive: &Arc<dyn Disk>) -> Vec<(String, Vec<u8>)> {
    let mut names = archive.list().unwrap();
    names.sort_unstable();
    let read = |name: String| {
        let file = archive.open(&name, Open::ReadOnly, Caching::Buffered).unwrap();
        let mut bytes = vec![0; file.length().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        (name, bytes)
    };
    names.into_iter().map(read).collect()
}

/// A checkpoint archives and frees files while a caller of `archive_log` checks whether the archive is this log's.
#[test]
fn files_that_the_archive_has_taken_may_go_while_it_is_looked_at() {
    let (disk, archive): (Arc<dyn Disk>, Arc<dyn Disk>) = (MemoryDisk::new(), MemoryDisk::new());
    let table = FileTable::new(disk.clone(), DATABASE, &small(), Caching::Buffered, Vec::new()).unwrap();
    (0..3).for_each(|_| table.prepare().unwrap());
    let (files, archiver) = (table.behind(0), Archiver::new(disk.clone(), archive, DATABASE));
    assert_eq!(archiver.take(&files[..2]), 2);
    disk.remove("log-0000000001").unwrap();
    archiver.check_is_ours(&files, table.prepared()).unwrap();
}

/// While another process archives there, nothing is copied; a checkpoint that would free files therefore keeps them.
#[test]
fn no_file_goes_to_an_archive_that_another_process_holds() {
    let (disk, archive): (Arc<dyn Disk>, Arc<dyn Disk>) = (MemoryDisk::new(), MemoryDisk::new());
    let table = FileTable::new(disk.clone(), DATABASE, &small(), Caching::Buffered, Vec::new()).unwrap();
    (0..2).for_each(|_| table.prepare().unwrap());
    let archiver = Archiver::new(disk, archive.clone(), DATABASE);
    let held = archive.lock().unwrap();
    assert_eq!(archiver.take(&table.behind(0)), 0);
    assert!(files(&archive).is_empty());
    drop(held);
    assert_eq!(archiver.take(&table.behind(0)), 2);
}

/// Several callers archive at the same time: each reads the durable position and copies later. What a caller with the
/// latest position has copied stays when a caller with an earlier position comes last. Both with one file and with two.
#[test]
fn an_archive_never_goes_back() {
    for between in [50_000, 400_000] {
        let (disk, archive): (Arc<dyn Disk>, Arc<dyn Disk>) = (MemoryDisk::new(), MemoryDisk::new());
        let log = Log::create(&disk, DATABASE, &small()).unwrap();
        log.archive_to(Archiver::new(disk.clone(), archive.clone(), DATABASE));
        let early = filled(&log, 100_000);
        let late = filled(&log, between);
        assert!(late > early);
        log.archive_up_to(late).unwrap();
        let has = files(&archive);
        assert!(!has.is_empty());
        log.archive_up_to(early).unwrap();
        assert!(files(&archive) == has);
    }
}

/// A call of `archive_log` that reaches the archive after the database has closed does not lock it again.
#[test]
fn a_closed_log_archives_nothing_and_leaves_the_archive_to_others() {
    let (disk, archive): (Arc<dyn Disk>, Arc<dyn Disk>) = (MemoryDisk::new(), MemoryDisk::new());
    let table = FileTable::new(disk.clone(), DATABASE, &small(), Caching::Buffered, Vec::new()).unwrap();
    table.prepare().unwrap();
    let (log, archiver) = (table.behind(0), Archiver::new(disk.clone(), archive.clone(), DATABASE));
    disk.open("load-0000000001", Open::CreateNew, Caching::Buffered).unwrap();
    archiver.close();
    for refused in [
        archiver.check_is_ours(&log, table.prepared()),
        archiver.take_up_to(&log, table.prepared()),
        archiver.take_load(1),
    ] {
        assert_eq!(refused, Err(Error::Closed));
    }
    assert_eq!((archiver.take(&log), archive.list().unwrap()), (0, Vec::<String>::new()));
    archive.lock().expect("it is free");
}
