//! The log as a whole.

mod crash;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use super::*;
use crate::io::{Disk, FaultKind, FaultyDisk, MemoryDisk, Open};
use crate::{Error, Lsn, Result};

const DATABASE: u128 = 0x1234_5678_9abc_def0_1122_3344_5566_7788;

fn small() -> LogOptions {
    LogOptions {
        first_file_bytes: 256 << 10,
        file_bytes: 512 << 10,
        ring_bytes: 256 << 10,
        packet_slots: 64,
        wait_max: Duration::from_millis(500),
        ..LogOptions::default()
    }
}

/// Every design, with a setting where it needs one to do anything.
fn every_design() -> impl Iterator<Item = GroupCommitOptions> {
    GroupCommitDesign::ALL.into_iter().map(|design| {
        let options = GroupCommitOptions::from(design);
        let wait = GroupCommitOptions { willing_to_wait: Some(Duration::from_millis(1)), ..options };
        if wait.problem().is_none() { wait } else { options }
    })
}

fn commit(log: &Log, bytes: &[u8]) -> Lsn {
    let mut slot = log.borrow_packet().unwrap();
    slot.bytes_mut().extend_from_slice(bytes);
    log.reserve(&mut slot, 0).unwrap();
    let lsn = log.push(&mut slot, PacketKind::Commit);
    assert_eq!(slot.bytes(), bytes);
    log.applied(slot);
    lsn
}

fn packet(lsn: u64, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u64).wrapping_mul(lsn ^ 0x9e37) as u8 ^ lsn as u8).collect()
}

fn read_all(disk: &Arc<dyn Disk>, from: u64) -> (Vec<(u64, Vec<u8>)>, LogEnd) {
    let mut reader = recover(disk, DATABASE, Lsn(from)).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        packets.push((packet.lsn.0, packet.bytes.to_vec()));
    }
    (packets, reader.finish().unwrap())
}

#[test]
fn commits_are_read_back_in_order_and_the_log_goes_on() {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let mut next = 1;
    let mut log = Log::create(&disk, DATABASE, &small()).unwrap();
    for round in 0..4 {
        for length in [0, 1, 100, 5_000, 70_000, 300_000, 7] {
            let lsn = commit(&log, &packet(next, length + round));
            assert_eq!(lsn, Lsn(next));
            let level = if next % 3 == 0 { Durability::Memory } else { Durability::Disk };
            log.wait(lsn, level, &Patience::default()).unwrap();
            assert_eq!(log.is_done(lsn, level), Some(Ok(())));
            next += 1;
        }
        log.close().unwrap();
        assert_eq!(log.durable_position(), Lsn(next - 1));
        drop(log);
        let (packets, end) = read_all(&disk, 1);
        assert_eq!(packets.len() as u64, next - 1);
        for (at, (lsn, bytes)) in packets.iter().enumerate() {
            assert_eq!(*lsn, at as u64 + 1);
            assert_eq!(*bytes, packet(*lsn, bytes.len()));
        }
        log = Log::open(&disk, DATABASE, &small(), end).unwrap();
        assert_eq!(log.place(), Lsn(next - 1));
    }
}

/// Flips a byte of a file in the page cache and on the device alike.
fn flip(disk: &Arc<dyn Disk>, name: &str, offset: u64) {
    let file = disk.open(name, Open::Existing, Caching::Buffered).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, offset).unwrap();
    file.write_at(&[byte[0] ^ 0x40], offset).unwrap();
}

fn alone() -> LogOptions {
    LogOptions { threads: LogThreads::None, ..small() }
}

fn recovery_error(disk: &Arc<dyn Disk>, from: u64) -> Error {
    match recover(disk, DATABASE, Lsn(from)) {
        Err(error) => error,
        Ok(reader) => reader.finish().unwrap_err(),
    }
}

