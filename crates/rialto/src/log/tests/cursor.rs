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
    let mut sources = [false; 2];
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
                        for _ in 0..400 {
                            let length = match random.below(40) {
                                0 => 90_000,
                                1..9 => 4_000,
                                9..20 => 300,
                                _ => 10,
                            };
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
                            let first = block::u32_at(blocks.bytes, 16) as usize;
                            assert!(blocks.bytes.len() <= most.max(first), "{most} bytes were asked for");
                            found.extend_from_slice(blocks.bytes);
                            assert_eq!(blocks.end.position.0, found.len() as u64);
                        }
                        None if ends => return (found, cursor.point(), cursor.bytes_from_files()),
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
        let (found, end, from_files) = found;
        assert_eq!(end.lsn, log.place(), "seed {seed}");
        log.sync().unwrap();
        assert!(bytes_on_disk(&disk, 0, found.len() as u64) == found, "seed {seed}: other bytes");
        assert!(found.len() > 600_000, "the test's own premise: {}", found.len());
        sources = [sources[0] || from_files > 0, sources[1] || from_files < found.len() as u64];
    }
    assert_eq!(sources, [true; 2], "files, and the ring");
}

/// Lets a disk go on also when the test fails.
struct LetsGo<'a>(&'a FaultyDisk);

impl Drop for LetsGo<'_> {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

fn buffered() -> LogOptions {
    LogOptions { caching: Some(Caching::Buffered), ..small() }
}

/// Whichever level the commit waits for, the cursor has its block before the disk does.
#[test]
fn a_cursor_waits_for_a_block_and_gives_it_before_it_is_on_the_disk() {
    for level in [Durability::Memory, Durability::Disk] {
        let disk = FaultyDisk::new(3);
        let as_disk: Arc<dyn Disk> = disk.clone();
        let log = Log::create(&as_disk, DATABASE, &buffered()).unwrap();
        let mut cursor = log.cursor(log.point().unwrap(), u64::MAX).unwrap();
        assert_eq!(cursor.next_blocks(1, NOW), Ok(None));
        disk.hang(FaultKind::Sync, "log-0");
        std::thread::scope(|scope| {
            let lets_go = LetsGo(&disk);
            let reader = scope.spawn(|| {
                let blocks = cursor.next_blocks(1, SOON).unwrap().map(|blocks| blocks.bytes.to_vec());
                (blocks, cursor.point())
            });
            while !log.has_listeners(Durability::Memory) {
                std::thread::yield_now();
            }
            let lsn = commit(&log, b"a packet");
            let log = &log;
            let committer = scope.spawn(move || log.wait(lsn, level, &Patience::default()).unwrap());
            let (blocks, end) = reader.join().unwrap();
            assert!(blocks.unwrap().windows(8).any(|bytes| bytes == b"a packet"));
            assert_eq!(end.lsn, lsn);
            assert!(log.durable_position() < lsn, "before it is on the disk");
            drop(lets_go);
            committer.join().unwrap();
        });
    }
}

/// It is woken: a cursor that polled would take a hundred times as long.
#[test]
fn a_cursor_is_woken_for_each_block() {
    const BLOCKS: u32 = 100;
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let log = Log::create(&disk, DATABASE, &small()).unwrap();
    let mut cursor = log.cursor(log.point().unwrap(), u64::MAX).unwrap();
    let began = std::time::Instant::now();
    for _ in 0..BLOCKS {
        let next = cursor.point().lsn.0 + 1;
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                while cursor.point().lsn.0 < next {
                    cursor.next_blocks(1, SOON).unwrap().expect("there is more");
                }
            });
            while !log.has_listeners(Durability::Memory) && !reader.is_finished() {
                std::thread::yield_now();
            }
            let lsn = commit(&log, b"a packet");
            log.wait(lsn, Durability::Memory, &Patience::default()).unwrap();
        });
    }
    assert!(began.elapsed() < super::super::cursor::POLL * BLOCKS / 2, "{:?}", began.elapsed());
    // One that goes while it waits leaves nothing.
    log.sync().unwrap();
    while cursor.next_blocks(1, Duration::from_millis(1)).unwrap().is_some() {}
    assert!(log.has_listeners(Durability::Memory));
    drop(cursor);
    assert!(!log.has_listeners(Durability::Memory));
}

