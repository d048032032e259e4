//! Cursors: they read what the log has, whatever the log does meanwhile.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::*;
use crate::io::Random;
use crate::log::files;
use crate::log::log_file::LogFileHeader;

const NOW: Duration = Duration::ZERO;
const SOON: Duration = Duration::from_secs(20);

/// The bytes of the log's files from one position to another.
fn bytes_on_disk(disk: &Arc<dyn Disk>, from: u64, to: u64) -> Vec<u8> {
    let mut names: Vec<String> =
        disk.list().unwrap().into_iter().filter(|name| files::sequence(name).is_some()).collect();
    names.sort();
    let mut bytes = Vec::new();
    for name in names {
        let file = disk.open(&name, Open::ReadOnly, Caching::Buffered).unwrap();
        let header = LogFileHeader::read(&*file, DATABASE).unwrap();
        let (first, last) = (header.start.max(from), header.end().min(to));
        if first < last {
            let mut part = vec![0; (last - first) as usize];
            file.read_at(&mut part, header.offset(first)).unwrap();
            bytes.extend(part);
        }
    }
    bytes
}

#[test]
fn a_cursor_gives_the_bytes_of_the_log_from_the_ring_and_from_files() {
    let first = Random::seed_from_environment();
    println!("RIALTO_SEED={first}");
    for seed in (0..3).map(|nth| first.wrapping_add(nth)) {
        let mut random = Random::new(seed);
        let disk: Arc<dyn Disk> = MemoryDisk::new();
        let log = Log::create(&disk, DATABASE, &small()).unwrap();
        let mut cursor = log.cursor(LogPoint::beginning_after(Lsn(0)), u64::MAX).unwrap();
        let is_over = AtomicBool::new(false);
        let found = std::thread::scope(|scope| {
            let (log, is_over) = (&log, &is_over);
            let writers: Vec<_> = (0..3)
                .map(|nth| {
                    let mut random = Random::new(seed.wrapping_mul(7).wrapping_add(nth));
                    scope.spawn(move || {
                        for _ in 0..300 {
                            let length = [10, 300, 4_000, 90_000][random.below(40).min(3) as usize];
                            let lsn = commit(log, &packet(nth, length));
                            let level =
                                if random.chance(1, 4) { Durability::Disk } else { Durability::Memory };
                            log.wait(lsn, level, &Patience::default()).unwrap();
                        }
                    })
                })
                .collect();
            let reader = scope.spawn(move || {
                let mut found = Vec::new();
                loop {
                    let ends = is_over.load(Ordering::SeqCst);
                    let most = [1, 5_000, 200_000][random.below(3) as usize];
                    let from = cursor.point().position;
                    match cursor.next_blocks(most, if ends { NOW } else { SOON }).unwrap() {
                        Some(blocks) => {
                            assert_eq!((blocks.position, blocks.position.0), (from, found.len() as u64));
                            found.extend_from_slice(blocks.bytes);
                            assert_eq!(blocks.end.position.0, found.len() as u64);
                        }
                        None if ends => return (found, cursor.point()),
                        None => panic!("the log is written, and no block comes"),
                    }
                    // Sometimes the ring goes round meanwhile.
                    if random.chance(1, 30) {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                }
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            is_over.store(true, Ordering::SeqCst);
            commit(log, b"the last");
            log.sync().unwrap();
            reader.join().unwrap()
        });
        let (found, end) = found;
        assert_eq!(end.lsn, log.place(), "seed {seed}");
        log.sync().unwrap();
        assert!(bytes_on_disk(&disk, 0, found.len() as u64) == found, "seed {seed}: other bytes");
        assert!(found.len() > 600_000, "the test's own premise: {}", found.len());
    }
}

#[test]
fn a_cursor_waits_for_a_block_and_gives_it_before_it_is_on_the_disk() {
    let disk = FaultyDisk::new(3);
    let as_disk: Arc<dyn Disk> = disk.clone();
    let log =
        Log::create(&as_disk, DATABASE, &LogOptions { caching: Some(Caching::Buffered), ..small() }).unwrap();
    let start = log.point().unwrap();
    let mut cursor = log.cursor(start, u64::MAX).unwrap();
    assert_eq!(cursor.next_blocks(1, NOW), Ok(None));
    disk.hang(FaultKind::Sync, "log-0");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let blocks = cursor.next_blocks(1, SOON).unwrap().map(|blocks| blocks.bytes.to_vec());
            (blocks, cursor.point())
        });
        let lsn = commit(&log, b"a packet");
        log.wait(lsn, Durability::Memory, &Patience::default()).unwrap();
        let (blocks, end) = reader.join().unwrap();
        assert!(blocks.unwrap().windows(8).any(|bytes| bytes == b"a packet"));
        assert_eq!(end.lsn, lsn);
        assert!(log.durable_position() < lsn, "the test's own premise");
        disk.let_go();
    });
    // Another one goes on where it ended.
    drop(cursor);
    let next = commit(&log, b"the next");
    log.wait(next, Durability::Disk, &Patience::default()).unwrap();
    let mut cursor = log.cursor(LogPoint { checksum: 7, ..start }, u64::MAX).unwrap();
    let other_life = cursor.next_blocks(1, SOON).unwrap_err();
    assert!(
        matches!(&other_life, Error::Corrupt { what, .. } if what.contains("a block that follows")),
        "{other_life}"
    );
    log.close().unwrap();
    let mut cursor = log.cursor(start, u64::MAX).unwrap();
    while cursor.point().lsn < next {
        assert!(cursor.next_blocks(1, NOW).unwrap().is_some());
    }
    let closed = loop {
        match cursor.next_blocks(1, SOON) {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it is closed"),
            Err(error) => break error,
        }
    };
    assert_eq!(closed, Error::Closed);
}

#[test]
fn what_a_cursor_needs_stays_up_to_its_bound() {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let log = Log::create(&disk, DATABASE, &small()).unwrap();
    let beginning = LogPoint::beginning_after(Lsn(0));
    let mut cursor = log.cursor(beginning, 2 << 20).unwrap();
    let fill = |bytes: usize| {
        (0..bytes / 50_000).for_each(|_| {
            let lsn = commit(&log, &packet(1, 50_000));
            log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
        });
        log.free_before(log.durable_position()).unwrap();
    };
    fill(1 << 20);
    assert_eq!(log.oldest_position(), 0);
    let mut given = 0;
    while given < 600_000 {
        let blocks = cursor.next_blocks(100_000, NOW).unwrap().expect("there is more");
        given = blocks.end.position.0;
    }
    // What it has given is not what its reader keeps.
    fill(100_000);
    assert_eq!(log.oldest_position(), 0);
    cursor.release(LogPosition(u64::MAX));
    fill(100_000);
    let oldest = log.oldest_position();
    assert!(oldest > 0 && oldest <= given, "{oldest}");
    // Past its bound nothing stays, and it says so.
    fill(3 << 20);
    assert!(log.oldest_position() > given);
    let trimmed = loop {
        if let Err(error) = cursor.next_blocks(100_000, NOW) {
            break error;
        }
    };
    assert!(matches!(trimmed, Error::LogTrimmed { .. }), "{trimmed:?}");
    let refused = log.cursor(beginning, 1 << 20).err();
    assert!(matches!(refused, Some(Error::LogTrimmed { position: 0, .. })), "{refused:?}");
    drop(cursor);
    // One that is gone keeps nothing.
    let cursor = log.cursor(log.point().unwrap(), u64::MAX).unwrap();
    let here = log.oldest_position();
    drop(cursor);
    fill(2 << 20);
    assert!(log.oldest_position() > here);
}