/// A log with three blocks in one group behind a first durable packet; the offset of the middle one.
fn three_blocks_in_one_group(disk: &Arc<dyn Disk>) -> u64 {
    let log = Log::create(disk, DATABASE, &alone()).unwrap();
    let first = commit(&log, b"first");
    log.wait(first, Durability::Disk, &Patience::default()).unwrap();
    let middle = log.durable_bytes().0
        + block::closed_length(log.durable_bytes().0, block::HEADER + 4 + 50_000) as u64;
    for lsn in 2..=4 {
        commit(&log, &packet(lsn, 50_000));
    }
    log.close().unwrap();
    middle + PAGE as u64
}

#[test]
fn the_kinds_for_two_phase_commit_travel_like_any_other() {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let log = Log::create(&disk, DATABASE, &small()).unwrap();
    let kinds = [PacketKind::Prepare, PacketKind::Commit, PacketKind::Decide];
    for (kind, length) in kinds.into_iter().zip([10, 20, 200_000]) {
        let mut slot = log.borrow_packet().unwrap();
        slot.bytes_mut().resize(length, 3);
        log.reserve(&mut slot, 0).unwrap();
        let lsn = log.push(&mut slot, kind);
        log.applied(slot);
        log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
    }
    drop(log);
    let mut reader = recover(&disk, DATABASE, Lsn(1)).unwrap();
    for kind in kinds {
        assert_eq!(reader.next_packet().unwrap().unwrap().kind, kind);
    }
    assert_eq!(reader.next_packet().unwrap(), None);
}

#[test]
fn a_stale_block_behind_a_torn_one_never_comes_back() {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let middle = three_blocks_in_one_group(&disk);
    flip(&disk, "log-0000000001", middle + 1000);
    // The ring of the same boot still has the block, so the process's death alone loses nothing.
    assert_eq!(read_all(&disk, 1).0.len(), 4);
    disk.remove(ring::RING_NAME).unwrap();
    // Without it the log ends before the torn block: nothing says that it was durable.
    let (packets, end) = read_all(&disk, 1);
    assert_eq!(packets.len(), 2);
    // The same packets again, so that the new blocks lie where the stale one is next in line.
    let log = Log::open(&disk, DATABASE, &alone(), end).unwrap();
    assert_eq!(log.place(), Lsn(2));
    drop(log);
    disk.remove(ring::RING_NAME).unwrap();
    let (packets, end) = read_all(&disk, 1);
    assert_eq!((packets.len(), end.lsn()), (2, Lsn(2)), "the block behind the torn one was whole");
    let log = Log::open(&disk, DATABASE, &alone(), end).unwrap();
    let lsn = commit(&log, &packet(3, 50_000));
    log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
    drop(log);
    assert_eq!(read_all(&disk, 1).0.len(), 3);
}