#[test]
fn a_cursor_goes_on_where_another_has_ended_and_only_there() {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let log = Log::create(&disk, DATABASE, &small()).unwrap();
    let start = log.point().unwrap();
    for _ in 0..20 {
        let lsn = commit(&log, &packet(1, 1_000));
        log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
    }
    let mut cursor = log.cursor(start, u64::MAX).unwrap();
    for _ in 0..2 {
        assert!(cursor.next_blocks(1, NOW).unwrap().is_some());
    }
    let middle = cursor.point();
    let mut cursor = log.cursor(middle, u64::MAX).unwrap();
    while cursor.next_blocks(usize::MAX, NOW).unwrap().is_some() {}
    let end = cursor.point();
    assert_eq!(end.lsn, log.place());
    // Points that this log has not gone through: at its beginning, within it, at its end, and behind that.
    for other in [
        LogPoint { checksum: 7, ..start },
        LogPoint { checksum: 7, ..middle },
        LogPoint { lsn: Lsn(9), ..middle },
        LogPoint { checksum: 7, ..end },
        LogPoint { position: LogPosition(end.position.0 + 8_192), ..end },
    ] {
        let told = log.cursor(other, u64::MAX).and_then(|mut cursor| cursor.next_blocks(1, NOW).map(drop));
        assert!(matches!(told, Err(Error::LogDiverged { .. })), "{other:?}: {told:?}");
    }
}

/// A log that is closed has given all that it has when it says so, and what it says then is its own.
#[test]
fn a_cursor_has_all_of_a_log_that_closes() {
    let disk = FaultyDisk::new(4);
    let as_disk: Arc<dyn Disk> = disk.clone();
    let log = Log::create(&as_disk, DATABASE, &buffered()).unwrap();
    let start = log.point().unwrap();
    let mut cursor = log.cursor(start, u64::MAX).unwrap();
    disk.hang(FaultKind::Sync, "log-0");
    let read_all = |cursor: &mut LogCursor| loop {
        match cursor.next_blocks(1, SOON) {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it closes"),
            Err(error) => break (error, cursor.point().lsn),
        }
    };
    std::thread::scope(|scope| {
        let lets_go = LetsGo(&disk);
        log.leave(commit(&log, b"first"), Durability::Disk);
        while disk.hanging() == 0 {
            std::thread::yield_now();
        }
        let second = commit(&log, b"second");
        log.leave(second, Durability::Disk);
        let closing = scope.spawn(|| log.close());
        let reader = scope.spawn(|| read_all(&mut cursor));
        std::thread::sleep(Duration::from_millis(50));
        drop(lets_go);
        closing.join().unwrap().unwrap();
        assert_eq!(reader.join().unwrap(), (Error::Closed, second));
    });
    // The next opening goes on in the same ring.
    let (_, end) = super::read_all(&as_disk, 1);
    let next = Log::open(&as_disk, DATABASE, &buffered(), end).unwrap();
    for _ in 0..8 {
        let lsn = commit(&next, &packet(2, 50_000));
        next.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
    }
    let mut late = log.cursor(start, u64::MAX).unwrap();
    assert_eq!(read_all(&mut late).1, Lsn(2));
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
        match cursor.next_blocks(100_000, NOW) {
            Ok(blocks) => assert!(blocks.is_some(), "it is not at the end"),
            Err(error) => break error,
        }
    };
    assert!(matches!(trimmed, Error::LogTrimmed { .. }), "{trimmed:?}");
    let refused = log.cursor(beginning, 1 << 20).err();
    assert!(matches!(refused, Some(Error::LogTrimmed { position: 0, .. })), "{refused:?}");
    drop(cursor);
    // One that is gone keeps nothing, and one without a bound of its own reads what stays for others.
    let mut cursor = log.cursor(log.point().unwrap(), 0).unwrap();
    let needed = log.durable_position();
    for _ in 0..20 {
        let lsn = commit(&log, &packet(1, 50_000));
        log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
        log.free_before(needed).unwrap();
    }
    while cursor.next_blocks(100_000, NOW).unwrap().is_some() {}
    assert_eq!(cursor.point().lsn, log.place());
    let here = log.oldest_position();
    drop(cursor);
    fill(2 << 20);
    assert!(log.oldest_position() > here);
}
