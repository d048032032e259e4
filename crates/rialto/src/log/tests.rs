//! The log as a whole.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::io::{Disk, MemoryDisk};
use crate::{Error, Lsn};

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
            log.wait(lsn, level).unwrap();
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