#[test]
fn a_damaged_block_that_a_later_one_calls_durable_is_corruption() {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let middle = three_blocks_in_one_group(&disk);
    let (_, end) = read_all(&disk, 1);
    let log = Log::open(&disk, DATABASE, &alone(), end).unwrap();
    for _ in 0..2 {
        let lsn = commit(&log, b"later");
        log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
    }
    drop(log);
    disk.remove(ring::RING_NAME).unwrap();
    flip(&disk, "log-0000000001", middle + 1000);
    match recovery_error(&disk, 1) {
        Error::Corrupt { file, offset, what } => {
            assert_eq!((file.as_str(), offset), ("log-0000000001", middle));
            assert!(what.contains("place 2") && what.contains("was durable"), "{what}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn the_ring_counts_only_under_its_boot() {
    for same_boot in [true, false] {
        let faulty = FaultyDisk::new(3);
        let disk: Arc<dyn Disk> = faulty.clone();
        let log = Log::create(&disk, DATABASE, &alone()).unwrap();
        let lsn = commit(&log, b"on disk");
        log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
        for lsn in 2..=5 {
            let lsn = commit(&log, &packet(lsn, 20_000));
            log.wait(lsn, Durability::Memory, &Patience::default()).unwrap();
        }
        assert_eq!((log.memory_position(), log.durable_position()), (Lsn(5), Lsn(1)));
        if same_boot {
            faulty.kill()
        } else {
            faulty.crash()
        };
        drop(log);
        let restarted = faulty.restart();
        let disk: Arc<dyn Disk> = restarted.clone();
        let (packets, end) = read_all(&disk, 1);
        assert_eq!(packets.len(), if same_boot { 5 } else { 1 });
        if same_boot {
            // What was recovered from the ring is on disk once the log is open, also after a power failure.
            let log = Log::open(&disk, DATABASE, &alone(), end).unwrap();
            restarted.crash();
            drop(log);
            let disk: Arc<dyn Disk> = restarted.restart();
            let (again, _) = read_all(&disk, 1);
            assert_eq!(again, packets);
        }
    }
}

#[test]
fn a_ring_that_lost_answered_commits_is_corruption() {
    let faulty = FaultyDisk::new(5);
    let disk: Arc<dyn Disk> = faulty.clone();
    let log = Log::create(&disk, DATABASE, &alone()).unwrap();
    let lsn = commit(&log, b"in memory");
    log.wait(lsn, Durability::Memory, &Patience::default()).unwrap();
    faulty.kill();
    drop(log);
    let disk: Arc<dyn Disk> = faulty.restart();
    let bytes = disk.shared_bytes(ring::RING_NAME).unwrap().unwrap();
    let map = disk.map_shared(ring::RING_NAME, bytes).unwrap();
    map.as_words()[(PAGE + PAGE + 64) / 8].fetch_xor(1, Ordering::SeqCst);
    let error = recovery_error(&disk, 1);
    assert!(matches!(&error, Error::Corrupt { what, .. } if what.contains("log-tail")), "{error}");
}

#[test]
fn a_failed_sync_stops_the_log_for_good() {
    for (kind, group_commit) in [FaultKind::Sync, FaultKind::Write]
        .into_iter()
        .flat_map(|kind| every_design().map(move |one| (kind, one)))
    {
        let faulty = FaultyDisk::new(11);
        let disk: Arc<dyn Disk> = faulty.clone();
        let log = Log::create(&disk, DATABASE, &LogOptions { group_commit, ..small() }).unwrap();
        let before = commit(&log, b"before");
        log.wait(before, Durability::Disk, &Patience::default()).unwrap();
        faulty.fail(kind, "log-0", 0);
        let mut spare = log.borrow_packet().unwrap();
        let lsn = commit(&log, b"lost?");
        let error = log.wait(lsn, Durability::Disk, &Patience::default()).unwrap_err();
        assert!(matches!(&error, Error::OutcomeUnknown { lsn: Lsn(2), .. }), "{error}");
        let steps = faulty.steps();
        assert!(
            matches!(
                log.wait(lsn, Durability::Disk, &Patience::default()),
                Err(Error::OutcomeUnknown { .. })
            ),
            "sticky"
        );
        assert!(matches!(log.reserve(&mut spare, 10), Err(Error::Stopped { .. })));
        assert!(matches!(log.borrow_packet(), Err(Error::Stopped { .. })));
        assert_eq!(
            log.wait(before, Durability::Disk, &Patience::default()),
            Ok(()),
            "what was durable stays so"
        );
        assert!(log.close().is_err() && log.failure().is_some());
        assert_eq!(faulty.steps(), steps, "I4: nothing is written or synced again");
    }
}

#[test]
fn files_are_switched_freed_and_reused() {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let options = LogOptions { bytes_max: 4 << 20, ..small() };
    let log = Log::create(&disk, DATABASE, &options).unwrap();
    let mut names = std::collections::BTreeSet::new();
    for lsn in 1..=400 {
        let lsn = commit(&log, &packet(lsn, 30_000));
        let level = if lsn.0.is_multiple_of(5) { Durability::Disk } else { Durability::Memory };
        log.wait(lsn, level, &Patience::default()).unwrap();
        names.extend(disk.list().unwrap());
        if lsn.0.is_multiple_of(50) {
            log.free_before(Lsn(lsn.0 - 20)).unwrap();
            let since = log.bytes_since(Lsn(lsn.0 - 20));
            assert!((20 * 30_000..1_600_000).contains(&since), "{since} bytes since 20 packets ago");
        }
    }
    log.close().unwrap();
    drop(log);
    assert!(
        names.contains("log-0000000020") && names.iter().any(|name| name.starts_with("log-spare")),
        "{names:?}"
    );
    let (packets, end) = read_all(&disk, 380);
    assert_eq!(packets.len(), 21);
    assert!(packets.iter().all(|(lsn, bytes)| *bytes == packet(*lsn, 30_000)));
    let log = Log::open(&disk, DATABASE, &options, end).unwrap();
    assert!(log.bytes_since(Lsn(380)) > 20 * 30_000);
    drop(log);
    // The redo start must be there, and so must everything behind it.
    assert!(matches!(recovery_error(&disk, 1), Error::Corrupt { what, .. } if what.contains("place 1")));
}

#[test]
fn a_missing_file_is_named() {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let log = Log::create(&disk, DATABASE, &small()).unwrap();
    for lsn in 1..=60 {
        let lsn = commit(&log, &packet(lsn, 30_000));
        log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
    }
    drop(log);
    disk.remove("log-0000000003").unwrap();
    match recovery_error(&disk, 1) {
        Error::Corrupt { file, what, .. } => {
            assert_eq!(file, "log-0000000003");
            assert!(what.contains("missing"), "{what}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn near_its_bound_the_log_waits_for_a_checkpoint_and_then_fails_before_the_place() {
    for threads in [LogThreads::Background, LogThreads::None] {
        let disk: Arc<dyn Disk> = MemoryDisk::new();
        let wait_max = Duration::from_millis(50);
        let options = LogOptions { bytes_max: 1 << 20, threads, wait_max, ..small() };
        let log = Log::create(&disk, DATABASE, &options).unwrap();
        let place = loop {
            let mut slot = log.borrow_packet().unwrap();
            slot.bytes_mut().resize(30_000, 1);
            let place = log.place();
            match log.reserve(&mut slot, 0) {
                Ok(()) => {
                    let lsn = log.push(&mut slot, PacketKind::Commit);
                    log.applied(slot);
                    log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
                }
                Err(Error::LogFull { reason }) => {
                    assert!(reason.contains("log_bytes_max"), "{reason}");
                    break place;
                }
                Err(other) => panic!("{other}"),
            }
        };
        assert_eq!(log.place(), place);
        assert!(log.free_before(place).unwrap() > 0);
        let lsn = commit(&log, &packet(1, 30_000));
        log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
    }
}

#[test]
fn without_a_free_slot_a_transaction_waits_and_then_fails_at_its_start() {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let options = LogOptions { packet_slots: 2, wait_max: Duration::from_millis(20), ..small() };
    let log = Log::create(&disk, DATABASE, &options).unwrap();
    let held = [log.borrow_packet().unwrap(), log.borrow_packet().unwrap()];
    assert_eq!(log.borrow_packet().unwrap_err(), Error::TooManyPackets { limit: 2 });
    drop(held);
    for _ in 0..10 {
        // Nobody waits for these: borrowing gathers them to get their slots back.
        commit(&log, b"unattended");
    }
    log.sync().unwrap();
    assert_eq!(log.durable_position(), Lsn(10));
}

#[test]
fn a_level_1_commit_is_on_disk_within_the_stated_bound_and_an_idle_log_sleeps() {
    every_design().for_each(level_1_is_bounded);
}

fn level_1_is_bounded(group_commit: GroupCommitOptions) {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let options = LogOptions { memory_flush_interval: Duration::from_millis(40), group_commit, ..small() };
    let log = Log::create(&disk, DATABASE, &options).unwrap();
    for _ in 0..3 {
        let started = Instant::now();
        let lsn = commit(&log, b"level 1");
        log.wait(lsn, Durability::Memory, &Patience::default()).unwrap();
        assert!(log.memory_position() >= lsn);
        let early = log.durable_position() < lsn && started.elapsed() < Duration::from_millis(40);
        while log.durable_position() < lsn {
            // Generous for a loaded machine; a log that forgot the packet never gets there.
            assert!(started.elapsed() < Duration::from_secs(5), "I3: level 1 is written within a bound");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(
            early && started.elapsed() >= Duration::from_millis(40),
            "and not at once, which would be level 3"
        );
    }
    let before = log.stats();
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(log.stats(), before, "nothing is written or woken while nothing happens");
}

#[derive(Default)]
struct CountWakes(AtomicU64);

impl Wake for CountWakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn tickets_are_written_by_the_stand_in_and_woken_once() {
    every_design().for_each(tickets_are_woken_once);
}

fn tickets_are_woken_once(group_commit: GroupCommitOptions) {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let log = Log::create(&disk, DATABASE, &LogOptions { group_commit, ..small() }).unwrap();
    let wakes = Arc::new(CountWakes::default());
    let waker = Waker::from(wakes.clone());
    let mut kept = 0;
    for lsn in 1..=200u64 {
        let level = if lsn % 2 == 0 { Durability::Memory } else { Durability::Disk };
        let lsn = commit(&log, &packet(lsn, 2_000));
        kept += u64::from(log.register_waker(lsn, level, &waker).is_none());
    }
    let until = Instant::now() + Duration::from_secs(5);
    while wakes.0.load(Ordering::SeqCst) < kept {
        assert!(Instant::now() < until, "{} of {kept} woken", wakes.0.load(Ordering::SeqCst));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(log.is_done(Lsn(199), Durability::Disk), Some(Ok(())));
    assert_eq!(wakes.0.load(Ordering::SeqCst), kept);
}

#[test]
fn many_threads_commit_at_both_levels_and_all_of_it_is_there() {
    for group_commit in every_design() {
        many_threads_commit(group_commit);
        many_threads_commit(GroupCommitOptions { group_max: Some(3), ..group_commit });
    }
}

#[test]
fn no_group_is_larger_than_the_bound() {
    const THREADS: u64 = 8;
    for design in every_design() {
        let disk: Arc<dyn Disk> = MemoryDisk::new();
        let group_commit = GroupCommitOptions { group_max: Some(3), ..design };
        // Room for a block each: who waits for log space gathers what is queued, whatever the bound.
        let roomy = LogOptions { first_file_bytes: 4 << 20, file_bytes: 4 << 20, group_commit, ..small() };
        let log = Log::create(&disk, DATABASE, &roomy).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    // Some wait, some leave theirs to the stand-in: eight threads alone make groups of up to eight.
                    for nth in 0..60 {
                        let lsn = commit(&log, b"bounded");
                        match nth % 3 {
                            0 => log.wait(lsn, Durability::Disk, &Patience::default()).unwrap(),
                            _ => log.leave(lsn, Durability::Disk),
                        }
                    }
                });
            }
        });
        log.sync().unwrap();
        let stats = log.stats();
        assert_eq!(stats.packets, THREADS * 60, "{design}");
        assert!(
            stats.group_sizes[2..].iter().all(|groups| *groups == 0),
            "{design}: {:?}",
            stats.group_sizes
        );
    }
}

fn many_threads_commit(group_commit: GroupCommitOptions) {
    const THREADS: u64 = 6;
    const EACH: u64 = 200;
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let log = Log::create(&disk, DATABASE, &LogOptions { group_commit, ..small() }).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let log = &log;
            scope.spawn(move || {
                for round in 0..EACH {
                    let length = if round % 97 == 0 { 100_000 } else { 50 + (round % 7) as usize * 300 };
                    let mut bytes = packet(round, length);
                    bytes[..8].copy_from_slice(&thread.to_le_bytes());
                    let lsn = commit(log, &bytes);
                    match (thread + round) % 3 {
                        0 => log.wait(lsn, Durability::Memory, &Patience::default()).unwrap(),
                        1 => log.wait(lsn, Durability::Disk, &Patience::default()).unwrap(),
                        _ => log.leave(lsn, Durability::Disk),
                    }
                }
            });
        }
    });
    log.close().unwrap();
    let stats = log.stats();
    assert_eq!(stats.packets, THREADS * EACH);
    assert!(stats.groups <= stats.packets && stats.group_sizes.iter().sum::<u64>() <= stats.groups);
    drop(log);
    let (packets, _) = read_all(&disk, 1);
    assert_eq!(packets.len() as u64, THREADS * EACH);
    let mut per_thread = [0; THREADS as usize];
    packets.iter().for_each(|(_, bytes)| per_thread[bytes[0] as usize] += 1);
    assert_eq!(per_thread, [EACH; THREADS as usize]);
}

