//! Tests of the log as a whole.

mod archive;
mod crash;
mod cursor;
mod designs;
mod extent;
mod follow;
mod forged;
mod log_files;
mod points;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

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
        // Longer than a loaded machine keeps the log's own threads from preparing the next file.
        wait_max: Duration::from_secs(60),
        ..LogOptions::default()
    }
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

/// Flips a byte of a file, both in the page cache and on the device.
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

/// A log with three blocks in one group after a first durable packet. Returns the offset of the middle block.
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
fn packets_of_all_lengths_and_kinds_come_back_in_their_order() {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let log = Log::create(&disk, DATABASE, &small()).unwrap();
    let kinds = [PacketKind::Commit, PacketKind::Unlogged, PacketKind::Commit];
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

/// A packet's tag comes back beside it, whether the packet is in one block or in several, and is no part of its bytes.
#[test]
fn a_packet_says_which_sweep_holds_it() {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let log = Log::create(&disk, DATABASE, &small()).unwrap();
    let packets = [(10, Some(7)), (20, None), (200_000, Some(u32::MAX)), (0, Some(0)), (100_000, None)];
    for (length, held_by) in packets {
        let mut slot = log.borrow_packet().unwrap();
        slot.bytes_mut().resize(length, 3);
        log.reserve(&mut slot, 0).unwrap();
        let lsn = match held_by {
            Some(sweep) => log.push_held(&mut slot, PacketKind::Commit, sweep),
            None => log.push(&mut slot, PacketKind::Commit),
        };
        log.applied(slot);
        log.wait(lsn, Durability::Disk, &Patience::default()).unwrap();
    }
    drop(log);
    let mut reader = recover(&disk, DATABASE, Lsn(1)).unwrap();
    for (length, held_by) in packets {
        let packet = reader.next_packet().unwrap().unwrap();
        assert_eq!((packet.kind, packet.held_by), (PacketKind::Commit, held_by));
        assert!(packet.bytes.len() == length && packet.bytes.iter().all(|&byte| byte == 3));
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
    // Without the ring the log ends before the torn block: nothing says that the block was durable.
    let (packets, end) = read_all(&disk, 1);
    assert_eq!(packets.len(), 2);
    // The same packets again, so that the new blocks end where the stale block begins.
    let log = Log::open(&disk, DATABASE, &alone(), end).unwrap();
    assert_eq!(log.place(), Lsn(2));
    drop(log);
    disk.remove(ring::RING_NAME).unwrap();
    let (packets, end) = read_all(&disk, 1);
    assert_eq!((packets.len(), end.lsn()), (2, Lsn(2)), "the block after the torn one was whole");
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
fn without_a_free_slot_a_transaction_waits_and_then_fails_at_its_start() {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let options = LogOptions { packet_slots: 2, wait_max: Duration::from_secs(1), ..small() };
    let log = Log::create(&disk, DATABASE, &options).unwrap();
    let held = [log.borrow_packet().unwrap(), log.borrow_packet().unwrap()];
    let error = log.borrow_packet().unwrap_err();
    assert_eq!(error, Error::TooManyPackets { limit: 2 });
    assert_eq!(
        error.to_string(),
        "all 2 packet slots hold commits that are not written yet (Options::packets_max); wait for some of them, or \
         reopen with more"
    );
    let cancelled = log.wait_for_packet(|| Err(Error::Cancelled)).unwrap_err();
    assert_eq!(cancelled, Error::Cancelled);
    drop(held);
    for _ in 0..10 {
        // These packets have no waiter: borrowing gathers them to get their slots back.
        commit(&log, b"unattended");
    }
    log.sync().unwrap();
    assert_eq!(log.durable_position(), Lsn(10));
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
