//! What an archive has of a log.

use super::*;
use crate::log::Archiver;

/// Commits packets of so many bytes in all; how far the log is durable then.
fn filled(log: &Log, bytes: usize) -> LogPosition {
    for _ in 0..bytes / 50_000 {
        let lsn = commit(log, &[7; 50_000]);
        log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
    }
    log.durable_bytes()
}

/// The bytes of the log's stream that the files of a disk have, the headers of the files left out.
fn stream(disk: &Arc<dyn Disk>) -> Vec<u8> {
    let mut names = disk.list().unwrap();
    names.retain(|name| name.starts_with("log-"));
    names.sort_unstable();
    let mut stream = Vec::new();
    for name in names {
        let file = disk.open(&name, Open::ReadOnly, Caching::Buffered).unwrap();
        let mut bytes = vec![0; file.length().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        stream.extend_from_slice(&bytes[PAGE..]);
    }
    stream
}

/// Several callers archive at the same time: each reads the durable position and copies later. What the archive has after the
/// latest position stays when a caller with an earlier one comes last, in one file and in two.
#[test]
fn an_archive_never_goes_back() {
    for between in [50_000, 400_000] {
        let (disk, archive): (Arc<dyn Disk>, Arc<dyn Disk>) = (MemoryDisk::new(), MemoryDisk::new());
        let log = Log::create(&disk, DATABASE, &small()).unwrap();
        log.archive_to(Archiver::new(disk.clone(), archive.clone()));
        let early = filled(&log, 100_000);
        let late = filled(&log, between);
        assert!(late > early);
        for position in [late, early, late, early] {
            log.archive_up_to(position).unwrap();
            let has = stream(&archive);
            assert!(has[..late.0 as usize] == stream(&disk)[..late.0 as usize], "{early:?} after {late:?}");
        }
        assert_eq!(archive.list().unwrap().len(), if between == 50_000 { 1 } else { 2 });
    }
}