#[test]
fn a_log_is_not_made_over_another_and_bad_options_are_refused() {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let log = Log::create(&disk, DATABASE, &small()).unwrap();
    let lsn = commit(&log, b"something to lose");
    log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
    drop(log);
    assert!(matches!(Log::create(&disk, DATABASE, &small()), Err(Error::Unsupported { .. })));
    assert!(matches!(recover(&disk, DATABASE + 1, Lsn(1)), Err(Error::Corrupt { .. })));
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    for bad in [
        LogOptions { first_file_bytes: 5000, ..small() },
        LogOptions { ring_bytes: 4096, ..small() },
        LogOptions { packet_slots: 0, ..small() },
        LogOptions { bytes_max: 0, ..small() },
        LogOptions {
            group_commit: GroupCommitOptions { stall: Some(Duration::ZERO), ..Default::default() },
            ..small()
        },
    ] {
        assert!(matches!(Log::create(&disk, DATABASE, &bad), Err(Error::BadDefinition { .. })));
    }
}

/// A log of these forged blocks, read to its end.
fn read_forged(forged: &[ForgedBlock]) -> Result<LogEnd> {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let mut blocks = forged.iter();
    let bytes = forge_log_file(DATABASE, 64 << 10, (0, 64 << 10), |next| {
        Some(ForgedBlock { position: next.position, ..blocks.next()?.clone() })
    });
    disk.open(&files::name(1), Open::Create, Caching::Buffered).unwrap().write_at(&bytes, 0).unwrap();
    // A block inside a packet begins with the place behind it.
    let from = Lsn(1 + u64::from(forged[0].inside));
    recover(&disk, DATABASE, from)?.finish()
}

fn pad(first_lsn: u64) -> ForgedBlock {
    ForgedBlock {
        kind: 3,
        packet_kind: 0,
        inside: false,
        packets: 0,
        position: 0,
        first_lsn,
        durable: 0,
        incarnation: 1,
        payload: Vec::new(),
        part_before: 0,
    }
}

/// Found by `fuzz::forged_log`: the place before the first was computed below zero.
#[test]
fn a_block_of_a_place_that_no_log_has_is_no_block() {
    assert_eq!(read_forged(&[pad(1)]).unwrap().lsn(), Lsn(0));
    for place in [0, Lsn::MAX.0 + 1, u64::MAX] {
        let error = read_forged(&[pad(place)]).unwrap_err().to_string();
        assert!(error.contains("no file holds a block"), "{error}");
    }
    let many = ForgedBlock { kind: 1, packets: u32::MAX, first_lsn: Lsn::MAX.0 - 5, ..pad(1) };
    read_forged(&[many]).unwrap_err();
}

/// Found by `fuzz::forged_log`: as many zeros as the part says came before it were made, up to 4 GiB.
#[test]
fn a_part_of_a_packet_longer_than_any_is_malformed() {
    let numbers = [0, 0xffff_ff00, 0xffff_fff0, 0u32];
    let payload = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let part = ForgedBlock { kind: 2, packet_kind: 1, inside: true, payload, ..pad(1) };
    let error = read_forged(&[part]).unwrap_err().to_string();
    assert!(error.contains("the length of a packet in parts makes no sense"), "{error}");
}

/// Found by `fuzz::forged_log`: as many empty packets were read as the pad said, up to 2^32.
#[test]
fn a_pad_has_no_packets() {
    let error = read_forged(&[ForgedBlock { packets: 3, ..pad(1) }]).unwrap_err().to_string();
    assert!(error.contains("a pad with packets makes no sense"), "{error}");
}

/// Found by `fuzz::forged_log`: where the file ends was computed past 2^64.
#[test]
fn a_log_file_of_positions_that_no_log_has_is_corrupt() {
    for (start, capacity) in [(!4095, 64 << 10), (0, !4095)] {
        let disk: Arc<dyn Disk> = MemoryDisk::new();
        let bytes = forge_log_file(DATABASE, 64 << 10, (start, capacity), |_| None);
        disk.open(&files::name(1), Open::Create, Caching::Buffered).unwrap().write_at(&bytes, 0).unwrap();
        let error = recovery_error(&disk, 1).to_string();
        assert!(error.contains("which no log has"), "{error}");
    }
}

/// What one checkpoint frees is what the log will need until the next: files are made over, not removed and made anew.
#[test]
fn a_busy_log_makes_all_its_files_over_and_a_calm_one_gives_them_up() {
    let disk = MemoryDisk::new();
    let (dynamic, options) = (disk.clone() as Arc<dyn Disk>, LogOptions { spare_files_max: 1, ..small() });
    let log = Log::create(&dynamic, DATABASE, &options).unwrap();
    let spares = || disk.list().unwrap().iter().filter(|name| name.starts_with("log-spare")).count();
    let rounds = |packets: u64| {
        (0..packets).for_each(|n| {
            let lsn = commit(&log, &packet(n, 30_000));
            log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
        });
        let before = spares();
        let freed = log.free_before(log.durable_position()).unwrap() as usize;
        (before, freed, spares())
    };
    let (_, first, kept) = rounds(300);
    assert!(first > 5 && kept >= first - 1, "all but the first file, which is shorter: {kept} of {first}");
    let (left, freed, kept) = rounds(300);
    assert!(left <= 2 && kept >= freed, "all were used, {left} left, and as many freed: {kept} of {freed}");
    for before in (3..=freed.max(first)).rev() {
        let (_, freed, kept) = rounds(40);
        assert!(freed <= 3 && kept <= before, "{kept} spares of a log that frees {freed}");
    }
    log.close().unwrap();

    // A bound that leaves no room for spares but the one.
    let disk = MemoryDisk::new();
    let options = LogOptions { bytes_max: 2 << 20, ..options };
    let log = Log::create(&(disk.clone() as Arc<dyn Disk>), DATABASE, &options).unwrap();
    for n in 0..400 {
        let lsn = commit(&log, &packet(n, 30_000));
        log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
        if n % 40 == 39 {
            log.free_before(log.durable_position()).unwrap();
            let bytes: u64 = disk
                .list()
                .unwrap()
                .iter()
                .filter(|name| name.starts_with("log-"))
                .map(|name| {
                    if name == ring::RING_NAME {
                        0
                    } else {
                        disk.open(name, Open::ReadOnly, Caching::Buffered).unwrap().length().unwrap()
                    }
                })
                .sum();
            assert!(bytes <= (2 << 20) + (256 << 10), "{bytes} bytes of files for a bound of 2 MiB");
        }
    }
}
